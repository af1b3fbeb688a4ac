"""A call of the operating system fails, once or from there on: the old files or the new ones are
there, complete, nothing is lost, and the message says which.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from converter.errors import ConverterError, WriteError
from converter.io import atomic
from converter.io.files import Output
from test_publish import seen

CALLS = ("rename", "replace", "fsync", "mkdir", "unlink", "rmdir", "open")
MOST = 200  # calls that one of these writers makes at the most
Write = Callable[[Path, bytes], None]


def single(folder: Path, text: bytes) -> None:
    with Output(folder / "net.onnx") as out, out.open() as f:
        f.write(text)


def pair(folder: Path, text: bytes) -> None:
    with Output(folder / "net.xml") as out:
        for suffix in (".bin", ""):
            with out.open(suffix) as f:
                f.write(text)


def package(folder: Path, text: bytes) -> None:
    with Output(folder / "net.mlpackage", check=lambda files: None) as out:
        for name in ("Data/com.apple.CoreML/model.mlmodel", "Manifest.json"):
            with out.open(inside=name) as f:
                f.write(text)


WRITERS: dict[str, tuple[str, Write]] = {
    "single": ("net.onnx", single),
    "pair": ("net.xml", pair),
    "package": ("net.mlpackage", package),
}


@contextmanager
def failing(number: int, code: int, once: bool, names: tuple[str, ...] = CALLS) -> Iterator[Any]:
    """Call `number` of these functions of `os` fails, and all that follow unless `once`; yields a
    list of one number, the calls made.
    """
    count = [0]

    def wrapped(real: Any) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            count[0] += 1
            if count[0] == number or (count[0] > number and not once):
                raise OSError(code, os.strerror(code))
            return real(*arguments, **keywords)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setattr(os, name, wrapped(getattr(os, name)))
        yield count


def written(tmp_path: Path, write: Write, text: bytes) -> dict[str, bytes]:
    (tmp_path / "whole").mkdir()
    write(tmp_path / "whole", text)
    found = seen(tmp_path / "whole")
    shutil.rmtree(tmp_path / "whole")
    return found


def kept(message: str, folder: Path) -> dict[str, bytes]:
    """The files of a folder with those of the folder that a message names for the old ones."""
    named = re.search(r"are in (\S+), the new ones", message)
    assert named is not None, message
    place = Path(named[1])
    assert place.parent.parent == folder
    found = {str(p.relative_to(place)): p.read_bytes() for p in place.rglob("*") if p.is_file()}
    return {**seen(folder), **found}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("once", [True, False], ids=["once", "from there on"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("first", [True, False], ids=["nothing before", "old files before"])
def test_after_any_call_that_fails_the_old_files_or_the_new_are_there(
    tmp_path: Path, kind: str, code: int, once: bool, first: bool
) -> None:
    name, write = WRITERS[kind]
    old = {} if first else written(tmp_path, write, b"old")
    new = written(tmp_path, write, b"new")
    outcomes = set()
    for number in range(1, MOST):
        folder = tmp_path / str(number)
        folder.mkdir()
        if old:
            write(folder, b"old")
        message = ""
        with failing(number, code, once) as count:
            try:
                write(folder, b"new")
            except WriteError as e:
                message = str(e)
        place, there = f"call {number}: {message}", seen(folder)
        if not message or "are complete and in place" in message:
            outcomes.add("new")
            assert there == new, place
        elif "could not be restored" in message:
            outcomes.add("kept")
            assert kept(message, folder) == {**there, **old}, place
        elif "files already put in place could not be removed; the other files are in" in message:
            outcomes.add("begun")
            assert not old and set(there.items()) < set(new.items()), place
        else:
            outcomes.add("old")
            assert there == old, place
        if once:
            assert {p.name for p in folder.iterdir()} == {n.split("/")[0] for n in there}, place
        atomic.recover(folder / name)
        # where nothing can be removed, a set that was complete on the disk may still appear
        assert seen(folder) in ([there] if once else [old, new]), place
        assert {p.name for p in folder.iterdir()} == {n.split("/")[0] for n in seen(folder)}, place
        shutil.rmtree(folder)
        if count[0] < number:
            break
    else:
        pytest.fail(f"more than {MOST} calls")
    assert number > 8 and outcomes >= {"new", "old"}
    assert ("kept" in outcomes) == (not once and bool(old) and kind != "single")
    assert ("begun" in outcomes) == (not once and not old and kind == "pair")


@pytest.mark.parametrize("kind", ["pair", "package"])
def test_a_write_that_cannot_be_undone_is_not_the_end_of_the_old_files(
    tmp_path: Path, kind: str
) -> None:
    """Renames fail from the third on, as on a disk that is dying; later it works again."""
    name, write = WRITERS[kind]
    write(tmp_path, b"old")
    number = 3 if kind == "pair" else 2
    with (
        failing(number, errno.EIO, False, ("rename",)),
        pytest.raises(ConverterError, match="could not be restored") as e,
    ):
        write(tmp_path, b"new")
    assert not (tmp_path / name).exists() and set(kept(str(e.value), tmp_path).values()) == {b"old"}
    atomic.remove_all()  # as at the end of the process
    assert set(kept(str(e.value), tmp_path).values()) == {b"old"}
    write(tmp_path, b"newer")
    assert set(seen(tmp_path).values()) == {b"newer"}
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(atomic.PREFIX)]
