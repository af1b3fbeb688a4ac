"""JSON objects with checked access: a value of the right type, or a ReadError that names its
path.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from converter.errors import ReadError, Where, unreadable
from converter.io import strict_json
from converter.io.files import open_side_file
from converter.io.mapped_file import MappedFile

T = TypeVar("T")
_MISSING: Any = object()


def parse_object(source: MappedFile, file: str) -> dict[str, Any]:
    """Return the JSON object in a file; raise ReadError R103 for anything else, for repeated keys,
    NaN, and excessive numbers or nesting.
    """
    data = source.bytes.tobytes()
    try:
        value = strict_json.parse(data, finite=True)
    except (UnicodeDecodeError, UnicodeEncodeError) as e:
        raise unreadable("R103", f"the text is not UTF-8: {e.reason}", file) from None
    except json.JSONDecodeError as e:
        raise unreadable("R103", f"this is not JSON: {e.msg}", Where(file, line=e.lineno)) from None
    except ValueError as e:
        raise unreadable("R103", f"this is not JSON: {str(e).split(';')[0]}", file) from None
    if not isinstance(value, dict):
        raise unreadable("R103", "the file must contain a JSON object", file)
    return value


def open_pool(table: Path, name: str, where: Where) -> MappedFile | None:
    """Open a pool: a plain file name in the folder of the table (R107 otherwise); None when it is
    missing.
    """
    if name in ("", ".", "..") or "/" in name or os.sep in name:
        raise unreadable(
            "R107", f"pool {name!r} is not the name of a file next to the table", where
        )
    return open_side_file(table, name, where)


class Fields:
    """One JSON object and its path.

    Getters mark a key as known; `done` returns the keys that were not read.
    """

    def __init__(self, raw: dict[str, Any], file: str, path: str = "") -> None:
        self.raw = raw
        self._file = file
        self._path = path
        self._known: set[str] = set()

    def where(self, key: str = "") -> Where:
        """Return the location of a key, or of the object."""
        return Where(
            self._file, path=f"{self._path}.{key}" if self._path and key else self._path or key
        )

    def __contains__(self, key: str) -> bool:
        self._known.add(key)
        return key in self.raw

    @property
    def omitted(self) -> frozenset[str]:
        return frozenset(self._known - self.raw.keys())

    def unread(self) -> dict[str, Any]:
        """Return the keys that were not read, with their values."""
        return {k: v for k, v in self.raw.items() if k not in self._known}

    def done(self, extra: dict[str, Any]) -> None:
        """Add the keys that were not read to `extra`."""
        extra.update(self.unread())

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, which counts as read."""
        self._known.add(key)
        return self.raw.get(key, default)

    def _bad(self, key: str, expected: str, value: Any) -> ReadError:
        shown = "nothing" if value is _MISSING else repr(value)
        return unreadable(
            "R110",
            f"expected {expected}, got {shown if len(shown) < 60 else shown[:57] + '...'}",
            self.where(key),
        )

    def integer(self, key: str, low: int, high: int, default: int = _MISSING) -> int:
        """Return an integer between `low` and `high`. Raises ReadError for other values."""
        value = self.get(key, default)
        if type(value) is not int or not low <= value <= high:
            raise self._bad(key, f"an integer of {low}..{high}", value)
        return value

    def number(self, key: str, default: float = _MISSING) -> float:
        """Return a finite number. Raises ReadError for other values."""
        value = self.get(key, default)
        if type(value) not in (int, float) or not _finite(value):
            raise self._bad(key, "a finite number", value)
        return float(value)

    def text(self, key: str, default: str = _MISSING) -> str:
        """Return a string. Raises ReadError for other types."""
        value = self.get(key, default)
        if not isinstance(value, str):
            raise self._bad(key, "a string", value)
        return value

    def boolean(self, key: str, default: bool) -> bool:
        """Return a boolean. Raises ReadError for other types."""
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise self._bad(key, "true or false", value)
        return value

    def choice(self, key: str, choices: Mapping[str, T]) -> T:
        """Return the choice that a string names. Raises ReadError for other values."""
        value = self.get(key, _MISSING)
        if not isinstance(value, str) or value not in choices:
            raise self._bad(key, f"one of {', '.join(choices)}", value)
        return choices[value]

    def _list(self, key: str, optional: bool = False) -> list[Any]:
        value = self.get(key, [] if optional else _MISSING)
        if not isinstance(value, list):
            raise self._bad(key, "a list", value)
        return value

    def integers(self, key: str, low: int, high: int) -> list[int]:
        """Return a list of integers between `low` and `high`. Raises ReadError for other values."""
        values = self._list(key)
        for i, value in enumerate(values):
            if type(value) is not int or not low <= value <= high:
                raise self._bad(f"{key}[{i}]", f"an integer of {low}..{high}", value)
        return values

    def numbers(self, key: str) -> list[float]:
        """Return a list of finite numbers. Raises ReadError for other values."""
        values = self._list(key)
        for i, value in enumerate(values):
            if type(value) not in (int, float) or not _finite(value):
                raise self._bad(f"{key}[{i}]", "a finite number", value)
        return values

    def texts(self, key: str) -> list[str]:
        """Return a list of strings. Raises ReadError for other types."""
        values = self._list(key)
        for i, value in enumerate(values):
            if not isinstance(value, str):
                raise self._bad(f"{key}[{i}]", "a string", value)
        return values

    def object(self, key: str) -> Fields:
        """Return the fields of an object. Raises ReadError for other types."""
        value = self.get(key, _MISSING)
        if not isinstance(value, dict):
            raise self._bad(key, "an object", value)
        return Fields(value, self._file, self.where(key).path)

    def objects(self, key: str, optional: bool = False) -> Iterator[Fields]:
        """Yield the fields of each object of a list. Raises ReadError for other types."""
        path = self.where(key).path
        for i, value in enumerate(self._list(key, optional)):
            if not isinstance(value, dict):
                raise self._bad(f"{key}[{i}]", "an object", value)
            yield Fields(value, self._file, f"{path}[{i}]")


def _finite(value: float) -> bool:
    # a scale is a float32: a number that overflows it counts as infinite
    return (
        math.isfinite(value) and abs(value) <= 3.4028235677973366e38
        if type(value) is float
        else abs(value) < 2**127
    )
