"""Random networks of canonical operators through every format and back: the same network, or a
refusal that names its reason.

`make fuzz` runs many more of them (tests/fuzz.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from converter.api import Model
from converter.graph.build import Builder, new_model
from mutations import SUFFIXES
from random_graphs import STEPS, canonical, compare, expected, feeds_of, network, outcome
from random_variants import retyped, variant

GRAPHS = 64  # of 1 to 8 operators, each through every target
T = ir.DataType


@pytest.mark.parametrize("graphs", [GRAPHS // 8, pytest.param(GRAPHS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("target", SUFFIXES)
def test_random_networks_come_back_or_are_refused(target: str, graphs: int) -> None:
    answers = []
    for i in range(graphs):
        drawn = variant(f"graph {i}", 1 + i % 8)
        reference = expected(drawn.model, drawn.feeds) if drawn is not None else None
        if drawn is not None and reference is not None:
            try:
                answers.append(
                    outcome(
                        drawn.model if target == "onnx" else canonical(drawn.model),
                        reference,
                        target,
                        drawn.feeds,
                    )
                )
            except BaseException:
                print(f"variant('graph {i}', {1 + i % 8}) -> {target}, made {drawn.done}")
                raise
    assert len(answers) > graphs // 2, "too few networks were drawn"
    assert answers.count("same") > len(answers) // 4, answers
    assert set(answers) - {"same"} <= {"X201", "X202", "X203", "X204", "X205"}, answers


@pytest.mark.slow
def test_every_operator_is_drawn() -> None:
    for name in STEPS:
        models = (m for i in range(40) if (m := network(f"{name} {i}", 1, name)) is not None)
        assert any(expected(m) is not None for m in models), (
            f"{name} is never drawn, or never executable"
        )


def drawn(name: str, number: int) -> Callable[[], Model]:
    def make() -> Model:
        model = network(f"{name} {number}", 1, name)
        assert model is not None
        return model

    return make


def written(write: Callable[[Builder, ir.Value], Any], *shape: int) -> Callable[[], Model]:
    def make() -> Model:
        model, b = new_model()
        results = write(b, b.input("x", T.FLOAT, shape))
        b.output(*(results if isinstance(results, tuple) else [results]))
        return Model(model, "onnx")

    return make


def states_alone(b: Builder, x: ir.Value) -> tuple[ir.Value, ...]:
    """Both outputs of a recurrence are outputs of the network: the order of results is that of the
    declaration or goes by name.
    """
    w = np.linspace(-1, 1, 4, dtype=np.float32).reshape(1, 4, 1)
    y, h, _ = b.ops("LSTM", x, w, w[:, ::-1], hidden_size=1, direction="reverse", outputs=3)
    return h, y


def normalized_by_less_than_nothing(b: Builder, x: ir.Value) -> ir.Value:
    """The root of a variance below 0 is no number, for that channel alone."""
    return b.op(
        "BatchNormalization",
        x,
        *(np.array(v, np.float32) for v in ([1, 2], [0, 1], [0, 0], [-1, 1])),
    )


def half(name: str, number: int) -> Callable[[], Model]:
    def make() -> Model:
        model = drawn(name, number)()
        assert retyped(T.FLOAT16)(model, random.Random(0))
        return model

    return make


def repeated(b: Builder, x: ir.Value) -> tuple[ir.Value, ...]:
    """A loop whose iteration number is unused, with a condition that is handed on and, from a
    constant, results that are collected.
    """
    results = []
    for start, outputs in ((x, 1), (b.const(np.ones((2, 3), np.float32)), 2)):
        body = b.body("turn")
        body.input("i", T.INT64, [])
        go, state = body.input("go", T.BOOL, []), body.input("state", T.FLOAT, [2, 3])
        y = body.op("Add", body.op("Mul", state, np.float32(0.5)), x)
        body.output(body.op("Identity", go), y, *[body.op("Neg", y)][: outputs - 1])
        results += b.ops(
            "Loop", np.array(3), np.array(True), start, body=body.graph, outputs=outputs
        )
    return tuple(results)


def bits(b: Builder, x: ir.Value) -> tuple[ir.Value, ...]:
    """Of integers of both signs."""
    y = b.op("Cast", b.op("Mul", x, np.float32(9)), to=int(T.INT64))
    z = b.op("Cast", b.op("Mul", x, np.float32(-7)), to=int(T.INT64))
    return tuple(b.op(f"Bitwise{k}", y, z) for k in ("And", "Or", "Xor"))


def to_one(b: Builder, x: ir.Value) -> tuple[ir.Value, ...]:
    """Rules for coordinates that differ in one element alone."""
    rules = ("pytorch_half_pixel", "half_pixel", "half_pixel_symmetric", "asymmetric")
    return tuple(
        b.op("Resize", x, None, None, [1, 2, 1, 7], mode=m, coordinate_transformation_mode=r)
        for r in rules
        for m in ("linear", "cubic")
    )


REDUCTIONS = ("Sum", "Mean", "Max", "L1", "L2", "SumSquare", "LogSumExp", "Prod")
CASES = {
    "loops that nobody counts": written(repeated, 2, 3),
    "bits of negative numbers": written(bits, 2, 3),
    "a scalar with a slope": written(
        lambda b, x: b.op("LeakyRelu", b.op("ReduceSum", x, keepdims=0), alpha=0.25), 2, 3
    ),
    "resized to one element": written(to_one, 1, 2, 3, 5),
    "reduced over no axis": written(
        lambda b, x: tuple(b.op(f"Reduce{k}", x, noop_with_empty_axes=1) for k in REDUCTIONS), 2, 3
    ),
    "regions in half precision": half("RoiAlign", 1),
    "reduced to a scalar": drawn("ReduceSum", 0),
    "padding outside and inside the average": drawn("AveragePool", 0),
    "same padding with groups": drawn("Conv", 1),
    "the state before the sequence": written(states_alone, 2, 3, 1),
    "the greatest of a vector": written(
        lambda b, x: (
            b.op("ArgMax", x, axis=0, keepdims=1),
            b.op("ArgMin", x, axis=-1, keepdims=0),
        ),
        3,
    ),
    "a large number through a swish": written(
        lambda b, x: (b.op("HardSwish", b.op("Mul", x, np.float32(1.5e38))),), 1, 2, 3, 3
    ),
    "a variance below 0": written(normalized_by_less_than_nothing, 1, 2, 3, 3),
    "half of a split beside the other": written(
        lambda b, x: b.ops(
            "Split", b.op("Expand", x, [2, 4, 3]), axis=-1, num_outputs=2, outputs=2
        )[::-1],
        1,
        4,
        3,
    ),
}


@pytest.mark.sampled(4)
@pytest.mark.filterwarnings("error::RuntimeWarning")  # numpy's own words are not for users
@pytest.mark.parametrize("target", [*SUFFIXES, "onnx+opset=13"])
@pytest.mark.parametrize("case", CASES)
def test_networks_that_once_went_wrong(case: str, target: str) -> None:
    model = CASES[case]()
    reference = expected(model)
    assert reference is not None
    assert outcome(model, reference, target) in ("same", "X201", "X202", "X204", "X206")


@pytest.mark.parametrize("target", SUFFIXES)
def test_infinity_is_a_number_like_others(target: str) -> None:
    model = written(lambda b, x: (b.op("ThresholdedRelu", x, alpha=0.5), b.op("Relu", x)), 4)()
    feeds = {"x": np.array([np.inf, -np.inf, 2, -2], np.float32)}
    reference = expected(model, feeds)
    assert reference is not None
    assert outcome(model, reference, target, feeds) == "same"


def test_a_wrong_network_is_noticed() -> None:
    right = written(lambda b, x: b.op("Relu", x), 2, 3)()
    wrong = written(lambda b, x: b.op("LeakyRelu", x, alpha=0.01), 2, 3)()
    reference = expected(right)
    assert reference is not None
    compare(right, feeds_of(right), reference)
    with pytest.raises(AssertionError):
        compare(wrong, feeds_of(right), reference)


def test_results_that_overflow_in_half_alone_are_the_same() -> None:
    """Targets that compute in single go further than 65504."""
    model = written(lambda b, x: b.op("Mul", x, np.float32(30000)), 2)()
    feeds = {"x": np.array([1, 3], np.float32)}
    result = next(iter(model.outputs)).name
    compare(model, feeds, {result: np.array([30000, np.inf], np.float16)})
    with pytest.raises(AssertionError):
        compare(model, feeds, {result: np.array([np.inf, np.inf], np.float16)})
