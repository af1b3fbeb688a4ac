"""More than four dimensions, which no operation takes: the axis that an operator works on stays, all before it are one and all behind it.

before:  Softmax(x[2,3,4,5,6], axis 2)        after:  Reshape(Softmax(Reshape(x, [6,4,30]), axis 1), [2,3,4,5,6])

The Reshapes of neighbours cancel each other. Inputs and outputs of the model are stored with fewer dimensions, and the table says which they had.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.nnapi.unroll import copied
from converter.graph.build import Builder, attrs_of
from converter.graph.infer import constant, known, rank_of, shape_of
from converter.graph.names import Names, public_name, set_public_name
from converter.passes.legalise import Rewrite

MOST = 4
Shapes = dict[str, tuple[int, ...]]


def narrow_boundary(model: ir.Model) -> tuple[Shapes, Shapes]:
    """Inputs and outputs get at most four dimensions (in place); by public name, the shapes that they had."""
    names, inputs, outputs = Names(model), Shapes(), Shapes()
    graph = model.graph
    first = next(iter(graph), None)
    for i, value in enumerate(list(graph.inputs)):
        shape, name = shape_of(value), public_name(value)
        if shape is not None and len(shape) > MOST and 0 not in shape:
            stored = ir.Value(name=names.fresh("stored"), type=value.type, shape=ir.Shape(fewer(shape)))
            graph.inputs[i] = stored
            b = Builder(graph, names, before=first)
            whole = b.op("Reshape", stored, list(shape))
            for j, output in enumerate(list(graph.outputs)):
                if output is value:
                    graph.outputs[j] = whole
            value.replace_all_uses_with(whole)
            set_public_name(stored, name)
            inputs[name] = shape
    for i, value in enumerate(list(graph.outputs)):
        shape, name = shape_of(value), public_name(value)
        if shape is not None and len(shape) > MOST and 0 not in shape:
            outputs[name] = shape
            graph.outputs[i] = Builder(graph, names).op("Reshape", value, fewer(shape))
            set_public_name(graph.outputs[i], name)
    return inputs, outputs


def widen_boundary(model: ir.Model, inputs: Shapes, outputs: Shapes) -> None:
    """The reverse: inputs and outputs by public name get the shapes that the table records."""
    names, graph = Names(model), model.graph
    for i, stored in enumerate(list(graph.inputs)):
        name, shape = public_name(stored), inputs.get(public_name(stored))
        if shape is not None:
            value = ir.Value(name=names.fresh("whole"), type=stored.type, shape=ir.Shape(shape))
            graph.inputs[i] = value
            narrow = Builder(graph, names, before=next(iter(graph), None)).op("Reshape", value, list(shape_of(stored) or (-1,)))
            for j, output in enumerate(list(graph.outputs)):
                if output is stored:
                    graph.outputs[j] = narrow
            stored.replace_all_uses_with(narrow)
            set_public_name(value, name)
    for i, stored in enumerate(list(graph.outputs)):
        name, shape = public_name(stored), outputs.get(public_name(stored))
        if shape is not None:
            graph.outputs[i] = Builder(graph, names).op("Reshape", stored, list(shape))
            set_public_name(graph.outputs[i], name)


def fewer(shape: Sequence[int]) -> list[int]:
    """At most four dimensions: ones in front go first, then the foremost are one."""
    found = list(shape)
    while len(found) > MOST and found[0] == 1:
        del found[0]
    return found if len(found) <= MOST else [int(np.prod(found[: len(found) - MOST + 1])), *found[len(found) - MOST + 1 :]]


def apart(shape: Sequence[int], axis: int) -> list[int]:
    """[before, axis, behind]."""
    return [int(np.prod(shape[:axis])), int(shape[axis]), int(np.prod(shape[axis + 1 :]))]


def reshaped(b: Builder, value: ir.Value, shape: Sequence[int]) -> ir.Value:
    array = constant(value)
    if array is not None:
        return b.const(array.reshape(shape), str(value.name))
    return value if shape_of(value) == tuple(shape) else b.op("Reshape", value, list(shape))


def high(node: ir.Node) -> tuple[ir.Value, tuple[int, ...]] | None:
    """The first input and its shape, when it or the result has more than four dimensions."""
    x = node.inputs[0]
    shape = None if x is None else shape_of(x)
    if x is None or not shape or 0 in shape or max(len(shape), rank_of(node.outputs[0]) or 0) <= MOST:
        return None
    return x, shape


def along_axis(node: ir.Node, b: Builder) -> list[ir.Value] | None:
    """Operators on one axis, with results of the same rank or without the axis."""
    found, results = high(node), [shape_of(o) for o in node.outputs]
    if found is None or any(r is None for r in results):
        return None
    x, shape = found
    attributes, rest = copied(node), list(node.inputs[1:])
    default = -1 if node.op_type in ("Softmax", "LogSoftmax", "TopK", "LpNormalization", "Hardmax") else 0
    if node.op_type == "CumSum":
        place = known(node.inputs[1])
        if place is None:
            return None
        axis, rest = int(place.reshape(-1)[0]) % len(shape), [b.const(np.array(1))]
    else:
        axis = int(attrs_of(node).get("axis", default)) % len(shape)
        attributes["axis"] = 1
    made = b.ops(node.op_type, reshaped(b, x, apart(shape, axis)), *rest, outputs=len(node.outputs), **attributes)
    return [b.op("Reshape", y, list(r or ())) for y, r in zip(made, results, strict=True)]


def concat(node: ir.Node, b: Builder) -> ir.Value | None:
    shapes, out = [None if v is None else shape_of(v) for v in node.inputs], shape_of(node.outputs[0])
    if out is None or len(out) <= MOST or any(s is None for s in shapes):
        return None
    axis = int(attrs_of(node)["axis"]) % len(out)
    parts = [reshaped(b, v, apart(s, axis)) for v, s in zip(node.inputs, shapes, strict=True) if v is not None and s is not None]
    return b.op("Reshape", b.op("Concat", *parts, axis=1), list(out))


def gather(node: ir.Node, b: Builder) -> ir.Value | None:
    """The indices are a vector."""
    found, index, out = high(node), node.inputs[1], shape_of(node.outputs[0])
    if found is None or index is None or out is None or shape_of(index) is None:
        return None
    x, shape = found
    axis = int(attrs_of(node).get("axis", 0)) % len(shape)
    y = b.op("Gather", reshaped(b, x, apart(shape, axis)), reshaped(b, index, [int(np.prod(shape_of(index) or ()))]), axis=1)
    return b.op("Reshape", y, list(out))


def slices(node: ir.Node, b: Builder) -> ir.Value | None:
    """One axis after the other."""
    found, out = high(node), shape_of(node.outputs[0])
    given = [known(v) if v is not None else None for v in node.inputs[1:]]
    if found is None or out is None or len(given) < 2 or any(g is None and v is not None for g, v in zip(given, node.inputs[1:], strict=True)):
        return None
    x, shape = found
    starts, ends = (g.reshape(-1) for g in given[:2] if g is not None)
    axes = given[2].reshape(-1) if len(given) > 2 and given[2] is not None else np.arange(len(starts))
    steps = given[3].reshape(-1) if len(given) > 3 and given[3] is not None else np.ones(len(starts), np.int64)
    current = list(shape)
    for axis, start, end, step in zip(axes % len(shape), starts, ends, steps, strict=True):
        size = len(range(current[axis])[slice(int(start), int(end) if abs(int(end)) < 1 << 62 else None, int(step))])
        if size == current[axis] and step == 1:
            continue
        x = b.op("Slice", reshaped(b, x, apart(current, axis)), [int(start)], [int(end)], [1], [int(step)])
        current[axis] = size
    return reshaped(b, x, out) if tuple(current) == out else None


def widened(node: ir.Node, b: Builder) -> ir.Value | None:
    """Expand, Tile and Pad with a constant: one axis after the other."""
    found, out = high(node), shape_of(node.outputs[0])
    if found is None or out is None or (node.op_type == "Pad" and (attrs_of(node).get("mode", "constant") != "constant" or len(node.inputs) > 3)):
        return None
    x, shape = found
    current = [1] * (len(out) - len(shape)) + list(shape)
    pads = known(node.inputs[1]) if node.op_type == "Pad" else None
    if node.op_type == "Pad" and (pads is None or pads.min() < 0):
        return None
    for axis in range(len(out)):
        if current[axis] == out[axis] and (pads is None or not pads[axis]):
            continue
        x = reshaped(b, x, apart(current, axis))
        if pads is not None:
            x = b.op("Pad", x, [0, int(pads[axis]), 0, 0, int(pads[axis + len(out)]), 0], *node.inputs[2:3])
        else:
            x = b.op("Tile", x, [1, out[axis] // current[axis], 1])
        current[axis] = out[axis]
    return reshaped(b, x, out)


def alone(node: ir.Node, b: Builder) -> ir.Value | None:
    """What works element by element on one operand."""
    found = high(node)
    if found is None:
        return None
    x, shape = found
    return b.op("Reshape", b.op(node.op_type, reshaped(b, x, fewer(shape)), *node.inputs[1:], **copied(node)), list(shape))


def matrices(node: ir.Node, b: Builder) -> ir.Value | None:
    """All axes before the matrices are one; where they differ the shorter operand is repeated."""
    a, w = node.inputs
    shapes, out = [None if v is None else shape_of(v) for v in (a, w)], shape_of(node.outputs[0])
    ranks = [len(s) for s in shapes if s is not None]
    if a is None or w is None or out is None or len(ranks) < 2 or max(ranks) <= MOST or min(ranks) < 2:
        return None
    batch = out[:-2]
    count = int(np.prod(batch))
    flat = []
    for v, s in zip((a, w), shapes, strict=True):
        assert s is not None
        if v is w and len(s) == 2:
            flat.append(v)
            continue
        whole = v if tuple(s[:-2]) == tuple(batch) else b.op("Expand", v, [*batch, *s[-2:]])
        flat.append(reshaped(b, whole, [count, *s[-2:]]))
    return b.op("Reshape", b.op("MatMul", *flat), list(out))


def turn(b: Builder, x: ir.Value, shape: Sequence[int], perm: Sequence[int]) -> ir.Value:
    """A Transpose of any rank: each step brings a run of axes to its place, past what lies before it."""
    order = [i for i in range(len(shape)) if shape[i] != 1]
    wanted = [i for i in perm if shape[i] != 1]
    for place, axis in enumerate(wanted):
        at = order.index(axis)
        if at == place:
            continue
        length = 1
        while place + length < len(wanted) and at + length < len(order) and order[at + length] == wanted[place + length]:
            length += 1
        groups = [order[:place], order[place:at], order[at : at + length], order[at + length :]]
        sizes = [int(np.prod([shape[i] for i in g])) for g in groups]
        x = b.op("Transpose", b.op("Reshape", x, sizes), perm=[0, 2, 1, 3])
        order = [*groups[0], *groups[2], *groups[1], *groups[3]]
    return b.op("Reshape", x, [shape[i] for i in perm])


def transpose(node: ir.Node, b: Builder) -> ir.Value | None:
    found = high(node)
    if found is None:
        return None
    x, shape = found
    return turn(b, x, shape, [int(i) for i in attrs_of(node).get("perm", range(len(shape))[::-1])])


RANKS: dict[str, Rewrite] = {
    **{op: along_axis for op in ("Softmax", "LogSoftmax", "ArgMax", "ArgMin", "TopK", "CumSum", "Split", "LpNormalization", "Hardmax")},
    "Concat": concat, "Gather": gather, "Slice": slices, "MatMul": matrices, "Transpose": transpose,
    **{op: widened for op in ("Expand", "Tile", "Pad")},
    **{op: alone for op in ("Cast", "Exp", "Log", "Sqrt", "Abs", "Neg", "Sin", "LeakyRelu", "Elu", "HardSwish", "Not", "Identity", "QuantizeLinear",
                            "DequantizeLinear", "Erf", "Ceil", "Sign", "Cos", "Round", "Softplus", "Sinh", "Cosh", "IsNaN", "HardSigmoid")},
}  # fmt: skip


def with_ranks(op: str, rewrite: Rewrite | None) -> Rewrite:
    """The rewrite for many dimensions first, then the one for the operator."""

    def both(node: ir.Node, b: Builder) -> Any:
        found = RANKS[op](node, b)
        return found if found is not None or rewrite is None else rewrite(node, b)

    return both


__all__ = ["MOST", "RANKS", "fewer", "narrow_boundary", "reshaped", "turn", "widen_boundary", "with_ranks"]
