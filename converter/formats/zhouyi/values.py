"""Text of single values: `parse_value` and `print_value`, `parse_names` and `print_names`.

The type of a value follows from its text, never from its key, exactly as in the vendor's reader.
`print_value` refuses values that would be read back as something else, so
`parse_value(print_value(v)) == v` holds for everything it accepts.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Sequence
from typing import Any, TypeGuard

import ml_dtypes
import numpy as np
import numpy.typing as npt


class DType(enum.StrEnum):
    """The names of data types that real files use; section 4.4 lists the integer ones, the tools
    know the others.
    """

    FLOAT64 = "float64"
    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT8_E5M2 = "float8_e5m2"
    FLOAT8_E4M3FN = "float8_e4m3fn"
    FLOAT6_E2M3FN = "float6_e2m3fn"
    FLOAT6_E3M2FN = "float6_e3m2fn"
    FLOAT4_E2M1FN = "float4_e2m1fn"
    BOOL = "bool"
    INT64 = "int64"
    UINT64 = "uint64"
    INT32 = "int32"
    UINT32 = "uint32"
    INT16 = "int16"
    UINT16 = "uint16"
    INT12 = "int12"
    UINT12 = "uint12"
    INT8 = "int8"
    UINT8 = "uint8"
    INT4 = "int4"
    UINT4 = "uint4"
    ALIGNED_INT12 = "aligned_int12"
    ALIGNED_UINT12 = "aligned_uint12"
    ALIGNED_INT4 = "aligned_int4"
    ALIGNED_UINT4 = "aligned_uint4"

    @property
    def numpy(self) -> np.dtype[Any]:
        """Return the little-endian numpy type of one element stored in whole bytes (4 bits in 1
        byte, 12 bits in 2).
        """
        return _NUMPY[self]

    @property
    def is_float(self) -> bool:
        return "float" in self.value

    @property
    def is_4bit(self) -> bool:
        return self in _FOUR_BITS


_ELEMENT = {"int4": "int8", "uint4": "uint8", "int12": "int16", "uint12": "uint16"}


def _numpy(t: DType) -> np.dtype[Any]:
    name = t.value.removeprefix("aligned_")
    name = _ELEMENT.get(name, name)
    return np.dtype(getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else name).newbyteorder(
        "<"
    )


_NUMPY = {t: _numpy(t) for t in DType}
_FOUR_BITS = frozenset({DType.INT4, DType.UINT4, DType.ALIGNED_INT4, DType.ALIGNED_UINT4})
# int4, int12 and the aligned types share a numpy type with a plain one, to which it is mapped
_DTYPE_OF = {_NUMPY[t]: t for t in DType if not t.value.endswith(("int4", "int12"))}

Value = bool | int | float | str | DType | list["Value"]

MAX_DEPTH = 16
_DTYPE = re.compile(r"(?:dtype\.)?(" + "|".join(t.value for t in DType) + r")\Z")
_INT = re.compile(r"[-+]?[0-9]{1,400}\Z")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?(?:e[-+]?[0-9]+)?|inf)\Z")
_NOT_IN_TEXT = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029=]")
_BLANKS = " \t\r"


def is_int(value: Any) -> TypeGuard[int]:
    """Return whether a value is an integer, which true and false are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def dtype_of(t: npt.DTypeLike) -> DType:
    """Return the format's type for a numpy type; raise ValueError if it has none (complex,
    strings).
    """
    found = _DTYPE_OF.get(np.dtype(t).newbyteorder("<"))
    if found is None:
        raise ValueError(f"the format has no data type {np.dtype(t)}")
    return found


def parse_dtype(text: str) -> DType:
    """Parse a type; raise ValueError with the nearest known name for `float`, `fp32` and
    the like.
    """
    m = _DTYPE.match(text.strip(_BLANKS).lower())
    if not m:
        raise ValueError(f"{text!r} is not a data type")
    return DType(m[1])


def parse_value(text: str) -> Value:
    """Return a value by its look: list, data type, int, float, boolean, or else the text itself.
    ValueError on brackets that do not match.
    """
    return _parse(text.strip(_BLANKS), 0)


def _parse(text: str, depth: int) -> Value:
    if text.startswith("["):
        return [_parse(e, depth + 1) for e in split_list(text, depth)]
    return _parse_scalar(text)


# the same few sizes and types occur in thousands of lines
@functools.lru_cache(maxsize=4096)
def _parse_scalar(text: str) -> Value:
    low = text.lower()
    if m := _DTYPE.match(low):
        return DType(m[1])
    if _INT.match(low):
        return int(low)
    if _FLOAT.match(low):
        return float(low)
    return low == "true" if low in ("true", "false") else text


def split_list(text: str, depth: int = 0) -> list[str]:
    """Return the texts of the elements of `[a,[b,c]]`, without the blanks and quotes around them;
    empty elements are dropped.
    """
    if depth >= MAX_DEPTH:
        raise ValueError(f"lists are nested more than {MAX_DEPTH} deep")
    inner, parts, level, start = text[1:-1], [], 0, 0
    if not text.endswith("]") or len(text) < 2:
        raise ValueError("the bracket that opens the list is not closed")
    if "[" not in inner and "]" not in inner:
        parts = inner.split(",")
    else:
        for m in re.finditer(r"[\[\],]", inner):
            level += {"[": 1, "]": -1, ",": 0}[m[0]]
            if level + depth > MAX_DEPTH:
                raise ValueError(f"lists are nested more than {MAX_DEPTH} deep")
            if level < 0:
                raise ValueError("a closing bracket has no opening bracket")
            if m[0] == "," and level == 0:
                parts.append(inner[start : m.start()])
                start = m.end()
        if level:
            raise ValueError("the bracket that opens the list is not closed")
        parts.append(inner[start:])
    return [e for p in parts if (e := p.strip(_BLANKS + "'"))]


def print_value(value: Any) -> str:
    """Return the shortest text that reads back as `value`; numpy scalars and arrays are printed
    with the digits of their own type.

    Raises ValueError for values without text: NaN, objects, and strings that would be read as
    something else (`12`, `true`, `a=b`, `[x`).
    """
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, list | tuple | np.ndarray):
        return "[" + ",".join(_print_element(v) for v in value) + "]"
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, DType):
        return value.value
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating):
        return _print_float(value)
    if isinstance(value, str):
        return _print_text(value)
    raise ValueError(f"a {type(value).__name__} cannot be represented in this format")


def _print_element(value: Any) -> str:
    text = print_value(value)
    if (
        isinstance(value, str)
        and not isinstance(value, DType)
        and (text != text.strip("'") or re.search(r"[\[\],]", text) or not text)
    ):
        raise ValueError(f"{value!r} cannot be an element of a list")
    return text


def _print_float(value: Any) -> str:
    if value != value:
        raise ValueError("NaN cannot be represented in this format")
    if not np.isfinite(value):
        return "inf" if value > 0 else "-inf"
    # str of a numpy scalar has the digits of its own precision
    return repr(float(str(value)))


def _print_text(value: str) -> str:
    if (
        _NOT_IN_TEXT.search(value)
        or value != value.strip()
        or type(_parse_or_none(value)) is not str
    ):
        raise ValueError(f"{value!r} would not be read back unchanged")
    return value


def _parse_or_none(text: str) -> Value | None:
    try:
        return parse_value(text)
    except ValueError:
        return None


def parse_names(text: str) -> list[str]:
    """Return the names of tensors: always text, also those that look like numbers. A single name
    may have no brackets (section 4.5 has it so).
    """
    return split_list(text) if text.startswith("[") else [text] if text else []


def print_names(names: Sequence[str]) -> str:
    """Return the names of tensors as a list in brackets."""
    return "[" + ",".join(print_name(n, "'") for n in names) + "]"


def print_name(name: str, quote: str = "") -> str:
    """Return a name as text; raise ValueError for names that no line can represent. Names that look
    like numbers are kept (see `names.legalize_names`).
    """
    if (
        not name
        or _NOT_IN_TEXT.search(name)
        or re.search(r"[\[\],]", name)
        or name != name.strip().strip(quote)
    ):
        raise ValueError(f"{name!r} cannot be written as a name")
    return name
