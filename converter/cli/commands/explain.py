"""netconv explain"""

from __future__ import annotations

import textwrap

import click
from click.shell_completion import CompletionItem

from converter.cli.console import Console
from converter.cli.options import subcommand
from converter.commands.explain import CODES
from converter.commands.options.declare import Options
from converter.errors import did_you_mean, wrong_call


def _codes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [
        CompletionItem(c, help=page.title)
        for c, page in CODES.items()
        if c.startswith(incomplete.upper())
    ]


@subcommand("explain", Options, examples="netconv explain X202\nnetconv explain")
@click.argument("code", metavar="[CODE]", required=False, shell_complete=_codes)
def command(console: Console, _: Options, code: str | None) -> None:
    """What a diagnostic CODE means, and what to do; without CODE the list of all."""
    if code is None:
        console.result = {c: {"title": p.title, "text": p.text} for c, p in CODES.items()}
        for c, page in CODES.items():
            console.say(f"{c}  {page.title}")
        return
    page_ = CODES.get(code.upper())
    if page_ is None:
        help = did_you_mean(code, CODES, "netconv explain lists all")
        raise wrong_call(f"unknown code {code!r}", help=help)
    console.result = {code.upper(): {"title": page_.title, "text": page_.text}}
    console.say(f"{code.upper()}: {page_.title}")
    console.say(*textwrap.wrap(page_.text, 100, initial_indent="  ", subsequent_indent="  "))
