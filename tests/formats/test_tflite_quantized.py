"""Quantized values in kernels of LiteRT: scales and zero points that a kernel does not read, biases
with a scale of their own, and integers of 32 bits. LiteRT says the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import converter
from converter.engines import litert

pytest.importorskip("tflite", reason="the schema package tflite is not installed")
from test_tflite_operators import single
from tflite_files import Graph, Op, Tensor, const, in_litert, write

pytestmark = pytest.mark.skipif(not litert.available(), reason="LiteRT is not installed")
F, I8, U8, I16, I32, I64 = np.float32, np.int8, np.uint8, np.int16, np.int32, np.int64
ZERO = {I8: 7, U8: 140, I16: 0}
IDS = {I8: "int8", U8: "uint8", I16: "int16"}


def numbers(kind: Any, *shape: int) -> Any:
    low, high = (0, 255) if kind == U8 else (-120, 120)
    return np.random.default_rng(7).integers(low, high, shape).astype(kind)


def assert_as_litert(path: Path, feeds: Sequence[Any], steps: int = 1) -> None:
    """Read files compute the same as LiteRT, to so many quantized steps."""
    model = converter.load(path)
    actual = model.run({i.name: v for i, v in zip(model.inputs, feeds, strict=False)})
    for found, expected in zip(actual.values(), in_litert(path, feeds), strict=False):
        assert found.shape == expected.shape and found.dtype == expected.dtype
        wide = I64 if expected.dtype.kind in "iub" else np.float64
        assert np.abs(found.astype(wide) - expected.astype(wide)).max(initial=0) <= steps


# kernels that do not read the scales of their inputs ---------------------------------------------

X, PAIR = [2, 3], [const([[1, 0], [0, 2]], I32)]
MASK = const([[True, False, True], [False, False, True]])
WINDOW = {"FilterHeight": 2, "FilterWidth": 2, "StrideH": 1, "StrideW": 1}
COPIES: dict[str, tuple[Any, ...]] = {
    "RESHAPE": (X, [const([6], I32)], [6]),
    "TRANSPOSE": (X, [const([1, 0], I32)], [3, 2]),
    "TILE": (X, [const([1, 2], I32)], [2, 6]),
    "SLICE": (X, [const([0, 1], I32), const([2, 2], I32)], [2, 2]),
    "GATHER_ND": (X, [const([[1]], I32)], [1, 3]),
    "GATHER": (X, [const([1], I32)], [1, 3], "GatherOptions"),
    "SQUEEZE": (X, [], X, "SqueezeOptions"),
    "REVERSE_V2": (X, [const([1], I32)], X),
    "PAD": (X, PAIR, [3, 5]),
    "MAX_POOL_2D": ([1, 3, 3, 1], [], [1, 3, 3, 1], "Pool2DOptions", WINDOW),
    "AVERAGE_POOL_2D": ([1, 3, 3, 1], [], [1, 3, 3, 1], "Pool2DOptions", WINDOW),
    "RESIZE_BILINEAR": ([1, 2, 3, 2], [const([4, 5], I32)], [1, 4, 5, 2], "ResizeBilinearOptions"),
    "RESIZE_NEAREST_NEIGHBOR": (
        [1, 2, 3, 2],
        [const([4, 5], I32)],
        [1, 4, 5, 2],
        "ResizeNearestNeighborOptions",
    ),
}


@pytest.mark.parametrize("kind", IDS, ids=IDS.values())
@pytest.mark.parametrize("name", COPIES)
def test_kernels_that_copy_quantized_values(tmp_path: Path, name: str, kind: Any) -> None:
    if (name, kind) == ("REVERSE_V2", I16):
        pytest.skip("no kernel of REVERSE_V2 takes quantized values of 16 bits")
    shape, more, out, table, options = (*COPIES[name], *("", {})[len(COPIES[name]) - 3 :])
    inputs = [Tensor(kind, shape, None, 0.05, ZERO[kind]), *more]
    result = Tensor(kind, out, None, 0.07, ZERO[kind] and ZERO[kind] - 40)
    path = single(tmp_path, name, inputs, [result], table, **options)
    assert_as_litert(path, [numbers(kind, *shape)])


@pytest.mark.parametrize("kind", IDS, ids=IDS.values())
@pytest.mark.parametrize("name", ["SELECT", "SELECT_V2", "MAXIMUM", "MINIMUM"])
def test_kernels_that_choose_quantized_values(tmp_path: Path, name: str, kind: Any) -> None:
    z = ZERO[kind]
    pair = [Tensor(kind, X, None, s, z and z + n) for s, n in ((0.05, 0), (0.07, -30))]
    inputs = [MASK, *pair] if "SELECT" in name else pair
    path = single(tmp_path, name, inputs, [Tensor(kind, X, None, 0.09, z and z + 5)])
    assert_as_litert(path, [numbers(kind, 2, 3), numbers(kind, 2, 3)[::-1]], 0)


@pytest.mark.parametrize("kind", [I8, U8], ids=["int8", "uint8"])
@pytest.mark.parametrize("same", [True, False])
def test_the_background_is_the_quantized_value_0(tmp_path: Path, kind: Any, same: bool) -> None:
    z = ZERO[kind]
    place, shape = const([[2], [2], [0]], I32), const([4, 3], I32)
    updates = Tensor(kind, [3, 3], None, 0.05, z)
    result = Tensor(kind, [4, 3], None, *((0.05, z) if same else (0.07, z - 4)))
    path = single(tmp_path, "SCATTER_ND", [place, updates, shape], [result])
    assert_as_litert(path, [numbers(kind, 3, 3) // 4], 0)
    diagonal = Tensor(kind, [3], None, 0.05, z)
    result = Tensor(kind, [3, 3], None, 0.05, z)
    path = single(tmp_path, "MATRIX_DIAG", [diagonal], [result], "MatrixDiagOptions")
    assert_as_litert(path, [numbers(kind, 3)], 0)


@pytest.mark.parametrize("kind", [I8, U8], ids=["int8", "uint8"])
def test_the_quantized_value_0_is_false(tmp_path: Path, kind: Any) -> None:
    z = ZERO[kind]
    inputs = [Tensor(kind, [5], None, 0.05, z)]
    path = single(tmp_path, "WHERE", inputs, [Tensor(I64, [-1, 1])])
    assert_as_litert(path, [np.array([0, z, 3, z, 0], kind)], 0)


@pytest.mark.parametrize("to", [F, I8, U8, I16, I32, I64, np.bool_])
@pytest.mark.parametrize("kind", [I8, U8], ids=["int8", "uint8"])
def test_a_cast_reads_no_scale(tmp_path: Path, kind: Any, to: Any) -> None:
    x = Tensor(kind, [4], None, 0.05, ZERO[kind])
    path = single(tmp_path, "CAST", [x], [Tensor(to, [4])])
    assert_as_litert(path, [np.array([0, ZERO[kind], 3, 100], kind)], 0)


@pytest.mark.parametrize(
    ("name", "table"),
    [("FLOOR_DIV", ""), ("FLOOR_MOD", ""), ("BITWISE_XOR", "BitwiseXorOptions"),
     ("RIGHT_SHIFT", "RightShiftOptions"), ("NEG", "")],
)  # fmt: skip
def test_arithmetic_of_quantized_values_as_they_are(tmp_path: Path, name: str, table: str) -> None:
    inputs = [Tensor(I8, [4], None, 0.05, 7)] * (1 if name == "NEG" else 2)
    path = single(tmp_path, name, inputs, [Tensor(I8, [4], None, 0.05, 7)], table)
    feeds = [np.array([5, -7, 9, 110], I8), np.array([1, 3, 4, 5], I8)]
    assert_as_litert(path, feeds[: len(inputs)], 0)


# comparisons -------------------------------------------------------------------------------------

EVERY = np.arange(-120, 120)


@pytest.mark.parametrize("scales", [(0.05, 0.07), (0.05, 0.1), (0.001, 0.001), (1 / 512, 3 / 512)])
@pytest.mark.parametrize("name", ["EQUAL", "NOT_EQUAL", "GREATER", "LESS_EQUAL"])
@pytest.mark.parametrize("kind", IDS, ids=IDS.values())
def test_comparisons_round(tmp_path: Path, kind: Any, name: str, scales: Any) -> None:
    """All pairs of values, ties of two scales among them."""
    first = 120 if kind == U8 else 0
    feeds = [(f(EVERY, 240) + first).astype(kind) for f in (np.repeat, np.tile)]
    zeros = (0, 0) if kind == I16 else (first + 7, first - 30)
    pair = [Tensor(kind, [57600], None, s, z) for s, z in zip(scales, zeros, strict=True)]
    assert_as_litert(single(tmp_path, name, pair, [Tensor(np.bool_, [57600])]), feeds, 0)


# QUANTIZE ----------------------------------------------------------------------------------------

ENDS = np.array([-(10**7), -100000, -700, -128, -3, 0, 1, 3, 5, 127, 255, 700, 100000])


@pytest.mark.parametrize("scales", [(0.5, 0.5), (0.5, 0.02), (0.02, 0.5)])
@pytest.mark.parametrize("pair", [(I32, I8), (I32, I16), (I16, I32), (I16, I8), (I8, I16)])
def test_quantize_between_integers_saturates(tmp_path: Path, pair: Any, scales: Any) -> None:
    kinds = [np.iinfo(k) for k in pair]
    zeros = [{8: -5, 16: 0, 32: 9}[k.bits] for k in kinds]
    x, y = (Tensor(k, [13], None, *p) for k, *p in zip(pair, scales, zeros, strict=True))
    feed = np.clip(ENDS, kinds[0].min, kinds[0].max).astype(pair[0])
    assert_as_litert(single(tmp_path, "QUANTIZE", [x], [y]), [feed])


# biases ------------------------------------------------------------------------------------------

WINDOWS = {"StrideH": 1, "StrideW": 1, "Padding": 1}


def layer(name: str, scale: float, tmp_path: Path) -> tuple[Path, Any]:
    bias = Tensor(I32, [3], np.array([100, -400, 0], I32), scale)
    sizes, image = {
        "FULLY_CONNECTED": ([3, 4], [2, 4]),
        "CONV_2D": ([3, 2, 2, 2], [1, 3, 3, 2]),
        "DEPTHWISE_CONV_2D": ([1, 2, 2, 3], [1, 3, 3, 3]),
        "TRANSPOSE_CONV": ([3, 2, 2, 2], [1, 3, 3, 2]),
    }[name]
    weights = Tensor(I8, sizes, numbers(I8, *sizes), 0.02)
    inputs = [Tensor(I8, image, None, 0.05, 3), weights, bias]
    out = {"FULLY_CONNECTED": [2, 3], "TRANSPOSE_CONV": [1, 4, 4, 3]}.get(name, [1, 2, 2, 3])
    if name == "TRANSPOSE_CONV":
        inputs = [const([1, 4, 4, 3], I32), weights, inputs[0], bias]
    table = {"FULLY_CONNECTED": "FullyConnectedOptions", "TRANSPOSE_CONV": "TransposeConvOptions"}
    options = {} if name == "FULLY_CONNECTED" else dict(WINDOWS)
    if name == "DEPTHWISE_CONV_2D":
        options["DepthMultiplier"] = 1
    table_ = table.get(name, "DepthwiseConv2DOptions" if "DEPTH" in name else "Conv2DOptions")
    result = Tensor(I8, out, None, 0.5, -4)
    return single(tmp_path, name, inputs, [result], table_, **options), numbers(I8, *image)


@pytest.mark.parametrize("scale", [0.05 * 0.02, 1e-9, 0.004, 0.0])
@pytest.mark.parametrize(
    "name", ["FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"]
)
def test_the_scale_of_a_bias_is_not_read(tmp_path: Path, name: str, scale: float) -> None:
    path, feed = layer(name, scale, tmp_path)
    assert_as_litert(path, [feed])
    codes = [n.code for n in converter.load(path).notes]
    assert codes == ([] if scale == 0.05 * 0.02 else ["R112"])


# states ------------------------------------------------------------------------------------------


def test_svdf_rounds_its_state(tmp_path: Path) -> None:
    """Four runs of a file with the state of 16 bits, and a zero point that a RELU would clip at."""
    rng = np.random.default_rng(1)

    def values(kind: Any, *shape: int) -> Any:
        return rng.integers(-127, 127, shape).astype(kind)

    tensors = [
        Tensor(I8, [2, 5], None, 0.05, 7),
        Tensor(I8, [6, 5], values(I8, 6, 5), 0.02),
        Tensor(I16, [6, 4], values(I16, 6, 4), 0.0003),
        Tensor(I32, [3], rng.integers(-3000, 3000, 3).astype(I32), 1.0),
        Tensor(I16, [2, 24], None, 0.05, 0, True),
        Tensor(I8, [2, 3], None, 0.05, 5),
    ]
    options = {"Rank": 2, "FusedActivationFunction": 1}
    op = Op("SVDF", [0, 1, 2, 3, 4], [5], "SVDFOptions", options)
    path = write(tmp_path / "m.tflite", Graph(tensors, [op], [0], [5]))
    model, state, feed = converter.load(path), {}, values(I8, 2, 5)
    x, kept = (i.name for i in model.inputs)
    for times in range(1, 5):
        results = model.run({x: feed, **state})
        state = {kept: results[f"{kept}_out"]}
        expected = in_litert(path, [feed], times)[0].astype(int)
        assert np.abs(next(iter(results.values())).astype(int) - expected).max() <= 1


@pytest.mark.parametrize("scale", [1.0, 50.0])
@pytest.mark.parametrize("projected", [False, True])
def test_an_lstm_of_quantized_values(tmp_path: Path, projected: bool, scale: float) -> None:
    """Two layers, one after the other; biases whose scale is `scale` times the right one, which
    the kernel does not read.
    """
    rng = np.random.default_rng(2)
    tensors: list[Tensor] = [Tensor(I8, [2, 5, 4], None, 0.02, 3)]
    operators = []

    def add(kind: Any, shape: Sequence[int], scale: float, limit: int = 0, zero: int = 0) -> int:
        data = rng.integers(-limit, limit, shape).astype(kind) if limit else None
        tensors.append(Tensor(kind, shape, data, scale, zero))
        return len(tensors) - 1

    x, size, own = 0, 4, 0.02
    for _ in range(2):
        units, outputs = 6, 3 if projected else 6
        weights = [add(I8, [units, size], 0.01, 127) for _ in range(4)]
        recurrent = [add(I8, [units, outputs], 0.008, 127) for _ in range(4)]
        biases = [add(I32, [units], own * 0.01 * scale, 2000) for _ in range(4)]
        projection = [-1, -1]
        if projected:
            projection = [add(I8, [outputs, units], 0.006, 127), add(I32, [outputs], 4e-5, 900)]
        states = [add(I8, [2, outputs], 0.01, 0, -5), add(I16, [2, units], 2.0**-11)]
        for state in states:
            tensors[state].variable = True
        inner = [add(I16, [], 2.0**-12) for _ in range(4)]
        inner.append(add(I8, [], 0.007, 0, 4) if projected else add(I8, [], 0.01, 0, -5))
        y = add(I8, [2, 5, outputs], 0.01, 0, -5)
        inputs = [x, *weights, *recurrent, -1, -1, -1, *biases, *projection, *states, *[-1] * 4]
        table, options = "UnidirectionalSequenceLSTMOptions", {"FusedActivationFunction": 4}
        name = "UNIDIRECTIONAL_SEQUENCE_LSTM"
        operators.append(Op(name, inputs, [y], table, options, intermediates=inner))
        x, size, own = y, outputs, 0.01
    path = write(tmp_path / "m.tflite", Graph(tensors, operators, [0], [x]))
    assert_as_litert(path, [rng.integers(-127, 127, (2, 5, 4)).astype(I8)])


# booleans and bits -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ARG_MAX", "ARG_MIN"])
def test_the_largest_of_booleans(tmp_path: Path, name: str) -> None:
    x = np.array([[True, False, True], [False, False, False], [False, True, True]])
    table = name.title().replace("_", "") + "Options"
    inputs = [Tensor(np.bool_, [3, 3]), const(1, I32)]
    path = single(tmp_path, name, inputs, [Tensor(I32, [3])], table, OutputType=2)
    assert_as_litert(path, [x], 0)


@pytest.mark.parametrize(
    ("kind", "shape", "to", "out"),
    [
        (I32, [2], I8, [2, 4]),
        (I8, [2, 4], I32, [2]),
        (F, [3], I16, [3, 2]),
        (I16, [3, 2], F, [3]),
        (F, [3, 2], I64, [3]),
        (I64, [3], F, [3, 2]),
        (U8, [2, 3, 8], I64, [2, 3]),
    ],
)
def test_bits_of_another_width(tmp_path: Path, kind: Any, shape: Any, to: Any, out: Any) -> None:
    x = np.linspace(0 if kind == U8 else -100, 100, int(np.prod(shape))).reshape(shape)
    path = single(tmp_path, "BITCAST", [Tensor(kind, shape)], [Tensor(to, out)])
    model, feed = converter.load(path), x.astype(kind)
    (actual,) = model.run({model.inputs[0].name: feed}).values()
    (expected,) = in_litert(path, [feed])
    np.testing.assert_array_equal(actual, expected)
