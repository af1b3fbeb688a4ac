"""The repository as a whole: nothing unfinished, nothing from one machine, no file that grew out of
sight.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import symtable
from collections.abc import Iterator
from pathlib import Path

import pytest

import orphans
from support import CONVERTER, HANG, ROOT

FOLDERS = ("converter", "schemas", "tests", "samples", "docs", ".ci", ".github")
FILES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml", ".gitignore")
TEXT = {".py", ".md", ".toml", ".yml", ".json", ".xml", ".txt", ".rng", ".html", ""}
CACHES = {"__pycache__", ".hypothesis", ".pytest_cache"}


def text_files() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from (
            p
            for p in sorted((ROOT / folder).rglob("*"))
            if p.is_file() and p.suffix in TEXT and not CACHES & {*p.parts}
        )
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
    assert (
        found(
            r"(?<![\w.])/(?:work|home|root|Users|mnt)/\w",
            (p for p in text_files() if p != Path(__file__)),
        )
        == []
    )


def test_nothing_is_left_to_do() -> None:
    assert found(r"\b(?:TODO|FIXME|XXX|NotImplementedError)\b", python_files()) == []


def test_every_module_has_a_docstring() -> None:
    texts = {file: file.read_text(encoding="utf-8") for file in python_files()}
    silent = [
        str(file.relative_to(ROOT))
        for file, text in texts.items()
        if text.strip() and not ast.get_docstring(ast.parse(text))
    ]
    assert silent == []


def addresses(file: Path) -> list[str]:
    """`path:scope` of every function, class or module that uses the builtin `id`."""

    def walk(scope: symtable.SymbolTable, name: str) -> Iterator[str]:
        if (
            "id" in scope.get_identifiers()
            and scope.lookup("id").is_global()
            and scope.lookup("id").is_referenced()
        ):
            yield f"{file.relative_to(CONVERTER)}:{name}"
        for inner in scope.get_children():
            yield from walk(inner, f"{name}.{inner.get_name()}".lstrip("."))

    return list(walk(symtable.symtable(file.read_text(encoding="utf-8"), str(file), "exec"), ""))


def test_no_object_is_known_by_its_address() -> None:
    """The address of a deleted object is given to another: objects that must be distinguished are
    kept themselves.
    """
    assert [place for file in python_files() for place in addresses(file)] == []


def test_the_makefile_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.M)
    assert phony
    assert set(phony[1].split()) == set(re.findall(r"^([a-z-]+):.*## \S", makefile, re.M))


def test_continuous_integration_runs_the_documented_commands() -> None:
    """The workflow calls nothing but `.ci/run` and documented make targets."""
    readme = (ROOT / "README.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()
    steps = re.findall(r"- run: (.*)", (ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert ".ci/run" in steps
    assert [s for s in steps if s != ".ci/run" and f"`{s}`" not in readme and s not in readme] == []


def ci(
    folder: Path, pythons: dict[str, str], *, fails: str = "none", **variables: str
) -> tuple[int, list[str]]:
    """The calls of `.ci/run` where these interpreters are on the path (name: version), with a make
    that fails for one version.
    """
    shutil.rmtree(folder / "bin", ignore_errors=True)
    (folder / "bin").mkdir(parents=True)
    for name, version in {**pythons, "apt-get": "", "sudo": ""}.items():
        write_script(folder / "bin" / name, f"echo {version}" if version else "exit 1")
    write_script(folder / "bin" / "make", f'echo "make $*"; case "$*" in *{fails}*) exit 1;; esac')
    for tool in ("bash", "env", "sed", "grep", "sort", "uniq", "dirname", "id"):
        (folder / "bin" / tool).symlink_to(str(shutil.which(tool)))
    environment = {"PATH": str(folder / "bin"), "HOME": str(folder), **variables}
    environment[orphans.TOKEN] = os.environ[orphans.TOKEN]
    done = subprocess.run(
        [str(folder / "bin" / "bash"), str(ROOT / ".ci" / "run")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    return done.returncode, [
        line.replace(f"{folder}/bin/", "")
        for line in done.stdout.splitlines()
        if line.startswith("make ")
    ]


def write_script(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def test_continuous_integration_takes_the_oldest_and_newest_python_and_ends_with_all_tests(
    tmp_path: Path,
) -> None:
    many = {
        "python3": "3.12",
        "python3.11": "3.11",
        "python3.12": "3.12",
        "python3.13": "3.13",
        "python3.10": "3.10",
        "python3.99": "3.99",
    }
    oldest, newest, whole = (
        "make quick PYTHON=python3.11",
        "make quick PYTHON=python3.13",
        "make test PYTHON=python3",
    )
    assert ci(tmp_path, many) == (0, [oldest, newest, whole])
    pages = "make test-browser PYTHON=python3"
    chromium = {**many, "chromium": "", "chromedriver": ""}
    assert ci(tmp_path, chromium) == (0, [oldest, newest, whole, pages])
    assert ci(tmp_path, chromium, fails="browser") == (1, [oldest, newest, whole, pages])
    assert ci(tmp_path, {**many, "chromium": ""}) == (0, [oldest, newest, whole])  # no driver
    assert ci(tmp_path, many, PYTHON="python3.13") == (0, [oldest, "make test PYTHON=python3.13"])
    assert ci(tmp_path, {"python3": "3.12"}) == (0, [whole])
    assert ci(tmp_path, {"python3": "3.9", "python3.13": "3.13"}) == (
        0,
        ["make test PYTHON=python3.13"],
    )
    assert ci(tmp_path, many, fails="3.11") == (
        1,
        [oldest, newest, whole],
    )  # a failure does not hide others
    assert ci(tmp_path, {"python3": "3.9"}) == (1, [])
    for version in ("3.11.7", "3.13.0"):
        write_script(
            tmp_path / ".pyenv" / "versions" / version / "bin" / "python3", f"echo {version[:4]}"
        )
    code, calls = ci(tmp_path, {"python3": "3.12"})
    assert code == 0 and [c.replace(str(tmp_path), "") for c in calls] == [
        *(f"make quick PYTHON=/.pyenv/versions/{v}/bin/python3" for v in ("3.11.7", "3.13.0")),
        whole,
    ]


def test_another_python_has_an_environment_of_its_own(tmp_path: Path) -> None:
    """Of the version that .venv is not; nothing is run."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    write_script(tmp_path / "python", "echo 3.99")

    def environment() -> set[str]:
        said = subprocess.run(
            ["make", "-n", "test", f"PYTHON={tmp_path / 'python'}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=HANG,
        )
        return set(re.findall(r"^(\S+)/bin/python -m pytest", said.stdout, re.M))

    (tmp_path / "pyproject.toml").touch()
    assert environment() == {".venv"}
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.7\n")
    assert environment() == {".venv-3.99"}
    (tmp_path / ".venv" / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.99.1\n")
    assert environment() == {".venv"}


@pytest.mark.parametrize("file", ["LICENSE", ".ci/run"])
def test_files_that_must_be_there(file: str) -> None:
    path = ROOT / file
    assert path.stat().st_size > 0
    assert file != ".ci/run" or path.stat().st_mode & 0o111


TOP = {
    ".ci", ".github", ".gitignore", ".pre-commit-hooks.yaml", "CHANGELOG.md", "CONTRIBUTING.md",
    "LICENSE", "Makefile", "README.md", "action.yml", "converter", "docs", "pyproject.toml",
    "samples", "schemas", "tests",
}  # fmt: skip


def test_the_top_level_stays_small() -> None:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run([git, "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {line.partition("/")[0] for line in listed.stdout.splitlines()} == TOP
