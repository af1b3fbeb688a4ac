"""The inverse of Result.as_json: convert a stored comparison back to a Result."""

from __future__ import annotations

from dataclasses import is_dataclass
from functools import cache
from itertools import repeat
from typing import Any, Literal, get_args, get_origin, get_type_hints

from converter.commands.verify.result import Result
from converter.io.strict_json import Json


def result_of(data: Json) -> Result:
    """Return the stored result. Raises KeyError, TypeError, ValueError or AttributeError if `data`
    does not follow schemas/report/verify.json.
    """
    found: Result = value_of(Result, data)
    return found


def value_of(kind: Any, data: Any) -> Any:
    """Return the value of the type `kind` that `dataclasses.asdict` and JSON converted to `data`:
    objects become dataclasses, lists tuples, texts infinities and NaN. Unknown keys of objects are
    ignored.
    """
    if hints := _fields(kind):
        return kind(**{k: value_of(hints[k], v) for k, v in data.items() if k in hints})
    inner = get_args(kind)
    if get_origin(kind) is tuple:
        if not isinstance(data, list | tuple):
            raise TypeError(f"{data!r} must be a list")
        kinds = repeat(inner[0], len(data)) if inner[-1] is ... else inner
        return tuple(value_of(k, v) for k, v in zip(kinds, data, strict=True))
    if inner[1:] == (type(None),):
        return None if data is None else value_of(inner[0], data)
    return float(data) if kind is float else _of_type(kind, data)


def _of_type(kind: Any, data: Any) -> Any:
    """Return the data unchanged; raise TypeError if a field of the type `kind` cannot hold them."""
    known = get_origin(kind) or kind
    if known is Literal:
        right = data in get_args(kind)
    elif known is int:
        right = isinstance(data, int) and not isinstance(data, bool)
    else:
        right = known not in (str, bool, dict) or isinstance(data, known)
    if not right:
        raise TypeError(f"{data!r} is not a valid {kind}")
    return data


@cache
def _fields(kind: Any) -> Json:
    """Return the types of the fields of a dataclass; empty for any other type."""
    return get_type_hints(kind) if is_dataclass(kind) else {}
