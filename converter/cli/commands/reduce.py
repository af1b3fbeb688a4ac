"""netconv reduce"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from converter.cli.common import Source
from converter.cli.console import Console
from converter.cli.loading import read_pair
from converter.cli.options import subcommand
from converter.cli.streams import uploaded
from converter.commands.options.verify import ReduceCommand
from converter.errors import ExitCode

EXAMPLES = """netconv reduce net.mlmodel net.xml -o case
netconv verify case/reference.onnx case/candidate.onnx --data case/inputs.npz"""


_NOT_REPRODUCED = (
    "The files of the folder alone do not show this difference: it depends on "
    "how the models are stored, or on other inputs than those of the folder."
)


@subcommand("reduce", ReduceCommand, examples=EXAMPLES)
@click.argument("reference", metavar="REF", type=Source())
@click.argument("candidate", metavar="CAND", type=Source())
def command(console: Console, options: ReduceCommand, reference: Path, candidate: Path) -> None:
    """Write the smallest part of two models that still differs to a folder that reproduces it.

    Exit 0: the models do not differ, and nothing is written. 1: they differ, and DIR contains the
    case.
    """
    from converter.commands import reduce
    from converter.commands.verify.text import lines

    a, b = read_pair((reference, candidate), options)
    console.report([*a.notes, *b.notes])
    found = reduce.reduce(
        a,
        b,
        options.data,
        seed=options.seed,
        map=options.map,
        rtol=options.rtol,
        atol=options.atol,
    )
    if found is None:
        console.say("The models do not differ.")
        return
    with uploaded(options.output, options.force) as folder:
        case = reduce.write(found, folder, (reference.name, candidate.name), options.force)
    result = replace(found.result, models=(reference.name, candidate.name))
    console.verdict(ExitCode.FINDING)
    console.result = {
        "files": [str(p) for p in case.files],
        "nodes": list(found.nodes),
        "numbers": result.as_json(),
        "command": case.command,
        "reproduced": case.reproduced,
    }
    console.say(
        f"Reduced from {len(a.ir.graph)} and {len(b.ir.graph)} nodes to "
        f"{found.nodes[0]} and {found.nodes[1]}; written to {options.output}"
    )
    console.say(*lines(result))
    if not case.reproduced:
        console.say(_NOT_REPRODUCED)
