"""The repository as a whole: nothing unfinished, nothing from one machine, no file that grew out of sight."""

from __future__ import annotations

import ast
import re
import symtable
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import CONVERTER, ROOT

FOLDERS = ("converter", "schemas", "tests", "samples", "benchmarks", ".ci", ".github")
FILES = ("README.md", "Makefile", "pyproject.toml", ".gitignore")
TEXT = {".py", ".md", ".toml", ".yml", ".json", ".xml", ".txt", ".rng", ".html", ""}


def text_files() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from (p for p in sorted((ROOT / folder).rglob("*")) if p.is_file() and p.suffix in TEXT and "__pycache__" not in p.parts)
    yield from (ROOT / name for name in FILES if (ROOT / name).exists())


def python_files() -> list[Path]:
    return sorted(CONVERTER.rglob("*.py"))


def found(pattern: str, files: Iterator[Path] | list[Path]) -> list[str]:
    """`path:line: text` of every line that matches."""
    expression = re.compile(pattern)
    return [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in files
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if expression.search(line)
    ]


def test_no_path_of_one_machine() -> None:
    assert found(r"(?<![\w.])/(?:work|home|root|Users|mnt)/\w", (p for p in text_files() if p != Path(__file__))) == []


def test_nothing_is_left_to_do() -> None:
    assert found(r"\b(?:TODO|FIXME|XXX|NotImplementedError)\b", python_files()) == []


def test_every_module_says_what_it_is() -> None:
    texts = {file: file.read_text(encoding="utf-8") for file in python_files()}
    silent = [str(file.relative_to(ROOT)) for file, text in texts.items() if text.strip() and not ast.get_docstring(ast.parse(text))]
    assert silent == []


def addresses(file: Path) -> list[str]:
    """`path:scope` of every function, class or module that uses the builtin `id`."""

    def walk(scope: symtable.SymbolTable, name: str) -> Iterator[str]:
        if "id" in scope.get_identifiers() and scope.lookup("id").is_global() and scope.lookup("id").is_referenced():
            yield f"{file.relative_to(CONVERTER)}:{name}"
        for inner in scope.get_children():
            yield from walk(inner, f"{name}.{inner.get_name()}".lstrip("."))

    return list(walk(symtable.symtable(file.read_text(encoding="utf-8"), str(file), "exec"), ""))


def test_no_object_is_known_by_its_address() -> None:
    """The address of an object that is gone is given to another: what has to be told apart is kept itself."""
    assert [place for file in python_files() for place in addresses(file)] == []


def test_the_makefile_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.M)
    assert phony
    assert set(phony[1].split()) == set(re.findall(r"^([a-z-]+):.*## \S", makefile, re.M))


def test_continuous_integration_runs_the_documented_commands() -> None:
    """`.ci/run` ends in the test command that the README gives; the workflow calls nothing but `.ci/run` and make targets of the README."""
    readme = (ROOT / "README.md").read_text()
    assert "make test" in readme
    assert re.search(r"^exec make test\b", (ROOT / ".ci" / "run").read_text(), re.M)
    steps = re.findall(r"- run: (.*)", (ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert ".ci/run" in steps
    assert [s for s in steps if s != ".ci/run" and f"`{s}`" not in readme and s not in readme] == []


@pytest.mark.parametrize("file", ["LICENSE", ".ci/run"])
def test_files_that_must_be_there(file: str) -> None:
    path = ROOT / file
    assert path.stat().st_size > 0
    assert file != ".ci/run" or path.stat().st_mode & 0o111
