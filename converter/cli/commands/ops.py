"""netconv ops"""

from __future__ import annotations

import textwrap
from typing import Any

import click

from converter.cli.common import FormatName
from converter.cli.console import Console
from converter.cli.options import subcommand
from converter.commands.options.declare import Options
from converter.errors import did_you_mean, wrong_call

INDENT: dict[str, Any] = {"initial_indent": "  ", "subsequent_indent": "  "}


@subcommand("ops", Options, examples="netconv ops openvino\nnetconv ops coreml convolution")
@click.argument("format_name", metavar="FORMAT", type=FormatName())
@click.argument("op", metavar="[OP]", required=False)
def command(console: Console, _: Options, format_name: str, op: str | None) -> None:
    """List the layer types of FORMAT with the operators that they become, the types that its
    engines support, and the operators that cannot be written.
    """
    from converter import formats

    kinds, written = (
        dict(sorted(formats.get(format_name).kinds().items())),
        formats.get(format_name).written(),
    )
    if op is not None:
        lower = {k.lower(): k for k in kinds}
        if op.lower() not in lower:
            raise wrong_call(
                f"{format_name} has no layer type {op!r}",
                help=did_you_mean(op, kinds, f"netconv ops {format_name} lists them"),
            )
        kinds = {lower[op.lower()]: kinds[lower[op.lower()]]}
    console.result = kinds
    width, wide = max(map(len, kinds), default=0), max(map(len, kinds.values()), default=0)
    for far, near in kinds.items():
        console.say(f"{far:{width}}  {near:{wide}}  {written.limits.get(far, '')}".rstrip())
    if op is None and written.partly:
        console.say("", "These operators are partly supported:")
        for name, what in written.partly.items():
            console.say(f"  {name}: {what}")
    if op is None and written.absent:
        console.say("", "These operators are not supported:")
        console.say(*textwrap.wrap(" ".join(written.absent), 100, **INDENT))
