"""Sequences that loops build and choices return, as stacked tensors.

A sequence of tensors of one shape is a tensor with one more axis, whose size is the length of the
sequence; where the members are only concatenated, they may differ along that axis. Sequences whose
members are known one by one are left to `decompositions/sequences.py`.

before:  s0 = SequenceEmpty(); s = Loop(n, s0) { s' = SequenceInsert(s, x * 2) }
         y = ConcatFromSequence(s, axis=0)
after:   rows = Loop(n) { stack x * 2 }
         y = Reshape(rows, [-1, ..])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, attributes, builder_before
from converter.graph.extensions import replace
from converter.graph.infer import rank_of, set_type
from converter.graph.names import Names
from converter.graph.shapes import infer_again, infer_all
from converter.graph.size_expressions import Element, Size
from converter.graph.symbolic import dimensions
from converter.graph.value import INT64, Value, optional, producer_of, with_operators
from converter.graph.walk import all_nodes, discard, subgraphs, take_over
from converter.passes.dead_code import remove_dead_code
from converter.record import record

_BUILT = {"SequenceEmpty", "SequenceConstruct", "SequenceInsert", "SequenceErase", "Identity"}
_READ = {"SequenceAt", "SequenceLength", "ConcatFromSequence"}
_LAST = np.iinfo(np.int64).max


def unwrap_optional(model: ir.Model) -> None:
    """Replace optional values that are known to have an element, or none, in place.

    before:  o = Optional(x); y = OptionalGetElement(o); h = OptionalHasElement(o)
    after:   y = x; h = true
    """
    readers = ("OptionalGetElement", "OptionalHasElement")
    found = [n for n in all_nodes(model.graph) if n.op_type in readers and not n.domain]
    if not found:
        return
    names = Names(model)
    for node in found:
        value: ir.Value | None = optional(node, 0)
        while (producer := producer_of(value)) is not None and producer.op_type == "Identity":
            value = producer.inputs[0]
        if producer is not None and producer.op_type == "Optional":
            value = optional(producer, 0)
        elif value is not None and isinstance(value.type, ir.OptionalType):
            continue  # known at run time
        b = builder_before(node, names)
        with b:
            if node.op_type == "OptionalHasElement":
                replace(node, [b.Identity(b.const(np.array(value is not None)))], b)
            elif value is not None:
                replace(node, [b.op("Identity", value)], b)
    remove_dead_code(model)
    infer_all(model)


def stack_sequences(model: ir.Model) -> None:
    """Replace, in place, sequences by stacked tensors; those that cannot be stacked are left."""
    owners = [n for n in all_nodes(model.graph) if n.op_type in ("Loop", "If") and not n.domain]
    if not any(_is_sequence(o) for n in owners for o in n.outputs):
        return
    groups = _Groups(model.graph)
    wanted = {v for n in owners for v in n.outputs if _is_sequence(v)}
    if groups.assume(wanted):
        infer_all(model)
    kinds = groups.kinds(wanted, model)
    if kinds is not None:
        _Stacking(model, groups, kinds).graph(model.graph)
        remove_dead_code(model)


def _is_sequence(value: ir.Value | None) -> bool:
    return value is not None and isinstance(value.type, ir.SequenceType)


@record
class _Kind:
    """The members of sequences that flow into each other: their type and dimensions, and the axis
    along which they may differ because they are only concatenated along it.
    """

    dtype: ir.DataType
    dims: list[Size]
    joined: int | None

    @property
    def axis(self) -> int:
        """Return the axis along which the tensor grows."""
        return self.joined or 0

    def has_sizes(self, sizes: Sequence[Size]) -> bool:
        """Return whether the dimensions are numbers, or among the given ones."""
        return all(
            i == self.joined or size.integer is not None or size in sizes
            for i, size in enumerate(self.dims)
        )


@record
class _Stack:
    """A sequence as a tensor, None for an empty one. The first `unused` rows belong to no member:
    engines do not run loops whose states have no elements.
    """

    tensor: ir.Value | None
    unused: int = 0


# the tensor of a new sequence, or the results of other operators
_Written = _Stack | Sequence[ir.Value | None] | None
_Writer = Callable[[ir.Node, Builder], _Written]


class _Groups:
    """Groups of sequence values that are the same sequence at different times."""

    def __init__(self, graph: ir.Graph) -> None:
        self.parent: dict[ir.Value, ir.Value] = {}
        self.nodes = list(all_nodes(graph))
        for node in self.nodes:
            if not node.domain:
                self._relate(node)

    def find(self, value: ir.Value) -> ir.Value:
        while (above := self.parent.setdefault(value, value)) is not value:
            value = above
        return value

    def _join(self, *values: ir.Value | None) -> None:
        found = [self.find(v) for v in values if v is not None]
        for value in found[1:]:
            self.parent[self.find(value)] = self.find(found[0])

    def _relate(self, node: ir.Node) -> None:
        if node.op_type == "Loop":
            body = node.attributes["body"].as_graph()
            for i, first in enumerate(node.inputs[2:]):
                if _is_sequence(first):
                    self._join(first, body.inputs[2 + i], body.outputs[1 + i], node.outputs[i])
        elif node.op_type == "If":
            for i, out in enumerate(node.outputs):
                if _is_sequence(out):
                    self._join(out, *(body.outputs[i] for body in subgraphs(node)))
        elif node.op_type in _BUILT and _is_sequence(node.outputs[0]):
            first = optional(node, 0)
            self._join(node.outputs[0], first if _is_sequence(first) else None)

    def assume(self, wanted: set[ir.Value]) -> bool:
        """Give the members that are taken out of the sequences the shape of those that are put in,
        as far as it is known; return whether there are any. `kinds` checks all members that are
        put in, so that this is a proof by induction.
        """
        roots, changed = {self.find(v) for v in wanted}, False
        put: dict[ir.Value, ir.Value] = {}
        for node in self.nodes:
            if node.op_type == "SequenceInsert" and self.find(node.outputs[0]) in roots:
                member = node.inputs[1]
                if member is not None and member.shape is not None:
                    put.setdefault(self.find(node.outputs[0]), member)
        for node in self.nodes:
            sequence = node.inputs[0] if node.op_type == "SequenceAt" else None
            member = None if sequence is None else put.get(self.find(sequence))
            if member is not None and node.outputs[0].shape is None:
                set_type(node.outputs[0], member.dtype, member.shape)
                changed = True
        return changed

    def kinds(self, wanted: set[ir.Value], model: ir.Model) -> dict[ir.Value, _Kind] | None:
        """Return the members of each group of the wanted sequences; None if those of one have no
        common shape, or an operator has no counterpart for stacked tensors.
        """
        roots = {self.find(v) for v in wanted}
        members: dict[ir.Value, list[ir.Value]] = {root: [] for root in roots}
        readers: dict[ir.Value, list[ir.Node]] = {root: [] for root in roots}
        ends = {v for v in (*model.graph.inputs, *model.graph.outputs) if _is_sequence(v)}
        if any(self.find(v) in roots for v in ends):
            return None
        for node in self.nodes:
            values = [v for v in (*node.inputs, *node.outputs) if v is not None]
            found = [self.find(v) for v in values if v in self.parent and self.find(v) in roots]
            if not found or node.op_type in ("Loop", "If"):
                continue
            if node.op_type not in _BUILT | _READ or len(set(found)) > 1:
                return None
            readers[found[0]].append(node)
            put = {"SequenceInsert": node.inputs[1:2], "SequenceConstruct": node.inputs}
            members[found[0]] += [v for v in put.get(node.op_type, ()) if v is not None]
        inputs = [d for v in model.graph.inputs for d in dimensions(v) or ()]
        found_kinds = {}
        for root in roots:
            kind = _kind(members[root], readers[root])
            if kind is None or (self._may_be_empty(root) and not kind.has_sizes(inputs)):
                return None
            found_kinds[root] = kind
        return found_kinds

    def _may_be_empty(self, root: ir.Value) -> bool:
        """Return whether a tensor for a sequence without members may be needed."""
        for node in self.nodes:
            own = [i for i, o in enumerate(node.outputs) if o in self.parent]
            own = [i for i in own if self.find(node.outputs[i]) is root]
            if own and node.op_type == "If":
                return True
            if own and node.op_type == "Loop":
                body = node.attributes["body"].as_graph()
                if any(_appended(body, i) is None for i in own):
                    return True
        return False


def _kind(members: Sequence[ir.Value], readers: Sequence[ir.Node]) -> _Kind | None:
    shapes = [s for v in members if (s := dimensions(v)) is not None]
    if not shapes or len(shapes) < len(members) or len({len(s) for s in shapes}) > 1:
        return None
    dims, dtype = shapes[0], members[0].dtype
    differ = {
        i
        for shape in shapes
        for i, size in enumerate(shape)
        if size != dims[i] or any(isinstance(a, Element) for a in size.atoms)
    }
    joined = None if not differ else _joined_axis(readers, len(dims))
    if dtype is None or (differ and (joined is None or differ != {joined})):
        return None
    return _Kind(dtype, dims, joined)


def _joined_axis(readers: Sequence[ir.Node], rank: int) -> int | None:
    """Return the axis along which all readers concatenate the members; None if one does anything
    else.
    """
    axes = set()
    for node in readers:
        if node.op_type == "ConcatFromSequence" and not attributes(node)["new_axis"]:
            axes.add(int(attributes(node)["axis"]) % max(1, rank))
        elif node.op_type not in _BUILT - {"SequenceErase"} or optional(node, 2) is not None:
            return None
    return axes.pop() if len(axes) == 1 else None


def _appended(body: ir.Graph, i: int) -> ir.Node | None:
    """Return the SequenceInsert by which each iteration appends to state `i`; None if the body does
    anything else with the state.
    """
    formal, after = body.inputs[2 + i], body.outputs[1 + i]
    node = producer_of(after)
    if node is None or node.op_type != "SequenceInsert" or optional(node, 2) is not None:
        return None
    alone = [use.node for use in formal.uses()] == [node] and not after.uses()
    return node if alone and not formal.is_graph_output() and node.graph is body else None


class _Stacking:
    """The rewriting of one model."""

    def __init__(self, model: ir.Model, groups: _Groups, kinds: dict[ir.Value, _Kind]) -> None:
        self.model, self.groups, self.all_kinds = model, groups, kinds
        self.names, self.stacks = Names(model), dict[ir.Value, _Stack]()
        self.appended: set[ir.Node] = set()  # the values that loops stack
        self.writers: dict[str, _Writer] = {
            "SequenceEmpty": lambda node, b: _Stack(None),
            "Identity": lambda node, b: self.stack(node.inputs[0]),
            "SequenceConstruct": self._construct,
            "SequenceInsert": self._insert,
            "SequenceErase": self._erase,
            "SequenceAt": self._at,
            "SequenceLength": self._length,
            "ConcatFromSequence": self._concat,
            "If": self._if,
            "Loop": self._loop,
        }

    def kind(self, value: ir.Value | None) -> _Kind | None:
        """Return the members of a stacked sequence; None for other values."""
        known = value is not None and value in self.groups.parent
        return self.all_kinds.get(self.groups.find(value)) if known and value is not None else None

    def graph(self, graph: ir.Graph) -> None:
        for node in list(graph):
            values = () if node in self.appended else (*node.inputs, *node.outputs)
            stacked = any(self.kind(v) is not None for v in values)
            if stacked:
                b = builder_before(node, self.names)
                with b:
                    results = self.writers[node.op_type](node, b)
                if isinstance(results, _Stack):
                    self._instead(node.outputs[0], results)
                    discard(node)
                elif results is not None:
                    replace(node, results, b)
            elif any(subgraphs(node)):
                for body in subgraphs(node):
                    self.graph(body)
                infer_again(node)

    def stack(self, sequence: ir.Value | None) -> _Stack:
        assert sequence is not None
        return self.stacks[sequence]

    # tensors of sequences ------------------------------------------------------------------------

    def _empty(self, b: Builder, kind: _Kind, rows: int) -> Value:
        """Return zeros for a number of rows that belong to no member."""
        sizes: list[Any] = [self._size(b, size) for size in kind.dims]
        if kind.joined is None:
            sizes.insert(0, rows)
        else:
            sizes[kind.joined] = rows
        dtype = kind.dtype.numpy()
        if all(isinstance(n, int) for n in sizes):
            return b.const(np.zeros(sizes, dtype), "empty")
        parts = [b.const([n]) if isinstance(n, int) else n for n in sizes]
        return b.Expand(b.const(np.zeros((), dtype)), b.Concat(*parts, axis=0))

    def _size(self, b: Builder, size: Size) -> int | Value:
        """Return a size as a number, or as a vector of one element computed from an input."""
        for value in self.model.graph.inputs:
            found = dimensions(value) or []
            if size.integer is None and size in found:
                axis = found.index(size)
                return b.Shape(value, start=axis, end=axis + 1)
        return size.integer or 0

    def _rows(self, b: Builder, sequence: ir.Value, kind: _Kind) -> Value:
        """Return the tensor of a sequence without unused rows."""
        stack = self.stack(sequence)
        if stack.tensor is None:
            return self._empty(b, kind, 0)
        if not stack.unused:
            return with_operators(stack.tensor)
        return b.Slice(stack.tensor, [stack.unused], [_LAST], [kind.axis])

    def _row(self, b: Builder, member: ir.Value | None, kind: _Kind) -> Value:
        assert member is not None
        return b.Unsqueeze(member, [0]) if kind.joined is None else with_operators(member)

    def _place(self, b: Builder, stack: _Stack, at: ir.Value) -> Value:
        """Return the row of a member: [1]."""
        place = b.Reshape(b.Cast(at, to=INT64), [1])
        count = b.Shape(stack.tensor, start=0, end=1)
        return b.Where(place < 0, place + count, place + stack.unused)

    # operators -----------------------------------------------------------------------------------

    def _construct(self, node: ir.Node, b: Builder) -> _Stack:
        kind = self.kind(node.outputs[0])
        assert kind is not None
        rows = [self._row(b, v, kind) for v in node.inputs]
        tensor = b.Concat(*rows, axis=kind.axis) if len(rows) > 1 else rows[0]
        return _Stack(tensor)

    def _insert(self, node: ir.Node, b: Builder) -> _Stack:
        stack, at, kind = self.stack(node.inputs[0]), optional(node, 2), self.kind(node.inputs[0])
        assert kind is not None
        tensor = row = self._row(b, node.inputs[1], kind)
        if stack.tensor is not None and at is None:
            tensor = b.Concat(stack.tensor, row, axis=kind.axis)
        elif stack.tensor is not None and at is not None:
            place = self._place(b, stack, at)
            before = b.Slice(stack.tensor, [0], place, [0])
            tensor = b.Concat(before, row, b.Slice(stack.tensor, place, [_LAST], [0]), axis=0)
        return _Stack(tensor, stack.unused)

    def _full(self, b: Builder, sequence: ir.Value | None) -> _Stack:
        """Return the stack of a sequence, with a tensor even if it is empty."""
        stack, kind = self.stack(sequence), self.kind(sequence)
        assert kind is not None
        return _Stack(self._empty(b, kind, 0)) if stack.tensor is None else stack

    def _erase(self, node: ir.Node, b: Builder) -> _Stack:
        stack, at = self._full(b, node.inputs[0]), optional(node, 1)
        place = self._place(b, stack, b.const([-1]) if at is None else at)
        before = b.Slice(stack.tensor, [0], place, [0])
        after = b.Slice(stack.tensor, place + 1, [_LAST], [0])
        return _Stack(b.Concat(before, after, axis=0), stack.unused)

    def _at(self, node: ir.Node, b: Builder) -> list[ir.Value]:
        stack, at = self._full(b, node.inputs[0]), node.inputs[1]
        assert at is not None
        place = b.Reshape(self._place(b, stack, at), [])
        return [b.Gather(stack.tensor, place, axis=0)]

    def _length(self, node: ir.Node, b: Builder) -> list[ir.Value]:
        stack = self.stack(node.inputs[0])
        if stack.tensor is None:
            return [b.const(np.array(0), "length")]
        return [b.Gather(b.Shape(stack.tensor), np.array(0)) - stack.unused]

    def _concat(self, node: ir.Node, b: Builder) -> list[ir.Value]:
        sequence, a = node.inputs[0], attributes(node)
        kind = self.kind(sequence)
        assert sequence is not None and kind is not None
        rows = self._rows(b, sequence, kind)
        if kind.joined is not None:
            return [b.Identity(rows)]
        rank, more = rank_of(rows) or 1, bool(a["new_axis"])
        axis = int(a["axis"]) % (rank if more else max(1, rank - 1))
        order = [*range(1, axis + 1), 0, *range(axis + 1, rank)]
        moved = b.Transpose(rows, perm=order) if axis else rows
        if more:
            return [moved]
        sizes = b.Shape(moved)
        parts = [*([sizes[:axis]] if axis else []), b.const([-1])]
        parts += [sizes[axis + 2 :]] if rank > axis + 2 else []
        return [b.Reshape(moved, b.Concat(*parts, axis=0) if len(parts) > 1 else parts[0])]

    # control flow --------------------------------------------------------------------------------

    def _if(self, node: ir.Node, b: Builder) -> None:
        bodies = list(subgraphs(node))
        for body in bodies:
            self.graph(body)
        for i, out in enumerate(node.outputs):
            kind = self.kind(out)
            if kind is None:
                continue
            before = {self.stack(body.outputs[i]).unused for body in bodies}
            unused = before.pop() if len(before) == 1 else 0
            for body in bodies:
                inside, stack = Builder(body, self.names), self.stack(body.outputs[i])
                with inside:
                    keeps = unused and stack.tensor is not None
                    rows = stack.tensor if keeps else self._rows(inside, body.outputs[i], kind)
                    body.outputs[i] = inside.Identity(rows)
            out.type, out.shape = ir.TensorType(kind.dtype), None
            self.stacks[out] = _Stack(out, unused)
        infer_again(node)

    def _loop(self, node: ir.Node, b: Builder) -> list[ir.Value | None]:
        """Write a Loop with tensors in place of sequences: those to which every iteration appends
        are stacked, others are states.
        """
        body, count = node.attributes["body"].as_graph(), len(node.inputs) - 2
        inputs, formals = list(node.inputs), list(body.inputs)
        appended: dict[int, ir.Node] = {}
        for i in range(count):
            kind = self.kind(node.outputs[i])
            insert = None if kind is None or kind.joined is not None else _appended(body, i)
            if insert is not None:
                appended[i] = insert
                self.appended.add(insert)
            elif kind is not None:
                inputs[2 + i] = self._state(b, inputs[2 + i], formals[2 + i], kind)
        kept = [i for i in range(count) if i not in appended]
        self.graph(body)
        outputs = list(body.outputs)
        for i in kept:
            if (kind := self.kind(outputs[1 + i])) is not None:
                outputs[1 + i] = self._next(body, formals[2 + i], outputs[1 + i], kind)
        for i, insert in appended.items():
            outputs[1 + i] = self._local(body, insert.inputs[1])
        order = [*kept, *range(count, len(node.outputs)), *appended]
        _set(body.outputs, [outputs[0], *(outputs[1 + i] for i in order)])
        for insert in appended.values():
            discard(insert)
        _set(body.inputs, [*formals[:2], *(formals[2 + i] for i in kept)])
        states = [inputs[2 + i] for i in kept]
        start = b.const(np.array(True), "start") if inputs[1] is None else inputs[1]
        made = b.ops("Loop", inputs[0], start, *states, outputs=len(order), body=body)
        infer_again(made[0].producer())  # type: ignore[arg-type]
        results: list[ir.Value | None] = [None] * len(node.outputs)
        for i, result in zip(order, made, strict=True):
            old = node.outputs[i]
            if i in appended:
                self._instead(old, self._after(b, inputs[2 + i], result))
            elif self.kind(old) is not None:
                self._instead(old, _Stack(result, self.stack(formals[2 + i]).unused))
            else:
                results[i] = result
        return results

    def _instead(self, old: ir.Value, stack: _Stack) -> None:
        """Let the readers of a sequence read another value, so that its loop can be removed."""
        value = ir.Value(name=old.name, type=old.type)
        self.groups.parent[value] = self.groups.find(old)
        self.stacks[value] = stack
        take_over(old, value)

    def _state(self, b: Builder, first: ir.Value | None, formal: ir.Value, kind: _Kind) -> ir.Value:
        """Return the tensor of a sequence before a loop, of which `formal` is the state."""
        stack = self.stack(first)
        if stack.tensor is None:
            stack = _Stack(self._empty(b, kind, 1), 1)
        tensor = stack.tensor
        assert tensor is not None
        dims = list(tensor.shape or ())
        dims[kind.axis] = ir.SymbolicDim(None)
        formal.type, formal.shape = ir.TensorType(kind.dtype), ir.Shape(dims)
        self.stacks[formal] = _Stack(formal, stack.unused)
        return tensor

    def _next(self, body: ir.Graph, formal: ir.Value, after: ir.Value, kind: _Kind) -> ir.Value:
        """Return the tensor of a sequence after an iteration, with as many unused rows as before
        it.
        """
        inside, unused = Builder(body, self.names), self.stack(formal).unused
        stack = self.stack(after)
        with inside:
            if stack.tensor is not None and stack.unused == unused:
                return inside.Identity(stack.tensor)
            rows = self._rows(inside, after, kind)
            if not unused:
                return inside.Identity(rows)
            first = inside.Slice(formal, [0], [unused], [kind.axis])
            return inside.Concat(first, rows, axis=kind.axis)

    def _local(self, body: ir.Graph, value: ir.Value | None) -> ir.Value:
        """Return a value as an output of a body."""
        return Builder(body, self.names).Identity(value)

    def _after(self, b: Builder, first: ir.Value | None, rows: Value) -> _Stack:
        """Return the sequence `first` with the stacked rows of a loop after it."""
        stack = self.stack(first)
        if stack.tensor is None:
            return _Stack(rows)
        return _Stack(b.Concat(stack.tensor, rows, axis=0), stack.unused)


def _set(values: Any, new: Sequence[ir.Value]) -> None:
    values.clear()
    values.extend(new)
