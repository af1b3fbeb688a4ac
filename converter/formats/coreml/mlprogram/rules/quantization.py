"""Quantized values, and the compressed forms of constants.

Compressed constants stay compressed in the graph where ONNX has a form for them: quantized ones
with a DequantizeLinear, those with a table with a Gather. Others are computed when they are
written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, no_match
from converter.formats.coreml.bits import unpacked
from converter.formats.coreml.compressed import (
    demand_as_many,
    dequantized,
    full,
    later,
    looked_up,
    scattered,
    spread,
)
from converter.formats.coreml.mlprogram.operations import FLOATS
from converter.formats.coreml.mlprogram.rules.context import LiftContext, LowerContext
from converter.formats.coreml.mlprogram.rules.elementwise import DTYPES, To
from converter.formats.coreml.mlprogram.rules.fields import mil
from converter.graph.demands import shaped
from converter.graph.infer import Array, shape_of
from converter.graph.lazy_tensor import Converted, LazyTensor
from converter.graph.value import Value, producer_of
from converter.mapping.fields import Detail, Field, Guard
from converter.mapping.rules import Custom, Rule, custom
from converter.passes.constants import evaluate_constant

D = ir.DataType
IOS16, IOS17, IOS18 = 7, 8, 9  # specification versions
QUANTIZED = {D.INT8: "int8", D.UINT8: "uint8"}


class Scales(Field):
    """Constant scales and zero points, for the whole tensor or for each element of an axis.

    The zero points have the type of the quantized values.
    """

    keys: tuple[str, ...] = ("scale", "zero_point", "axis")
    names: tuple[str, ...] = ("axis", "block_size")
    inputs = (1, 2)

    def lift(self, r: LiftContext) -> None:
        scale = r.array("scale")
        axis = r.attr("axis", int, 0) if scale.size > 1 else None
        scale = shaped(scale, what="scale") if axis is None else scale
        r.set(axis=axis)
        r.set_inputs(r.data, scale)
        if r.has("zero_point"):
            zero = r.array("zero_point").astype(self.stored(r).numpy())
            r.set_input(2, shaped(zero, *scale.shape, what="zero_point"))

    def stored(self, r: LiftContext) -> ir.DataType:
        """Return the type of the quantized data."""
        return r.data.dtype or D.INT8

    def lower(self, w: LowerContext) -> None:
        w.layer.attrs |= _scales(w, w.data.dtype or D.INT8, w.real_of(w.out))


class NewScales(Scales):
    """New scales for 8-bit quantized values."""

    keys = (*Scales.keys, "output_dtype")
    names = (*Scales.names, "output_dtype", "saturate")

    def lift(self, r: LiftContext) -> None:
        super().lift(r)
        if r.node.input(2) is None:
            shape = shape_of(r.node.input(1)) or ()
            r.set_input(2, np.zeros(shape, self.stored(r).numpy()))

    def stored(self, r: LiftContext) -> ir.DataType:
        word = r.attr("output_dtype", str)
        if word not in QUANTIZED.values():
            raise MappingError(f"output_dtype={word!r} is not supported", "X202")
        return DTYPES[word]

    def lower(self, w: LowerContext) -> None:
        """Cast to int32 for all consumers other than dequantize; a cast without consumers is
        removed at the end.
        """
        out, dtype = w.out, w.out.dtype or D.INT8
        w.layer.attrs |= {**_scales(w, dtype, w.real), "output_dtype": QUANTIZED[dtype]}
        raw = _stored(w, out)
        w.layer.outputs = [raw]
        w.after_emit(lambda: w.operation("cast", x=raw, dtype="int32"))
        w.after_emit(lambda: w.low.stored.update({out: raw}))


def take_stored(w: LowerContext) -> None:
    """Return quantized values without the cast."""
    x = w.data
    raw = w.low.stored.get(x)
    if raw is None and x.dtype in QUANTIZED:
        raw = _stored(w, x)
        w.operation("cast", [raw], x=x, dtype=QUANTIZED[x.dtype])
    w.layer.attrs["input"] = raw


def _stored(w: LowerContext, value: ir.Value) -> ir.Value:
    """Return a value of the same numbers in the type in which they are stored."""
    raw = w.temporary(f"{value.name}_stored", value.dtype, value.shape)
    w.low.exact.add(raw)
    return raw


def _scales(w: LowerContext, stored: ir.DataType, real: Any) -> dict[str, Any]:
    """Return constant scales and zero points, for the whole tensor or for each element of an
    axis.
    """
    w.needs(IOS17)
    scale, zero = evaluate_constant(w.input(1)), evaluate_constant(w.optional(2))
    if scale is None or (zero is None and w.has(2)):
        raise MappingError("scales and zero points must be constant")
    if scale.ndim > 1:
        raise MappingError("block-wise scales are not supported")
    factors = scale.astype(real)
    if not (np.isfinite(factors) & (factors > 0)).all():
        raise MappingError(f"the scales are not representable as {np.dtype(real).name}")
    one = scale.size == 1
    given: dict[str, Any] = {"scale": factors.reshape(()) if one else factors}
    if zero is not None and zero.any():
        given["zero_point"] = zero.astype(stored.numpy()).reshape(given["scale"].shape)
    if not one:
        given["axis"] = int(w.attr("axis", 1)) % max(1, w.rank())
    return given


# compressed constants ----------------------------------------------------------------------------


def affine(r: LiftContext) -> Value:
    """Lift compressed weights to DequantizeLinear, or to a difference and a product where zero
    points are no values of the data's type.
    """
    data, scale, zero = (r.array(k) for k in ("quantized_data", "scale", "zero_point"))
    along = r.attr("axis", int) % max(1, data.ndim)
    axis = along if scale.size > 1 or zero.size > 1 else None
    size = max(scale.size, zero.size)
    shape = () if axis is None else (size,)
    scale, zero = (np.broadcast_to(a.reshape(-1), size).reshape(shape) for a in (scale, zero))
    if (zero == zero.astype(data.dtype)).all():
        return r.b.DequantizeLinear(data, scale.copy(), zero.astype(data.dtype), axis=axis)
    line = [1 if i != axis else -1 for i in range(data.ndim)]
    real = r.b.Cast(r.b.const(data), to=D.from_numpy(scale.dtype))
    zeros, scales = (r.b.const(a.astype(scale.dtype).reshape(line)) for a in (zero, scale))
    return (real - zeros) * scales


def blockwise(r: LiftContext) -> Any:
    """Compute scale * (data - offset), with a scale for each block of the data; a scaled table of
    values stays a constant.
    """
    scale = r.array("scale")
    given = r.given_as("data")
    stored = isinstance(given, np.ndarray | LazyTensor)
    shape = [int(n) for n in given.shape] if stored else list(r.static(r.value("data")))
    if len(shape) != scale.ndim:
        raise MappingError(f"scales have {scale.ndim} axes, the data have {len(shape)}", "R105")
    offset = r.array("offset") if r.has("offset") else None
    if isinstance(given, np.ndarray) and given.dtype.kind == "f":
        own = given.astype(scale.dtype)
        if offset is not None:
            own = own - spread(offset, shape).astype(scale.dtype)
        return [own * spread(scale, shape)]
    if not stored:
        scaled = r.b.Cast(r.value("data"), to=D.from_numpy(scale.dtype))
        if offset is not None:
            scaled = scaled - r.b.const(spread(offset, shape).astype(scale.dtype))
        return scaled * r.b.const(spread(scale, shape))
    return dequantized(r, given, scale, offset)


def of_table(r: LiftContext) -> Value:
    """Look up indices in a table of values, in one table for each block, or in a table of
    vectors.
    """
    indices, table = stored_in(r, "indices"), r.array("lut")
    if r.has("shape"):
        shape = [int(n) for n in r.array("shape").reshape(-1)]
        bits = int(math.log2(table.size)) if table.size else 1
        whole = numbers_of(indices, bits, shape)
        return r.b.Gather(table.reshape(-1), _palette_indices(r, whole), axis=0)
    groups, width = table.shape[:-2], table.shape[-1]
    axis = r.attr("vector_axis", int, -1)
    shape = list(indices.shape.numpy())
    if len(groups) != len(shape) or not -len(shape) <= axis < len(shape):
        raise MappingError(
            f"the lookup tables have {len(groups)} axes for data of rank "
            f"{len(shape)} and axis {axis}",
            "R105",
        )
    if math.prod(groups) == width == 1:
        return r.b.Gather(table.reshape(-1), _palette_indices(r, indices), axis=0)
    if width > 1:
        shape[axis] *= width
    return later(r, lambda: looked_up(indices.numpy(), table, axis), table.dtype, shape)


def stored_in(r: LiftContext, name: str) -> LazyTensor:
    """Return the numbers of a constant parameter, which are unpacked when they are needed."""
    given = r.given_as(name)
    return given if isinstance(given, LazyTensor) else LazyTensor(r.array(name))


def numbers_of(data: LazyTensor, bits: int, shape: Sequence[int]) -> LazyTensor:
    """Return the numbers of the given bit width in a stream of bytes."""
    count = math.prod(shape)
    if data.size * 8 < count * bits:
        raise MappingError(
            f"{data.size} bytes are stored for {count} elements of {bits} bits", "R103"
        )
    return LazyTensor(lambda: unpacked(data.numpy(), bits)[:count].reshape(shape), D.UINT8, shape)


def _palette_indices(r: LiftContext, indices: LazyTensor) -> Value:
    plain = indices.derived(Converted(D.UINT8), D.UINT8)
    return r.b.Cast(r.b.const(plain), to=D.INT32)


def mask_in(r: LiftContext, name: str) -> LazyTensor:
    """Read the mask of stored elements: bits, or numbers 0 and 1."""
    mask = stored_in(r, name)
    if r.has("shape"):
        mask = numbers_of(mask, 1, [int(n) for n in r.array("shape").reshape(-1)])
    return mask.derived(Converted(D.BOOL), D.BOOL)


def mask_of(r: LiftContext, name: str) -> Array:
    """Return a mask of bits as booleans."""
    return mask_in(r, name).numpy()


def sparse(r: LiftContext) -> Value:
    """Lift sparse weights: the values where the mask is true, 0 elsewhere."""
    mask, values = mask_in(r, "mask"), r.array("nonzero_data")
    demand_as_many(mask.numpy(), values)
    return scattered(r, mask, values)


def table_to_sparse(r: LiftContext) -> Any:
    """Return the mask, and the table values of the nonzero elements."""
    mask, indices, table = (
        mask_of(r, "indices_mask"),
        r.array("indices_nonzero_data"),
        r.array("lut"),
    )
    axis = r.attr("vector_axis", int, -1)
    whole = looked_up(full(mask, indices), table, axis)
    width = table.shape[-1]
    wide = np.repeat(mask, width, axis=axis) if width > 1 else mask
    return [wide.astype(np.uint8), whole[wide]]


def sparse_blockwise(r: LiftContext) -> Any:
    """Return the mask, and the scaled values of the nonzero elements."""
    mask, data, scale = mask_of(r, "data_mask"), r.array("nonzero_data"), r.array("scale")
    demand_as_many(mask, data)
    if scale.ndim != mask.ndim:
        raise MappingError(f"scales have {scale.ndim} axes, the mask has {mask.ndim}", "R105")
    wide = spread(scale, mask.shape)
    real = data.astype(scale.dtype)
    if r.has("offset"):
        real = real - spread(r.array("offset"), mask.shape).astype(scale.dtype)[mask]
    return [mask.astype(np.uint8), (real * wide[mask]).astype(scale.dtype)]


# written -----------------------------------------------------------------------------------------


def write_dequantized(w: LowerContext) -> None:
    """Write 4-bit or 8-bit constants with one scale or a scale per element of an axis, from iOS18
    on with scales of blocks; before that, 4-bit constants are stored in eight bits.
    """
    data, scale = w.data.const_value, evaluate_constant(w.input(1))
    if data is None:
        raise no_match("only computed data are supported")
    if scale is None or data.dtype not in (D.INT8, D.UINT8, D.INT4, D.UINT4):
        raise MappingError("only constant scales, and data of 4 or 8 bits, are supported")
    w.needs(IOS16)
    zero = evaluate_constant(w.optional(2))
    if zero is None and w.has(2):
        raise MappingError("the zero points must be constant")
    axis, factors = (
        w.attr("axis", 1),
        scale.astype(w.real_of(w.node.outputs[0]), copy=False),
    )
    if len(data.shape) == 0:
        raise MappingError("scalars are not supported")
    axis %= len(data.shape)
    if w.version >= IOS18:
        _blockwise(w, data, factors, zero, axis)
        return
    if factors.ndim > 1:
        raise MappingError("block-wise scales need iOS 18 or later", "X206")
    kind = D.INT8 if data.dtype in (D.INT8, D.INT4) else D.UINT8
    zeros = np.zeros((), kind.numpy()) if zero is None else zero.astype(kind.numpy())
    stored = LazyTensor.of(data).derived(Converted(kind), kind)
    w.operation(
        "constexpr_affine_dequantize",
        quantized_data=data if data.dtype == kind else stored,
        zero_point=zeros.reshape(()) if zeros.size == 1 else zeros,
        scale=factors.reshape(()) if factors.size == 1 else factors,
        axis=axis,
    )


def _blockwise(w: LowerContext, data: Any, scale: Array, zero: Array | None, axis: int) -> None:
    rank = len(data.shape)

    def spread_out(array: Array) -> Array:
        line = [-1 if i == axis else 1 for i in range(rank)]
        return array if array.ndim == rank else array.reshape(line)

    if any(d % n for d, n in zip(data.shape, spread_out(scale).shape, strict=True)):
        raise MappingError(f"blocks of equal size are needed, along an axis of {data.shape[axis]}")
    offset = None if zero is None or not zero.any() else spread_out(zero)
    given = {"data": data, "scale": spread_out(scale)}
    more = {} if offset is None else {"offset": offset}
    w.operation("constexpr_blockwise_shift_scale", **given, **more)


def looked_up_in(
    table: ir.Value | None, places: ir.Value | None
) -> tuple[ir.TensorProtocol, ir.TensorProtocol] | None:
    """Return a table of at most 256 numbers, and constant indices of four or eight bits into it;
    None for everything else that is gathered.
    """
    cast = producer_of(places)
    indices = cast.inputs[0] if cast is not None and cast.op_type == "Cast" else None
    stored = None if indices is None else indices.const_value
    numbers = None if table is None else table.const_value
    if stored is None or numbers is None or stored.dtype not in (D.UINT4, D.UINT8):
        return None
    few = len(numbers.shape) == 1 and numbers.dtype in FLOATS and 1 < numbers.size <= 256
    return (numbers, stored) if few else None


def compact_since(node: ir.Node) -> int:
    """Return the specification version from which on the constants of an operator can be stored in
    as few bits as in the graph.
    """
    if node.op_type == "Gather" and looked_up_in(*node.inputs[:2]) is not None:
        return IOS16
    data = node.inputs[0] if node.op_type == "DequantizeLinear" else None
    four = data is not None and data.const_value is not None and data.dtype in (D.INT4, D.UINT4)
    return IOS18 if four else 0


def write_looked_up(w: LowerContext) -> None:
    """Write 4-bit or 8-bit indices into a table of numbers."""
    found = looked_up_in(w.data, w.input(1))
    if found is None:
        raise no_match(
            "only constant indices of few bits into a table of at most 256 values are supported"
        )
    w.needs(IOS16)
    table, stored = found
    kind = w.real_of(w.node.outputs[0])
    bits = next(n for n in (1, 2, 4, 6, 8) if 1 << n >= table.size)
    bits = bits if w.version < IOS18 else 4 if bits <= 4 else 8
    wide = np.zeros(1 << bits, kind)
    wide[: table.size] = table.numpy().astype(kind)
    lazy, shape = LazyTensor.of(stored), stored.shape.numpy()
    if w.version < IOS18:
        count = -(-stored.size * bits // 8)
        data = LazyTensor(
            lambda: packed_bits(lazy.numpy().astype(np.uint8), bits), D.UINT8, [count]
        )
        sizes = np.array(shape, np.uint32)
        w.operation("constexpr_lut_to_dense", indices=data, lut=wide, shape=sizes)
        return
    nibbles = bits == 4 and stored.dtype == D.UINT8
    narrow = lazy.derived(Converted(D.UINT4), D.UINT4) if nibbles else lazy
    tables = wide.reshape([*[1] * len(shape), 1 << bits, 1])
    w.operation("constexpr_lut_to_dense", indices=narrow, lut=tables)


def packed_bits(numbers: Array, bits: int) -> Array:
    """Pack bits; the inverse of `unpacked`."""
    rows = np.unpackbits(numbers.reshape(-1, 1), axis=1, bitorder="little")[:, :bits]
    return np.packbits(rows.reshape(-1), bitorder="little")


def _computed(w: LowerContext) -> bool:
    return w.data.const_value is None and w.data.dtype in QUANTIZED


RULES: list[Rule | Custom] = [
    mil(
        "QuantizeLinear",
        "quantize",
        "input",
        Guard(
            "only 8-bit quantized types are supported",
            lambda w: w.out.dtype in QUANTIZED and w.data.dtype in FLOATS,
        ),
        NewScales(),
        example_inputs="2,3 =(0.5) =i8:(1)",
    ),
    mil(
        "DequantizeLinear",
        "dequantize",
        "input",
        Guard("only computed data of 8 bits are supported", _computed),
        Detail(write=take_stored),
        Scales(),
        example_inputs="i8:2,3 =f32:(0.5) =i8:(1)",
    ),
    custom(
        "DequantizeLinear",
        "constexpr_affine_dequantize constexpr_blockwise_shift_scale",
        None,
        write_dequantized,
    ),
    mil("Cast", "constexpr_cast", "source_val", To("output_dtype"), lift_only=True),
    custom("", "constexpr_affine_dequantize", affine),
    custom("", "constexpr_blockwise_shift_scale", blockwise),
    custom("", "constexpr_lut_to_dense", of_table),
    custom("", "constexpr_sparse_to_dense", sparse),
    custom("", "constexpr_lut_to_sparse", table_to_sparse),
    custom("", "constexpr_sparse_blockwise_shift_scale", sparse_blockwise),
]
