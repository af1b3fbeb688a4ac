"""The arguments NAME:1,3,224,224 and NAME=VALUE of the command line."""

from __future__ import annotations

import re
from abc import abstractmethod
from pathlib import Path
from typing import Any

import click

from converter.errors import wrong_call
from converter.io import strict_json


class Parsed(click.ParamType):  # type: ignore[type-arg]
    """An argument that `parse` converts from text; `parse` also receives the name of the option."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self.parse(str(value), param.opts[0] if param is not None else "the option")

    @abstractmethod
    def parse(self, text: str, option: str) -> Any:
        """Return the value; raise UsageError for an invalid text."""


class Shapes(Parsed):
    """A name and a static shape."""

    name = "NAME:SHAPE"

    def parse(self, text: str, option: str) -> tuple[str, list[int]]:
        name, sizes = _parted(text)
        try:
            shape = [int(d) for d in sizes.replace("x", ",").split(",")] if sizes else []
        except ValueError:
            shape = [-1]
        if not name or min(shape, default=0) < 0:
            example = f"NAME:{text}" if _SIZES.fullmatch(text) else "image:1,3,224,224"
            raise wrong_call(
                f"{option} {text!r} is not {self.name}",
                help=f"for example --inputs {example}; netconv inspect MODEL lists the names",
            )
        return name, shape


_SIZES = re.compile(r"\d+(,\d+)*")


def _parted(text: str) -> tuple[str, str]:
    """Return name and sizes of image:1,3,224,224, or of image=1,3,224,224 and image[1,3,224,224],
    which other tools have.
    """
    for opening, closing in ((":", ""), ("=", ""), ("[", "]")):
        name, mark, sizes = text.rpartition(opening)
        if mark and text.endswith(closing):
            return name, sizes.removesuffix(closing).strip("[]() ")
    return "", text


class Values(Parsed):
    """A name and a value: a number, true or false, lists of them, or the array of a .npy file."""

    name = "NAME=VALUE"

    def parse(self, text: str, option: str) -> tuple[str, Any]:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise wrong_call(
                f"{option} must be {self.name}, got {text!r}",
                help="use for example --freeze sr=16000, or --freeze state=state.npy",
            )
        return name, _array_of(value) if value.endswith(".npy") else _value_of(value)


def _array_of(file: str) -> Any:
    import numpy as np

    try:
        return np.load(Path(file), allow_pickle=False)
    except (OSError, ValueError) as e:
        raise wrong_call(f"{file} cannot be read as an array: {e}") from None


def _value_of(text: str) -> Any:
    """Parse numbers and lists as in JSON, and 1,2,3 as a list; anything else is text."""
    for spelling in (text, f"[{text}]"):
        try:
            return strict_json.parse(spelling)
        except ValueError:
            continue
    return text


class Pair(Parsed):
    """Two names of inputs and outputs; `form` is their form in the help."""

    def __init__(self, form: str) -> None:
        self.name = form

    def parse(self, text: str, option: str) -> tuple[str, str]:
        first, _, second = text.partition("=")
        if not first or not second:
            raise wrong_call(f"{option} must be {self.name}, got {text!r}")
        return first, second
