"""netconv inspect"""

from __future__ import annotations

from pathlib import Path

import click

from converter.cli.common import (
    Choice,
    Source,
    option,
    source_options,
    subcommand,
)
from converter.cli.console import Console

EXAMPLES = """netconv inspect net.mlmodel
netconv inspect -v net.xml
netconv inspect --layers net.onnx
netconv inspect net.onnx --of dot | dot -Tsvg > net.svg"""


@subcommand("inspect", examples=EXAMPLES)
@click.argument("file", type=Source())
@option(
    "--of",
    "form",
    type=Choice(["table", "json", "text", "dot"]),
    default="table",
    help="A table, JSON, ONNX's text syntax, or Graphviz.",
)
@option(
    "--layers", is_flag=True, help="MACs, parameters, and bytes of weights and results, by layer."
)
@source_options
def command(
    console: Console,
    file: Path,
    form: str,
    layers: bool,
    source: str | None,
    weights: Path | None,
    dequantize: bool,
    signature: str,
) -> None:
    """What is in FILE: inputs, outputs, layers, weights, what it costs. With -v also every node."""
    import json

    from converter import api
    from converter.commands import costs, inspect

    model = api.load(file, source, weights, dequantize, signature=signature)
    console.report(model.notes)
    console.result = inspect.full(model)
    match form:
        case "json":
            console.document(json.dumps(console.result, indent=2, ensure_ascii=False))
            return
        case "table":
            lines = [
                *inspect.table(model, file.name),
                *(costs.lines(costs.costs(model.ir)) if layers else ()),
                *(inspect.nodes(model) if console.verbosity > 0 else ()),
            ]
        case "text":
            lines = inspect.text(model).split("\n")
        case _:
            lines = list(inspect.dot(model))
    console.say(*lines)
