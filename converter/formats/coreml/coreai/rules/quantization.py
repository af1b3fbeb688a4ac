"""Quantized numbers, compressed constants, and real and imaginary parts of complex numbers."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, no_match
from converter.formats.coreml.compressed import (
    dequantized,
    full,
    later,
    looked_up,
    scattered,
    spread,
)
from converter.formats.coreml.coreai.elements import INLINE
from converter.formats.coreml.coreai.rules.context import LiftContext, LowerContext
from converter.graph.infer import Array
from converter.graph.lazy_tensor import Converted, LazyTensor
from converter.graph.value import Value, producer_of
from converter.mapping.fields import Field, ignore_inputs
from converter.mapping.rules import Custom, Rule, custom, op
from converter.passes.constants import evaluate_constant

D = ir.DataType
STORED = frozenset({D.INT8, D.UINT8, D.INT4, D.UINT4})


class Scales(Field):
    """Scale, zero point, a number that is added to the values, and the axis of the scales."""

    names = ("axis", "block_size", "saturate", "output_dtype", "precision")
    inputs = (1, 2)

    def lift(self, r: LiftContext) -> None:
        x, scale, zero, added = (r.input(i) for i in range(4))
        axis = None
        if (scale.shape is not None and len(scale.shape)) and len(r.static(scale)):
            if r.static(scale) != (1,):
                axis = r.axis(4, r.rank(x))
            else:
                scale, zero = (r.b.Reshape(v, []) for v in (scale, zero))
        r.set(axis=axis)
        offset = r.known(added, "offset2") if added.const_value is not None else None
        needed = offset is None or bool(offset.any())
        if needed and axis is not None and added.shape is not None and len(added.shape):
            line = [-1 if i == axis % r.rank(x) else 1 for i in range(r.rank(x))]
            added = r.reshape(added, line)
        if r.layer.kind == "quantize" and needed:
            x = x - r.cast(added, x.dtype or D.FLOAT)
        if r.layer.kind == "quantize" and r.is_seen("dequantize"):  # NaN becomes 0
            x = r.b.Where(r.b.IsNaN(x), r.b.like(x, 0), x)
        if r.layer.kind != "quantize" and needed:
            r.after_first(lambda y: y + added)
        r.set_inputs(x, scale, zero)

    def lower(self, w: LowerContext) -> None:
        scale, x, out = w.input(1), w.data, w.out
        stored = out if w.node.op == "QuantizeLinear" else x
        if w.attr("block_size", 0) or stored.dtype not in STORED:
            raise MappingError("block-wise scales of computed values are not supported")
        shape = w.static(1, "the scales")
        if shape == (1,):
            shape = ()
            scale = w.emit("reshape", scale, w.numbers([]), shape=[])
        one = not shape
        zero = w.optional(2)
        if zero is None:
            zero = w.const(np.zeros(shape, (stored.dtype or D.UINT8).numpy()))
        elif one and zero.shape is not None and len(zero.shape):
            zero = w.emit("reshape", zero, w.numbers([]), shape=[])
        added = w.const(np.zeros(shape, (scale.dtype or D.FLOAT).numpy()))
        axis = int(w.attr("axis", 1)) % max(1, w.rank())
        w.layer.inputs = [x, scale, zero, added, w.numbers(0 if one else axis)]


def stored(r: LiftContext, index: int) -> LazyTensor:
    """Return a constant operand, whose numbers are unpacked when they are needed."""
    value = r.input(index)
    if value.const_value is None:
        raise MappingError("the data of a compressed constant must be constant", "X202")
    return LazyTensor.of(value.const_value)


def blockwise(r: LiftContext) -> Value:
    """Compute scale * (data - offset) + added, with a scale for each block of the data."""
    data, scale = stored(r, 0), evaluate(r, 1)
    offset, added = evaluate(r, 2), evaluate(r, 3)
    result = r.layer.outputs[0].dtype or D.FLOAT
    shape = list(data.shape.numpy())
    if scale.ndim != len(shape):
        raise MappingError(f"scales have {scale.ndim} axes, the data have {len(shape)}", "R105")
    offset = np.broadcast_to(offset, scale.shape) if offset.ndim == scale.ndim else offset
    exact = offset.dtype.kind in "iu" or offset.dtype.name.startswith(("int", "uint"))
    inside = exact and (offset == offset.astype(data.dtype.numpy())).all()
    whole = scale.dtype.name in ("float32", "float16", "bfloat16")
    if data.dtype not in STORED or not inside or not whole or added.any():

        def make() -> Array:
            kind = np.float64
            parts = [np.broadcast_to(p, scale.shape) if p.size == 1 else p for p in (offset, added)]
            wide = [spread(p.astype(kind), shape) for p in (scale, *parts)]
            found = wide[0] * (data.numpy().astype(kind) - wide[1]) + wide[2]
            return found.astype(result.numpy())

        return later(r, make, np.dtype(result.numpy()), shape)
    zero = offset if offset.any() else None
    return r.cast(dequantized(r, data, scale, zero), result)


def evaluate(r: LiftContext, index: int) -> Array:
    """Return an operand computed from constants. Raises MappingError X202 if it is not constant."""
    found = evaluate_constant(r.input(index))
    if found is None:
        raise MappingError("the scales of a compressed constant must be constant", "X202")
    return found


def of_table(r: LiftContext) -> Value:
    """Look up indices in a table of values, in one table for each block, or in a table of
    vectors.
    """
    indices, table = stored(r, 0), evaluate(r, 1)
    shape, groups, width = list(indices.shape.numpy()), table.shape[:-2], table.shape[-1]
    axis = r.axis(2, len(shape))
    if len(groups) != len(shape):
        raise MappingError(
            f"the lookup tables have {len(groups)} axes for data of rank {len(shape)}", "R105"
        )
    if math.prod(groups) == width == 1:
        plain = indices.derived(Converted(D.UINT8), D.UINT8)
        return r.b.Gather(table.reshape(-1), r.b.Cast(r.b.const(plain), to=D.INT32), axis=0)
    shape[axis] *= width
    return later(r, lambda: looked_up(indices.numpy(), table, axis), table.dtype, shape)


class SparseValue(ir.Value):
    """A sparse constant: `values` are the elements where `mask` is set, the others are 0."""

    def __init__(self, mask: Array, values: Array) -> None:
        super().__init__()
        self.mask, self.values = mask, values


def build_sparse(r: LiftContext) -> ir.Value:
    """Return a mask and the values where it is true, as a sparse value for other layers."""
    return SparseValue(stored(r, 1).numpy() != 0, stored(r, 0).numpy())


def sparse_of(r: LiftContext) -> SparseValue:
    """Return the first operand, a sparse value. Raises MappingError R105 if it is another one."""
    found = r.layer.inputs[0]
    if not isinstance(found, SparseValue):
        raise MappingError("the operand must be sparse", "R105")
    return found


def densified(r: LiftContext) -> Value:
    """Return the constant of a sparse value."""
    found = sparse_of(r)
    return scattered(r, LazyTensor(found.mask), found.values)


def sparse_table(r: LiftContext) -> ir.Value:
    """Look up the nonzero elements of a sparse constant in a table."""
    found, table = sparse_of(r), evaluate(r, 1)
    axis = r.axis(2, found.mask.ndim)
    whole = looked_up(full(found.mask, found.values), table, axis)
    wide = found.mask
    if table.shape[-1] > 1:
        wide = np.repeat(wide, table.shape[-1], axis=axis)
    return SparseValue(wide, whole[wide])


# written ------------------------------------------------------------------------------------------


def write_dequantized(w: LowerContext) -> None:
    """Write a dequantized constant with one scale, one scale for each element of an axis, or one
    for each block of it.
    """
    data = w.constant_tensor(0)
    scale, zero = evaluate_constant(w.input(1)), evaluate_constant(w.optional(2))
    if data is None or data.dtype not in STORED or scale is None or (zero is None and w.has(2)):
        raise MappingError("compressed constants of these types are not supported")
    shape, rank = list(data.shape.numpy()), len(data.shape)
    block, axis = int(w.attr("block_size", 0)), int(w.attr("axis", 1)) % max(1, rank)
    if block and shape[axis] % block:
        raise MappingError("the axis must consist of whole blocks")
    line = [1] * rank
    if scale.size > 1 and not block:
        line[axis] = -1
    if not block:
        scale = scale.reshape(line)
    kind = data.dtype.numpy()
    offset = np.zeros(scale.shape, kind) if zero is None else zero.reshape(scale.shape).astype(kind)
    if rank == 0:
        raise MappingError("compressed scalars are not supported")
    added = np.zeros(scale.shape, scale.dtype)
    w.put("blockwise_shift_scale", w.data, *(w.const(v) for v in (scale, offset, added)))


def write_stored(w: LowerContext) -> None:
    """Write constants of few bits as dequantized ones with a scale of 1, so that they stay
    compact.
    """
    data = w.constant_tensor(0)
    dtype = w.out.dtype or D.FLOAT
    small = data is None or data.dtype not in STORED or not len(data.shape) or data.size <= INLINE
    if small or data is None or dtype not in (D.FLOAT, D.FLOAT16):
        raise no_match("only constants of few bits are supported")
    one = np.ones([1] * len(data.shape))
    zero, real = data.dtype.numpy(), dtype.numpy()
    factors = [one.astype(real), np.zeros_like(one).astype(zero), np.zeros_like(one).astype(real)]
    w.put("blockwise_shift_scale", w.data, *map(w.const, factors))


def write_table(w: LowerContext) -> None:
    """Write a Gather of constant 8-bit indices from a constant table."""
    cast, table = producer_of(w.input(1)), w.constant_tensor(0)
    source = cast.inputs[0] if cast is not None and cast.op_type == "Cast" else None
    if source is None or source.const_value is None or table is None or len(table.shape) != 1:
        raise MappingError("table lookups are only supported for constants")
    if source.dtype != D.UINT8 or not source.shape or table.size > 256:
        raise MappingError("lookup tables of more than 256 values are not supported")
    rank = len(source.shape)
    bits = next(n for n in (1, 2, 3, 4, 6, 8) if table.size <= 1 << n)
    if source.const_value.size <= INLINE:
        bits = 4 if bits <= 4 else 8
    wide = np.zeros(1 << bits, table.dtype.numpy())
    wide[: table.size] = table.numpy()
    axis, indices = w.const(np.array(0, np.int16)), source
    places = LazyTensor.of(source.const_value).decoded()
    if bits == 4:
        indices = w.const(places.derived(Converted(D.UINT4), D.UINT4), "indices")
    elif bits < 8:
        indices = w.const(places.called(f"ui{bits}"), "indices")
    w.put("lut_to_dense", indices, w.const(wide.reshape([*[1] * rank, -1, 1])), axis)


AXIS = ignore_inputs(4)  # of several scales only
RULES: list[Rule | Custom] = [
    custom("DequantizeLinear", "blockwise_shift_scale", blockwise, write_dequantized),
    custom("Cast", "", None, write_stored),
    custom("Gather", "lut_to_dense", of_table, write_table),
    custom("", "build_sparse_with_bitmask", build_sparse),
    custom("", "sparse_with_bitmask_to_dense", densified),
    custom("", "lut_to_sparse_with_bitmask", sparse_table),
    op("DequantizeLinear", "dequantize", Scales(), AXIS, example_inputs="u8:2,3 =(1) =u8:(3)"),
    op("QuantizeLinear", "quantize", Scales(), AXIS, example_inputs="2,3 =(1) =u8:(3)"),
]
