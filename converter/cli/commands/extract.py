"""netconv extract"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from converter.cli.commands.convert import write
from converter.cli.common import (
    REPORTS,
    Source,
    conversion_options,
    option,
    subcommand,
)
from converter.cli.console import Console
from converter.cli.shapes import Pair

EXAMPLES = """netconv extract net.onnx --from conv1 --to conv5 -o part.onnx
netconv extract net.xml --to features -o trunk.xml --inputs image:1,3,224,224
netconv extract net.mlmodel --rename image=x -o renamed.mlmodel"""


@subcommand("extract", REPORTS, EXAMPLES)
@click.argument("file", metavar="IN", type=Source())
@conversion_options(
    option(
        "--from",
        "starts",
        metavar="NAME",
        multiple=True,
        help="This tensor, or the result of this layer, becomes an input; repeatable.",
    ),
    option(
        "--to",
        "outputs",
        metavar="NAME",
        multiple=True,
        help="This tensor, or the result of this layer, becomes an output, in this order; "
        "repeatable. Default: the outputs.",
    ),
    option(
        "--rename",
        "names",
        type=Pair("OLD=NEW"),
        multiple=True,
        help="Another name for an input or output of the part; repeatable.",
    ),
    to="--to-format",
    source="--from-format",
)
def command(console: Console, file: Path, output: str, **options: Any) -> None:
    """Cut a part out of IN: between tensors, with fixed sizes and inputs, under other names.

    What lies before --from and behind --to goes, and with it the inputs that nothing needs any
    more. The part is written as `convert` writes the whole, in any format.
    """
    write(console, file, output, options, starts=options["starts"], names=dict(options["names"]))
