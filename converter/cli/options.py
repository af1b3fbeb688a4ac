"""Commands with the options of a class (converter.commands.options): each field is an option, and
the command's function gets one object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING
from typing import Any, Concatenate, ParamSpec, TypeVar

import click
from click.shell_completion import CompletionItem

from converter.cli import console, settings
from converter.cli.common import (
    Choice,
    Code,
    Data,
    FilePath,
    FormatName,
    Most,
    Numbers,
    Place,
    Source,
)
from converter.cli.console import Console
from converter.cli.shapes import Pair, Shapes, Values
from converter.commands.options.declare import Declared, Group, Kind, Option, Options, declared
from converter.commands.options.general import General

P = ParamSpec("P")
T = TypeVar("T", bound=Options)
DATA = ("text", "json")
REPORTS = ("text", "json", "github", "sarif", "junit")


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
    Kind.TARGET: lambda o: FormatName(flavours=True),
    Kind.CODE: lambda o: Code(),
    Kind.SHAPES: lambda o: Shapes(),
    Kind.VALUES: lambda o: Values(),
    Kind.PAIRS: lambda o: Pair(o.metavar),
    Kind.FILE: lambda o: FilePath(),
    Kind.SOURCE: lambda o: Source(),
    Kind.PLACE: lambda o: Place(),
    Kind.DATA: lambda o: Data(),
    Kind.MAP: lambda o: Source(),
    Kind.MAX_OUTPUT: lambda o: Most(),
}
_NAMED = (Kind.SHAPES, Kind.VALUES, Kind.PAIRS)


def _engines(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from converter.engines import ENGINES

    return [CompletionItem(e) for e in ENGINES if e.startswith(incomplete)]


class DeclaredOption(click.Option):
    """The option of a field. Without a value it is None: the field has the default."""

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
                "shell_complete": _engines if o.kind is Kind.ENGINE else None,
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

    def collected(self, value: Any) -> Any:
        """The value of the field."""
        kind = self.declared.option.kind
        if kind is not Kind.FLAG and (value is None or value == ()):
            return self.declared.field.default
        if kind in _NAMED:
            return dict(value)
        if kind is Kind.MAP:
            from converter.commands.provenance import read_map

            return read_map(value)
        return value


class Command(click.Command):
    """A command with the fields of a class as its options, whose defaults may come from the
    environment and a settings file.
    """

    options: type[Options]
    formats: Sequence[str]

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        console.use(Console(command=str(self.name), format=_early_format(args), color="auto"))
        extra["default_map"] = settings.load(settings.find(), self)
        return super().make_context(info_name, args, parent, **extra)

    @property
    def declared(self) -> Iterator[DeclaredOption]:
        """Its options, without its arguments."""
        return (p for p in self.params if isinstance(p, DeclaredOption))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options in groups."""
        rows: dict[Group, list[tuple[str, str]]] = {g: [] for g in Group}
        for p in self.get_params(ctx):
            if isinstance(p, click.Option) and (row := p.get_help_record(ctx)) is not None:
                own = p.declared.option.group if isinstance(p, DeclaredOption) else Group.GENERAL
                rows[own].append(row)
        for group, found in rows.items():
            if found:
                with formatter.section(group.value):
                    formatter.write_dl(found)


def _early_format(args: Sequence[str]) -> str:
    """The output format as far as it can be told before the arguments are parsed: complaints about
    them are rendered in it too.
    """
    for i, a in enumerate(args):
        value = (
            a.partition("=")[2]
            if a.startswith("--format=")
            else args[i + 1]
            if a == "--format" and i + 1 < len(args)
            else ""
        )
        if value in REPORTS:
            return value
    return "text"


def subcommand(
    name: str, cls: type[T], formats: Sequence[str] = DATA, examples: str = ""
) -> Callable[[Callable[Concatenate[Console, T, P], None]], click.Command]:
    """A command with options of its own and the general ones. Its function takes a Console, which
    it tells the verdict, its options, and its arguments.
    """

    def decorate(body: Callable[Concatenate[Console, T, P], None]) -> click.Command:
        own = [DeclaredOption(d) for d in declared(cls)]
        general = [
            DeclaredOption(d, formats if d.name == "format" else ()) for d in declared(General)
        ]

        def callback(**given: Any) -> int:
            shown = _made(General, general, given)
            made = console.use(
                Console(
                    name,
                    shown.format,
                    -1 if shown.quiet else shown.verbose,
                    shown.color,
                    shown.strict,
                    shown.log,
                    shown.allow,
                    shown.deny,
                )
            )
            body(made, _made(cls, own, given), **given)  # type: ignore[call-arg]
            return made.finish()

        arguments = getattr(body, "__click_params__", [])
        command = Command(
            name,
            callback=callback,
            params=[*reversed(arguments), *own, *general],
            help=body.__doc__,
            epilog=_epilog(examples),
            context_settings={"help_option_names": ["-h", "--help"]},
        )
        command.options, command.formats = cls, formats
        return command

    return decorate


def _epilog(examples: str) -> str | None:
    if not examples:
        return None
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in examples.splitlines())


def _made(cls: type[T], own: Sequence[DeclaredOption], given: dict[str, Any]) -> T:
    """The options of a class, whose values are taken out of those that were given."""
    values: Mapping[str, Any] = {str(p.name): p.collected(given.pop(str(p.name))) for p in own}
    return cls(**values)
