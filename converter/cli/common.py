"""Parameters of the command line that suggest the probable spelling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from converter.cli import streams
from converter.cli.shapes import Parsed
from converter.errors import did_you_mean, wrong_call


class Choice(click.Choice[str]):
    """A choice that suggests the probable spelling."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        known = [str(c) for c in self.choices]
        if str(value) in known:
            return str(value)
        name = f"{param.opts[0]}: " if param is not None and param.opts[0].startswith("-") else ""
        raise wrong_call(
            f"{name}{value!r} is not one of {', '.join(known)}",
            help=did_you_mean(str(value), known) or _elsewhere(str(value), name),
        )


def _elsewhere(value: str, name: str) -> str:
    """Return the help for a value of --format that belongs to another option."""
    from converter.commands.options.batch import FORMS
    from converter.formats import FORMATS

    if name == "--format: " and value.split("+")[0] in FORMATS:
        return f"-t {value} names the format to write"
    if name == "--format: " and value in FORMS:
        return f"--as {value} of netconv report renders stored results"
    return ""


class FormatName(Parsed):
    """A format, with flavors if `flavors` is set: openvino, openvino+ir=7+fp16."""

    name = "FORMAT"

    def __init__(self, flavors: bool = False) -> None:
        self.flavors = flavors

    def parse(self, text: str, option: str) -> str:
        from converter import formats

        if self.flavors:
            formats.parse_flavor(text)
        else:
            formats.get(text)
        return text

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from converter.formats import FORMATS, get

        name, plus, begun = incomplete.rpartition("+")
        if not (plus and self.flavors and name.split("+")[0] in FORMATS):
            return [CompletionItem(f) for f in FORMATS if f.startswith(incomplete)]
        flavors = [
            f"{o.name}={v}" if v else o.name
            for o in get(name.split("+")[0]).options
            for v in (o.values or ("",))
        ]
        return [CompletionItem(f"{name}+{f}") for f in flavors if f.startswith(begun)]


class Code(Parsed):
    """The code of a diagnostic."""

    name = "CODE"

    def parse(self, text: str, option: str) -> str:
        from converter.commands.explain import CODES

        if text not in CODES:
            raise wrong_call(
                f"code {text!r} is not known", help="run netconv explain to list all codes"
            )
        return text

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from converter.commands.explain import CODES

        return [CompletionItem(c) for c in CODES if c.startswith(incomplete)]


class Numbers(Parsed):
    """Comma-separated numbers."""

    name = "NUMBERS"

    def parse(self, text: str, option: str) -> tuple[float, ...]:
        try:
            return tuple(float(n) for n in text.split(","))
        except ValueError:
            why = f"{option} must be a list of numbers, got {text!r}"
            raise wrong_call(why, help="use for example 127.5,127.5,127.5") from None


class Most(Parsed):
    """A size or a multiple of the source, the limit for an output; it is validated but passed on
    unchanged.
    """

    name = "SIZE"

    def parse(self, text: str, option: str) -> str:
        from converter.io import growth

        growth.parse(text)
        return text


class FilePath(Parsed):
    """A path that may not exist: a missing input results in exit code 4 and our own message, not in
    click's 2.
    """

    name = "FILE"

    def parse(self, text: str, option: str) -> Any:
        if streams.is_url(text):
            help = "models, data, maps and results may be URLs; other files must be local"
            raise wrong_call(f"{text!r} is a URL, but a local file is needed here", help=help)
        return Path(text.removeprefix("file://"))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]


class Source(FilePath):
    """A file to read: a path, `-` for standard input, or a URL; the latter two are copied to a file
    that lasts as long as the command. `data`: it may be prefixed by NAME= and may be a folder.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        location = str(value)
        if ctx is None or ctx.resilient_parsing:
            return Path(location)
        if location == streams.DASH:
            if ctx.meta.get("netconv.stdin"):
                why = "standard input is one file, but - was given twice"
                raise wrong_call(why)
            ctx.meta["netconv.stdin"] = True
        return ctx.with_resource(streams.fetched(location))


class Data(Source):
    """Inputs to run on: a file, a folder or a URL of one, NAME=FILE, or a word for generated
    ones.
    """

    name = "DATA"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        name, equal, location = str(value).partition("=")
        if not equal or streams.is_url(name):
            name, equal, location = "", "", str(value)
        if location in ("random", "edge"):
            return str(value)
        return f"{name}{equal}{super().convert(location, param, ctx)}"


class PathOrUrl(FilePath):
    """A path or a URL, passed on unchanged."""

    name = "PLACE"

    def parse(self, text: str, option: str) -> str:
        return text
