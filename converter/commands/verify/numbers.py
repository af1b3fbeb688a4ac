"""Tensors that no name and no structure aligns, found by their numbers.

The candidate runs once on the reference's numbers: wherever one of its tensors is aligned, the
reference's takes its place. What is not wrong by itself then has the numbers of its counterpart,
below a fault, too, and whatever the layers in between are called or made of.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from converter.commands.verify.align import Alignment, Side, comparable, extended
from converter.commands.verify.program import CannotRun, Program
from converter.graph.infer import Array, Arrays
from converter.graph.network import Network

CLOSE = 1e-4  # of the largest number of a tensor
ROUNDS = 8
LARGEST = 1 << 28  # bytes of tensors that are held for this; larger ones stay as they are
CHUNK = 64  # tensors that one session computes


def more_aligned(
    models: tuple[Network, Network],
    programs: tuple[Program, Program],
    alignment: Alignment,
    feeds: Mapping[str, Array],
    others: Mapping[str, Array],
) -> Alignment:
    """The alignment with what the numbers on one feed (by value name, of either side) tell."""
    mine, theirs = programs
    sides = Side(models[0].ir.graph), Side(models[1].ir.graph)
    expected = _values(mine, sorted(sides[0].values), feeds, feeds)
    for _ in range(ROUNDS):
        if not alignment.only_reference or not alignment.only_candidate:
            return alignment
        given = {c: expected[r] for r, c in alignment.pairs.items() if r in expected}
        found = _values(theirs, alignment.only_candidate, others, given)
        pairs = _matched(
            {n: expected[n] for n in alignment.only_reference if n in expected},
            found,
            lambda r, c: comparable(sides[0].values[r], sides[1].values[c]),
            lambda n, side: _operator(sides[side], n),
        )
        if not pairs:
            return alignment
        alignment = extended(*models, alignment, pairs, "numbers")
    return alignment


def _operator(side: Side, name: str) -> str:
    node = side.values[name].producer()
    return "" if node is None else node.op_type


def _values(
    program: Program, names: Sequence[str], feeds: Mapping[str, Array], given: Mapping[str, Array]
) -> Arrays:
    """The tensors `names`, as far as they can be computed and held; `given` are not computed."""
    known: Arrays = {**feeds, **given}
    wanted = sorted(
        (
            n
            for n in names
            if n in program.values and n not in known and program.node(n) in program.place
        ),
        key=lambda n: program.place[program.values[n].producer()],  # type: ignore[index]
    )
    found: Arrays = {}
    held = 0
    for start in range(0, len(wanted), CHUNK):
        piece = program.piece(wanted[start : start + CHUNK], known.keys())
        try:
            session = program.compile(piece, optimise=False)
            results = session.run(known)
        except (CannotRun, KeyError):
            continue
        for n, array in zip(piece.targets, results, strict=True):
            found[n] = known[n] = array
            held += array.nbytes
        if held > LARGEST:
            break
    return found


def _matched(
    mine: Arrays,
    theirs: Arrays,
    fit: Callable[[str, str], bool],
    operator: Callable[[str, int], str],
) -> list[tuple[str, str]]:
    """Pairs that only fit each other; of several with the same numbers, those of one operator."""
    by_size: dict[int, list[str]] = defaultdict(list)
    for c, y in theirs.items():
        if _tells(y):
            by_size[y.size].append(c)
    fits: dict[str, list[str]] = {
        r: [c for c in by_size[x.size] if _close(x, theirs[c]) and fit(r, c)]
        for r, x in mine.items()
        if _tells(x)
    }
    pairs = _mutual(fits)
    done, used = {r for r, _ in pairs}, {c for _, c in pairs}
    alike = {
        r: [c for c in cs if c not in used and operator(r, 0) == operator(c, 1)]
        for r, cs in fits.items()
        if r not in done
    }
    return [*pairs, *_mutual(alike)]


def _mutual(fits: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    count: dict[str, int] = defaultdict(int)
    for cs in fits.values():
        for c in cs:
            count[c] += 1
    return [(r, cs[0]) for r, cs in fits.items() if len(cs) == 1 and count[cs[0]] == 1]


def _tells(array: Array) -> bool:
    """Whether the numbers of a tensor are its own: not all the same, as zeros are."""
    if array.dtype.kind != "f" or array.size < 2:
        return False
    return bool(np.isfinite(array).all() and np.ptp(array) > 0)


def _close(x: Array, y: Array) -> bool:
    if x.dtype.kind != y.dtype.kind:
        return False
    a, b = x.reshape(-1).astype(np.float64), y.reshape(-1).astype(np.float64)
    return bool(np.max(np.abs(a - b)) <= CLOSE * np.max(np.abs(a)))
