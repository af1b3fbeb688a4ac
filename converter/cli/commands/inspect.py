"""netconv inspect"""

from __future__ import annotations

from pathlib import Path

import click

from converter.cli.common import Source
from converter.cli.console import Console
from converter.cli.options import subcommand
from converter.commands.options.convert import InspectCommand

EXAMPLES = """netconv inspect net.mlmodel
netconv inspect -v net.xml
netconv inspect --layers net.onnx
netconv inspect net.onnx --as dot | dot -Tsvg > net.svg"""


@subcommand("inspect", InspectCommand, examples=EXAMPLES)
@click.argument("file", type=Source())
def command(console: Console, options: InspectCommand, file: Path) -> None:
    """Show the inputs, outputs, layers, weights and costs of FILE; with -v also every node."""
    import json

    from converter.cli.loading import read
    from converter.commands import costs, inspect
    from converter.formats import bundles

    if len(names := list(bundles.members(file))) > 1 and not options.member:
        console.result = {"members": names}
        console.say(f"{file.name} holds {len(names)} models; choose one with --member:", *names)
        return
    model = read(file, options)
    console.report(model.notes)
    console.result = inspect.full(model)
    match options.form:
        case "json":
            console.document(json.dumps(console.result, indent=2, ensure_ascii=False))
            return
        case "table":
            lines = [
                *inspect.table(model, file.name),
                *(costs.lines(costs.costs(model.ir)) if options.layers else ()),
                *(inspect.nodes(model) if console.verbosity > 0 else ()),
            ]
        case "text":
            lines = inspect.text(model).split("\n")
        case _:
            lines = list(inspect.dot(model))
    console.say(*lines)
