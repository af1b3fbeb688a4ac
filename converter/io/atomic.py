"""Publish sets of files that appear complete or not at all, however the process ends.

Files are written to a hidden folder next to the target, the workspace, and synced. Then they are
published:

* one file: one rename, which every program sees as old or new;
* one folder that replaces another: two renames, between which neither of them exists;
* several files: the old files are moved into the workspace, the model itself first, and the new
  files to their final locations, the model itself last. An old model and new side files never
  exist together. Every failure and interruption on the way is undone. If undoing fails too, the
  workspace is kept, and the error names the location of the old files.

A killed process leaves its workspace. A workspace whose process is alive is locked; the next time
netconv reads or writes the same target, it finds workspaces that are not locked and removes them.
If publishing had begun and the target is absent, it first completes the publishing: all new files
were on the disk by then.

Anybody may create a folder with such a name. A workspace is recovered only if it is a real folder
of this user that no other user can write to, if its name holds the digest of the target's name, and
if it has no files except those of the target's own set, which are listed in it before publishing
begins. Recovery never replaces a file outside the workspace and leaves every other folder alone.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import json
import os
import shutil
import signal
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TypeAlias

from converter.io.digest import sha256
from converter.io.signals import REQUESTS
from converter.record import record

try:
    import fcntl
except ImportError:  # not POSIX: nothing is locked, and leftover workspaces are not touched
    fcntl = None  # type: ignore[assignment]

PREFIX = ".netconv-"
# in a workspace, once publishing has begun: the replaced files, and the list of the set's files
_OLD, _LIST = ".netconv-old", ".netconv-list"
_LONGEST = 1 << 16  # bytes of a list
_SETTLED = 2_000_000_000  # nanoseconds after which a change of a folder shows in its mtime
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
Lock: TypeAlias = int
Identity: TypeAlias = list[int]


class NotRestoredError(OSError):
    """Publishing and its undoing both failed: `workspace` holds the new files, and `old` the
    replaced ones, if there were any.
    """

    def __init__(self, cause: OSError, workspace: Path, replaced: bool) -> None:
        super().__init__(cause.errno, cause.strerror)
        self.workspace = workspace
        self.old = workspace / _OLD if replaced else None


class NotSyncedError(OSError):
    """The new files are published, but the system cannot confirm that they are on the disk."""


@contextlib.contextmanager
def workspace(target: Path) -> Iterator[Path]:
    """Create a locked folder next to `target` and remove it at the end. Raises OSError if the
    parent folder is not writable.
    """
    path = target.parent / f"{_prefix(target.name)}{os.urandom(6).hex()}"
    workspaces[path] = Workspace(target, os.getpid(), [])
    try:
        with uninterrupted(), folder_lock(target.parent):
            _recover(target)
            os.mkdir(path, 0o700)
            workspaces[path].locks.extend(
                lock for lock in [_lock(path, wait=False)] if lock is not None
            )
        yield path
    finally:
        with uninterrupted():
            _remove(path)


@dataclass(eq=False, repr=False)
class Workspace:
    """The state of a workspace of this process; a `kept` workspace holds the only copy of the old
    files.
    """

    target: Path
    process: int
    locks: list[Lock]
    kept: bool = False


workspaces: dict[Path, Workspace] = {}


def _clear(path: Path) -> None:
    """Remove a workspace as far as permissions allow, the replaced files first. Failed calls are
    retried.
    """
    for folder in (path / _OLD, path):
        for _ in range(3):
            shutil.rmtree(folder, ignore_errors=True)
            if not os.path.lexists(folder):
                break
        else:
            _clear_by_path(folder)


def _clear_by_path(folder: Path) -> None:
    """Remove a folder without opening it; opening may fail where removing does not."""
    for inner, folders, names in os.walk(folder, topdown=False):
        for name in [*names, *folders]:
            place = os.path.join(inner, name)
            with contextlib.suppress(OSError):
                (os.rmdir if name in folders and not os.path.islink(place) else os.unlink)(place)
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def _remove(path: Path) -> None:
    """Remove a workspace and release its locks. The garbage collector may end an interrupted
    `workspace`, which removes it too, at any moment of this: no lock may be closed twice.
    """
    known = workspaces.get(path)
    if known is None or not known.kept:
        _clear(path)
    workspaces.pop(path, None)
    while known is not None and known.locks:
        os.close(known.locks.pop())


@atexit.register
def remove_all() -> None:
    """Remove all workspaces of this process at its end: an interruption may arrive before any
    `finally` is in charge.
    """
    for path in [p for p, w in workspaces.items() if w.process == os.getpid()]:
        _remove(path)


def publish(work: Path, names: Sequence[str], target: Path) -> None:
    """Move the files and folders `names` of a workspace to the folder of `target`; the one with the
    target's name is the model itself. Raises NotRestoredError if neither the new files nor the old
    ones are in place, NotSyncedError if the new ones are, but possibly not on the disk yet.
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
            _publish_set(work, order, target)
        try:
            sync(folder)
        except OSError as e:
            raise NotSyncedError(e.errno, e.strerror) from None


def _publish_set(work: Path, order: Sequence[str], target: Path) -> None:
    folder, old = target.parent, work / _OLD
    _write_list(work, {n: _identity(folder / n) for n in order}, target)
    os.mkdir(old, 0o700)
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
    except BaseException as e:
        try:  # the model is restored last, so that it never exists with new files
            for name in reversed(placed):
                os.rename(folder / name, work / name)
            for name in reversed(moved):
                os.rename(old / name, folder / name)
        except OSError as again:
            if work in workspaces:
                workspaces[work].kept = True
            cause = e if isinstance(e, OSError) else again
            raise NotRestoredError(cause, work, bool(moved)) from None
        raise


def _write_list(work: Path, files: dict[str, Identity], target: Path) -> None:
    """Record in a workspace its target, the files of the set and the identity of the files they
    replace.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with open(os.open(work / _LIST, flags, 0o600), "wb") as f:
        f.write(json.dumps({"target": target.name, "files": files}).encode())
        f.flush()
        os.fsync(f.fileno())


def _identity(path: str | Path, folder: int | None = None) -> Identity:
    """Return the numbers that distinguish a file from every other one of its folder; empty if there
    is no file.
    """
    try:
        found = os.stat(path, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return []
    return [found.st_ino, found.st_size, found.st_mtime_ns]


def recover(target: Path) -> None:
    """Complete or remove the workspaces that killed processes left for `target`. Does nothing if
    that is not possible.
    """
    try:
        if any(_abandoned(target, fresh=not os.path.lexists(target))):
            with folder_lock(target.parent):
                _recover(target)
    except (OSError, ValueError):  # ValueError for an invalid file name
        return


def recover_folder(folder: Path) -> None:
    """Call `recover` for every target of a folder whose publishing was interrupted."""
    for name in _hidden(folder, fresh=True):
        try:
            found = _open_own(folder / name)
        except OSError:
            continue
        try:
            target, _ = _read_list(found)
        finally:
            os.close(found)
        if target and name.startswith(_prefix(target)):
            recover(folder / target)


def _recover(target: Path) -> None:
    paths = _abandoned(target, fresh=True)
    if not paths:
        return
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        for path in paths:
            with contextlib.suppress(OSError):
                _recover_one(path, target, folder)
    finally:
        os.close(folder)


def _recover_one(path: Path, target: Path, folder: int) -> None:
    """Complete and remove one workspace if it belongs to `target` and to no living process."""
    own = _open_own(path)
    try:
        if not _locked(own, wait=False):
            return
        found = _contents(own, target.name)
        if found is None:
            return
        if found.files and not os.path.lexists(target):
            if not _complete(found, own, folder):
                return
            _sync_open(folder)
        _clear(path)
    finally:
        os.close(own)


@record
class _Contents:
    """The content of a workspace: the new files that are still in it, the replaced ones and, once
    publishing has begun, all files of the set with the files that they replace.
    """

    new: list[str]
    old: list[str]
    files: dict[str, Identity]


def _open_own(path: Path) -> int:
    """Open a folder of this user that no other user can write to; raise OSError for any other."""
    found = os.open(path, _FOLDER)
    if not _is_own(os.fstat(found)):
        os.close(found)
        raise PermissionError(errno.EPERM, "this must be a folder of this user alone")
    return found


def _is_own(status: os.stat_result) -> bool:
    mode = status.st_mode
    return stat.S_ISDIR(mode) and status.st_uid == os.geteuid() and not mode & 0o022


def _contents(own: int, target: str) -> _Contents | None:
    """Return the content of a workspace of `target`; None if it does not have the form that netconv
    creates.
    """
    with os.scandir(own) as entries:
        found = {e.name: e.stat(follow_symlinks=False) for e in entries}
    listed = found.pop(_LIST, None)
    inner = found.pop(_OLD, None)
    new = sorted(found, key=lambda n: n == target)
    if not all(belongs(n, target) and _is_plain(own, n, target) for n in found):
        return None
    if inner is None:
        return _Contents(new, [], {})
    said, files = _read_list(own)
    if listed is None or said != target or not set(new) <= set(files) or not _is_own(inner):
        return None
    if not all(belongs(n, target) for n in files):
        return None
    before = os.open(_OLD, _FOLDER, dir_fd=own)
    try:
        with os.scandir(before) as entries:
            old = sorted((e.name for e in entries), key=lambda n: n == target)
    finally:
        os.close(before)
    return _Contents(new, old, files) if set(old) <= set(files) else None


def belongs(name: str, target: str) -> bool:
    """Return whether a file may belong to the set of `target`: it has the same name up to the first
    dot that follows another character.
    """
    bare = target.lstrip(".")
    stem = target[: len(target) - len(bare)] + bare.partition(".")[0]
    return name == target or name.startswith(f"{stem}.")


def _is_plain(own: int, name: str, target: str) -> bool:
    """Return whether this is a regular file, or the target itself as a folder of regular files."""
    mode = os.stat(name, dir_fd=own, follow_symlinks=False).st_mode
    if not stat.S_ISDIR(mode):
        return stat.S_ISREG(mode)
    return name == target and not any(
        stat.S_IFMT(os.stat(n, dir_fd=inner, follow_symlinks=False).st_mode)
        not in (stat.S_IFREG, stat.S_IFDIR)
        for _, folders, names, inner in os.fwalk(name, dir_fd=own)
        for n in (*folders, *names)
    )


def _read_list(own: int) -> tuple[str, dict[str, Identity]]:
    """Return the target and the files that a workspace lists; "" if it lists none."""
    try:
        file = os.open(_LIST, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=own)
    except OSError:
        return "", {}
    try:
        regular = stat.S_ISREG(os.fstat(file).st_mode)
        data = json.loads(os.read(file, _LONGEST) if regular else b"")
        target, files = data["target"], data["files"]
        if all(isinstance(n, str) and _is_name(n) for n in (target, *files)):
            return target, dict(files)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        pass
    finally:
        os.close(file)
    return "", {}


def _is_name(text: str) -> bool:
    return text not in ("", ".", "..") and "/" not in text and "\0" not in text


def _complete(found: _Contents, own: int, folder: int) -> bool:
    """Complete an interrupted publishing: move the remaining old files away and the new ones to
    their final locations. If there is a file that the writer did not find there, put the old files
    back. Return False, and change nothing, if that would replace a file.
    """
    before = os.open(_OLD, _FOLDER, dir_fd=own)
    try:
        there = [n for n in reversed(found.new) if _exists(n, folder)]
        if all(_identity(n, folder) == found.files[n] and n not in found.old for n in there):
            for name in there:
                os.rename(name, name, src_dir_fd=folder, dst_dir_fd=before)
            for name in found.new:
                os.rename(name, name, src_dir_fd=own, dst_dir_fd=folder)
            return True
        untouched = set(found.new) == set(found.files)
        if not untouched or not found.old or any(_exists(n, folder) for n in found.old):
            return False
        for name in found.old:
            os.rename(name, name, src_dir_fd=before, dst_dir_fd=folder)
    finally:
        os.close(before)
    return True


def _exists(name: str, folder: int) -> bool:
    return bool(_identity(name, folder))


def _abandoned(target: Path, fresh: bool) -> list[Path]:
    """Return the temporary folders next to `target` that an interrupted run left."""
    hidden = _hidden(target.parent, fresh)
    prefix = _prefix(target.name) if hidden else ""
    return [target.parent / n for n in hidden if n.startswith(prefix)]


def _hidden(folder: Path, fresh: bool) -> Sequence[str]:
    """Return the names in a folder that workspaces may have. Unless `fresh`, an unchanged folder is
    not listed again: a batch reads thousands of models from one folder.
    """
    try:
        changed = os.stat(folder).st_mtime_ns
        listed = fresh or time.time_ns() - changed < _SETTLED
        return (_list_hidden.__wrapped__ if listed else _list_hidden)(folder, changed)
    except (OSError, ValueError):
        return ()


@functools.lru_cache(256)
def _list_hidden(folder: Path, changed: int) -> Sequence[str]:
    with os.scandir(folder) as entries:
        return sorted(e.name for e in entries if e.name.startswith(PREFIX))


def _prefix(target: str) -> str:
    """Return the prefix of a workspace's name. It holds a digest: the target's name may itself have
    the maximum length.
    """
    return f"{PREFIX}{sha256(os.fsencode(target)).hexdigest()[:32]}-"


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Admit one process at a time if the file system supports locks."""
    lock = _lock(folder, wait=True)
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _lock(folder: Path, wait: bool) -> Lock | None:
    """Return a lock on a folder that lasts until it is closed or the process ends; None if the
    folder cannot be locked.
    """
    if fcntl is None:
        return None
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    if _locked(descriptor, wait):
        return descriptor
    os.close(descriptor)
    return None


def _locked(descriptor: int, wait: bool) -> bool:
    """Lock an open folder; return False if another process has the lock, or locks are not
    supported.
    """
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def sync(folder: Path) -> None:
    """Sync the folder's entries to the disk where the system supports it."""
    with contextlib.suppress(PermissionError, IsADirectoryError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            _sync_open(descriptor)
        finally:
            os.close(descriptor)


def _sync_open(folder: int) -> None:
    try:
        os.fsync(folder)
    except OSError as e:
        if e.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):
            raise


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C and termination requests until this ends. Only the main thread is ever
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
        with _blocked(before):  # or the first restored handler could block the others
            for number, handler in before.items():
                signal.signal(number, handler)
        for number in arrived[:1]:
            signal.raise_signal(number)


@contextlib.contextmanager
def _blocked(numbers: Iterable[int]) -> Iterator[None]:
    """Delay signals until this ends, where the system has signal masks; signals that another thread
    receives are not delayed.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
