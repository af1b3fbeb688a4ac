"""Random networks of canonical operators through every format and back: the same network, or a refusal that names its reason.

`make fuzz` runs many more of them (tests/fuzz.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from converter.graph.build import Builder, new_model
from converter.model import Model
from mutations import SUFFIXES
from random_graphs import STEPS, compare, expected, feeds_of, network, outcome

GRAPHS = 64  # of 1 to 8 operators, each through every target
T = ir.DataType


@pytest.mark.parametrize("target", SUFFIXES)
def test_random_networks_come_back_or_are_refused(target: str) -> None:
    answers = []
    for i in range(GRAPHS):
        model = network(f"graph {i}", 1 + i % 8)
        reference = expected(model) if model is not None else None
        if model is not None and reference is not None:
            try:
                answers.append(outcome(model, reference, target))
            except BaseException:
                print(f"network('graph {i}', {1 + i % 8}) -> {target}")
                raise
    assert len(answers) > GRAPHS // 2, "too few networks were drawn"
    assert answers.count("same") > len(answers) // 4, answers
    assert set(answers) - {"same"} <= {"X201", "X202", "X203", "X204", "X205"}, answers


def test_every_operator_is_drawn() -> None:
    for name in STEPS:
        drawn = [m for i in range(8) if (m := network(f"{name} {i}", 1, name)) is not None]
        assert drawn, name
        if name not in ("LpPool", "Trilu", "Einsum", "Recurrent"):
            assert any(expected(m) is not None for m in drawn), f"{name} is never executable"


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
    """Both outputs of a recurrence are outputs of the network: the order of results is that of the declaration or goes by name."""
    w = np.linspace(-1, 1, 4, dtype=np.float32).reshape(1, 4, 1)
    y, h, _ = b.ops("LSTM", x, w, w[:, ::-1], hidden_size=1, direction="reverse", outputs=3)
    return h, y


CASES = {
    "reduced to a scalar": drawn("ReduceSum", 0),
    "padding outside and inside the average": drawn("AveragePool", 0),
    "same padding with groups": drawn("Conv", 1),
    "the state before the sequence": written(states_alone, 2, 3, 1),
    "half of a split beside the other": written(lambda b, x: b.ops("Split", b.op("Expand", x, [2, 4, 3]), axis=-1, num_outputs=2, outputs=2)[::-1], 1, 4, 3),
}


@pytest.mark.parametrize("target", SUFFIXES)
@pytest.mark.parametrize("case", CASES)
def test_networks_that_once_went_wrong(case: str, target: str) -> None:
    model = CASES[case]()
    reference = expected(model)
    assert reference is not None
    assert outcome(model, reference, target) in ("same", "X201", "X202")


def test_a_wrong_network_is_noticed() -> None:
    right = written(lambda b, x: b.op("Relu", x), 2, 3)()
    wrong = written(lambda b, x: b.op("LeakyRelu", x, alpha=0.01), 2, 3)()
    reference = expected(right)
    assert reference is not None
    compare(right, feeds_of(right), reference)
    with pytest.raises(AssertionError):
        compare(wrong, feeds_of(right), reference)
