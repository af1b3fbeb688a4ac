"""Sets of files that appear complete or not at all, whatever ends the process.

Files are made in a hidden folder beside the target, the workspace, and synced. Then they are
published:

* one file: one rename, which every program sees as old or new;
* one folder in place of another: two renames, between which there is none of them;
* several files: the old files move into the workspace, the model itself first, and the new ones to
  their places, the model itself last. At no moment do an old model and new side files stand
  together. Every failure and interruption in between is undone.

A process that is killed leaves its workspace behind. A workspace whose process is alive is locked;
the next read or write of the same target by netconv finds one that is not, completes it when
publishing had begun (everything new was on the disk by then) and removes it. Commits in one folder
are one after the other, so two writers of one target never mix their files.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import shutil
import signal
import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TypeAlias

from converter.io.signals import REQUESTS

try:
    import fcntl
except ImportError:  # not POSIX: nothing is locked, and nothing that was left behind is touched
    fcntl = None  # type: ignore[assignment]

PREFIX = ".netconv-"
_OLD = ".old"  # folder in a workspace: publishing has begun; holds what was replaced
Lock: TypeAlias = int


@contextlib.contextmanager
def workspace(target: Path) -> Iterator[Path]:
    """A new locked folder beside `target`, gone afterwards. OSError when the folder cannot be
    written to.
    """
    path = target.parent / f"{_prefix(target)}{os.urandom(6).hex()}"
    workspaces[path] = Workspace(target, os.getpid(), [])
    try:
        with uninterrupted(), folder_lock(target.parent):
            _recover(target)
            path.mkdir()
            workspaces[path].locks.extend(
                lock for lock in [_lock(path, wait=False)] if lock is not None
            )
        yield path
    finally:
        with uninterrupted():
            _remove(path)


@dataclass(eq=False, repr=False)
class Workspace:
    """What is known of a workspace of this process."""

    target: Path
    process: int
    locks: list[Lock]


workspaces: dict[Path, Workspace] = {}


def _clear(path: Path) -> None:
    """Removes a workspace, as far as that is allowed; what was replaced first."""
    for folder in (path / _OLD, path):
        shutil.rmtree(folder, ignore_errors=True)


def _remove(path: Path) -> None:
    _clear(path)
    known = workspaces.pop(path, None)
    for lock in known.locks if known is not None else ():
        os.close(lock)


@atexit.register
def remove_all() -> None:
    """An interruption between two lines, before any `finally` is in charge, is caught up with when
    the process ends.
    """
    for path in [p for p, w in workspaces.items() if w.process == os.getpid()]:
        _remove(path)


def publish(work: Path, names: Sequence[str], target: Path) -> None:
    """Moves the files and folders `names` of a workspace to the folder of `target`; the one called
    like the target is the model itself.
    """
    folder = target.parent
    order = sorted(names, key=lambda n: n == target.name)
    folders = [n for n in order if (work / n).is_dir()]
    for name in folders:
        for inner, _, _ in os.walk(work / name):
            sync(Path(inner))
    with uninterrupted(), folder_lock(folder):
        if len(order) == 1 and not (folders and os.path.lexists(folder / order[0])):
            os.replace(work / order[0], folder / order[0])
        else:
            _publish_set(work, order, folder)
        sync(folder)


def _publish_set(work: Path, order: Sequence[str], folder: Path) -> None:
    old = work / _OLD
    old.mkdir()
    sync(work)
    moved: list[str] = []
    placed: list[str] = []
    try:
        for name in reversed(order):
            if os.path.lexists(folder / name):
                os.rename(folder / name, old / name)
                moved.append(name)
        for name in order:
            os.rename(work / name, folder / name)
            placed.append(name)
    except BaseException:
        for name in reversed(placed):
            os.rename(folder / name, work / name)
        for name in reversed(moved):
            os.rename(old / name, folder / name)
        raise


def recover(target: Path) -> None:
    """Completes or removes what killed processes left of writing `target`. Nothing happens where
    that is not possible.
    """
    try:
        if any(_abandoned(target)):
            with folder_lock(target.parent):
                _recover(target)
    except OSError:
        return


def _recover(target: Path) -> None:
    for path in _abandoned(target):
        lock = _lock(path, wait=False)
        if lock is None:
            continue
        try:
            if (path / _OLD).is_dir() and not os.path.lexists(target):
                for name in sorted(
                    (p.name for p in path.iterdir() if p.name != _OLD),
                    key=lambda n: n == target.name,
                ):
                    os.replace(path / name, target.parent / name)
                sync(target.parent)
            _clear(path)
        finally:
            os.close(lock)


def _abandoned(target: Path) -> list[Path]:
    prefix = _prefix(target)
    with contextlib.suppress(OSError), os.scandir(target.parent) as entries:
        return sorted(
            Path(e.path)
            for e in entries
            if e.name.startswith(prefix) and e.is_dir(follow_symlinks=False)
        )
    return []


def _prefix(target: Path) -> str:
    """By a hash: the target's name may itself be as long as names can be."""
    return f"{PREFIX}{zlib.crc32(os.fsencode(target.name)):08x}-"


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """One process at a time, where the file system has locks."""
    lock = _lock(folder, wait=True)
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _lock(folder: Path, wait: bool) -> Lock | None:
    """A lock on a folder that lasts until it is closed or the process ends; None when there is none
    to be had.
    """
    if fcntl is None:
        return None
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return descriptor
    except OSError:
        os.close(descriptor)
        return None


def sync(folder: Path) -> None:
    """The folder's entries on the disk, where the system lets folders be synced."""
    with contextlib.suppress(PermissionError, IsADirectoryError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as e:
            if e.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):
                raise
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C and requests to end wait until this is done. Only the main thread is ever
    interrupted.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        arrived.append(number)

    before = {n: handler for n in REQUESTS if (handler := signal.getsignal(n)) is not None}
    try:
        for number in before:
            signal.signal(number, note)
        yield
    finally:
        with _blocked(before):  # or the first handler that is back could keep the others away
            for number, handler in before.items():
                signal.signal(number, handler)
        for number in arrived[:1]:
            signal.raise_signal(number)


@contextlib.contextmanager
def _blocked(numbers: Iterable[int]) -> Iterator[None]:
    """Signals wait for the end of this, where the system has masks; those that another thread
    takes do not.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
