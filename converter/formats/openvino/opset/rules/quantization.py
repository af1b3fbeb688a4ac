"""FakeQuantize, FakeConvert and quantized constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, no_match
from converter.formats.openvino.fields import dim
from converter.formats.openvino.opset.codes import (
    TABLES,
    code_of,
    coded,
    narrowest,
    powers,
    repacked,
)
from converter.formats.openvino.opset.rules.context import LiftContext, LowerContext, element_type
from converter.formats.openvino.opset.rules.fields import BROADCAST
from converter.graph.demands import axis_of
from converter.graph.infer import constant, known, rank_of, shape_of
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.value import producer_if, producer_operand
from converter.mapping.fields import Attr, Detail, Field, Guard, ImpliedAttrs
from converter.mapping.rules import Custom, Rule, custom, op
from converter.record import record

T = ir.DataType
STORED = (T.INT8, T.UINT8, T.INT4, T.UINT4)
RANGES = {T.UINT8: (0, 255), T.INT8: (-128, 127), T.UINT16: (0, 65535), T.INT16: (-32768, 32767)}


def along(w: LowerContext, value: ir.Value) -> ir.Value:
    """A vector of scales or zero points, shaped to broadcast along the axis of the operator."""
    n = w.rank()
    if rank_of(value) != 1 or n <= 1:
        return value
    axis = w.attr("axis") % n
    return w.reshape(value, [-1 if i == axis else 1 for i in range(n)])


# compressed weights ------------------------------------------------------------------------------


@record
class Chain:
    """The chain (Convert(weights) - Convert(zero)) * scale. `flat`: the shape of scale and zero in
    the operator.
    """

    weights: ir.Value
    scale: ir.Value
    zero: ir.Value | None
    attrs: dict[str, int]
    flat: list[int] | None = None


def chain(r: LiftContext) -> Chain | None:
    """Return the quantized weights among the two operands of a product, or None."""
    x, y = r.input(0), r.input(1)
    return _chain(x, y) or _chain(y, x)


def _chain(x: ir.Value, scale: ir.Value) -> Chain | None:
    if scale.const_value is None or scale.dtype != T.FLOAT or x.dtype != scale.dtype:
        return None
    minus = producer_if(x, "Sub")
    weights = _stored(minus.inputs[0] if minus is not None else x)
    shape, steps = shape_of(weights), shape_of(scale)
    if weights is None or shape is None or steps is None or len(steps) not in (0, len(shape)):
        return None
    zero = _stored(minus.inputs[1]) if minus is not None else None
    if minus is not None and (
        zero is None or zero.dtype != weights.dtype or shape_of(zero) != steps
    ):
        return None
    own = [i for i, d in enumerate(steps) if d != 1]
    if len(own) <= 1 and all(steps[i] == shape[i] for i in own):
        attrs = {"axis": own[0]} if own else {}
        return Chain(weights, scale, zero, attrs, [steps[i] for i in own])
    shared = [i for i, (d, whole) in enumerate(zip(steps, shape, strict=False)) if d != whole]
    if len(shared) != 1 or steps[shared[0]] != 1:
        return None
    # groups: all of this axis is one block
    return Chain(weights, scale, zero, {"axis": shared[0], "block_size": shape[shared[0]]})


def _stored(value: ir.Value | None) -> ir.Value | None:
    """Return the integer constant before a Cast."""
    inner = producer_operand(value, "Cast")
    stored = inner is not None and inner.const_value is not None and inner.dtype in STORED
    return inner if stored else None


def read_compressed(r: LiftContext) -> None:
    """Return the chain of operations that runtimes recognize as compressed weights."""
    found = chain(r)
    assert found is not None
    r.node.attrs |= found.attrs
    r.set_inputs(found.weights, found.scale, found.zero)
    if found.flat is not None:
        for i, value in enumerate(r.node.inputs[1:], 1):
            if value is not None and value.const_value is not None:
                flat = LazyTensor.of(value.const_value).reshaped(found.flat)
                r.node.inputs[i] = r.b.const(flat, value.name or "const")


def write_compressed(w: LowerContext) -> None:
    """Write compressed weights as the operations in which runtimes look for them."""
    zero = w.optional(2)
    point = None if zero is None else along(w, zero)
    x = w.data
    if x.dtype == T.FLOAT8E4M3FN and x.const_value is not None and point is None:
        x, _ = _narrowed(w, x, None)
    w.set_inputs(*factors(w, x, along(w, w.input(1)), point))


COMPRESSED = Detail(read=read_compressed, write=write_compressed, names=("axis", "block_size"))


def factors(
    w: LowerContext, x: ir.Value, scale: ir.Value, zero: ir.Value | None
) -> tuple[ir.Value, ir.Value]:
    """Return Convert(x) - Convert(zero), and the scale in the type of the result."""
    out = w.out.dtype or scale.dtype or T.FLOAT
    # numbers of other types than those of the graph are converted where they are written
    y = x if x.dtype == T.FLOAT else w.cast(w.stored(x), out)
    if zero is not None:
        y = w.emit("Subtract", y, w.cast(w.stored(zero), out), auto_broadcast="numpy")
    return y, w.cast(scale, out)


def in_blocks(w: LowerContext) -> bool:
    """Return whether scales belong to blocks of an axis, of which there are several."""
    x, scale, block = w.data, w.input(1), w.attr("block_size")
    if not block:
        return False
    axis = axis_of(w.attr("axis"), w.rank())
    return shape_of(scale) is None or dim(scale, axis) != 1 or dim(x, axis) != block


class Blocks(Field):
    """The blocks of an axis as a separate axis, as runtimes support them.

    One of them computes 4-bit weights with a scale for every weight incorrectly. A last block that
    is not full is a separate part.
    """

    names = ("axis", "block_size")
    keys = ("special_zero", "axis")

    def lower(self, w: LowerContext) -> None:
        x, block, axis = w.data, w.attr("block_size"), w.attr("axis") % w.rank()
        shape, out = shape_of(x), w.out
        if shape is None or shape_of(w.input(1)) is None or x.const_value is None:
            raise MappingError("block-wise scales are only supported for constants")
        if axis < len(shape) - 1 and any(u.node.op_type == "Gather" for u in out.uses()):
            # of other axes it reads wrong elements
            raise MappingError(
                "block-wise scales must be along the last axis, because the "
                "runtime supports no other"
            )
        full, rest = divmod(shape[axis], block)
        stretches = [s for s in ((0, full, block), (full, 1, rest)) if s[1] and s[2]]
        parts = [self._part(w, axis, *stretch) for stretch in stretches]
        if len(parts) == 1:
            w.set_inputs(*parts[0])
            w.set(special_zero=False)
        else:
            w.layer.kind = "Concat"
            w.set_inputs(*(w.reshape(*part) for part in parts))
            w.set(axis=axis)

    def _part(
        self, w: LowerContext, axis: int, first: int, count: int, width: int
    ) -> tuple[ir.Value, list[int]]:
        """Return `count` blocks of `width` weights from block `first` on, in the shape that they
        have without blocks.
        """

        def cut(value: ir.Value, start: int, size: int, *blocks: int) -> ir.Value:
            shape = list(shape_of(value) or ())
            columns = slice(start, start + size)
            return _stretch(w, value, axis, columns, [*shape[:axis], *blocks, *shape[axis + 1 :]])

        start, size, shape = first * w.attr("block_size"), count * width, list(w.static())
        weights = cut(w.data, start, size, count, width)
        scale, zero = cut(w.input(1), first, count, count, 1), w.optional(2)
        point = None if zero is None else cut(zero, first, count, count, 1)
        weights, point = _narrowed(w, weights, point)
        if code_of(weights.const_value) == "f4e2m1" and isinstance(scale.const_value, LazyTensor):
            # a microscaling format
            scale = w.const(powers(scale.const_value), scale.name or "const")
        product = factors(w, weights, scale, point)
        dtype = w.out.dtype
        y = w.emit("Multiply", *product, dtype=dtype, auto_broadcast="numpy")
        return y, [*shape[:axis], size, *shape[axis + 1 :]]


def _narrowed(
    w: LowerContext, weights: ir.Value, point: ir.Value | None
) -> tuple[ir.Value, ir.Value | None]:
    """Return weights of 2 bits, or floats of 4, as such, with zero points of this type: runtimes
    require both to have the same.
    """
    tensors = [v.const_value for v in (weights, point) if v is not None]
    fewer = [narrowest(t) for t in tensors if isinstance(t, LazyTensor)]
    if len(fewer) != len(tensors) or not all(map(code_of, fewer)):
        return weights, point
    stored = [w.const(t, t.name or "const") for t in fewer]
    return stored[0], None if point is None else stored[1]


def _stretch(w: LowerContext, value: ir.Value, axis: int, at: slice, shape: list[int]) -> ir.Value:
    """Return a slice of a constant along an axis, reshaped; sliced when it is written."""
    tensor, whole = value.const_value, (at.start, at.stop) == (0, dim(value, axis))
    if tensor is None:
        if not whole:
            raise MappingError("sub-byte data must be constant")
        return w.reshape(value, shape)
    weight = LazyTensor.of(tensor)
    if whole:
        weight = weight.reshaped(shape)
    else:
        index = (*[slice(None)] * axis, at)
        weight = weight.derived(lambda array: array[index].reshape(shape), shape=shape)
    return w.const(weight, value.name or "const")


def write_packed(w: LowerContext) -> None:
    """Write constants in the format's packed form for 1, 2 and 4 bits, otherwise one byte each:
    unpacking them at run time is slow.
    """
    packed, shape = w.constant(0, "the packed data"), [int(d) for d in w.attr("shape")]
    name = w.data.name or "weights"
    stored = repacked(packed, w.attr("bits"), w.attr("order"), shape, name)
    w.set_inputs(w.stored(w.const(stored, name)))
    w.set(destination_type="u8")


def lower_4_bit_indices(w: LowerContext) -> None:
    """Write a 4-bit constant, each the index of a number in the table of the type."""
    table, codes = known(w.data), producer_operand(w.input(1), "Cast")
    names = [n for n, own in TABLES.items() if table is not None and np.array_equal(table, own)]
    if not names or codes is None or codes.const_value is None or codes.dtype != T.UINT4:
        raise no_match(
            "only table lookups with indices of a supported type can be written by this rule"
        )
    stored = LazyTensor.of(codes.const_value)
    name = codes.name or "weights"
    weights = w.stored(w.const(coded(names[0], stored.bytes(), stored.shape.numpy(), name), name))
    w.put("Convert", weights, destination_type="f32")


def write_rounded(w: LowerContext) -> None:
    """Write Convert(clamp(round(x / scale) + zero)) in f32."""
    out: Any = w.out.dtype
    x, scale = (w.cast(v, T.FLOAT) for v in (w.data, along(w, w.input(1))))
    y = w.emit("Divide", x, scale, m_pythondiv=False, auto_broadcast="numpy")
    y = w.emit("Round", y, mode="half_to_even")
    if (zero := w.optional(2)) is not None:
        point = w.cast(along(w, zero), T.FLOAT)
        y = w.emit("Add", y, point, auto_broadcast="numpy")
    least, most = RANGES[out]
    w.set_inputs(w.emit("Clamp", y, min=float(least), max=float(most)))
    w.layer.attrs["destination_type"] = element_type.lower(int(out))


IN_RANGE = Guard(
    "block-wise scales and this type are not supported",
    lower_if=lambda w: not w.attr("block_size") and w.out.dtype in RANGES,
)


def no_threshold(w: LowerContext) -> bool:
    """Return whether no bounds are equal, or zeros and ones are all that binary convolutions get:
    the CPU plugin compares only there, else it divides by the difference of the bounds.
    """
    low, high, *ends = (constant(w.optional(i)) for i in range(1, 5))
    if low is None or high is None or not np.equal(low, high).any():
        return True
    users = {u.node.op_type for u in w.out.uses()}
    bits = all(end is not None and np.isin(end, (0, 1)).all() for end in ends)
    return bits and users == {"BinaryConvolution"} and not w.out.is_graph_output()


NO_THRESHOLD = Guard(
    "equal bounds are not supported: the runtime divides by their difference", no_threshold
)
RULES: list[Rule | Custom] = [
    op(
        "netconv::FakeQuantize",
        "FakeQuantize",
        NO_THRESHOLD,
        Attr("levels", kind=int),
        BROADCAST,
        example_inputs="2,3 =[0.0] =[1.0] =[0.0] =[1.0]",
    ),
    op(
        "netconv::FakeConvert",
        "FakeConvert",
        Attr("to", "destination_type", element_type, default=int(T.FLOAT8E4M3FN)),
        since=13,
        example_inputs="2,3 =",
    ),
    op(
        "DequantizeLinear",
        "Multiply",
        Guard(
            "compressed weights are not supported by this rule",
            lambda w: not in_blocks(w),
            lambda r: chain(r) is not None,
        ),
        BROADCAST,
        COMPRESSED,
        ImpliedAttrs(("output_dtype",)),
        example_inputs="=u8:4,6 =f32:6 =u8:6",
    ),
    op(
        "DequantizeLinear",
        "Reshape",
        Guard("only block-wise scales are supported by this rule", in_blocks),
        Blocks(),
        ImpliedAttrs(("output_dtype",)),
        lower_only=True,
        example_inputs="=u8:4,6 =f32:4,3 =u8:4,3",
    ),
    op(
        "QuantizeLinear",
        "Convert",
        IN_RANGE,
        Detail(write=write_rounded, names=("axis",), keys=("destination_type",)),
        ImpliedAttrs(("output_dtype", "block_size", "saturate", "precision")),
        lower_only=True,
        example_inputs="2,3 =f32:3 =u8:3",
    ),
    custom("Gather", "Convert", None, lower_4_bit_indices),
    op(
        "netconv::UnpackBits",
        "Convert",
        Detail(write=write_packed, names=("bits", "shape", "order"), keys=("destination_type",)),
        lower_only=True,
        example_inputs="=u8:[27,228,5]",
    ),
]
