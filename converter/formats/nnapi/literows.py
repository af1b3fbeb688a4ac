"""NNAPI operations and TensorFlow Lite operators: one row for each pair, read from left to right and from right to left.

A row says which arguments are tensors over there and in which order, which scalars become options, and which arguments may only have one
value. Every argument of the operation has a place (a test sees to it). What no row can say has a pair of functions in `litespecial.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Field:
    """An option: the argument that it holds, and what is added to NNAPI's number to make TensorFlow Lite's (PADDING: SAME 1, there 0)."""

    argument: str
    shift: int = 0
    flag: bool = False


@dataclass(frozen=True)
class Row:
    """`tensors`: arguments in TensorFlow Lite's order; `fields`: option to argument; `only`: arguments with the one value they may have."""

    operation: str
    builtin: str
    tensors: tuple[str, ...] = ("input",)
    options: str = ""
    fields: Mapping[str, Field] = field(default_factory=dict)
    only: Mapping[str, object] = field(default_factory=dict)


def row(operation: str, builtin: str = "", tensors: str = "input", options: str = "", only: Mapping[str, object] | None = None, **fields: str | Field) -> Row:
    named = {k: Field(v) if isinstance(v, str) else v for k, v in fields.items()}
    return Row(operation, builtin or operation, tuple(tensors.split()), options, named, only or {})


_ACT = {"FusedActivationFunction": "activation"}
_PAD = Field("padding", -1)
_STRIDES: dict[str, str | Field] = {"Padding": _PAD, "StrideW": "stride_width", "StrideH": "stride_height", **_ACT}
_DILATION = {"DilationWFactor": "dilation_width", "DilationHFactor": "dilation_height"}
_NHWC = {"nchw": False}
LAST = "last"
_ALIGN = {"AlignCorners": "align_corners", "HalfPixelCenters": "half_pixel_centers"}

ROWS = (
    row("ADD", tensors="a b", options="AddOptions", **_ACT),
    row("SUB", tensors="a b", options="SubOptions", **_ACT),
    row("MUL", tensors="a b", options="MulOptions", **_ACT),
    row("DIV", tensors="a b", options="DivOptions", **_ACT),
    row("AVERAGE_POOL_2D", options="Pool2DOptions", only=_NHWC, **_STRIDES, FilterWidth="filter_width", FilterHeight="filter_height"),
    row("MAX_POOL_2D", options="Pool2DOptions", only=_NHWC, **_STRIDES, FilterWidth="filter_width", FilterHeight="filter_height"),
    row("L2_POOL_2D", options="Pool2DOptions", only=_NHWC, **_STRIDES, FilterWidth="filter_width", FilterHeight="filter_height"),
    row("CONV_2D", tensors="input filter bias", options="Conv2DOptions", only=_NHWC, **_STRIDES, **_DILATION),
    row("DEPTHWISE_CONV_2D", "", "input filter bias", "DepthwiseConv2DOptions", _NHWC, **_STRIDES, **_DILATION, DepthMultiplier="multiplier"),
    row("CONCATENATION", tensors="inputs", options="ConcatenationOptions", Axis="axis"),
    row("DEPTH_TO_SPACE", options="DepthToSpaceOptions", only=_NHWC, BlockSize="block_size"),
    row("SPACE_TO_DEPTH", options="SpaceToDepthOptions", only=_NHWC, BlockSize="block_size"),
    *(row(n) for n in "DEQUANTIZE FLOOR LOGISTIC TANH RELU RELU6 ABS EXP LOG NEG SIN SQRT RSQRT LOGICAL_NOT HARD_SWISH CAST QUANTIZE RANK".split()),
    row("RELU1", "RELU_N1_TO_1"),
    row("EMBEDDING_LOOKUP", tensors="lookups values"),
    row("HASHTABLE_LOOKUP", tensors="lookups keys values"),
    row("FULLY_CONNECTED", tensors="input weights bias", options="FullyConnectedOptions", **_ACT),
    row("L2_NORMALIZATION", options="L2NormOptions", only={"axis": LAST}),
    row("LOCAL_RESPONSE_NORMALIZATION", "", "input", "LocalResponseNormalizationOptions", {"axis": LAST}, Radius="radius", Bias="bias", Alpha="alpha", Beta="beta"),
    row("RESHAPE", tensors="input shape"),
    row("SOFTMAX", options="SoftmaxOptions", only={"axis": LAST}, Beta="beta"),
    row("LOG_SOFTMAX", only={"axis": LAST, "beta": 1.0}),
    row("ELU", only={"alpha": 1.0}),
    row("MEAN", tensors="input axes", options="ReducerOptions", KeepDims=Field("keep_dims", flag=True)),
    row("REDUCE_ALL", "", "input axes", "ReducerOptions", KeepDims="keep_dims"),
    row("REDUCE_ANY", "", "input axes", "ReducerOptions", KeepDims="keep_dims"),
    row("REDUCE_MAX", "", "input axes", "ReducerOptions", KeepDims="keep_dims"),
    row("REDUCE_MIN", "", "input axes", "ReducerOptions", KeepDims="keep_dims"),
    row("REDUCE_PROD", "", "input axes", "ReducerOptions", KeepDims="keep_dims"),
    row("REDUCE_SUM", "SUM", "input axes", "ReducerOptions", KeepDims="keep_dims"),
    row("PAD", tensors="input paddings"),
    row("MIRROR_PAD", tensors="input paddings", options="MirrorPadOptions", Mode="mode"),
    row("SPACE_TO_BATCH_ND", tensors="input block_sizes paddings", only=_NHWC),
    row("STRIDED_SLICE", "", "input begin end strides", "StridedSliceOptions", BeginMask="begin_mask", EndMask="end_mask", ShrinkAxisMask="shrink_axis_mask"),
    row("ARGMAX", "ARG_MAX", "input axis"),
    row("ARGMIN", "ARG_MIN", "input axis"),
    *(row(n, tensors="a b") for n in "EQUAL NOT_EQUAL GREATER GREATER_EQUAL LESS LESS_EQUAL LOGICAL_AND LOGICAL_OR MAXIMUM MINIMUM".split()),
    row("POW", tensors="base exponent"),
    row("PRELU", tensors="input alpha"),
    row("SELECT", "SELECT_V2", "mask a b"),
    row("EXPAND_DIMS", tensors="input axis"),
    row("GATHER", tensors="input indices", options="GatherOptions", Axis="axis"),
    row("SLICE", tensors="input begin size"),
    row("SPLIT", tensors="axis input", options="SplitOptions", NumSplits="count"),
    row("TILE", tensors="input multiples"),
    row("TOPK_V2", tensors="input k"),
    row("FILL", tensors="shape value"),
    row("BATCH_MATMUL", "", "a b", "BatchMatMulOptions", AdjX="adjoint_a", AdjY="adjoint_b"),
    row("PACK", tensors="inputs", options="PackOptions", Axis="axis"),
    row("REVERSE", "REVERSE_V2", "input axis"),
    # the arguments that these leave out belong to litespecial.py
    row("TRANSPOSE", tensors="input permutation"),
    row("SQUEEZE", options="SqueezeOptions"),
    row("PAD_V2", "PADV2", "input paddings"),
    row("BATCH_TO_SPACE_ND", tensors="input block_sizes", only=_NHWC),
    row("RESIZE_BILINEAR", options="ResizeBilinearOptions", only=_NHWC, **_ALIGN),
    row("RESIZE_NEAREST_NEIGHBOR", options="ResizeNearestNeighborOptions", only=_NHWC, **_ALIGN),
    row("LSH_PROJECTION", tensors="hash input weight", options="LSHProjectionOptions"),
    row("GROUPED_CONV_2D", "CONV_2D", "input filter bias", "Conv2DOptions", _NHWC, **_STRIDES),
    row("TRANSPOSE_CONV_2D", "TRANSPOSE_CONV", "filter input bias", "TransposeConvOptions", _NHWC, **_STRIDES),
    row("IF", "IF", "condition inputs", "IfOptions"),
    row("WHILE", "WHILE", "inputs", "WhileOptions"),
)
BY_OPERATION = {r.operation: r for r in ROWS}
# GROUPED_CONV_2D is a CONV_2D there; reading tells them apart by the depth of the filter
BY_BUILTIN = {r.builtin: r for r in reversed(ROWS)} | {"CONV_2D": BY_OPERATION["CONV_2D"], "SELECT": BY_OPERATION["SELECT"]}

# Why the operations without a row have none.
STATEFUL = "its state is an operand, in TensorFlow Lite a hidden variable"
REASONS = {
    **dict.fromkeys(
        "LSTM RNN SVDF UNIDIRECTIONAL_SEQUENCE_LSTM UNIDIRECTIONAL_SEQUENCE_RNN BIDIRECTIONAL_SEQUENCE_LSTM BIDIRECTIONAL_SEQUENCE_RNN QUANTIZED_LSTM".split(), STATEFUL
    ),
    "QUANTIZED_16BIT_LSTM": STATEFUL,
    "RANDOM_MULTINOMIAL": "its random numbers are others",
}
