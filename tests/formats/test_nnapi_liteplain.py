"""Operators of TensorFlow Lite that NNAPI says with two of its own: what is read computes what LiteRT computes from the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.engines import litert
from converter.errors import UnsupportedError
from converter.files import Output
from converter.graph.build import new_model
from converter.model import Model

pytest.importorskip("tflite", reason="the schema package tflite is not installed")
from tflite import TensorType

from converter.formats.nnapi.liteflat import OPTIONS, LiteGraph, LiteModel, LiteOperator, LiteTensor, write_flat

F = np.float32
RNG = np.random.default_rng(8)
needs_litert = pytest.mark.skipif(not litert.available(), reason="LiteRT is not installed")


def saved(path: Path, kind: str, shape: list[int], constants: list[Any], out: list[int], options: str = "", **given: Any) -> Path:
    """One operator on an input x and constants."""
    types = {"float32": TensorType.FLOAT32, "float16": TensorType.FLOAT16}
    tensors = [LiteTensor("x", TensorType.FLOAT32, shape), LiteTensor("y", TensorType.FLOAT32, out)]
    tensors += [LiteTensor(f"c{i}", types[c.dtype.name], list(c.shape), c) for i, c in enumerate(constants)]
    operators = [LiteOperator(kind, [0, *range(2, len(tensors))], [1], options, {**OPTIONS.get(options, {}), **given})]
    with Output(path) as file:
        write_flat(LiteModel([LiteGraph("main", tensors, operators, [0], [1])]), file)
    return path


def weights(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(F)


@needs_litert
@pytest.mark.parametrize(
    ("kind", "constants", "out", "options", "given"),
    [
        ("SQUARE", [], [2, 3, 4], "", {}),
        ("SQUARED_DIFFERENCE", [weights(3, 1)], [2, 3, 4], "", {}),
        ("LEAKY_RELU", [], [2, 3, 4], "LeakyReluOptions", {"Alpha": 0.25}),
        ("FULLY_CONNECTED", [weights(5, 4), weights(5)], [2, 3, 5], "FullyConnectedOptions", {"KeepNumDims": True, "FusedActivationFunction": 1}),
    ],
)
def test_it_computes_the_same(kind: str, constants: list[Any], out: list[int], options: str, given: dict[str, Any], tmp_path: Path) -> None:
    path = saved(tmp_path / "one.tflite", kind, [2, 3, 4], constants, out, options, **given)
    x = weights(2, 3, 4)
    (wanted,) = litert._invoke(path, [x])
    (found,) = converter.load(path).run({"x": x}).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_weights_that_are_stored_as_halves(tmp_path: Path) -> None:
    half = weights(3, 4).astype(np.float16)
    tensors = [LiteTensor("x", TensorType.FLOAT32, [3, 4]), LiteTensor("y", TensorType.FLOAT32, [3, 4])]
    tensors += [LiteTensor("h", TensorType.FLOAT16, [3, 4], half), LiteTensor("w", TensorType.FLOAT32, [3, 4])]
    operators = [LiteOperator("DEQUANTIZE", [2], [3]), LiteOperator("MUL", [0, 3], [1], "MulOptions", dict(OPTIONS["MulOptions"]))]
    with Output(tmp_path / "one.tflite") as file:
        write_flat(LiteModel([LiteGraph("main", tensors, operators, [0], [1])]), file)
    x = weights(3, 4)
    (found,) = converter.load(tmp_path / "one.tflite").run({"x": x}).values()
    np.testing.assert_allclose(found, x * half.astype(F), rtol=1e-6)


def test_what_is_quantised_is_refused(tmp_path: Path) -> None:
    tensors = [LiteTensor(n, TensorType.INT8, [4], scales=[0.5], zero_points=[0]) for n in "xy"]
    with Output(tmp_path / "one.tflite") as file:
        write_flat(LiteModel([LiteGraph("main", tensors, [LiteOperator("SQUARED_DIFFERENCE", [0, 0], [1])], [0], [1])]), file)
    with pytest.raises(UnsupportedError, match="SQUARED_DIFFERENCE"):
        converter.load(tmp_path / "one.tflite")


@pytest.mark.parametrize("engine", ["onnxruntime", pytest.param("litert", marks=needs_litert)])
def test_a_cast_to_a_byte_wraps_around(engine: str, tmp_path: Path) -> None:
    """CAST of NNAPI stops at the largest number; what is cut off before stays a plain CAST."""
    model, b = new_model()
    x = b.input("x", ir.DataType.INT32, [6])
    b.output(b.op("Cast", b.op("Cast", x, to=int(ir.DataType.UINT8)), to=int(ir.DataType.FLOAT)))
    Model(model, "test").save(tmp_path / "wrapped.nnapi.json", "nnapi")
    feed = np.array([-1, -300, 5, 255, 256, 300], np.int32)
    (found,) = converter.load(tmp_path / "wrapped.nnapi.json").run({"x": feed}, engine).values()
    np.testing.assert_array_equal(found, feed.astype(np.uint8))
