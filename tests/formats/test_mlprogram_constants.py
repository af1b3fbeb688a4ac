"""Compressed constants of ML Programs: each spelling of the specification, with the numbers of its
formula (https://apple.github.io/coremltools/source/coremltools.converters.mil.mil.ops.defs.html).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import converter
from converter.errors import ConverterError
from formats.mil_files import Blob, Block, Op, package

F = np.float32
RNG = np.random.default_rng(3)
DATA = RNG.integers(-128, 128, (3, 5)).astype(np.int8)
MASK = RNG.random((3, 5)) < 0.5
VALUES = RNG.normal(size=int(MASK.sum())).astype(F)
NUMBERS = RNG.integers(-8, 8, int(MASK.sum())).astype(np.int8)
PLACES = RNG.integers(0, 4, (3, 5)).astype(np.uint8)
TABLE = RNG.normal(size=(4,)).astype(F)
PAIRS = RNG.normal(size=(1, 1, 4, 2)).astype(F)
SCALE = RNG.normal(size=(3, 1)).astype(F)
OFFSET = RNG.integers(-8, 8, (3, 1)).astype(np.int8)
LINE = SCALE.reshape(-1)
SHAPE = np.array([3, 5], np.uint32)


def packed(numbers: Any, bits: int) -> Any:
    """Numbers of a few bits in whole bytes, the last bits of a byte first."""
    text = np.unpackbits(numbers.reshape(-1, 1), axis=1, bitorder="little")[:, :bits]
    return np.packbits(text.reshape(-1), bitorder="little")


def scattered(values: Any, mask: Any = MASK) -> Any:
    found = np.zeros(mask.shape, values.dtype)
    found[mask] = values
    return found


def affine(scale: Any, zero: Any, axis: int, data: Any = DATA) -> tuple[list[Op], Any]:
    line = [-1 if i == axis else 1 for i in range(2)]
    wide = [a.astype(F).reshape(line if a.size > 1 else ()) for a in (scale, zero)]
    given = {"quantized_data": data, "scale": scale, "zero_point": zero, "axis": np.int32(axis)}
    expected = (data.astype(F) - wide[1]) * wide[0]
    return [Op("constexpr_affine_dequantize", given, {"w": ("float32", [3, 5])})], expected


def table(bits: int) -> tuple[list[Op], Any]:
    """Indices in a stream of bits, as before iOS 18."""
    values = RNG.normal(size=1 << bits).astype(F)
    places = RNG.integers(0, 1 << bits, (3, 5)).astype(np.uint8)
    given = {"indices": packed(places, bits), "lut": values, "shape": SHAPE}
    return [Op("constexpr_lut_to_dense", given, {"w": ("float32", [3, 5])})], values[places]


def vectors(axis: int) -> tuple[list[Op], Any]:
    """Each index stands for two values along an axis."""
    found = PAIRS[0, 0][PLACES]
    expected = found.reshape(3, 10) if axis == 1 else found.transpose(0, 2, 1).reshape(6, 5)
    given = {"indices": Blob(PLACES, "uint2"), "lut": PAIRS, "vector_axis": np.int32(axis)}
    op = Op("constexpr_lut_to_dense", given, {"w": ("float32", list(expected.shape))})
    return [op], expected


def sparse_table(width: int, axis: int = 1) -> tuple[list[Op], Any]:
    """The mask and the values that the indices stand for, which become a dense constant."""
    lut = PAIRS[..., :width]
    places = PLACES[MASK]
    mask = np.repeat(MASK, width, axis=axis)
    vectors = np.zeros((*MASK.shape, width), F)
    vectors[MASK] = lut[0, 0][places]
    whole = vectors if axis == 1 else vectors.transpose(0, 2, 1)
    values = whole.reshape(mask.shape)[mask]
    given = {
        "indices_mask": MASK.astype(np.uint8),
        "indices_nonzero_data": places,
        "lut": lut.copy(),
        "vector_axis": np.int32(axis),
    }
    made = {"m": ("uint8", list(mask.shape)), "v": ("float32", [values.size])}
    return [Op("constexpr_lut_to_sparse", given, made), dense(mask.shape)], scattered(values, mask)


def sparse_blocks(offset: Any) -> tuple[list[Op], Any]:
    given = {"data_mask": MASK.astype(np.uint8), "nonzero_data": NUMBERS, "scale": SCALE}
    given |= {} if offset is None else {"offset": offset}
    made = {"m": ("uint8", [3, 5]), "v": ("float32", [NUMBERS.size])}
    whole = (scattered(NUMBERS) - (0 if offset is None else offset)) * SCALE * MASK
    ops = [Op("constexpr_sparse_blockwise_shift_scale", given, made), dense((3, 5))]
    return ops, whole.astype(F)


def dense(shape: Any) -> Op:
    given = {"nonzero_data": "$v", "mask": "$m"}
    return Op("constexpr_sparse_to_dense", given, {"w": ("float32", list(shape))})


def bits_of_mask() -> tuple[list[Op], Any]:
    """A mask in a stream of bits, as before iOS 18."""
    given = {"nonzero_data": VALUES, "mask": packed(MASK.astype(np.uint8), 1), "shape": SHAPE}
    op = Op("constexpr_sparse_to_dense", given, {"w": ("float32", [3, 5])})
    return [op], scattered(VALUES)


def plain_mask() -> tuple[list[Op], Any]:
    given = {"nonzero_data": VALUES, "mask": Blob(MASK.astype(np.uint8), "uint1")}
    op = Op("constexpr_sparse_to_dense", given, {"w": ("float32", [3, 5])})
    return [op], scattered(VALUES)


def scaled_table(offset: Any) -> tuple[list[Op], Any]:
    """A table of floats, whose values are scaled again."""
    lut = {"indices": Blob(PLACES, "uint2"), "lut": TABLE.reshape(1, 1, 4, 1)}
    more = {} if offset is None else {"offset": offset}
    ops = [
        Op("constexpr_lut_to_dense", lut, {"q": ("float32", [3, 5])}),
        Op("constexpr_blockwise_shift_scale", {"data": "$q", "scale": SCALE, **more},
           {"w": ("float32", [3, 5])}),
    ]  # fmt: skip
    return ops, (TABLE[PLACES] - (0 if offset is None else offset)) * SCALE


def blocks(offset: Any) -> tuple[list[Op], Any]:
    more = {} if offset is None else {"offset": offset}
    given = {"data": DATA, "scale": SCALE, **more}
    op = Op("constexpr_blockwise_shift_scale", given, {"w": ("float32", [3, 5])})
    return [op], (DATA.astype(F) - (0 if offset is None else offset)) * SCALE


def cast() -> tuple[list[Op], Any]:
    given = {"source_val": LINE.astype(np.float16), "output_dtype": "fp32"}
    return [Op("constexpr_cast", given, {"w": ("float32", [3])})], LINE.astype(np.float16)


def i8(*values: int) -> Any:
    return np.array(values, np.int8)


CASES: dict[str, tuple[list[Op], Any]] = {
    "one scale": affine(np.array(0.5, F), np.array(3, np.int8), 0),
    "scales of the first axis": affine(LINE, i8(1, -2, 3), 0),
    "scales of the last axis": affine(np.arange(1, 6, dtype=F), i8(1, -2, 3, 4, 0), 1),
    "scales, and one zero point": affine(LINE, np.array(7, np.int8), 0),
    "one scale, and zero points": affine(np.array(0.5, F), i8(1, -2, 3), 0),
    "zero points beyond the data": affine(LINE, np.array([200, 0, 9], np.uint8), 0),
    **{f"a table for {bits} bits": table(bits) for bits in (1, 2, 4, 6, 8)},
    "vectors along the last axis": vectors(1),
    "vectors along the first axis": vectors(0),
    "a sparse table": sparse_table(1),
    "a sparse table of vectors": sparse_table(2),
    "a sparse table of vectors along the first axis": sparse_table(2, 0),
    "sparse blocks": sparse_blocks(None),
    "sparse blocks with offsets": sparse_blocks(OFFSET),
    "a mask in bits": bits_of_mask(),
    "a mask": plain_mask(),
    "a scaled table": scaled_table(None),
    "a scaled table with offsets": scaled_table(OFFSET.astype(F)),
    "blocks": blocks(None),
    "blocks with offsets": blocks(OFFSET),
    "a cast": cast(),
}


@pytest.mark.parametrize("name", CASES)
def test_a_constant_has_the_numbers_of_its_formula(name: str, tmp_path: Path) -> None:
    ops, expected = CASES[name]
    x = RNG.normal(size=expected.shape).astype(F)
    (kind, shape) = ops[-1].outputs["w"]
    add = Op("add", {"x": "$x", "y": "$w"}, {"y": (kind, shape)})
    block = Block({"x": ("float32", shape)}, [*ops, add], ["y"])
    model = converter.load(package(tmp_path / "m.mlpackage", block, opset="CoreML8"))
    (actual,) = model.run({"x": x}).values()
    np.testing.assert_allclose(actual, x + expected, rtol=1e-5, atol=1e-5)


def test_too_few_bits_of_indices_are_refused(tmp_path: Path) -> None:
    given = {"indices": np.zeros(2, np.uint8), "lut": TABLE, "shape": SHAPE}
    op = Op("constexpr_lut_to_dense", given, {"w": ("float32", [3, 5])})
    path = package(tmp_path / "m.mlpackage", Block({}, [op], ["w"]), opset="CoreML6")
    with pytest.raises(ConverterError, match=r"R103.*2 bytes.*15 elements of 2 bits"):
        converter.load(path)
