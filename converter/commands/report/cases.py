"""What passed and what failed, as JUnit, SARIF and annotations see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Cases = Sequence[
    dict[str, Any]
]  # {"name": ..., "group": ..., "failure": "" or text, "where": a place, when it is known}
