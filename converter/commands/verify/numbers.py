"""Match tensors that neither name nor structure aligns by their numbers.

The candidate runs once with the reference's numbers: each of its aligned tensors is replaced by the
reference's. All layers that are not wrong by themselves then have the numbers of their
counterparts, even after a fault and with other names and operators between.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from converter.commands.verify.align import Alignment, Side, comparable, extended, without
from converter.commands.verify.program import CannotRun, Program
from converter.graph.infer import Array, Arrays
from converter.graph.network import Network

CLOSE = 1e-4  # relative to the largest number of a tensor
UNITS = 8.0  # ratio beyond which two tensors of a quantized network are not the same
CERTAIN = ("output", "map")
EXACT = 0.01  # share of the elements of a quantized tensor
OFF = 0.25  # share of the elements of a quantized tensor: as one wrong channel of four
ROUNDS = 8
LARGEST = 1 << 28  # bytes of tensors that are kept for this; larger ones remain unmatched
CHUNK = 64  # tensors that one session computes


def more_aligned(
    models: tuple[Network, Network],
    programs: tuple[Program, Program],
    alignment: Alignment,
    feeds: Mapping[str, Array],
    others: Mapping[str, Array],
) -> Alignment:
    """Extend the alignment by pairs whose numbers agree on one feed."""
    mine, theirs = programs
    sides = Side(models[0].ir.graph), Side(models[1].ir.graph)
    expected = _values(mine, sorted(sides[0].values), feeds, feeds)
    if mine.quantized:
        chain = _values(theirs, list(alignment.pairs.values()), others, others)
        alignment = without(
            alignment,
            {
                r
                for r, c in alignment.pairs.items()
                if r in expected
                and c in chain
                and alignment.how.get(r) not in CERTAIN
                and in_other_units(expected[r], chain[c])
            },
        )
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


def in_other_units(base: Array, result: Array) -> bool:
    """Return whether two tensors have different scales, as sums of quantized values and the real
    numbers that they represent do.
    """
    if base.dtype.kind not in "fiu" or result.dtype.kind not in "fiu":
        return False
    with np.errstate(all="ignore"):
        ratio = np.linalg.norm(result.astype(float)) / np.linalg.norm(base.astype(float))
    return not 1 / UNITS < ratio < UNITS


def _operator(side: Side, name: str) -> str:
    node = side.values[name].producer()
    return "" if node is None else node.op_type


def _values(
    program: Program, names: Sequence[str], feeds: Mapping[str, Array], given: Mapping[str, Array]
) -> Arrays:
    """Compute the tensors `names`, as far as they can be computed and kept; `given` are not
    computed.
    """
    known: Arrays = {**feeds, **given}
    wanted = sorted(
        (
            n
            for n in names
            if n in program.values and n not in known and program.node(n) in program.order
        ),
        key=lambda n: program.order[program.values[n].producer()],  # type: ignore[index]
    )
    found: Arrays = {}
    held = 0
    for start in range(0, len(wanted), CHUNK):
        piece = program.piece(wanted[start : start + CHUNK], known.keys())
        try:
            session = program.compile(piece, optimize=False)
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
    """Return pairs that match only each other; of several with the same numbers, those of one
    operator. Close matches are made first.
    """
    by_size: dict[int, list[str]] = defaultdict(list)
    for c, y in theirs.items():
        if _is_distinctive(y):
            by_size[y.size].append(c)
    pairs: list[tuple[str, str]] = []
    for off in (EXACT, OFF):
        done, used = {r for r, _ in pairs}, {c for _, c in pairs}
        fits: dict[str, list[str]] = {
            r: [
                c
                for c in by_size[x.size]
                if c not in used and _close(x, theirs[c], off) and fit(r, c)
            ]
            for r, x in mine.items()
            if r not in done and _is_distinctive(x)
        }
        found = _mutual(fits)
        done, used = {r for r, _ in found}, {c for _, c in found}
        alike = {
            r: [c for c in cs if c not in used and operator(r, 0) == operator(c, 1)]
            for r, cs in fits.items()
            if r not in done
        }
        pairs += [*found, *_mutual(alike)]
    return pairs


def _mutual(fits: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    count: dict[str, int] = defaultdict(int)
    for cs in fits.values():
        for c in cs:
            count[c] += 1
    return [(r, cs[0]) for r, cs in fits.items() if len(cs) == 1 and count[cs[0]] == 1]


def _is_distinctive(array: Array) -> bool:
    """Return whether the numbers of a tensor identify it: finite, and not all the same, as zeros
    are.
    """
    if array.dtype.kind not in "fiu" or array.size < 2:
        return False
    return bool(np.isfinite(array).all() and np.min(array) < np.max(array))


def _close(x: Array, y: Array, off: float) -> bool:
    """Return whether two arrays match: floats that are nearly the same, or integers of which at
    most the share `off` differ by more than a step. The most frequent value, such as zero after a
    Relu, is ignored.
    """
    if (x.dtype.kind == "f") != (y.dtype.kind == "f"):
        return False
    a, b = x.reshape(-1).astype(np.float64), y.reshape(-1).astype(np.float64)
    apart = np.abs(a - b)
    if x.dtype.kind == "f":
        return bool(np.max(apart) <= CLOSE * np.max(np.abs(a)))
    values, counts = np.unique(a, return_counts=True)
    common = values[np.argmax(counts)]
    telling = (a != common) | (b != common)
    return bool(np.mean(apart[telling] > 1) <= off)
