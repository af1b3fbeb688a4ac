"""The lines of altered.txt: layers with one thing changed are read and written as they were.

A line that differs is no error by itself. If the new outcome is right, `python
tests/layers/record.py altered` writes the file anew.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from layers import altered

# the format that `make check` knows
WORDS = {"opset": "openvino.opset", "legacy": "openvino.legacy"}
WORDS |= {"openvino": "openvino.opset", "openvino+ir=7": "openvino.legacy"}


def _groups() -> dict[str, list[tuple[str, str, str]]]:
    """The lines by layer and target."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    for (name, target), text in altered.lines().items():
        folder, _, stem = name.partition(" |")[0].partition("/")
        format = target or folder
        key = f"{WORDS.get(format, format)}-from-{folder}-{stem}"
        found.setdefault(key, []).append((name, target, text))
    return found


GROUPS = _groups()


@pytest.mark.parametrize("group", GROUPS)
def test_an_altered_layer_is_read_and_written_as_before(group: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the notes of conversions
        differ = {
            f"{name} > {target}": (text, found)
            for name, target, text in GROUPS[group]
            if (found := altered.outcome(name, target, tmp_path)) != text
        }
    assert differ == {}
