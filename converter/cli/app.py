"""The entry point: the group of commands, each loaded when it is called, and the handling of
errors.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn

import click

from converter import version
from converter.cli import console, stdio, waiting
from converter.cli.interrupt import leave
from converter.cli.names import COMMANDS, GROUPS, command
from converter.cli.options import general_rows
from converter.commands import startup
from converter.errors import (
    ConverterError,
    Diagnostic,
    ExitCode,
    MemoryLimitError,
    cannot_write,
    most_severe,
    wrong_call,
)
from converter.io.signals import REQUESTS, loading

EXAMPLES = """Examples:
  netconv convert net.mlmodel net.tflite --verify
  netconv verify net.onnx net.xml
  netconv batch models -t openvino

netconv COMMAND --help explains a command."""


class LazyGroup(click.Group):
    """A group of commands that imports a command only when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return command(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()), col_max=14)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands first, then the options that every command has."""
        self.format_commands(ctx, formatter)
        with formatter.section("Options of every command"):
            formatter.write_dl(general_rows())
        rows = [p.get_help_record(ctx) for p in self.params]
        with formatter.section("Options without a command"):
            formatter.write_dl([row for row in rows if row is not None])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from converter.cli.wrong_calls import unknown_command

            raise unknown_command(args)
        return super().resolve_command(ctx, args)


def _print_manual(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from converter.cli.manual import page

        click.echo(page(ctx), nl=False)
        ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\n" + EXAMPLES,
)
@click.version_option(version.__version__, prog_name="netconv")
@click.option(
    "--man",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_manual,
    help="Print the manual page (netconv --man | man -l -).",
)
def app() -> None:
    pass


app.help = f"{version.SUMMARY}."


def run() -> NoReturn:
    """Run the command line and exit with a code of ExitCode. A termination request has the effect
    of Ctrl-C: unfinished outputs are removed.
    """
    try:
        for number in REQUESTS:
            if signal.getsignal(number) in (signal.SIG_DFL, leave):
                signal.signal(number, _interrupt)
        code = int(_guarded())
        _ignore_requests()
    except KeyboardInterrupt:  # a second one while the first is handled, or one after the end
        code = int(ExitCode.INTERRUPTED)
        _ignore_requests()
    startup.finish(code)
    sys.exit(code)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Handle a signal as Python handles Ctrl-C, but exit at once where the exception would be
    lost.
    """
    del number
    if loading(frame):
        leave()
    raise KeyboardInterrupt


def _ignore_requests() -> None:
    """Ignore termination requests from now on: during the final cleanup Python would crash on
    them.
    """
    for number in REQUESTS:
        signal.signal(number, signal.SIG_IGN)


def _guarded() -> int:
    code = _call()
    error = stdio.lost()
    if error is None or isinstance(error, BrokenPipeError):  # a reader may close the pipe early
        return code
    click.echo(str(cannot_write("standard output", error)), err=True)
    return most_severe([code, ExitCode.UNWRITABLE])


def _call() -> int:
    try:
        with waiting.shown(not {"-q", "--quiet"} & {*sys.argv}):
            result = app.main(prog_name="netconv", standalone_mode=False)
        return int(result) if isinstance(result, int) else 0
    except ConverterError as e:
        return console.current().refuse(e)
    except click.exceptions.NoArgsIsHelpError as e:
        click.echo(e.format_message(), err=True)
        return ExitCode.USAGE
    except click.UsageError as e:
        from converter.cli.wrong_calls import explained

        return console.current().refuse(explained(e))
    except click.ClickException as e:
        return console.current().refuse(wrong_call(e.format_message()))
    except (KeyboardInterrupt, click.Abort):
        _ignore_requests()
        click.echo("interrupted", err=True)
        return ExitCode.INTERRUPTED
    except MemoryError:
        return console.current().refuse(
            MemoryLimitError(Diagnostic("U503", "not enough memory is available"))
        )
    except Exception as e:
        from converter.cli.crash import apologise

        return apologise(e)
