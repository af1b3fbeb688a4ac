"""netconv roundtrip"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from converter.cli.common import Source
from converter.cli.console import Console
from converter.cli.options import REPORTS, subcommand
from converter.commands.options.convert import RoundtripCommand
from converter.commands.report.cases import Case
from converter.errors import ConverterError, Diagnostic

EXAMPLES = """netconv roundtrip net.mlmodel --via openvino --via zhouyi
netconv roundtrip *.onnx --via coreml --format junit > report.xml"""


@subcommand("roundtrip", RoundtripCommand, REPORTS, EXAMPLES)
@click.argument("files", metavar="IN...", nargs=-1, required=True, type=Source())
def command(console: Console, options: RoundtripCommand, files: tuple[Path, ...]) -> None:
    """Convert IN to each FORMAT and back, and compare bytes, structure and numbers.

    Exit 0: all numbers are equal. 1: some differ. 3: a format does not support a model. 9: hidden
    difference (outputs are equal, but layers differ).
    """
    from converter.commands import roundtrip

    found = []
    for file in files:
        for target in options.via:
            name = f"{file.name} via {target}"
            try:
                trip = roundtrip.roundtrip(file, target, options.seed)
            except ConverterError as e:
                if len(files) * len(options.via) == 1:
                    raise
                console.verdict(e.exit_code)
                console.report(e.diagnostics)
                found.append(
                    {
                        "file": str(file),
                        "via": target,
                        "refused": [d.as_json() for d in e.diagnostics],
                    }
                )
                console.cases.append(Case(name, "roundtrip", str(e)))
                continue
            console.verdict(trip.numbers.code)
            console.report([_of_file(d, str(file)) for d in trip.notes])
            found.append(trip.as_json())
            failure = "" if trip.same_numbers else "\n".join(trip.lines())
            console.cases.append(Case(name, "roundtrip", failure))
            console.say(*trip.lines(console.verbosity))
    console.result = found


def _of_file(d: Diagnostic, file: str) -> Diagnostic:
    """Return the diagnostic with the file that it is about."""
    return d if d.where.file else replace(d, where=replace(d.where, file=file))
