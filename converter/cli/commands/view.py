"""netconv view"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from converter.cli.common import (
    Place,
    Source,
    data_option,
    formats_options,
    map_option,
    option,
    seed_option,
    subcommand,
)
from converter.cli.console import Console
from converter.cli.streams import uploaded

EXAMPLES = """netconv view net.txt -o net.html
netconv view net.mlmodel net.xml -o both.html
netconv view net.onnx net.tflite --verify --data image=photo.npy -o both.html"""


@subcommand("view", ("text",), EXAMPLES)
@click.argument("a", type=Source())
@click.argument("b", type=Source(), required=False)
@option(
    "-o", "--output", metavar="PAGE.html", type=Place(), required=True, help="The page to write."
)
@option(
    "--verify", "with_verify", is_flag=True, help="Colour the layers by the error of B against A."
)
@data_option
@seed_option
@map_option
@formats_options("a", "b")
def command(
    console: Console,
    a: Path,
    b: Path | None,
    output: str,
    with_verify: bool,
    data: tuple[str, ...],
    seed: int,
    map_file: Path | None,
    a_format: str | None,
    b_format: str | None,
) -> None:
    """Draw the layers of a model of any format, or of two side by side, in one page that needs no
    network.

    Layers are folded by their names; attributes, shapes and histograms of weights are shown on a
    click. Of two models the same layers are found as verify finds them: what differs in structure
    is marked. Exit 0: the page is written, whatever it shows.
    """
    from converter import api
    from converter.commands import report
    from converter.commands.provenance import read_map
    from converter.commands.view import page
    from converter.errors import wrong_call

    if b is None and (with_verify or data or map_file or b_format):
        raise wrong_call("--verify, --data, --map and --from-b go with two models")
    models: list[tuple[str, Any]] = [(str(a), api.load(a, a_format))]
    models += [(str(b), api.load(b, b_format))] if b is not None else []
    for _, model in models:
        console.report(model.notes)
    given = read_map(map_file) if map_file else None
    result = None
    if with_verify:
        first, second = (m for _, m in models)
        result = api.verify(
            first, second, list(data) or None, tensors="all", seed=seed, map=given, native="off"
        )
    text = page.render(models, result, given)
    with uploaded(output, force=True) as path:
        report.write(path, text)
    console.say(output)
