"""NAME:1,3,224,224 on the command line."""

from __future__ import annotations

from typing import Any

import click

from converter.errors import Diagnostic, UsageError


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
