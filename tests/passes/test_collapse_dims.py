"""Operators on six axes in at most four or five: the numbers stay, the ranks go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from converter.api import Model
from converter.graph.build import Builder, new_model
from converter.graph.infer import rank_of
from converter.graph.invariants import violations
from converter.passes.collapse_dims import collapse_dims, highest_rank
from converter.passes.collapse_dims_rules import HANDLERS

RNG = np.random.default_rng(7)
SHAPE = (2, 3, 1, 4, 2, 3)
Make = Callable[[Builder, ir.Value], Any]


def f(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.random(shape, np.float32)


def indices(b: Builder, x: ir.Value) -> ir.Value:
    return b.op("Gather", x, np.array([[1, -1], [0, 2]]), axis=1)


CASES: dict[str, Make] = {
    "Relu": lambda b, x: b.op("Relu", x),
    "Add": lambda b, x: b.op("Add", x, f(3, 1, 4, 1, 1)),
    "Where": lambda b, x: b.op("Where", b.op("Less", x, f(4, 2, 1)), x, f(1)),
    "ReduceSum": lambda b, x: b.op("ReduceSum", x, [1, -3]),
    "ReduceMax": lambda b, x: b.op("ReduceMax", x, keepdims=0),
    "ReduceMean": lambda b, x: b.op("ReduceMean", x, [2], keepdims=0),
    "ReduceLogSum": lambda b, x: b.op("ReduceLogSum", x, [2]),
    "ReduceMin": lambda b, x: b.op("ReduceMin", x, np.zeros(0, np.int64), noop_with_empty_axes=1),
    "Softmax": lambda b, x: b.op("Softmax", x, axis=-3),
    "ArgMax": lambda b, x: b.op("ArgMax", x, axis=3),
    "TopK": lambda b, x: b.ops("TopK", x, [2], axis=1, outputs=2),
    "Split": lambda b, x: b.ops("Split", x, [1, 2], axis=5, outputs=2),
    "Concat": lambda b, x: b.op("Concat", x, f(2, 2, 1, 4, 2, 3), x, axis=1),
    "Gather": indices,
    "Gather to more axes": lambda b, x: b.op(
        "Gather", b.op("Reshape", x, [6, 4, 6]), RNG.integers(0, 4, (2, 1, 3, 1)), axis=1
    ),
    "CumSum": lambda b, x: b.op("CumSum", x, np.array(-3), reverse=1),
    "Slice": lambda b, x: b.op("Slice", x, [0, -1, 1], [2, -9, 9], [5, 3, 1], [1, -2, 1]),
    "Pad": lambda b, x: b.op("Pad", x, [0, 1, 0, 0, 0, -1, 0, 0, 2, 0, 0, 1], np.float32(3)),
    "Pad at the edge": lambda b, x: b.op("Pad", x, [1, 0, 2, 0], None, [3, 0], mode="edge"),
    "Tile": lambda b, x: b.op("Tile", x, [1, 2, 3, 1, 1, 2]),
    "Expand": lambda b, x: b.op("Expand", x, [3, 1, 1, 2, 4, 1, 1]),
    "Transpose": lambda b, x: b.op("Transpose", x, perm=[0, 3, 4, 2, 5, 1]),
    "Transpose of many": lambda b, x: b.op("Transpose", x, perm=[5, 4, 3, 2, 1, 0]),
    "MatMul": lambda b, x: b.op("MatMul", x, f(3, 5)),
    "MatMul of batches": lambda b, x: b.op(
        "MatMul", x, b.op("Transpose", x, perm=[0, 1, 2, 3, 5, 4])
    ),
    "LayerNormalization": lambda b, x: b.op(
        "LayerNormalization", x, f(4, 2, 3), f(4, 2, 3), axis=3
    ),
    "QuantizeLinear": lambda b, x: b.op(
        "DequantizeLinear",
        b.op("QuantizeLinear", x, np.float32(0.1), np.uint8(3)),
        np.float32(0.1),
        np.uint8(3),
    ),
    "QuantizeLinear of an axis": lambda b, x: b.op(
        "DequantizeLinear",
        b.op("QuantizeLinear", x, f(4), np.zeros(4, np.int8), axis=3),
        f(4),
        axis=3,
    ),
}


def built(make: Make) -> Model:
    """Six axes between two Reshapes, so that no rank above two is seen from outside."""
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [6, 24])
    found = make(b, b.op("Reshape", x, list(SHAPE)))
    b.output(
        *(b.op("Reshape", y, [-1]) for y in ([found] if isinstance(found, ir.Value) else found))
    )
    return Model(model, "test")


@pytest.mark.parametrize("most", [4, 5])
@pytest.mark.parametrize("name", CASES)
def test_the_numbers_stay_and_the_ranks_go(name: str, most: int) -> None:
    model, feeds = built(CASES[name]), {"x": f(6, 24)}
    expected = model.run(feeds)
    lowered = Model(model.ir.clone(), "test")
    collapse_dims(lowered.ir, most)
    assert violations(lowered.ir) == []
    assert max(highest_rank(n) for n in lowered.ir.graph) <= most
    got = lowered.run(feeds)
    for key, array in expected.items():
        np.testing.assert_allclose(got[key], array, rtol=1e-6, atol=1e-6)


VOLUMES: dict[str, Make] = {
    "Conv": lambda b, x: b.op(
        "Conv",
        x,
        f(6, 4, 2, 3, 1),
        f(6),
        strides=[2, 1, 2],
        pads=[1, 1, 0, 0, 1, 2],
        dilations=[2, 1, 1],
        kernel_shape=[2, 3, 1],
    ),
    "Conv in groups": lambda b, x: b.op("Conv", x, f(6, 2, 3, 3, 3), group=2, pads=[1] * 6),
    "ConvTranspose": lambda b, x: b.op(
        "ConvTranspose",
        x,
        f(4, 3, 2, 3, 3),
        f(3),
        strides=[2, 1, 2],
        pads=[0, 1, 0, 1, 1, 1],
        output_padding=[1, 0, 1],
    ),
    "ConvTranspose in groups": lambda b, x: b.op(
        "ConvTranspose", x, f(4, 3, 3, 2, 2), group=2, dilations=[2, 1, 1]
    ),
    "AveragePool": lambda b, x: b.op(
        "AveragePool", x, kernel_shape=[2, 3, 3], strides=[1, 2, 1], pads=[1, 1, 0, 0, 1, 1]
    ),
    "AveragePool that counts its padding": lambda b, x: b.op(
        "AveragePool", x, kernel_shape=[3, 2, 2], pads=[1, 0, 1, 1, 1, 1], count_include_pad=1
    ),
    "MaxPool": lambda b, x: b.op(
        "MaxPool",
        x,
        kernel_shape=[2, 3, 2],
        strides=[2, 2, 1],
        dilations=[1, 1, 2],
        pads=[1, 0, 0, 0, 1, 0],
        ceil_mode=1,
    ),
}


@pytest.mark.parametrize("batch", [2, "N"])
@pytest.mark.parametrize("name", VOLUMES)
def test_windows_over_three_axes(name: str, batch: int | str) -> None:
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [batch, 4, 30, 6])
    b.output(b.op("Reshape", VOLUMES[name](b, b.op("Reshape", x, [-1, 4, 5, 6, 6])), [-1]))
    model, feeds = Model(model, "test"), {"x": f(2, 4, 30, 6) - 0.5}
    (expected,) = model.run(feeds).values()
    collapse_dims(model.ir, 4)
    assert (
        max(
            rank_of(v) or 0
            for n in model.ir.graph
            for v in (*n.inputs, *n.outputs)
            if v is not None
        )
        == 4
    )
    (got,) = model.run(feeds).values()
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


OPEN: dict[str, Make] = {
    "Relu": lambda b, x: b.op("Relu", x),
    "Mul": lambda b, x: b.op("Mul", x, f(1, 1, 1)),
    "Where": lambda b, x: b.op("Where", b.op("Less", x, 0.5), b.op("Neg", x), x),
    "Clip": lambda b, x: b.op("Clip", x, 0.2, 0.7),
    "QuantizeLinear": lambda b, x: b.op("QuantizeLinear", x, np.float32(0.1), np.uint8(3)),
}


@pytest.mark.parametrize("name", OPEN)
def test_elementwise_operators_with_one_dynamic_dimension(name: str) -> None:
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, ["N", *SHAPE[1:]])
    b.output(b.op("Reshape", OPEN[name](b, x), [-1, 72]))
    before = Model(model.clone(), "onnx")
    collapse_dims(model, 5)
    high = {n.op_type for n in model.graph if highest_rank(n) > 5}
    assert high <= {"Reshape"}
    for count in (1, 3):
        feeds = {"x": f(count, *SHAPE[1:])}
        for a, e in zip(
            Model(model, "onnx").run(feeds).values(), before.run(feeds).values(), strict=True
        ):
            np.testing.assert_array_equal(a, e)


def test_operands_that_may_broadcast_keep_their_axes() -> None:
    """Nothing says that the unnamed dimensions are equal."""
    model, b = new_model()
    x, y = (b.input(n, ir.DataType.FLOAT, [None, *SHAPE[1:]]) for n in "xy")
    b.output(b.op("Add", x, y))
    collapse_dims(model, 5)
    assert [n.op_type for n in model.graph] == ["Add"]


def test_every_kind_has_a_case() -> None:
    tried = {
        HANDLERS[n.op_type]
        for make in CASES.values()
        for n in built(make).ir.graph
        if n.op_type in HANDLERS
    } | {HANDLERS[n.split()[0]] for n in VOLUMES}
    assert tried == set(HANDLERS.values())
