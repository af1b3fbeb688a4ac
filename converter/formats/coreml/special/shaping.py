"""Shapes, constants, joining and splitting."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from converter.formats.coreml.blobs import axis_of, dims, floats, operand, operands, rank, reshape, shape_as, squeeze, together, unsqueeze, vector
from converter.formats.coreml.special.registry import lifts
from converter.graph.build import Builder
from converter.graph.infer import known, rank_of
from converter.graph.sizes import arange
from converter.mapping.node import Layer, MappingError

Value = ir.Value


@lifts("squeeze")
def lift_squeeze(layer: Layer, b: Builder) -> Value:
    """Never below rank 1."""
    x = operand(layer)
    size = dims(x)
    if layer.attrs["squeezeAll"]:
        if None in size:
            return b.op("Squeeze", x)
        axes = [i for i, d in enumerate(size) if d == 1]
    else:
        axes = sorted(axis_of(int(a), len(size)) for a in layer.attrs["axes"])
    return squeeze(b, x, axes[1:] if len(axes) == len(size) and len(axes) > 1 else axes)


@lifts("expandDims")
def lift_expand_dims(layer: Layer, b: Builder) -> Value:
    x = operand(layer)
    r = rank(x) + len(layer.attrs["axes"])
    return unsqueeze(b, x, sorted(axis_of(int(a), r) for a in layer.attrs["axes"]))


@lifts("reshapeStatic")
def lift_reshape_static(layer: Layer, b: Builder) -> Value:
    return reshape(b, operand(layer), [int(d) for d in layer.attrs["targetShape"]])


@lifts("rankPreservingReshape")
def lift_rank_preserving(layer: Layer, b: Builder) -> Value:
    return b.op("Reshape", operand(layer), [int(d) for d in layer.attrs["targetShape"]])


@lifts("reshapeDynamic")
def lift_reshape_dynamic(layer: Layer, b: Builder) -> Value:
    return b.op("Reshape", operand(layer), vector(b, operand(layer, 1)))


@lifts("reshapeLike")
def lift_reshape_like(layer: Layer, b: Builder) -> Value:
    return b.op("Reshape", operand(layer), b.op("Shape", operand(layer, 1)))


def channels_last(b: Builder, x: Value) -> Value:
    """[..,C,H,W] -> [..,H,W,C]."""
    r = rank(x, 3)
    return b.op("Transpose", x, perm=[*range(r - 3), r - 2, r - 1, r - 3])


@lifts("reshape")
def lift_reshape(layer: Layer, b: Builder) -> Value:
    """[S,B,C,H,W]: a target of 3 keeps S and B, one of 4 is [S,C,H,W]. CHANNEL_LAST reads and writes in the order H,W,C."""
    p, x = layer.attrs, operand(layer)
    r, target = rank(x, 3), [int(d) for d in p["targetShape"]]
    if len(target) not in (3, 4):
        raise MappingError(f"targetShape has {len(target)} elements, 3 or 4 are known", "R110")
    lead = dims(x)[: r - 3]
    if len(target) == 4 and r == 5:
        lead = [target[0], lead[1]]
    c, h, w = target[-3:]
    if p["mode"] == "CHANNEL_FIRST":
        return reshape(b, x, shape_as(b, [*lead, c, h, w], x))
    y = b.op("Reshape", channels_last(b, x), shape_as(b, [*lead, h, w, c], x))
    return b.op("Transpose", y, perm=[*range(r - 3), r - 1, r - 3, r - 2])


@lifts("flatten")
def lift_flatten(layer: Layer, b: Builder) -> Value:
    """[..,C,H,W] -> [..,C*H*W,1,1]."""
    x = operand(layer)
    r = rank(x, 3)
    size = dims(x)
    if layer.attrs["mode"] == "CHANNEL_LAST":
        x = channels_last(b, x)
    tail = -1 if None in size[r - 3 :] else math.prod(int(d or 0) for d in size[r - 3 :])
    return reshape(b, x, shape_as(b, [*size[: r - 3], tail, 1, 1], x))


@lifts("flattenTo2D")
def lift_flatten_to_2d(layer: Layer, b: Builder) -> Value:
    return b.op("Flatten", operand(layer), axis=int(layer.attrs["axis"]))


@lifts("permute")
def lift_permute(layer: Layer, b: Builder) -> Value:
    """The axes [Seq,C,H,W] are numbered 0 to 3, the batch axis stays."""
    x, order = operand(layer), [int(a) for a in layer.attrs["axis"]]
    if sorted(order) != [0, 1, 2, 3]:
        raise MappingError(f"axis={order} is no permutation of 0 to 3", "R110")
    if rank(x) == 5:
        place = [0, 2, 3, 4]
        perm = [place[order[0]], 1, *(place[a] for a in order[1:])]
    elif rank(x) == 4 and order[0] == 0:
        perm = [0, *order[1:]]
    else:
        raise MappingError(f"permute of a tensor of rank {rank(x)}", "R105")
    return b.op("Transpose", x, perm=perm)


@lifts("transpose")
def lift_transpose(layer: Layer, b: Builder) -> Value:
    return b.op("Transpose", operand(layer), perm=[int(a) for a in layer.attrs["axes"]] or None)


@lifts("concat")
def lift_concat(layer: Layer, b: Builder) -> Value:
    values = together(b, operands(layer))
    back = 5 if layer.attrs["sequenceConcat"] else 3
    return b.op("Concat", *values, axis=rank(values[0], back) - back)


@lifts("concatND")
def lift_concat_nd(layer: Layer, b: Builder) -> Value:
    values, axis = together(b, operands(layer)), int(layer.attrs["axis"])
    if not layer.attrs["interleave"]:
        return b.op("Concat", *values, axis=axis)
    r = rank(values[0])
    axis = axis_of(axis, r)
    length = dims(values[0])[axis]
    if length is not None:
        order = arange(length * len(values)).reshape(len(values), length).T.reshape(-1)
        return b.op("Gather", b.op("Concat", *values, axis=axis), b.const(order), axis=axis)
    stacked = b.op("Concat", *(b.op("Unsqueeze", v, [axis + 1]) for v in values), axis=axis + 1)
    before, after = b.op("Slice", b.op("Shape", stacked), [0], [axis]), b.op("Slice", b.op("Shape", stacked), [axis + 2], [r + 1])
    return b.op("Reshape", stacked, b.op("Concat", before, [-1], after, axis=0))


@lifts("stack")
def lift_stack(layer: Layer, b: Builder) -> Value:
    values = together(b, operands(layer))
    axis = axis_of(int(layer.attrs["axis"]), rank(values[0]) + 1)
    return b.op("Concat", *(unsqueeze(b, v, [axis]) for v in values), axis=axis)


@lifts("split")
def lift_split(layer: Layer, b: Builder) -> tuple[Value, ...]:
    x, count = operand(layer), len(layer.outputs)
    return b.ops("Split", x, outputs=count, axis=rank(x, 3) - 3, num_outputs=count)


@lifts("splitND")
def lift_split_nd(layer: Layer, b: Builder) -> tuple[Value, ...]:
    """Given sizes, or equal parts of which the first ones are longer by one when it does not divide."""
    p, x, count = layer.attrs, operand(layer), len(layer.outputs)
    axis = axis_of(int(p["axis"]), rank(x))
    sizes = [int(s) for s in p["splitSizes"]]
    length = dims(x)[axis]
    if not sizes and length is not None:
        sizes = [length // count + (1 if i < length % count else 0) for i in range(count)]
    if sizes:
        return b.ops("Split", x, sizes, outputs=count, axis=axis)
    return b.ops("Split", x, outputs=count, axis=axis, num_outputs=count)


@lifts("tile sequenceRepeat")
def lift_tile(layer: Layer, b: Builder) -> Value:
    x = operand(layer)
    r = rank(x)
    if layer.kind == "sequenceRepeat":
        return b.op("Tile", x, [int(layer.attrs["nRepetitions"]) or 1, *[1] * (rank(x, 5) - 1)])
    if len(layer.inputs) > 1:
        reps = vector(b, operand(layer, 1))
        count = dims(reps)[0]
        return b.op("Tile", x, reps if count == r or count is None else b.op("Concat", [1] * (r - count), reps, axis=0))
    amounts = [int(n) for n in layer.attrs["reps"]]
    x = unsqueeze(b, x, list(range(len(amounts) - r)))
    return b.op("Tile", x, [*[1] * (r - len(amounts)), *amounts])


@lifts("getShape")
def lift_get_shape(layer: Layer, b: Builder) -> Value:
    return b.op("Shape", operand(layer))


@lifts("loadConstantND")
def lift_load_constant_nd(layer: Layer, b: Builder) -> Value:
    value: Value = layer.blobs["data"].lift(b, [int(d) for d in layer.attrs["shape"]] or [1])
    return value


@lifts("loadConstant")
def lift_load_constant(layer: Layer, b: Builder) -> Value:
    """[C,H,W], seen with the leading axes that all blobs of the network have."""
    value: Value = layer.blobs["data"].lift(b, [int(d) for d in layer.attrs["shape"]])
    lead = [1] * (layer.extra.lead if layer.extra is not None else 2)
    if value.const_value is not None:
        return b.const(value.const_value.numpy().reshape([*lead, *layer.attrs["shape"]]), layer.name)
    return b.op("Unsqueeze", value, list(range(len(lead))))


def filled(b: Builder, shape: Value | Sequence[int], value: float) -> Value:
    return b.op("ConstantOfShape", shape, value=ir.AttrTensor("value", ir.Tensor(np.array([value], np.float32))))


@lifts("fillLike fillStatic fillDynamic")
def lift_fill(layer: Layer, b: Builder) -> Value:
    value = float(layer.attrs["value"])
    if layer.kind == "fillStatic":
        return filled(b, [int(d) for d in layer.attrs["targetShape"]], value)
    return filled(b, b.op("Shape", operand(layer)) if layer.kind == "fillLike" else vector(b, operand(layer)), value)


@lifts("broadcastToLike broadcastToStatic broadcastToDynamic")
def lift_broadcast(layer: Layer, b: Builder) -> Value:
    if layer.kind == "broadcastToStatic":
        return b.op("Expand", operand(layer), [int(d) for d in layer.attrs["targetShape"]])
    like = operand(layer, 1)
    return b.op("Expand", operand(layer), b.op("Shape", like) if layer.kind == "broadcastToLike" else vector(b, like))


@lifts("rangeStatic")
def lift_range_static(layer: Layer, b: Builder) -> Value:
    p = layer.attrs
    if p["stepSizeValue"] == 0:
        raise MappingError("stepSizeValue is 0", "R110")
    if not abs((p["endValue"] - p["startValue"]) / p["stepSizeValue"]) < 1 << 28:
        raise MappingError("a range of absurd length", "R110")
    return b.const(arange(p["startValue"], p["endValue"], p["stepSizeValue"], dtype=np.float32), layer.name)


@lifts("rangeDynamic")
def lift_range_dynamic(layer: Layer, b: Builder) -> Value:
    """Inputs end, start, step: what is absent comes from the parameters."""
    p = layer.attrs
    given = [_scalar(b, v) for v in operands(layer)]
    if not given:
        raise MappingError("no input gives the end of the range", "R105")
    start: Value | float = given[1] if len(given) > 1 else float(p["startValue"])
    step: Value | float = given[2] if len(given) > 2 else float(p["stepSizeValue"])
    return b.op("Range", start, given[0], step)


def _scalar(b: Builder, value: Value) -> Value:
    array = known(value)
    if array is not None:
        return b.const(array.reshape(()).astype(np.float32))
    value = floats(b, value)
    return value if rank_of(value) == 0 else b.op("Reshape", value, b.const([], dtype="int64"))


@lifts("matrixBandPart")
def lift_band_part(layer: Layer, b: Builder) -> Value:
    """Negative numbers keep the whole triangle."""
    x = floats(b, operand(layer))
    lower, upper = int(layer.attrs["numLower"]), int(layer.attrs["numUpper"])
    if upper >= 0:
        x = b.op("Trilu", x, upper, upper=0)
    return b.op("Trilu", x, -lower, upper=1) if lower >= 0 else x


@lifts("lowerTriangular upperTriangular")
def lift_triangular(layer: Layer, b: Builder) -> Value:
    return b.op("Trilu", floats(b, operand(layer)), int(layer.attrs["k"]), upper=int(layer.kind == "upperTriangular"))
