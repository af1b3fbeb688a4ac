"""netconv convert"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from converter.cli import destination
from converter.cli.common import PathOrUrl, Source
from converter.cli.console import Console
from converter.cli.destination import Destination
from converter.cli.options import REPORTS, subcommand
from converter.cli.streams import DASH, is_url, named_output, with_original_names
from converter.commands.options.convert import ConversionCommand, Convert, ConvertCommand
from converter.commands.options.declare import common
from converter.commands.options.verify import Verify
from converter.errors import in_file, overwrites_input, wrong_call

EXAMPLES = """netconv convert net.mlmodel net.xml
netconv convert net.onnx net.xml -t openvino+ir=7+fp16 --inputs image:1,3,224,224
netconv convert net.xml -o zhouyi/ -t zhouyi --verify"""


@subcommand("convert", ConvertCommand, REPORTS, EXAMPLES)
@click.argument("file", metavar="IN", type=Source())
@click.argument("out", metavar="[OUT]", required=False, type=PathOrUrl())
def command(console: Console, options: ConvertCommand, file: Path, out: str | None) -> None:
    """Convert IN to OUT: a file, a URL, - for standard output, or a folder: DIR/.

    The format of IN is detected from its content, that of OUT from its suffix. The result is right,
    or refused with every layer that the target does not support; then nothing is written.
    """
    output = destination.chosen("convert", file, out, options)
    if options.certificate is not None:
        _demand_certifiable(file, output.place, options)
    result = write(
        console, file, output, options, with_map=options.with_map and output.place != DASH
    )
    if options.certificate is not None and result is not None:
        from converter.cli.commands.verify import certify
        from converter.commands.certificate import Side

        written, compared = result
        weights = None if options.weights is None else Path(options.weights)
        source = Side(file, written.model.format, weights)
        target = Side(written.files[0], written.flavor.format)
        given = Verify(inputs=options.inputs, native=options.native)
        certify(console, options.certificate, (source, target), compared, given)


# options after which the source is not compared as a whole
_CHANGES = ("outputs", "freeze", "state", "dequantize", "signature", "define", "allow_custom")


def _demand_certifiable(file: Path, output: str, options: ConvertCommand) -> None:
    """Raise UsageError if the comparison could not be repeated from the files."""
    if not options.with_verify:
        raise wrong_call("--certificate is about a comparison", help="add --verify")
    if output == DASH or is_url(output) or with_original_names(str(file)) != str(file):
        raise wrong_call("--certificate names files on this machine, and one of the models is none")
    if changed := [name for name in _CHANGES if getattr(options, name)]:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in changed)
        why = f"--certificate compares whole files, and {names} changes what is converted"
        raise wrong_call(why, help="convert first, then certify: netconv verify A B --certificate")


def write(
    console: Console, file: Path, to: Destination, options: ConversionCommand, **more: Any
) -> tuple[Any, Any] | None:
    """Run one conversion with these options, show its result and compare it; `more` are arguments
    of converter.commands.convert.convert. Return the written files and, with --verify, the result.
    """
    from converter import formats
    from converter.commands import convert

    output, place = to.place, Path(to.place)
    if is_url(output) and with_original_names(str(file)) == output:
        raise overwrites_input(output)
    if output != DASH:
        flavor = formats.target_for(place, options.target, options.io_layout)
        if options.with_verify:
            formats.demand_readable(place, flavor, "--verify")
    formats.demand_there(file)
    named = named_output(output, options.target, options.force)
    with destination.made(to.folder), named as target:
        written = convert.convert(
            file,
            target,
            common(Convert, options),
            announce=lambda d: console.report(in_file([d], str(file))),
            **more,
        )
        console.report(written.notes)
        console.result = {"files": [str(p) for p in written.files], "format": str(written.flavor)}
        if output == DASH:
            return None
        _print_written(console, written, file)
        if more.get("with_map"):
            console.say(f"{convert.map_of(target).name} written")
        if options.with_verify:
            with convert.custom_operators(options, ""):
                return written, _verify(console, written, file, options.native)
        return None


def _print_written(console: Console, written: Any, shown: Path) -> None:
    from converter.formats.coreml.package import size_of
    from converter.io.files import size_text

    names = " + ".join(p.name for p in written.files)
    total = sum(map(size_of, written.files))
    console.say(
        f"{shown.name} ({written.model.format}) -> {names} ({written.flavor}, {size_text(total)})"
    )


def _verify(console: Console, written: Any, shown: Path, native: str) -> Any:
    from converter import api
    from converter.cli.commands.verify import show
    from converter.commands.options.verify import Verify
    from converter.commands.verify import compare

    target = written.files[0]
    options = Verify(names=(str(shown), str(target)), native=native)
    result = compare(written.model, api.load(target, written.flavor.format), options)
    show(console, result)
    return result
