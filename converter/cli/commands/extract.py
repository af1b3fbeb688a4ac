"""netconv extract"""

from __future__ import annotations

from pathlib import Path

import click

from converter.cli.commands.convert import write
from converter.cli.common import Source
from converter.cli.console import Console
from converter.cli.options import REPORTS, subcommand
from converter.commands.options.convert import ExtractCommand

EXAMPLES = """netconv extract net.onnx --from conv1 --to conv5 -o part.onnx
netconv extract net.xml --to features -o trunk.xml --inputs image:1,3,224,224
netconv extract net.mlmodel --rename image=x -o renamed.mlmodel"""


@subcommand("extract", ExtractCommand, REPORTS, EXAMPLES)
@click.argument("file", metavar="IN", type=Source())
def command(console: Console, options: ExtractCommand, file: Path) -> None:
    """Cut a part out of IN: between tensors, with fixed sizes and inputs, under other names.

    What lies before --from and behind --to goes, and with it the inputs that nothing needs any
    more. The part is written as `convert` writes the whole, in any format.
    """
    write(console, file, options, starts=options.starts, names=options.names)
