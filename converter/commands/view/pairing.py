"""Pair the layers of two drawings, and mark their differences and errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher

import onnx_ir as ir

from converter.commands.diff import partners
from converter.commands.report.wrong import errors
from converter.commands.verify.align import Alignment, Side, align
from converter.commands.verify.cause import causes, kind, layer_of
from converter.commands.verify.result import INHERITED, WRONG, Result, Tensor
from converter.commands.view.drawing import Drawing
from converter.errors import NothingComparedError
from converter.graph.network import Network
from converter.graph.walk import all_nodes, subgraphs
from converter.io.strict_json import Json

# layers of either model, and names of the second model's tensors -> names of the first's
Pair = tuple[ir.Node, ir.Node, Mapping[str, str]]
CAUSES = 8  # maximum number of causes shown for a layer


def pair(
    a: Network,
    b: Network,
    drawn: tuple[Drawing, Drawing],
    given: Mapping[str, str] | None = None,
    result: Result | None = None,
) -> dict[str, int]:
    """Mark both drawings: "twin" is the index of the paired layer in the other drawing, "state" is
    "changed" with "causes", or "only" if there is no paired layer. Return the counts of the states.
    Layers are paired as a comparison pairs them; the remaining ones by names that are unique.

    Models without any common output are not marked.
    """
    try:
        found = align(a, b, given)
    except NothingComparedError:
        found = Alignment()
    if result is not None:  # it may have paired more than names and structure do
        found.pairs.update((t.reference, t.candidate) for t in result.tensors)
    left, right = drawn
    back = found.back
    sides = Side(a.ir.graph), Side(b.ir.graph)
    same = partners(*sides, found)
    same |= _namesakes(*sides, same)
    pairs: list[Pair] = [(n, m, back) for n, m in same.items()]
    pairs += [found for n, m in same.items() for found in _bodies(n, m, back)]
    counts = {"same": 0, "changed": 0, "only in the first": 0, "only in the second": 0}
    for n, m, known in pairs:
        i, j = left.places.get(n), right.places.get(m)
        if i is None or j is None:
            continue
        one, other = left.nodes[i], right.nodes[j]
        if n not in left.folded and m not in right.folded:
            one["twin"], other["twin"] = j, i
        reasons = [c.text for c in causes([n], [m], known)]
        for data in (one, other) if reasons else ():
            both = dict.fromkeys([*data.get("causes", ()), *reasons])
            data |= {"state": "changed", "causes": _first([*both])}
    states = [n.get("state", "") for n in left.nodes if "twin" in n]
    counts["changed"], counts["same"] = states.count("changed"), states.count("")
    for side, drawing, paired, which in (
        (sides[0], left, {n for n, _, _ in pairs}, "first"),
        (sides[1], right, {m for _, m, _ in pairs}, "second"),
    ):
        inner = [x for n in side.nodes for g in subgraphs(n) for x in all_nodes(g)]
        for node in [*side.nodes, *inner]:
            if node not in paired and node not in drawing.folded:
                drawing.nodes[drawing.places[node]]["state"] = "only"
                counts[f"only in the {which}"] += 1
    _ports(drawn)
    return counts


def _bodies(n: ir.Node, m: ir.Node, back: Mapping[str, str]) -> Iterator[Pair]:
    """Yield the pairs of nodes in the bodies of two loops or branches: the same operators in the
    same order, and differing runs of equal length.
    """
    for key, attribute in n.attributes.items():
        other = m.attributes.get(key)
        if other is None or {attribute.type, other.type} != {ir.AttributeType.GRAPH}:
            continue
        a, b = attribute.as_graph(), other.as_graph()
        left, right = list(a), list(b)
        pairs: list[tuple[ir.Node, ir.Node]] = []
        matcher = SequenceMatcher(None, [*map(kind, left)], [*map(kind, right)], autojunk=False)
        for _, i, i_end, j, j_end in matcher.get_opcodes():
            if i_end - i == j_end - j:
                pairs += zip(left[i:i_end], right[j:j_end], strict=True)
        known = {**back, **_named(a.inputs, b.inputs)}
        for x, y in pairs:
            known |= _named(x.outputs, y.outputs)
        for x, y in pairs:
            yield x, y, known
            yield from _bodies(x, y, known)


def _named(a: Iterable[ir.Value], b: Iterable[ir.Value]) -> dict[str, str]:
    return {str(y.name): str(x.name) for x, y in zip(a, b, strict=False)}


def _namesakes(a: Side, b: Side, paired: dict[ir.Node, ir.Node]) -> dict[ir.Node, ir.Node]:
    """Pair the remaining nodes whose layers have equal names in both models."""
    taken = set(paired.values())
    left, right = (
        {layer: nodes[0] for layer, nodes in _by_layer(side).items() if len(nodes) == 1}
        for side in (a, b)
    )
    return {
        n: right[layer]
        for layer, n in left.items()
        if layer in right and n not in paired and right[layer] not in taken
    }


def _by_layer(side: Side) -> dict[str, list[ir.Node]]:
    found: dict[str, list[ir.Node]] = {}
    for node in side.nodes:
        found.setdefault(layer_of(node), []).append(node)
    return found


def _first(texts: list[str]) -> list[str]:
    more = len(texts) - CAUSES
    return [*texts[:CAUSES], f"and {more} more"] if more > 0 else texts


def _ports(drawn: tuple[Drawing, Drawing]) -> None:
    """Pair inputs and outputs of the same name."""
    known = {(n["port"], n["n"]): i for i, n in enumerate(drawn[1].nodes) if "port" in n}
    for i, node in enumerate(drawn[0].nodes):
        other = known.get((node.get("port"), node["n"]))
        if other is not None:
            node["twin"], drawn[1].nodes[other]["twin"] = other, i


def color(result: Result, drawn: tuple[Drawing, Drawing]) -> dict[str, int]:
    """Mark the layers of both drawings with the errors of a comparison, and the named layers with
    the causes. Return the counts of the statuses.

    A layer that is wrong by itself is "wrong", also if its structure differs; for other layers the
    structural difference takes precedence.
    """
    sides = [
        ({t.reference: t for t in result.tensors}, drawn[0]),
        ({t.candidate: t for t in result.tensors}, drawn[1]),
    ]
    for known, drawing in sides:
        for node in drawing.nodes:
            tensor = next((t for o in node.get("out", ()) if (t := known.get(o[1]))), None)
            if tensor is not None:
                node |= _error(tensor, node.get("state", ""))
    places = _by_name(drawn[0])
    for f in result.findings:
        index = places.get((f.layer, f.kind), places.get(f.tensor))
        if index is None:
            continue
        measured = places.get(f.tensor, index)
        _mark(drawn, measured, INHERITED)  # it may be after the layer with the cause
        node = _mark(drawn, index, WRONG)
        node["causes"] = _first(list(dict.fromkeys([*f.causes, *node.get("causes", [])])))
    return result.counts()


def _mark(drawn: tuple[Drawing, Drawing], index: int, state: str) -> Json:
    """Set the state of a layer of the first drawing, which is returned, and of its counterpart."""
    node = drawn[0].nodes[index]
    for data in (node, *([drawn[1].nodes[node["twin"]]] if "twin" in node else [])):
        data["state"] = state
    return node


def _by_name(drawing: Drawing) -> dict[str | tuple[str, str], int]:
    """Return the nodes by the name and operator of their layers, and by their tensors."""
    found: dict[str | tuple[str, str], int] = {}
    for node, index in drawing.places.items():
        found.setdefault((layer_of(node), kind(node)), index)
        found.update((str(o.name), index) for o in node.outputs)
    return found


def _error(t: Tensor, state: str) -> Json:
    shown = t.status if t.status == WRONG or state not in ("changed", "only") else state
    data: Json = {"state": shown, "status": t.status, **errors(t)}
    for key, d in (("eo", t.own), ("et", t.total)):
        if d is not None and d.max_abs:
            data[key] = f"{d.abs_at_index:.3g}" + (
                f", tolerance {d.tolerance:.3g}" if d.tolerance else ""
            )
    return data
