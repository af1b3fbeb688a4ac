"""Candidates with a fixed number of rows, where the number depends on the data in the reference
(`passes/fixed_rows.py`): an additional output, NAME_count, is the number of valid rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from converter.commands.verify.align import Alignment, without
from converter.commands.verify.floor import Results
from converter.graph.infer import Array, shape_of
from converter.graph.names import public_name
from converter.graph.network import Network

SUFFIX = "_count"


def counts_of(reference: Network, candidate: Network) -> list[int]:
    """Return the positions of the candidate's outputs that count rows of its other outputs."""
    named = {public_name(v) for v in candidate.ir.graph.outputs}
    own = {public_name(v) for v in reference.ir.graph.outputs}
    return [
        i
        for i, v in enumerate(candidate.ir.graph.outputs)
        if (name := public_name(v)) not in own
        and name.endswith(SUFFIX)
        and name.removesuffix(SUFFIX) in named & own
        and v.dtype is not None
        and v.dtype.is_integer()
    ]


def without_padded(alignment: Alignment, reference: Network, candidate: Network) -> Alignment:
    """Return the alignment without tensors that have rows in the candidate which the reference
    lacks: those are compared in the outputs, where their number is known.
    """
    if not counts_of(reference, candidate):
        return alignment
    mine, theirs = (
        {str(o.name): o for node in side.ir.graph for o in node.outputs}
        for side in (reference, candidate)
    )
    padded = {
        r
        for r, c in alignment.pairs.items()
        if r in mine
        and c in theirs
        and shape_of(mine[r]) is None
        and shape_of(theirs[c]) is not None
    }
    return without(alignment, padded)


def cut(
    reference: Network,
    candidate: Network,
    positions: Sequence[tuple[int, int]],
    mine: Results,
    theirs: Results,
) -> Results:
    """Return the candidate's results without invalid rows, if their number is then that of the
    reference.
    """
    counts = counts_of(reference, candidate)
    if not counts:
        return theirs
    found: Results = []
    for ours, results in zip(mine, theirs, strict=True):
        numbers = {int(np.asarray(results[i]).reshape(-1)[0]) for i in counts}
        kept = list(results)
        for i, j in positions:
            kept[j] = _rows(ours[i], kept[j], numbers)
        found.append(kept)
    return found


def _rows(reference: Array, array: Array, numbers: set[int]) -> Array:
    if reference.ndim != array.ndim:
        return array
    for axis, (count, size) in enumerate(zip(reference.shape, array.shape, strict=True)):
        if count < size and count in numbers:
            array = np.take(array, range(count), axis)
    return array
