"""Operators of StableHLO with subgraphs, in LiteRT and as netconv reads them."""

from __future__ import annotations

from pathlib import Path

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

FLOAT = 0


def reduced(path: Path, body: str, shape: list[int], **options: object) -> Path:
    """Write x[2, 5, 4] reduced in windows by one operator, beginning with 0.5."""
    inner = LiteGraph("body", [LiteTensor(n, FLOAT, []) for n in "abc"], inputs=[0, 1], outputs=[2])
    inner.operators.append(LiteOperator(body, [0, 1], [2]))
    start = LiteTensor("start", FLOAT, [], np.array(0.5, np.float32))
    tensors = [LiteTensor("x", FLOAT, [2, 5, 4]), start, LiteTensor("y", FLOAT, shape)]
    outer = LiteGraph("main", tensors, inputs=[0], outputs=[2])
    operator = LiteOperator("STABLEHLO_REDUCE_WINDOW", [0, 1], [2])
    operator.kind, operator.options = "StablehloReduceWindowOptions", options
    outer.operators.append(operator)
    with Output(path) as out:
        write_flat(LiteModel([outer, inner]), out)
    return path


CASES = {
    "sum": ("STABLEHLO_ADD", [2, 2, 3], {"window_strides": [1, 2, 1]}),
    "largest": ("STABLEHLO_MAXIMUM", [2, 3, 2], {"window_dilations": [1, 2, 1]}),
    "dilated": ("STABLEHLO_MULTIPLY", [2, 8, 6], {"base_dilations": [1, 2, 2]}),
    "padded": ("STABLEHLO_MINIMUM", [2, 6, 4], {"padding": [0, 0, 2, 0, 0, 1]}),
}


def case(kind: str, folder: Path) -> Path:
    body, shape, given = CASES[kind]
    ones = {k: [1, 1, 1] for k in ("window_strides", "base_dilations", "window_dilations")}
    options = {"window_dimensions": [1, 2, 2], "padding": [0] * 6, "body_subgraph_index": 1}
    if kind == "largest":
        options["window_dimensions"] = [1, 2, 3]
    return reduced(folder / "m.tflite", body, shape, **{**options, **ones, **given})


@needs_litert
@pytest.mark.parametrize("kind", CASES)
def test_windows_reduced_by_a_subgraph(kind: str, tmp_path: Path) -> None:
    path = case(kind, tmp_path)
    x = np.random.default_rng(0).normal(size=(2, 5, 4)).astype(np.float32)
    (expected,) = converter.run(path, {"x": x}, engine="litert").values()
    (actual,) = converter.load(path).run({"x": x}).values()
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
