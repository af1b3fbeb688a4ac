"""netconv diff"""

from __future__ import annotations

from pathlib import Path

import click

from converter.cli.common import Source, formats_options, subcommand
from converter.cli.console import Console
from converter.errors import ExitCode

EXAMPLES = """netconv diff old.onnx new.onnx
netconv diff net.mlmodel net.xml"""


@subcommand("diff", examples=EXAMPLES)
@click.argument("a", type=Source())
@click.argument("b", type=Source())
@formats_options("a", "b")
def command(console: Console, a: Path, b: Path, a_format: str | None, b_format: str | None) -> None:
    """Differences of structure: operators, attributes, weights. Exit 0: none. 1: some."""
    from converter import api
    from converter.commands import diff

    first, second = api.load(a, a_format), api.load(b, b_format)
    console.report([*first.notes, *second.notes])
    changes = diff.diff(first, second)
    console.verdict(ExitCode.FINDING if changes else ExitCode.OK)
    console.result = [c.as_json() for c in changes]
    console.say(*(line for change in changes for line in change.lines()))
