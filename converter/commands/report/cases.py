"""Passed and failed cases, as JUnit, SARIF and annotations need them."""

from __future__ import annotations

from dataclasses import field

from converter.errors import ExitCode, Where
from converter.record import record

# codes of cases that could not be carried out
ERRORS = frozenset(
    {
        ExitCode.BUG,
        ExitCode.UNWRITABLE,
        ExitCode.USAGE,
        ExitCode.UNREADABLE,
        ExitCode.TIME_LIMIT,
        ExitCode.MEMORY_LIMIT,
    }
)


@record
class Case:
    """One comparison, path or job: `failure` is a text, "" if it passed, `where` the location as
    far as it is known. `error`: it could not be carried out, as opposed to a finding; `skipped`: it
    did not run.
    """

    name: str
    group: str
    failure: str = ""
    where: Where = field(default_factory=Where)
    error: bool = False
    skipped: bool = False
    seconds: float | None = None
