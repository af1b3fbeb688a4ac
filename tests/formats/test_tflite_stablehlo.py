"""Operators of StableHLO with subgraphs or several results, in LiteRT and as netconv reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_tflite_operators import needs_litert

import converter
from converter.formats.tflite.codec import (
    LiteGraph,
    LiteModel,
    LiteOperator,
    LiteTensor,
    write_flat,
)
from converter.io.files import Output

FLOAT, INT32, INT64, UINT64, UINT32 = 0, 2, 4, 12, 15


def written(path: Path, *graphs: LiteGraph) -> Path:
    with Output(path) as out:
        write_flat(LiteModel(list(graphs)), out)
    return path


def operator(
    kind: str, inputs: list[int], outputs: list[int], options: str = "", **values: object
) -> LiteOperator:
    found = LiteOperator(f"STABLEHLO_{kind}", inputs, outputs)
    found.kind, found.options = options, values
    return found


def body(kind: str) -> LiteGraph:
    """A subgraph of one operator; "" returns the second operand."""
    inner = LiteGraph("body", [LiteTensor(n, FLOAT, []) for n in "abc"], inputs=[0, 1])
    inner.outputs = [2] if kind else [1]
    if kind:
        inner.operators.append(operator(kind, [0, 1], [2]))
    return inner


def compared(path: Path, feeds: dict[str, Any]) -> None:
    """Compare netconv's reading with LiteRT's results."""
    expected = converter.run(path, feeds, engine="litert")
    actual = converter.load(path).run(feeds)
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


CASES = {
    "sum": ("ADD", [2, 2, 3], {"window_strides": [1, 2, 1]}),
    "largest": ("MAXIMUM", [2, 3, 2], {"window_dilations": [1, 2, 1]}),
    "dilated": ("MULTIPLY", [2, 8, 6], {"base_dilations": [1, 2, 2]}),
    "padded": ("MINIMUM", [2, 6, 4], {"padding": [0, 0, 2, 0, 0, 1]}),
}


@needs_litert
@pytest.mark.parametrize("kind", CASES)
def test_windows_reduced_by_a_subgraph(kind: str, tmp_path: Path) -> None:
    reduction, shape, given = CASES[kind]
    ones = {k: [1, 1, 1] for k in ("window_strides", "base_dilations", "window_dilations")}
    options = {"window_dimensions": [1, 2, 2], "padding": [0] * 6, "body_subgraph_index": 1}
    if kind == "largest":
        options["window_dimensions"] = [1, 2, 3]
    start = LiteTensor("start", FLOAT, [], np.array(0.5, np.float32))
    tensors = [LiteTensor("x", FLOAT, [2, 5, 4]), start, LiteTensor("y", FLOAT, shape)]
    outer = LiteGraph("main", tensors, inputs=[0], outputs=[2])
    values = {**options, **ones, **given}
    kind = "StablehloReduceWindowOptions"
    outer.operators.append(operator("REDUCE_WINDOW", [0, 1], [2], kind, **values))
    x = np.random.default_rng(0).normal(size=(2, 5, 4)).astype(np.float32)
    compared(written(tmp_path / "m.tflite", outer, body(reduction)), {"x": x})


# operator, shapes of operand, indices and updates, and dimensions of the updates that are windows,
# of the operand that are none, and of the operand that the indices count; the axis of the indices
SCATTERS: dict[str, tuple[str, list[list[int]], list[list[int]], int]] = {
    "update": ("", [[4, 5], [3, 1], [3, 5]], [[1], [0], [0]], 1),
    "add": ("ADD", [[4, 5], [3, 2], [3]], [[], [0, 1], [0, 1]], 1),
    "multiply": ("MULTIPLY", [[3, 4, 5], [2, 2], [2, 2, 3]], [[0, 2], [1], [1, 0]], 0),
    "maximum": ("MAXIMUM", [[6], [2, 3, 1], [2, 3]], [[], [0], [0]], 2),
    "minimum": ("MINIMUM", [[4, 5], [2, 1], [2, 3, 4]], [[1, 2], [], [1]], 1),
}


def scattered(
    path: Path, kind: str, shapes: list[list[int]], dims: list[list[int]], at: int
) -> Path:
    names = ("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims")
    tensors = [LiteTensor("x", FLOAT, shapes[0]), LiteTensor("i", INT64, shapes[1])]
    tensors += [LiteTensor("u", FLOAT, shapes[2]), LiteTensor("y", FLOAT, shapes[0])]
    outer = LiteGraph("main", tensors, inputs=[0, 1, 2], outputs=[3])
    values = dict(zip(names, dims, strict=True))
    options = {**values, "index_vector_dim": at, "update_computation_subgraph_index": 1}
    outer.operators.append(
        operator("SCATTER", [0, 1, 2], [3], "StablehloScatterOptions", **options)
    )
    return written(path, outer, body(kind))


@needs_litert
@pytest.mark.parametrize("name", SCATTERS)
def test_scattered_updates(name: str, tmp_path: Path) -> None:
    """Windows may end after the operand, and several updates may meet one element."""
    shapes = SCATTERS[name][1]
    rng = np.random.default_rng(len(name))
    x, u = (rng.normal(size=shapes[i]).astype(np.float32) for i in (0, 2))
    i = rng.integers(0, 4, shapes[1])
    compared(scattered(tmp_path / "m.tflite", *SCATTERS[name]), {"x": x, "i": i, "u": u})


def test_updates_before_the_operand_are_left_out(tmp_path: Path) -> None:
    """As StableHLO defines it (https://openxla.org/stablehlo/spec#scatter), which also has scalars
    as indices; LiteRT accesses memory outside of its tensors for both.
    """
    shapes, dims = [[6], [2, 3], [2, 3]], [[], [0], [0]]
    path = scattered(tmp_path / "m.tflite", "MAXIMUM", shapes, dims, 2)
    feeds = {"x": np.zeros(6, np.float32), "u": np.ones((2, 3), np.float32)}
    feeds["i"] = np.array([[-1, 1, 5], [6, -6, 2]])
    (actual,) = converter.load(path).run(feeds).values()
    assert actual.tolist() == [0, 1, 1, 0, 0, 1]


def test_a_scatter_with_another_subgraph_is_refused(tmp_path: Path) -> None:
    path = scattered(tmp_path / "m.tflite", "SHIFT_LEFT", *SCATTERS["add"][1:])
    with pytest.raises(converter.errors.UnsupportedError, match="must be empty or one of"):
        converter.load(path)


@needs_litert
@pytest.mark.parametrize("index", [0, 1, 2, -1, 7])
def test_a_branch_chosen_by_number(index: int, tmp_path: Path) -> None:
    tensors = [LiteTensor("i", INT32, []), *(LiteTensor(n, FLOAT, [3]) for n in "xyz")]
    outer = LiteGraph("main", tensors, inputs=[0, 1, 2], outputs=[3])
    options = {"branch_subgraph_indices": [1, 2, 3]}
    outer.operators.append(operator("CASE", [0, 1, 2], [3], "StablehloCaseOptions", **options))
    graphs = []
    for kind in ("ADD", "MULTIPLY", "MAXIMUM"):
        inner = body(kind)
        inner.tensors = [LiteTensor(n, FLOAT, [3]) for n in "abc"]
        graphs.append(inner)
    path = written(tmp_path / "m.tflite", outer, *graphs)
    feeds = {"x": np.array([1, 2, -3], np.float32), "y": np.array([-5, 6, 7], np.float32)}
    compared(path, {"i": np.array(index, np.int32), **feeds})


@needs_litert
@pytest.mark.parametrize("algorithm, size", [(1, 2), (1, 3), (2, 2)])
@pytest.mark.parametrize("kind, shape", [(UINT32, [3, 3]), (INT32, [4]), (INT64, [5])])
def test_random_bits(
    algorithm: int, size: int, kind: int, shape: Sequence[int], tmp_path: Path
) -> None:
    """The generators are defined by their papers, so that all runtimes draw the same bits."""
    tensors = [LiteTensor("s", UINT64, [size]), LiteTensor("t", UINT64, [size])]
    tensors.append(LiteTensor("y", kind, list(shape)))
    outer = LiteGraph("main", tensors, inputs=[0], outputs=[1, 2])
    options = "StablehloRngBitGeneratorOptions"
    outer.operators.append(operator("RNG_BIT_GENERATOR", [0], [1, 2], options, algorithm=algorithm))
    state = np.array([0x123456789ABCDEF0, 0xFFFFFFFF, 77][:size], np.uint64)
    path = written(tmp_path / "m.tflite", outer)
    expected = converter.run(path, {"s": state}, engine="litert")
    actual = converter.load(path).run({"s": state})
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value, err_msg=name)
