"""netconv explain"""

from __future__ import annotations

import textwrap
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from converter.cli.common import FormatName
from converter.cli.console import Console
from converter.cli.options import subcommand
from converter.commands.explain import CODES
from converter.commands.options.convert import ExplainCommand
from converter.errors import ExitCode, did_you_mean, wrong_call

PIPELINE = "pipeline"
EXAMPLES = """netconv explain X202
netconv explain
netconv explain pipeline nnapi
netconv explain pipeline openvino+ir=7 --model net.onnx"""


def _topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    begun = incomplete.upper()
    found = [CompletionItem(c, help=p.title) for c, p in CODES.items() if c.startswith(begun)]
    if PIPELINE.startswith(incomplete):
        found.append(CompletionItem(PIPELINE, help="the passes of a format"))
    return found


@subcommand("explain", ExplainCommand, examples=EXAMPLES)
@click.argument("code", metavar="[CODE|pipeline]", required=False, shell_complete=_topics)
@click.argument("name", metavar="[FORMAT]", required=False, type=FormatName(flavors=True))
def command(console: Console, options: ExplainCommand, code: str | None, name: str | None) -> None:
    """Explain a diagnostic CODE and the remedy; without CODE, list all codes.

    With pipeline, list the passes that a model goes through before it is written in FORMAT, in
    order; with --model, show the changes of each of them in that model.
    """
    if code == PIPELINE:
        _pipeline(console, options, name)
        return
    if name is not None or options.of is not None:
        raise wrong_call("FORMAT and --model need netconv explain pipeline")
    if code is None:
        console.result = {c: {"title": p.title, "text": p.text} for c, p in CODES.items()}
        for c, page in CODES.items():
            console.say(f"{c}  {page.title}")
        return
    page_ = CODES.get(code.upper())
    if page_ is None:
        help = did_you_mean(code, [*CODES, PIPELINE], "run netconv explain to list all codes")
        raise wrong_call(f"code {code!r} is not known", help=help)
    console.result = {code.upper(): {"title": page_.title, "text": page_.text}}
    console.say(f"{code.upper()}: {page_.title}")
    console.say(*textwrap.wrap(page_.text, 100, initial_indent="  ", subsequent_indent="  "))
    wrapped = textwrap.wrap(page_.help, 94, initial_indent="  help: ", subsequent_indent=" " * 8)
    console.say(*wrapped)
    if page_.example:
        console.say(*_command("example", page_.example), f"    {page_.output}")
        console.say(*_command("repaired", page_.repaired))
    else:
        console.say(f"  no example: {page_.no_example}")


def _command(title: str, command: str) -> list[str]:
    """Return the lines of a command line, one for each of its commands."""
    first, *more = command.split(" && ")
    return [f"  {title}: {first}", *(f"{' ' * (len(title) + 4)}{line}" for line in more)]


def _pipeline(console: Console, options: ExplainCommand, name: str | None) -> None:
    from converter import formats
    from converter.commands import pipeline

    if name is None:
        help = f"use one of {', '.join(formats.present())}"
        raise wrong_call("netconv explain pipeline needs a FORMAT", help=help)
    if options.of is not None:
        _trace(console, options.of, name)
        return
    flavor = formats.parse_flavor(name)
    passes = formats.get(flavor.format).passes(flavor)
    console.result = [{"pass": p.name, "effect": p.effect} for p in passes]
    console.say(f"{flavor}: {len(passes)} passes")
    console.say(*pipeline.lines([(i, p.name, p.effect) for i, p in enumerate(passes, 1)]))


def _trace(console: Console, file: Path, name: str) -> None:
    from converter import api
    from converter.commands import pipeline

    model = api.load(file)
    changes, found = pipeline.trace(model, name, file)
    console.verdict(ExitCode.UNSUPPORTED if found.reasons else ExitCode.OK)
    console.result = [c.as_json() for c in changes]
    console.say(f"{file.name} -> {found.flavor}")
    console.say(*pipeline.changed_lines(changes, console.verbosity > 0))
    console.report(found.diagnostics)
