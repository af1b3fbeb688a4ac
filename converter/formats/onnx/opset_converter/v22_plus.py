"""ai.onnx operators and attributes newer than opset 21 in opset-21 form, beyond those that ONNX
itself defines by a function.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.onnx.op import Op, Results, Rows, missing
from converter.graph.build import Builder
from converter.graph.infer import constant, rank_of

ROWS = Rows()
_T = ir.DataType
_KNOWN_TYPES = set(range(1, 23))  # TensorProto.DataType of IR version 10: up to int4


@ROWS.always("Cast", "CastLike")
def cast(op: Op, b: Builder) -> Results:
    """Remove `round_mode`, which only affects float8e8m0, a type that opset 21 does not have."""
    op.take("round_mode")
    to = op.attr("to") if op.kind == "Cast" else op.need(1).dtype
    if to is not None and int(to) not in _KNOWN_TYPES:
        raise MappingError(
            f"Cast to {_T(to).name if to in _T.__members__.values() else to} is "
            "not supported: opset 21 does not have the type"
        )
    if op.kind == "CastLike" and to is not None:
        return b.Cast(op.x, to=to, saturate=op.attr("saturate"))
    return None


@ROWS.always("BitShift")
def bit_shift(op: Op, b: Builder) -> Results:
    """Shift signed integers by a multiplication or a division (rounded down) by a power of two, in
    32 or 64 bits. Negative amounts, and amounts of at least the width, shift all bits out.
    """
    x, by = op.x, op.need(1)
    if x.dtype not in (_T.INT8, _T.INT16, _T.INT32, _T.INT64):
        return None
    width, wide = x.dtype.bitwidth, _T.INT64 if x.dtype == _T.INT64 else _T.INT32
    left, most = op.attr("direction") == "LEFT", wide.bitwidth - 1
    number = x if x.dtype == wide else b.Cast(x, to=wide)
    out = (by < 0) | (by >= width)
    exponents = np.arange(most + 1) if left else np.minimum(np.arange(most + 1), most - 1)
    powers = (np.uint64(1) << exponents.astype(np.uint64)).astype(wide.numpy())
    amount = b.Cast(b.Where(out, b.like(by, 0 if left else width - 1), by), to=_T.INT64)
    power = b.Gather(b.const(powers, "powers"), amount)
    if left:
        y = b.Where(out, b.like(number, 0), number * power)
    else:
        y = b.FloorDiv(number, power)
        if width > most:  # all bits but the sign: the table has no 2^31 and no 2^63
            sign = b.Where(number < 0, b.like(number, -1), b.like(number, 0))
            y = b.Where(b.Equal(amount, most), sign, y)
    return y if x.dtype == wide else b.Cast(y, to=x.dtype)


@ROWS.always("DequantizeLinear")
def dequantize_linear(op: Op, b: Builder) -> Results:
    """Cast the scale of a DequantizeLinear to its output type."""
    wanted = op.take("output_dtype", 0)
    if not wanted or op.need(1).dtype == wanted:
        return None
    scale = b.Cast(op.need(1), to=wanted)
    return b.op("DequantizeLinear", op.x, scale, op.input(2), **op.attrs)


@ROWS.always("QuantizeLinear")
def quantize_linear(op: Op, b: Builder) -> None:
    """Divide in the type `precision` (by default that of the scale); in opset 21 x and scale have
    one type.
    """
    x, scale = op.x, op.need(1)
    precision = op.take("precision", 0)
    target = _T(precision) if precision else scale.dtype
    if x.dtype == target == scale.dtype or target is None:
        return
    if x.dtype in (_T.INT32,) and not precision:
        return
    op.set_input(0, b.Cast(x, to=target) if x.dtype != target else x)
    op.set_input(1, b.Cast(scale, to=target) if scale.dtype != target else scale)


@ROWS.always("Range")
def range_(op: Op, b: Builder) -> Results:
    """Reshape vectors of one element to the scalars that the operator requires; types beyond opset
    21's are computed in `stash_type` (float).
    """
    stash = op.take("stash_type", 1)
    for i in range(3):
        if rank_of(op.need(i)) != 0:
            op.set_input(i, b.Reshape(op.need(i), []))
    dtype = op.x.dtype
    if dtype not in (_T.FLOAT16, _T.BFLOAT16):
        return None
    wide = [b.Cast(op.need(i), to=stash) for i in range(3)]
    return b.Cast(b.Range(*wide), to=dtype)


@ROWS.always("SpaceToDepth")
def space_to_depth(op: Op, b: Builder) -> Results:
    """Convert `mode` CRD, in which the source channel is the slowest part of the result's channel
    index.
    """
    if op.take("mode", "DCR") == "DCR":
        return None
    size, x = int(op.attrs["blocksize"]), op.x
    shape = b.Shape(x)
    n, c, h, w = (shape[i : i + 1] for i in range(4))
    block = b.const([size])
    rows, columns = h / block, w / block
    split = b.Reshape(x, b.Concat(n, c, rows, block, columns, block, axis=0))
    transposed = b.Transpose(split, perm=[0, 1, 3, 5, 2, 4])
    return b.Reshape(transposed, b.Concat(n, b.Mul(c, [size * size]), rows, columns, axis=0))


@ROWS.always("CumProd")
def cum_prod(op: Op, b: Builder) -> Results:
    """Rewrite CumProd. Along an axis that is known only at run time every axis is computed, and the
    requested one is selected.
    """
    x, rank, axis = op.x, max(op.rank(0), 1), constant(op.need(1))
    how = {"exclusive": op.attr("exclusive", 0), "reverse": op.attr("reverse", 0)}
    if axis is not None:
        return b.ext("CumProd", x, axis=int(axis.reshape(())) % rank, **how)
    place = b.Cast(b.Reshape(op.need(1), []), to=_T.INT64) % np.array(rank, np.int64)
    y = b.ext("CumProd", x, axis=0, **how)
    for i in range(1, rank):
        y = b.Where(b.Equal(place, i), b.ext("CumProd", x, axis=i, **how), y)
    return y


@ROWS.always("BitCast")
def bit_cast(op: Op, b: Builder) -> Results:
    """Rewrite BitCast as the extension operator."""
    to = int(op.attrs["to"])
    return b.BitCast(op.x, to=to) if to in _KNOWN_TYPES else missing(op)


@ROWS.always("TensorScatter")
def tensor_scatter(op: Op, b: Builder) -> Results:
    """Write `update` into the cache from each batch's write index on; circular indices wrap
    around.
    """
    cache, update, start = op.x, op.need(1), op.input(2)
    rank = op.rank(0)
    axis = int(op.attr("axis", -2)) % rank
    if axis == 0:
        raise MappingError("TensorScatter along the batch axis is not supported", "R110")
    count = b.Squeeze(b.Shape(update, start=axis, end=axis + 1))
    positions = b.Range(0, count, 1)
    positions = b.Reshape(positions, [1] * axis + [-1] + [1] * (rank - axis - 1))
    if start is not None:
        positions = positions + b.Reshape(start, [-1] + [1] * (rank - 1))
    if op.attr("mode", "linear") == "circular":
        positions = positions % b.Shape(cache, start=axis, end=axis + 1)
    return b.ScatterElements(cache, b.Expand(positions, b.Shape(update)), update, axis=axis)


@ROWS.always("Attention")
def attention(op: Op, b: Builder) -> None:
    """Convert Attention: ONNX's function body would reshape keys and values by the batch size of
    the queries, and split them wrongly.
    """
    q, k, v = (None if (x := op.input(i)) is None else x.shape for i in range(3))
    for other in (k, v):
        if (
            q is not None
            and other is not None
            and (
                len(q) != len(other)
                or (isinstance(q[0], int) and isinstance(other[0], int) and q[0] != other[0])
            )
        ):
            raise MappingError(
                f"Attention has queries of shape {list(q)}, which do not match "
                f"keys or values of shape {list(other)}",
                "R105",
            )
    if (
        k is not None
        and v is not None
        and isinstance(k[-2], int)
        and isinstance(v[-2], int)
        and k[-2] != v[-2]
    ):
        raise MappingError(f"Attention has {k[-2]} keys, but {v[-2]} values", "R105")
