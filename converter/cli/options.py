"""Commands with the options of a class (converter.commands.options): each field is an option, and
the command's function receives one object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import click

from converter.cli import console, settings
from converter.cli.console import Console
from converter.cli.declared import DeclaredOption, declared_options
from converter.commands.options.declare import Group, Options, declared
from converter.commands.options.general import General

P = ParamSpec("P")
T = TypeVar("T", bound=Options)
DATA = ("text", "json")
REPORTS = ("text", "json", "github", "sarif", "junit")


# general options that are shown once, by netconv --help
_EVERYWHERE = [d.name for d in declared(General) if d.name != "format"]


def general_rows() -> list[tuple[str, str]]:
    """Return the options of every command with their descriptions, for the help."""
    context = click.Context(click.Command("netconv"))
    options = [DeclaredOption(d, DATA if d.name == "format" else ()) for d in declared(General)]
    rows = [row for o in options if (row := o.get_help_record(context)) is not None]
    return [*rows, ("-h, --help", "Show help and exit.")]


class Command(click.Command):
    """A command whose options are the fields of a class; defaults may come from the environment and
    a settings file.
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
        extra["obj"] = settings.find()  # messages name the file
        extra["default_map"] = settings.load(extra["obj"], self)
        return super().make_context(info_name, args, parent, **extra)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in groups."""
        for group, rows in self.grouped_rows(ctx).items():
            with formatter.section(group.value):
                formatter.write_dl(rows)
        formatter.write_paragraph()
        formatter.write_text("netconv --help explains the options that every command has.")

    def grouped_rows(self, ctx: click.Context) -> dict[Group, list[tuple[str, str]]]:
        """Return the options and their descriptions, without those that every command has alike."""
        rows: dict[Group, list[tuple[str, str]]] = {g: [] for g in Group}
        for p in declared_options(self):
            if (row := p.get_help_record(ctx)) is not None and p.declared.name not in _EVERYWHERE:
                rows[p.declared.option.group].append(row)
        return {group: found for group, found in rows.items() if found}


def _early_format(args: Sequence[str]) -> str:
    """Determine the output format as far as possible before the arguments are parsed: errors in
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
    """Return a decorator that makes a command with the options of `cls` and the general ones. The
    decorated function receives a Console, to which it reports the verdict, the options, and its
    arguments.
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
    """Build the options of a class and remove their values from `given`."""
    values: Mapping[str, Any] = {str(p.name): p.collected(given.pop(str(p.name))) for p in own}
    return cls(**values)
