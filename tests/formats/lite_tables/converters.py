"""What the rows of `rules.py` leave to functions.

LOWER: for an operation, what follows the row when it is written; LIFT: when it is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from converter.formats.nnapi.rules.fields import same_pads
from converter.formats.nnapi.table import Array, Operand, OperandType
from converter.formats.tflite.flatbuffer import LiteOperator, numbers
from converter.formats.tflite.schema import schema
from lite_tables.arguments import Arguments
from lite_tables.rules import HALF, TURNED, Refused

if TYPE_CHECKING:
    from lite_tables.writer import Lowering

Lower = Callable[["Lowering", Arguments, LiteOperator], None]
FLOAT16, FLOAT32 = schema.TensorType.FLOAT16, schema.TensorType.FLOAT32
SAME, VALID = 0, 1
LSH_SPARSE, LSH_DENSE = 1, 2
_SIGNED = OperandType.TENSOR_QUANT8_ASYMM_SIGNED


# padding -----------------------------------------------------------------------------------------


def explicit_padding(w: Lowering, x: Arguments, lite: LiteOperator) -> None:
    """Explicit padding as SAME or VALID where it is one of them, else as an operator of its own."""
    if "padding" in x.binding.inputs:
        return
    names = ("pad_top", "pad_bottom", "pad_left", "pad_right")
    pads = [x.scalar(n) for n in names]
    if None in pads:
        raise Refused("the padding is not a constant")
    top, bottom, left, right = pads
    if not any(pads):
        lite.options["Padding"] = VALID
        return
    if _is_same(x, (top, bottom), (left, right)):
        lite.options["Padding"] = SAME
        return
    name, shape = x.binding.spec.name, x.shape("input")
    if name in ("AVERAGE_POOL_2D", "L2_POOL_2D"):
        raise Refused(
            f"padding {pads} is neither SAME nor VALID, and padded positions must not count"
        )
    assert shape is not None
    if min(shape, default=1) < 1:
        raise Refused("explicit padding of an input whose dimensions are not specified")
    padded = [shape[0], shape[1] + top + bottom, shape[2] + left + right, shape[3]]
    source = lite.inputs[0]
    tensor = w.graph.tensors[source]
    inputs = [
        source,
        w.constant(
            f"{tensor.name}_paddings", numbers([0, 0, top, bottom, left, right, 0, 0]).reshape(4, 2)
        ),
    ]
    operand = x.operand("input")
    if name == "MAX_POOL_2D" and operand is not None:
        inputs.append(w.constant(f"{tensor.name}_lowest", _lowest(operand), tensor))
    lite.inputs[0] = w.insert(
        "PADV2" if len(inputs) == 3 else "PAD", inputs, padded, f"{tensor.name}_padded"
    )
    lite.options["Padding"] = VALID


def _lowest(operand: Operand) -> Array:
    dtype = _computed(operand)
    return np.asarray(np.finfo(dtype).min if dtype.kind == "f" else np.iinfo(dtype).min, dtype)


def _computed(operand: Operand) -> np.dtype[Any]:
    """The type of an operand's numbers in its tensor: halves are float32."""
    dtype = operand.type.dtype
    assert dtype is not None
    return np.dtype(np.float32) if dtype.kind == "f" else dtype


def _is_same(x: Arguments, vertical: tuple[int, int], horizontal: tuple[int, int]) -> bool:
    pooled = (x.scalar("filter_height") or 0, x.scalar("filter_width") or 0)
    kernel = (x.dim("filter", 1), x.dim("filter", 2)) if "filter" in x.binding.inputs else pooled
    for axis, pads, k, stride, dilation in (
        (1, vertical, kernel[0], "stride_height", "dilation_height"),
        (2, horizontal, kernel[1], "stride_width", "dilation_width"),
    ):
        size, step = x.dim("input", axis), x.scalar(stride)
        if (
            not size
            or not k
            or not step
            or same_pads(size, k, step, x.scalar(dilation) or 1) != pads
        ):
            return False
    return True


# quantisation ------------------------------------------------------------------------------------


def weights(w: Lowering, x: Arguments, lite: LiteOperator) -> None:
    """Signed weights are symmetric, and per-channel scales need signed activations.

    The scales of a bias beside per-channel weights are the products of the other scales.
    """
    filter_, source = x.operand("filter") or x.operand("weights"), x.operand("input")
    assert filter_ is not None and source is not None
    if filter_.type is _SIGNED and filter_.zero_point:
        raise Refused(
            f"the zero point of the signed weights is {filter_.zero_point}, only 0 is possible"
        )
    if filter_.channel_quant is not None:
        if source.type is not _SIGNED:
            raise Refused("per-channel scales with unsigned activations")
        bias = w.like(x.operand("bias") or Operand(OperandType.TENSOR_INT32))
        bias.scales = [source.scale * s for s in filter_.channel_quant.scales]
        bias.zero_points, bias.axis = [0] * len(bias.scales), 0
        lite.inputs[2] = w.add(bias)


def one_quantisation(w: Lowering, x: Arguments, lite: LiteOperator) -> None:
    """Operators that compare or move stored integers without a look at their scales."""
    used = [i for i in (*lite.inputs, *lite.outputs) if i >= 0 and w.graph.tensors[i].scales]
    if x.binding.spec.name == "CONCATENATION" and x.binding.types["T"] is not _SIGNED:
        return
    if len({(w.graph.tensors[i].scales[0], w.graph.tensors[i].zero_points[0]) for i in used}) > 1:
        raise Refused("its operands differ in scale or zero point")


def compare(w: Lowering, x: Arguments, lite: LiteOperator) -> None:
    """The kernels end the process where a scale is not below 1; floats have none."""
    for i, source in enumerate(lite.inputs):
        tensor = w.graph.tensors[source]
        if tensor.scales and max(tensor.scales) >= 1:
            lite.inputs[i] = w.insert(
                "DEQUANTIZE", [source], tensor.shape, f"{tensor.name}_real", FLOAT32
            )


def divide(w: Lowering, x: Arguments, lite: LiteOperator) -> None:
    """TensorFlow Lite's DIV rounds quotients of integers towards zero, FLOOR_DIV as NNAPI."""
    if x.binding.types["T"] is OperandType.TENSOR_INT32:
        if x.scalar("activation") != 0:
            raise Refused("the quotient of integers has an activation")
        lite.builtin, lite.kind, lite.options = "FLOOR_DIV", "", {}


_COMPARISONS = ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL")


# single operations -------------------------------------------------------------------------------


def grouped(w: Lowering, x: Arguments, lite: LiteOperator) -> None:
    if x.scalar("groups") is None:
        raise Refused("groups is not a constant")


def transpose_conv(w: Lowering, x: Arguments, lite: LiteOperator) -> None:
    """[output_shape, filter, input, bias].

    Explicit padding is SAME, VALID, or a slice of the whole result of VALID.
    """
    filter_, source, bias = lite.inputs
    if x.binding.inputs.get("output_shape") is not None:
        index = x.binding.inputs["output_shape"]
        assert isinstance(index, int)
        stated = w.graph.tensors[lite.outputs[0]].shape
        shape = (
            w.tensor(index)
            if x.given("output_shape")
            else w.constant("output_shape", numbers(_known(stated)))
        )
        lite.inputs = [shape, filter_, source, bias]
        return
    pads = [x.scalar(n) for n in ("pad_top", "pad_bottom", "pad_left", "pad_right")]
    steps = (x.scalar("stride_height"), x.scalar("stride_width"))
    if None in pads or None in steps or min(pads) < 0:
        raise Refused("the padding is not a constant of at least 0")
    out = _known(w.graph.tensors[lite.outputs[0]].shape)
    sizes = _known(x.shape("input") or [0])
    lite.options["Padding"] = SAME
    for axis, before, after, step in ((1, *pads[:2], steps[0]), (2, *pads[2:], steps[1])):
        if -(-out[axis] // step) != sizes[axis] or before != (before + after) // 2:
            lite.options["Padding"] = VALID
    if lite.options["Padding"] == VALID and any(pads):
        whole = [out[0], out[1] + pads[0] + pads[1], out[2] + pads[2] + pads[3], out[3]]
        lite.inputs = [w.constant("whole_shape", numbers(whole)), filter_, source, bias]
        _crop(w, lite, whole, [0, pads[0], pads[2], 0], out)
    else:
        lite.inputs = [w.constant("output_shape", numbers(out)), filter_, source, bias]


def _crop(
    w: Lowering, lite: LiteOperator, whole: list[int], begin: list[int], size: list[int]
) -> None:
    target = w.graph.tensors[lite.outputs[0]]
    middle = w.add(replace(target, name=f"{target.name}_whole", shape=whole, data=None))
    w.graph.operators.append(
        LiteOperator(lite.builtin, lite.inputs, [middle], lite.kind, lite.options)
    )
    lite.builtin, lite.kind, lite.options = "SLICE", "", {}
    lite.inputs = [middle, w.constant("begin", numbers(begin)), w.constant("size", numbers(size))]


def on_last_axis(w: Lowering, x: Arguments, lite: LiteOperator) -> None:
    """An axis that is not the last one changes places with it, before and after."""
    axis, shape = x.scalar("axis"), x.shape("input")
    if axis is None or shape is None or 0 in shape or axis % len(shape) == len(shape) - 1:
        return
    order = list(range(len(shape)))
    order[axis], order[-1] = order[-1], order[axis]
    permutation, turned = w.constant("permutation", numbers(order)), [shape[i] for i in order]
    target = w.graph.tensors[lite.outputs[0]]
    first = w.insert("TRANSPOSE", [lite.inputs[0], permutation], turned, f"{target.name}_before")
    middle = w.add(replace(target, name=f"{target.name}_turned", shape=turned, data=None))
    w.graph.operators.append(
        LiteOperator(lite.builtin, [first, *lite.inputs[1:]], [middle], lite.kind, lite.options)
    )
    lite.builtin, lite.kind, lite.options, lite.inputs = "TRANSPOSE", "", {}, [middle, permutation]


def rank_zero(w: Lowering, x: Arguments, lite: LiteOperator) -> None:
    """A result without dimensions gets the one dimension that it has in NNAPI."""
    shape, name = x.shape("input"), x.binding.spec.name
    if shape is None:
        return
    rank = len(shape)
    if name in ("ARGMAX", "ARGMIN"):
        gone = rank == 1
    elif name == "SQUEEZE":
        gone = (
            all(n == 1 for n in shape)
            and len(set(lite.options["SqueezeDims"]) or set(range(rank))) == rank
        )
    elif name == "STRIDED_SLICE":
        gone = lite.options["ShrinkAxisMask"] & (1 << rank) - 1 == (1 << rank) - 1
    else:
        axes = x.values("axes")
        gone = (
            axes is not None
            and not lite.options["KeepDims"]
            and len({a % rank for a in axes}) == rank
        )
    if gone:
        target = w.graph.tensors[lite.outputs[0]]
        middle = w.add(replace(target, name=f"{target.name}_scalar", shape=[], data=None))
        w.graph.operators.append(
            LiteOperator(lite.builtin, lite.inputs, [middle], lite.kind, lite.options)
        )
        lite.builtin, lite.kind, lite.options = "RESHAPE", "", {}
        lite.inputs = [middle, w.constant("shape", numbers([1]))]


def _known(shape: list[int]) -> list[int]:
    if min(shape, default=1) < 1:
        raise Refused("its dimensions are not specified")
    return shape


def resize(w: Lowering, x: Arguments, lite: LiteOperator) -> None:
    """The size is a constant tensor of height and width."""
    size = _known(w.graph.tensors[lite.outputs[0]].shape[1:3])
    lite.inputs.append(w.constant("size", numbers(size)))


def batch_to_space(w: Lowering, x: Arguments, lite: LiteOperator) -> None:
    lite.inputs.append(w.constant("crops", np.zeros((2, 2), np.int32)))


def transpose(w: Lowering, x: Arguments, lite: LiteOperator) -> None:
    rank = x.rank("input")
    if lite.inputs[1] < 0 and rank:
        lite.inputs[1] = w.constant("permutation", numbers(list(range(rank))[::-1]))


def squeeze(w: Lowering, x: Arguments, lite: LiteOperator) -> None:
    axes = x.values("axes") if x.given("axes") else []
    if axes is None:
        raise Refused("axes is not a constant")
    lite.options["SqueezeDims"] = axes


def pad_v2(w: Lowering, x: Arguments, lite: LiteOperator) -> None:
    value, operand = x.scalar("pad_value"), x.operand("input")
    if value is None or operand is None:
        raise Refused("pad_value is not a constant")
    dtype = _computed(operand)
    if dtype.kind != "f" and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
        raise Refused(f"pad_value {value} is outside {operand.type.name}")
    lite.inputs.append(
        w.constant("pad_value", np.asarray(value, dtype), w.graph.tensors[lite.inputs[0]])
    )


def cast(w: Lowering, x: Arguments, lite: LiteOperator) -> None:
    """Numbers become halves although they are computed on as floats: rounded, and back."""
    source = x.operand("input")
    if x.binding.types["O"] in HALF and source is not None and source.type not in HALF:
        half = w.insert(
            "CAST",
            lite.inputs,
            w.graph.tensors[lite.outputs[0]].shape,
            f"{w.graph.tensors[lite.outputs[0]].name}_half",
            FLOAT16,
        )
        lite.inputs = [half]


def batch_matmul(w: Lowering, x: Arguments, lite: LiteOperator) -> None:
    if x.binding.types["T"] is OperandType.TENSOR_INT32:
        raise Refused("there is no kernel for whole numbers")


def lsh(w: Lowering, x: Arguments, lite: LiteOperator) -> None:
    """A weight that is missing is left out."""
    lite.inputs = [i for i in lite.inputs if i >= 0]
    kind = x.scalar("kind")
    if kind not in (2, 3):
        raise Refused(f"kind is {kind}, only dense (2) and sparse (3) are possible")
    lite.options["Type"] = LSH_DENSE if kind == 2 else LSH_SPARSE


def arg(w: Lowering, x: Arguments, lite: LiteOperator) -> None:
    lite.kind, lite.options = (
        "ArgMaxOptions" if lite.builtin == "ARG_MAX" else "ArgMinOptions",
        {"OutputType": 2},
    )


def pack(w: Lowering, x: Arguments, lite: LiteOperator) -> None:
    lite.options["ValuesCount"] = len(lite.inputs)


def control(w: Lowering, x: Arguments, lite: LiteOperator) -> None:
    names = (
        {"ThenSubgraphIndex": "then", "ElseSubgraphIndex": "else"}
        if lite.builtin == "IF"
        else {"CondSubgraphIndex": "condition", "BodySubgraphIndex": "body"}
    )
    for option, name in names.items():
        operand = x.operand(name)
        if operand is None or operand.subgraph is None:
            raise Refused(f"{name} is not a subgraph")
        lite.options[option] = operand.subgraph + 1
    if lite.builtin == "WHILE" and len(lite.inputs) != len(lite.outputs):
        raise Refused("its inputs and outputs differ in number")


LOWER: dict[str, tuple[Lower, ...]] = {
    "CONV_2D": (explicit_padding, weights),
    "DEPTHWISE_CONV_2D": (explicit_padding, weights),
    "GROUPED_CONV_2D": (grouped, explicit_padding, weights),
    "FULLY_CONNECTED": (weights,),
    "TRANSPOSE_CONV_2D": (weights, transpose_conv),
    "AVERAGE_POOL_2D": (explicit_padding,),
    "MAX_POOL_2D": (explicit_padding,),
    "L2_POOL_2D": (explicit_padding,),
    # comparisons requantise coarsely in TensorFlow Lite, the others not at all
    **dict.fromkeys(("CONCATENATION", "MAXIMUM", "MINIMUM", "SELECT"), (one_quantisation,)),
    **dict.fromkeys(_COMPARISONS, (one_quantisation, compare)),
    **dict.fromkeys(TURNED, (on_last_axis,)),
    "BATCH_MATMUL": (batch_matmul,),
    "CAST": (cast,),
    "DIV": (divide,),
    "PACK": (one_quantisation, pack),
    "RESIZE_BILINEAR": (resize,),
    "RESIZE_NEAREST_NEIGHBOR": (resize,),
    "BATCH_TO_SPACE_ND": (batch_to_space,),
    "TRANSPOSE": (transpose,),
    "SQUEEZE": (squeeze, rank_zero),
    "STRIDED_SLICE": (rank_zero,),
    **dict.fromkeys(
        (
            "MEAN",
            "REDUCE_ALL",
            "REDUCE_ANY",
            "REDUCE_MAX",
            "REDUCE_MIN",
            "REDUCE_PROD",
            "REDUCE_SUM",
        ),
        (rank_zero,),
    ),
    "PAD_V2": (pad_v2,),
    "LSH_PROJECTION": (lsh,),
    "ARGMAX": (arg, rank_zero),
    "ARGMIN": (arg, rank_zero),
    "IF": (control,),
    "WHILE": (control,),
}
