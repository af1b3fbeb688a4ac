"""The rewriting of one graph in a single walk, in which each node reads the stored forms that it
needs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import onnx_ir as ir

from converter.graph import CHANNELS_LAST_DOMAIN, RESHAPES, channels_last
from converter.graph.build import Builder, builder_before
from converter.graph.infer import rank_of
from converter.graph.names import Names
from converter.graph.value import optional
from converter.graph.walk import all_nodes, discard, is_needed, replace_inputs, subgraphs
from converter.passes.layout import axes
from converter.passes.layout.axes import Dim, Perm, Reassociation
from converter.passes.layout.dense import flatten_into_dense
from converter.passes.layout.groups import (
    Groups,
    Other,
    Sensitive,
    Transposed,
    captured,
    data_of,
    is_constant,
)
from converter.passes.layout.materialized import Stored
from converter.passes.layout.reassociation import RankChange
from converter.passes.layout.rules import Free, dims_of
from converter.record import record

IMAGE = 4  # axes
PERMUTATION = (
    "netconv.permutation"  # of a graph input or output: stored axis i is canonical axis perm[i]
)


@record
class Direction:
    """The layout to which a graph is rewritten."""

    last: bool

    def target(self, rank: int) -> Perm:
        """Return the axis order of images in the new layout; fewer than three axes stay."""
        if rank < 3:
            return axes.identity(rank)
        return tuple(channels_last.to_nhwc(rank) if self.last else channels_last.to_nchw(rank))

    def sensitive(self, node: ir.Node) -> Sensitive | None:
        """Return the operands and results of a node that depend on the layout, or None."""
        if (
            channels_last.is_channels_last(node) == self.last
            or (found := channels_last.ports(node)) is None
        ):
            return None
        ranks = [rank_of(v) for v in data_of(node, *found)]
        if None in ranks or (self.last and any((r or 0) < 3 for r in ranks)):
            return None
        return Sensitive(*found)

    def exchange(self, node: ir.Node) -> None:
        """Replace the operator by its channels-last variant, or the other way round."""
        domain = channels_last.base_domain(node)
        node.attributes.pop("base_domain", None)
        if self.last and domain:
            node.attributes["base_domain"] = ir.AttrString("base_domain", domain)
        node.domain = CHANNELS_LAST_DOMAIN if self.last else domain


def take_name(new: ir.Value, old: ir.Value, names: Names) -> None:
    """Give `new` the name of the boundary value `old`, which it replaces."""
    name = old.name
    old.name = names.fresh(f"{name}_stored")
    new.name = name
    new.metadata_props.update(old.metadata_props)
    new.metadata_props.pop(PERMUTATION, None)
    old.metadata_props.clear()


class Rewriting:
    """The rewriting of one graph without its sub-graphs, which read canonical values of it."""

    def __init__(
        self, graph: ir.Graph, names: Names, direction: Direction, turns: Callable[[ir.Value], bool]
    ) -> None:
        """`turns(value)`: whether this input or output may be stored channels-last if the operators
        that use it prefer an image in that order.
        """
        self.graph, self.names, self.direction, self.turns = graph, names, direction, turns
        self.groups = Groups(graph, direction.sensitive, direction.target)
        self.stored = Stored()
        self.vanished: list[ir.Node] = []

    def run(self) -> None:
        """Rewrite the graph: its inputs, nodes and outputs."""
        for v in self.graph.inputs:
            if self._image(v):
                self._at_boundary(v)
                self.stored.keep(v, self.direction.target(IMAGE))
        for node in list(self.graph):
            self._node(node)
        self._outputs()
        self._clean()
        if not self.direction.last:
            self.stored.note_file_axes()

    def _image(self, value: ir.Value) -> bool:
        return rank_of(value) == IMAGE and self.groups.transposed(value) and self.turns(value)

    def _builder(self, node: ir.Node) -> Builder:
        return builder_before(node, self.names)

    def _node(self, node: ir.Node) -> None:
        kind = self.groups.kinds[node]
        if isinstance(kind, Free):
            self._free(node, kind)
        elif isinstance(kind, Sensitive):
            self._sensitive(node, kind)
        elif isinstance(kind, Transposed):
            self._transpose(node, kind)
        elif isinstance(kind, RankChange):
            self._rank_change(node, kind)
        elif kind.any_order:
            self._shape(node)
        else:
            self._canonical(node, kind)

    def _inputs(self, node: ir.Node, skip: Sequence[int] = ()) -> None:
        """Replace all inputs but `skip` by their canonical forms."""
        skipped, changes = set(skip), dict[int, ir.Value | None]()
        for i, v in enumerate(node.inputs):
            if v is not None and i not in skipped:
                value = self.stored.canonical(v, self._builder(node))
                if value is not v:
                    changes[i] = value
        replace_inputs(node, changes)

    @staticmethod
    def _read(node: ir.Node, index: int, value: ir.Value) -> None:
        if node.inputs[index] is not value:
            node.replace_input_with(index, value)

    def _canonical(self, node: ir.Node, kind: Other) -> None:
        self._inputs(node)
        outer = {v for v in captured(node)}
        found = {
            v: self.stored.canonical(v, self._builder(node))
            for v in sorted(outer, key=lambda v: str(v.name))
        }
        for body in subgraphs(node):
            for inner in all_nodes(body):
                for i, v in enumerate(inner.inputs):
                    if v is not None and v in found:
                        self._read(inner, i, found[v])
            for i, v in enumerate(body.outputs):
                if v in found and found[v] is not v:
                    body.outputs[i] = found[v]

    def _shape(self, node: ir.Node) -> None:
        """Take the Shape of the stored value, and permute its entries to canonical order."""
        x = node.inputs[0]
        assert x is not None
        perm, value = next(iter(self.stored.forms(x).items()))
        if node.op_type == "Shape" and perm != axes.identity(len(perm)):
            start = node.attributes["start"].as_int() if "start" in node.attributes else 0
            end = node.attributes["end"].as_int() if "end" in node.attributes else None
            b = self._builder(node)
            chosen = b.Gather(b.Shape(value), list(axes.inverse(perm)[start:end]))
            self._replace(node, (0,), chosen)
        else:
            self._read(node, 0, value)

    def _sensitive(self, node: ir.Node, kind: Sensitive) -> None:
        self._inputs(node, skip=kind.inputs)
        for i in kind.inputs:
            if (v := optional(node, i)) is not None:
                order = self.direction.target(rank_of(v) or 0)
                self._read(node, i, self.stored.form(v, order, self._builder(node)))
        self.direction.exchange(node)
        for out in data_of(node, (), kind.outputs):
            self.stored.keep(out, self.direction.target(rank_of(out) or 0))

    def _free(self, node: ir.Node, kind: Free) -> None:
        perm = self._order(node, kind)
        self._inputs(node, skip=kind.inputs)
        changes = dict[int, ir.Value | None]()
        for i in kind.inputs:
            v = optional(node, i)
            if v is not None:
                changes[i] = self.stored.operand(v, perm, self._builder(node))
        replace_inputs(node, {i: v for i, v in changes.items() if v is not node.inputs[i]})
        if perm != axes.identity(kind.rank):
            kind.remap(node, perm, self._builder(node))
            for i in kind.outputs:
                self.stored.keep(node.outputs[i], perm)

    def _order(self, node: ir.Node, kind: Free) -> Perm:
        """Return the order of the node's group; an undecided group takes the order in which most
        operands of its first member exist.
        """
        out = node.outputs[kind.outputs[0]]
        perm = self.groups.wanted(out)
        if perm is None:
            votes = Counter(
                p
                for v in data_of(node, kind.inputs)
                if rank_of(v) == kind.rank and not is_constant(v)
                for p in self.stored.forms(v)
            )
            perm = max(votes, key=lambda p: votes[p]) if votes else axes.identity(kind.rank)
            self.groups.fix(out, perm)
        return perm

    def _transpose(self, node: ir.Node, kind: Transposed) -> None:
        x = node.inputs[0]
        assert x is not None
        self.stored.view(node.outputs[0], x, kind.perm)
        self.vanished.append(node)

    def _rank_change(self, node: ir.Node, kind: RankChange) -> None:
        x, out = node.inputs[0], node.outputs[0]
        assert x is not None
        wanted = self.groups.wanted(out)
        forms = self.stored.forms(x)
        carried = {p: q for p in forms if (q := kind.reassociation.forward(p, wanted)) is not None}
        first, source = next(iter(forms.items()))
        if (
            not carried
            and node.op_type in ("Reshape", "Flatten")
            and flatten_into_dense(node, first, source, self._builder)
        ):
            return
        b = self._builder(node)
        keeps_size = node.op_type in RESHAPES
        perm, result = self._way(kind.reassociation, carried, wanted, dims_of(out), keeps_size)
        if all(order == axes.identity(len(order)) for order in (perm, result)):
            self._inputs(node)
            return
        self._replace(node, result, kind.carry(b, self.stored.form(x, perm, b), perm, result))

    @staticmethod
    def _way(
        reassociation: Reassociation,
        carried: dict[Perm, Perm],
        wanted: Perm | None,
        dims: list[Dim],
        keeps_size: bool,
    ) -> tuple[Perm, Perm]:
        """Return the order of the input to read, and the resulting order of the output.

        Prefer an input order that leads to the wanted order without moving data. Otherwise the
        input is transposed first (other consumers may share that), unless the operator reduces its
        size; else any existing order is used.
        """
        for p, q in carried.items():
            if wanted is None or axes.moves_nothing(q, wanted, dims):
                return p, q
        if carried and not keeps_size:
            return next(iter(carried.items()))
        perm = reassociation.backward(wanted or axes.identity(reassociation.out_rank))
        if perm is None and carried:
            return next(iter(carried.items()))
        perm = perm or axes.identity(reassociation.in_rank)
        result = reassociation.forward(perm, wanted)
        assert result is not None
        return perm, result

    def _replace(self, node: ir.Node, perm: Perm, made: ir.Value) -> None:
        self.stored.replace(node.outputs[0], perm, made)
        self.vanished.append(node)

    def _outputs(self) -> None:
        b = Builder(self.graph, self.names)
        for i, v in enumerate(list(self.graph.outputs)):
            rank = rank_of(v)
            if rank is None:
                continue
            forms = self.stored.forms(v)
            perm, image = axes.identity(rank), self.direction.target(rank)
            if perm not in forms and image in forms and self._image(v):
                perm = image
            found = self.stored.form(v, perm, b)
            if found is not v:
                foreign = (
                    found.producer() is None
                    or found.graph is not self.graph
                    or found.is_graph_output()
                )
                found = b.Identity(found) if foreign else found
                self.graph.outputs[i] = found
                take_name(found, v, self.names)
                self.stored.names.pop(v, None)
            if perm != axes.identity(rank):
                self._at_boundary(found)

    def _at_boundary(self, value: ir.Value) -> None:
        value.metadata_props[PERMUTATION] = ",".join(map(str, self.direction.target(IMAGE)))

    def _clean(self) -> None:
        """Remove replaced nodes, and transfer names."""
        for node in reversed(self.vanished):
            if any(is_needed(o) for o in node.outputs):
                continue
            out = node.outputs[0]
            discard(node)
            heir = self.stored.names.get(out)
            if heir is not None and heir.producer() is not None and not heir.is_graph_output():
                name, out.name = out.name, None
                heir.name = name
