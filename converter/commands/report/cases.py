"""Passed and failed cases, as JUnit, SARIF and annotations need them."""

from __future__ import annotations

from dataclasses import field

from converter.errors import Where
from converter.graph.record import record


@record
class Case:
    """One comparison, path or job: `failure` is a text, "" if it passed, `where` the location as
    far as it is known.
    """

    name: str
    group: str
    failure: str = ""
    where: Where = field(default_factory=Where)
