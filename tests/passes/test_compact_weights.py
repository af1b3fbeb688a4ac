"""Compact weights that a target needs as plain numbers are computed while the file is written."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.graph.build import Builder, new_model
from converter.passes.constants import lazily

RNG = np.random.default_rng(7)
SIZE, COUNT = 1056, 10  # more elements than are folded at once
F, F16 = np.float32, np.float16


def weights(b: Builder, kind: str) -> ir.Value:
    if kind == "halves":
        halves = RNG.uniform(-1, 1, (SIZE, SIZE)) / 16
        return b.op("Cast", b.const(halves.astype(F16)), to=int(ir.DataType.FLOAT))
    codes = b.const(RNG.integers(0, 16, (SIZE, SIZE)).astype(ml_dtypes.uint4))
    zeros = b.const(RNG.integers(0, 16, (SIZE, SIZE // 32)).astype(ml_dtypes.uint4))
    scales = b.const(RNG.uniform(0.001, 0.01, (SIZE, SIZE // 32)).astype(F))
    rows = b.op("DequantizeLinear", codes, scales, zeros, axis=1, block_size=32)
    return b.op("Transpose", rows, perm=[1, 0])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["halves", "blocks"])
@pytest.mark.parametrize(
    "name", ["a.mlmodel", "a.xml -t openvino+ir=7", "a.txt -t zhouyi", "a.nnapi.json"]
)
def test_one_at_a_time(name: str, kind: str, tmp_path: Path) -> None:
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [2, SIZE])
    y: ir.Value = x
    for _ in range(COUNT):
        y = b.op("Tanh", b.op("MatMul", y, weights(b, kind)))
    b.output(y)
    source = Model(model, "test")
    file, _, target = name.partition(" -t ")
    tracemalloc.start()
    converter.save(source, tmp_path / file, target or None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < COUNT * SIZE * SIZE * 4 * 0.6
    feeds = {"x": RNG.normal(size=(2, SIZE)).astype(F)}
    want = next(iter(source.run(feeds).values()))
    got = next(iter(converter.load(tmp_path / file).run(feeds).values()))
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


CASES = {
    "one scale": ((), (), 1, 0),
    "no zero point": ((), None, 1, 0),
    "columns": ((320,), (320,), 1, 0),
    "rows": ((256,), None, 0, 0),
    "blocks of rows": ((256, 10), (256, 10), 1, 32),
    "blocks of columns": ((8, 320), (8, 320), 0, 32),
    "a last block that is cut off": ((256, 5), (256, 5), 1, 70),
}


@pytest.mark.parametrize("case", CASES)
def test_the_numbers_are_those_of_the_formula(case: str) -> None:
    steps, points, axis, block = CASES[case]
    codes = RNG.integers(0, 16, (256, 320)).astype(ml_dtypes.uint4)
    scales = RNG.uniform(0.001, 0.01, steps).astype(F)
    model, b = new_model()
    zeros = None if points is None else RNG.integers(0, 16, points).astype(ml_dtypes.uint4)
    given = [] if zeros is None else [b.const(zeros)]
    more = {"block_size": block} if block else {}
    value = b.op("DequantizeLinear", b.const(codes), b.const(scales), *given, axis=axis, **more)
    made = lazily(value)
    assert made is not None and model is not None

    def wide(steps: np.ndarray) -> np.ndarray:
        if block:
            return np.repeat(steps, block, axis=axis)[:256, :320]
        return steps.reshape([-1 if i == axis else 1 for i in range(2)]) if steps.ndim else steps

    less = 0 if zeros is None else wide(zeros.astype(F))
    np.testing.assert_array_equal(made.numpy(), (codes.astype(F) - less) * wide(scales))
    assert lazily(value) == made
