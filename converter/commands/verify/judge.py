"""Tolerances as a user writes them, `[GLOB:]V`, and metrics with limits. Results of several feeds
are judged by them, else by the noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

import numpy as np

from converter.commands.verify.compare import (
    LIMITS,
    METRICS,
    Difference,
    compare,
    judge,
    merged,
    wide,
)
from converter.commands.verify.result import Output
from converter.errors import Diagnostic, NothingComparedError, did_you_mean, wrong_call
from converter.graph.infer import Array

Rules = list[tuple[str, float]]  # globs of names, and the number for names that match
Given = float | str | Iterable[float | str] | None


def _rules(given: Given, option: str) -> Rules:
    """Parse [(glob, value)]; the last rule that matches wins."""
    items = (
        [] if given is None else [given] if isinstance(given, str | float | int) else list(given)
    )
    rules = []
    for item in items:
        glob, _, number = str(item).rpartition(":")
        try:
            value = float(number)
        except ValueError:
            raise wrong_call(f"{option} must be [GLOB:]NUMBER, got {item!r}") from None
        if not value >= 0:
            raise wrong_call(f"{option} must not be negative, got {item!r}")
        rules.append((glob or "*", value))
    return rules


@dataclass
class Limits:
    """A user's own tolerances and metrics. A tensor without --rtol and --atol is judged by the
    measured noise.
    """

    rtol: Rules = field(default_factory=list)
    atol: Rules = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=lambda: {"elem": 0.0})

    @classmethod
    def of(cls, rtol: Given = None, atol: Given = None, metrics: Iterable[str] = ()) -> Limits:
        """Return the limits of options. Raises UsageError for metrics that are not known."""
        chosen: dict[str, float] = {}
        for text in metrics:
            name, _, limit = text.partition("=")
            if name not in METRICS:
                hint = did_you_mean(name, METRICS, f"use one of {', '.join(METRICS)}")
                raise wrong_call(f"metric {name!r} is not known", help=hint)

            try:
                chosen[name] = float(limit) if limit else LIMITS.get(name, 0.0)
            except ValueError:
                raise wrong_call(f"the limit of the metric in {text!r} is not a number") from None
        return cls(_rules(rtol, "--rtol"), _rules(atol, "--atol"), chosen or {"elem": 0.0})

    @property
    def chosen(self) -> bool:
        """Return whether the user chose any of them."""
        return bool(self.rtol or self.atol or self.metrics.keys() - {"elem"})

    @property
    def elementwise(self) -> bool:
        return "elem" in self.metrics

    def tolerance(self, name: str, reference: Array) -> Array | float | None:
        """Return the user's tolerance for a tensor, None if there is none."""
        relative, absolute = (
            [v for g, v in rules if fnmatchcase(name, g)] for rules in (self.rtol, self.atol)
        )
        if not relative and not absolute:
            return None
        if reference.dtype.kind in "OUS":
            return 0.0
        size = np.abs(wide(reference))
        return (
            np.where(np.isfinite(size), size, 0.0) * (relative or [0.0])[-1]
            + (absolute or [0.0])[-1]
        )

    def check_used(self, names: Iterable[str]) -> None:
        """Raise NothingComparedError if a glob matches no compared tensor: it would silently have
        no effect.
        """
        known = list(names)
        for option, rules in (("--rtol", self.rtol), ("--atol", self.atol)):
            for glob, _ in rules:
                if not any(fnmatchcase(n, glob) for n in known):
                    raise NothingComparedError(
                        Diagnostic(
                            "N402",
                            f"{option} {glob!r} matches none of the {len(known)} compared tensors",
                        )
                    )


Tolerance = Callable[[int, Array], Array]  # index of the feed, reference value -> the allowed noise


@dataclass(frozen=True)
class Judge:
    """Judge outputs over several feeds. `relative`: the limit of the metric `max` is the default
    one, which is relative to the largest reference value.
    """

    limits: Limits
    relative: bool
    feeds: tuple[str, ...]  # their names

    def measuring(self) -> Judge:
        """Return the same judge without a user's tolerances: by the noise alone."""
        return replace(self, limits=Limits())

    def output(
        self,
        names: tuple[str, str],
        bases: Sequence[Array],
        others: Sequence[Array],
        noise: Tolerance | None,
    ) -> Output:
        """Judge one output over all feeds. `noise` is not evaluated if the user gave a tolerance;
        with None any difference fails.
        """
        found: list[Difference] = []
        broken = set[str]()
        for k, (base, other) in enumerate(zip(bases, others, strict=True)):
            limit = self.limits.tolerance(names[0], base)
            if limit is None and noise is not None:
                limit = noise(k, base)
            d = compare(base, other, limit)
            broken.update(judge(d, self._metrics(base)))
            if self.limits.elementwise and d.excess > 1:
                broken.add("elem")
            found.append(d)
        worst = max(range(len(found)), key=lambda k: (found[k].excess, found[k].max_abs))
        return Output(
            *names,
            passed=not broken,
            difference=merged(found),
            feed=self.feeds[worst],
            broken=tuple(sorted(broken)),
            finite=sum(d.finite for d in found),
            count=sum(d.count for d in found),
        )

    def _metrics(self, base: Array) -> dict[str, float]:
        metrics = dict(self.limits.metrics)
        if "max" in metrics and self.relative and base.dtype.kind not in "OUS" and base.size:
            size = np.abs(base.astype(np.float64))
            metrics["max"] *= float(np.max(size[np.isfinite(size)], initial=0.0))
        return metrics
