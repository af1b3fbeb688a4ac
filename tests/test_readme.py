"""What the README says is executed: console blocks, Python blocks, the table of exit codes, links,
make targets.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import golden
from converter.errors import ExitCode
from support import ROOT, SAMPLES, run_python

README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")
PYTHON = [b.body for b in golden.blocks(TEXT) if b.language == "python"]


def test_console_blocks(tmp_path: Path, record: bool) -> None:
    played = golden.play(TEXT, tmp_path)
    if record and played != TEXT:
        README.write_text(played, encoding="utf-8")
        pytest.skip("recorded: README.md")
    assert played == TEXT


@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_python_blocks(tmp_path: Path, number: int) -> None:
    """Each block runs alone, in a folder where there is nothing but the samples."""
    shutil.copytree(SAMPLES, tmp_path / "samples")
    assert run_python(PYTHON[number], cwd=tmp_path).strip()


def test_the_exit_codes_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| (\d+) \| (.*) \| (.*) \|$", TEXT, re.M)
    assert [(int(code), status, meaning) for code, status, meaning in rows] == [
        (int(c), c.status, c.meaning) for c in ExitCode
    ]


@pytest.mark.parametrize("file", ["README.md", "samples/README.md", "tests/cli/README.md"])
def test_links_lead_somewhere(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    links = [
        link for link in re.findall(r"\]\(([^)#\s]+)", text) if not link.startswith("https://")
    ]
    assert [link for link in links if not (ROOT / file).parent.joinpath(link).exists()] == []


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"(?:`|^)make ([a-z-]+)", TEXT, re.M)) <= targets
