"""netconv run"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from converter.cli.common import Source
from converter.cli.console import Console
from converter.cli.options import subcommand
from converter.cli.streams import uploaded
from converter.commands.options.verify import RunCommand
from converter.errors import wrong_call

EXAMPLES = """netconv run net.mlmodel
netconv run net.xml --data in.npz -o out.npz
netconv run net.onnx --data image=photo.npy --engine openvino
netconv run net.onnx --profile"""


@subcommand("run", RunCommand, examples=EXAMPLES)
@click.argument("file", type=Source())
def command(console: Console, options: RunCommand, file: Path) -> None:
    """Run FILE and show its outputs, or write them."""
    from converter.cli.loading import read
    from converter.commands import labels, run
    from converter.commands.verify import feeds
    from converter.commands.verify.sizes import explaining, shapes_for
    from converter.io import limits

    with limits.time(options.timeout):
        model = read(file, options, options.inputs)
        shapes = shapes_for(model, options.inputs)
        sets = feeds.feeds_for(model, options.data or ["random"], options.seed, shapes=shapes)
        console.report([*model.notes, *feeds.notes(sets)])
        if options.profile:
            _profile(console, model, sets, options.engine)
            return
        with explaining(model, options.inputs):
            results = run.run(model, sets, options.engine)
    if options.out is not None:
        with uploaded(options.out, options.force) as path:
            run.write(results, path, options.force)
    tables = labels.labels_of(model)
    found: list[dict[str, Any]] = []
    for name, outputs in results:
        shown = labels.of_outputs(outputs, tables)
        for output, array in outputs.items():
            found.append({"input": name, "output": output, **run.describe(array)})
            tail = f"  {shown[output]}" if output in shown else ""
            console.say(f"{name:12} {output}  {run.line(array)}{tail}")
    console.result = found


def _profile(console: Console, model: Any, inputs: Any, engine: str) -> None:
    from converter.commands import profile

    if engine != "onnxruntime":
        why = f"--profile needs onnxruntime, got {engine}"
        raise wrong_call(why)
    timings = profile.profile(model, inputs)
    console.result = [asdict(s) for s in timings]
    shown = len(timings) if console.verbosity > 0 else profile.SHOWN
    console.say(*profile.lines(timings, shown))
