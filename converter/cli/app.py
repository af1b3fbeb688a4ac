"""The entry point: the group of commands, each loaded when it is called, and the handling of
errors.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn

import click

import converter
from converter.cli import console, stdio, waiting
from converter.cli.interrupt import leave
from converter.cli.names import COMMANDS, command
from converter.commands import startup
from converter.errors import (
    ConverterError,
    Diagnostic,
    ExitCode,
    MemoryLimitError,
    UsageError,
    cannot_write,
    did_you_mean,
    most_severe,
    wrong_call,
)
from converter.io.signals import REQUESTS, loading


class LazyGroup(click.Group):
    """A group that knows its commands by name and short help, and imports a command when it is
    needed.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return command(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            help = did_you_mean(args[0], COMMANDS, "netconv --help lists the commands")
            raise wrong_call(f"no such command {args[0]!r}", help=help)
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="netconv COMMAND --help explains a command.",
)
@click.version_option(converter.__version__, prog_name="netconv")
def app() -> None:
    """Convert neural networks between Core ML, OpenVINO IR, Zhouyi Compass IR, ONNX and NNAPI, and
    prove that the result is the same network.
    """


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
        return console.current().refuse(_usage(e))
    except click.ClickException as e:
        return console.current().refuse(wrong_call(e.format_message()))
    except (KeyboardInterrupt, click.Abort):
        _ignore_requests()
        click.echo("interrupted", err=True)
        return ExitCode.INTERRUPTED
    except MemoryError:
        return console.current().refuse(
            MemoryLimitError(Diagnostic("U503", "there is not enough memory for this"))
        )
    except Exception as e:
        from converter.cli.crash import apologise

        return apologise(e)


def _usage(e: click.UsageError) -> UsageError:
    """Convert an error of click to our form."""
    possible = getattr(e, "possibilities", None) or ()
    message = e.message if isinstance(e, click.NoSuchOption) else e.format_message()
    help = (
        f"did you mean {' or '.join(sorted(possible))}?"
        if possible
        else f"{e.ctx.command_path} --help"
        if e.ctx is not None
        else ""
    )
    return wrong_call(message.split(" Did you mean")[0].rstrip("."), help=help)
