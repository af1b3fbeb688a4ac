"""Which layers stay in floats, so that a network loses no more than a limit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from converter.commands.quantize.measure import Quality, Reference
from converter.commands.quantize.place import Placement
from converter.errors import Diagnostic, UnsupportedError, Where, wrong_call
from converter.graph.network import Network
from converter.graph.record import record
from converter.io import progress

Attempt = Callable[[Mapping[str, str]], tuple[Network, Placement]]


@record
class Limit:
    """The most that may be lost: a share of answers, or decibels (negative: at least so many)."""

    most: float
    decibels: bool
    text: str

    @classmethod
    def parse(cls, text: str) -> Limit:
        """Parse 1% or 30dB. Raises UsageError for anything else."""
        for unit, factor in (("%", 0.01), ("dB", -1.0)):
            number = text.strip().removesuffix(unit)
            if number != text.strip():
                try:
                    return cls(float(number) * factor, unit == "dB", text)
                except ValueError:
                    break
        if text:
            raise wrong_call(f"--max-drop must be like 1% or 30dB, got {text!r}")
        return cls(0.0, False, "")

    def __bool__(self) -> bool:
        return bool(self.text)

    def holds(self, quality: Quality) -> bool:
        return quality.drop(self.decibels) <= self.most + 1e-9

    def broken(self, quality: Quality, path: Path) -> list[Diagnostic]:
        """Return the finding that a written network loses more than the limit."""
        if not self or self.holds(quality):
            return []
        lost = f"{quality.least:.1f} dB" if self.decibels else f"{quality.drop(False):.2%}"
        why = f"the network has {lost} instead of {self.text} on data that the search has not used"
        return [Diagnostic("N412", why, where=Where(str(path)), help="use more samples")]


@record
class Search:
    """Measures how much each layer loses alone, then leaves the fewest of the worst in floats.

    `journal` keeps what was measured, for a run that is interrupted; `about` says for which data
    and options.
    """

    reference: Reference
    limit: Limit
    attempt: Attempt
    whole: Placement
    journal: Path
    about: Sequence[str]

    def floats(self) -> dict[str, str]:
        """Return the layers that stay in floats, by the names of their results, with the reason."""
        if self.limit.holds(self._quality([])):
            return {}
        order = self._ranked()
        low, high = 0, len(order)  # with `high` layers in floats it holds
        while high - low > 1:
            middle = (low + high) // 2
            if self.limit.holds(self._quality(order[:middle])):
                high = middle
            else:
                low = middle
        if high == len(order):
            why = f"every quantization exceeds {self.limit.text}"
            raise UnsupportedError(
                Diagnostic(
                    "N412", why, help="try another --method, --activations int16, or more data"
                )
            )
        self.journal.unlink(missing_ok=True)
        return self._reasons(order[:high])

    def _reasons(self, names: Sequence[str]) -> dict[str, str]:
        return dict.fromkeys(names, f"it loses the most (--max-drop {self.limit.text})")

    def _quality(self, floats: Sequence[str]) -> Quality:
        return self.reference.quality(self.attempt(self._reasons(floats))[0], native=False)

    def _ranked(self) -> list[str]:
        """Return the results of layers, those first that lose most when they alone are
        quantized.
        """
        known = self._read()
        names = sorted(self.whole.nodes)
        for count, name in enumerate(names, 1):
            if name in known:
                continue
            with progress.step(f"measuring layer {count} of {len(names)}"):
                known[name] = self._quality([n for n in names if n != name]).least
            self.journal.parent.mkdir(parents=True, exist_ok=True)
            self.journal.write_text(json.dumps({"about": [*self.about], "layers": known}))
        return sorted(names, key=lambda n: (known[n], n))

    def _read(self) -> dict[str, float]:
        try:
            data: Any = json.loads(self.journal.read_text(encoding="utf-8"))
            if data["about"] == [*self.about]:
                return {str(k): float(v) for k, v in data["layers"].items()}
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            pass  # of another run, or damaged: measured anew
        return {}
