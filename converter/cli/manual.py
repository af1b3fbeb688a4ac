"""The manual page, made from the help of all commands. Print it with `netconv --man`."""

from __future__ import annotations

import re

import click

from converter import version
from converter.cli.names import GROUPS, command
from converter.cli.options import Command, general_rows
from converter.errors import ExitCode


def page(ctx: click.Context) -> str:
    """Return the manual page in roff, for `man -l`."""
    lines = [
        f'.TH NETCONV 1 "" "netconv {version.__version__}" "User Commands"',
        *(".SH NAME", _text(f"netconv - {version.SUMMARY[0].lower()}{version.SUMMARY[1:]}")),
        *(".SH SYNOPSIS", ".B netconv", r"\fICOMMAND\fR [\fIOPTIONS\fR] [\fIARGUMENTS\fR]"),
        ".SH COMMANDS",
    ]
    for title, commands in GROUPS.items():
        lines += [f".SS {_text(title)}"]
        for name, summary in commands.items():
            lines += [".TP", rf"\fB{_text(name)}\fR", _text(summary)]
    lines += [".SH OPTIONS OF EVERY COMMAND", *_rows(general_rows())]
    for commands in GROUPS.values():
        for name in commands:
            lines += _section(command(name), ctx)
    lines += [".SH EXIT STATUS"]
    for code in ExitCode:
        lines += [".TP", rf"\fB{int(code)}\fR", _text(code.meaning)]
    return "\n".join(lines) + "\n"


def _section(of: click.Command, parent: click.Context) -> list[str]:
    """Return the section of one command."""
    assert isinstance(of, Command)
    with click.Context(of, info_name=of.name, parent=parent) as ctx:
        usage = " ".join(of.collect_usage_pieces(ctx))
        lines = [f".SH NETCONV {_text(str(of.name)).upper()}", rf"\fBnetconv {of.name}\fR", usage]
        for paragraph in (of.help or "").split("\n\n"):
            lines += [".PP", _text(" ".join(paragraph.split()))]
        for group, rows in of.grouped_rows(ctx).items():
            lines += [f".SS {group.value}", *_rows(rows)]
    if of.epilog:
        lines += [".SS Examples", ".nf", *map(_text, of.epilog.split("\n")[2:]), ".fi"]
    return lines


def _rows(rows: list[tuple[str, str]]) -> list[str]:
    return [line for names, text in rows for line in (".TP", rf"\fB{_text(names)}\fR", _text(text))]


def _text(text: str) -> str:
    """Return text in roff: no character is taken as a command, and no dash as a hyphen."""
    plain = text.replace("\\", r"\e").replace("-", r"\-")
    return re.sub(r"^([.'])", r"\\&\1", plain)
