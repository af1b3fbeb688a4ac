"""Layers that move, cut, join and look up elements."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.legacy.access import (
    FLOAT,
    as_int64,
    axis_of,
    cast,
    dims,
    flag,
    integer,
    integers,
    known_ints,
    marked,
    number,
    operand,
    optional,
    shape,
    text,
)
from converter.formats.openvino.legacy.register import lifts
from converter.graph.build import Builder
from converter.graph.infer import set_type
from converter.graph.sizes import arange
from converter.mapping.node import Layer, MappingError


@lifts("Reshape", "dim", "shape", "axis", "num_axes", "end_axis", "special_zero")
def lift_reshape(layer: Layer, b: Builder) -> ir.Value:
    """The target shape is the port's, whatever `dim` (v2 to v4) or the second input (from v5) say."""
    return marked(b.op("Reshape", operand(layer), list(dims(layer))), layer)


@lifts("Flatten", "axis", "end_axis")
@lifts("Squeeze", "keep_at_least_1d")
@lifts("Unsqueeze", "expand_dim")
def lift_to_port(layer: Layer, b: Builder) -> ir.Value:
    """Only the shape changes, and the port has it."""
    return marked(b.op("Reshape", operand(layer), list(dims(layer))), layer)


@lifts("Permute", "order")
def lift_permute(layer: Layer, b: Builder) -> ir.Value:
    rank = len(shape(operand(layer)))
    order = integers(layer, "order", list(range(rank))[::-1])
    if sorted(order) != list(range(rank)):
        raise MappingError(f"order={text(layer, 'order')!r} is not a permutation of {rank} axes", "R110")
    return b.op("Transpose", operand(layer), perm=order)


@lifts("Concat", "axis")
def lift_concat(layer: Layer, b: Builder) -> ir.Value:
    """Inputs of rank 1 and scalars are joined along axis 0 where axis 1 does not exist."""
    parts = [operand(layer, i) for i in range(len(layer.inputs))]
    kinds = {v.dtype for v in parts}
    common = kinds.pop() if len(kinds) == 1 else layer.outputs[0].dtype or FLOAT
    parts = [cast(b, v, common or FLOAT) for v in parts]
    return b.op("Concat", *parts, axis=axis_of(layer, len(dims(layer)), min(1, len(dims(layer)) - 1)))


@lifts("Split Slice", "axis", "num_split", "num_splits", "out_sizes", "slice_point")
def lift_split(layer: Layer, b: Builder) -> tuple[ir.Value, ...] | ir.Value:
    """The pieces are as long as the output ports say."""
    x = operand(layer)
    axis = axis_of(layer, len(shape(x)), 1)
    sizes = [dims(layer, i)[axis] for i in range(len(layer.outputs))]
    total = shape(x)[axis]
    if sum(sizes) != total:
        raise MappingError(f"the output ports hold {sum(sizes)} of {total} elements along axis {axis}", "R105")
    if len(sizes) == 1:
        return b.op("Identity", x)
    pieces = b.ops("Split", x, sizes, outputs=len(sizes), axis=axis)
    marked(pieces[0], layer)
    return pieces


@lifts("Crop", "axis", "offset", "dim", "crop_begin", "crop_end")
def lift_crop(layer: Layer, b: Builder) -> ir.Value:
    """Three forms, by their attributes; each takes as much from its offset as the port has. Axes are those of the attribute `axis`."""
    x, out = operand(layer), dims(layer)
    axes = [a % len(out) for a in integers(layer, "axis", [1])]
    starts = integers(layer, "crop_begin") if "crop_begin" in layer.attrs else integers(layer, "offset", [0] * len(axes))
    if len(starts) == 1 and len(axes) > 1:
        starts = starts * len(axes)
    if len(starts) != len(axes):
        raise MappingError(f"{len(axes)} axes and {len(starts)} offsets", "R110")
    if "axis" in layer.attrs and len(axes) == 1 and "offset" in layer.attrs and "dim" not in layer.attrs and len(layer.inputs) > 1:
        axes, starts = [*range(axes[0], len(out))], starts * (len(out) - axes[0])  # Caffe's Crop: from this axis on
    ends = [s + out[a] for s, a in zip(starts, axes, strict=True)]
    return b.op("Slice", x, starts, ends, axes)


@lifts("StridedSlice", "begin_mask", "end_mask", "new_axis_mask", "shrink_axis_mask", "ellipsis_mask")
def lift_strided_slice(layer: Layer, b: Builder) -> ir.Value:
    """A mask bit of 1 means that the begin or end value is used. New and shrunk axes are what the port shows."""
    x = operand(layer)
    size = shape(x)
    begin, end = (known_ints(operand(layer, i), "begin and end") for i in (1, 2))
    stride = known_ints(operand(layer, 3), "stride") if optional(layer, 3) is not None else [1] * len(begin)
    masks = {k: integers(layer, f"{k}_mask", []) for k in ("begin", "end", "new_axis", "shrink_axis", "ellipsis")}

    def bit(mask: str, i: int, default: int) -> bool:
        return bool(masks[mask][i]) if i < len(masks[mask]) else bool(default)

    count = sum(not bit("new_axis", i, 0) and not bit("ellipsis", i, 0) for i in range(len(begin)))
    slices: list[tuple[int, int, int, int]] = []
    axis = 0
    for i, (first, last, step) in enumerate(zip(begin, end, stride, strict=False)):
        if bit("ellipsis", i, 0):
            axis += len(size) - count
        elif not bit("new_axis", i, 0):
            if bit("shrink_axis", i, 0):
                first, last, step = first, first + 1 if first != -1 else size[axis], 1
            else:
                first = first if bit("begin", i, 1) else (0 if step > 0 else size[axis] - 1)
                last = last if bit("end", i, 1) else (size[axis] if step > 0 else -size[axis] - 1)
            slices.append((axis, first, last, step))
            axis += 1
    used = [s for s in slices if s[1:] != (0, size[s[0]], 1)]
    if not used:
        return b.op("Reshape", x, list(dims(layer)))
    axes, starts, ends, steps = (list(v) for v in zip(*used, strict=True))
    return b.op("Slice", x, starts, ends, axes, steps)


@lifts("Tile", "axis", "tiles")
def lift_tile(layer: Layer, b: Builder) -> ir.Value:
    x = operand(layer)
    rank = len(shape(x))
    if "tiles" not in layer.attrs and len(layer.inputs) > 1:
        repeats = known_ints(operand(layer, 1), "repeats")
    else:
        axis = axis_of(layer, rank, -1)
        repeats = [integer(layer, "tiles") if i == axis else 1 for i in range(rank)]
    return b.op("Tile", x, repeats)


@lifts("Broadcast Expand", "mode", "axis", "num_axes")
def lift_broadcast(layer: Layer, b: Builder) -> ir.Value:
    return b.op("Expand", operand(layer), list(dims(layer)))


@lifts("Gather", "axis")
def lift_gather(layer: Layer, b: Builder) -> ir.Value:
    """(data, indices) as the engine and the Model Optimizer have it, not the catalogue's order. Indices may be numbers of any type."""
    x = operand(layer)
    axis = known_ints(operand(layer, 2), "axis")[0] % len(shape(x)) if optional(layer, 2) is not None else axis_of(layer, len(shape(x)), 0)
    return marked(b.op("Gather", x, as_int64(b, operand(layer, 1)), axis=axis), layer)


@lifts("Pad", "pads_begin", "pads_end", "pad_mode", "pad_value")
def lift_pad(layer: Layer, b: Builder) -> ir.Value:
    """`symmetric` repeats the edge, which ONNX cannot say: the index of each axis says it."""
    x = operand(layer)
    begin, end = integers(layer, "pads_begin"), integers(layer, "pads_end")
    mode = text(layer, "pad_mode", "constant").lower()
    if mode == "symmetric":
        for axis, (before, after) in enumerate(zip(begin, end, strict=True)):
            if before or after:
                x = b.op("Gather", x, np.pad(arange(shape(x)[axis]), (before, after), "symmetric"), axis=axis)
        return x
    if mode not in ("constant", "edge", "reflect"):
        raise MappingError(f"pad_mode={mode!r} is not known", "R110")
    value = b.like(x, number(layer, "pad_value", 0.0)) if mode == "constant" else None
    return b.op("Pad", x, [*begin, *end], value, mode=mode)


@lifts("OneHot", "axis", "depth", "on_value", "off_value")
def lift_one_hot(layer: Layer, b: Builder) -> ir.Value:
    dtype = layer.outputs[0].dtype or FLOAT
    values = np.array([number(layer, "off_value", 0.0), number(layer, "on_value", 1.0)], dtype.numpy())
    out = dims(layer)
    axis = integer(layer, "axis", -1)
    return b.op("OneHot", as_int64(b, operand(layer)), integer(layer, "depth", out[axis]), values, axis=axis)


@lifts("ReverseSequence", "batch_axis", "seq_axis")
def lift_reverse_sequence(layer: Layer, b: Builder) -> ir.Value:
    x = operand(layer)
    rank = len(shape(x))
    batch, time = (integer(layer, k, d) % rank for k, d in (("batch_axis", 0), ("seq_axis", 1)))
    lengths = as_int64(b, operand(layer, 1))
    if (batch, time) in ((0, 1), (1, 0)):
        return b.op("ReverseSequence", x, lengths, batch_axis=batch, time_axis=time)
    order = [batch, time, *(i for i in range(rank) if i not in (batch, time))]
    turned = b.op("ReverseSequence", b.op("Transpose", x, perm=order), lengths, batch_axis=0, time_axis=1)
    return b.op("Transpose", turned, perm=[int(i) for i in np.argsort(order)])


@lifts("ShuffleChannels", "axis", "group")
def lift_shuffle_channels(layer: Layer, b: Builder) -> ir.Value:
    x = operand(layer)
    rank, group = len(shape(x)), integer(layer, "group", 1)
    axis = axis_of(layer, rank, 1)
    if axis == 1:
        return b.ext("ShuffleChannels", x, group=group)
    size = list(shape(x))
    split = b.op("Reshape", x, [*size[:axis], group, size[axis] // group, *size[axis + 1 :]])
    swapped = b.op("Transpose", split, perm=[*range(axis), axis + 1, axis, *range(axis + 2, rank + 1)])
    return b.op("Reshape", swapped, size)


@lifts("DepthToSpace SpaceToDepth", "block_size", "mode")
def lift_depth_space(layer: Layer, b: Builder) -> ir.Value:
    """Blocks first (DCR). Other ranks than 4 are written out."""
    x, block = operand(layer), integer(layer, "block_size", 1)
    size, mode = shape(x), text(layer, "mode", "blocks_first")
    if mode not in ("blocks_first", "depth_first"):
        raise MappingError(f"mode={mode!r} is not known", "R110")
    if len(size) == 4 and layer.kind == "DepthToSpace":
        return b.op("DepthToSpace", x, blocksize=block, mode="DCR" if mode == "blocks_first" else "CRD")
    if len(size) == 4 and mode == "blocks_first":
        return b.op("SpaceToDepth", x, blocksize=block)
    return _blocks(b, x, block, mode == "blocks_first", layer.kind == "DepthToSpace")


def _blocks(b: Builder, x: ir.Value, block: int, blocks_first: bool, to_space: bool) -> ir.Value:
    n, c, *spatial = shape(x)
    k = len(spatial)
    if to_space:
        depth = c // block**k
        split = b.op("Reshape", x, [n, *[block] * k, depth, *spatial] if blocks_first else [n, depth, *[block] * k, *spatial])
        d, first = (k + 1, 1) if blocks_first else (1, 2)
        order = [0, d, *(i for j in range(k) for i in (k + 2 + j, first + j))]
        return b.op("Reshape", b.op("Transpose", split, perm=order), [n, depth, *(s * block for s in spatial)])
    split = b.op("Reshape", x, [n, c, *(v for s in spatial for v in (s // block, block))])
    blocks, rest = [3 + 2 * j for j in range(k)], [2 + 2 * j for j in range(k)]
    order = [0, *blocks, 1, *rest] if blocks_first else [0, 1, *blocks, *rest]
    return b.op("Reshape", b.op("Transpose", split, perm=order), [n, c * block**k, *(s // block for s in spatial)])


@lifts("Fill")
def lift_fill(layer: Layer, b: Builder) -> ir.Value:
    value = operand(layer, 1)
    value = value if not shape(value) else b.op("Reshape", value, [])
    return b.op("Expand", value, list(dims(layer)))


@lifts("Range")
def lift_range(layer: Layer, b: Builder) -> ir.Value:
    start, limit, step = (operand(layer, i) for i in range(3))
    if (common := layer.outputs[0].dtype) is not None and len({v.dtype for v in (start, limit, step)}) > 1:
        start, limit, step = (cast(b, v, common) for v in (start, limit, step))
    values = [v if not shape(v) else b.op("Reshape", v, []) for v in (start, limit, step)]
    result = b.op("Range", *values)
    set_type(result, None, dims(layer))
    return result


@lifts("Shape ShapeOf", "output_type")
def lift_shape(layer: Layer, b: Builder) -> ir.Value:
    return b.op("Shape", operand(layer))


@lifts("ScatterUpdate", "axis")
def lift_scatter_update(layer: Layer, b: Builder) -> ir.Value:
    """Rows of `updates` take the places that `indices` name along the axis."""
    x, indices, updates = operand(layer), as_int64(b, operand(layer, 1)), operand(layer, 2)
    size = shape(x)
    axis = known_ints(operand(layer, 3), "axis")[0] % len(size) if optional(layer, 3) is not None else axis_of(layer, len(size), 0)
    flat = b.op("Reshape", indices, [-1, *[1] * (len(size) - axis - 1)])
    count = int(np.prod(shape(indices)))
    rows = [*size[:axis], count, *size[axis + 1 :]]
    return b.op("ScatterElements", x, b.op("Expand", flat, rows), b.op("Reshape", cast(b, updates, x.dtype or FLOAT), rows), axis=axis)


REDUCTIONS = {
    "ReduceAnd": "ReduceMin", "ReduceL1": "ReduceL1", "ReduceL2": "ReduceL2", "ReduceLogSum": "ReduceLogSum", "ReduceLogSumExp": "ReduceLogSumExp",
    "ReduceMax": "ReduceMax", "ReduceMean": "ReduceMean", "ReduceMin": "ReduceMin", "ReduceOr": "ReduceMax", "ReduceProd": "ReduceProd",
    "ReduceSum": "ReduceSum", "ReduceSumSquare": "ReduceSumSquare",
}  # fmt: skip


@lifts(" ".join(REDUCTIONS), "keep_dims")
def lift_reduce(layer: Layer, b: Builder) -> ir.Value:
    """Axes are the second input; ReduceAnd and ReduceOr look at whether numbers are 0."""
    x = operand(layer)
    axes = known_ints(operand(layer, 1), "the axes")
    if not axes and len(layer.inputs) > 1:
        return b.op("Identity", x)
    axes = [a % len(shape(x)) for a in axes]
    logical = layer.kind in ("ReduceAnd", "ReduceOr")
    if logical:
        x = cast(b, cast(b, x, ir.DataType.BOOL), FLOAT)
    return marked(b.op(REDUCTIONS[layer.kind], x, axes, keepdims=int(flag(layer, "keep_dims", True))), layer)
