"""Opsets that changed an operation: `schemas/openvino/opset-revisions.json` lists, for each type,
the opsets of its revisions.
"""

from __future__ import annotations

import json
from functools import cache

from converter.io.resources import schema_path


@cache
def revisions() -> dict[str, list[int]]:
    """Return the opsets of the revisions by operation."""
    found: dict[str, list[int]] = json.loads(
        schema_path("openvino", "opset-revisions.json").read_text()
    )
    return found


@cache
def _spellings() -> dict[str, str]:
    return {name.casefold(): name for name in revisions()}


def canonical_spelling(type_: str) -> str:
    """The format's reader accepts types in any case; the tables have one spelling."""
    return _spellings().get(type_.casefold(), type_)


def version_to_write(type_: str, limit: int) -> str:
    """Return the opset in which the newest revision up to `limit` first appeared, as the runtime
    itself writes it.
    """
    usable = [n for n in revisions().get(type_, [1]) if n <= limit]
    return f"opset{usable[-1] if usable else 1}"
