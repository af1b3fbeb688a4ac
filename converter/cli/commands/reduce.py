"""netconv reduce"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from converter.cli.common import (
    Place,
    Source,
    data_option,
    formats_options,
    map_option,
    option,
    seed_option,
    subcommand,
    tolerance_options,
)
from converter.cli.console import Console
from converter.cli.streams import uploaded
from converter.errors import ExitCode

EXAMPLES = """netconv reduce net.mlmodel net.xml -o case
netconv verify case/reference.onnx case/candidate.onnx --data case/inputs.npz"""


_NOT_REPRODUCED = (
    "The files of the folder alone do not show this difference: it hangs on how the models are "
    "stored, or on other inputs than those of the folder."
)


@subcommand("reduce", examples=EXAMPLES)
@click.argument("reference", metavar="REF", type=Source())
@click.argument("candidate", metavar="CAND", type=Source())
@option(
    "-o",
    "--output",
    metavar="DIR",
    type=Place(),
    required=True,
    help="Folder for both models, inputs and a README.md.",
)
@data_option
@tolerance_options
@seed_option
@map_option
@option("--force", is_flag=True, help="Write into a folder that is not empty.")
@formats_options("ref", "cand")
def command(
    console: Console, reference: Path, candidate: Path, output: str, **options: Any
) -> None:
    """Write the smallest part of two models that still differs, as a folder that reproduces it.

    Exit 0: they do not differ, nothing is written. 1: they differ, DIR holds the case.
    """
    from converter import api
    from converter.commands import reduce
    from converter.commands.provenance import read_map
    from converter.commands.verify.text import lines

    a, b = api.load(reference, options["ref_format"]), api.load(candidate, options["cand_format"])
    console.report([*a.notes, *b.notes])
    own = {k: options[k] or None for k in ("rtol", "atol")}
    known = read_map(options["map_file"]) if options["map_file"] else None
    found = reduce.reduce(
        a, b, list(options["data"]) or None, seed=options["seed"], map=known, **own
    )
    if found is None:
        console.say("the models do not differ")
        return
    with uploaded(output, options["force"]) as folder:
        case = reduce.write(found, folder, (reference.name, candidate.name), options["force"])
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
        f"{len(a.ir.graph)} and {len(b.ir.graph)} nodes reduced to {found.nodes[0]} and "
        f"{found.nodes[1]} in {output}"
    )
    console.say(*lines(result))
    if not case.reproduced:
        console.say(_NOT_REPRODUCED)
