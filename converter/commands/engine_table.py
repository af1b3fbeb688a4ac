"""One comparison in several engines, as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from converter.commands.verify.result import Result
from converter.errors import ConverterError, Diagnostic, ExitCode


@dataclass(frozen=True)
class Row:
    """The result of the candidate in one engine, or the reason why there is none."""

    engine: str
    result: Result | None
    refused: ConverterError | None = None

    @property
    def code(self) -> ExitCode:
        """Return the exit code: that of the refusal, or whether the comparison passed."""
        if self.refused is not None:
            return self.refused.exit_code
        return ExitCode.OK if self.result is not None and self.result.passed else ExitCode.FINDING

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Return the diagnostics of the refusal or of the comparison."""
        if self.refused is not None:
            return self.refused.diagnostics
        return self.result.diagnostics if self.result is not None else ()

    def as_json(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return {
            "engine": self.engine,
            "exit_code": int(self.code),
            "numbers": None if self.result is None else self.result.as_json(),
            "refused": [] if self.refused is None else [d.as_json() for d in self.diagnostics],
        }


def rows(names: Sequence[str], compare: Callable[[str], Result]) -> list[Row]:
    """Return one row for each engine; `compare` runs the comparison in one engine."""
    found = []
    for name in names:
        try:
            found.append(Row(name, compare(name)))
        except ConverterError as e:
            found.append(Row(name, None, e))
    return found


def lines(found: Sequence[Row]) -> Iterator[str]:
    """Yield a line for each output in each engine, and one for each engine that refuses."""
    outputs = [o for r in found if r.result is not None for o in r.result.outputs]
    width = max([6, *(len(o.reference) for o in outputs)])
    yield (
        f"{'engine':12} {'output':{width}} {'largest':>10} {'relative':>10} {'cosine':>11}  verdict"
    )
    for row in found:
        if row.result is None:
            yield f"{row.engine:12} {row.code.status}: {row.diagnostics[0].message}"
            continue
        for o in row.result.outputs:
            d = o.difference
            verdict = "DIFFERENT" if not o.passed else "same" if d.equal else "same within noise"
            yield (
                f"{row.engine:12} {o.reference:{width}} {d.max_abs:10.3g} {d.max_rel:10.3g}"
                f" {d.cos:11.8f}  {verdict}"
            )
