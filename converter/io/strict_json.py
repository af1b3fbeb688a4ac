"""Read JSON of untrusted origin: completely or not at all, and only if it has the expected form."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from converter.errors import cannot_read, unreadable

Json = dict[str, Any]  # an object
_DEEPEST = 100
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")

# The form of a value: a type (int excludes bool, float includes integers, None is null), [FORM] a
# list, {str: FORM} an object with any keys, {"key": FORM, ...} an object with these optional keys,
# (FORM, FORM, ...) one of several, or a literal text or number.
Form = Any


def parse(text: str | bytes, finite: bool = False) -> Any:
    """Parse JSON. Raises ValueError with the reason for anything else, including repeated keys,
    lone surrogates, excessive nesting and, with `finite`, NaN.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8-sig")
    try:
        value = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_no_constant if finite else None
        )
        if _SURROGATE.search(text):  # a lone surrogate cannot be written to any file
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    level = [value]
    for _ in range(_DEEPEST):  # it may still be too deep for functions that walk it
        level = [
            v
            for outer in level
            if isinstance(outer, dict | list)
            for v in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return value
    raise ValueError("the JSON is nested too deeply")


def read(path: Path, what: str) -> Any:
    """Parse a file. Raises ReadError R100 if it cannot be read, R103 if it is not `what`."""
    try:
        return parse(path.read_bytes())
    except OSError as e:
        raise cannot_read(path, e) from None
    except ValueError as e:
        raise unreadable("R103", f"this is not {what}: {e}", path) from None


def note(text: str | bytes, form: Form) -> Any:
    """Parse a note of ours in a file; return None if it does not have the form, since then it is
    not ours.
    """
    try:
        value = parse(text)
    except ValueError:
        return None
    return value if has_form(value, form) else None


def has_form(value: Any, form: Form, whole: bool = False) -> bool:
    """Return whether a JSON value has the `form`; keys that the form does not name are ignored.
    `whole`: an object must have all keys of the form, and no others.
    """
    if isinstance(form, tuple):
        return any(has_form(value, f, whole) for f in form)
    if isinstance(form, list):
        return isinstance(value, list) and all(has_form(v, form[0], whole) for v in value)
    if isinstance(form, dict):
        return _has_keys(value, form, whole)
    if isinstance(form, str | int) and not isinstance(form, bool):
        return type(value) is type(form) and bool(value == form)
    if form in (int, float):
        return isinstance(value, (int, form)) and not isinstance(value, bool)
    return value is None if form is None else isinstance(value, form)


def _has_keys(value: Any, form: dict[Any, Form], whole: bool) -> bool:
    if not isinstance(value, dict):
        return False
    if str in form:
        return all(has_form(v, form[str], whole) for v in value.values())
    if whole and value.keys() != form.keys():
        return False
    return all(has_form(v, form[k], whole) for k, v in value.items() if k in form)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        raise ValueError(
            f"key {next((k for k, _ in pairs if k in seen or seen.add(k)))!r} is repeated"  # type: ignore[func-returns-value]
        )
    return result


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")
