"""Places that are no files of this machine: `-` for standard input and output, and URLs that fsspec
opens (s3://, gs://, https://). What is read there is fetched before a command begins, what is
written there is made here and uploaded when it is complete.
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
_shown: dict[str, str] = {}  # the beginning of a path on this machine -> what it stands for


def is_url(place: str) -> bool:
    return "://" in place and not place.startswith("file://")


def told(text: str) -> str:
    """A text for people or machines, with the places that were named instead of temporary files."""
    for path, place in _shown.items():
        text = text.replace(path, place)
    return text


@contextlib.contextmanager
def _folder(place: str) -> Iterator[Path]:
    """A temporary folder whose files stand for those of the folder `place`."""
    with tempfile.TemporaryDirectory(prefix="netconv-") as folder:
        _shown[f"{folder}{os.sep}"] = place
        yield Path(folder)


@contextlib.contextmanager
def fetched(place: str) -> Iterator[Path]:
    """What a user named as an input, as a file: a path; a copy of standard input for `-`; a copy of
    a URL with its side files.
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
    """What comes from standard input; R100 where it cannot be read, as where it is closed."""
    try:
        while piece := sys.stdin.buffer.read(1 << 20):
            yield piece
    except OSError as e:
        raise cannot_read("standard input", e) from None


@contextlib.contextmanager
def uploaded(place: str, force: bool = False) -> Iterator[Path]:
    """Where a result that a user named is made: the path, or for a URL a temporary file, which is
    uploaded with all that lies beside it when nothing has failed. W302 where there is one already
    and `force` is not given.
    """
    if not is_url(place):
        yield Path(place.removeprefix("file://"))
        return
    from converter.commands.batch import staging

    if not force and staging.exists(place):
        raise unwritable("W302", "the output exists", place, "--force overwrites")
    with _folder(f"{os.path.dirname(place)}/") as folder:
        yield folder / os.path.basename(place.rstrip("/"))
        staging.upload(folder, place)


@contextlib.contextmanager
def named_output(place: str, target: str | None, force: bool = False) -> Iterator[Path]:
    """The file to write a model to; for `-` a temporary one whose content goes to standard output
    in the end.
    """
    if place != DASH:
        with uploaded(place, force) as path:
            yield path
        return
    if target is None:
        raise wrong_call("standard output has no suffix", help="name the format with -t FORMAT")
    from converter import formats

    with tempfile.TemporaryDirectory(prefix="netconv-") as folder:
        work = Path(folder) / f"stdout{formats.suffix(formats.parse_flavour(target))}"
        yield work
        if len(list(Path(folder).iterdir())) > 1 or work.is_dir():
            raise wrong_call(
                f"{target} needs more than one file, standard output is one",
                help="write to a file with -o",
            )
        with open(work, "rb") as f:
            shutil.copyfileobj(f, sys.stdout.buffer)
        if (error := stdio.lost()) is not None:
            raise cannot_write("standard output", error)
