"""Attention masks without infinities."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from converter.api import Model
from converter.graph.build import Builder, new_model
from converter.passes.finite_masks import replace_infinite_masks

T = ir.DataType
MASK = np.array([[True, False, True], [False, False, False]])


def _scores(dtype: ir.DataType) -> tuple[ir.Model, Builder, ir.Value, ir.Value]:
    """Return scores x, and a mask from booleans, added to another mask."""
    model, b = new_model()
    x, mask = b.input("x", dtype, [2, 3]), b.input("mask", T.BOOL, [2, 3])
    zero, low = (b.const(np.array(n, dtype.numpy())) for n in (0, -np.inf))
    more = b.const(np.array([0, 0, -np.inf], dtype.numpy()), "more")
    return model, b, x, b.op("Add", b.op("Where", mask, zero, low), more)


def _attention(dtype: ir.DataType = T.FLOAT, shown: bool = False) -> Model:
    """Return the weights of an attention, 0 where all is masked; `shown`: the sums are an output,
    too.
    """
    model, b, x, mask = _scores(dtype)
    highest = b.op("ReduceMax", mask, [1], keepdims=1)
    nothing = b.op("Equal", highest, b.const(np.array([-np.inf], dtype.numpy())))
    total = b.op("Add", x, mask)
    weights = b.op("Softmax", total, axis=-1)
    b.output(b.op("Where", nothing, b.const(np.array(0, dtype.numpy())), weights, name="y"))
    if shown:
        b.output(total)
    return Model(model, "onnx")


def _infinite(model: Model) -> bool:
    arrays = [v.const_value.numpy() for v in model.ir.graph.initializers.values() if v.const_value]
    return any(a.dtype.kind == "f" and np.isinf(a).any() for a in arrays)


def _run(model: Model, dtype: ir.DataType) -> np.ndarray:
    x = np.arange(6).reshape(2, 3).astype(dtype.numpy())
    return next(iter(model.run({"x": x, "mask": MASK}).values()))


@pytest.mark.parametrize("dtype", [T.FLOAT, T.FLOAT16])
def test_masks_that_are_compared_with_infinity_are_finite(dtype: ir.DataType) -> None:
    model = _attention(dtype)
    before = _run(model, dtype)
    replace_infinite_masks(model.ir)
    used = [v for v in model.ir.graph.initializers.values() if v.uses() and v.const_value]
    assert not any(np.isinf(v.const_value.numpy()).any() for v in used if v.const_value)
    assert any(n.op_type == "Less" and n.outputs[0].uses() for n in model.ir.graph)
    np.testing.assert_array_equal(_run(model, dtype), before)
    assert (before[1] == 0).all() and (before[0] == [1, 0, 0]).all()


def test_sums_that_are_outputs_keep_their_infinities() -> None:
    model = _attention(shown=True)
    replace_infinite_masks(model.ir)
    assert _infinite(model) and not any(n.op_type == "Less" for n in model.ir.graph)


def test_rows_that_are_not_numbers_stay_so() -> None:
    """Without a comparison a masked row has no weights, and IsNaN may look for that."""
    model, b, x, mask = _scores(T.FLOAT)
    b.output(b.op("Softmax", b.op("Add", x, mask), axis=-1, name="y"))
    net = Model(model, "onnx")
    replace_infinite_masks(net.ir)
    assert np.isnan(_run(net, T.FLOAT)[1]).all()


def test_a_long_chain_of_masks_is_followed_to_an_output() -> None:
    model, b, x, mask = _scores(T.FLOAT)
    for _ in range(2000):
        mask = b.op("Max", mask, mask)
    b.output(b.op("Equal", mask, b.const(np.array(-np.inf, np.float32)), name="y"))
    b.output(b.op("Add", x, x))
    net = Model(model, "onnx")
    before = _run(net, T.FLOAT)
    replace_infinite_masks(model)
    assert [n.op_type for n in model.graph if n.outputs[0].is_graph_output()] == ["Less", "Add"]
    np.testing.assert_array_equal(_run(net, T.FLOAT), before)
