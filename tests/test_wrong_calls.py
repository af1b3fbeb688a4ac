"""Every call in wrong_calls.txt gets the recorded answer: no traceback, and a way out."""

from __future__ import annotations

import contextlib
import io
import shlex
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.cli import app, console
from converter.graph.build import new_model

FILE = Path(__file__).with_name("wrong_calls.txt")
FEWEST = 40


@dataclass(frozen=True)
class Wrong:
    call: str
    answer: tuple[str, ...]


def calls() -> list[Wrong]:
    parts = [p for p in FILE.read_text().split("\n$ ")[1:]]
    made = [p.strip("\n").split("\n") for p in parts]
    return [Wrong(first, tuple(a for a in rest if a and a[0] != "#")) for first, *rest in made]


def test_the_file_is_complete() -> None:
    found = calls()
    assert len(found) >= FEWEST and len({w.call for w in found}) == len(found)
    assert all(w.answer for w in found)


def files(folder: Path) -> None:
    """Write net.onnx, a copy of it, and an empty folder."""
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, ["n", 3, 8, 8])
    b.output(b.op("Conv", x, np.ones((4, 3, 3, 3), np.float32), name="conv"))
    converter.save(Model(model, "onnx"), folder / "net.onnx")
    shutil.copy(folder / "net.onnx", folder / "other.onnx")
    (folder / "empty").mkdir()


def answer(call: str, folder: Path) -> tuple[str, ...]:
    """Run a call in this process; return its standard error and the exit code."""
    console.use(console.Console())
    with (
        contextlib.chdir(folder),
        mock.patch.object(sys, "argv", shlex.split(call)),
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        code = app._guarded()
    text = err.getvalue().replace(str(folder), "HERE").rstrip("\n")
    return (*text.split("\n"), f"[exit {code}]")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("calls").resolve()
    files(made)
    return made


@pytest.mark.parametrize("wrong", calls(), ids=lambda w: w.call)
def test_a_wrong_call_is_answered(wrong: Wrong, folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    assert answer(wrong.call, folder) == wrong.answer
    assert sorted(folder.rglob("*")) == before, "a wrong call leaves no file"


def record() -> None:
    """Rewrite all answers: PYTHONPATH=. python tests/test_wrong_calls.py"""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        files(folder)
        head = FILE.read_text().split("\n$ ")[0]
        found = ["\n".join((f"$ {w.call}", *answer(w.call, folder))) for w in calls()]
    FILE.write_text("\n\n".join([head.rstrip("\n"), *found]) + "\n")


if __name__ == "__main__":
    record()
