"""Shapes, slices and paddings."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, no_match
from converter.formats.coreml.coreai.rules.context import SIZE, LiftContext, LowerContext
from converter.formats.coreml.coreai.rules.fields import (
    LARGE,
    Amounts,
    Leading,
    word,
)
from converter.graph.demands import axis_of
from converter.graph.infer import constant, known, shape_of
from converter.graph.known import may_copy
from converter.graph.value import Value, known_sizes
from converter.mapping.codecs import Codec
from converter.mapping.concepts.axes import Permutation
from converter.mapping.fields import Attr, Detail, Field, ImpliedAttrs
from converter.mapping.rules import Custom, Rule, custom, op

D = ir.DataType


def read_sizes(r: LiftContext) -> None:
    """Read the sizes of a Reshape; if all are known, they are written as constants."""
    r.set_inputs(r.input(0), r.whole(1))
    r.set(allowzero=1)


def write_sizes(w: LowerContext) -> None:
    """Append the target shape: constant with at most one -1 if its sizes are known, else the
    operand. Raises MappingError for sizes of 0, which Core AI does not copy.
    """
    out = known_sizes(w.out)
    if out is not None and w.data.shape is not None and not len(w.data.shape):
        out = [1] * len(out)  # of a scalar, -1 ends in an error
    if out is not None and out.count(None) + out.count(0) <= 1:
        whole = [n or -1 for n in out]
        w.layer.inputs.append(w.numbers(whole))
        return
    given = constant(w.optional(1))
    copies = not w.attr("allowzero", 0) and may_copy(w.optional(1))
    if copies or (given is not None and (given == 0).any()):
        raise MappingError("Core AI does not support a size of 0 in a reshape")
    w.layer.inputs.append(w.whole(1))


SIZES = Detail(read=read_sizes, write=write_sizes, names=("allowzero",), inputs=(1,))


class UnitAxes(Field):
    """Axes of length 1 that are added or removed, by a reshape if they are known only at
    run time.
    """

    inputs = (1,)

    def __init__(self, removed: bool) -> None:
        self.removed = removed

    def lift(self, r: LiftContext) -> None:
        r.set_inputs(r.input(0), r.whole(1))

    def lower(self, w: LowerContext) -> None:
        own, rank = w.data.shape, w.rank()
        if any(n == 0 for n in own or ()):
            raise MappingError("axes of an empty tensor cannot be changed")
        if self.removed:
            default = [i for i, n in enumerate(own or ()) if n == 1]
            axes = sorted({a % rank for a in w.ints(1, "the axes", default)})
            if any((own or ())[a] != 1 for a in axes):
                raise MappingError("the axis must have the static size 1")
        else:
            axes = w.ints(1, "the axes")
            axes = sorted({a % (rank + len(axes)) for a in axes})
        w.layer.inputs.append(w.numbers(axes))


def share_known_sizes(w: LowerContext) -> None:
    """Copy known sizes between the operands of a concatenation, which agree along all axes
    but one.
    """
    out = known_sizes(w.out) or []
    axis = int(w.attr("axis")) % max(1, len(out))
    for i, value in enumerate(w.layer.inputs):
        own = known_sizes(value)
        if value is None or not i or own is None or len(own) != len(out):
            continue
        sizes = [
            n if j == axis or m is None else m
            for j, (n, m) in enumerate(zip(own, out, strict=True))
        ]
        if sizes != own:
            w.layer.inputs[i] = w.emit("cast", value, shape=sizes)


def read_parts(r: LiftContext) -> None:
    """Read the sizes of the parts (or one size for all but the last), and the axis."""
    axis, x = r.axis(2, r.rank()), r.input(0)
    given = r.known(r.input(1), "the sizes").astype(np.int64)
    if not given.ndim:
        size, count = r.static(x)[axis], int(given)
        if count < 1:
            raise MappingError("empty parts are not supported", "R105")
        given = np.array([min(count, size - i) for i in range(0, size, count)], np.int64)
    r.set(axis=axis)
    r.set_inputs(x, given)
    r.outputs = len(given)


def write_parts(w: LowerContext) -> None:
    """Append the sizes of the parts and the axis. Raises MappingError X203 if neither shapes nor an
    operand determine the sizes.
    """
    axis = int(w.attr("axis", 0)) % max(1, w.rank())
    lengths = [(v.shape or [None] * 99)[axis] for v in w.node.outputs]
    given = w.numbers(lengths, SIZE) if all(isinstance(n, int) for n in lengths) else None
    if given is None:
        if not w.has(1):
            raise MappingError("parts of unknown size are not supported", "X203")
        given = w.whole(1, SIZE)
    w.layer.inputs += [given, w.numbers(axis)]


PARTS = Detail(read=read_parts, write=write_parts, names=("axis", "num_outputs"), inputs=(1,))


def read_spread(r: LiftContext) -> None:
    """Read the shape of an Expand, with which the operand's shape is broadcast."""
    r.set_inputs(r.input(0), r.whole(1))


def write_spread(w: LowerContext) -> None:
    """Append the shape to broadcast to, which is computed if it is dynamic."""
    out = shape_of(w.out)
    if out is not None:
        w.layer.inputs.append(w.numbers(out, SIZE))
        return
    own = w.emit("get_shape", w.data, dtype=SIZE, shape=[w.rank()])
    w.layer.inputs.append(join_sizes(w, own, w.whole(1, SIZE)))


def join_sizes(w: LowerContext, own: ir.Value, wanted: ir.Value) -> ir.Value:
    """Return the requested sizes, with 1 replaced by the operand's size. (The runtime's
    broadcast_shapes gives 1 for 1 and 0.)
    """
    counts = (w.rank(), *w.static(1))
    rank = max(counts)

    def whole(line: ir.Value, count: int) -> ir.Value:
        if count == rank:
            return line
        ones = w.numbers([1] * (rank - count), SIZE)
        return w.emit("concat", w.numbers(0), ones, line, dtype=SIZE, shape=[rank])

    own, wanted = map(whole, (own, wanted), counts)
    one = w.like(wanted, 1)
    same = w.emit("broadcasting_equal", wanted, one, dtype=D.BOOL, shape=[rank])
    return w.emit("broadcasting_where", same, own, wanted, dtype=SIZE, shape=[rank])


SPREAD = Detail(read=read_spread, write=write_spread, inputs=(1,))


def read_repeats(r: LiftContext) -> None:
    """Return the number of times each axis is repeated; of fewer numbers than axes, the last
    ones.
    """
    counts, rank = r.whole(1), r.rank()
    missing = rank - r.static(counts)[0]
    if missing > 0:
        counts = r.b.Concat(np.ones(missing, np.int64), counts, axis=0)
    r.set_inputs(r.input(0), counts)


def write_repeats(w: LowerContext) -> None:
    """Append the repetitions of each axis. Raises MappingError for empty tensors and results."""
    counts = constant(w.input(1))
    if counts is not None and not counts.all():
        raise MappingError("repeating an axis 0 times is not supported: it does not compile")
    if any(n == 0 for n in w.data.shape or ()):
        raise MappingError("repeating an empty tensor is not supported")
    w.layer.inputs.append(w.whole(1, SIZE))


REPEATS = Detail(read=read_repeats, write=write_repeats, inputs=(1,))


# slices -------------------------------------------------------------------------------------------


def ranges_of(r: LiftContext) -> tuple[Any, Any, list[int], Any]:
    """Return the starts, ends, axes and steps of a Slice. With a negative step, the end cannot be
    before the first element.
    """
    rank, b = r.rank(), r.b
    axes = list(range(rank))
    steps = known(r.input(3))
    if steps is None:
        return r.whole(1), r.whole(2), axes, r.whole(3)
    steps = steps.astype(np.int64)
    starts, ends = r.whole(1), r.whole(2)
    down = steps < 0
    if down.any():
        lengths = b.Shape(r.input(0))
        ends = b.Where(b.And(down, ends < 0), b.Max(ends + lengths, b.const(np.int64(0))), ends)
    return starts, ends, axes, steps


class Ranges(Field):
    """First element, last element and step along all axes."""

    inputs = (1, 2, 3, 4)

    def lift(self, r: LiftContext) -> None:
        r.set_inputs(r.input(0), *ranges_of(r))

    def lower(self, w: LowerContext) -> None:
        rank = w.rank()
        axes = [a % rank for a in w.ints(3, "the axes", range(w.static(1)[0]))]
        steps = w.ints(4, "the steps", [1] * len(axes))
        if min(steps, default=1) < 1:
            raise MappingError(
                "a negative step is not supported: it never reaches the first element"
            )
        lines = [self._line(w, i, axes, default) for i, default in ((1, 0), (2, LARGE))]
        strides = [steps[axes.index(i)] if i in axes else 1 for i in range(rank)]
        w.layer.inputs += [*lines, w.numbers(strides)]

    def _line(self, w: LowerContext, index: int, axes: list[int], default: int) -> ir.Value:
        """Return a vector with one number for each axis of the operand."""
        rank, given = w.rank(), constant(w.input(index))
        if given is not None:
            found = [int(given[axes.index(i)]) if i in axes else default for i in range(rank)]
            return w.numbers(found)
        line = w.whole(index)
        if axes == list(range(rank)):
            return line
        parts = []
        for i in range(rank):
            if i not in axes:
                parts.append(w.numbers([default]))
                continue
            bounds = [w.numbers([n]) for n in (axes.index(i), axes.index(i) + 1, 1)]
            parts.append(w.emit("slice", line, *bounds, shape=[1]))
        return w.emit("concat", w.numbers(0), *parts, shape=[rank])


class Backwards(Field):
    """Axes that are reversed completely."""

    inputs = (1, 2, 3, 4)

    def lift(self, r: LiftContext) -> None:
        axes = r.ints(1, "dims")
        ones = [-1] * len(axes)
        r.set_inputs(r.input(0), ones, [np.iinfo(np.int64).min] * len(axes), axes, ones)

    def lower(self, w: LowerContext) -> None:
        starts, ends = w.ints(1, "the starts"), w.ints(2, "the ends")
        axes = w.ints(3, "the axes", range(len(starts)))
        steps = w.ints(4, "the steps", [1] * len(starts))
        shape = w.data.shape or ()
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            n = shape[axis]
            size = n if isinstance(n, int) else LARGE
            whole = start == -1 or start >= size - 1
            if step != -1 or not whole or end >= -size:
                raise no_match("only reversing a whole axis is supported by this operation")
        if not axes:
            raise no_match("no axis is reversed")
        w.layer.inputs.append(w.numbers([a % w.rank() for a in axes]))


def updated(r: LiftContext) -> Value:
    """Replace the elements of a slice of the operand, by their indices in the flattened operand."""
    b, x, update = r.b, r.input(0), r.input(4)
    line, shape = np.array([-1]), b.Shape(x)
    numbers = b.Reshape(b.Range(0, b.Size(x), 1), shape)
    chosen = b.Slice(numbers, *ranges_of(r))
    spread = b.Expand(update, b.Shape(chosen))
    found = b.ScatterElements(*(b.Reshape(v, line) for v in (x, chosen, spread)), axis=0)
    return b.Reshape(found, shape)


# sizes of others ----------------------------------------------------------------------------------


def in_dims(r: LiftContext) -> Value:
    """Insert axes of length 1 into other sizes."""
    b, rank = r.b, r.rank()
    axes, given = [axis_of(a, rank) for a in r.ints(2, "axes")], r.whole(1)
    own = b.Shape(r.input(0))
    pieces = [
        given[axes.index(i) : axes.index(i) + 1] if i in axes else own[i : i + 1]
        for i in range(rank)
    ]
    return b.Expand(r.input(0), b.Concat(*pieces, axis=0))


def broadcast_shapes(r: LiftContext) -> Value:
    """Return the broadcast shape of two shapes."""
    b, both = r.b, [r.whole(0), r.whole(1)]
    rank = max(r.static(v)[0] for v in both)
    one, other = (b.Concat(np.ones(rank - r.static(v)[0], np.int64), v, axis=0) for v in both)
    return b.Where(b.Equal(one, b.const(np.int64(1))), other, one)


def fill_shape(w: LowerContext) -> None:
    """Write the number of a ConstantOfShape."""
    value = w.attr("value", None)
    array = np.float32(0) if value is None else getattr(value, "numpy", lambda: value)()
    out = shape_of(w.out)
    shape = w.numbers(out, SIZE) if out is not None else w.whole(0, SIZE)
    w.layer.inputs = [w.const(np.asarray(array).reshape(()), "value"), shape]


def cast_sizes(w: LowerContext) -> None:
    """Cast sizes to ui32 after the operation, and then to si64."""
    if w.attr("start", 0) or w.attr("end", None) is not None:
        raise MappingError("start and end are not supported")
    own = w.layer.outputs[0]
    found = w.temporary("shape", SIZE, own.shape)
    w.layer.outputs = [found]
    w.after_emit(lambda: w.put("cast", found, outputs=[own]))


def read_scalars(r: LiftContext) -> None:
    """Read operands without axes."""
    r.node.inputs = [v and r.b.Reshape(v, []) for v in r.node.inputs]


def write_scalars(w: LowerContext) -> None:
    """Write scalars; a step of 0, which crashes the runtime, is replaced by 1."""
    start, stop, step = (
        v if v is None or not v.shape else w.emit("reshape", v, w.numbers([]), shape=[])
        for v in w.layer.inputs
    )
    given = constant(w.input(2))
    if given is not None and not given.all():
        raise MappingError("the step of a Range must not be 0")
    if given is None and step is not None:
        zero = w.emit("broadcasting_equal", step, w.like(step, 0), dtype=D.BOOL, shape=[])
        step = w.emit("broadcasting_where", zero, w.like(step, 1), step, dtype=step.dtype,
                      shape=[])  # fmt: skip
    w.layer.inputs = [start, stop, step]


SCALARS = Detail(read=read_scalars, write=write_scalars)


_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def _pad_mode() -> Codec:
    own, back = word("padding_mode"), {v: k for k, v in _MODES.items()}

    def lift(text: Any) -> str:
        found = own.lift(text)
        if found not in back:
            raise MappingError(f"padding_mode={found} is not supported", "R110")
        return back[found]

    return Codec(lift, lambda v: own.lower(_MODES[v]))


def mirrored(r: LiftContext) -> Value:
    """Write a symmetric Pad: the first and the last elements, reversed, at the ends of
    each axis.
    """
    b, x = r.b, r.input(0)
    pairs = r.known(r.input(1), "the padding").reshape(-1, 2)
    least = np.iinfo(np.int64).min
    for axis, (before, after) in enumerate(pairs.tolist()):
        parts: list[Any] = [x]
        if before:
            parts.insert(0, b.Slice(x, [before - 1], [least], [axis], [-1]))
        if after:
            parts.append(b.Slice(x, [-1], [-after - 1], [axis], [-1]))
        x = b.Concat(*parts, axis=axis) if len(parts) > 1 else x
    return x


RULES: list[Rule | Custom] = [
    op("Reshape", "reshape", SIZES),
    op("Flatten", "reshape", SIZES, ImpliedAttrs(("axis",)), lower_only=True),
    op("Transpose", "transpose", Permutation(1)),
    op("Squeeze", "shrink_dims", UnitAxes(True), example_inputs="2,1,3 =i64:[1]"),
    op("Unsqueeze", "expand_dims", UnitAxes(False), example_inputs="2,3 =i64:[1]"),
    op(
        "Concat",
        "concat",
        Leading("axis", 0, int, np.int32),
        Detail(write=share_known_sizes),
        example_inputs="2,3 2,3",
    ),
    op("Split", "split", PARTS, example_inputs="2,6 -> 2"),
    op("Expand", "broadcast_to", SPREAD, example_inputs="2,1 =i64:[2,3]"),
    op(
        "ConstantOfShape",
        "broadcast_to",
        Detail(write=fill_shape, names=("value",)),
        lower_only=True,
        example_inputs="i64:2",
    ),
    custom("", "broadcast_in_dims", in_dims),
    custom("", "broadcast_shapes", broadcast_shapes),
    op("Tile", "tile", REPEATS, example_inputs="2,3 =i64:[2,1]"),
    op(
        "Shape", "get_shape", Detail(write=cast_sizes, names=("start", "end")), example_inputs="n,3"
    ),
    op(
        "Pad",
        "pad",
        Amounts(),
        Attr("mode", "padding_mode", _pad_mode()),
        example_inputs="2,3,4,4 =i64:[0,0,1,1,0,0,1,1] =(0)",
    ),
    custom("", "pad", mirrored),
    op(
        "Slice",
        "reverse",
        Backwards(),
        example_inputs="2,3 =i64:[-1] =i64:[-9000] =i64:[1] =i64:[-1]",
    ),
    op("Slice", "slice", Ranges(), example_inputs="4,6 =i64:[1] =i64:[3] =i64:[1]"),
    custom("", "slice_update", updated),
    op("Range", "range", SCALARS, example_inputs="=i64:(0) i64: =i64:(1)"),
]
