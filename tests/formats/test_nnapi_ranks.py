"""Operators without an operation in NNAPI, written with others: more than four dimensions, whole
numbers, angles, orders, choices, scatters.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.engines import litert
from converter.errors import ConverterError, ReadError, UnsupportedError
from converter.formats.nnapi.codec import read_table
from converter.graph.build import Builder, new_model

RNG = np.random.default_rng(5)
FIVE, SIX = [2, 3, 2, 3, 2], [2, 3, 2, 3, 2, 2]
FLOAT, INT32 = ir.DataType.FLOAT, ir.DataType.INT32


def whole(b: Builder, x: ir.Value, factor: int = 1, plus: int = 0) -> ir.Value:
    """Return integers of both signs from floats."""
    y = b.op("Cast", b.op("Mul", x, np.float32(5)), to=int(INT32))
    return b.op("Add", b.op("Mul", y, np.int32(factor)), np.int32(plus))


def real(b: Builder, x: ir.Value) -> ir.Value:
    return b.op("Cast", x, to=int(FLOAT))


def choice(b: Builder, x: ir.Value) -> ir.Value:
    condition = b.op("Greater", b.op("ReduceSum", x, keepdims=0), np.float32(0))
    bodies = []
    for kind in ("Relu", "Tanh"):
        body = b.body(kind)
        body.output(body.op(kind, x))
        bodies.append(body.graph)
    return b.op("If", condition, then_branch=bodies[0], else_branch=bodies[1])


def unit(b: Builder, x: ir.Value) -> ir.Value:
    return b.op("Clip", x, np.float32(-1), np.float32(1))


def messages(axis: int) -> Callable[..., ir.Value]:
    """The messages of many edges to each node, as torch_geometric exports it: each index serves all
    features.
    """

    def build(b: Builder, x: ir.Value, u: ir.Value, i: ir.Value) -> ir.Value:
        place = b.op("Cast", b.op("Mul", b.op("Sigmoid", i), b.like(i, 63)), to=7)
        spread = b.op("Expand", place, b.op("Shape", u))
        return b.op("ScatterElements", x, spread, u, axis=axis, reduction="add")

    return build


def scattered(reduction: str, known: bool) -> Callable[..., ir.Value]:
    def build(b: Builder, x: ir.Value, u: ir.Value, i: ir.Value) -> ir.Value:
        index = (
            np.array([[2], [0]])
            if known
            else b.op(
                "Cast",
                b.op(
                    "Concat",
                    np.array([[2.0]], np.float32),
                    b.op("Ceil", b.op("Sigmoid", i)),
                    axis=0,
                ),
                to=7,
            )
        )
        return b.op("ScatterND", x, index, u, reduction=reduction)

    return build


CASES: dict[str, tuple[Callable[..., Any], list[list[int]]]] = {
    "element by element": (lambda b, x: b.op("Exp", b.op("Relu", x)), [FIVE]),
    "an axis": (lambda b, x: b.op("Softmax", x, axis=2), [FIVE]),
    "a transpose of five": (lambda b, x: b.op("Transpose", x, perm=[4, 2, 0, 3, 1]), [FIVE]),
    "a transpose of six": (lambda b, x: b.op("Transpose", x, perm=[5, 3, 1, 4, 2, 0]), [SIX]),
    "joined": (lambda b, x, y: b.op("Concat", x, y, axis=3), [FIVE, FIVE]),
    "split": (lambda b, x: b.ops("Split", x, [1, 2], axis=1, outputs=2), [FIVE]),
    "cut": (lambda b, x: b.op("Slice", x, [0, 2], [2, -9], [1, 3], [1, -1]), [FIVE]),
    "gathered": (lambda b, x: b.op("Gather", x, np.array([[1, 0], [1, 1]]), axis=2), [FIVE]),
    "every second axis summed": (lambda b, x: b.op("ReduceSum", x, [0, 2, 4], keepdims=0), [FIVE]),
    "maxima of two axes": (lambda b, x: b.op("ReduceMax", x, [1, 3], keepdims=1), [FIVE]),
    "both repeated": (lambda b, x, y: b.op("Add", x, y), [[2, 1, 2, 1, 2], [1, 3, 1, 3, 1]]),
    "expanded": (lambda b, x: b.op("Expand", x, FIVE), [[2, 1, 2, 1, 2]]),
    "tiled": (lambda b, x: b.op("Tile", x, [1, 2, 1, 3, 1]), [FIVE]),
    "padded": (lambda b, x: b.op("Pad", x, [0, 1, 0, 2, 0, 1, 0, 0, 0, 1]), [FIVE]),
    "matrices": (lambda b, x, y: b.op("MatMul", x, y), [[2, 1, 3, 2, 4], [3, 1, 4, 5]]),
    "the place of the largest": (
        lambda b, x: real(b, b.op("ArgMax", x, axis=2, keepdims=0)),
        [FIVE],
    ),
    "an upper bound alone": (lambda b, x: b.op("Clip", x, None, np.float32(0.2)), [FIVE]),
    "sums so far": (lambda b, x: b.op("CumSum", x, np.array(1)), [FIVE]),
    "the largest of an axis": (lambda b, x: b.ops("TopK", x, [2], axis=3, outputs=2), [FIVE]),
    "the least of an axis": (
        lambda b, x: b.ops("TopK", x, [2], axis=1, largest=0, outputs=2),
        [[2, 3, 4]],
    ),
    "atan": (lambda b, x: b.op("Atan", b.op("Mul", x, np.float32(3))), [[4, 9]]),
    "asin": (lambda b, x: b.op("Asin", unit(b, x)), [[4, 9]]),
    "acos": (lambda b, x: b.op("Acos", unit(b, x)), [[4, 9]]),
    "quotients of whole numbers": (
        lambda b, x, y: real(b, b.op("Div", whole(b, x), whole(b, y, 2, 1))),
        [[4, 9], [4, 9]],
    ),
    "remainders with the sign of the divisor": (
        lambda b, x, y: real(b, b.op("Mod", whole(b, x), whole(b, y, 2, 1))),
        [[4, 9], [4, 9]],
    ),
    "remainders with the sign of the dividend": (
        lambda b, x, y: real(b, b.op("Mod", whole(b, x), whole(b, y, 2, 1), fmod=1)),
        [[4, 9], [4, 9]],
    ),
    "whole numbers turned": (
        lambda b, x: real(b, b.op("Transpose", whole(b, x), perm=[2, 0, 1])),
        [[2, 3, 4]],
    ),
    "whole numbers joined": (
        lambda b, x, y: real(b, b.op("Concat", whole(b, x), whole(b, y), axis=1)),
        [[2, 3, 4], [2, 1, 4]],
    ),
    "a choice": (choice, [[2, 3]]),
    **{
        f"scatter, {r}, known": (scattered(r, True), [[3, 4], [2, 4], [1, 1]])
        for r in ("none", "add", "mul", "max", "min")
    },
    **{
        f"scatter, {r}": (scattered(r, False), [[3, 4], [2, 4], [1, 1]])
        for r in ("none", "add", "mul", "max", "min")
    },
    "several updates for a row": (
        lambda b, x, u, i: b.op(
            "ScatterND", x, b.op("Cast", b.op("Ceil", b.op("Sigmoid", i)), to=7), u
        ),
        [[3, 4], [3, 4], [3, 1]],
    ),
    "elements scattered": (
        lambda b, x, u: b.op("ScatterElements", x, np.array([[1, 0, 2, -1]]), u, axis=0),
        [[4, 4], [1, 4]],
    ),
    "messages along edges": (messages(0), [[64, 40], [90, 40], [90, 1]]),
    "messages along edges, features first": (messages(1), [[40, 64], [40, 90], [1, 90]]),
    "more inputs than four dimensions": (lambda b, x: b.op("Reshape", x, [12, 6]), [FIVE]),
    "an image of five": (
        lambda b, x: b.op(
            "Reshape",
            b.op(
                "Conv",
                b.op("Reshape", x, [1, 3, 4, 5]),
                np.ones((2, 3, 3, 3), np.float32),
                pads=[1] * 4,
            ),
            [1, 1, 2, 4, 5],
        ),
        [[1, 1, 3, 4, 5]],
    ),
}


def made(case: str) -> tuple[Model, dict[str, np.ndarray]]:
    build, shapes = CASES[case]
    m, b = new_model()
    found = build(b, *(b.input(f"x{i}", FLOAT, s) for i, s in enumerate(shapes)))
    b.output(*(found if isinstance(found, tuple) else (found,)))
    return Model(m, "test"), {
        f"x{i}": RNG.normal(size=s).astype(np.float32) for i, s in enumerate(shapes)
    }


@pytest.mark.parametrize("case", CASES)
@pytest.mark.sampled(5)
def test_written_and_read(case: str, tmp_path: Path) -> None:
    model, feeds = made(case)
    converter.save(model, tmp_path / "a.nnapi.json")
    back = converter.load(tmp_path / "a.nnapi.json")
    assert [(i.name, i.shape) for i in (*back.inputs, *back.outputs)] == [
        (i.name, i.shape) for i in (*model.inputs, *model.outputs)
    ]
    want, got = model.run(feeds), back.run(feeds)
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-5, atol=2e-6, err_msg=name)


@pytest.mark.skipif(not litert.available(), reason="LiteRT is not installed")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.sampled(5)
def test_another_engine_computes_the_same(case: str) -> None:
    """LiteRT computes the same from a .tflite, if that can store the network."""
    model, feeds = made(case)
    try:
        got = model.run(feeds, engine="litert")
    except ConverterError as e:
        assert (
            case in ("an axis", "maxima of two axes")
            or "only integers are supported" in case
            or "remainders" in case
            or "scatter" in case
            or "updates" in case
        ), e
        return
    for name, value in model.run(feeds).items():
        np.testing.assert_allclose(got[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def test_the_table_says_which_shape_there_was(tmp_path: Path) -> None:
    model, _ = made("an image of five")
    converter.save(model, tmp_path / "a.nnapi.json")
    table = read_table(tmp_path / "a.nnapi.json")
    operand = table.operands[table.inputs[0]]
    assert (operand.dimensions, operand.boundary) == ([1, 3, 4, 5], {"shape": [1, 1, 3, 4, 5]})
    text = (tmp_path / "a.nnapi.json").read_text()
    (tmp_path / "a.nnapi.json").write_text(
        text.replace('"shape": [1, 1, 3, 4, 5]', '"shape": [1, 1, 3, 4, 6]')
    )
    with pytest.raises(ReadError, match="as many elements"):
        converter.load(tmp_path / "a.nnapi.json")


def test_a_form_without_shapes_takes_four_dimensions(tmp_path: Path) -> None:
    model, _ = made("element by element")
    with pytest.raises(UnsupportedError):
        converter.save(model, tmp_path / "a.nnapi")
    assert not list(tmp_path.iterdir())


def test_the_least_of_unsigned_numbers_is_refused_by_their_type(tmp_path: Path) -> None:
    model, b = new_model()
    x = b.input("x", ir.DataType.UINT64, [5])
    b.output(b.ops("TopK", x, [2], largest=0, outputs=2)[1])
    with pytest.raises(UnsupportedError, match="uint64"):
        Model(model, "onnx").save(tmp_path / "m.nnapi.json", "nnapi")
