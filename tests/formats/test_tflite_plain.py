"""Operators of TensorFlow Lite that have no counterpart of their own: read files give the
results of LiteRT.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.engines import litert
from converter.graph.build import new_model
from converter.io.files import Output

pytest.importorskip("tflite", reason="the schema package tflite is not installed")
from tflite import TensorType

from converter.formats.tflite.codec import (
    LiteGraph,
    LiteModel,
    LiteOperator,
    LiteTensor,
    write_flat,
)

F = np.float32
RNG = np.random.default_rng(8)
needs_litert = pytest.mark.skipif(not litert.available(), reason="LiteRT is not installed")


def saved(
    path: Path,
    kind: str,
    shape: list[int],
    constants: list[Any],
    out: list[int],
    options: str = "",
    **given: Any,
) -> Path:
    """One operator on an input x and constants."""
    types = {"float32": TensorType.FLOAT32, "float16": TensorType.FLOAT16}
    tensors = [LiteTensor("x", TensorType.FLOAT32, shape), LiteTensor("y", TensorType.FLOAT32, out)]
    tensors += [
        LiteTensor(f"c{i}", types[c.dtype.name], list(c.shape), c) for i, c in enumerate(constants)
    ]
    operators = [LiteOperator(kind, [0, *range(2, len(tensors))], [1], options, given)]
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
        ("LEAKY_RELU", [], [2, 3, 4], "LeakyReluOptions", {"alpha": 0.25}),
        (
            "FULLY_CONNECTED",
            [weights(5, 4), weights(5)],
            [2, 3, 5],
            "FullyConnectedOptions",
            {"keep_num_dims": True, "fused_activation_function": 1},
        ),
    ],
)
def test_it_computes_the_same(
    kind: str,
    constants: list[Any],
    out: list[int],
    options: str,
    given: dict[str, Any],
    tmp_path: Path,
) -> None:
    path = saved(tmp_path / "one.tflite", kind, [2, 3, 4], constants, out, options, **given)
    x = weights(2, 3, 4)
    (wanted,) = litert.invoke(path, [x])
    (found,) = converter.load(path).run({"x": x}).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_weights_that_are_stored_as_halves(tmp_path: Path) -> None:
    half = weights(3, 4).astype(np.float16)
    tensors = [
        LiteTensor("x", TensorType.FLOAT32, [3, 4]),
        LiteTensor("y", TensorType.FLOAT32, [3, 4]),
    ]
    tensors += [
        LiteTensor("h", TensorType.FLOAT16, [3, 4], half),
        LiteTensor("w", TensorType.FLOAT32, [3, 4]),
    ]
    operators = [
        LiteOperator("DEQUANTIZE", [2], [3]),
        LiteOperator("MUL", [0, 3], [1], "MulOptions", {}),
    ]
    with Output(tmp_path / "one.tflite") as file:
        write_flat(LiteModel([LiteGraph("main", tensors, operators, [0], [1])]), file)
    x = weights(3, 4)
    (found,) = converter.load(tmp_path / "one.tflite").run({"x": x}).values()
    np.testing.assert_allclose(found, x * half.astype(F), rtol=1e-6)


@pytest.mark.parametrize("engine", ["onnxruntime", pytest.param("litert", marks=needs_litert)])
def test_a_cast_to_a_byte_wraps_around(engine: str, tmp_path: Path) -> None:
    """CAST of NNAPI stops at the largest number; values clamped before stay a plain CAST."""
    model, b = new_model()
    x = b.input("x", ir.DataType.INT32, [6])
    b.output(b.op("Cast", b.op("Cast", x, to=int(ir.DataType.UINT8)), to=int(ir.DataType.FLOAT)))
    Model(model, "test").save(tmp_path / "wrapped.nnapi.json", "nnapi")
    feed = np.array([-1, -300, 5, 255, 256, 300], np.int32)
    (found,) = converter.load(tmp_path / "wrapped.nnapi.json").run({"x": feed}, engine).values()
    np.testing.assert_array_equal(found, feed.astype(np.uint8))


def ints(*numbers: int) -> Any:
    return np.array(numbers, np.int32)


@needs_litert
@pytest.mark.parametrize(
    ("kind", "constants", "shape", "out", "to", "options"),
    [
        ("RESHAPE", [ints(1, 2, 1, 3, 1)], [2, 3], [1, 2, 1, 3, 1], "BOOL", ""),
        ("TRANSPOSE", [ints(1, 0)], [2, 3], [3, 2], "BOOL", ""),
        ("CONCATENATION", None, [2, 3], [4, 3], "BOOL", "ConcatenationOptions"),
        ("CAST", [], [2, 3], [2, 3], "INT32", ""),
        ("CAST", [], [2, 3], [2, 3], "FLOAT32", ""),
        ("REVERSE_V2", [ints(1, -1)], [2, 3, 4], [2, 3, 4], "FLOAT32", ""),
    ],
)
@pytest.mark.sampled(3)
def test_booleans_and_several_axes(
    kind: str,
    constants: list[Any] | None,
    shape: list[int],
    out: list[int],
    to: str,
    options: str,
    tmp_path: Path,
) -> None:
    own = TensorType.FLOAT32 if kind == "REVERSE_V2" else TensorType.BOOL
    tensors = [LiteTensor("x", own, shape), LiteTensor("y", getattr(TensorType, to), out)]
    tensors += [LiteTensor("c", TensorType.INT32, list(c.shape), c) for c in constants or []]
    inputs = [0, 0] if constants is None else list(range(0, 2 * len(constants) + 1, 2))
    operator = LiteOperator(kind, inputs, [1], options, {})
    path = tmp_path / "one.tflite"
    with Output(path) as file:
        write_flat(LiteModel([LiteGraph("main", tensors, [operator], [0], [1])]), file)
    x = weights(*shape) if own == TensorType.FLOAT32 else weights(*shape) > 0
    (wanted,) = litert.invoke(path, [x])
    (found,) = converter.load(path).run({"x": x}).values()
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)
    converter.load(path).save(tmp_path / "again.tflite", "tflite")
    (again,) = litert.invoke(tmp_path / "again.tflite", [x])
    np.testing.assert_array_equal(again, wanted)
