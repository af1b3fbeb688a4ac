"""Operations that move data."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.nnapi.ops.args import Args, lifts
from converter.formats.nnapi.ops.emit import Emit, Ref, lowers
from converter.formats.nnapi.table import OperandType
from converter.graph.infer import known, rank_of
from converter.mapping.node import MappingError


def int64(a: Args, name: str) -> ir.Value:
    """An int32 tensor operand where ONNX wants int64."""
    value = a.stored(name)
    return a.b.const(value.const_value.numpy().astype(np.int64), name) if value.const_value is not None else a.b.op("Cast", value, to=int(ir.DataType.INT64))


def rank(a: Args, name: str = "input") -> int:
    found = rank_of(a.stored(name))
    if found is None:
        raise MappingError(f"the rank of {name!r} must be known")
    return found


def axis(a: Args, name: str = "axis", default: int = -1) -> int:
    return a.integer(name, default) % max(1, rank(a))


@lifts("RESHAPE")
def reshape(a: Args) -> ir.Value:
    """A shape that is only known at run time is the one that the output states, if it does."""
    stated = a.output().dimensions
    given = int64(a, "shape") if known(a.stored("shape")) is not None or not stated or 0 in stated else a.b.const(np.array(stated, np.int64), "shape")
    return a.b.op("Reshape", a.real("input"), given)


@lowers("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def lower_reshape(e: Emit) -> None:
    x = e.real(0)
    if not e.quantised and e.operand(x).dimensions == (list(e.out) or [1]):
        e.alias(e.node.outputs[0], e.value(0))
    else:
        put_reshape(e, x, e.result())


def put_reshape(e: Emit, x: Ref, y: Ref) -> None:
    """Level 6 reshapes integers too; below, what only adds an axis can be said."""
    dims, wanted = e.operand(x).dimensions, e.operand(y).dimensions
    added = [i for i in range(len(wanted)) if wanted[i] == 1 and wanted[:i] + wanted[i + 1 :] == dims]
    if e.operand(x).type is OperandType.TENSOR_INT32 and e.level < 6 and added:
        e.put("EXPAND_DIMS", y, input=x, axis=added[0])
    else:
        e.put("RESHAPE", y, input=x, shape=wanted)


@lifts("CONCATENATION")
def concatenation(a: Args) -> ir.Value:
    return a.b.op("Concat", *a.reals_of("inputs"), axis=a.integer("axis"))


@lowers("Concat")
def lower_concat(e: Emit) -> None:
    inputs = [e.real(i) for i in range(len(e.node.inputs))]
    e.put("CONCATENATION", e.result(), inputs=inputs, axis=e.axis())


@lifts("PACK")
def pack(a: Args) -> ir.Value:
    return a.b.op("Concat", *(a.b.op("Unsqueeze", v, [a.integer("axis")]) for v in a.reals_of("inputs")), axis=a.integer("axis"))


@lifts("TRANSPOSE")
def transpose(a: Args) -> ir.Value:
    return a.b.op("Transpose", a.real("input"), perm=a.ints("permutation") if a.has("permutation") else list(range(rank(a)))[::-1])


@lowers("Transpose")
def lower_transpose(e: Emit) -> None:
    """A RESHAPE where only axes of length 1 change places."""
    perm = [int(i) for i in e.attrs.get("perm") or range(len(e.shape()))[::-1]]
    x, dims = e.real(0), e.shape()
    moved = [i for i in perm if dims[i] != 1]
    if moved == sorted(moved) and len(dims) <= 4:
        put_reshape(e, x, e.result())
    else:
        e.put("TRANSPOSE", e.result(), input=x, permutation=perm)


@lifts("SQUEEZE")
def squeeze(a: Args) -> ir.Value:
    axes = a.ints("axes") if a.has("axes") else []
    return a.b.op("Squeeze", a.real("input"), axes or None)


@lifts("EXPAND_DIMS")
def expand_dims(a: Args) -> ir.Value:
    return a.b.op("Unsqueeze", a.real("input"), [a.integer("axis")])


@lifts("PAD", "PAD_V2")
def pad(a: Args) -> ir.Value:
    """Pairs (before, after) for each axis; the value is real zero, or `pad_value` (an integer in the input's scale when quantised)."""
    x, amounts, value = a.real("input"), a.array("paddings").reshape(-1, 2), 0.0
    if a.name == "PAD_V2":
        value = a.number("pad_value")
        operand = a.operand("input")
        if operand.scale and a.operand("pad_value").type.name == "INT32":
            value = (value - operand.zero_point) * operand.scale
    return a.b.op("Pad", x, amounts.T.reshape(-1).astype(np.int64), a.b.like(x, value), mode="constant")


@lowers("Pad")
def lower_pad(e: Emit) -> None:
    rank_ = len(e.shape())
    axes = [i % rank_ for i in e.ints(3)] if e.has(3) else list(range(rank_))
    amounts = np.zeros((rank_, 2), np.int32)
    amounts[axes] = np.array(e.ints(1)).reshape(2, -1).T
    value, mode = float(e.constant(2).reshape(-1)[0]) if e.has(2) else 0.0, e.attrs["mode"]
    if amounts.min() < 0 or mode not in ("constant", "reflect"):
        raise MappingError(f"mode {mode!r} or a negative amount is not possible")
    x = e.real(0)
    y = e.result()
    if mode == "reflect":
        e.put("MIRROR_PAD", y, input=x, paddings=amounts, mode=0)
    elif value == 0 and (e.level < 3 or not np.signbit(value)):
        e.put("PAD", y, input=x, paddings=amounts)
    else:
        operand = e.operand(x)
        stored = round(value / operand.scale) + operand.zero_point if operand.scale else value
        e.put("PAD_V2", y, input=x, paddings=amounts, pad_value=stored)


@lifts("MIRROR_PAD")
def mirror_pad(a: Args) -> ir.Value:
    """Mode 0 reflects without the border element, mode 1 (symmetric) with it."""
    x, amounts = a.real("input"), a.array("paddings").reshape(-1, 2)
    if a.integer("mode") == 0:
        return a.b.op("Pad", x, amounts.T.reshape(-1).astype(np.int64), mode="reflect")
    for i, (size, (before, after)) in enumerate(zip(a.shape(), amounts.tolist(), strict=True)):
        if before or after:
            order = [*range(before - 1, -1, -1), *range(size), *range(size - 1, size - 1 - after, -1)]
            x = a.b.op("Gather", x, order, axis=i)
    return x


@lifts("SLICE")
def slice_(a: Args) -> ir.Value:
    if known(a.stored("begin")) is None or known(a.stored("size")) is None:
        return _slice_of_data(a)
    begin, size = a.ints("begin"), a.ints("size")
    ends = [np.iinfo(np.int64).max if s == -1 else b + s for b, s in zip(begin, size, strict=True)]
    return a.b.op("Slice", a.real("input"), begin, ends, list(range(len(begin))))


def _slice_of_data(a: Args) -> ir.Value:
    """Begin and size are computed: -1 goes to the end."""
    b, (begin, size) = a.b, (a.b.op("Cast", a.stored(n), to=int(ir.DataType.INT64)) for n in ("begin", "size"))
    ends = b.op("Where", b.op("Equal", size, b.const(np.int64(-1))), b.const(np.iinfo(np.int64).max), b.op("Add", begin, size))
    return b.op("Slice", a.real("input"), begin, ends, list(range(a.shape("begin")[0])))


@lifts("STRIDED_SLICE")
def strided_slice(a: Args) -> ir.Value:
    """Bit i of a mask: the bound of axis i is ignored, or the axis is taken at `begin` and dropped."""
    begin, end, strides = a.ints("begin"), a.ints("end"), a.ints("strides")
    begin_mask, end_mask, shrink = a.integer("begin_mask"), a.integer("end_mask"), a.integer("shrink_axis_mask")
    large = np.iinfo(np.int64).max
    starts, stops, steps = [], [], []
    for i, (s, e, step) in enumerate(zip(begin, end, strides, strict=True)):
        if shrink >> i & 1:
            s, e, step = s, s + 1 if s != -1 else large, 1
        else:
            s = (large if step < 0 else 0) if begin_mask >> i & 1 else s
            e = (-large if step < 0 else large) if end_mask >> i & 1 else e
        starts.append(s)
        stops.append(e)
        steps.append(step)
    y = a.b.op("Slice", a.real("input"), starts, stops, list(range(len(begin))), steps)
    dropped = [i for i in range(len(begin)) if shrink >> i & 1]
    return a.b.op("Squeeze", y, dropped) if dropped else y


@lowers("Slice")
def lower_slice(e: Emit) -> None:
    shape = e.shape()
    starts, ends = e.ints(1), e.ints(2)
    axes = [i % len(shape) for i in e.ints(3)] if e.has(3) else list(range(len(starts)))
    steps = e.ints(4) if e.has(4) else [1] * len(starts)
    parts = [slice(0, n, 1) for n in shape]
    for i, start, end, step in zip(axes, starts, ends, steps, strict=True):
        parts[i] = slice(*slice(start, end, step).indices(shape[i]))
    x = e.real(0)
    put_slice(e, x, e.result(), parts)


def put_slice(e: Emit, x: Ref, y: Ref, parts: list[slice]) -> None:
    """STRIDED_SLICE at level 2, SLICE at level 3 (integers, any rank); an end of -1 going down means the beginning."""
    simple = all(p.step == 1 for p in parts)
    if simple and e.level >= 3:
        e.put("SLICE", y, input=x, begin=[p.start for p in parts], size=[p.stop - p.start for p in parts])
        return
    mask = sum(1 << i for i, p in enumerate(parts) if p.stop < 0)
    bounds = {"begin": [p.start for p in parts], "end": [p.stop for p in parts], "strides": [p.step for p in parts]}
    e.put("STRIDED_SLICE", y, input=x, **bounds, begin_mask=0, end_mask=mask, shrink_axis_mask=0)


@lifts("SPLIT")
def split(a: Args) -> tuple[ir.Value, ...]:
    return a.b.ops("Split", a.real("input"), axis=axis(a), num_outputs=a.integer("count"), outputs=a.integer("count"))


@lowers("Split")
def lower_split(e: Emit) -> None:
    """Equal parts are one operation at level 3, others a slice each."""
    i, x, shape = e.axis(), e.real(0), e.shape()
    sizes = [e.shape(y)[i] for y in e.node.outputs]
    if len(set(sizes)) == 1 and e.level >= 3 and len(shape) <= 4:
        e.put("SPLIT", [e.result(k) for k in range(len(sizes))], input=x, axis=i, count=len(sizes))
        return
    for k, size in enumerate(sizes):
        parts = [slice(0, n, 1) for n in shape]
        parts[i] = slice(sum(sizes[:k]), sum(sizes[:k]) + size, 1)
        put_slice(e, x, e.result(k), parts)
