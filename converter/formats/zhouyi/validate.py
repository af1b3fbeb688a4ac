"""Whether a document is a sound file of the format: `validate(document)` lists everything that is not.

Errors are what the vendor's reader would fail on or what contradicts itself; warnings are what it would silently ignore.
"""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable
from typing import Any

from converter.diagnostics import Diagnostic, Level
from converter.formats.zhouyi.bind import overlaps, size_error
from converter.formats.zhouyi.ir import MEMBERS, Document, Layer
from converter.formats.zhouyi.operators import Attribute, Group, Operator, common, find_operator, key_aliases, key_patterns, operators, type_aliases
from converter.formats.zhouyi.topology import check_graphs
from converter.formats.zhouyi.values import DType, print_value


def validate(document: Document) -> list[Diagnostic]:
    """All findings, in the order of the file within each kind. Codes: R103 sizes, R105 graph, R110 values, R111 unknown keys, R130 types, R131 missing keys."""
    found = check_graphs(document)
    for graph in document.graphs:
        for layer in graph.layers:
            found += check_layer(layer)
    return found + overlaps(document)


def check_layer(layer: Layer) -> list[Diagnostic]:
    """The findings that need no other layer."""
    found = _check_constants(layer)
    operator = find_operator(layer.type)
    if operator is None:
        hint = _nearest(layer.type, [*operators(), *type_aliases()])
        return [*found, _finding(layer, "R130", f"the layer type {layer.type} is not known", "layer_type", hint)]
    parts = _parts(layer, operator)
    return found + _check_inputs(layer, operator) + _check_known(layer, operator, parts) + _check_missing(layer, parts)


def _parts(layer: Layer, operator: Operator) -> list[Operator]:
    """The operator itself, what its method adds, and what every layer may have."""
    method = operator.methods.get(str(layer.attrs.get("method", "")).upper())
    return [operator, *([method] if method else []), common()]


def _finding(layer: Layer, code: str, message: str, key: str = "", help: str = "", level: Level = "error") -> Diagnostic:
    return Diagnostic(code, message, level, layer.where(key), help=help)


def _nearest(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(names), 1, 0.75)
    return f"is {near[0]} meant?" if near else ""


def _check_constants(layer: Layer) -> list[Diagnostic]:
    pairs = [(g, c) for g, c in layer.constants.items()] + [(g, c) for g, cs in layer.constant_lists.items() for c in cs]
    return [_finding(layer, "R103", f"the constant {g}: {message}", f"{g}_size") for g, c in pairs if (message := size_error(c))]


def _check_inputs(layer: Layer, operator: Operator) -> list[Diagnostic]:
    n = len(layer.inputs)
    if n < operator.fewest_inputs:
        return [_finding(layer, "R131", f"{layer.type} needs {operator.fewest_inputs} inputs, layer_bottom has {n}", "layer_bottom")]
    if n > operator.most_inputs:
        return [_finding(layer, "R105", f"{layer.type} has {len(operator.inputs)} inputs, layer_bottom has {n}", "layer_bottom", level="warning")]
    return []


def _attribute(key: str, parts: list[Operator]) -> Attribute | None:
    key = key_aliases().get(key, key)
    for part in parts:
        if key in part.attributes:
            return part.attributes[key]
        for a in part.attributes.values():
            if key in a.aliases:
                return a
    return None


def _check_known(layer: Layer, operator: Operator, parts: list[Operator]) -> list[Diagnostic]:
    found = []
    # of a group that is not whole only what is missing is reported
    members = {f"{g}_{m}" for p in parts for g in p.groups for m in MEMBERS}
    for key, value in layer.attrs.items():
        attribute = _attribute(key, parts)
        if attribute is not None:
            found += _check_value(layer, key, value, attribute)
        elif not operator.open and key not in members and not any(fnmatch.fnmatchcase(key, p) for p in key_patterns()):
            found.append(_unknown(layer, key, [k for p in parts for k in p.attributes]))
    for group in (*layer.constants, *layer.constant_lists):
        known = any(group in p.groups for p in parts) or any(fnmatch.fnmatchcase(group, p) for p in key_patterns())
        if not known and not operator.open:
            found.append(_unknown(layer, f"{group}_offset", [f"{g}_offset" for p in parts for g in p.groups]))
    return found


def _unknown(layer: Layer, key: str, known: list[str]) -> Diagnostic:
    # keys of one's own are allowed, but layer_ is reserved (section 4.5)
    level: Level = "error" if key.startswith("layer_") else "warning"
    return _finding(layer, "R111", f"{layer.type} has no key {key}", key, _nearest(key, known), level)


def _check_value(layer: Layer, key: str, value: Any, attribute: Attribute) -> list[Diagnostic]:
    if not any(_TYPES[t](value) for t in attribute.type.split("|")):
        text = layer.spelling.get(key) or print_value(value)
        return [_finding(layer, "R110", f"{key} should be {_said(attribute.type)}, not {text!r}", key)]
    if attribute.values and str(value).upper() not in {str(v).upper() for v in (*attribute.values, *attribute.value_aliases)}:
        allowed = ", ".join(str(v) for v in attribute.values)
        return [_finding(layer, "R110", f"{key} is {value}, which is none of {allowed}", key, _nearest(str(value).upper(), [str(v) for v in attribute.values]))]
    return []


def _check_missing(layer: Layer, parts: list[Operator]) -> list[Diagnostic]:
    dtype = next((t.dtype for t in layer.outputs if t.dtype is not None), None)
    absent = "float" if dtype is not None and not dtype.is_float else "int"
    found = []
    for part in parts:
        for a in part.attributes.values():
            if a.required and a.part != absent and not any(k in layer.attrs for k in (a.name, *a.aliases)):
                found.append(_finding(layer, "R131", f"{layer.type} needs the key {a.name}"))
        found += [_missing_group(layer, g) for g in part.groups.values() if g.required and g.part != absent and g.name not in layer.constants]
    return found


def _missing_group(layer: Layer, group: Group) -> Diagnostic:
    members = [f"{group.name}_{m}" for m in MEMBERS]
    missing = [m for m in members if m not in layer.attrs]
    return _finding(layer, "R131", f"{layer.type} needs the constant {group.name}; {', '.join(missing) or 'its data'} missing", members[1])


def _is_int(v: Any) -> bool:
    return isinstance(v, int) and not isinstance(v, bool)


def _is_number(v: Any) -> bool:
    return isinstance(v, int | float) and not isinstance(v, bool)


def _is_text(v: Any) -> bool:
    return isinstance(v, str) and not isinstance(v, DType)


def _all(test: Any) -> Any:
    def check(v: Any) -> bool:
        return isinstance(v, list) and all(check(e) if isinstance(e, list) else test(e) for e in v)

    return check


_TYPES = {
    "int": _is_int,
    "float": _is_number,
    "bool": lambda v: isinstance(v, bool) or (_is_int(v) and v in (0, 1)),
    "enum": _is_text,
    "string": lambda v: isinstance(v, str | int | float),
    "dtype": lambda v: isinstance(v, DType),
    "ints": _all(_is_int),
    "floats": _all(_is_number),
    "strings": lambda v: isinstance(v, list),
    "dtypes": _all(lambda v: isinstance(v, DType)),
    "any": lambda v: True,
}
_WORDS = {"int": "an integer", "float": "a number", "bool": "true or false", "enum": "a word", "string": "a text", "dtype": "a data type"}
_WORDS |= {"ints": "a list of integers", "floats": "a list of numbers", "strings": "a list", "dtypes": "a list of data types", "any": "anything"}


def _said(types: str) -> str:
    return " or ".join(_WORDS[t] for t in types.split("|"))
