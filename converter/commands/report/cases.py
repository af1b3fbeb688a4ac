"""What passed and what failed, as JUnit, SARIF and annotations see it."""

from __future__ import annotations

from dataclasses import field

from converter.errors import Where
from converter.graph.record import record


@record
class Case:
    """One comparison, path or job: `failure` is a text, "" where it passed, `where` a place as far
    as it is known.
    """

    name: str
    group: str
    failure: str = ""
    where: Where = field(default_factory=Where)
