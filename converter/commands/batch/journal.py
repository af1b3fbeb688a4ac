"""The journal of finished jobs: JSON lines, each synced to the disk before the next job counts as
done.

    {"event": "claim", "id": ...}
    {"event": "done", "id": ..., "key": ..., "outcome": {...}}

A claim announces that the job will write its output, so that a later run may overwrite it.

A line that was cut off by a crash is dropped. Only one run at a time: the file is locked where the
file system supports locks. Neither the file nor its folder may be a link, and only a file that
holds such lines is written to.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, NoReturn

from converter.commands.batch.job import Outcome, is_outcome
from converter.errors import Diagnostic, Where, cannot_write, wrong_call
from converter.io.strict_json import Json

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LOCKED = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)  # by another process
_BEGIN = b'{"event":"'


class Journal:
    """The journal of a run. `done` maps a job's id to its key and outcome, `claimed` holds the ids
    whose outputs are ours.

    `named`: the user named the folder, which then may be a link; `notes` are diagnostics to report.
    """

    def __init__(self, path: Path, named: bool = False) -> None:
        self.done: dict[str, tuple[str, Outcome]] = {}
        self.claimed: set[str] = set()
        self.notes: list[Diagnostic] = []
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = _open(path, named)
        except OSError as e:
            raise cannot_write(path, _plainly(e), " the journal") from None
        try:
            self._lock()
            self._read()
        except BaseException:
            self._file.close()
            raise

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            if e.errno in _LOCKED:
                message = "another run is writing to the same folder"
                raise wrong_call(message, where=self.path, code="B601") from None
            message = (
                "the file system does not support locks, so nothing prevents a "
                f"second run from writing to the same folder ({e.strerror})"
            )
            self.notes.append(Diagnostic("B606", message, "note", Where(str(self.path))))

    def _read(self) -> None:
        self._file.seek(0)
        content = self._file.read()
        whole = content[: content.rfind(b"\n") + 1]
        known = False
        for line in whole.splitlines():
            try:
                self._take(json.loads(line, parse_constant=_no_number))
                known = True
            except (
                ValueError,
                LookupError,
                TypeError,
                RecursionError,
            ):  # a damaged line: its job is repeated
                known = known or line.startswith(_BEGIN)
        rest = content[len(whole) :]
        known = known or (not whole and _BEGIN.startswith(rest[: len(_BEGIN)]))
        if not known:
            message = "this file is not a journal of netconv batch; it was left unchanged"
            help = "remove it, or name another folder with --state"
            raise wrong_call(message, help, self.path, "B607")
        if rest:
            self._file.truncate(len(whole))

    def _take(self, record: Json) -> None:
        id, event = record["id"], record["event"]
        if not isinstance(id, str) or event not in ("claim", "done"):
            raise ValueError
        if event == "done":
            if not isinstance(record["key"], str) or not is_outcome(record["outcome"]):
                raise ValueError
            self.done[id] = (record["key"], record["outcome"])
        self.claimed.add(id)

    def claim(self, ids: Iterable[str]) -> None:
        """Record jobs that are about to run, unless they are recorded."""
        self._append([{"event": "claim", "id": i} for i in ids if i not in self.claimed])

    def finish(self, id: str, key: str, outcome: Outcome) -> None:
        """Record the outcome of a job; `key` identifies its sources and options."""
        self._append([{"event": "done", "id": id, "key": key, "outcome": outcome}])

    def _append(self, records: list[Json]) -> None:
        if not records:
            return
        try:
            self._file.write(
                b"".join(json.dumps(r, separators=(",", ":")).encode() + b"\n" for r in records)
            )
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as e:
            raise cannot_write(self.path, e, " the journal") from None
        for r in records:
            if r["event"] == "done":
                self.done[r["id"]] = (r["key"], r["outcome"])
            self.claimed.add(r["id"])

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


def _open(path: Path, named: bool) -> BinaryIO:
    """Open the file of a journal in its folder without following a link."""
    folder = os.open(path.parent, _FOLDER | (0 if named else os.O_NOFOLLOW))
    try:
        file = os.open(path.name, _FILE, 0o666, dir_fd=folder)
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "this is not a regular file")
    return open(file, "r+b")


def _plainly(error: OSError) -> OSError:
    """Replace the system's error for a link that is not followed by a clear one."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return OSError(error.errno, "a link or a file has the name of its folder or file")
    return error


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


def clear_stage(stage: Path) -> None:
    """Remove the folder in which jobs create their files, with the leftovers of a killed run. A
    link of that name is removed, not followed.
    """
    if stage.is_symlink():
        stage.unlink(missing_ok=True)
    shutil.rmtree(stage, ignore_errors=True)
