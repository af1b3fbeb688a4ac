"""netconv check"""

from __future__ import annotations

from pathlib import Path

import click

from converter.cli.common import Source
from converter.cli.console import Console
from converter.cli.options import REPORTS, subcommand
from converter.commands.options.convert import CheckCommand, Convert
from converter.commands.options.declare import common
from converter.errors import ExitCode, counted

EXAMPLES = """netconv check net.xml
netconv check net.onnx -t zhouyi
netconv check net.onnx -t coreml --format sarif > findings.sarif"""


@subcommand("check", CheckCommand, REPORTS, EXAMPLES)
@click.argument("file", type=Source())
def command(console: Console, options: CheckCommand, file: Path) -> None:
    """Check that FILE is valid and, with -t, that it can be converted; write nothing.

    All layers that cannot be converted are listed. Exit 0: valid, and all layers can be converted.
    3: some layers cannot be converted. 4: the file is not valid.
    """
    if options.target is None:
        _validate(console, file, options)
        return
    from converter.commands import convert
    from converter.formats import parse_flavor

    with convert.custom_operators(options, parse_flavor(options.target).format):
        model = convert.read(file, common(Convert, options))
        found = convert.check(model, options.target, file, options.io_layout)
    blocked = found.layers - found.converted
    console.verdict(ExitCode.UNSUPPORTED if found.reasons else ExitCode.OK)
    console.report(found.diagnostics, err=False)
    console.result = found.as_json()
    tail = (
        f"{counted(blocked, 'layer')} cannot be converted ({counted(found.reasons, 'reason')})"
        if found.reasons
        else "the model can be converted"
    )
    console.say(
        f"{file.name} -> {found.flavor}: {found.converted} of {found.layers} "
        f"layers can be converted ({found.operators_converted} of "
        f"{found.operators} operator types); {tail}."
    )


def _validate(console: Console, file: Path, options: CheckCommand) -> None:
    from converter import formats
    from converter.formats import model_files

    chosen = formats.get(options.source) if options.source else formats.detect(file)
    found = model_files.check(file, chosen.name, options.weights)
    errors = sum(d.level == "error" for d in found)
    console.verdict(ExitCode.UNREADABLE if errors else ExitCode.OK)
    console.report(found, err=False)
    console.result = {"format": chosen.name, "valid": not errors}
    console.say(
        f"{file.name}: "
        + (
            f"invalid {chosen.title}: {counted(errors, 'error')}"
            if errors
            else f"valid {chosen.title}"
        )
    )
