"""netconv run"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from converter.cli.common import (
    FilePath,
    option,
    seed_option,
    source_options,
    subcommand,
)
from converter.cli.console import Console

EXAMPLES = """netconv run net.mlmodel
netconv run net.xml --data in.npz --out out.npz
netconv run net.onnx --data image=photo.npy --engine openvino"""


@subcommand("run", examples=EXAMPLES)
@click.argument("file", metavar="FILE", type=FilePath())
@option(
    "--data",
    metavar="DATA",
    multiple=True,
    help="in.npz, a folder of them, random, edge, or NAME=file.npy; repeatable. Default: random.",
)
@option(
    "--out",
    metavar="OUT.npz",
    type=FilePath(),
    help="Write the outputs; with several inputs a folder.",
)
@option(
    "--engine",
    default="onnxruntime",
    show_default=True,
    help="What executes it: onnxruntime, openvino, litert, coreml, reference.",
)
@seed_option
@option("--force", is_flag=True, help="Overwrite OUT.npz.")
@source_options
def command(
    console: Console,
    file: Path,
    data: tuple[str, ...],
    out: Path | None,
    engine: str,
    seed: int,
    force: bool,
    source: str | None,
    weights: Path | None,
    dequantize: bool,
    signature: str,
) -> None:
    """Execute FILE and show its outputs, or write them."""
    from converter import api
    from converter.commands import run

    model = api.load(file, source, weights, dequantize, signature=signature)
    console.report(model.notes)
    results = run.run(model, data or ("random",), engine, seed)
    if out is not None:
        run.write(results, out, force)
    found: list[dict[str, Any]] = []
    for name, outputs in results:
        for output, array in outputs.items():
            found.append({"input": name, "output": output, **run.describe(array)})
            console.say(f"{name:12} {output}  {run.line(array)}")
    console.result = found
