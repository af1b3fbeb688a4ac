"""`-` as a file: standard input and standard output."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from converter.errors import Diagnostic, UsageError

DASH = Path("-")


@contextlib.contextmanager
def named_input(path: Path) -> Iterator[Path]:
    """`path`, or a temporary file with what standard input holds."""
    if path != DASH:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="netconv-") as folder:
        spool = Path(folder) / "stdin"
        with open(spool, "wb") as f:
            shutil.copyfileobj(sys.stdin.buffer, f)
        yield spool


@contextlib.contextmanager
def named_output(path: Path, target: str | None) -> Iterator[Path]:
    """`path`, or a temporary file whose content goes to standard output in the end."""
    if path != DASH:
        yield path
        return
    if target is None:
        raise UsageError(
            Diagnostic(
                "U501", "standard output has no suffix", help="name the format with -t FORMAT"
            )
        )
    from converter import formats

    with tempfile.TemporaryDirectory(prefix="netconv-") as folder:
        work = Path(folder) / f"stdout{formats.get(target.split('+')[0]).suffixes[0]}"
        yield work
        if len(list(Path(folder).iterdir())) > 1 or work.is_dir():
            raise UsageError(
                Diagnostic(
                    "U501",
                    f"{target} needs more than one file, standard output is one",
                    help="write to a file with -o",
                )
            )
        with open(work, "rb") as f:
            shutil.copyfileobj(f, sys.stdout.buffer)
        sys.stdout.buffer.flush()
