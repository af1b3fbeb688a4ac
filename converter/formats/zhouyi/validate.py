"""Validation of a document: `validate(document)` lists all of its errors.

Errors are contradictions and content on which the vendor's reader would fail; warnings are content
that it would silently ignore.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from typing import Any

from converter.errors import Diagnostic, Level, closest
from converter.formats.zhouyi.bind import overlaps, size_error
from converter.formats.zhouyi.ir import MEMBERS, Document, Layer
from converter.formats.zhouyi.operators import (
    Attribute,
    Operator,
    common,
    find_operator,
    key_aliases,
    key_patterns,
    operators,
    type_aliases,
)
from converter.formats.zhouyi.topology import check_graphs
from converter.formats.zhouyi.values import DType, is_int, print_value


def validate(document: Document) -> list[Diagnostic]:
    """Return all findings, in the order of the file within each kind. Codes: R103 sizes, R105
    graph, R110 values, R111 unknown keys, R130 types, R131 missing keys.
    """
    found = check_graphs(document)
    for graph in document.graphs:
        for layer in graph.layers:
            found += check_layer(layer)
    return found + overlaps(document)


def check_layer(layer: Layer) -> list[Diagnostic]:
    """Return the findings that need no other layer."""
    return _Check(layer).run()


def _nearest(name: str, names: Iterable[str]) -> str:
    near = closest(name, names, 0.75)
    return f"perhaps {near} is meant" if near else ""


class _Check:
    """A check of one layer, which collects findings."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.found: list[Diagnostic] = []

    def add(
        self, code: str, message: str, key: str = "", help: str = "", level: Level = "error"
    ) -> None:
        self.found.append(Diagnostic(code, message, level, self.layer.where(key), help=help))

    def run(self) -> list[Diagnostic]:
        layer, operator = self.layer, find_operator(self.layer.type)
        groups = [*layer.constants.items()]
        groups += [(g, c) for g, cs in layer.constant_lists.items() for c in cs]
        for g, c in groups:
            if message := size_error(c):
                self.add("R103", f"constant {g}: {message}", f"{g}_size")
        if operator is None:
            hint = _nearest(layer.type, [*operators(), *type_aliases()])
            self.add("R130", f"layer type {layer.type} is not known", "layer_type", hint)
            return self.found
        # the operator itself, the additions of its method, and keys of every layer
        method = operator.methods.get(str(layer.attrs.get("method", "")).upper())
        parts = [operator, *([method] if method else []), common()]
        self.inputs(operator)
        self.known(operator, parts)
        self.missing(parts)
        return self.found

    def inputs(self, operator: Operator) -> None:
        n, kind, least = len(self.layer.inputs), self.layer.type, operator.fewest_inputs
        if n < least:
            message = f"{kind} needs {least} inputs, but layer_bottom has {n}"
            self.add("R131", message, "layer_bottom")
        elif n > operator.most_inputs:
            message = f"{kind} has {len(operator.inputs)} inputs, but layer_bottom has {n}"
            self.add("R105", message, "layer_bottom", level="warning")

    def known(self, operator: Operator, parts: list[Operator]) -> None:
        # for an incomplete group only its missing members are reported
        members = {f"{g}_{m}" for p in parts for g in p.groups for m in MEMBERS}
        for key, value in self.layer.attrs.items():
            attribute = _attribute(key, parts)
            if attribute is not None:
                self.value(key, value, attribute)
            elif not operator.open and key not in members and not _is_common(key):
                self.unknown(key, [k for p in parts for k in p.attributes])
        for group in (*self.layer.constants, *self.layer.constant_lists):
            known = any(group in p.groups for p in parts) or _is_common(group)
            if not known and not operator.open:
                self.unknown(f"{group}_offset", [f"{g}_offset" for p in parts for g in p.groups])

    def unknown(self, key: str, known: list[str]) -> None:
        # keys of one's own are allowed, but layer_ is reserved (section 4.5)
        level: Level = "error" if key.startswith("layer_") else "warning"
        message = f"{self.layer.type} has no key {key}"
        self.add("R111", message, key, _nearest(key, known), level)

    def value(self, key: str, value: Any, attribute: Attribute) -> None:
        if not any(_TYPES[t](value) for t in attribute.type.split("|")):
            text = self.layer.spelling.get(key) or print_value(value)
            wanted = " or ".join(_WORDS[t] for t in attribute.type.split("|"))
            self.add("R110", f"{key} must be {wanted}, got {text!r}", key)
            return
        allowed = [str(v) for v in attribute.values]
        known = {v.upper() for v in (*allowed, *attribute.value_aliases)}
        if allowed and str(value).upper() not in known:
            message = f"{key} must be one of {', '.join(allowed)}, got {value}"
            self.add("R110", message, key, _nearest(str(value).upper(), allowed))

    def missing(self, parts: list[Operator]) -> None:
        layer = self.layer
        dtype = next((t.dtype for t in layer.outputs if t.dtype is not None), None)
        absent = "float" if dtype is not None and not dtype.is_float else "int"
        for part in parts:
            for a in part.attributes.values():
                there = any(k in layer.attrs for k in (a.name, *a.aliases))
                if a.required and a.part != absent and not there:
                    self.add("R131", f"{layer.type} needs the key {a.name}")
            for g in part.groups.values():
                if g.required and g.part != absent and g.name not in layer.constants:
                    members = [f"{g.name}_{m}" for m in MEMBERS]
                    gone = ", ".join(m for m in members if m not in layer.attrs) or "its data"
                    message = f"{layer.type} needs the constant {g.name}; {gone} missing"
                    self.add("R131", message, members[1])


def _is_common(key: str) -> bool:
    """Return whether any layer may have the key."""
    return any(fnmatch.fnmatchcase(key, p) for p in key_patterns())


def _attribute(key: str, parts: list[Operator]) -> Attribute | None:
    key = key_aliases().get(key, key)
    for part in parts:
        if key in part.attributes:
            return part.attributes[key]
        for a in part.attributes.values():
            if key in a.aliases:
                return a
    return None


def _is_number(v: Any) -> bool:
    return is_int(v) or isinstance(v, float)


def _is_text(v: Any) -> bool:
    return isinstance(v, str) and not isinstance(v, DType)


def _all(test: Any) -> Any:
    def check(v: Any) -> bool:
        return isinstance(v, list) and all(check(e) if isinstance(e, list) else test(e) for e in v)

    return check


_TYPES = {
    "int": is_int,
    "float": _is_number,
    "bool": lambda v: isinstance(v, bool) or (is_int(v) and v in (0, 1)),
    "enum": _is_text,
    "string": lambda v: isinstance(v, str | int | float),
    "dtype": lambda v: isinstance(v, DType),
    "ints": _all(is_int),
    "floats": _all(_is_number),
    "strings": lambda v: isinstance(v, list),
    "dtypes": _all(lambda v: isinstance(v, DType)),
    "any": lambda v: True,
}
_WORDS = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "enum": "a word",
    "string": "a string",
    "dtype": "a data type",
    "ints": "a list of integers",
    "floats": "a list of numbers",
    "strings": "a list",
    "dtypes": "a list of data types",
    "any": "anything",
}
