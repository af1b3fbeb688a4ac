"""The result of quantizing a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from converter.commands.quantize.measure import Quality
from converter.errors import Diagnostic
from converter.formats.coreml.package import size_of
from converter.formats.format import Flavor
from converter.record import record


@record
class Quantized:
    """A written model.

    `before`   bytes of the float network
    `floats`   layer -> why it computes in floats
    `wide`     results of the layers with 16 bits
    `forms`    layer -> the form of its compressed weights
    `layers`   decibels of the results of layers, the worst first
    `rounded`  the same with all layers rounded and biases as they were, if that was asked for
    """

    flavor: Flavor = field(default_factory=lambda: Flavor(""))
    files: tuple[Path, ...] = ()
    notes: tuple[Diagnostic, ...] = ()
    before: int = 0
    quality: Quality | None = None
    floats: Mapping[str, str] = field(default_factory=dict)
    wide: Sequence[str] = ()
    forms: Mapping[str, str] = field(default_factory=dict)
    layers: Mapping[str, float] = field(default_factory=dict)
    rounded: Mapping[str, float] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(map(size_of, self.files))

    @property
    def note(self) -> Diagnostic:
        """Return the size and the accuracy as a diagnostic."""
        share, q = self.size / max(1, self.before), self.quality
        less = "" if q is None else f", {q.least:.1f} dB in {q.engine}"
        message = f"the files have {share:.0%} of the size of the float network{less}"
        return Diagnostic("N413", message, "note")

    def as_json(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return {
            "format": str(self.flavor),
            "files": [str(p) for p in self.files],
            "bytes": {"before": self.before, "after": self.size},
            "quality": None if self.quality is None else self.quality.as_json(),
            "floats": dict(self.floats),
            "int16": list(self.wide),
            "weights": dict(self.forms),
            "layers": dict(self.layers),
            **({"rounded": dict(self.rounded)} if self.rounded else {}),
        }
