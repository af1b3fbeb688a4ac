"""The noise floor of a whole network on given feeds, measured only as far as a verdict needs it: it
can only grow with each repetition.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from converter.commands.verify.noise import MULTIPLE, RUNS, Floor, Floors, Precision, shaken, spread
from converter.commands.verify.program import CannotRun, Jitter, Program
from converter.graph.infer import Array

Results = list[list[Array]]  # by feed, then by output
TIE = 2.0**-16  # relative to the rounded value: at most a hundredth of a step of 8 bits
DRAWN = 8  # runs with ties that are drawn element by element, or with steps
FLIPS = 2.0**-6  # share of the elements of a quantized tensor that a run moves by a step


def each(function: Callable[..., Floor], *parts: Sequence[Sequence[Any]]) -> Floors:
    """Apply a function to the entries of some lists, by feed and output."""
    return [
        [function(*entries) for entries in zip(*of_feed, strict=True)]
        for of_feed in zip(*parts, strict=True)
    ]


def anywhere(floor: Floor) -> Floor:
    """Return a tolerance for every element: a multiple of the root mean square of the finite
    values, limited to twice the largest of them, and at least its own.
    """
    if not floor.size:
        return floor
    finite = np.where(np.isfinite(floor), floor, 0.0)
    common = min(MULTIPLE * np.sqrt(np.mean(finite**2)), 2 * np.max(finite))
    return np.asarray(np.maximum(floor, common), np.float64)


class Noise:
    """The rounding noise of a program, measured by repeated runs: without the engine's
    optimizations, with small random changes of inputs and weights, and with float16 computed as
    float32.
    """

    def __init__(
        self,
        program: Program,
        feeds: Sequence[dict[str, Array]],
        base: Results,
        precision: Precision,
    ) -> None:
        self.program, self.feeds, self.base, self.precision = program, feeds, base, precision
        self._runs: list[Results] = []
        self._floats: Results | None = None

    @property
    def repetitions(self) -> int:
        return RUNS + 1

    @property
    def done(self) -> int:
        """Return the number of repetitions so far."""
        return len(self._runs)

    def of(self, places: Sequence[int]) -> Noise:
        """Return the noise on some of the feeds, including repetitions that are measured
        already.
        """
        made = Noise(
            self.program,
            [self.feeds[p] for p in places],
            [self.base[p] for p in places],
            self.precision,
        )
        made._runs = [[r[p] for p in places] for r in self._runs]
        made._floats = None if self._floats is None else [self._floats[p] for p in places]
        return made

    def floors(self, count: int) -> Floors:
        """Return the spread of the first `count` repetitions, by feed and output. Raises CannotRun
        if the engine cannot repeat its computation.
        """
        while len(self._runs) < count:
            self._runs.append(self._repeated(len(self._runs)))
        return each(lambda b, *others: spread(b, others), self.base, *self._runs[:count])

    def _repeated(self, k: int) -> Results:
        moved = Jitter(k, self.precision) if k else None
        session = self.program.compile(self.program.complete(), moved, optimize=moved is not None)
        if moved is None:
            return [session.run(f) for f in self.feeds]
        return [session.run(shaken(f, k - 1, self.precision.__getitem__)) for f in self.feeds]

    def with_floats(self, more: int = 0) -> Floors:
        """Return the spread of all repetitions, `more` additional ones, and a run with float16 as
        float32.
        """
        floors = self.floors(self.repetitions + more)
        exact = self.in_floats()
        return (
            floors
            if exact is None
            else each(lambda f, b, e: np.maximum(f, spread(b, [e])), floors, self.base, exact)
        )

    def with_formulas(self, more: int) -> Floors:
        """Return the spread of all repetitions, `more` additional ones, and the effect of jitter on
        the formulas of functions that cancel; only the effect counts, not the results of the
        formulas.
        """
        floors = self.with_floats(more)
        formulas = self.program.formulas
        if formulas is None:
            return floors
        with contextlib.suppress(CannotRun):
            exact = Noise(formulas, self.feeds, [], self.precision)._repeated(0)
            inner = Noise(formulas, self.feeds, exact, self.precision).floors(self.repetitions)
            return each(np.maximum, floors, inner)
        return floors

    def with_sums(self) -> Floors:
        """Return the spread of all repetitions, at least half a step of the largest number of each
        tensor, anywhere in it.

        Another engine sums in another order, and the remainder of large terms that cancel is not
        measured by moving inputs and weights; constants that were computed when the file was read
        are not moved at all.
        """
        steps = [self.step(j) for j in range(len(self.program.outputs))]
        floors = self.floors(self.repetitions)
        return each(self._rounded, floors, self.base, [steps] * len(floors))

    def step(self, output: int) -> float:
        """Return the relative step of an output."""
        return self.precision[self.program.outputs[output]]

    def _rounded(self, floor: Floor, base: Array, step: float) -> Floor:
        if base.dtype.kind != "f":
            return floor
        size = np.abs(base.astype(np.float64))
        rounding = step / 2 * float(np.max(size[np.isfinite(size)], initial=0.0))
        return np.maximum(floor, rounding)

    def with_ties(self) -> Floors:
        """Return the spread of all repetitions and of runs in which ties of quantization are
        rounded up, down, or each at random.

        An engine that computes in integers rounds ties differently than floats do, in any layer;
        the affected elements are a matter of chance, so the typical deviation of an output is
        allowed for any of its elements.
        """
        return self._with_moved(
            self.floors(self.repetitions),
            [Jitter(ties=TIE), Jitter(ties=-TIE), *(Jitter(k + 1, ties=TIE) for k in range(DRAWN))],
        )

    def with_steps(self) -> Floors:
        """Add runs in which a few elements of each quantized tensor differ by one quantized value,
        as they do in engines that use tables and approximations; all later layers pass the
        difference on.
        """
        return self._with_moved(
            self.with_ties(), [Jitter(k + 1, flips=FLIPS) for k in range(DRAWN)]
        )

    def _with_moved(self, floors: Floors, moved: Sequence[Jitter]) -> Floors:
        for m in moved:
            session = self.program.compile(self.program.complete(), m)
            results = [session.run(f) for f in self.feeds]
            floors = each(
                lambda f, b, r: np.maximum(f, anywhere(spread(b, [r]))), floors, self.base, results
            )
        return floors

    def in_floats(self) -> Results | None:
        """Return the results with all float16 computed as float32; None if the network has no
        float16, or cannot run so.
        """
        if self._floats is None and self.program.halves:
            with contextlib.suppress(CannotRun):
                session = self.program.compile(self.program.complete(), floats=True)
                self._floats = [session.run(f) for f in self.feeds]
        return self._floats
