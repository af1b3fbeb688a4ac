"""Results of several feeds, judged output by output: by a user's own tolerances and metrics, else
by the noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from converter.commands.verify.compare import Difference, compare, judge
from converter.commands.verify.judge import Limits
from converter.commands.verify.result import Output
from converter.graph.infer import Array

Tolerance = Callable[
    [int, Array], Array
]  # place of the feed, reference value -> the noise that may be


@dataclass(frozen=True)
class Judge:
    """`relative` says that the limit of the metric `max` is the default one, which is relative to
    the largest reference value.
    """

    limits: Limits
    relative: bool
    feeds: tuple[str, ...]  # what they are called

    def output(
        self,
        names: tuple[str, str],
        bases: Sequence[Array],
        others: Sequence[Array],
        noise: Tolerance | None,
    ) -> Output:
        """One output over all feeds. `noise` is not asked where the user gave a tolerance; None
        judges what differs at all.
        """
        worst, feed, broken = Difference(), self.feeds[0], set[str]()
        for k, (base, other) in enumerate(zip(bases, others, strict=True)):
            limit = self.limits.tolerance(names[0], base)
            if limit is None and noise is not None:
                limit = noise(k, base)
            d = compare(base, other, limit)
            broken.update(judge(d, self._metrics(base)))
            if self.limits.elementwise and d.excess > 1:
                broken.add("elem")
            if k == 0 or (d.excess, d.max_abs) > (worst.excess, worst.max_abs):
                worst, feed = d, self.feeds[k]
        return Output(*names, not broken, worst, feed, tuple(sorted(broken)))

    def _metrics(self, base: Array) -> dict[str, float]:
        metrics = dict(self.limits.metrics)
        if "max" in metrics and self.relative and base.dtype.kind not in "OUS" and base.size:
            size = np.abs(base.astype(np.float64))
            metrics["max"] *= float(np.max(size[np.isfinite(size)], initial=0.0))
        return metrics
