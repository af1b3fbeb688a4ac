"""netconv formats"""

from __future__ import annotations

import click

from converter.cli.common import FormatName
from converter.cli.console import Console
from converter.cli.options import subcommand
from converter.commands.options.declare import Options


@subcommand("formats", Options, examples="netconv formats\nnetconv formats openvino")
@click.argument("name", metavar="[FORMAT]", type=FormatName(), required=False)
def command(console: Console, _: Options, name: str | None) -> None:
    """List the formats that netconv supports; for one FORMAT, its versions and flavors."""
    from converter import formats

    chosen = [formats.get(n) for n in ([name] if name else formats.present())]
    console.result = [
        {
            "name": f.name,
            "title": f.title,
            "suffixes": list(f.suffixes),
            "versions": f.versions,
            "options": [
                {"name": o.name, "values": list(o.values), "default": o.default, "doc": o.doc}
                for o in f.options
            ],
        }
        for f in chosen
    ]
    for f in chosen:
        console.say(f"{f.name:10} {f.title}  ({' '.join(f.suffixes)})")
        if name:
            console.say(f"  {f.versions}")
            for o in f.options:
                values = f"={'|'.join(o.values)}" if o.values else ""
                console.say(
                    f"  +{o.name}{values}  {o.doc}"
                    + (f" (default {o.default})" if o.default else "")
                )
