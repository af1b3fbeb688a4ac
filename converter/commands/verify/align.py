"""Match the tensors of the candidate with those of the reference. A match is certain or absent:
nothing is guessed.

The rules, in order: a map given by the user, equal names, the layers that the nodes come from,
names that only count layers if both models count alike, then structure: consumers of aligned
tensors with the same operator, and producers of aligned tensors, until nothing more follows. A rule
that matches two tensors matches none. The remaining tensors may be matched by their numbers
(numbers.py).
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import onnx_ir as ir

from converter.errors import Diagnostic, NothingComparedError, wrong_call
from converter.graph.infer import shape_of
from converter.graph.names import public_name, unique
from converter.graph.network import Network
from converter.graph.walk import reads

Label = tuple[str, str, str]  # a name, and the domain and kind of the operator
Key = TypeVar("Key", bound=Hashable)
Keyed = Iterable[tuple[Hashable, ir.Value]]
LAYER = "netconv.layer"
ROUNDS = 4
ALIKE = 0.8  # share of counting names that must match; if fewer do, none is used


@dataclass
class Alignment:
    """Map from value names of the reference to value names of the candidate; `how` names the rule
    that matched each pair.
    """

    pairs: dict[str, str] = field(default_factory=dict)
    how: dict[str, str] = field(default_factory=dict)
    inputs: list[tuple[str, str]] = field(default_factory=list)
    outputs: list[tuple[str, str]] = field(default_factory=list)
    only_reference: list[str] = field(default_factory=list)
    only_candidate: list[str] = field(default_factory=list)

    @property
    def back(self) -> dict[str, str]:
        """Return the map from names of the candidate's values to names of the reference's."""
        return {c: r for r, c in [*self.inputs, *self.pairs.items()]}


class Side:
    """The activations of one model: the tensors that depend on an input."""

    def __init__(self, graph: ir.Graph) -> None:
        self.graph = graph
        self.values: dict[str, ir.Value] = {}
        self.nodes: list[ir.Node] = []
        live = set(graph.inputs)
        for node in graph:
            if any(v in live for v in reads(node)):
                self.nodes.append(node)
                live.update(node.outputs)
                self.values.update(
                    (str(o.name), o)
                    for o in node.outputs
                    if o.name
                    and isinstance(o.type, ir.TensorType)
                    and (o.uses() or o.is_graph_output())
                )
        self.live = live
        self.layers = {layer for n in self.nodes if (layer := n.metadata_props.get(LAYER))}

    def last_of_layer(self) -> dict[str, str]:
        """Return the map from layer name to the single output of the layer's last node."""
        last = {n.metadata_props[LAYER]: n for n in self.nodes if n.metadata_props.get(LAYER)}
        return {
            layer: str(n.outputs[0].name)
            for layer, n in last.items()
            if len(n.outputs) == 1 and n.outputs[0].name in self.values
        }


def align(
    reference: Network, candidate: Network, given: Mapping[str, str] | None = None
) -> Alignment:
    """Align inputs, outputs and all tensors between. Raises NothingComparedError if no output has a
    counterpart.
    """
    found = Alignment()
    given = dict(given or {})
    _boundary(reference, candidate, given, found)
    a, b = Side(reference.ir.graph), Side(candidate.ir.graph)
    state = _State(a, b, found)
    for r, c in given.items():
        if r in a.values and c in b.values:
            state.add(a.values[r], b.values[c], "map")
    for r, c in found.outputs:
        if r in a.values and c in b.values:
            state.add(a.values[r], b.values[c], "output")
    state.match(_names(a), _names(b), "name")
    state.match(_layers(a), _layers(b), "layer", same_operator=True)
    state.match_counted(_labels(a), _labels(b))
    state.settle()
    state.spread()
    _leave(a, b, found)
    return found


def extended(
    reference: Network,
    candidate: Network,
    known: Alignment,
    more: Iterable[tuple[str, str]],
    how: str,
) -> Alignment:
    """Return `known` with `more` pairs (value names) and the pairs that follow from them."""
    found = replace(known, pairs=dict(known.pairs), how=dict(known.how))
    a, b = Side(reference.ir.graph), Side(candidate.ir.graph)
    state = _State(a, b, found)
    for r, c in more:
        state.add(a.values[r], b.values[c], how)
    state.spread()
    _leave(a, b, found)
    return found


def without(alignment: Alignment, names: Collection[str]) -> Alignment:
    """Return the alignment without the pairs of some tensors of the reference."""
    return replace(
        alignment,
        pairs={r: c for r, c in alignment.pairs.items() if r not in names},
        how={r: h for r, h in alignment.how.items() if r not in names},
        only_reference=[*alignment.only_reference, *sorted(names)],
        only_candidate=[*alignment.only_candidate, *sorted(alignment.pairs[n] for n in names)],
    )


def _leave(a: Side, b: Side, found: Alignment) -> None:
    found.only_reference = [n for n in a.values if n not in found.pairs]
    taken = set(found.pairs.values())
    found.only_candidate = [n for n in b.values if n not in taken]


def _names(side: Side) -> Keyed:
    return (
        (k, v)
        for v in side.values.values()
        for k in {str(v.name), public_name(v)}
        if not _counted(k, v)
    )


def _layers(side: Side) -> Keyed:
    """Return the keys by which another format may identify a tensor: the name of its layer, or its
    own (some formats name layers after tensors).
    """
    by_layer = side.last_of_layer()
    taken = {n: layer for layer, n in by_layer.items()}
    return (
        (k, v) for n, v in side.values.items() for k in {n, taken.get(n, n)} if not _counted(k, v)
    )


def _labels(side: Side) -> Iterable[tuple[Label, ir.Value]]:
    """Yield the names of nodes and of their layers, with the operator: a layer may be several
    nodes.
    """
    return (
        ((name, node.domain, node.op_type), side.values[str(node.outputs[0].name)])
        for node in side.nodes
        if len(node.outputs) == 1 and str(node.outputs[0].name) in side.values
        for name in {node.metadata_props.get(LAYER), node.name}
        if name
    )


def _counted(name: str, value: ir.Value) -> bool:
    """Return whether a name only counts operators (`reshape_3`, `node_Reshape_18`): two models
    count differently.
    """
    node = value.producer()
    return (
        node is not None
        and re.fullmatch(rf"(node_)?{re.escape(node.op_type)}(_\d+)?", name, re.IGNORECASE)
        is not None
    )


def _numbered_by(name: Hashable, layers: Collection[str]) -> bool:
    """Return whether a name is a layer's name followed by a number."""
    stem, _, number = str(name).rpartition("_")
    return number.isdecimal() and stem in layers


class _State:
    """The alignment under construction."""

    def __init__(self, a: Side, b: Side, found: Alignment) -> None:
        self.a, self.b, self.found = a, b, found
        self.forward: dict[ir.Value, ir.Value] = {}
        self.backward: dict[ir.Value, ir.Value] = {}
        self.fresh: deque[tuple[ir.Value, ir.Value]] = deque()
        # of the reference: their counterparts may only be numbered
        self.doubted: dict[ir.Value, None] = {}
        by_name_a, by_name_b = ({str(v.name): v for v in s.graph.inputs} for s in (a, b))
        for r, c in found.inputs:
            self.forward[by_name_a[r]], self.backward[by_name_b[c]] = by_name_b[c], by_name_a[r]
        for r, c in found.pairs.items():
            self.forward[a.values[r]], self.backward[b.values[c]] = b.values[c], a.values[r]

    def add(self, r: ir.Value, c: ir.Value, how: str) -> None:
        """Pair two compatible tensors if neither has a partner and both are results of nodes."""
        if (
            r in self.forward
            or c in self.backward
            or self.a.values.get(str(r.name)) is not r
            or self.b.values.get(str(c.name)) is not c
            or not comparable(r, c)
        ):
            return
        self.forward[r], self.backward[c] = c, r
        self.found.pairs[str(r.name)], self.found.how[str(r.name)] = str(c.name), how
        self.fresh.append((r, c))

    def match(
        self,
        left: Keyed,
        right: Keyed,
        how: str,
        same_operator: bool = False,
    ) -> None:
        """Pair values whose key is unique among the unpaired values of both sides."""
        mine, theirs = _unique(left, self.forward), _unique(right, self.backward)
        for key, r in mine.items():
            c = theirs.get(key)
            if c is not None and (not same_operator or _operator(r) == _operator(c)):
                self.add(r, c, how)
                if _numbered_by(key, self.b.layers):
                    self.doubted[r] = None

    def match_counted(
        self,
        left: Iterable[tuple[Label, ir.Value]],
        right: Iterable[tuple[Label, ir.Value]],
    ) -> None:
        """Pair values whose names end in a counter (`node_Conv_4`). Exporters count differently, so
        such names are used only if nearly all of them occur on both sides, with the same shapes.
        """
        mine, theirs = _unique(left, {}), _unique(right, {})
        counted = [{k for k, v in side.items() if _counted(k[0], v)} for side in (mine, theirs)]
        doubted: set[Label] = set()
        if len(counted[0] & counted[1]) < ALIKE * min(map(len, counted)):
            doubted = counted[0] | counted[1]
        shared = [(r, theirs[k]) for k, r in mine.items() if k in theirs and k not in doubted]
        alike = [
            (r, c)
            for r, c in shared
            if (self.forward.get(r, c) is c and self.backward.get(c, r) is r and comparable(r, c))
        ]
        if len(alike) >= ALIKE * len(shared):
            names = {c: k[0] for k, c in theirs.items()}
            for r, c in alike:
                self.add(r, c, "layer")
                if _numbered_by(names[c], self.b.layers):
                    self.doubted[r] = None

    def settle(self) -> None:
        """Exchange the counterparts of tensors whose equal names are a coincidence: where a layer
        `x` is written as several nodes, one of them may be numbered `x_1` although another layer
        has that name.
        """
        if not self.doubted:
            return
        self.spread(self.doubted)
        for r in self.doubted:
            how = self.found.how.get(str(r.name), "")
            if how in ("name", "layer") and self._contradicted(r, self.forward[r]):
                self._exchange(r, self.forward[r], how)

    def _contradicted(self, r: ir.Value, c: ir.Value) -> bool:
        """Return whether the operands of both tensors are aligned, but with different tensors."""
        n, m = r.producer(), c.producer()
        mine = None if n is None else self._call(n, self.a, self._aligned)
        theirs = None if m is None else self._call(m, self.b, self.backward.get)
        return mine is not None and theirs is not None and mine != theirs

    def _aligned(self, value: ir.Value) -> ir.Value | None:
        return value if value in self.forward else None

    def _exchange(self, r: ir.Value, c: ir.Value, how: str) -> None:
        """Align both tensors with the counterparts that follow from their operands, if these are
        not aligned yet.
        """
        before = self.found.pairs.keys() - {str(r.name)}
        self._remove(r)
        for value in (r, c):
            node = value.producer()
            assert node is not None
            for x in dict.fromkeys(node.inputs):
                if value is r and x in self.forward:
                    self._consumer(node, x, self.forward[x])
                elif value is c and x in self.backward:
                    for n in dict.fromkeys(u.node for u in self.backward[x].uses()):
                        self._consumer(n, self.backward[x], x)
        if r in self.forward and c in self.backward and self.forward[r] is not c:
            return
        for name in self.found.pairs.keys() - before:
            self._remove(self.a.values[name])
        self.add(r, c, how)

    def _remove(self, r: ir.Value) -> None:
        del self.backward[self.forward.pop(r)], self.found.pairs[str(r.name)]
        del self.found.how[str(r.name)]

    def spread(self, silent: Collection[ir.Value] = ()) -> None:
        """Propagate the alignment forward and backward from every aligned pair, except from the
        `silent` tensors of the reference; repeat while new pairs may resolve ambiguities.
        """
        for _ in range(ROUNDS):
            before = len(self.found.pairs)
            self.fresh = deque((r, c) for r, c in self.forward.items() if r not in silent)
            while self.fresh:
                r, c = self.fresh.popleft()
                for node in dict.fromkeys(u.node for u in r.uses()):
                    self._consumer(node, r, c)
                self._producers(r, c)
            if len(self.found.pairs) == before:
                return

    def _consumer(self, node: ir.Node, r: ir.Value, c: ir.Value) -> None:
        """Align the outputs of a node with those of the single consumer of `c` that applies the
        same operator to the same operands.
        """
        operands = self._call(node, self.a, self._aligned)
        if operands is None or all(o in self.forward for o in node.outputs):
            return
        if any(o in self.forward for o in node.outputs):
            self._siblings(node, operands)
            return
        for describe in (_bare, _detailed):
            mine, theirs = (
                [
                    n
                    for n in dict.fromkeys(u.node for u in value.uses())
                    if describe(n) == describe(node)
                    and self._call(n, side, canonical) == operands
                    and not any(o in taken for o in n.outputs)
                ]
                for value, side, canonical, taken in (
                    (r, self.a, self._aligned, self.forward),
                    (c, self.b, self.backward.get, self.backward),
                )
            )
            if len(mine) == len(theirs) == 1 and len(node.outputs) == len(theirs[0].outputs):
                for x, y in zip(node.outputs, theirs[0].outputs, strict=True):
                    self.add(*_scaled(x, y), "structure")
                return

    def _siblings(self, node: ir.Node, operands: tuple[ir.Value | None, ...]) -> None:
        """Align the other results of a node, some of which are aligned with those of one node that
        applies the same operator to the same tensors (sizes may be constants or attributes).
        """
        known = [(o, self.forward[o]) for o in node.outputs if o in self.forward]
        others = {c.producer() for _, c in known}
        other = others.pop()
        if (
            not others
            and other is not None
            and all(_operator(o) == _operator(c) for o, c in known)
            and _live(self._call(other, self.b, self.backward.get)) == _live(operands)
            and len(node.outputs) == len(other.outputs)
        ):
            for x, y in zip(node.outputs, other.outputs, strict=True):
                self.add(x, y, "structure")

    def _call(
        self, node: ir.Node, side: Side, canonical: Callable[[ir.Value], ir.Value | None]
    ) -> tuple[ir.Value | None, ...] | None:
        """Return the operands as tensors of the reference, constants as None; None if one is not
        aligned.
        """
        live = [v if v is not None and v in side.live else None for v in node.inputs]
        operands = tuple(None if v is None else canonical(v) for v in live)
        return (
            None
            if any(v is not None and o is None for v, o in zip(live, operands, strict=True))
            else operands
        )

    def _producers(self, r: ir.Value, c: ir.Value) -> None:
        """Align the operands of two nodes that compute aligned tensors with the same operator."""
        n, m = r.producer(), c.producer()
        if n is None or m is None or _operator(r) != _operator(c) or len(n.inputs) != len(m.inputs):
            return
        if n.op_type in _COMMUTATIVE:
            self.match(
                ((_operator(v), v) for v in n.inputs if v is not None),
                ((_operator(v), v) for v in m.inputs if v is not None),
                "structure",
            )
            return
        for x, y in zip(n.inputs, m.inputs, strict=True):
            if x is not None and y is not None and _operator(x) == _operator(y):
                self.add(x, y, "structure")


def _live(operands: Iterable[ir.Value | None] | None) -> list[ir.Value] | None:
    return None if operands is None else [v for v in operands if v is not None]


def _scaled(x: ir.Value, y: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return the results of two operators; if one side applies a normalization after its operator
    whose scales the other side has folded into its weights, the result of the normalization.
    """
    return _normalized(x, y), _normalized(y, x)


def _normalized(x: ir.Value, y: ir.Value) -> ir.Value:
    readers, others = ([u.node for u in v.uses()] for v in (x, y))
    behind = len(readers) == 1 and readers[0].op_type == "BatchNormalization"
    folded = behind and not any(n.op_type in _SCALES for n in others)
    return readers[0].outputs[0] if folded else x


_SCALES = {"BatchNormalization", "Mul", "Div", "Add", "Sub"}
_COMMUTATIVE = {"Add", "Mul", "And", "Or", "Xor", "Max", "Min", "Sum", "Mean", "Equal"}


def _operator(value: ir.Value) -> tuple[str, str, int]:
    node = value.producer()
    return (node.domain, node.op_type, value.index() or 0) if node is not None else ("", "", 0)


def _bare(node: ir.Node) -> Hashable:
    return node.domain, node.op_type


def _detailed(node: ir.Node) -> Hashable:
    """Return operator, attributes and the content of small constants, to distinguish sibling
    nodes.
    """
    constants = tuple(
        (
            tuple(v.const_value.shape.numpy()),
            v.const_value.tobytes() if v.const_value.nbytes <= 1 << 20 else b"",
        )
        for v in node.inputs
        if v is not None and v.const_value is not None
    )
    return (
        node.domain,
        node.op_type,
        str(sorted((a.name, str(a.value)) for a in node.attributes.values())),
        constants,
    )


def _unique(
    items: Iterable[tuple[Key, ir.Value]], taken: Mapping[ir.Value, ir.Value]
) -> dict[Key, ir.Value]:
    free = [(k, v) for k, v in items if v not in taken]
    count = Counter(k for k, _ in free)
    return {k: v for k, v in free if count[k] == 1}


def comparable(r: ir.Value, c: ir.Value) -> bool:
    """Return whether two values have the same kind of type, and shapes that agree as far as they
    are known (ignoring axes of size 1). The shapes that Reshape gets are not comparable: one model
    says 0 or -1 where the other one has a number, and the results show whether they mean the same.
    """
    if (r.dtype == ir.DataType.STRING) != (c.dtype == ir.DataType.STRING):
        return False
    if _only_for_reshape(r) and _only_for_reshape(c):
        return False
    if (
        r.dtype is not None
        and c.dtype is not None
        and r.dtype.is_floating_point() != c.dtype.is_floating_point()
    ):
        return False
    a, b = shape_of(r), shape_of(c)
    return a is None or b is None or [d for d in a if d != 1] == [d for d in b if d != 1]


def _only_for_reshape(value: ir.Value) -> bool:
    """Return whether a tensor is only used as the shape of a Reshape."""
    uses = value.uses()
    return (
        bool(uses)
        and not value.is_graph_output()
        and all(
            (node.op_type == "Reshape" and i == 1)
            or (node.op_type in ("Cast", "Identity") and _only_for_reshape(node.outputs[0]))
            for node, i in uses
        )
    )


def _boundary(
    reference: Network, candidate: Network, given: dict[str, str], found: Alignment
) -> None:
    known = {public_name(v) for v in [*reference.ir.graph.inputs, *reference.ir.graph.outputs]} | {
        str(v.name) for n in reference.ir.graph for v in [*n.outputs, *reference.ir.graph.inputs]
    }
    unknown = [n for n in given if n not in known]
    if unknown:
        raise wrong_call(
            f"the map names tensors that the reference does not have: {', '.join(unknown[:5])}"
        )
    found.inputs = _ports(reference.ir.graph.inputs, candidate.ir.graph.inputs, given)
    taken = {c for _, c in found.inputs}
    left = [
        public_name(v) for v in candidate.ir.graph.inputs if str(v.name) not in taken and v.uses()
    ]
    if left:
        raise NothingComparedError(
            Diagnostic(
                "N402",
                f"these inputs of the candidate have no counterpart: {', '.join(left)}",
                help="name the counterparts with --map FILE",
            )
        )
    found.outputs = _ports(reference.ir.graph.outputs, candidate.ir.graph.outputs, given)
    if not found.outputs:
        raise NothingComparedError(
            Diagnostic(
                "N402",
                "the models have no output in common",
                help="name the counterparts with --map FILE",
            )
        )


def _ports(
    mine: Iterable[ir.Value], theirs: Iterable[ir.Value], given: dict[str, str]
) -> list[tuple[str, str]]:
    """Pair inputs or outputs by the map, by public name (the n-th occurrence of a repeated one),
    and then, if both sides have equally many left, by order where shapes agree.
    """
    left, right = list(mine), list(theirs)
    pairs: list[tuple[ir.Value, ir.Value]] = []
    names = [{}, {}] if not right else [_numbered(left), _numbered(right)]
    for name, r in names[0].items():
        c = names[1].get(given.get(name, given.get(str(r.name), name)))
        if c is not None:
            pairs.append((r, c))
    used_r, used_c = {r for r, _ in pairs}, {c for _, c in pairs}
    rest_r, rest_c = [v for v in left if v not in used_r], [v for v in right if v not in used_c]
    if len(rest_r) == len(rest_c) and all(
        comparable(r, c) for r, c in zip(rest_r, rest_c, strict=True)
    ):
        pairs.extend(zip(rest_r, rest_c, strict=True))
    order = {v: i for i, v in enumerate(left)}
    return [(str(r.name), str(c.name)) for r, c in sorted(pairs, key=lambda p: order[p[0]])]


def _numbered(values: Sequence[ir.Value]) -> dict[str, ir.Value]:
    return dict(zip(unique([public_name(v) for v in values]), values, strict=True))
