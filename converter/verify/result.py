"""What a comparison found, as plain data; text, JSON and exit codes are renderings of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """`passed` is the verdict, `max_difference` the largest absolute difference of any compared output."""

    passed: bool
    max_difference: float
