"""Search the layers that stay in floats, so that a network loses no more than a limit."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from converter.commands.quantize.measure import Quality, interval
from converter.errors import Diagnostic, UnsupportedError, wrong_call
from converter.io import progress
from converter.io.strict_json import parse
from converter.record import record


@record
class Limit:
    """The most that may be lost: `share` of the answers, or signal to noise below `decibels`."""

    share: float | None = None
    decibels: float | None = None

    @classmethod
    def parse(cls, text: str) -> Limit | None:
        """Parse 1% or 30dB, None for "". Raises UsageError for anything else."""
        number = text.strip().removesuffix("%").removesuffix("dB")
        try:
            if text.strip().endswith("%"):
                return cls(share=float(number) / 100)
            if text.strip().endswith("dB"):
                return cls(decibels=float(number))
        except ValueError:
            pass
        if text:
            raise wrong_call(f"--max-drop must be like 1% or 30dB, got {text!r}")
        return None

    def holds(self, quality: Quality, *, likely: bool = False) -> bool:
        """Return whether no more is lost; `likely`: the limit is within the interval that the
        samples leave, or above it.
        """
        if self.share is not None:
            of = max(1, quality.samples)
            lost = interval(quality.lost, of)[0] if likely else quality.lost / of
            return lost <= self.share + 1e-9
        return self.decibels is None or quality.least >= self.decibels


@record
class Search:
    """Measures how much each of the layers `names` loses alone, then leaves the fewest of the worst
    in 16 bits or, where that is not enough or the target has none, in floats. `quality` measures
    the network with some layers in floats and others in 16 bits.

    `journal` keeps the measurements, for a run that is interrupted; `about` identifies the data and
    the options.
    """

    limit: Limit
    quality: Callable[[Collection[str], Sequence[str]], Quality]
    names: Sequence[str]
    journal: Path
    about: Sequence[str]
    wide: bool = False

    def run(self) -> tuple[list[str], list[str]]:
        """Return the layers that stay in floats, and those that have 16 bits."""
        if self.limit.holds(self.quality([], [])):
            return [], []
        order, count = self._ranked(), 0
        if not self.wide or not self.limit.holds(self.quality([], order)):
            wide = len(order) if self.wide else 0
            count = self._least(lambda n: self.quality(order[:n], order[n:wide]), len(order))
        if count == len(order):
            why = "every quantization exceeds --max-drop"
            help = "try another --method, --activations int16, or more data"
            raise UnsupportedError(Diagnostic("N412", why, help=help))
        floats, rest = order[:count], order[count:] if self.wide else []
        wide = self._least(lambda n: self.quality(floats, rest[:n]), len(rest))
        self.journal.unlink(missing_ok=True)
        return floats, rest[:wide]

    def _least(self, quality: Callable[[int], Quality], most: int) -> int:
        """Return the least number of layers with which the limit holds; it holds with `most`."""
        low = -1
        while most - low > 1:
            middle = (low + most) // 2
            low, most = (low, middle) if self.limit.holds(quality(middle)) else (middle, most)
        return most

    def _ranked(self) -> list[str]:
        """Return the layers, those first that lose most when they alone are quantized."""
        known = self._read()
        for count, name in enumerate(self.names, 1):
            if name not in known:
                with progress.step(f"measuring layer {count} of {len(self.names)}"):
                    known[name] = self.quality([n for n in self.names if n != name], []).least
                self.journal.parent.mkdir(parents=True, exist_ok=True)
                self.journal.write_text(json.dumps({"about": [*self.about], "layers": known}))
        return sorted(self.names, key=lambda n: (known[n], n))

    def _read(self) -> dict[str, float]:
        try:
            data: Any = parse(self.journal.read_bytes())
            if data["about"] == [*self.about]:
                return {str(k): float(v) for k, v in data["layers"].items()}
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            pass  # of another run, or damaged: measured anew
        return {}
