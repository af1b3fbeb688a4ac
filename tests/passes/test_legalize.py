"""Rewriting operators that a target lacks; a rewrite that does not apply changes nothing."""

from __future__ import annotations

import onnx_ir as ir

from converter.errors import MappingError
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
