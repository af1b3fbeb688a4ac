"""Explain wrong calls: suggest the option or command that was probably meant."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from converter.cli.foreign import command_help, option_help
from converter.cli.names import COMMANDS
from converter.errors import UsageError, did_you_mean, wrong_call


def unknown_command(args: Sequence[str]) -> UsageError:
    """Return the error for a command that netconv does not have."""
    name = args[0]
    if _is_model(name):
        return wrong_call(f"the call of {name!r} has no command", help=_call_for(args))
    help = command_help(name) or did_you_mean(name, COMMANDS, "netconv --help lists the commands")
    return wrong_call(f"command {name!r} does not exist", help=help)


def _is_model(text: str) -> bool:
    from converter import formats

    return os.path.lexists(text) or formats.of_suffix(Path(text)) is not None


def _call_for(args: Sequence[str]) -> str:
    """Return a complete command for a call that names models but no command."""
    if len(args) == 1:
        command = "batch" if os.path.isdir(args[0]) and not _is_package(args[0]) else "inspect"
        return f"netconv {command} {shlex.quote(args[0])}" + (
            " -t FORMAT" if command == "batch" else ""
        )
    return f"netconv convert {shlex.join(args)}"


def _is_package(text: str) -> bool:
    from converter.formats.coreml.package import is_model_folder

    return is_model_folder(Path(text))


def explained(e: click.UsageError) -> UsageError:
    """Return click's error in our form, with a help."""
    match e:
        case click.NoSuchOption():
            return _unknown_option(e)
        case click.MissingParameter() if e.param is not None:
            return _missing(e)
    message = e.format_message().rstrip(".")
    if e.ctx is not None and message.startswith("Got unexpected extra argument"):
        return _too_many(e.ctx, message)
    return wrong_call(_lower(message), help=_usage(e.ctx))


def _unknown_option(e: click.NoSuchOption) -> UsageError:
    if e.ctx is None:
        return wrong_call(f"option {e.option_name!r} does not exist")
    known = [f for p in e.ctx.command.get_params(e.ctx) for f in p.opts if f.startswith("--")]
    help = option_help(e.option_name) or did_you_mean(e.option_name, known, _usage(e.ctx))
    if e.option_name.lstrip("-") in {f.lstrip("-") for f in known}:
        help = f"perhaps you meant '--{e.option_name.lstrip('-')}'"
    return wrong_call(f"{e.ctx.command_path} has no option {e.option_name}", help=help)


def _missing(e: click.MissingParameter) -> UsageError:
    assert e.param is not None
    if isinstance(e.param, click.Option):
        return wrong_call(f"the option {' or '.join(e.param.opts)} is missing", help=_usage(e.ctx))
    name = e.param.make_metavar(e.ctx) if e.ctx is not None else str(e.param.name)
    return wrong_call(f"{name.removesuffix('...')} is missing", help=_usage(e.ctx))


def _too_many(ctx: click.Context, message: str) -> UsageError:
    extra = message.partition("(")[2].rstrip(")")
    help = _usage(ctx)
    if ctx.info_name in ("convert", "check") and "," not in extra:
        help = "one model at a time; netconv batch DIR -t FORMAT converts all models of a folder"
    return wrong_call(f"{ctx.command_path} takes fewer arguments; unexpected: {extra}", help=help)


def _usage(ctx: click.Context | None) -> str:
    """Return the usage line of a command."""
    if ctx is None:
        return ""
    pieces = " ".join(ctx.command.collect_usage_pieces(ctx)).replace("[OPTIONS] ", "")
    required = [
        f"{p.opts[0]} {p.make_metavar(ctx)}"
        for p in ctx.command.params
        if isinstance(p, click.Option) and p.required
    ]
    call = " ".join([ctx.command_path, pieces, *required])
    return f"{call}; {ctx.command_path} --help explains all options"


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:] if message[1:2].islower() else message
