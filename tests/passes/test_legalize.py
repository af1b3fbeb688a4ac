"""Rewriting operators that a target lacks; a rewrite that does not apply changes nothing."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto as T
from onnx import helper as h

import converter
from converter.errors import MappingError, UnsupportedError
from converter.graph.build import Builder, new_model
from converter.graph.names import Names
from converter.passes.legalize import rewritten


def test_a_rewrite_that_gives_up_inside_a_body_leaves_nothing() -> None:
    model, b = new_model()
    y = b.op("Tanh", b.input("x", ir.DataType.FLOAT, [2, 3]))
    b.output(y)

    def rewrite(node: ir.Node, b: Builder) -> ir.Value:
        made = b.op("Neg", node.inputs[0])
        body = b.body("body")
        body.body("inner").op("Abs", body.op("Exp", made))
        raise MappingError("no further")

    node = y.producer()
    assert node is not None
    assert rewritten(node, Names(model), rewrite) == []
    assert [n.op_type for n in model.graph] == ["Tanh"]
    assert [u.node for u in model.graph.inputs[0].uses()] == [node]


@pytest.mark.parametrize("target", ["coreml", "mlprogram", "nnapi", "openvino+ir=7"])
def test_a_refusal_names_the_operator_of_the_file(target: str, tmp_path: Path) -> None:
    """Not only a constant or an operator of its decomposition."""
    node = h.make_node("BitwiseAnd", ["x", "y"], ["z"], name="bits")
    x, y, z = (h.make_tensor_value_info(n, T.UINT32, [2, 3]) for n in "xyz")
    model = h.make_model(h.make_graph([node], "g", [x, y], [z]), ir_version=9)
    onnx.save(model, str(tmp_path / "m.onnx"))
    with pytest.raises(UnsupportedError) as e:
        converter.convert(tmp_path / "m.onnx", tmp_path / "out", target=target)
    found = [d for d in e.value.diagnostics if d.level == "error"]
    assert found
    for one in found:
        assert (one.where.layer, one.where.kind) == ("bits", "BitwiseAnd")
        assert "BitwiseAnd" in one.message
