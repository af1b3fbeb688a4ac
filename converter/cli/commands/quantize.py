"""netconv quantize"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from converter.cli.common import FilePath, Source
from converter.cli.console import Console
from converter.cli.options import subcommand
from converter.cli.streams import uploaded
from converter.commands.options.quantize import QuantizeCommand
from converter.errors import ExitCode, wrong_call

if TYPE_CHECKING:
    from converter.commands.quantize.result import Quantized

EXAMPLES = """netconv quantize net.onnx net.tflite --data images --mean 127 --std 128
netconv quantize net.xml -o net.txt -t zhouyi --data calib.npz --labels labels --max-drop 1%
netconv quantize net.onnx -o int8 -t tflite -t openvino -t nnapi --data calib
netconv quantize llm.onnx llm.mlpackage --compress int4 --block 32"""
WORST = 5  # layers that are shown


@subcommand("quantize", QuantizeCommand, examples=EXAMPLES)
@click.argument("file", metavar="IN", type=Source())
@click.argument("out", metavar="[OUT]", required=False, type=FilePath())
def command(console: Console, options: QuantizeCommand, file: Path, out: Path | None) -> None:
    """Quantize a network to int8, or compress its weights, and measure the loss.

    OUT is the file to write, or a folder for several formats.

    Ranges are measured on --data, which should be representative. The result runs in the engine of
    its format, if that is installed, and is compared with the float network. Exit 1: the loss
    exceeds --max-drop.
    """
    from converter.commands.quantize.run import quantize

    results: list[Quantized] = []
    output = out or options.output
    if output is None or (out and options.output):
        why = "the output is named twice" if output else "the call names no output"
        raise wrong_call(why, help="netconv quantize IN OUT --data DIR")
    for made in quantize(file, output, options, detailed=options.page is not None):
        console.report(made.notes)
        if any(d.code == "N412" for d in made.notes):
            console.verdict(ExitCode.FINDING)
        results.append(made)
        console.say(*lines(made, console.verbosity))
    console.result = [made.as_json() for made in results]
    if options.page is not None:
        _page(console, options.page, file, results)


def _page(console: Console, place: str, source: Path, results: list[Quantized]) -> None:
    from converter.commands import report
    from converter.commands.report import quantized
    from converter.commands.report.origin import origin

    text = quantized.render(str(source), results, sys.argv[1:], origin())
    with uploaded(place, force=True) as path:
        report.write(path, text)
    console.say(f"page: {place}")


def lines(made: Any, verbosity: int) -> list[str]:
    """Describe a written network."""
    from converter.io.files import size_text

    files = " + ".join(p.name for p in made.files)
    share = made.size / max(1, made.before)
    said = [f"{files} ({made.flavor}): {size_text(made.size)}, {share:.0%} of the float network"]
    if (q := made.quality) is not None:
        worst = min(q.sqnr, key=lambda n: q.sqnr[n], default="")
        said.append(f"  {q.samples} samples in {q.engine}: {q.least:.1f} dB at {worst}")
        said += [f"  {name}: {share} ({around})" for name, _, share, around in q.shares()]
    if made.layers:
        shown = list(made.layers.items())[: None if verbosity > 0 else WORST]
        said.append("  worst layers: " + ", ".join(f"{n} {v:.1f} dB" for n, v in shown))
    if made.forms:
        count = Counter(made.forms.values())
        said.append("  weights: " + ", ".join(f"{n} layers in {form}" for form, n in count.items()))
    if made.wide:
        said.append("  in 16 bits (--max-drop): " + ", ".join(made.wide))
    for why in dict.fromkeys(made.floats.values()):
        names = ", ".join(n for n, w in made.floats.items() if w == why)
        said.append(f"  in floats: {names}: {why}")
    return said
