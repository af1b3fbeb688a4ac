"""The pages for developers: their rows keep the laws, the files that they name exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest

from converter.errors import MappingError
from converter.graph import extensions
from converter.graph.build import new_model
from converter.mapping.codecs import enum
from converter.mapping.fields import (
    Attr,
    AttrInput,
    Const,
    Field,
    Fixed,
    Guard,
    Only,
    Weight,
    ignore,
)
from converter.mapping.lifting import FormatMapping, Lifting
from converter.mapping.lowering import Lowering
from converter.mapping.node import Layer, Node
from converter.mapping.rules import Rule, Table, custom, op, ops
from support import CONVERTER, ROOT
from test_mapping_laws import check_lift_undoes_lower, check_lower_undoes_lift

PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md"]
BLOCKS = re.findall(
    r"```python rows\n(.*?)```", (ROOT / "docs/adding-an-operator.md").read_text("utf-8"), re.DOTALL
)
NAMES: dict[str, Any] = {
    "Attr": Attr, "AttrInput": AttrInput, "Const": Const, "Field": Field, "Fixed": Fixed, "Guard": Guard, "Only": Only,
    "Weight": Weight, "ignore": ignore, "enum": enum, "op": op, "ops": ops, "custom": custom, "MappingError": MappingError,
    "FLOAT": ir.DataType.FLOAT,
}  # fmt: skip


def rules(block: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a block of the page declares; its extension operators are gone after the test."""
    monkeypatch.setattr(extensions, "CATALOGUE", extensions.catalogue())
    scope = {**NAMES, "extension": extensions.extension, "__name__": __name__}
    exec(block, scope)
    found: list[Any] = scope["RULES"]
    return found


def test_the_page_has_cases() -> None:
    assert len(BLOCKS) >= 9


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_rows_of_the_page_keep_the_laws(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mapping = FormatMapping(Table(rules(block, monkeypatch)))
    for rule in mapping.table.rules:
        if not rule.lift_only:
            check_lift_undoes_lower(rule, mapping)
            check_lower_undoes_lift(rule, mapping)
    readable = {r.kind for r in mapping.table.rules if r.lift_only}
    assert readable <= mapping.table.kinds()


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
    missing += [n for n in links if not (page.parent / n).exists()]
    assert missing == []


assert Rule


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
