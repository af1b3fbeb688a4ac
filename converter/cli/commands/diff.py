"""netconv diff"""

from __future__ import annotations

from pathlib import Path

import click

from converter.cli.common import Source
from converter.cli.console import Console
from converter.cli.options import subcommand
from converter.commands.options.verify import DiffCommand
from converter.errors import ExitCode

EXAMPLES = """netconv diff old.onnx new.onnx
netconv diff net.mlmodel net.xml"""


@subcommand("diff", DiffCommand, examples=EXAMPLES)
@click.argument("a", type=Source())
@click.argument("b", type=Source())
def command(console: Console, options: DiffCommand, a: Path, b: Path) -> None:
    """Compare the operators, attributes and weights of two models. Exit 0: equal. 1: different."""
    from converter import api
    from converter.commands import diff

    first, second = api.load(a, options.a_format), api.load(b, options.b_format)
    console.report([*first.notes, *second.notes])
    changes = diff.diff(first, second)
    console.verdict(ExitCode.FINDING if changes else ExitCode.OK)
    console.result = [c.as_json() for c in changes]
    console.say(*(line for change in changes for line in change.lines()))
