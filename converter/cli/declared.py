"""Options of the command line, created from declared ones (converter.commands.options)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING
from typing import Any

import click
from click.shell_completion import CompletionItem

from converter.cli.common import (
    Choice,
    Code,
    Data,
    FilePath,
    FormatName,
    Most,
    Numbers,
    PathOrUrl,
    Source,
)
from converter.cli.shapes import Pair, Shapes, Values
from converter.commands.options.declare import Declared, Kind, Option
from converter.errors import UsageError, wrong_call


def _number(kind: Callable[[Any, Any], Any], plain: type) -> Callable[[Option], Any]:
    def make(o: Option) -> Any:
        return plain if o.least is None and o.most is None else kind(o.least, o.most)

    return make


_PARSERS: dict[Kind, Callable[[Option], Any]] = {
    Kind.TEXT: lambda o: str,
    Kind.ENGINE: lambda o: str,
    Kind.INTEGER: _number(click.IntRange, int),
    Kind.NUMBER: _number(click.FloatRange, float),
    Kind.NUMBERS: lambda o: Numbers(),
    Kind.CHOICE: lambda o: Choice(o.choices),
    Kind.FORMAT: lambda o: FormatName(),
    Kind.TARGET: lambda o: FormatName(flavors=True),
    Kind.CODE: lambda o: Code(),
    Kind.SHAPES: lambda o: Shapes(),
    Kind.VALUES: lambda o: Values(),
    Kind.PAIRS: lambda o: Pair(o.metavar),
    Kind.FILE: lambda o: FilePath(),
    Kind.SOURCE: lambda o: Source(),
    Kind.PLACE: lambda o: PathOrUrl(),
    Kind.DATA: lambda o: Data(),
    Kind.MAP: lambda o: Source(),
    Kind.MAX_OUTPUT: lambda o: Most(),
}
_NAMED = (Kind.SHAPES, Kind.VALUES, Kind.PAIRS)


def _engines(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from converter.engines import ENGINES

    return [CompletionItem(e) for e in ENGINES if e.startswith(incomplete)]


def _beginnings(texts: Sequence[str]) -> Any:
    """Return the completion of an option whose values begin with one of these."""
    if not texts:
        return None

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(t) for t in texts if t.startswith(incomplete)]

    return complete


class DeclaredOption(click.Option):
    """The command-line option for a field. Without a value it is None: the field has the
    default.
    """

    def __init__(self, found: Declared, choices: Sequence[str] = ()) -> None:
        o, default = found.option, found.field.default
        self.declared = found
        keywords: dict[str, Any] = {}
        if o.kind is Kind.FLAG:
            keywords = {"is_flag": True}
        elif o.kind is Kind.COUNT:
            keywords = {"count": True}
        else:
            keywords = {
                "type": Choice(choices) if choices else _PARSERS[o.kind](o),
                "multiple": o.repeatable,
                "metavar": o.metavar or None,
                "show_default": o.kind is Kind.ENGINE,
                "shell_complete": _engines if o.kind is Kind.ENGINE else _beginnings(o.choices),
            }
            if not o.repeatable and default not in (None, "", (), MISSING):
                keywords["default"] = default
        super().__init__(
            [*found.flags, found.field.name],
            required=o.required,
            help=o.help.replace("{choices}", ", ".join(choices)),
            envvar=found.variable,
            **keywords,
        )

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Return the default for the help, without the range of numbers: errors name it."""
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)
        return extra

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Accept the hidden spellings, too; help, completion and messages do not show them."""
        shown = self.opts
        self.opts = [*shown, *self.declared.aliases]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """Parse a value; an error names the setting or the environment variable it comes from."""
        try:
            return super().process_value(ctx, value)
        except (click.UsageError, UsageError) as e:
            if not (origin := self._origin(ctx)):
                raise
            message = e.format_message() if isinstance(e, click.UsageError) else e.message
            raise wrong_call(message.rstrip("."), help=f"the value comes from {origin}") from None

    def _origin(self, ctx: click.Context) -> str:
        """Return where the value was set, "" for the command line."""
        match ctx.get_parameter_source(str(self.name)):
            case click.core.ParameterSource.ENVIRONMENT:
                return f"the environment variable {self.declared.variable}"
            case click.core.ParameterSource.DEFAULT_MAP:
                return f"the settings in {ctx.obj}"
        return ""

    def collected(self, value: Any) -> Any:
        """Return the value of the field, with the values of a repeatable option collected."""
        kind = self.declared.option.kind
        if kind is not Kind.FLAG and (value is None or value == ()):
            return self.declared.field.default
        if kind in _NAMED:
            return dict(value)
        if kind is Kind.MAP:
            from converter.commands.provenance import read_map

            return read_map(value)
        return value


def declared_options(command: click.Command) -> Iterator[DeclaredOption]:
    """Yield the options of a command, without its arguments."""
    return (p for p in command.params if isinstance(p, DeclaredOption))
