"""Rewrites of canonical operators for Core ML that have no row and no equally good common
decomposition (`converter/passes/decompositions`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from converter.formats.coreml.neuralnetwork.rules.control_flow import origin, unconditional
from converter.formats.coreml.neuralnetwork.rules.elementwise import is_short, shifts_out
from converter.formats.coreml.neuralnetwork.rules.quantization import wraps
from converter.graph.build import Builder, attrs_of
from converter.graph.infer import known, rank_of, shape_of
from converter.graph.symbolic import axis_of_size, dimensions
from converter.graph.value import operand
from converter.graph.walk import reads, release, subgraphs
from converter.passes.decompositions.bitwise import BITS, by_digits
from converter.passes.decompositions.recurrent import looped
from converter.passes.indices import cut_elements, one_hot
from converter.passes.legalize import Rewrites, either
from converter.passes.split_directions import split_directions
from converter.passes.suppression import non_max_suppression
from converter.passes.unroll import copy_body

Value = ir.Value


def reverse_sequence(node: ir.Node, b: Builder) -> Value | None:
    """Transpose a time axis before the batch axis, reverse, and transpose back: one layer, where
    the common decomposition gathers every element.
    """
    attrs, x = attrs_of(node), operand(node)
    rank = rank_of(x)
    if rank is None or (attrs.get("batch_axis", 1), attrs.get("time_axis", 0)) != (1, 0):
        return None
    perm = [1, 0, *range(2, rank)]
    y = b.ReverseSequence(b.Transpose(x, perm=perm), operand(node, 1), batch_axis=0, time_axis=1)
    return b.Transpose(y, perm=perm)


def wrapped_cast(node: ir.Node, b: Builder) -> Value | None:
    """Wrap a number around to n bits: x - 2^n * floor((x - least) / 2^n). Blobs are floats, which
    do not wrap around.
    """
    x, out = operand(node), node.outputs[0]
    if x.dtype is None or out.dtype is None or not wraps(x, out):
        return None
    y = b.Cast(x, to=ir.DataType.FLOAT)
    count, least = float(2**out.dtype.bitwidth), float(out.dtype.min)
    turns = b.Floor((y - least) * (1 / count))
    return b.Cast(y - turns * count, to=out.dtype)


def wrapped(node: ir.Node, b: Builder) -> Value | None:
    """Compute 8-bit and 16-bit integers with 32 bits and keep the low bits. Bits beyond 32 that are
    shifted out are removed, which floats would keep.
    """
    out = node.outputs[0]
    if is_short(out):
        y = b.op(node.op_type, *(b.Cast(v, to=ir.DataType.INT32) for v in node.inputs))
        return b.Cast(y, to=out.dtype or ir.DataType.INT32)
    return _shifted(node, b) if shifts_out(node) else None


def _shifted(node: ir.Node, b: Builder) -> Value:
    """Return the last 32 bits of x * 2^n. In units of 2^32, subtracting the integer part is exact;
    a half and more is the sign.
    """
    out = node.outputs[0]
    x, y = (b.Cast(v, to=ir.DataType.FLOAT) for v in node.inputs)
    turns = x * y * 2.0**-32
    rest = turns - b.Sign(turns) * b.Floor(b.Abs(turns))
    if out.dtype == ir.DataType.INT32:
        above, below = (b.Cast(flags, to=ir.DataType.FLOAT) for flags in (rest >= 0.5, rest < -0.5))
        rest = rest - above + below
    else:
        rest = b.Abs(rest)  # declares the sign: no unsigned number is negative
    return b.Cast(rest * 2.0**32, to=out.dtype or ir.DataType.INT32)


def bitwise(node: ir.Node, b: Builder) -> Value | None:
    """Compute digit by digit, with numbers that a float represents exactly: blobs are floats, while
    the common decomposition uses integers.
    """
    return by_digits(node, b, count=7, largest=1 << 24)


def _shape_outside(node: ir.Node, part: ir.Value, b: Builder) -> Value | None:
    """Return the shape of a value in the body of a loop, computed from values outside of it; None
    if these do not have its sizes.
    """
    sizes, pieces, values = dimensions(part), [], reads(node)
    if sizes is None:
        return None
    for size in sizes:
        if size.integer is not None:
            pieces.append(b.const([size.integer]))
        elif (found := axis_of_size(size, values)) is not None:
            value, axis = found
            pieces.append(b.Shape(value)[axis : axis + 1])
        else:
            return None
    return b.Concat(*pieces, axis=0) if pieces else b.const(np.zeros(0, np.int64))


def collected(node: ir.Node, b: Builder) -> Sequence[Value] | None:
    """Carry the stacked outputs of a loop, whose sizes are not known, as tensors of the full size
    with the states; each iteration writes its part.
    """
    body, (trips, condition, *first) = node.attributes["body"].as_graph(), node.inputs
    results = [origin(v) for v in body.outputs[1:]]
    ends, parts = results[: len(first)], results[len(first) :]
    if condition is not None and not (known(condition) and unconditional(body)):
        return None
    if trips is None or all(shape_of(v) is not None for v in node.outputs[len(first) :]):
        return None
    if any(any(subgraphs(inner)) for inner in body):
        return None
    shapes = [
        b.Shape(first[ends.index(part)]) if part in ends else _shape_outside(node, part, b)
        for part in parts
    ]
    tables = [
        b.ConstantOfShape(
            b.Concat(b.Reshape(trips, [1]), shape, axis=0),
            value=np.zeros(1, part.dtype.numpy() if part.dtype else np.float32),
        )
        for part, shape in zip(parts, shapes, strict=True)
        if shape is not None
    ]
    if None in shapes:
        return None
    with b.loop(trips, *first, *tables) as turn:
        formal = turn.iteration, turn.const(True), *turn.states
        _, *new = copy_body(body, dict(zip(body.inputs, formal, strict=False)), turn)
        place = turn.Reshape(turn.iteration, [1, 1])
        written = (
            turn.ScatterND(table, place, turn.Unsqueeze(part, [0]))
            for table, part in zip(turn.states[len(first) :], new[len(first) :], strict=True)
        )
        found = turn.end(*new[: len(first)], *written)
    release(node)
    return found


REWRITES: Rewrites = {
    **{("", op): bitwise for op in BITS},
    ("", "Cast"): wrapped_cast,
    **{("", op): wrapped for op in ("Add", "Sub", "Mul", "Neg")},
    ("", "GatherElements"): cut_elements,
    ("", "OneHot"): one_hot,
    ("", "ReverseSequence"): reverse_sequence,
    # each direction separately; cells without a layer (a GRU that resets after its matrix) as a
    # loop
    **{("", op): either(split_directions, looped) for op in ("GRU", "RNN", "LSTM")},
    ("", "Loop"): collected,
    ("", "NonMaxSuppression"): non_max_suppression,
}
