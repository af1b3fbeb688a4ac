"""netconv extract"""

from __future__ import annotations

from pathlib import Path

import click

from converter.cli import destination
from converter.cli.commands.convert import write
from converter.cli.common import PathOrUrl, Source
from converter.cli.console import Console
from converter.cli.options import REPORTS, subcommand
from converter.commands.options.convert import ExtractCommand

EXAMPLES = """netconv extract net.onnx part.onnx --start conv1 --outputs conv5
netconv extract net.xml trunk.xml --outputs features --inputs image:1,3,224,224
netconv extract net.mlmodel renamed.mlmodel --rename image=x"""


@subcommand("extract", ExtractCommand, REPORTS, EXAMPLES)
@click.argument("file", metavar="IN", type=Source())
@click.argument("out", metavar="[OUT]", required=False, type=PathOrUrl())
def command(console: Console, options: ExtractCommand, file: Path, out: str | None) -> None:
    """Extract a part of IN: between tensors, with fixed sizes and inputs, or renamed.

    Layers before --start and after --outputs are removed, and so are unused inputs. The part can be
    written in any format.
    """
    output = destination.chosen("extract", file, out, options)
    write(console, file, output, options, starts=options.start, names=options.rename)
