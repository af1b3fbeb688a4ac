"""The version of each operator: the lowest that supports the features which the operator uses.

A row of `_TABLE` is an operator and the features that need a version above 1, each as
`feature=version`:

    i8 ..          the data are of that type (the codes of kernels.py; `q16`: with a scale)
    out:i16        the first result is of that type
    rank5          the data have that many axes or more
    wide           two operands of different shapes and more than four axes
    inputs4        there are that many inputs or more (`fewer3`: less)
    i64at2         input 2 is of that type
    channels       the weights have a scale for each channel
    grouped        the filter is not as deep as the image
    NAME           an option of that name is set, `NAME>1`: to more than 1

The highest that applies is taken. Source: op_version.cc of LiteRT's converter.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from converter.formats.tflite.codec import LiteOperator, LiteTensor
from converter.formats.tflite.kernels import CODES, kernels
from converter.formats.tflite.tensors import INT2, TYPES

_TABLE = """
ABS i8=2 u8=2 q16=3 i16=4 i32=5
ADD i8=2 q16=3 i64=4 i16=5
ARG_MAX i8=2 b=3
ARG_MIN i8=2 b=3
AVERAGE_POOL_2D i8=2 i16=3
BATCH_MATMUL i8=2 i16=3
BATCH_TO_SPACE_ND i8=2 i16=4
BROADCAST_TO f=2 i8=3 u8=2 i16=3 i32=2 i64=2 b=2
CAST u32=2 out:u32=2 i8=3 out:i8=3 u16=4 out:u16=4 h=5 out:h=5 d=5 out:d=5 i4=6 i2=8
CONCATENATION i8=2 i16=3 u32=4
CONV_2D i8=3 grouped=6
DEPTHWISE_CONV_2D dilation_w_factor>1=2 dilation_h_factor>1=2 i8=3
DEPTH_TO_SPACE i8=2
DEQUANTIZE i8=2 h=3 i16=3 channels=5 i4=6 i2=7
DIV wide=2
DYNAMIC_UPDATE_SLICE i64at2=2 i16=4
EQUAL i8=2 i16=5
EXP i8=2 i16=2
FILL b=2 i8=3 i16=3
FLOOR_DIV f=2 i8=3 i16=3
FLOOR_MOD i8=2 i16=2
FULLY_CONNECTED i8=4 keep_num_dims=5 fewer3=6 i16=7
GATHER i8=2 b=3 i16=4 batch_dims=5
GATHER_ND i16=3 b=5
GELU i8=2 u8=2
GREATER i8=2
GREATER_EQUAL i8=2 i16=3
L2_NORMALIZATION i8=2
LEAKY_RELU i16=2
LESS i8=2 i16=3
LESS_EQUAL i8=2
LOG i8=2 i16=2
LOGISTIC i8=2 i16=3
LOG_SOFTMAX i8=2
MAXIMUM i8=2 wide=3 i16=4
MAX_POOL_2D i8=2 i16=3
MEAN i8=2 i16=3
MINIMUM i8=2 wide=3 i16=4
MIRROR_PAD i8=2 i16=3
MUL i8=2 q16=4 i64=5 i16=7 u32=7
NOT_EQUAL i8=2 i16=4
PACK i8=2 i16=3 u32=4
PAD i8=2 i16=3 rank5=4 b=5
PADV2 i8=2 i16=3 rank5=4 b=5
QUANTIZE out:i16=2 channels=3
RANGE i64=2
REDUCE_MAX i8=2 i16=3
REDUCE_MIN i8=2 i16=3
REDUCE_PROD i8=2 i16=2
RELU i8=2 u8=2 i16=3
RELU6 i8=2 i16=3
RESIZE_BILINEAR i8=2 half_pixel_centers=3 i16=4
RESIZE_NEAREST_NEIGHBOR i8=2 half_pixel_centers=3 align_corners=3 i16=4
REVERSE_V2 b=2 i8=3
RSQRT i8=2 i16=3
SELECT_V2 u32=2
SIGN i32=2
SLICE i8=2 i16=4 rank5=5 u32=6
SOFTMAX i8=2 i16=3
SPACE_TO_BATCH_ND i8=2 i16=4
SPACE_TO_DEPTH i8=2
SPLIT i8=2 i32=3 i16=4
SPLIT_V i8=2
SQRT i8=2 i16=2
SQUARED_DIFFERENCE i8=2
STRIDED_SLICE i8=2 b=3 rank5=4 ellipsis_mask=6 new_axis_mask=6 u32=7 offset=8
SUB i8=2 wide=3 i64=4 q16=5
SUM i8=2
TANH i8=2 i16=3
TILE i8=3
TOPK_V2 i8=2 i16=3
TRANSPOSE i8=2 b=3 rank5=4 i16=5 rank6=6 rank7=8
TRANSPOSE_CONV i8=2 inputs4=3 fused_activation_function=4
UNPACK i8=2 u8=2 b=3 i16=4
WHERE f=2 i8=2 u8=2 i32=2 i64=2 u32=2
"""


@cache
def _rows() -> dict[str, list[tuple[str, int]]]:
    found = {}
    for line in _TABLE.strip().splitlines():
        name, *words = line.split()
        pairs = [w.rpartition("=") for w in words]
        found[name] = [(what, int(version)) for what, _, version in pairs]
    return found


def version_of(operator: LiteOperator, tensors: Sequence[LiteTensor]) -> int:
    """Return the version of an operator among these tensors."""
    rows = _rows().get(operator.builtin)
    if rows is None:
        return 1
    inputs = [tensors[i] for i in operator.inputs if i >= 0]
    kernel = kernels().get(operator.builtin)
    data = inputs[kernel.data if kernel is not None and kernel.data < len(inputs) else 0]
    outputs = [tensors[i] for i in operator.outputs]
    marks = {_code(data), f"out:{_code(outputs[0])}"}
    marks |= {f"rank{n}" for n in range(len(data.shape) + 1)}
    marks |= {f"inputs{n}" for n in range(len(inputs) + 1)}
    marks |= {f"fewer{n}" for n in range(len(inputs) + 1, 4)}
    if data.scales:
        marks.add(f"q{_code(data)[1:]}")
        if "q16" in dict(rows):
            marks.discard("i16")
    if len(inputs) > 1 and inputs[0].shape != inputs[1].shape and len(data.shape) > 4:
        marks.add("wide")
    if len(inputs) > 2:
        marks.add(f"{_code(inputs[2])}at2")
    if any(len(t.scales) > 1 for t in inputs):
        marks.add("channels")
    if operator.builtin == "CONV_2D" and inputs[1].shape[-1] != data.shape[-1]:
        marks.add("grouped")
    for key, value in operator.options.items():
        if value and isinstance(value, int):
            marks.add(key)
        if isinstance(value, int) and value > 1:
            marks.add(f"{key}>1")
    return max([1, *(version for what, version in rows if what in marks)])


_SHORT = {dtype: code for code, dtype in CODES.items()}


def _code(tensor: LiteTensor) -> str:
    if tensor.type == INT2:
        return "i2"
    dtype = TYPES.get(tensor.type)
    return "" if dtype is None else _SHORT.get(dtype, "")
