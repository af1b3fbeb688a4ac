"""Constants that are computed anew, by operator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from converter.graph import BROADCAST
from converter.graph.build import attributes
from converter.graph.infer import Array, known, shape_of
from converter.graph.names import layer_name
from converter.graph.value import optional
from converter.graph.verify.shapes_of import attribute
from converter.graph.windows import transposed_pads
from converter.passes.sizes.checks import (
    CHECKS,
    demand_batch,
    demand_no_batches,
    demand_no_constants,
    demand_no_global_window,
    demand_no_traces,
    demand_not_all,
    demand_scale_of_axis,
)
from converter.passes.sizes.regroup import Factors, Pair, regrouped
from converter.passes.sizes.walk import Refused, Repair, Rules, Walk, is_same, merged, text_of

FEW = 3  # elements of an axis of which the first one may also be a half
# operators whose results follow the sizes of their data, independently of their other operands
_FOLLOWING = frozenset(
    {
        *("Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "MaxPool", "LpPool"),
        *("BatchNormalization", "Gemm", "MatMul", "InstanceNormalization", "LayerNormalization"),
        *("GroupNormalization", "LRN", "Transpose", "Unsqueeze", "Squeeze", "Flatten"),
        *("Cast", "Shape", "Size", "Identity", "Pad", "Clip", "CumSum", "Dropout"),
        *("QuantizeLinear", "DequantizeLinear", "DepthToSpace", "SpaceToDepth", "Concat"),
    }
)
_TO_THE_END = (1 << 63) - 1


def _reshape(walk: Walk, node: ir.Node) -> None:
    """Compute the target of a Reshape anew."""
    x, target, out = node.inputs[0], node.inputs[1], node.outputs[0]
    assert x is not None and target is not None
    dims, before = walk.factors_of(x), walk.old[out]
    if dims is None or before is None:
        raise Refused(node, "its sizes are not known")
    options = regrouped(dims, before)
    if not options:
        shapes = f"{text_of(walk.old[x] or ())} becomes {text_of(before)}"
        new = text_of(shape_of(x) or ())
        raise Refused(node, f"{shapes} in the file, and no constant does that to {new}")
    leading = merged(dims[0]) if dims else None
    sizes = walk.choose(node, options, leading)
    wanted = [s.new for s in sizes]
    if _asks_for(known(target), shape_of(x) or (), wanted, node):
        pass
    elif target in walk.old_known and not is_same(known(target), walk.old_known[target]):
        raise Refused(node, "its target is computed from sizes and from constants")
    else:
        walk.set_constant(node, 1, wanted)
    _keep_factors(walk, dims, out, sizes)


def _asks_for(
    target: Array | None, shape: Sequence[int], wanted: Sequence[int], node: ir.Node
) -> bool:
    """Return whether a Reshape target, which may contain -1 and 0, gives these sizes."""
    if target is None or target.size != len(wanted):
        return target is None
    copied = not attribute(node, "allowzero", 0)
    found = [
        shape[i] if n == 0 and copied and i < len(shape) else int(n)
        for i, n in enumerate(target.reshape(-1))
    ]
    return all(n in (-1, w) for n, w in zip(found, wanted, strict=True))


def _keep_factors(
    walk: Walk, dims: Sequence[Factors], out: ir.Value, sizes: Sequence[Pair]
) -> None:
    """Keep which sizes a dimension of a result was merged from."""
    atoms = [a for factors in dims for a in factors if a != Pair(1, 1)]
    at = 0
    for axis, pair in enumerate(sizes):
        found: list[Pair] = []
        while at < len(atoms) and merged((*found, atoms[at])).old <= pair.old:
            if atoms[at].old == 1 and pair.old != 1 and found and merged(tuple(found)) == pair:
                break
            found.append(atoms[at])
            at += 1
            if merged(tuple(found)) == pair:
                break
        if merged(tuple(found)) != pair:
            return  # a size was split: its parts have no factors
        if len(found) > 1 and pair.changed:
            walk.factors[out, axis] = tuple(found)


def _expand(walk: Walk, node: ir.Node) -> None:
    """Let elements of a constant target follow the data."""
    x, target = node.inputs[0], walk.fixed(node.inputs[1])
    pairs = walk.pairs(x)
    if target is None:
        return
    if pairs is None:
        raise Refused(node, "its sizes are not known")
    numbers = [int(n) for n in target.reshape(-1)]
    lead = len(numbers) - len(pairs)
    for axis, pair in enumerate(pairs):
        at = lead + axis
        if not pair.changed or at < 0 or numbers[at] == 1:
            continue
        if numbers[at] != pair.old:
            raise Refused(node, f"data of the size {pair.old} are repeated {numbers[at]} times")
        numbers[at] = pair.new
    if numbers != target.reshape(-1).tolist():
        walk.set_constant(node, 1, numbers)


def _slice(walk: Walk, node: ir.Node) -> None:
    """Let the end of a Slice that was the end of the axis follow the axis."""
    pairs = walk.pairs(node.inputs[0])
    bounds = [walk.fixed(v) for v in node.inputs[1:3]]
    if any(b is None for b in bounds):
        return
    starts, ends = ([int(n) for n in b.reshape(-1)] for b in bounds if b is not None)
    if pairs is None:
        raise Refused(node, "its sizes are not known")
    axes, steps = known(optional(node, 3)), known(optional(node, 4))
    chosen = range(len(starts)) if axes is None else [int(a) for a in axes.reshape(-1)]
    strides = [1] * len(starts) if steps is None else [int(s) for s in steps.reshape(-1)]
    moved = list(ends)
    for i, axis in enumerate(chosen):
        pair = pairs[axis % len(pairs)]
        if pair.changed and strides[i] > 0:
            moved[i] = _end(node, pair, starts[i], ends[i], strides[i])
        elif pair.changed and not (starts[i] == -1 or starts[i] >= 1 << 30):
            raise Refused(node, f"it begins at {starts[i]} of an axis of {pair.old}")
    if moved != ends:
        walk.set_constant(node, 2, moved)


def _end(node: ir.Node, pair: Pair, start: int, end: int, step: int) -> int:
    """Return the end of a slice of an axis whose size has changed."""
    begins = start < 0 or start < max(step, 2)  # counted from the end, or at the first elements
    if end >= pair.old and begins and (start != 1 or step > 1 or pair.old > FEW):
        return _TO_THE_END
    first = (start, end) == (0, 1) and pair.old > FEW
    if (end < 0 and begins) or first:
        return end
    reason = (
        f"it takes elements {start} to {min(end, pair.old)} of {pair.old}; nothing shows which of "
        "these bounds follow the size of the axis"
    )
    raise Refused(node, reason)


def _gather(walk: Walk, node: ir.Node) -> None:
    """Check that constant indices do not depend on the old size of the axis."""
    pairs, indices = walk.pairs(node.inputs[0]), walk.fixed(node.inputs[1])
    if pairs is None or indices is None:
        return
    pair = pairs[attribute(node, "axis", 0) % len(pairs)]
    if pair.changed and ((indices > 0).any() or (pair.old == 1 and indices.size > 1)):
        reason = f"constant indices select elements of an axis of {pair.old}, which has changed"
        raise Refused(node, reason)


def _split(walk: Walk, node: ir.Node) -> None:
    """Recompute equal parts for the new size of the axis."""
    pairs, parts = walk.pairs(node.inputs[0]), walk.fixed(optional(node, 1))
    if pairs is None:
        raise Refused(node, "its sizes are not known")
    pair = pairs[attribute(node, "axis", 0) % len(pairs)]
    if not pair.changed or parts is None:
        return
    count = parts.size
    equal = {*parts.reshape(-1).tolist()}
    if len(equal) > 1 or 1 in equal or pair.new % count:
        raise Refused(node, f"an axis of {pair.old} is split into parts of constant sizes")
    walk.set_constant(node, 1, [pair.new // count] * count)


def _resize(walk: Walk, node: ir.Node) -> None:
    """Scale constant sizes that were an integer multiple of the image. Later layers show whether
    others work.
    """
    pairs, sizes = walk.pairs(node.inputs[0]), walk.fixed(optional(node, 3))
    if sizes is None:
        return
    if pairs is None:
        raise Refused(node, "its sizes are not known")
    axes = attribute(node, "axes", range(len(pairs)))
    numbers = [int(n) for n in sizes.reshape(-1)]
    for i, axis in enumerate(axes):
        pair, size = pairs[axis], numbers[i]
        if not pair.changed:
            continue
        if (size % pair.old == 0 and size > pair.old) or (axis < 2 and size == pair.old):
            numbers[i] = pair.new * size // pair.old
        else:
            walk.pending[node.outputs[0], axis] = (
                f"it resizes {pair.old} to {size}; what the size follows is not shown"
            )
    if numbers != sizes.reshape(-1).tolist():
        walk.set_constant(node, 3, numbers)


def _join(walk: Walk, node: ir.Node) -> None:
    """Extend constants that are combined with data of another size."""
    shapes = [walk.pairs(v) for v in node.inputs]
    rank = max((len(s) for s in shapes if s is not None), default=0)
    for axis in range(1, rank + 1):
        column = [s[-axis] if s is not None and len(s) >= axis else None for s in shapes]
        for pair in {p for p in column if p is not None and p.changed}:
            _fit(walk, node, column, pair, -axis)


def _fit(walk: Walk, node: ir.Node, column: Sequence[Pair | None], pair: Pair, axis: int) -> None:
    """Adapt the operands of one node to an axis whose size has changed."""
    for i, other in enumerate(column):
        if other is None or other == pair:
            continue
        if other == Pair(1, 1):
            demand_batch(walk, node, node.inputs[i], pair)
            continue
        if pair.old == 1:
            reason = f"data of the size 1 meet {other.old} elements, and have {pair.new} now"
            raise Refused(node, reason)
        if not other.changed and other.old == pair.old:
            value = node.inputs[i]
            assert value is not None
            node.replace_input_with(i, _extended(walk, node, value, axis, pair))


def _extended(walk: Walk, node: ir.Node, value: ir.Value, axis: int, pair: Pair) -> ir.Value:
    size = len(walk.old.get(value) or shape_of(value) or ())
    try:
        found = walk.stretch.extended(value, axis % size, pair, node)
    except ValueError as e:
        raise Refused(node, str(e)) from None
    for old, new, along in walk.stretch.steps:  # other axes stay to be shown
        more = [(at, why) for (v, at), why in walk.pending.items() if v is old and at != along]
        walk.pending.update({(new, at): why for at, why in more})
    walk.stretch.steps.clear()
    before = walk.old.get(value) or shape_of(value) or ()
    walk.computed[layer_name(node)] = (before, shape_of(found) or ())
    return found


def _concat(walk: Walk, node: ir.Node) -> None:
    """Extend constants that are concatenated with data of another size."""
    shapes = [walk.pairs(v) for v in node.inputs]
    if any(s is None for s in shapes):
        raise Refused(node, "its sizes are not known")
    rank = len(shapes[0] or ())
    axis = attribute(node, "axis", 0) % rank
    for other in (i for i in range(rank) if i != axis):
        column = [s[other] for s in shapes if s is not None]
        pair, *more = {p for p in column if p.changed} or [None]
        if pair is None or more:
            continue  # inference refuses several sizes
        for i, own in enumerate(column):
            value = node.inputs[i]
            if own != pair and value is not None:
                demand_batch(walk, node, value, pair)
                node.replace_input_with(i, _extended(walk, node, value, other, pair))


def _matmul(walk: Walk, node: ir.Node) -> None:
    """Refuse weights of a batch that has changed, and a contraction over other sizes."""
    for value in node.inputs:
        pairs = walk.pairs(value)
        if pairs is None or value is None:
            raise Refused(node, "its sizes are not known")
    demand_no_batches(walk, node)


def _recurrent(walk: Walk, node: ir.Node) -> None:
    """Give constant initial states and lengths the batch and the length of the sequence."""
    pairs = walk.pairs(node.inputs[0])
    if pairs is None or attribute(node, "layout", 0):
        raise Refused(node, "its sizes are not known")
    length, batch = pairs[0], pairs[1]
    for i in range(5, min(len(node.inputs), 7)):
        value, own = node.inputs[i], walk.pairs(node.inputs[i])
        if value is not None and batch.changed and own is not None and own[1] != batch:
            node.replace_input_with(i, _extended(walk, node, value, 1, batch))
    lengths = walk.fixed(optional(node, 4))
    if lengths is not None and (length.changed or batch.changed):
        if set(lengths.reshape(-1).tolist()) != {length.old}:
            raise Refused(node, "the lengths of its sequences are constant")
        walk.set_constant(node, 4, [length.new] * batch.new)


def _conv_transpose(walk: Walk, node: ir.Node) -> None:
    """Crop the result by the same amount as before, with the new size."""
    if "output_shape" not in node.attributes:
        return
    pairs, weights = walk.pairs(node.inputs[0]), shape_of(node.inputs[1])
    a = attributes(node)
    kernel = a.get("kernel_shape") or (weights or ())[2:]
    if pairs is None or not kernel:
        raise Refused(node, "its sizes are not known")
    pads, extra = transposed_pads(a, [p.old for p in pairs[2:]], kernel)
    for name in ("auto_pad", "output_shape"):
        node.attributes.pop(name, None)
    node.attributes["pads"] = ir.AttrInt64s("pads", pads)
    node.attributes["output_padding"] = ir.AttrInt64s("output_padding", extra)


_REPAIRS: dict[str, Repair] = {
    "Reshape": _reshape,
    "Expand": _expand,
    "Slice": _slice,
    "Gather": _gather,
    "Split": _split,
    "Resize": _resize,
    "Concat": _concat,
    "MatMul": _matmul,
    "LayerNormalization": demand_scale_of_axis,
    "DequantizeLinear": demand_scale_of_axis,
    "QuantizeLinear": demand_scale_of_axis,
    **dict.fromkeys(("AveragePool", "MaxPool", "LpPool"), demand_no_global_window),
    "TopK": demand_not_all,
    "ConvTranspose": _conv_transpose,
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent),
    **dict.fromkeys(("GatherElements", "GatherND", "MaxUnpool"), demand_no_constants),
    **dict.fromkeys(("ScatterElements", "ScatterND"), demand_no_constants),
    **dict.fromkeys(("AffineGrid", "CenterCropPad"), demand_no_constants),
}


def _of(node: ir.Node) -> Iterator[Repair]:
    """Yield the repairs and checks of a node."""
    if node.op_type in BROADCAST and not node.domain:
        yield _join
    elif node.op_type in _REPAIRS and not node.domain:
        yield _REPAIRS[node.op_type]
    elif node.domain or not (node.op_type in _FOLLOWING or node.op_type.startswith("Reduce")):
        yield demand_no_traces
    yield from CHECKS


RULES = Rules(_REPAIRS, _of)
