"""The pages for developers: their rows keep the laws, the files that they name exist."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest

import golden
from converter import formats
from converter.cli.names import COMMANDS, command
from converter.commands.explain import CODES
from converter.commands.options.declare import declared
from converter.errors import ExitCode, MappingError
from converter.formats import FORMATS
from converter.graph import catalogue, extensions
from converter.graph.build import new_model
from converter.mapping.codecs import enum
from converter.mapping.concepts.axes import Axes, Axis, Permutation
from converter.mapping.concepts.matmul import Transposes
from converter.mapping.concepts.window import Geometry, Window
from converter.mapping.fields import (
    Attr,
    AttrInput,
    Const,
    Detail,
    Field,
    Guard,
    RequireAttr,
    RequireKey,
    Weight,
    ignore,
)
from converter.mapping.lifting import FormatMapping, Lifting
from converter.mapping.lowering import Lowering
from converter.mapping.node import Layer, Node
from converter.mapping.rules import Rule, Table, custom, op, ops
from laws.adapters import Adapter
from support import CONVERTER, HANG, ROOT, module_of
from test_mapping_laws import check_lift_undoes_lower, check_lower_undoes_lift

generate = module_of(ROOT / "docs" / "generate.py")
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "CONTRIBUTING.md"]
BLOCKS = re.findall(
    r"```python rows\n(.*?)```", (ROOT / "docs/adding-an-operator.md").read_text("utf-8"), re.DOTALL
)
NAMES: dict[str, Any] = {
    "Attr": Attr, "AttrInput": AttrInput, "Const": Const, "Field": Field, "RequireKey": RequireKey,
    "Guard": Guard, "RequireAttr": RequireAttr, "Weight": Weight, "ignore": ignore, "enum": enum,
    "op": op, "ops": ops, "custom": custom, "Axes": Axes, "Axis": Axis, "Permutation": Permutation,
    "Transposes": Transposes, "Detail": Detail, "Window": Window, "Geometry": Geometry,
    "MappingError": MappingError, "FLOAT": ir.DataType.FLOAT,
}  # fmt: skip


def rules(block: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Run a block of the page; its extension operators are gone after the test."""
    monkeypatch.setattr(catalogue, "CATALOGUE", catalogue.catalogue())
    scope = {**NAMES, "extension": extensions.extension, "__name__": __name__}
    exec(block, scope)
    found: list[Any] = scope["RULES"]
    return found


def test_the_page_has_cases() -> None:
    assert len(BLOCKS) >= 9


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_rows_of_the_page_keep_the_laws(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = Adapter("page", FormatMapping(Table(rules(block, monkeypatch))))
    for rule in adapter.table.rules:
        if not rule.lift_only:
            check_lift_undoes_lower(rule, adapter)
            check_lower_undoes_lift(rule, adapter)
    readable = {r.kind for r in adapter.table.rules if r.lift_only}
    assert readable <= adapter.table.kinds()


def test_the_custom_converter_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = (b for b in BLOCKS if "lift_split" in b)
    mapping = FormatMapping(Table(rules(block, monkeypatch)))
    _, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [4, 6])
    layer = Layer("Split", attrs={"axis": 1}, inputs=[x], outputs=[ir.Value(), ir.Value()])
    made = Lifting(mapping, b, "page").layer(layer)
    assert made is not None and [list(v.shape or ()) for v in made] == [[4, 3], [4, 3]]
    low = Lowering(mapping)
    low.lower_view(Node("Split", attrs={"axis": 1, "num_outputs": 2}, inputs=[x], outputs=made))
    assert [(w.kind, w.attrs) for w in low.layers] == [("Split", {"axis": 1})]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_files_that_a_page_names_exist(page: Any) -> None:
    text = page.read_text("utf-8")
    named = re.findall(r"`((?:converter|tests|schemas|docs|samples)/[^`\s<>*]*)`", text)
    links = [m for m in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in m]
    missing = [n for n in named if not (ROOT / n).exists()]
    made = {ROOT / "docs" / name for name, _ in generate.pages()}
    linked = [(page.parent / n).resolve() for n in links]
    missing += [str(p) for p in linked if not p.exists() and p not in made]
    assert missing == []


# --- the pages for users

PLAYED = [p for p in PAGES if "```console" in p.read_text("utf-8")]


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=[] if p.stem == "start" else [pytest.mark.slow]) for p in PLAYED],
    ids=lambda p: p.stem,
)
def test_console_blocks_are_the_printed_output(page: Path, tmp_path: Path, record: bool) -> None:
    text = page.read_text("utf-8")
    played = golden.play(text, tmp_path)
    if record and played != text:
        page.write_text(played, "utf-8")
        pytest.skip(f"recorded: {page.name}")
    assert played == text


def test_every_command_is_shown() -> None:
    shown = {
        line.split()[2]
        for page in (ROOT / "docs" / "start.md", ROOT / "docs" / "commands.md")
        for line in page.read_text("utf-8").splitlines()
        if line.startswith("$ netconv ")
    }
    assert COMMANDS.keys() - shown == {"completion"}  # a script of a hundred lines


def test_there_are_pages_of_every_format_code_command_and_exit_code() -> None:
    made = {name: "\n".join(lines) for name, lines in generate.pages()}
    assert {n for n in made if n.startswith("formats/")} == {
        "formats/index.md",
        *(f"formats/{f}.md" for f in FORMATS),
    }
    for name, page in CODES.items():
        assert f"### {name}: {page.title}\n\n{page.text}" in made["codes.md"]
    assert set(re.findall(r"^## ([\w-]+)$", made["options.md"], re.M)) == {*COMMANDS}
    for name in COMMANDS:
        (part,) = re.findall(rf"^## {name}$(.*?)^## ", made["options.md"], re.M | re.S)
        for option in declared(command(name).options):
            flags = ", ".join(f"`{f}`" for f in option.flags)
            assert part.count(f"\n| {flags}") == 1
    assert all(f"| {int(c)} | {c.status} |" in made["exit-codes.md"] for c in ExitCode)
    assert "| Convolution | Conv |" in made["formats/zhouyi.md"]
    kinds = formats.get("onnx").kinds()
    assert all(f"| {kind} |" in made["formats/onnx.md"] for kind in kinds)


def test_codes_and_options_are_links_outside_of_blocks() -> None:
    block = "```console\n$ netconv convert a b --state x=y\nerror[X202] no\n```\n"
    assert generate.linked(
        f"`--state A=B`, [`--state`](x.md), `a --state` and X202, X999.\n{block}"
    ) == (
        "[`--state A=B`](#option-state), [`--state`](x.md), `a --state` and [X202](#x202), X999.\n"
        + block
    )


@pytest.mark.slow
def test_the_pages_are_built_without_a_warning(tmp_path: Path) -> None:
    for name in ("sphinx", "myst_parser", "furo", "sphinx_copybutton"):
        pytest.importorskip(name, reason=f"{name} is not installed: pip install '.[docs]'")
    generate.main(tmp_path / "source")
    (tmp_path / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    call = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", "source", "html"]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, timeout=HANG)
    assert (done.returncode, done.stderr) == (0, "")
    html = "".join(p.read_text("utf-8") for p in (tmp_path / "html").rglob("*.html"))
    fetched = re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(?:https?:)?//[^"]*', html)
    assert fetched == []


assert Rule


def test_every_format_has_the_files_that_the_table_lists() -> None:
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    rows = re.findall(r"^\| `([\w./]+)` \| [^|]+ \| ((?:all|[a-z]+)[^|]*) \|$", text, re.M)
    listed = {file: where for file, where in rows if not file.startswith("converter/")}
    assert len(listed) > 10
    folders = {p.parent.name: p.parent for p in CONVERTER.glob("formats/*/**/format.py")}
    for file, where in listed.items():
        words = set(re.findall(r"\w+", where)) & folders.keys()
        there = {name for name, folder in folders.items() if (folder / file).exists()} | {
            p.parent.parent.name for p in CONVERTER.glob(f"formats/openvino/*/{file}")
        }
        assert there == (set(folders) - words if where.startswith("all") else words), file


@pytest.mark.parametrize(
    "package", sorted(CONVERTER.rglob("__init__.py")), ids=lambda p: p.parent.name
)
def test_a_package_that_lists_its_modules_lists_all(package: Path) -> None:
    text = ast.get_docstring(ast.parse(package.read_text("utf-8"))) or ""
    listed = re.findall(r"(?<![\w/])(\w+\.py|\w+/)(?=[ ,)\n]|$)", text)
    modules = [p.name for p in package.parent.glob("*.py") if p != package]
    modules += [f"{p.parent.name}/" for p in package.parent.glob("*/__init__.py")]
    if listed:
        assert sorted(listed) == sorted(modules)
