"""The names of classes that a model carries: which label belongs to a result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from converter.graph.network import Network
from converter.io.strict_json import note
from converter.passes.labels import LABELS

SHOWN = 4  # rows of scores, and texts, that are shown


def labels_of(model: Network) -> list[list[str]]:
    """Return the tables of labels in a model's metadata: those that netconv stored when it wrote
    the model, and text files with one label in a line.
    """
    stored = model.ir.metadata_props
    tables = _stored(stored[LABELS]) if LABELS in stored else []
    files = [text for name, text in stored.items() if name.endswith(".txt")]
    return [*tables, *(text.splitlines() for text in files)]


def _stored(text: str) -> list[list[str]]:
    stored = note(text, {str: [(str, int)]}) or {}
    return [[str(label) for label in labels] for labels in stored.values()]


def described(array: Any, tables: list[list[str]]) -> str:
    """Return texts of an output, or the label of the largest score of each row; "" if there is
    neither.
    """
    if not isinstance(array, np.ndarray) or not array.size:
        return ""
    if array.dtype.kind in "OUS":
        return _joined([_text(v) for v in array.reshape(-1)[: SHOWN + 1]])
    labels = next((t for t in tables if array.ndim and len(t) == array.shape[-1]), None)
    if labels is None or array.dtype.kind != "f":
        return ""
    rows = array.reshape(-1, array.shape[-1])[: SHOWN + 1]
    if not np.isfinite(rows).all():
        return ""
    return _joined([f"{labels[i]!r} ({row[i]:.4g})" for row in rows for i in [int(row.argmax())]])


def _text(value: Any) -> str:
    return repr(value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value))


def _joined(texts: list[str]) -> str:
    return ", ".join([*texts[:SHOWN], *(["..."] if len(texts) > SHOWN else [])])


def of_outputs(outputs: Mapping[str, Any], tables: list[list[str]]) -> dict[str, str]:
    """Return the description of each output that `described` has one for."""
    return {name: text for name, a in outputs.items() if (text := described(a, tables))}
