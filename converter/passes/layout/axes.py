"""Permutations of axes, and their propagation through operators that merge, split, drop or insert
axes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from converter.record import record

Perm = tuple[int, ...]
Dim = int | str | None


def identity(rank: int) -> Perm:
    """Return the permutation that changes nothing."""
    return tuple(range(rank))


def inverse(perm: Sequence[int]) -> Perm:
    """Return the stored position of each canonical axis."""
    result = [0] * len(perm)
    for i, a in enumerate(perm):
        result[a] = i
    return tuple(result)


def between(stored: Perm, wanted: Perm) -> Perm:
    """Return the `perm` of the Transpose that converts one order to the other."""
    where = inverse(stored)
    return tuple(where[a] for a in wanted)


def through_transpose(stored: Perm, perm: Sequence[int]) -> Perm:
    """Return the order of Transpose(x, perm) if x is stored in `stored` and no data is moved."""
    where = inverse(perm)
    return tuple(where[a] for a in stored)


def moves_nothing(stored: Perm, wanted: Perm, dims: Sequence[Dim]) -> bool:
    """Return whether only axes of size 1 are permuted, which a Reshape can do."""
    return [a for a in stored if dims[a] != 1] == [a for a in wanted if dims[a] != 1]


@record
class Reassociation:
    """The correspondence of axes of an operator that changes the rank: each run of input axes
    becomes a run of output axes, both in canonical order.

    Axes in no run have size 1, or are reduced, and may be stored at any position. [N,C,H,W] ->
    [N,g,C/g,H*W] has the runs (0)-(0), (1)-(1,2), (2,3)-(3).
    """

    runs: tuple[tuple[Perm, Perm], ...]
    in_rank: int
    out_rank: int

    def forward(self, stored: Perm, wanted: Perm | None = None) -> Perm | None:
        """Return the order of the output if the input is stored in `stored`; None if data would
        have to be moved.

        Axes outside the runs follow `wanted` if the others agree with it.
        """
        return _carry(self.runs, stored, self.out_rank, wanted)

    def backward(self, stored: Perm) -> Perm | None:
        """Return an input order that results in `stored`; None if there is none."""
        return _carry(tuple((b, a) for a, b in self.runs), stored, self.in_rank, None)


def _carry(
    runs: Sequence[tuple[Perm, Perm]], stored: Perm, rank: int, wanted: Perm | None
) -> Perm | None:
    where = inverse(stored)
    ordered = sorted(runs, key=lambda run: where[run[0][0]])
    members = {a for run, _ in runs for a in run}
    if [a for a in stored if a in members] != [a for run, _ in ordered for a in run]:
        return None
    order = [a for _, run in ordered for a in run]
    if wanted is not None and [a for a in wanted if a in set(order)] == order:
        return wanted
    return _fill(order, rank)


def _fill(order: Iterable[int], rank: int) -> Perm:
    """Insert the missing axes, each after its predecessor."""
    result = list(order)
    for a in range(rank):
        if a not in result:
            result.insert(result.index(a - 1) + 1 if a else 0, a)
    return tuple(result)


def kept(rank: int, dropped: Iterable[int]) -> Reassociation:
    """Return the correspondence of an operator that drops axes and keeps the order of the
    others.
    """
    gone = set(dropped)
    stay = [a for a in range(rank) if a not in gone]
    return Reassociation(tuple(((a,), (i,)) for i, a in enumerate(stay)), rank, len(stay))


def reshape(before: Sequence[Dim], after: Sequence[Dim]) -> Reassociation | None:
    """Return the correspondence of a Reshape: the shortest groups of axes with equal products.

    None if unknown dimensions prevent it.
    """
    a = [i for i, d in enumerate(before) if d != 1]
    b = [i for i, d in enumerate(after) if d != 1]
    if any(d is None or d == 0 for d in (*before, *after)):
        return None
    runs: list[tuple[Perm, Perm]] = []
    i = j = 0
    while i < len(a) and j < len(b):
        ends = _run([before[x] for x in a[i:]], [after[x] for x in b[j:]])
        if ends is None:
            return None
        runs.append((tuple(a[i : i + ends[0]]), tuple(b[j : j + ends[1]])))
        i, j = i + ends[0], j + ends[1]
    return (
        Reassociation(tuple(runs), len(before), len(after)) if i == len(a) and j == len(b) else None
    )


def _run(before: list[Dim], after: list[Dim]) -> tuple[int, int] | None:
    """Return the number of dimensions on either side that form the first group."""
    left, right = before[0], after[0]
    i = j = 1
    while left != right:
        if not isinstance(left, int) or not isinstance(right, int):
            return None
        side, at = (before, i) if left < right else (after, j)
        if at == len(side) or not isinstance(side[at], int):
            return None
        if left < right:
            left, i = left * int(side[at]), i + 1  # type: ignore[arg-type]
        else:
            right, j = right * int(side[at]), j + 1  # type: ignore[arg-type]
    return i, j
