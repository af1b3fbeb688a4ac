"""Codecs: inverse pairs of functions on one value, in which `lift` maps a foreign value to the
canonical one and `lower` maps it back.

A row names the codec of an attribute by a Python type (`int`, `float`, `bool`, `str`, `list` of
integers, `Floats`, `tuple` of words). Each format declares once, in its `spelling`, how it spells
values of these types.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from converter.errors import MappingError
from converter.record import record


class Floats(list[float]):
    """A list of numbers.

    As a default value it remains a list of floats even if its elements look like integers.
    """


Kind = type  # int, float, bool, str, list (integers), Floats, tuple (words)


@record
class Codec:
    """A pair of functions between an attribute's value in a layer and in a node."""

    lift: Callable[[Any], Any]
    lower: Callable[[Any], Any]
    table: Mapping[Any, Any] | None = None  # of an enum: canonical value -> foreign value

    def __invert__(self) -> Codec:
        return Codec(
            self.lower,
            self.lift,
            None if self.table is None else {v: k for k, v in self.table.items()},
        )


def is_single(value: float) -> bool:
    """Return whether a number is finite after rounding to float32."""
    import numpy as np

    with np.errstate(over="ignore"):
        return bool(np.isfinite(np.float32(value)))


def number_text(value: float) -> str:
    """Return the shortest decimal that parses to the same float32 or, if the number is no float32,
    to the same float64. 2.0 becomes `2`.
    """
    import numpy as np

    v = float(value)
    with np.errstate(over="ignore"):
        single = np.float32(v)
    text = str(single) if float(single) == v else repr(v)
    return text.removesuffix(".0")


_INTEGER = re.compile(r"\s*[-+]?[0-9]{1,19}\s*", re.ASCII)
_NUMBER = re.compile(
    r"\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?\s*|\s*[-+]?(nan|inf|infinity)\s*",
    re.ASCII | re.IGNORECASE,
)


def int_of(value: Any) -> int:
    """Parse a 64-bit integer.

    Raise ValueError for text that only Python accepts: underscores, digits of other scripts.
    """
    found = int(value) if not isinstance(value, str) or _INTEGER.fullmatch(value) else None
    if found is None or not -(1 << 63) <= found < 1 << 63:
        raise ValueError(f"{str(value)[:60]!r} is not a 64-bit integer")
    return found


def float_of(value: Any) -> float:
    """Parse a number; text is parsed as strictly as by `int_of`."""
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        raise ValueError(f"{value[:60]!r} is not a number")
    return float(value)


def _floats(text: Any) -> list[float]:
    return [float_of(v) for v in str(text).replace(" ", "").split(",") if v]


# OpenVINO's tools write such elements of lists, and its reader stops at the point; single integers
# it reads strictly.
_ZEROS = re.compile(r"\.0*$", re.ASCII)


def _ints(text: Any) -> list[int]:
    return [int_of(_ZEROS.sub("", v)) for v in str(text).replace(" ", "").split(",") if v]


same = Codec(lambda v: v, lambda v: v)
integer = Codec(int_of, int)
flag = Codec(lambda v: int(bool(v)), lambda v: bool(v))
csv = Codec(_ints, lambda v: ",".join(str(int(x)) for x in v))
csv_floats = Codec(_floats, lambda v: ",".join(number_text(x) for x in v))
number = Codec(float_of, number_text)
int_text = Codec(lambda v: int_of(str(v)), lambda v: str(int(v)))


def enum(table: Mapping[Any, Any]) -> Codec:
    """Return a codec of a one-to-one table: canonical value -> foreign value."""
    back = {v: k for k, v in table.items()}
    assert len(back) == len(table), f"enum table is not one-to-one: {table}"

    def get(t: Mapping[Any, Any], v: Any, code: str) -> Any:
        try:
            return t[v]
        except (KeyError, TypeError):
            raise MappingError(
                f"value {v!r} is not supported (only {', '.join(map(repr, t))})", code
            ) from None

    return Codec(lambda v: get(back, v, "R110"), lambda v: get(table, v, "X202"), table)


bool_text = Codec(
    lambda v: enum({1: "true", 0: "false"}).lift(
        str(v).lower().replace("1", "true").replace("0", "false")
    ),
    lambda v: "true" if v else "false",
)


def unset(default: float) -> Codec:
    """Return a codec for a format that does not distinguish zero from an absent number: zero means
    `default`.
    """

    def lower(value: Any) -> float:
        if not value:
            raise MappingError(f"0 is not supported (it means {default})")
        return float(value)

    return Codec(lambda v: float_of(v) or default, lower)


def number_of(value: Any) -> float:
    """Return a number as a float; raise ValueError for booleans and for other types."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{str(value)[:60]!r} is not a number")
    return float(value)


def integer_of(value: Any) -> int:
    """Return an attribute's integer; raise ValueError for other types."""
    if not isinstance(value, int):
        raise ValueError(f"{str(value)[:60]!r} is not an integer")
    return int_of(value)


def _list(of: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    def lift(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple | range):
            raise ValueError(f"{str(value)[:60]!r} is not a list")
        return [of(v) for v in value]

    return lift


# for formats whose files store the type of each value
PLAIN: Mapping[Kind, Codec] = {
    int: Codec(integer_of, int),
    float: Codec(number_of, float),
    bool: flag,
    str: Codec(str, str),
    list: Codec(_list(integer_of), list),
    Floats: Codec(_list(number_of), list),
    tuple: Codec(_list(str), list),
}


def codec_of(kind: Kind | Codec, spelling: Mapping[Kind, Codec]) -> Codec:
    """Return a codec unchanged, and for a kind the codec that the format's spelling assigns to
    it.
    """
    if isinstance(kind, Codec):
        return kind
    return next(spelling[base] for base in kind.__mro__ if base in spelling)
