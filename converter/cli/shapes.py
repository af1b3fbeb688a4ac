"""NAME:1,3,224,224 and NAME=VALUE on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from converter.errors import Diagnostic, UsageError
from converter.io import strict_json


class Shapes(click.ParamType):  # type: ignore[type-arg]
    """A name and a static shape."""

    name = "NAME:SHAPE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, list[int]]:
        name, _, text = str(value).rpartition(":")
        try:
            shape = [int(d) for d in text.replace("x", ",").split(",")] if text else []
        except ValueError:
            shape = [-1]
        if not name or min(shape, default=0) < 0:
            raise UsageError(
                Diagnostic(
                    "U501",
                    f"--inputs {value!r} is not NAME:SHAPE",
                    help="for example --inputs image:1,3,224,224",
                )
            )
        return name, shape


class Values(click.ParamType):  # type: ignore[type-arg]
    """A name and a value: a number, true or false, lists of them, or the array of a .npy file."""

    name = "NAME=VALUE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Any]:
        name, equals, text = str(value).partition("=")
        if not name or not equals:
            raise UsageError(
                Diagnostic(
                    "U501",
                    f"--freeze {value!r} is not NAME=VALUE",
                    help="for example --freeze sr=16000, --freeze state=state.npy",
                )
            )
        return name, _array_of(text) if text.endswith(".npy") else _value_of(text)


def _array_of(file: str) -> Any:
    import numpy as np

    try:
        return np.load(Path(file), allow_pickle=False)
    except (OSError, ValueError) as e:
        raise UsageError(Diagnostic("U501", f"no array can be read from {file}: {e}")) from None


def _value_of(text: str) -> Any:
    """Numbers and lists as in JSON, 1,2,3 as a list; anything else is text."""
    for spelling in (text, f"[{text}]"):
        try:
            return strict_json.parse(spelling)
        except ValueError:
            continue
    return text


class Pair(click.ParamType):  # type: ignore[type-arg]
    """Two names of inputs and outputs, in the form that the option says."""

    name = "NAME=NAME"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        first, _, second = str(value).partition("=")
        if not first or not second:
            option = param.opts[0] if param is not None else ""
            form = getattr(param, "metavar", None) or self.name
            raise UsageError(Diagnostic("U501", f"{option} {value!r} is not {form}"))
        return first, second
