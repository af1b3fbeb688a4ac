"""Limits of LiteRT's kernels: data types and ranks.

A row of `_TABLE` is

    name   types   axes   position of the data among the inputs (default 0)

The types are those of the tensors that an operator moves or computes with, by the codes below;
`q4`, `q8`, `qu8` and `q16` are int4, int8, uint8 and int16 with a scale; int4 is only supported for
constants. "axes" is the largest supported rank. Types were measured with LiteRT 2.3.0 on its
built-in kernels, with one file for each. PRELU also takes int16, but gives wrong numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import onnx_ir as ir

D = ir.DataType
CODES = {
    "f": D.FLOAT,
    "i4": D.INT4,
    "i8": D.INT8,
    "u8": D.UINT8,
    "i16": D.INT16,
    "u16": D.UINT16,
    "i32": D.INT32,
    "u32": D.UINT32,
    "i64": D.INT64,
    "b": D.BOOL,
    "h": D.FLOAT16,
    "d": D.DOUBLE,
    "c": D.COMPLEX64,
}
SCALED = {"q4": D.INT4, "q8": D.INT8, "qu8": D.UINT8, "q16": D.INT16}
_TABLE = """
ABS                          f i16 i32 q8 q16                         8
ADD                          f i32 i64 q8 qu8 q16                     6
ADD_N                        f i32                                    8
ARG_MAX                      f i8 u8 i32 b q8 qu8                     8
ARG_MIN                      f i8 u8 i32 b q8 qu8                     8
AVERAGE_POOL_2D              f q8 qu8 q16                             4
BATCH_MATMUL                 f q8 q16                                 5
BITCAST                      f i32 u32                                8
BITWISE_XOR                  i8 u8 i16 u16 i32 u32                    4
BROADCAST_TO                 f i8 u8 i16 i32 i64 b q8 qu8 q16         8
CAST                         f i4 i8 u8 i16 u16 i32 u32 i64 b h d q8 qu8 q16 8
CEIL                         f                                        8
CONCATENATION                f i8 u8 i16 i32 u32 i64 b q8 qu8 q16     8
CONV_2D                      f q8 qu8 q16                             4
CONV_3D                      f                                        5
CONV_3D_TRANSPOSE            f                                        5 2
COS                          f                                        8
CUMSUM                       f i32 i64                                8
DEPTHWISE_CONV_2D            f q8 qu8 q16                             4
DEPTH_TO_SPACE               f i8 u8 i32 i64 q8 qu8                   4
DEQUANTIZE                   i8 h q4 q8 qu8 q16                          8
DIV                          f i32 q8 qu8 q16                         5
DYNAMIC_UPDATE_SLICE         f i8 i16 i32 i64 b                       8
ELU                          f q8                                     8
EMBEDDING_LOOKUP             f i8 u8 q8 qu8                           8 1
EQUAL                        f i16 i32 i64 b q8 qu8 q16               4
EXP                          f q8 q16                                 8
EXPAND_DIMS                  f i8 u8 i16 u16 i32 u32 i64 b q8 qu8 q16 8
FAKE_QUANT                   f                                        8
FILL                         f i8 u8 i16 u16 i32 u32 i64 b q8 qu8 q16 8 1
FLOOR                        f                                        8
FLOOR_DIV                    f i8 i16 i32                             4
FLOOR_MOD                    f i8 i16 i32 i64                         4
FULLY_CONNECTED              f q8 qu8 q16                             8
GATHER                       f i8 u8 i16 i32 i64 b q8 qu8 q16         8
GATHER_ND                    f i8 u8 i16 i32 i64 b q8 qu8 q16         8
GELU                         f q8 qu8 q16                             8
GREATER                      f i16 i32 i64 q8 qu8 q16                 4
GREATER_EQUAL                f i16 i32 i64 q8 qu8 q16                 4
HARD_SWISH                   f q8 qu8                                 8
IF                           b                                        8
L2_NORMALIZATION             f q8 qu8                                 8
L2_POOL_2D                   f                                        4
LEAKY_RELU                   f q8 qu8 q16                             8
LESS                         f i16 i32 i64 q8 qu8 q16                 4
LESS_EQUAL                   f i16 i32 i64 q8 qu8 q16                 4
LOCAL_RESPONSE_NORMALIZATION f                                        4
LOG                          f q8 q16                                 8
LOGICAL_AND                  b                                        4
LOGICAL_NOT                  b                                        8
LOGICAL_OR                   b                                        4
LOGISTIC                     f q8 qu8 q16                             8
LOG_SOFTMAX                  f q8 qu8                                 8
MAXIMUM                      f i8 u8 i16 i32 i64 q8 qu8 q16           5
MAX_POOL_2D                  f q8 qu8 q16                             4
MEAN                         f i32 i64 q8 qu8 q16                     8
MINIMUM                      f i8 u8 i16 i32 i64 q8 qu8 q16           5
MIRROR_PAD                   f i8 u8 i16 u16 i32 u32 i64 b q8 qu8 q16 8
MUL                          f i32 u32 i64 q8 qu8 q16                 6
NEG                          f i32 i64                                8
NON_MAX_SUPPRESSION_V5       f                                        2
NOT_EQUAL                    f i16 i32 i64 b q8 qu8 q16               4
ONE_HOT                      f i8 u8 i32 i64 b                        8 2
PACK                         f i8 u8 i16 i32 i64 q8 qu8 q16           7
PAD                          f i8 u8 i16 i32 i64 b q8 qu8 q16         5
PADV2                        f i8 u8 i16 i32 i64 b q8 qu8 q16         5
POW                          f i32                                    4
PRELU                        f q8 qu8                                 4
QUANTIZE                     f q8 qu8 q16                             8
RANDOM_STANDARD_NORMAL       i32 i64                                  8
RANDOM_UNIFORM               i32 i64                                  8
RANGE                        f i32 i64                                8
RANK                         f i8 u8 i16 i32 i64 b                    8
REDUCE_ALL                   b                                        8
REDUCE_ANY                   b                                        8
REDUCE_MAX                   f i8 u8 i16 i32 i64 q8 qu8 q16           8
REDUCE_MIN                   f i8 u8 i16 i32 i64 q8 qu8 q16           8
REDUCE_PROD                  f i32 i64 q8 q16                         8
RELU                         f q8 qu8 q16                             8
RELU6                        f q8 qu8 q16                             8
RELU_0_TO_1                  f q8 qu8                                 8
RELU_N1_TO_1                 f q8 qu8                                 8
RESHAPE                      f i8 u8 i16 u16 i32 u32 i64 b q8 qu8 q16 8
RESIZE_BILINEAR              f q8 qu8 q16                             4
RESIZE_NEAREST_NEIGHBOR      f i8 u8 i16 u16 i32 u32 b q8 qu8 q16     4
REVERSE_SEQUENCE             f u8 i16 i32 i64                         8
REVERSE_V2                   f i8 u8 i16 i32 i64 b q8 qu8             8
RFFT2D                       f                                        8
RIGHT_SHIFT                  i8 u8 i16 u16 i32 u32                    4
ROUND                        f                                        8
RSQRT                        f q8 q16                                 8
SCATTER_ND                   f i8 u8 i32 i64 b                        8 1
SELECT_V2                    f i8 u8 i16 u16 i32 u32 i64 b q8 qu8 q16 5 1
SHAPE                        f i8 u8 i16 u16 i32 u32 i64 b q8 qu8 q16 8
SIGN                         f i32                                    8
SIN                          f                                        8
SLICE                        f i8 u8 i16 u16 i32 u32 i64 b q8 qu8 q16 5
SOFTMAX                      f q8 qu8 q16                             4
SPACE_TO_BATCH_ND            f i8 u8 i32 i64 q8 qu8 q16               4
BATCH_TO_SPACE_ND            f i8 u8 i32 i64 q8 qu8 q16               4
SPACE_TO_DEPTH               f i8 u8 i32 i64 q8 qu8                   4
SPLIT                        f i8 u8 i16 i32 i64 q8 qu8 q16           8 1
SPLIT_V                      f i8 u8 i16 i32 i64 q8 qu8 q16           8
SQRT                         f q8 q16                                 8
SQUARE                       f                                        8
SQUARED_DIFFERENCE           f i32 q8                                 4
SQUEEZE                      f i8 u8 i16 u16 i32 u32 i64 b q8 qu8 q16 8
STRIDED_SLICE                f i8 u8 i16 u16 i32 u32 i64 b q8 qu8 q16 5
SUB                          f i32 i64 q8 qu8 q16                     5
SUM                          f i32 i64 q8 qu8 q16                     8
TANH                         f q8 qu8 q16                             8
TILE                         f i8 u8 i16 u16 i32 u32 i64 b q8 qu8 q16 8
TOPK_V2                      f i8 u8 i16 i32 i64 q8 qu8 q16           8
TRANSPOSE                    f i8 u8 i16 u16 i32 u32 i64 b q8 qu8 q16 6
TRANSPOSE_CONV               f q8 qu8 q16                             4 2
UNIDIRECTIONAL_SEQUENCE_LSTM f                                        3
UNPACK                       f i8 u8 i16 i32 b q8 qu8 q16             8
WHERE                        f i8 u8 i32 u32 i64 b                    8
"""


# Unsupported cases of operators that are written as other operators.
PARTLY = {
    "BitwiseAnd": "64-bit integers",
    "BitwiseOr": "64-bit integers",
    "Col2Im": "computed sizes",
    "ConvTranspose": "groups or dilations with computed weights",
    "DequantizeLinear": "quantized data that are read with several scales",
    "Einsum": "dynamic shapes",
    "Loop": "stacked results of a size that only the body determines",
    "MaxPool": "the indices output",
    "Pad": "mode=edge with computed amounts",
    "Resize": "axes other than height and width, and mode=cubic, with dynamic shapes",
    "RoiAlign": "sampling_ratio=0 with computed regions",
    "ScatterElements": "reduction max, min and mul of integers",
    "ScatterND": (
        "reduction max, min and mul of integers or with dynamic shapes; more than "
        "1024 computed indices that may be equal"
    ),
    "Slice": "computed axes and computed steps",
    "Squeeze": "computed axes",
}

# Scale and zero point of results that the kernels demand.
_EIGHTS = {
    "LOGISTIC": (256, 0),
    "SOFTMAX": (256, 0),
    "TANH": (128, 128),
    "L2_NORMALIZATION": (128, 128),
}
RESULTS = {
    **{(kind, D.UINT8): (1 / n, zero) for kind, (n, zero) in _EIGHTS.items()},
    **{(kind, D.INT8): (1 / n, zero - 128) for kind, (n, zero) in _EIGHTS.items()},
    **{(kind, D.INT16): (1 / 32768, 0) for kind in ("LOGISTIC", "SOFTMAX", "TANH")},
    ("LOG_SOFTMAX", D.UINT8): (16 / 256, 255),
    ("LOG_SOFTMAX", D.INT8): (16 / 256, 127),
}


@dataclass(frozen=True)
class Kernel:
    """The types that a kernel supports: `types` without scales, and `scaled` (quantized) ones."""

    types: frozenset[ir.DataType]
    scaled: frozenset[ir.DataType]
    rank: int
    data: int = 0

    def takes(self, dtype: ir.DataType, scaled: bool) -> bool:
        """Return whether the kernel supports a type, or a quantized type."""
        return dtype in (self.scaled if scaled else self.types)


@cache
def kernels() -> dict[str, Kernel]:
    """Return all rows by the names of their operators."""
    found = {}
    for line in _TABLE.strip().splitlines():
        name, *words = line.split()
        types = [w for w in words if not w.isdecimal()]
        rank, *data = (int(w) for w in words if w.isdecimal())
        found[name] = Kernel(
            frozenset(CODES[t] for t in types if t in CODES),
            frozenset(SCALED[t] for t in types if t in SCALED),
            rank,
            *data,
        )
    return found


def limits() -> dict[str, str]:
    """Return the rows as text: types of numbers, those of scaled integers, the most axes."""

    def names(types: frozenset[ir.DataType]) -> str:
        return " ".join(sorted(t.name.lower() for t in types))

    found = {}
    for kind, kernel in kernels().items():
        scaled = f", quantized {names(kernel.scaled)}" if kernel.scaled else ""
        found[kind] = f"{names(kernel.types)}{scaled}; up to {kernel.rank} axes"
    return found


# How kernels read quantized values; measured with LiteRT 2.3.0 on its plain kernels, with a zero
# point other than 0 and scales that differ. Kernels that are not listed rescale.

# compute with the quantized values directly: neither scale nor zero point is read
_UNSCALED = """BITCAST BITWISE_XOR CAST FLOOR_DIV FLOOR_MOD MATRIX_DIAG NEG RIGHT_SHIFT SCATTER_ND
WHERE"""
UNSCALED = frozenset(_UNSCALED.split())
# copy or mix quantized values as if all had the scale and the zero point of the result
_LIKE_RESULT = """AVERAGE_POOL_2D BROADCAST_TO DEPTH_TO_SPACE DYNAMIC_UPDATE_SLICE EMBEDDING_LOOKUP
GATHER GATHER_ND MATRIX_SET_DIAG MAXIMUM MAX_POOL_2D MINIMUM ONE_HOT PAD PADV2 REDUCE_MAX REDUCE_MIN
RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR REVERSE_SEQUENCE REVERSE_V2 SELECT SELECT_V2 SLICE
SPACE_TO_DEPTH SPARSE_TO_DENSE SPLIT SPLIT_V SQUEEZE STRIDED_SLICE TILE TOPK_V2 TRANSPOSE UNIQUE"""
LIKE_RESULT = frozenset(_LIKE_RESULT.split())
ORDERS = frozenset({"GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"})


def is_unscaled(kind: str, dtype: ir.DataType) -> bool:
    """Return whether a kernel ignores scale and zero point of quantized values of this type."""
    return kind in UNSCALED or (kind in ORDERS and dtype == D.INT16)
