"""Round weights so that later rows of a product make up for the errors of earlier ones.

before:  each weight is rounded to its nearest multiple of the scale
after:   the error of a row is spread over the rows that are not rounded yet, as the data correlate

Source: Frantar et al., GPTQ (https://arxiv.org/abs/2210.17323), with a scale for each block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from converter.commands.quantize.blocks import block_steps, nonzero
from converter.commands.verify.program import Program
from converter.graph.infer import Array, Arrays
from converter.graph.network import Network
from converter.io import progress

_DAMPING = 0.01  # of the mean square of the data, for data that are zero or linearly dependent
_ROOM = 1 << 26  # numbers of moments that are computed at once


@dataclass
class Moments:
    """The sums over samples of products of the data of each two rows of a weight.

    `names`: the data of which they are needed, in this order; values are computed in a few runs of
    the network, so that memory is bounded.
    """

    model: Network
    feeds: Callable[[], Iterable[Arrays]]
    names: list[str] = field(default_factory=list)
    found: dict[str, Array] = field(default_factory=dict)
    rows: Counter[str] = field(default_factory=Counter)

    def of(self, name: str) -> Array | None:
        """Return the moments of a value; None if the network does not compute it, if they are not
        finite, or if there are fewer rows than columns, to which weights would be fitted.
        """
        if name and name not in self.found:
            self._run(self.names[self.names.index(name) :])
        found = self.found.get(name)
        few = found is None or self.rows[name] < len(found) or not np.isfinite(found).all()
        return None if few else found

    def _run(self, names: Sequence[str]) -> None:
        program, room = Program(self.model), _ROOM
        self.found, self.rows = {}, Counter()
        for name in dict.fromkeys(names):
            size = (program.values[name].shape or [0])[-1] if name in program.values else 0
            if isinstance(size, int) and size and (room > 0 or not self.found):
                self.found[name] = np.zeros((size, size), np.float32)
                room -= size * size
        feeds = self.feeds() if self.found else ()
        with progress.step("measuring the data of products"):
            for values in program.stream(self.found, feeds):
                for name, array in values.items():
                    rows = array.reshape(-1, array.shape[-1]).astype(np.float32)
                    self.found[name] += rows.T @ rows
                    self.rows[name] += len(rows)


def with_feedback(array: Array, axis: int, block: int, moments: Array) -> tuple[Array, Array]:
    """Return the scales of blocks of a matrix, and its numbers in units of them, -8 ... 7."""
    weights = np.moveaxis(array, axis, 0).astype(np.float32)
    codes, steps, factors = np.empty(weights.shape, np.int8), list[Array](), _factors(moments)
    for start in range(0, len(weights), block):
        part = weights[start : start + block]
        end, errors = start + len(part), np.empty_like(part)
        steps.append(nonzero(block_steps(part, 0, block)).astype(array.dtype))
        for i in range(len(part)):
            codes[start + i] = np.clip(np.rint(part[i] / steps[-1][0]), -8, 7)
            own = factors[start + i, start + i : end]
            errors[i] = (part[i] - codes[start + i] * steps[-1][0].astype(np.float32)) / own[0]
            part[i + 1 :] -= np.outer(own[1:], errors[i])
        weights[end:] -= factors[start:end, end:].T @ errors
    return np.moveaxis(np.concatenate(steps), 0, axis), np.moveaxis(codes, 0, axis)


def _factors(moments: Array) -> Array:
    """Return the triangular root of the inverse, by whose rows errors are spread."""
    whole = moments.astype(np.float64)
    whole[np.diag_indices(len(whole))] += _DAMPING * np.mean(np.diag(whole)) or 1.0
    return np.asarray(np.linalg.cholesky(np.linalg.inv(whole)).T, np.float32)
