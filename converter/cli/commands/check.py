"""netconv check"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from converter.cli.common import (
    REPORTS,
    FormatName,
    Source,
    freeze_option,
    inputs_option,
    layout_option,
    option,
    source_options,
    subcommand,
)
from converter.cli.console import Console
from converter.errors import ExitCode

EXAMPLES = """netconv check net.xml
netconv check net.onnx -t zhouyi
netconv check net.onnx -t coreml --format sarif > findings.sarif"""


@subcommand("check", REPORTS, EXAMPLES)
@click.argument("file", type=Source())
@option(
    "-t",
    "--to",
    "target",
    type=FormatName(flavours=True),
    help="Say what would not convert to this format.",
)
@inputs_option
@freeze_option
@layout_option
@source_options
def command(
    console: Console,
    file: Path,
    target: str | None,
    inputs: tuple[tuple[str, list[int]], ...],
    freeze: tuple[tuple[str, Any], ...],
    io_layout: str | None,
    source: str | None,
    weights: Path | None,
    dequantize: bool,
    signature: str,
) -> None:
    """Is FILE valid? With -t: everything in it that would not convert, all at once. Writes nothing.

    Exit 0: valid, or convertible as a whole. 3: some layers would not convert. 4: the file is not
    valid.
    """
    if target is None:
        _validate(console, file, source, weights)
        return
    from converter.commands import convert

    model = convert.read(
        convert.Request(
            file,
            file,
            source,
            target,
            weights,
            dict(inputs),
            dict(freeze),
            dequantize=dequantize,
            signature=signature,
        )
    )
    found = convert.check(model, target, file, io_layout or "")
    blocked = found.layers - found.converted
    console.verdict(ExitCode.UNSUPPORTED if found.reasons else ExitCode.OK)
    console.report(found.diagnostics, err=False)
    console.result = found.as_json()
    reasons = f"{found.reasons} reason{'' if found.reasons == 1 else 's'}"
    tail = f"{blocked} blocked by {reasons}" if found.reasons else "nothing is in the way"
    console.say(
        f"{file.name} -> {found.flavour}: {found.layers} layers, {found.converted} convert"
        f" ({found.operators_converted} of {found.operators} operators), {tail}."
    )


def _validate(console: Console, file: Path, source: str | None, weights: Path | None) -> None:
    from converter import api, formats

    chosen = formats.get(source) if source else formats.detect(file)
    found = api.check(file, chosen.name, weights)
    errors = sum(d.level == "error" for d in found)
    console.verdict(ExitCode.UNREADABLE if errors else ExitCode.OK)
    console.report(found, err=False)
    console.result = {"format": chosen.name, "valid": not errors}
    console.say(
        f"{file.name}: "
        + (
            f"not valid {chosen.title}, {errors} error{'' if errors == 1 else 's'}"
            if errors
            else f"valid {chosen.title}"
        )
    )
