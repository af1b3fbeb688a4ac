"""Quotients of integers, at the ends of their type: in ONNX rounded towards zero."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.graph.build import new_model
from mutations import SUFFIXES

LEAST, MOST = -(2**31), 2**31 - 1
NUMBERS = np.array([LEAST, LEAST + 1, -7, -3, 0, 3, 7, MOST], np.int32)
DIVISORS = np.array([LEAST, LEAST + 5, -2, 1, 3, MOST], np.int32)


@pytest.mark.parametrize("target", [t for t in SUFFIXES if t != "coreml"])  # has only floats
def test_quotients_at_the_ends(target: str, tmp_path: Path) -> None:
    x, y = (v.reshape(-1) for v in np.meshgrid(NUMBERS, DIVISORS))
    wanted = np.sign(x.astype(float)) * np.sign(y) * (abs(x.astype(int)) // abs(y.astype(int)))
    model, b = new_model("main")
    inputs = [b.input(n, ir.DataType.INT32, [x.size]) for n in ("x", "y")]
    b.output(b.op("Div", *inputs))
    path = tmp_path / f"out{SUFFIXES[target]}"
    converter.save(Model(model, "onnx"), path, target)
    (found,) = converter.load(path).run({"x": x, "y": y}).values()
    np.testing.assert_array_equal(found, wanted)
