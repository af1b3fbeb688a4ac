"""The options of every command."""

from __future__ import annotations

from pathlib import Path

from converter.commands.options.declare import Group, Kind, Options, option, options

GROUP = Group.GENERAL


@options
class General(Options):
    """Settings of a command's output and of its findings. The choices of `format` are the
    command's.
    """

    quiet: bool = option(
        default=False,
        flags=("-q", "--quiet"),
        kind=Kind.FLAG,
        help="Print errors only.",
        group=GROUP,
        settable=True,
    )
    verbose: int = option(
        default=0,
        flags=("-v", "--verbose"),
        kind=Kind.COUNT,
        help="Show more detail; repeat for even more.",
        group=GROUP,
        settable=True,
    )
    color: str = option(
        default="auto",
        kind=Kind.CHOICE,
        choices=("auto", "always", "never"),
        metavar="WHEN",
        help="Use colors: auto, always or never.",
        group=GROUP,
        settable=True,
    )
    format: str = option(
        default="text",
        kind=Kind.CHOICE,
        metavar="FORM",
        help="Print the result as {choices}.",
        group=Group.OUTPUT,
        settable=True,
    )
    strict: bool = option(
        default=False,
        kind=Kind.FLAG,
        help="Treat warnings as findings (exit 1).",
        group=GROUP,
        settable=True,
    )
    deny: tuple[str, ...] = option(
        default=(),
        kind=Kind.CODE,
        repeatable=True,
        help="Treat warnings with this code as findings.",
        group=GROUP,
    )
    allow: tuple[str, ...] = option(
        default=(),
        kind=Kind.CODE,
        repeatable=True,
        help="Ignore warnings with this code.",
        group=GROUP,
    )
    log: Path | None = option(
        default=None,
        kind=Kind.FILE,
        metavar="FILE.jsonl",
        help="Append all diagnostics to this file.",
        group=GROUP,
        settable=True,
    )
