"""ONNX of any opset -> the canonical graph."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from converter.graph import IR_VERSION, OPSET
from converter.graph.extensions import unbind
from converter.graph.shapes import infer_all
from converter.model import Model


def lift(proto: onnx.ModelProto) -> Model:
    """Normalises a ModelProto: opset 21, constants as initializers, extension operators unbound, all values typed."""
    model = ir.from_proto(proto)
    unbind(model)
    model.ir_version = IR_VERSION
    model.graph.opset_imports[""] = OPSET
    infer_all(model)
    return Model(model, "onnx")
