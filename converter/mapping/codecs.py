"""Inverse pairs of functions on one value: `lift` makes the canonical value of a foreign one, `lower` the other way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from converter.mapping.node import MappingError


@dataclass(frozen=True)
class Codec:
    lift: Callable[[Any], Any]
    lower: Callable[[Any], Any]
    table: Mapping[Any, Any] | None = None  # of an enum: canonical value -> foreign value

    def __invert__(self) -> Codec:
        return Codec(self.lower, self.lift, None if self.table is None else {v: k for k, v in self.table.items()})


def number_text(value: float) -> str:
    """The shortest decimal that reads back as the same float32 when it is one, else as the same float64; `2` for 2.0."""
    import numpy as np

    v = float(value)
    single = np.float32(v)
    text = str(single) if float(single) == v else repr(v)
    return text.removesuffix(".0")


def _floats(text: Any) -> list[float]:
    return [float(v) for v in str(text).replace(" ", "").split(",") if v]


def _ints(text: Any) -> list[int]:
    return [int(v) for v in str(text).replace(" ", "").split(",") if v]


same = Codec(lambda v: v, lambda v: v)
integer = Codec(int, int)
flag = Codec(lambda v: int(bool(v)), lambda v: bool(v))
csv = Codec(_ints, lambda v: ",".join(str(int(x)) for x in v))
csv_floats = Codec(_floats, lambda v: ",".join(number_text(x) for x in v))
number = Codec(float, number_text)
int_text = Codec(lambda v: int(str(v)), lambda v: str(int(v)))


def enum(table: Mapping[Any, Any]) -> Codec:
    """canonical value -> foreign value, both ways; the table must be one-to-one."""
    back = {v: k for k, v in table.items()}
    assert len(back) == len(table), f"enum table is not one-to-one: {table}"

    def get(t: Mapping[Any, Any], v: Any) -> Any:
        try:
            return t[v]
        except (KeyError, TypeError):
            raise MappingError(f"value {v!r} has no counterpart (known: {', '.join(map(repr, t))})", "R110") from None

    return Codec(lambda v: get(back, v), lambda v: get(table, v), table)


bool_text = Codec(
    lambda v: enum({1: "true", 0: "false"}).lift(str(v).lower().replace("1", "true").replace("0", "false")),
    lambda v: "true" if v else "false",
)
