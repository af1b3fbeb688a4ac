"""Constants beyond the limit of folding."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from converter.graph.build import new_model
from converter.passes.fold import fold


@pytest.mark.parametrize(
    ("operator", "operand", "attributes"),
    [
        ("Reshape", [-1], {}),
        ("Unsqueeze", [0], {}),
        ("Transpose", None, {"perm": [1, 0]}),
    ],
)
def test_layouts_of_large_constants_are_views(
    operator: str, operand: list[int] | None, attributes: dict[str, list[int]]
) -> None:
    model, b = new_model()
    stored = np.arange(1100 * 1000, dtype=np.float32).reshape(1100, 1000)
    operands = [] if operand is None else [b.const(np.array(operand))]
    y = b.op(operator, b.const(stored), *operands, **attributes)
    b.output(b.op("Neg", y))
    fold(model)
    (node,) = model.graph
    weight = node.inputs[0].const_value if node.inputs[0] is not None else None
    assert node.op_type == "Neg" and weight is not None
    assert np.shares_memory(weight.numpy(), stored)


def test_computed_constants_beyond_the_limit_stay_nodes() -> None:
    model, b = new_model()
    b.output(b.op("Neg", b.const(np.ones((1100, 1000), np.float32))))
    fold(model)
    assert [n.op_type for n in model.graph] == ["Neg"]


def test_a_matrix_in_another_order_gets_an_axis_as_a_view() -> None:
    model, b = new_model()
    stored = np.arange(1100 * 1000, dtype=np.float32).reshape(1100, 1000)
    turned = b.op("Transpose", b.const(stored), perm=[1, 0])
    b.output(b.op("Neg", b.op("Reshape", turned, b.const(np.array([1, 1000, 1100])))))
    fold(model)
    (node,) = model.graph
    weight = node.inputs[0].const_value if node.inputs[0] is not None else None
    assert weight is not None and np.shares_memory(weight.numpy(), stored)


@pytest.mark.parametrize("shape", [[], [3]])
def test_nothing_is_transposed_of_fewer_than_two_axes(shape: list[int]) -> None:
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, shape)
    b.output(b.op("Transpose", b.op("Neg", x)), b.op("Transpose", x))
    fold(model)
    assert sorted(n.op_type for n in model.graph) == ["Identity", "Neg"]


@pytest.mark.parametrize(("sizes", "kept"), [([2, 3], False), ([], False), ([0, 3], True)])
def test_allowzero_says_nothing_of_sizes_that_are_not_0(sizes: list[int], kept: bool) -> None:
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [int(np.prod(sizes))])
    b.output(b.Reshape(x, np.array(sizes, np.int64), allowzero=1))
    fold(model)
    (node,) = (n for n in model.graph if n.op_type == "Reshape")
    assert ("allowzero" in node.attributes) == kept
