"""Shapes of a Reshape whose operand has changed: which element of the target follows which size.

A Reshape keeps the order of elements, so that sizes of operand and result form groups of equal
products: [2, 3, 224] -> [6, 224] has the groups 2*3 = 6 and 224 = 224. A group with a size that
changes shows how the result changes:

merged:     [4, 56] -> [224]: with 4 -> 8 in the operand, 448
split:      [224] -> [4, 56]: either may follow 224 -> 448, unless the 224 was merged from [4, 56]
            before; both are possible until the layers after it contradict one
size of 1:  [1, 512, 1, 1] -> [1, 512] with 1 -> 5 at the first axis: the 1 before the 512
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

MOST_OPTIONS = 16


class Pair(NamedTuple):
    """A size before and after the change."""

    old: int
    new: int

    @property
    def changed(self) -> bool:
        return self.old != self.new


Factors = tuple[Pair, ...]  # the sizes that a dimension was merged from, in order


def regrouped(dims: Sequence[Factors], target: Sequence[int]) -> list[list[Pair]]:
    """Return the possible sizes of a result of the shape `target`, whose operand has dimensions
    with these factors; none if no shape of this rank keeps the order of elements.
    """
    atoms = [a for factors in dims for a in factors]
    if math.prod(a.old for a in atoms) != math.prod(target) or 0 in target:
        return []
    choices = [*_groups(atoms, target), *_ones(atoms, target)]
    if any(not options for options in choices):
        return []
    found: list[list[Pair]] = []
    for chosen in itertools.islice(itertools.product(*choices), MOST_OPTIONS + 1):
        sizes = [Pair(n, n) for n in target]
        for part in chosen:
            for axis, pair in part:
                sizes[axis] = pair
        if sizes not in found:
            found.append(sizes)
    return found if len(found) <= MOST_OPTIONS else []


Part = list[tuple[int, Pair]]  # axes of the result with their sizes


def _groups(atoms: Sequence[Pair], target: Sequence[int]) -> Iterator[list[Part]]:
    """Yield, for each group of sizes of equal products, the sizes that its axes may have."""
    sources = [a for a in atoms if a.old != 1]
    axes = [i for i, n in enumerate(target) if n != 1]
    i = j = 0
    while j < len(axes):
        begin, first = i, j
        have, want = sources[i].old, target[axes[j]]
        i, j = i + 1, j + 1
        while have != want:
            if have < want:
                have, i = have * sources[i].old, i + 1
            else:
                want, j = want * target[axes[j]], j + 1
        group = sources[begin:i]
        if any(a.changed for a in group):
            yield _options(group, [(axis, target[axis]) for axis in axes[first:j]])


def _options(group: Sequence[Pair], axes: Sequence[tuple[int, int]]) -> list[Part]:
    """Return the sizes that the axes of one group may have."""
    if len(axes) == 1:
        (axis, old), *_ = axes
        return [[(axis, Pair(old, math.prod(a.new for a in group)))]]
    changed = [a for a in group if a.changed]
    aligned = _aligned(group, axes)
    if aligned is not None:
        return [aligned]
    if len(changed) > 1:
        return []
    old, new = changed[0]
    return [
        [(a, Pair(n, n * new // old if a == axis else n)) for a, n in axes]
        for axis, size in axes
        if size * new % old == 0
    ]


def _aligned(group: Sequence[Pair], axes: Sequence[tuple[int, int]]) -> Part | None:
    """Return the sizes of the axes of a group if no size that changes is split among them."""
    rest, found = list(group), []
    for axis, size in axes:
        left, new = size, 1
        while left > 1:
            a = rest.pop(0)
            if left % a.old == 0:
                left, new = left // a.old, new * a.new
                continue
            if a.changed or a.old % left:
                return None
            rest.insert(0, Pair(a.old // left, a.old // left))
            left, new = 1, new * left
        found.append((axis, Pair(size, new)))
    return found


def _ones(atoms: Sequence[Pair], target: Sequence[int]) -> Iterator[list[Part]]:
    """Yield, for each run of sizes of 1 with one that changes, the axes that it may be."""
    sources, before = _runs([a.old for a in atoms]), _runs(target)
    for product, positions in sources.items():
        changed = [k for k, i in enumerate(positions) if atoms[i].changed]
        axes = before.get(product, [])
        if not changed:
            continue
        if len(axes) == len(positions):
            yield [[(axes[k], atoms[positions[k]]) for k in changed]]
        elif len(changed) == 1:
            yield [[(axis, atoms[positions[changed[0]]])] for axis in axes]
        else:
            yield []


def _runs(sizes: Sequence[int]) -> dict[int, list[int]]:
    """Return the positions of sizes of 1, by the product of the sizes before them."""
    found: dict[int, list[int]] = {}
    product = 1
    for i, n in enumerate(sizes):
        product *= n
        if n == 1:
            found.setdefault(product, []).append(i)
    return found
