"""The canonical graph -> an ONNX model that stands by itself: extension operators carry their definition as functions."""

from __future__ import annotations

import onnx_ir as ir

from converter.format import Flavour
from converter.graph.extensions import bind
from converter.model import Model


def lower(model: Model, flavour: Flavour) -> ir.Model:
    clone = model.ir.clone()
    bind(clone)
    return clone
