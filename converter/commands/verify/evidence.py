"""Evidence of a difference for a page: the wrong tensor on both sides, the distribution of its
errors, and the graph around the first wrong layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.commands.verify.cause import kind, layer_of
from converter.commands.verify.compare import compare, distance, same_shape
from converter.commands.verify.isolate import Unit
from converter.commands.verify.program import CannotRun, Program
from converter.commands.verify.result import INHERITED, WRONG, Finding, Tensor
from converter.graph.channels_last import as_in_file
from converter.graph.infer import Array, shape_of
from converter.graph.walk import constant_nodes, reads
from converter.io.strict_json import Json

SAMPLES = 3  # wrong layers whose tensors are shown
WINDOW = 6  # rows and columns of a tensor that are shown
PICTURED = 32  # layers around the first wrong one
Results = Sequence[Sequence[Array]]


@dataclass(frozen=True)
class Sample:
    """A part of one tensor on either side, around the largest difference.

    `corner` is the index of the first element shown; `reference` and `candidate` are rows (the last
    axis) of numbers or texts. `errors` counts elements by the power of ten of their absolute
    difference, `same` those without any, `infinite` those that are finite on one side only. `axes`
    has, for each file, the axes of the tensor in the order in which the file stores them; empty
    where it is the same.
    """

    tensor: str
    counterpart: str
    feed: str
    shape: tuple[int, ...]
    corner: tuple[int, ...]
    reference: tuple[tuple[Any, ...], ...]
    candidate: tuple[tuple[Any, ...], ...]
    errors: tuple[tuple[int, int], ...] = ()
    same: int = 0
    infinite: int = 0
    axes: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())


def of_layers(
    units: Sequence[Unit],
    mine: Program,
    theirs: Program,
    feeds: Sequence[tuple[str, dict[str, Array]]],
) -> list[Sample]:
    """Return the tensors of units, computed by either model from the reference's values, each on
    the feed with its largest difference. Tensors that cannot be computed or compared element by
    element are omitted.
    """
    try:
        computed = mine.tensors((n for u in units for n in u.reads), [f for _, f in feeds])
        found = []
        for u in units:
            piece = theirs.compile(u.theirs)
            pairs = [
                (name, values[u.name], piece.run(u.given_by(values, theirs))[0])
                for (name, _), values in zip(feeds, computed, strict=True)
            ]
            found.append(_worst(u.name, u.other, pairs))
    except CannotRun:
        return []
    return [s for s in found if s is not None]


def of_output(
    names: tuple[str, str], feeds: Sequence[str], mine: Sequence[Array], theirs: Sequence[Array]
) -> Sample | None:
    """Return one output of either model, on the feed with its largest difference."""
    return _worst(*names, list(zip(feeds, mine, theirs, strict=True)))


def axes_in_file(graph: ir.Graph, name: str) -> tuple[int, ...]:
    """Return the axes of a tensor in the order of its file; empty if that is the same."""
    value = next((o for n in graph for o in n.outputs if o.name == name), None)
    rank = None if value is None or value.shape is None else len(value.shape)
    found = [] if value is None or rank is None else as_in_file(value, range(rank))
    return () if found == sorted(found) else tuple(found)


def _worst(name: str, other: str, pairs: Sequence[tuple[str, Array, Array]]) -> Sample | None:
    alike = [
        (feed, a, b) for feed, x, y in pairs if (b := same_shape(a := np.asarray(x), y)) is not None
    ]
    if len(alike) < len(pairs) or not alike or not alike[0][1].size:
        return None
    feed, a, b = max(alike, key=lambda p: compare(p[1], p[2]).max_abs)
    return _sample(name, other, feed, a, b)


def _sample(name: str, other: str, feed: str, a: Array, b: Array) -> Sample:
    at = (compare(a, b).index or (0,) * a.ndim)[: a.ndim]
    corner, part = _window(a.shape, at)
    shown = (
        tuple(tuple(v.item() if hasattr(v, "item") else str(v) for v in row) for row in rows)
        for rows in (_rows(x[part]) for x in (a, b))
    )
    reference, candidate = shown
    if a.dtype.kind in "OUS" or b.dtype.kind in "OUS":
        return Sample(name, other, feed, a.shape, corner, reference, candidate)
    delta = distance(a, b)
    finite = delta[np.isfinite(delta)]
    powers = np.floor(np.log10(finite[finite > 0])).astype(int)
    errors = tuple(sorted(Counter(powers.tolist()).items()))
    same = int((finite == 0).sum())
    infinite = delta.size - finite.size
    return Sample(
        name, other, feed, a.shape, corner, reference, candidate, errors, same, int(infinite)
    )


def _window(
    shape: Sequence[int], at: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int | slice, ...]]:
    """Return a window of the last two axes around an element: the index of its first element, and
    the slices that cut it out.
    """
    first = max(len(shape) - 2, 0)
    corner = list(at)
    part: list[int | slice] = list(at)
    for axis in range(first, len(shape)):
        start = max(0, min(at[axis] - WINDOW // 2, shape[axis] - WINDOW))
        corner[axis] = start
        part[axis] = slice(start, start + WINDOW)
    return tuple(corner), tuple(part)


def _rows(part: Array) -> Array:
    part = np.asarray(part)
    return part.reshape(-1, part.shape[-1]) if part.ndim else part.reshape(1, 1)


def around(graph: ir.Graph, finding: Finding | None, tensors: Sequence[Tensor]) -> Json | None:
    """Return the layers next to the first wrong one, nearest first, as {"nodes", "edges", "more"};
    None if no layer is wrong.

    A node has its layer, operator, location, shape, and the status of its tensor; an edge is a pair
    of indices in "nodes" and the name of the tensor. "more" is true if there are other layers.
    """
    nodes = list(graph)
    if finding is None or not 0 <= finding.index < len(nodes):
        return None
    chosen = _near(nodes[finding.index], constant_nodes(graph))
    order = [n for n in nodes if n in chosen]
    known = {t.reference: t for t in tensors}
    place = {n: i for i, n in enumerate(order)}
    edges = [
        [place[source], i, str(v.name)]
        for i, n in enumerate(order)
        for v in dict.fromkeys(reads(n))
        if (source := v.producer()) in place and source is not None
    ]
    index = {n: i for i, n in enumerate(nodes)}
    pictured = [_pictured(n, index[n], known) for n in order]
    # the named layer may be before the tensor that could be compared
    for p in pictured:
        if p["tensor"] == finding.tensor and p["status"] == WRONG:
            p["status"] = INHERITED
    pictured[place[nodes[finding.index]]]["status"] = WRONG
    return {
        "nodes": pictured,
        "edges": edges,
        "more": len(nodes) > len(order),
    }


def _pictured(node: ir.Node, index: int, known: Mapping[str, Tensor]) -> Json:
    tensor = next((t for o in node.outputs if (t := known.get(str(o.name))) is not None), None)
    shape = shape_of(node.outputs[0]) if node.outputs else None
    return {
        "index": index,
        "layer": layer_of(node),
        "kind": kind(node),
        "shape": None if shape is None else list(shape),
        "tensor": str(node.outputs[0].name) if node.outputs else "",
        "status": "" if tensor is None else tensor.status,
    }


def _near(start: ir.Node, fixed: Collection[ir.Node]) -> set[ir.Node]:
    """Return the layers reached through the fewest tensors in either direction, ignoring
    constants, and those that compute constants, `fixed`.
    """
    chosen, border = {start}, [start]
    while border and len(chosen) < PICTURED:
        beside = [
            n
            for at in border
            for n in [
                *(v.producer() for v in reads(at)),
                *(u.node for o in at.outputs for u in o.uses()),
            ]
        ]
        border = []
        for n in beside:
            if (
                n is not None
                and n.graph is start.graph
                and n not in chosen
                and n not in fixed
                and len(chosen) < PICTURED
            ):
                chosen.add(n)
                border.append(n)
    return chosen
