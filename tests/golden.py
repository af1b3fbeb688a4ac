"""Commands with their expected output in Markdown: finding, running, comparing, rewriting. The form
is described in tests/cli/README.md.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from support import HANG, ROOT, SAMPLES

FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.M | re.S)
ELLIPSIS = "..."
PROGRAM = (sys.executable, "-m", "converter.cli")  # netconv of this checkout


@dataclass(frozen=True)
class Block:
    """A fenced block: its info string, its text, and where the text lies in the document."""

    info: str
    body: str
    start: int
    end: int

    @property
    def language(self) -> str:
        return self.info.split()[0] if self.info.split() else ""

    @property
    def file(self) -> str | None:
        found = re.search(r"\bfile=(\S+)", self.info)
        return found[1] if found else None


@dataclass(frozen=True)
class Command:
    """A line after `$ ` and its expected result: output, `! ` lines, exit code, as they stand
    in the document.
    """

    line: str
    expected: str


def blocks(document: str) -> Iterator[Block]:
    for m in FENCE.finditer(document):
        yield Block(m["info"].strip(), m["body"], m.start("body"), m.end("body"))


def commands(body: str) -> list[Command]:
    """The commands of a console block. A block that begins with anything else is a mistake."""
    first, *rest = re.split(r"^\$ ", body, flags=re.M)
    if first.strip() or not rest:
        raise ValueError(f"a console block begins with a command, not with {body.splitlines()[:1]}")
    return [
        Command(line, expected) for line, _, expected in (part.partition("\n") for part in rest)
    ]


def render(stdout: str, stderr: str, exit_code: int) -> str:
    """One result as it is written in a document."""
    lines = stdout.splitlines()
    if clash := next(
        (line for line in lines if line.startswith(("$ ", "!", "```", "[exit "))), None
    ):
        raise ValueError(f"this output cannot be written in a console block: {clash!r}")
    lines += [f"! {line}".rstrip() for line in stderr.splitlines()]
    if exit_code:
        lines.append(f"[exit {exit_code}]")
    return "".join(f"{line.rstrip()}\n" for line in lines)


# A computed number: with two digits or more after the point, or with an exponent. Sizes ("16.4 kB")
# are exact.
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+e[+-]?\d+|\.\d{2,}|e[+-]?\d+)(?![\w.]*\w)")
CLOSE = 1e-3  # relative; a processor, library or number of threads may change the sixth digit
# Rounding errors as `verify` prints them, below 1e-5 or 100 ulp: each processor has others, so that
# no digit is compared.
ERRORS = re.compile(
    r"^.*(?:e-0[6-9] abs, \d+ ulp\b|\(max \d{1,2} ulp\)|largest difference \d\S*e-0[6-9]).*$", re.M
)
DIGITS = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def matches(expected: str, actual: str) -> bool:
    """Compare a result with the one in a document.

    They have equal text, where `...` is any number of lines of standard output, `! ...` of standard
    error, and `...` within a line anything on that line. Numbers with a fraction or an exponent may
    differ by CLOSE or by one in the last digit that is shown: these digits depend on the machine.
    In lines of rounding errors, all numbers may be others, but the errors stay as small.

    An exit code is never covered by dots.
    """
    pattern, numbers = "", []
    expected, actual = (ERRORS.sub(without_digits, text) for text in (expected, actual))
    for line in expected.splitlines():
        if line == ELLIPSIS:
            pattern += r"(?:(?!!|\[exit ).*\n)*"
        elif line == f"! {ELLIPSIS}":
            pattern += r"(?:!.*\n)*"
        else:
            numbers += NUMBER.findall(line.rstrip())
            pattern += f"({NUMBER.pattern})".join(map(literal, NUMBER.split(line.rstrip()))) + "\n"
    found = re.fullmatch(pattern, actual)
    return found is not None and all(map(close, numbers, found.groups()))


def without_digits(line: re.Match[str]) -> str:
    return DIGITS.sub("#", line[0])


def literal(text: str) -> str:
    """Return a pattern for text without numbers. Columns may have another width: %g omits zeros."""
    parts = (re.escape(part) for part in text.split(ELLIPSIS))
    return re.sub(r"(?:\\ ){2,}", "  +", ".*".join(parts))


def close(expected: str, actual: str) -> bool:
    """Whether two printed numbers may be the same number, computed on two machines."""
    difference = abs(Decimal(expected) - Decimal(actual))
    last_digit = max(
        Decimal((0, (1,), int(Decimal(n).as_tuple().exponent))) for n in (expected, actual)
    )
    return difference <= max(last_digit, abs(Decimal(expected)) * Decimal(CLOSE))


def normalize(text: str, folder: Path) -> str:
    """Remove text that depends on the machine or the day: the folder, the version."""
    for name in sorted({str(folder), str(folder.resolve())}, key=len, reverse=True):
        text = text.replace(name, "HERE")
    return re.sub(r"\bnetconv(,? (?:version )?|-)\d+\.\d+\.\d+\S*", r"netconv\1VERSION", text)


def environment(folder: Path) -> dict[str, str]:
    """The same for everyone: no color, fixed width, UTF-8, none of the user's settings."""
    kept = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("NETCONV_", "PYTHON", "FORCE_COLOR", "COLORTERM", "CI", "GITHUB_"))
    }
    fixed = {
        "NO_COLOR": "1",
        "TERM": "dumb",
        "COLUMNS": "120",
        "LC_ALL": "C.UTF-8",
        "PYTHONUTF8": "1",
        "HOME": str(folder),
    }
    return kept | fixed


def run(line: str, folder: Path, program: Sequence[str] = PROGRAM, path: str = str(ROOT)) -> str:
    """One command in `folder`, in a process of its own, as it is written in a document. Only
    netconv can be called: there is no shell. `program` stands for it, and finds the modules in
    `path`.
    """
    name, *arguments = shlex.split(line)
    if name != "netconv":
        raise ValueError(f"only netconv can be called, not {name!r}")
    call = [*program, *arguments]
    done = subprocess.run(
        call,
        cwd=folder,
        env=environment(folder) | {"PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=HANG,
    )
    return render(normalize(done.stdout, folder), normalize(done.stderr, folder), done.returncode)


def changes(before: str, after: str, name: str) -> Iterator[str]:
    """The lines of a document that differ from the printed ones."""
    yield from difflib.unified_diff(
        before.splitlines(), after.splitlines(), name, "printed", "", "", 1, ""
    )


def play(document: str, folder: Path, runner: Callable[[str, Path], str] = run) -> str:
    """The document with every command run in `folder` and every expectation that does not match
    replaced.
    """
    if not (folder / "samples").exists():
        shutil.copytree(SAMPLES, folder / "samples")
    result, position = "", 0
    for block in blocks(document):
        if block.file:
            (folder / block.file).write_text(block.body, encoding="utf-8")
        if block.language != "console":
            continue
        played = ""
        for command in commands(block.body):
            actual = runner(command.line, folder)
            same = matches(command.expected, actual)
            played += f"$ {command.line}\n{command.expected if same else actual}"
        result += document[position : block.start] + played
        position = block.end
    return result + document[position:]
