"""Weights of four bits in TensorFlow Lite files: packed there, and in the graph that is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
import tflite as schema

import converter
from converter.api import Model
from converter.engines import litert
from converter.formats.tflite.codec import LiteTensor, read_flat
from converter.graph.build import new_model
from converter.graph.lazy_tensor import LazyTensor

RNG = np.random.default_rng(5)
INT4 = schema.TensorType.INT4
# a case: shape of the weights, of their scales, attributes of DequantizeLinear, operator
CASES: dict[str, tuple[list[int], list[int], dict[str, int], str]] = {
    "one scale": ([96, 64], [], {}, "MatMul"),
    "an odd number": ([95, 67], [], {}, "Mul"),
    "columns": ([96, 64], [64], {"axis": 1}, "MatMul"),
    "rows": ([96, 64], [96], {"axis": 0}, "MatMul"),
    "filters": ([64, 32, 3, 3], [64], {"axis": 0}, "Conv"),
    "blocks": ([96, 64], [6, 64], {"axis": 0, "block_size": 16}, "MatMul"),
    "blocks of rows": ([96, 64], [96, 4], {"axis": 1, "block_size": 16}, "Gather"),
    "codes": ([96, 64], [], {}, "Cast"),
}
DATA = {"MatMul": [2, 96], "Mul": [95, 67], "Conv": [1, 32, 5, 5], "Gather": [3], "Cast": [2, 96]}


def numbers(kind: str, shape: list[int]) -> np.ndarray:
    low = -8 if kind == "int4" else 0
    return RNG.integers(low, low + 16, shape).astype(getattr(ml_dtypes, kind))


def made(case: str, kind: str, zero: bool) -> tuple[Model, dict[str, Any]]:
    shape, steps, attributes, operator = CASES[case]
    model, b = new_model()
    integer = operator == "Gather"
    x = b.input("x", ir.DataType.INT64 if integer else ir.DataType.FLOAT, DATA[operator])
    weights = b.const(numbers(kind, shape))
    points = [b.const(numbers(kind, steps))] if zero else []
    scales = b.const(RNG.uniform(0.01, 0.1, steps).astype(np.float32))
    if operator == "Cast":
        y = b.op("MatMul", x, b.op("Cast", weights, to=int(ir.DataType.FLOAT)))
    else:
        real = b.op("DequantizeLinear", weights, scales, *points, **attributes)
        y = b.op(operator, *((real, x) if integer else (x, real)))
    b.output(y)
    data = RNG.integers(0, 96, 3) if integer else RNG.normal(size=DATA[operator])
    return Model(model, "test"), {"x": data if integer else data.astype(np.float32)}


def constants(path: Path) -> list[LiteTensor]:
    return [t for g in read_flat(path).graphs for t in g.tensors if t.data is not None]


@pytest.mark.sampled(5)
@pytest.mark.skipif(not litert.available(), reason="LiteRT is not installed")
@pytest.mark.parametrize("zero", [True, False])
@pytest.mark.parametrize("kind", ["int4", "uint4"])
@pytest.mark.parametrize("case", CASES)
def test_litert_computes_from_packed_weights(
    case: str, kind: str, zero: bool, tmp_path: Path
) -> None:
    model, feeds = made(case, kind, zero)
    path, want = tmp_path / "a.tflite", next(iter(model.run(feeds).values()))
    converter.save(model, path)
    packed = max(constants(path), key=lambda t: int(np.prod(t.shape)))
    assert packed.type == INT4
    assert np.asarray(packed.data).nbytes == -(-int(np.prod(CASES[case][0])) // 2)
    got = litert.invoke(path, list(feeds.values()))[0]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    read = next(iter(converter.load(path).run(feeds).values()))
    np.testing.assert_allclose(read, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_they_are_read_and_written_as_they_are(case: str, tmp_path: Path) -> None:
    path, again = tmp_path / "a.tflite", tmp_path / "b.tflite"
    converter.save(made(case, "uint4", True)[0], path)
    model = converter.load(path)
    weights = [v.const_value for v in model.ir.graph.initializers.values()]
    four = [w for w in weights if w is not None and w.dtype == ir.DataType.INT4]
    assert max(w.size for w in four) == np.prod(CASES[case][0])
    assert all(isinstance(w, LazyTensor) for w in four)
    converter.save(model, again)
    stored = [
        sorted((t.type, np.asarray(t.data).tobytes()) for t in constants(p)) for p in (path, again)
    ]
    assert stored[0] == stored[1]


@pytest.mark.parametrize(("case", "operator"), [("columns", "DEQUANTIZE"), ("blocks", "CAST")])
def test_operators_have_the_version_that_takes_them(
    case: str, operator: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.tflite"
    converter.save(made(case, "int4", False)[0], path)
    root = schema.Model.GetRootAs(path.read_bytes(), 0)
    codes = [root.OperatorCodes(i) for i in range(root.OperatorCodesLength())]
    number = getattr(schema.BuiltinOperator, operator)
    assert [c.Version() for c in codes if c.BuiltinCode() == number] == [6]


def test_blocks_take_no_more_than_in_the_source(tmp_path: Path) -> None:
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [1, 512])
    weights, zeros = b.const(numbers("uint4", [512, 512])), b.const(numbers("uint4", [16, 512]))
    scales = b.const(RNG.uniform(0.001, 0.01, (16, 512)).astype(np.float32))
    real = b.op("DequantizeLinear", weights, scales, zeros, axis=0, block_size=32)
    b.output(b.op("MatMul", x, real))
    converter.save(Model(model, "test"), tmp_path / "a.tflite")
    source = 512 * 512 // 2 + 16 * 512 // 2 + 4 * 16 * 512
    assert (tmp_path / "a.tflite").stat().st_size < source + 2000


@pytest.mark.parametrize(
    ("kind", "filters"), [("FULLY_CONNECTED", [8, 16]), ("CONV_2D", [8, 1, 1, 16])]
)
def test_filters_of_four_bits_are_read(kind: str, filters: list[int], tmp_path: Path) -> None:
    """Source: the formula; LiteRT rounds the data to 8 bits besides."""
    from converter.formats.tflite.codec import LiteGraph, LiteModel, LiteOperator, write_flat
    from converter.io.files import Output

    own, shape = numbers("int4", [8, 16]), [4, 16] if len(filters) == 2 else [1, 2, 2, 16]
    pairs = own.astype(np.uint8).reshape(-1, 2) & 15
    scales = RNG.uniform(0.1, 0.2, 8).astype(np.float32)
    w = LiteTensor("w", INT4, filters, pairs[:, 0] | pairs[:, 1] << 4, scales.tolist(), [0] * 8)
    floats = schema.TensorType.FLOAT32
    x = LiteTensor("x", floats, shape)
    y = LiteTensor("y", floats, [*shape[:-1], 8])
    sizes = {"stride_w": 1, "stride_h": 1, "dilation_w_factor": 1, "dilation_h_factor": 1}
    options = sizes if kind == "CONV_2D" else {}
    table = "Conv2DOptions" if options else "FullyConnectedOptions"
    operator = LiteOperator(kind, [0, 1], [2], table, options)
    with Output(tmp_path / "a.tflite") as out:
        write_flat(LiteModel([LiteGraph("main", [x, w, y], [operator], [0], [2])]), out)
    data = RNG.normal(size=shape).astype(np.float32)
    got = converter.load(tmp_path / "a.tflite").run({"x": data})["y"]
    want = data @ (own.astype(np.float32) * scales[:, None]).T
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    converter.convert(tmp_path / "a.tflite", tmp_path / "b.tflite")
    assert INT4 in [t.type for t in constants(tmp_path / "b.tflite")]
