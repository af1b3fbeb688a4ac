"""Tolerances as a user writes them, `[GLOB:]V`, and the metrics that must hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import numpy as np

from converter.commands.verify.compare import LIMITS, METRICS, wide
from converter.errors import Diagnostic, NothingComparedError, UsageError, did_you_mean
from converter.graph.infer import Array

Given = float | str | Iterable[float | str] | None


def _rules(given: Given, option: str) -> list[tuple[str, float]]:
    """[(glob, value)]; the last rule that fits wins."""
    items = (
        [] if given is None else [given] if isinstance(given, str | float | int) else list(given)
    )
    rules = []
    for item in items:
        glob, _, number = str(item).rpartition(":")
        try:
            value = float(number)
        except ValueError:
            raise UsageError(
                Diagnostic("U501", f"{option} {item!r} is not [GLOB:]NUMBER")
            ) from None
        if not value >= 0:
            raise UsageError(Diagnostic("U501", f"{option} {item!r} must not be negative"))
        rules.append((glob or "*", value))
    return rules


@dataclass
class Limits:
    """A user's own tolerances and metrics. Without --rtol and --atol for a tensor, the measured
    noise is its tolerance.
    """

    rtol: list[tuple[str, float]] = field(default_factory=list)
    atol: list[tuple[str, float]] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=lambda: {"elem": 0.0})

    @classmethod
    def of(cls, rtol: Given = None, atol: Given = None, metrics: Iterable[str] = ()) -> Limits:
        chosen: dict[str, float] = {}
        for text in metrics:
            name, _, limit = text.partition("=")
            if name not in METRICS:
                hint = did_you_mean(name, METRICS, f"known: {', '.join(METRICS)}")
                raise UsageError(Diagnostic("U501", f"unknown metric {name!r}", help=hint))

            try:
                chosen[name] = float(limit) if limit else LIMITS.get(name, 0.0)
            except ValueError:
                raise UsageError(
                    Diagnostic("U501", f"the limit of the metric in {text!r} is not a number")
                ) from None
        return cls(_rules(rtol, "--rtol"), _rules(atol, "--atol"), chosen or {"elem": 0.0})

    @property
    def elementwise(self) -> bool:
        return "elem" in self.metrics

    def tolerance(self, name: str, reference: Array) -> Array | float | None:
        """The user's tolerance for a tensor, None when there is none."""
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
        """NothingComparedError when a glob fits no compared tensor: it would silently do
        nothing.
        """
        known = list(names)
        for option, rules in (("--rtol", self.rtol), ("--atol", self.atol)):
            for glob, _ in rules:
                if not any(fnmatchcase(n, glob) for n in known):
                    raise NothingComparedError(
                        Diagnostic(
                            "N402",
                            f"{option} {glob!r} fits none of the {len(known)} compared tensors",
                        )
                    )
