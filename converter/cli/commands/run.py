"""netconv run"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from converter.cli.common import (
    Data,
    Place,
    Source,
    engine_option,
    inputs_option,
    option,
    seed_option,
    source_options,
    subcommand,
    timeout_option,
)
from converter.cli.console import Console
from converter.cli.streams import uploaded
from converter.errors import wrong_call

EXAMPLES = """netconv run net.mlmodel
netconv run net.xml --data in.npz --out out.npz
netconv run net.onnx --data image=photo.npy --engine openvino
netconv run net.onnx --profile"""


@subcommand("run", examples=EXAMPLES)
@click.argument("file", type=Source())
@option(
    "--data",
    type=Data(),
    multiple=True,
    help="in.npz, a folder of them, random, edge, or NAME=file.npy; repeatable. Default: random.",
)
@option(
    "--out",
    metavar="OUT.npz",
    type=Place(),
    help="Write the outputs; with several inputs a folder.",
)
@engine_option("What executes it: onnxruntime, openvino, litert, coreml, coreai, reference.")
@seed_option
@option(
    "--profile",
    is_flag=True,
    help="Show where the time goes, by kernel and layer, instead of outputs (onnxruntime).",
)
@timeout_option
@inputs_option
@option("--force", is_flag=True, help="Overwrite OUT.npz.")
@source_options
def command(
    console: Console,
    file: Path,
    data: tuple[str, ...],
    out: str | None,
    engine: str,
    seed: int,
    timeout: float,
    inputs: tuple[tuple[str, list[int]], ...],
    profile: bool,
    force: bool,
    source: str | None,
    weights: Path | None,
    dequantize: bool,
    signature: str,
) -> None:
    """Execute FILE and show its outputs, or write them."""
    from converter import api
    from converter.commands import run
    from converter.commands.verify import feeds
    from converter.commands.verify.sizes import shapes_for
    from converter.io import limits

    with limits.time(timeout):
        model = api.load(file, source, weights, dequantize, signature=signature)
        shapes = shapes_for(model, dict(inputs))
        sets = feeds.feeds_for(model, list(data) or ["random"], seed, shapes=shapes)
        console.report([*model.notes, *feeds.notes(sets)])
        if profile:
            _profile(console, model, sets, engine)
            return
        results = run.run(model, sets, engine)
    if out is not None:
        with uploaded(out, force) as path:
            run.write(results, path, force)
    found: list[dict[str, Any]] = []
    for name, outputs in results:
        for output, array in outputs.items():
            found.append({"input": name, "output": output, **run.describe(array)})
            console.say(f"{name:12} {output}  {run.line(array)}")
    console.result = found


def _profile(console: Console, model: Any, inputs: Any, engine: str) -> None:
    from converter.commands import profile

    if engine != "onnxruntime":
        why = f"--profile measures onnxruntime, not {engine}"
        raise wrong_call(why)
    spent = profile.profile(model, inputs)
    console.result = [asdict(s) for s in spent]
    shown = len(spent) if console.verbosity > 0 else profile.SHOWN
    console.say(*profile.lines(spent, shown))
