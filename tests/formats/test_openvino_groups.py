"""Weights of few bits in groups with a scale each: right in the openvino runtime, compared with
onnxruntime, and as small as in the source.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import converter

ort = pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")

from openvino_runtime import infer  # noqa: E402

RNG = np.random.default_rng(11)
RANGES = {
    TensorProto.UINT4: (0, 16),
    TensorProto.INT4: (-8, 8),
    TensorProto.UINT8: (0, 256),
    TensorProto.INT8: (-128, 128),
}
FLOATS = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.float16): TensorProto.FLOAT16,
    np.dtype(np.int64): TensorProto.INT64,
}


def saved(
    path: Path, nodes: list[Any], feed: Any, constants: list[Any], dtype: Any, dynamic: bool = False
) -> Path:
    shape = ["batch", *feed.shape[1:]] if dynamic else feed.shape
    x = helper.make_tensor_value_info("x", FLOATS[feed.dtype], shape)
    graph = helper.make_graph(
        nodes,
        "groups",
        [x],
        [helper.make_tensor_value_info("y", FLOATS[np.dtype(dtype)], None)],
        constants,
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def stored(constants: list[Any]) -> int:
    """Bytes of the constants; 4-bit numbers are packed."""
    return sum(len(c.raw_data) for c in constants)


def agree(path: Path, feed: Any, constants: list[Any], tolerance: float = 1e-5) -> None:
    """onnxruntime on the source, the openvino runtime on the written file and our reading of it say
    the same; the weights have not grown.
    """
    options = ort.SessionOptions()
    options.graph_optimization_level = (
        ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    )  # more of it multiplies in 8 bits
    (wanted,) = ort.InferenceSession(path, options).run(None, {"x": feed})
    for flavor in ("openvino", "openvino+ir=10"):
        written = path.with_suffix(".xml")
        converter.load(path).save(written, flavor)
        results = infer(written, [feed]), list(converter.load(written).run({"x": feed}).values())
        for (got,) in results:
            assert got.shape == wanted.shape
            assert np.abs(got.astype(float) - wanted).max() <= tolerance * np.abs(wanted).max()
        assert written.with_suffix(".bin").stat().st_size <= 1.1 * stored(constants) + 200


def n_bits(
    path: Path,
    k: int,
    n: int,
    bits: int,
    block: int,
    zero: str = "",
    dtype: Any = np.float32,
    dynamic: bool = False,
) -> None:
    groups, each = -(-k // block), 8 // bits
    codes = RNG.integers(0, 256, (n, groups, block // each)).astype(np.uint8)
    scales = (RNG.random(n * groups) * 0.1 + 0.01).astype(dtype)
    constants = [numpy_helper.from_array(codes, "q"), numpy_helper.from_array(scales, "s")]
    if zero == "packed":
        constants.append(
            numpy_helper.from_array(
                RNG.integers(0, 256, n * -(-groups // each)).astype(np.uint8), "z"
            )
        )
    elif zero:
        constants.append(numpy_helper.from_array((RNG.random(n * groups) * 8).astype(dtype), "z"))
    node = helper.make_node(
        "MatMulNBits",
        ["x", *(c.name for c in constants)],
        ["y"],
        domain="com.microsoft",
        K=k,
        N=n,
        bits=bits,
        block_size=block,
    )
    feed = RNG.standard_normal((3, k)).astype(dtype)
    agree(
        saved(path, [node], feed, constants, dtype, dynamic),
        feed,
        constants,
        3e-3 if dtype == np.float16 else 1e-5,
    )


@pytest.mark.parametrize("zero", ["", "packed", "floats"])
@pytest.mark.parametrize(
    ("k", "n", "block"),
    [(256, 128, 16), (256, 256, 32), (512, 64, 128), (64, 96, 64), (200, 64, 32), (250, 31, 64)],
)
@pytest.mark.sampled(5)
def test_products_with_four_bits(k: int, n: int, block: int, zero: str, tmp_path: Path) -> None:
    n_bits(tmp_path / "m.onnx", k, n, 4, block, zero)


@pytest.mark.parametrize("zero", ["", "packed"])
@pytest.mark.parametrize("bits", [2, 8])
def test_products_with_two_and_eight_bits(bits: int, zero: str, tmp_path: Path) -> None:
    n_bits(tmp_path / "m.onnx", 256, 64, bits, 32, zero)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_products_of_any_batch(dtype: Any, tmp_path: Path) -> None:
    n_bits(tmp_path / "m.onnx", 256, 64, 4, 32, "packed", dtype, dynamic=True)


@pytest.mark.parametrize("reader", ["MatMul", "Gather"])
@pytest.mark.parametrize(("kind", "zero"), list(itertools.product(RANGES, [False, True])))
@pytest.mark.parametrize(
    ("axis", "size", "block"),
    [(0, 128, 32), (1, 128, 32), (0, 1000, 128), (1, 1000, 128), (1, 64, 1), (1, 20, 32)],
)
@pytest.mark.sampled(14)
def test_blocks_of_a_dequantization(
    axis: int, size: int, block: int, kind: int, zero: bool, reader: str, tmp_path: Path
) -> None:
    """1000 is no multiple of 128. Where rows are gathered, blocks may be along the rows or across
    them.
    """
    shape, scales = (
        ([size, 48], [-(-size // block), 48])
        if axis == 0
        else ([48, size], [48, -(-size // block)])
    )
    constants = [
        helper.make_tensor(
            "w", kind, shape, packed(RNG.integers(*RANGES[kind], shape), kind), raw=True
        ),
        numpy_helper.from_array((RNG.random(scales) * 0.1 + 0.01).astype(np.float32), "s"),
        *(
            [
                helper.make_tensor(
                    "z", kind, scales, packed(RNG.integers(*RANGES[kind], scales), kind), raw=True
                )
            ]
            if zero
            else []
        ),
    ]
    nodes = [
        helper.make_node(
            "DequantizeLinear", [c.name for c in constants], ["w_real"], axis=axis, block_size=block
        )
    ]
    feed: Any = RNG.standard_normal((3, size)).astype(np.float32)
    if reader == "Gather":
        feed = RNG.integers(0, shape[0], 5)
        nodes.append(helper.make_node("Gather", ["w_real", "x"], ["y"], axis=0))
    elif axis == 1:
        nodes += [
            helper.make_node("Transpose", ["w_real"], ["turned"], perm=[1, 0]),
            helper.make_node("MatMul", ["x", "turned"], ["y"]),
        ]
    else:
        nodes.append(helper.make_node("MatMul", ["x", "w_real"], ["y"]))
    agree(saved(tmp_path / "m.onnx", nodes, feed, constants, np.float32), feed, constants)


def packed(numbers: Any, kind: int) -> bytes:
    if kind in (TensorProto.UINT8, TensorProto.INT8):
        return bytes(numbers.astype(np.uint8).tobytes())
    halves = (numbers.reshape(-1) & 15).astype(np.uint8)
    return bytes((halves[::2] | halves[1::2] << 4).tobytes())


@pytest.mark.parametrize(("bits", "zero"), list(itertools.product((4, 8), (False, True))))
def test_rows_of_a_table_in_blocks(bits: int, zero: bool, tmp_path: Path) -> None:
    codes = RNG.integers(0, 256, (100, 128 * bits // 8)).astype(np.uint8)
    constants = [
        numpy_helper.from_array(codes, "q"),
        numpy_helper.from_array((RNG.random((100, 4)) * 0.1).astype(np.float32), "s"),
    ]
    if zero:
        constants.append(
            numpy_helper.from_array(
                RNG.integers(0, 256, (100, 4 * bits // 8)).astype(np.uint8), "z"
            )
        )
    names = ["q", "x", *(c.name for c in constants[1:])]
    node = helper.make_node(
        "GatherBlockQuantized",
        names,
        ["y"],
        domain="com.microsoft",
        bits=bits,
        block_size=32,
        quantize_axis=1,
        gather_axis=0,
    )
    feed = RNG.integers(0, 100, (2, 5))
    agree(saved(tmp_path / "m.onnx", [node], feed, constants, np.float32), feed, constants)


def test_a_factor_for_each_of_many_weights(tmp_path: Path) -> None:
    """4-bit numbers with a factor each give garbage in the runtime: they are multiplied
    when converting.
    """
    weights, factors = RNG.integers(0, 16, (128, 64)), RNG.random((128, 64)).astype(np.float32)
    constants = [
        helper.make_tensor(
            "w", TensorProto.UINT4, [128, 64], packed(weights, TensorProto.UINT4), raw=True
        ),
        numpy_helper.from_array(factors, "f"),
    ]
    nodes = [
        helper.make_node("Cast", ["w"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["real", "f"], ["less"]),
        helper.make_node("Mul", ["less", "f"], ["scaled"]),
        helper.make_node("MatMul", ["x", "scaled"], ["y"]),
    ]
    feed = RNG.standard_normal((3, 128)).astype(np.float32)
    agree(saved(tmp_path / "m.onnx", nodes, feed, constants, np.float32), feed, constants)
