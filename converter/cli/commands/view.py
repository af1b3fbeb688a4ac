"""netconv view"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from converter.cli.common import Source
from converter.cli.console import Console
from converter.cli.options import subcommand
from converter.cli.streams import uploaded
from converter.commands.options.verify import ViewCommand

EXAMPLES = """netconv view net.txt -o net.html
netconv view net.mlmodel net.xml -o both.html
netconv view net.onnx net.tflite --verify --data image=photo.npy -o both.html"""


@subcommand("view", ViewCommand, ("text",), EXAMPLES)
@click.argument("a", type=Source())
@click.argument("b", type=Source(), required=False)
def command(console: Console, options: ViewCommand, a: Path, b: Path | None) -> None:
    """Draw the layers of a model, or of two side by side, in one page that works offline.

    Layers are folded by their names; a click shows attributes, shapes and histograms of weights.
    Of two models, corresponding layers are matched as by verify, and structural differences are
    marked. Exit 0: the page was written.
    """
    from converter import api
    from converter.commands import report
    from converter.commands.options.verify import Verify
    from converter.commands.verify import compare
    from converter.commands.view import page
    from converter.errors import wrong_call

    if b is None and (options.with_verify or options.data or options.map or options.b_format):
        raise wrong_call("--verify, --data, --map and --from-b need two models")
    models: list[tuple[str, Any]] = [(str(a), api.load(a, options.a_format))]
    models += [(str(b), api.load(b, options.b_format))] if b is not None else []
    for _, model in models:
        console.report(model.notes)
    result = None
    if options.with_verify:
        (_, first), (_, second) = models
        asked = Verify(
            data=options.data,
            tensors="all",
            seed=options.seed,
            map=options.map,
            native="off",
        )
        result = compare(first, second, asked)
    text = page.render(models, result, options.map)
    with uploaded(options.output, force=True) as path:
        report.write(path, text)
    console.say(options.output)
