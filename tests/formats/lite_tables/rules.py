"""NNAPI operations <-> TensorFlow Lite operators: one row for each pair, and the types of tensors.

A row says which arguments are tensors in TensorFlow Lite and in which order, which scalars are
options, and which arguments may have one value only. `special` arguments, and whatever else no row
can say, belong to functions in `converters.py`. Every argument has a place (tested).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from converter.formats.nnapi.table import OperandType
from converter.formats.tflite.schema import schema

HALF = (OperandType.TENSOR_FLOAT16, OperandType.FLOAT16)
QUANTISED = {
    OperandType.TENSOR_QUANT8_ASYMM,
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED,
    OperandType.TENSOR_QUANT8_SYMM,
    OperandType.TENSOR_QUANT16_SYMM,
    OperandType.TENSOR_QUANT16_ASYMM,
}
LITE_TYPES: dict[OperandType, int] = {
    OperandType.FLOAT32: schema.TensorType.FLOAT32,
    OperandType.INT32: schema.TensorType.INT32,
    OperandType.UINT32: schema.TensorType.UINT32,
    OperandType.BOOL: schema.TensorType.BOOL,
    OperandType.FLOAT16: schema.TensorType.FLOAT16,
    OperandType.TENSOR_FLOAT32: schema.TensorType.FLOAT32,
    OperandType.TENSOR_FLOAT16: schema.TensorType.FLOAT16,
    OperandType.TENSOR_INT32: schema.TensorType.INT32,
    OperandType.TENSOR_BOOL8: schema.TensorType.BOOL,
    OperandType.TENSOR_QUANT8_ASYMM: schema.TensorType.UINT8,
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED: schema.TensorType.INT8,
    OperandType.TENSOR_QUANT8_SYMM: schema.TensorType.INT8,
    OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL: schema.TensorType.INT8,
    OperandType.TENSOR_QUANT16_SYMM: schema.TensorType.INT16,
    OperandType.TENSOR_QUANT16_ASYMM: schema.TensorType.UINT16,
}


class Refused(Exception):
    """Why an operation or an operator has no counterpart."""


@dataclass(frozen=True)
class Field:
    """An option, and the argument that it holds.

    `shift` is what NNAPI's number needs to be TensorFlow Lite's (padding SAME is 1 and 0).
    """

    argument: str
    shift: int = 0
    flag: bool = False


@dataclass(frozen=True)
class Row:
    """An operation and an operator.

    `tensors`  arguments that are tensors, in TensorFlow Lite's order
    `fields`   option -> argument
    `only`     arguments that are no options, with the one value they may have
    `special`  arguments that functions in converters.py carry
    """

    operation: str
    builtin: str
    tensors: tuple[str, ...] = ("input",)
    options: str = ""
    fields: Mapping[str, Field] = field(default_factory=dict)
    only: Mapping[str, object] = field(default_factory=dict)
    special: tuple[str, ...] = ()


def row(
    operation: str,
    builtin: str = "",
    tensors: str = "input",
    options: str = "",
    fields: Mapping[str, str | Field] | None = None,
    only: Mapping[str, object] | None = None,
    special: str = "",
) -> Row:
    named = {k: Field(v) if isinstance(v, str) else v for k, v in (fields or {}).items()}
    return Row(
        operation,
        builtin or operation,
        tuple(tensors.split()),
        options,
        named,
        only or {},
        tuple(special.split()),
    )


LAST = "last"
TURNED = (
    "SOFTMAX",
    "LOG_SOFTMAX",
    "L2_NORMALIZATION",
)  # a TRANSPOSE in front makes another axis the last one, a second one puts it back
MOST_TURNED = 4  # axes that TRANSPOSE takes in NNAPI
_PADS = "pad_left pad_right pad_top pad_bottom"
_SCALES = "width height width_scale height_scale"
_ACT = {"FusedActivationFunction": "activation"}
_STRIDES: dict[str, str | Field] = {
    "Padding": Field("padding", -1),
    "StrideW": "stride_width",
    "StrideH": "stride_height",
    **_ACT,
}
_POOL: dict[str, str | Field] = {
    **_STRIDES,
    "FilterWidth": "filter_width",
    "FilterHeight": "filter_height",
}
_CONV: dict[str, str | Field] = {
    **_STRIDES,
    "DilationWFactor": "dilation_width",
    "DilationHFactor": "dilation_height",
}
_NHWC = {"nchw": False}
_ALIGN = {"AlignCorners": "align_corners", "HalfPixelCenters": "half_pixel_centers"}
_LRN = {"Radius": "radius", "Bias": "bias", "Alpha": "alpha", "Beta": "beta"}
_MASKS = {"BeginMask": "begin_mask", "EndMask": "end_mask", "ShrinkAxisMask": "shrink_axis_mask"}
_KEEP = {"KeepDims": "keep_dims"}
_PLAIN = (
    "DEQUANTIZE FLOOR LOGISTIC TANH RELU RELU6 ABS EXP LOG NEG SIN SQRT RSQRT LOGICAL_NOT "
    "HARD_SWISH CAST QUANTIZE RANK"
)
_BINARY = (
    "EQUAL NOT_EQUAL GREATER GREATER_EQUAL LESS LESS_EQUAL LOGICAL_AND LOGICAL_OR MAXIMUM MINIMUM"
)

ROWS = (
    row("ADD", "", "a b", "AddOptions", _ACT),
    row("SUB", "", "a b", "SubOptions", _ACT),
    row("MUL", "", "a b", "MulOptions", _ACT),
    row("DIV", "", "a b", "DivOptions", _ACT),
    *(
        row(n, "", "input", "Pool2DOptions", _POOL, _NHWC, _PADS)
        for n in ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
    ),
    row("CONV_2D", "", "input filter bias", "Conv2DOptions", _CONV, _NHWC, _PADS),
    row(
        "DEPTHWISE_CONV_2D",
        "",
        "input filter bias",
        "DepthwiseConv2DOptions",
        {**_CONV, "DepthMultiplier": "multiplier"},
        _NHWC,
        _PADS,
    ),
    row(
        "GROUPED_CONV_2D",
        "CONV_2D",
        "input filter bias",
        "Conv2DOptions",
        _STRIDES,
        _NHWC,
        f"groups {_PADS}",
    ),
    row(
        "TRANSPOSE_CONV_2D",
        "TRANSPOSE_CONV",
        "filter input bias",
        "TransposeConvOptions",
        _STRIDES,
        _NHWC,
        f"output_shape {_PADS}",
    ),
    row("CONCATENATION", "", "inputs", "ConcatenationOptions", {"Axis": "axis"}),
    row("DEPTH_TO_SPACE", "", "input", "DepthToSpaceOptions", {"BlockSize": "block_size"}, _NHWC),
    row("SPACE_TO_DEPTH", "", "input", "SpaceToDepthOptions", {"BlockSize": "block_size"}, _NHWC),
    *(row(n) for n in _PLAIN.split()),
    row("RELU1", "RELU_N1_TO_1"),
    row("EMBEDDING_LOOKUP", "", "lookups values"),
    row("HASHTABLE_LOOKUP", "", "lookups keys values"),
    row("FULLY_CONNECTED", "", "input weights bias", "FullyConnectedOptions", _ACT),
    row("L2_NORMALIZATION", "", "input", "L2NormOptions", only={"axis": LAST}),
    row(
        "LOCAL_RESPONSE_NORMALIZATION",
        "",
        "input",
        "LocalResponseNormalizationOptions",
        _LRN,
        {"axis": LAST},
    ),
    row("LSH_PROJECTION", "", "hash input weight", "LSHProjectionOptions", special="kind"),
    row("RESHAPE", "", "input shape"),
    row("SOFTMAX", "", "input", "SoftmaxOptions", {"Beta": "beta"}, {"axis": LAST}),
    row("LOG_SOFTMAX", only={"axis": LAST, "beta": 1.0}),
    row("ELU", only={"alpha": 1.0}),
    row("MEAN", "", "input axes", "ReducerOptions", {"KeepDims": Field("keep_dims", flag=True)}),
    *(
        row(n, "", "input axes", "ReducerOptions", _KEEP)
        for n in ("REDUCE_ALL", "REDUCE_ANY", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD")
    ),
    row("REDUCE_SUM", "SUM", "input axes", "ReducerOptions", _KEEP),
    row("PAD", "", "input paddings"),
    row("PAD_V2", "PADV2", "input paddings", special="pad_value"),
    row("MIRROR_PAD", "", "input paddings", "MirrorPadOptions", {"Mode": "mode"}),
    row("SPACE_TO_BATCH_ND", "", "input block_sizes paddings", only=_NHWC),
    row("BATCH_TO_SPACE_ND", "", "input block_sizes", only=_NHWC),
    row("STRIDED_SLICE", "", "input begin end strides", "StridedSliceOptions", _MASKS),
    row("SQUEEZE", "", "input", "SqueezeOptions", special="axes"),
    row("TRANSPOSE", "", "input permutation"),
    row("ARGMAX", "ARG_MAX", "input axis"),
    row("ARGMIN", "ARG_MIN", "input axis"),
    *(row(n, "", "a b") for n in _BINARY.split()),
    row("POW", "", "base exponent"),
    row("PRELU", "", "input alpha"),
    row("SELECT", "SELECT_V2", "mask a b"),
    row("EXPAND_DIMS", "", "input axis"),
    row("GATHER", "", "input indices", "GatherOptions", {"Axis": "axis"}),
    row("SLICE", "", "input begin size"),
    row("SPLIT", "", "axis input", "SplitOptions", {"NumSplits": "count"}),
    row("TILE", "", "input multiples"),
    row("TOPK_V2", "", "input k"),
    row("FILL", "", "shape value"),
    row(
        "BATCH_MATMUL", "", "a b", "BatchMatMulOptions", {"AdjX": "adjoint_a", "AdjY": "adjoint_b"}
    ),
    row("PACK", "", "inputs", "PackOptions", {"Axis": "axis"}),
    row("REVERSE", "REVERSE_V2", "input axis"),
    row("RESIZE_BILINEAR", "", "input", "ResizeBilinearOptions", _ALIGN, _NHWC, _SCALES),
    row(
        "RESIZE_NEAREST_NEIGHBOR",
        "",
        "input",
        "ResizeNearestNeighborOptions",
        _ALIGN,
        _NHWC,
        _SCALES,
    ),
    row("IF", "", "condition inputs", "IfOptions", special="then else"),
    row("WHILE", "", "inputs", "WhileOptions", special="condition body"),
)
BY_OPERATION = {r.operation: r for r in ROWS}
# GROUPED_CONV_2D is a CONV_2D in TensorFlow Lite; reading tells them apart by the depth of the
# filter
BY_BUILTIN = {r.builtin: r for r in reversed(ROWS)} | {
    "CONV_2D": BY_OPERATION["CONV_2D"],
    "SELECT": BY_OPERATION["SELECT"],
}
# DIV of integers rounds down in NNAPI and towards zero there
BY_BUILTIN["FLOOR_DIV"] = row("DIV", "FLOOR_DIV", "a b", only={"activation": 0})

# Why the operations without a row have none.
STATEFUL = "its state is an operand, in TensorFlow Lite a hidden variable"
_CELLS = """
    LSTM RNN SVDF UNIDIRECTIONAL_SEQUENCE_LSTM UNIDIRECTIONAL_SEQUENCE_RNN
    BIDIRECTIONAL_SEQUENCE_LSTM BIDIRECTIONAL_SEQUENCE_RNN QUANTIZED_LSTM QUANTIZED_16BIT_LSTM
"""
REASONS = {
    **dict.fromkeys(_CELLS.split(), STATEFUL),
    "RANDOM_MULTINOMIAL": "its random numbers are others",
}
