"""The targets of coverage-guided damage (tests/guided.py) work, also where atheris is
not installed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import converter
from guided import TARGETS, prepared
from mutations import FORMS


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_takes_anything(name: str, tmp_path: Path) -> None:
    seed, call = prepared(name, tmp_path)
    whole = seed.read_bytes()
    for data in (
        whole,
        b"",
        b"\0",
        b"\xff" * 100,
        whole[: len(whole) // 2],
        whole[1:],
        whole + whole,
        bytes(len(whole)),
        whole.replace(b"1", b"-1"),
    ):
        call(data)


def test_a_target_notices_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seed, call = prepared("onnx", tmp_path)

    def broken(*arguments: object) -> None:
        raise KeyError("fault")

    monkeypatch.setattr(converter, "load", broken)
    with pytest.raises(KeyError, match="fault"):
        call(seed.read_bytes())


def test_every_codec_has_a_target() -> None:
    assert {form.partition("+")[0] for form, _ in TARGETS.values()} == {
        form.partition("+")[0] for form in FORMS
    }
