"""Stored results of every kind as one kind of document, which all renderings are made from."""

from __future__ import annotations

from typing import Any

from converter.diagnostics import Diagnostic, Where


def diagnostic(data: dict[str, Any]) -> Diagnostic:
    """The inverse of Diagnostic.as_json."""
    return Diagnostic(data["code"], data["message"], data["level"], Where(**data["where"]), tuple(data["evidence"]), data["help"])
