"""Inputs and outputs that are not local files: `-` for standard input and output, and URLs that
fsspec opens (s3://, gs://, https://).


Inputs are fetched before a command begins; outputs are written to a local file and uploaded when it
is complete.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from converter.cli import stdio
from converter.errors import cannot_read, cannot_write, unwritable, wrong_call

DASH = "-"
_shown: dict[str, str] = {}  # path prefix on this machine -> the text shown instead


def is_url(place: str) -> bool:
    """Return whether a text is a URL that is not a local file's."""
    return "://" in place and not place.startswith("file://")


def with_original_names(text: str) -> str:
    """Replace the paths of temporary files in a text by the names that the user gave."""
    for path, place in _shown.items():
        text = text.replace(path, place)
    return text


@contextlib.contextmanager
def _folder(place: str) -> Iterator[Path]:
    """Create a temporary folder that represents the folder `place`."""
    with tempfile.TemporaryDirectory(prefix="netconv-") as folder:
        _shown[f"{folder}{os.sep}"] = place
        yield Path(folder)


@contextlib.contextmanager
def fetched(place: str) -> Iterator[Path]:
    """Provide an input as a local path: a file as it is, a copy of standard input for `-`, or a
    copy of a URL with its side files.
    """
    if place == DASH:
        with _folder("") as folder:
            with open(folder / "stdin", "wb") as f:
                for piece in _pieces():
                    f.write(piece)
            yield folder / "stdin"
    elif is_url(place):
        from converter.commands.batch import staging
        from converter.io import progress

        with _folder(f"{os.path.dirname(place)}/") as folder, progress.step(f"fetching {place}"):
            yield staging.fetch(place, folder)
    else:
        yield Path(place.removeprefix("file://"))


def _pieces() -> Iterator[bytes]:
    """Yield the data of standard input; raise R100 if it cannot be read, for example because it is
    closed.
    """
    try:
        while piece := sys.stdin.buffer.read(1 << 20):
            yield piece
    except OSError as e:
        raise cannot_read("standard input", e) from None


@contextlib.contextmanager
def uploaded(place: str, force: bool = False) -> Iterator[Path]:
    """Provide a local path for a result: the path itself or, for a URL, a temporary file that is
    uploaded afterwards with all files next to it, unless an error occurs. Raise W302 if the URL
    exists and `force` is not given.
    """
    if not is_url(place):
        yield Path(place.removeprefix("file://"))
        return
    from converter.commands.batch import staging

    if not force and staging.exists(place):
        raise unwritable("W302", "the output exists", place, "use --force to overwrite it")
    with _folder(f"{os.path.dirname(place)}/") as folder:
        yield folder / os.path.basename(place.rstrip("/"))
        staging.upload(folder, place)


@contextlib.contextmanager
def named_output(place: str, target: str | None, force: bool = False) -> Iterator[Path]:
    """Provide the file to write a model to; for `-` a temporary one whose content is copied to
    standard output at the end.
    """
    if place != DASH:
        with uploaded(place, force) as path:
            yield path
        return
    if target is None:
        raise wrong_call("standard output has no suffix", help="name the format with -t FORMAT")
    from converter import formats

    with tempfile.TemporaryDirectory(prefix="netconv-") as folder:
        work = Path(folder) / f"stdout{formats.suffix(formats.parse_flavor(target))}"
        yield work
        if len(list(Path(folder).iterdir())) > 1 or work.is_dir():
            raise wrong_call(
                f"{target} needs several files, but standard output is one",
                help="write to a file with -o",
            )
        with open(work, "rb") as f:
            shutil.copyfileobj(f, sys.stdout.buffer)
        if (error := stdio.lost()) is not None:
            raise cannot_write("standard output", error)
