"""Fold the layers of a drawing: by the parts of their names, by the bodies of loops and branches,
by the layers of the file, and, if many remain side by side, by their order.

A drawing is laid out scope by scope, so no scope may hold more than MOST.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from converter.io.strict_json import Json

MOST = 64  # boxes side by side in one scope
PART = 40  # boxes in a part of a long row
END = 16  # characters of a layer's name in the name of a part
FEWEST = 3  # layers that justify a scope of their own
PREFIX, LAYER, BODY, RUN = "prefix", "layer", "body", "part"
Step = tuple[str, str]  # kind and name of a scope
Edge = tuple[int, int]


@dataclass
class Scope:
    """A scope; its `children` are indices of layers (int) and scopes, in the order of execution."""

    name: str
    kind: str
    children: list[int | Scope] = field(default_factory=list)
    inner: dict[Step, Scope] = field(default_factory=dict)

    def units(self) -> int:
        """Return the number of layers; the operators of one layer of the file count once."""
        return sum(
            c.units() if isinstance(c, Scope) and c.kind != LAYER else 1 for c in self.children
        )

    def leaves(self) -> list[int]:
        """Return the boxes in the scope and in all scopes inside of it."""
        found: list[int] = []
        for c in self.children:
            if isinstance(c, Scope):
                found.extend(c.leaves())
            else:
                found.append(c)
        return found


@dataclass
class Folded:
    """The `scopes` as {"name", "kind", "parent", "closed"}, with the parent -1 for the drawing
    itself; `of` has the scope of each layer. A closed scope is initially folded.
    """

    scopes: list[Json]
    of: list[int]


def fold(
    paths: Sequence[Sequence[Step]],
    kinds: Sequence[str],
    names: Sequence[str],
    edges: Iterable[Edge],
) -> Folded:
    """Fold the layers. `paths` has the scopes around each layer, from the outside, `kinds` its
    operator, `names` its name; the layers are in the order of execution, which `edges` (pairs of
    indices) follow.
    """
    root = Scope("", PREFIX)
    for index, path in enumerate(paths):
        at = root
        for step in path:
            if step not in at.inner:
                at.inner[step] = Scope(step[1], step[0])
                at.children.append(at.inner[step])
            at = at.inner[step]
        at.children.append(index)
    _dissolve(root, kinds)
    _cut(root, list(edges))
    return _numbered(root, names)


def _dissolve(scope: Scope, kinds: Sequence[str]) -> None:
    """Remove scopes by name that hold too few layers, layers of one operator only, or layers that
    are far apart: such a prefix denotes a kind of layers, not a part of the network.
    """
    kept: list[int | Scope] = []
    for child in scope.children:
        if isinstance(child, int):
            kept.append(child)
            continue
        _dissolve(child, kinds)
        if child.kind == PREFIX and not _worth(child, kinds):
            kept.extend(child.children)
        else:
            kept.append(_joined(child))
    scope.children = sorted(kept, key=_first)
    only = scope.children[0] if len(scope.children) == 1 else None
    if isinstance(only, Scope) and only.kind == PREFIX and not scope.name:
        scope.children = only.children  # a scope around everything


def _worth(scope: Scope, kinds: Sequence[str]) -> bool:
    leaves = scope.leaves()
    return (
        scope.units() >= FEWEST
        and len({kinds[i] for i in leaves}) > 1
        and max(leaves) - min(leaves) <= 2 * len(leaves) + 8
    )


def _joined(scope: Scope) -> Scope:
    """Merge a scope with its only child if both are scopes by name."""
    while scope.kind == PREFIX and len(scope.children) == 1:
        (child,) = scope.children
        if not isinstance(child, Scope) or child.kind != PREFIX:
            break
        scope = Scope(f"{scope.name}/{child.name}", PREFIX, child.children)
    return scope


def _first(child: int | Scope) -> int:
    return child if isinstance(child, int) else min(child.leaves())


def _cut(scope: Scope, edges: Sequence[Edge]) -> None:
    """Cut long sequences into parts, and these into parts again, where few tensors pass."""
    inner: dict[int, int] = {}  # layer -> index among the children
    for i, c in enumerate(scope.children):
        for leaf in c.leaves() if isinstance(c, Scope) else (c,):
            inner[leaf] = i
    here = [(a, b) for a, b in edges if a in inner and b in inner]
    for i, c in enumerate(scope.children):
        if isinstance(c, Scope):
            _cut(c, [(a, b) for a, b in here if inner[a] == i == inner[b]])
    while len(scope.children) > MOST:
        links = [(inner[a], inner[b]) for a, b in here]
        bounds = _bounds(len(scope.children), links)
        starts = [start for start, _ in bounds]
        inner = {leaf: bisect_right(starts, index) - 1 for leaf, index in inner.items()}
        scope.children = [Scope("", RUN, scope.children[start:stop]) for start, stop in bounds]


def _bounds(count: int, links: Sequence[Edge]) -> list[Edge]:
    """Return ranges of about PART children whose boundaries few edges cross."""
    crossing = [0] * (count + 1)
    for a, b in Counter((min(x, y), max(x, y)) for x, y in links):
        if a != b:
            crossing[a + 1] += 1
            crossing[b + 1 if b + 1 <= count else count] -= 1
    for i in range(1, count + 1):
        crossing[i] += crossing[i - 1]
    bounds, start = [], 0
    while count - start > PART * 1.4:
        window = range(start + int(PART * 0.6), min(start + int(PART * 1.4), count - 1) + 1)
        cut = min(window, key=lambda i: (crossing[i], abs(i - start - PART)))
        bounds.append((start, cut))
        start = cut
    return [*bounds, (start, count)]


def _range(leaves: Sequence[int], names: Sequence[str]) -> str:
    """Name a part by its first and its last layer."""
    ends = [_short(names[i]) for i in (min(leaves), max(leaves))]
    return " … ".join(dict.fromkeys(ends))


def _short(name: str) -> str:
    """Return the end of a name, where it differs from others."""
    name = name.partition(";")[0]
    return name if len(name) <= END else "…" + name[-END:]


def _numbered(root: Scope, names: Sequence[str]) -> Folded:
    scopes: list[Json] = []
    of = [-1] * len(names)

    def enter(scope: Scope, index: int) -> None:
        for child in scope.children:
            if isinstance(child, int):
                of[child] = index
                continue
            leaves = child.leaves()
            name = child.name or _range(leaves, names)
            closed = child.kind == LAYER
            scopes.append({"name": name, "kind": child.kind, "parent": index, "closed": closed})
            enter(child, len(scopes) - 1)

    enter(root, -1)
    return Folded(scopes, of)
