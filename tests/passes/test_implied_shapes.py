"""Branches, sizes and axes that operators imply; numbers of onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.errors import Diagnostic
from converter.graph.build import Builder, new_model
from converter.graph.infer import shape_of
from converter.graph.network import Network
from converter.graph.walk import operators
from converter.passes.dead_code import remove_dead_code
from converter.passes.implied_shapes import (
    choose_possible_branches,
    fix_implied_sizes,
    name_squeezed_axes,
)
from converter.passes.pipeline import Context
from networks import choice

T = ir.DataType
HIDDEN, FEATURES = 3, 2
SUFFIXES = (".tflite", ".xml", ".mlpackage", ".mlmodel")


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def last_step(b: Builder, x: ir.Value) -> Any:
    """Squeeze(x, 2) if that axis has one element: as torch exports x.squeeze(-1)."""
    one = b.Equal(b.Gather(b.Shape(x), 2), 1)
    return choice(b, one, lambda c: c.Squeeze(x, [2]), lambda c: c.Identity(x))


def gates(kind: str) -> tuple[np.ndarray, np.ndarray]:
    rows = {"LSTM": 4, "GRU": 3}[kind] * HIDDEN
    return numbers(1, rows, FEATURES, seed=1), numbers(1, rows, HIDDEN, seed=2)


def before_a_cell() -> ir.Model:
    model, b = new_model()
    y = last_step(b, b.input("x", T.FLOAT, ["N", FEATURES, "T"]))
    b.output(b.LSTM(b.Unsqueeze(y, [0]), *gates("LSTM"), outputs=3, hidden_size=HIDDEN)[1])
    return model


def same(before: ir.Model, after: ir.Model, **feeds: np.ndarray) -> None:
    expected = list(Model(before, "onnx").run(feeds).values())
    for a, b in zip(Model(after, "onnx").run(feeds).values(), expected, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def choices_after(model: ir.Model) -> int:
    choose_possible_branches(model)
    remove_dead_code(model)
    return len(operators(model.graph, "If"))


def test_the_branch_whose_rank_an_operator_rejects_is_not_taken() -> None:
    model = before_a_cell()
    before = model.clone()
    assert choices_after(model) == 0
    same(before, model, x=numbers(2, FEATURES, 1))


def either_rank(b: Builder, y: Any) -> Any:
    return b.ReduceSum(y, keepdims=0)


def cell_in_a_branch(b: Builder, y: Any) -> Any:
    """An LSTM that accepts one rank, but is executed for a flag only."""

    def cell(c: Builder) -> Any:
        state = c.LSTM(c.Unsqueeze(y, [0]), *gates("LSTM"), outputs=3, hidden_size=HIDDEN)[1]
        return c.ReduceSum(state, keepdims=0)

    return choice(b, b.input("flag", T.BOOL, []), cell, lambda c: c.ReduceSum(y, keepdims=0))


def cell_in_a_loop(b: Builder, y: Any) -> Any:
    """An LSTM that accepts one rank, in a loop that may have no iterations."""
    with b.loop(b.input("n", T.INT64, []), b.const(np.zeros((1, 1, HIDDEN), np.float32))) as body:
        cell = body.LSTM(body.Unsqueeze(y, [0]), *gates("LSTM"), outputs=3, hidden_size=HIDDEN)[1]
        (end,) = body.end(body.ReduceSum(cell, [1], keepdims=1))
    return end


@pytest.mark.parametrize("use", [either_rank, cell_in_a_branch, cell_in_a_loop])
def test_a_branch_that_may_be_taken_stays(use: Callable[[Builder, Any], Any]) -> None:
    model, b = new_model()
    b.output(use(b, last_step(b, b.input("x", T.FLOAT, ["N", FEATURES, "T"]))))
    before = len(operators(model.graph, "If"))
    assert choices_after(model) == before


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_choice_between_ranks_is_written(suffix: str, tmp_path: Path) -> None:
    before = before_a_cell()
    path = tmp_path / f"m{suffix}"
    converter.save(Model(before, "onnx"), path)
    feeds = {"x": numbers(2, FEATURES, 1)}
    (expected,) = Model(before, "onnx").run(feeds).values()
    (found,) = converter.load(path).run(feeds).values()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def noted(model: ir.Model) -> list[Diagnostic]:
    context = Context(Network(model, "onnx"))
    fix_implied_sizes(model, context)
    return context.notes


def gru(b: Builder, x: ir.Value, batch: int = 1) -> Any:
    state = b.const(numbers(1, batch, HIDDEN, seed=3))
    given = (*gates("GRU"), None, None, state)
    return b.GRU(x, *given, outputs=2, hidden_size=HIDDEN, linear_before_reset=1)[0]


def test_a_state_of_fixed_batch_fixes_the_batch_of_the_data() -> None:
    model, b = new_model()
    b.output(b.Squeeze(gru(b, b.input("x", T.FLOAT, ["T", "N", FEATURES]))))
    before = model.clone()
    (note,) = noted(model)
    assert (note.code, "'N' is fixed to 1" in note.message) == ("X211", True)
    x = model.graph.inputs[0]
    assert [str(d) for d in x.shape or ()] == ["T", "1", str(FEATURES)]
    same(before, model, x=numbers(5, 1, FEATURES))


def test_a_state_in_a_branch_fixes_no_size() -> None:
    model, b = new_model()
    x = b.input("x", T.FLOAT, ["T", "N", FEATURES])
    y = choice(
        b,
        b.input("flag", T.BOOL, []),
        lambda c: c.ReduceSum(gru(c, x), keepdims=0),
        lambda c: c.ReduceSum(x, keepdims=0),
    )
    b.output(y)
    assert noted(model) == [] and shape_of(x) is None


@pytest.mark.parametrize(
    ("dims", "declared", "axes"),
    [
        (["N", 1], 0, [0, 1]),
        (["N", 1], 1, [1]),
        (["N", 1, 4], 2, [1]),
        (["N", "M", 1], 1, None),
        (["N", 1], None, None),
        (["N", 2], 2, None),
    ],
)
def test_the_declared_rank_tells_the_squeezed_axes(
    dims: list[Any], declared: int | None, axes: list[int] | None
) -> None:
    model, b = new_model()
    y = b.Mul(b.Sigmoid(b.Squeeze(b.input("x", T.FLOAT, dims))), 4.0)
    y.shape = None if declared is None else ir.Shape([None] * declared)
    b.output(y)
    before = model.clone()
    name_squeezed_axes(model)
    (node,) = operators(model.graph, "Squeeze")
    given = None if len(node.inputs) < 2 else node.inputs[1]
    found = None if given is None or given.const_value is None else given.const_value.numpy()
    assert (None if found is None else found.tolist()) == axes
    size = 1 if declared == 0 else 3
    same(before, model, x=numbers(*(d if isinstance(d, int) else size for d in dims)))
