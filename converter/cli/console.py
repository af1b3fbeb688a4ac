"""Output of results and diagnostics: text for people on a terminal, or one machine-readable
document.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import click

from converter.cli import waiting
from converter.cli.streams import with_original_names
from converter.commands.report.cases import Case
from converter.errors import ConverterError, Diagnostic, ExitCode, WriteError
from converter.io.escape import escaped
from converter.record import record


@record
class Console:
    """The output of one command. Text is printed at once; for other formats everything is collected
    and rendered by `finish`.
    """

    command: str = ""
    format: str = "text"
    verbosity: int = 0
    color: str = "auto"
    strict: bool = False
    log: Path | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    code: ExitCode = ExitCode.OK
    diagnostics: list[Diagnostic] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)
    result: Any = None
    about: dict[str, Any] = field(
        default_factory=dict  # about the run itself, for JSON: "arguments", "seconds"
    )

    @property
    def text(self) -> bool:
        return self.format == "text"

    def colored(self, stream: Any) -> bool:
        """Return whether output to a stream is colored: by --color, NO_COLOR, FORCE_COLOR, or for
        terminals.
        """
        if self.color != "auto":
            return self.color == "always"
        if os.environ.get("NO_COLOR"):
            return False
        if any(os.environ.get(name, "0") != "0" for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
            return True
        return os.environ.get("TERM") != "dumb" and bool(stream.isatty())

    def say(self, *lines: str) -> None:
        """Print lines of the result; each is escaped to one visible line. Prints nothing with -q or
        another format.
        """
        for line in lines if self.text and self.verbosity >= 0 else ():
            self._print(escaped(with_original_names(line)))

    def remark(self, line: str) -> None:
        """Print a line about progress to standard error, escaped to one visible line; it is not
        part of the result.
        """
        self._print(escaped(with_original_names(line)), err=True)

    def document(self, text: str) -> None:
        """Print a result that is a document of some syntax, unescaped. Prints nothing with -q or
        another format.
        """
        if self.text and self.verbosity >= 0:
            self._print(with_original_names(text))

    def report(self, diagnostics: Sequence[Diagnostic], err: bool = True) -> None:
        """Report diagnostics, similar ones grouped. With -q only errors are shown. A warning is a
        finding under --strict or --deny.
        """
        self.record(diagnostics)
        shown = [d for d in diagnostics if d.level == "error" or self.verbosity >= 0]
        if self.text and shown:
            from converter.commands.report.text import render

            self._print(render(shown, with_original_names), err)

    def _print(self, text: str, err: bool = False) -> None:
        """Print a document, or text that is already escaped."""
        waiting.clear()
        click.echo(text, err=err, color=self.colored(sys.stderr if err else sys.stdout))

    def record(self, diagnostics: Sequence[Diagnostic]) -> None:
        """Record diagnostics that the result itself shows, for the log and for formats other than
        text.
        """
        self.diagnostics.extend(diagnostics)
        if any(
            d.level == "warning"
            and (d.code in self.deny or (self.strict and d.code not in self.allow))
            for d in diagnostics
        ):
            self.verdict(ExitCode.FINDING)

    def verdict(self, code: ExitCode) -> None:
        """Set the exit code; the first one that is not OK is kept."""
        if self.code == ExitCode.OK:
            self.code = code

    def refuse(self, error: ConverterError) -> int:
        """Report a refusal and return its exit code."""
        self.code = error.exit_code
        try:
            self.report(error.diagnostics)
            return self.finish()
        except ConverterError as e:
            for d in e.diagnostics:
                self._print(escaped(with_original_names(str(d))), err=True)
            return e.exit_code

    def finish(self) -> int:
        """Render the collected output, write the log and return the exit code."""
        if not self.text:
            from converter.commands.report import machine

            text = machine.render(
                self.format,
                self.command,
                int(self.code),
                self.diagnostics,
                self.cases,
                self.result,
                self.about,
            )
            self._print(with_original_names(text))
        if self.log:
            self._write_log(self.log)
        return int(self.code)

    def _write_log(self, path: Path) -> None:
        import json

        lines = [
            {"event": "diagnostic", "command": self.command, **d.as_json()}
            for d in self.diagnostics
        ]
        lines.append({"event": "end", "command": self.command, "exit_code": int(self.code)})
        try:
            with open(path, "a", encoding="utf-8") as f:
                f.writelines(
                    with_original_names(json.dumps(line, ensure_ascii=False)) + "\n"
                    for line in lines
                )
        except OSError as e:
            raise WriteError(
                Diagnostic("W301", f"cannot write the log {path}: {e.strerror}")
            ) from None


_current = Console()


def current() -> Console:
    """Return the console of the running command (a plain one before there is a command)."""
    return _current


def use(console: Console) -> Console:
    """Make a console the current one of the process, and return it."""
    global _current
    _current = console
    return console
