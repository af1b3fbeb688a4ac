"""Rules for hooks: a short function around the node of a row, which reads nothing that no field
of the row owns. The functions of a detail are short, too.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from converter.errors import MappingError
from converter.graph.infer import InferenceError
from converter.mapping.fields import Detail, Hook
from converter.mapping.rules import Custom, Rule
from laws.adapters import Adapter
from test_mapping_laws import ADAPTERS, SYMMETRIC, lifted, lowered

STATEMENTS = 12
HOOKED = [p for p in SYMMETRIC if p.values[0].has_hook]
TABLES = {name: adapter.table for name, adapter in ADAPTERS.items()}


def hooks(rule: Rule) -> Iterator[Callable[..., Any]]:
    for f in rule.fields:
        if isinstance(f, Hook):
            yield from filter(None, (f.before_lift, f.after_lift, f.before_lower, f.after_lower))
        if isinstance(f, Detail):
            yield from filter(None, (f.read, f.write))


def statements(function: Callable[..., Any]) -> int:
    """Statements of a function, those of functions inside it included; without the docstring."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)).lstrip("."))
    outer = next((n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)), None)
    if outer is None:  # a lambda
        return 1
    count = sum(isinstance(n, ast.stmt) for n in ast.walk(outer)) - 1
    return count - (ast.get_docstring(outer) is not None)


def test_hooks_are_short() -> None:
    long = {}
    for name, table in TABLES.items():
        for rule in table.rules:
            for hook in hooks(rule):
                code = getattr(hook, "func", hook)  # of a partial
                if inspect.isfunction(code) and code.__name__ != "<lambda>":
                    count = statements(code)
                    if count > STATEMENTS:
                        long[f"{name} {code.__module__}.{code.__name__}"] = count
    assert long == {}


@pytest.mark.parametrize("name", TABLES)
def test_most_kinds_are_rows_and_most_rows_have_no_hook(name: str) -> None:
    entries = TABLES[name].entries
    functions = {k for e in entries if isinstance(e, Custom) for k in e.kinds}
    rows = {e.kind for e in entries if isinstance(e, Rule)} - functions
    has_hook = {e.kind for e in entries if isinstance(e, Rule) and e.has_hook} - functions
    assert len(rows) >= 0.75 * len(rows | functions)
    assert len(has_hook) <= len(rows) / 3


class Recorded(dict[str, Any]):
    """Attributes that remember which of them were asked for."""

    def __init__(self, given: dict[str, Any], read: set[str]) -> None:
        super().__init__(given)
        self.read = read

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.read.add(str(key))
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return super().get(key, default)


@pytest.mark.parametrize(("rule", "adapter"), HOOKED)
def test_a_row_with_a_hook_reads_only_owned_attributes(
    rule: Rule, adapter: Adapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: set[str] = set()
    names: set[str] = set()
    lift, lower = Rule.lift, Rule.lower

    def recorded_lift(self: Rule, r: Any) -> Any:
        if self is rule:
            r.layer.attrs = Recorded(r.layer.attrs, keys)
        return lift(self, r)

    def recorded_lower(self: Rule, w: Any) -> None:
        if self is rule:
            w.node.attrs = Recorded(w.node.attrs, names)
        lower(self, w)

    monkeypatch.setattr(Rule, "lift", recorded_lift)
    monkeypatch.setattr(Rule, "lower", recorded_lower)
    for s in lowered(rule, adapter):
        if not rule.lower_only:
            with contextlib.suppress(MappingError, InferenceError):
                lifted(adapter, s)
    assert keys <= rule.owned("keys")
    assert names <= rule.owned("names")
