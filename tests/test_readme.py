"""The README is executed: console blocks, Python blocks, links, make targets; its table of formats
is made of the code. Python blocks of the pages run, too.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path

import pytest

import golden
from converter import formats
from converter.formats import FORMATS
from converter.formats.format import Format
from support import ROOT, SAMPLES, module_of, run_python

generate = module_of(ROOT / "docs" / "generate.py")
README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")
PAGES = [TEXT, (ROOT / "docs" / "python.md").read_text(encoding="utf-8")]
PYTHON = [b.body for text in PAGES for b in golden.blocks(text) if b.language == "python"]


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


def test_the_table_of_formats_is_that_of_the_code() -> None:
    assert generate.readme() == TEXT, "python docs/generate.py --readme"
    (without,) = (f.default for f in dataclasses.fields(Format) if f.name == "engine")
    assert {n for n in FORMATS if formats.get(n).engine is not without} == generate.ENGINES.keys()


def test_the_readme_can_be_read_in_a_few_minutes() -> None:
    assert TEXT.count("\n") <= 130


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
