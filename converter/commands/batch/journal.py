"""What is done already: JSON lines, each on the disk before the next job counts as done.

    {"event": "claim", "id": ...}
    {"event": "done", "id": ..., "key": ..., "outcome": {...}}

Who claims a job will write its output, which a later run may overwrite.

A line that was cut off by a crash is dropped. One run at a time: the file is locked.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterable
from pathlib import Path

from converter.commands.batch.job import Outcome, is_outcome
from converter.errors import cannot_write, wrong_call
from converter.io.strict_json import Json


class Journal:
    """`done` maps a job's id to its key and outcome, `claimed` holds ids whose outputs are ours."""

    def __init__(self, path: Path) -> None:
        self.done: dict[str, tuple[str, Outcome]] = {}
        self.claimed: set[str] = set()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and not path.is_file():
                raise OSError(errno.EINVAL, "not a regular file")
            self._file = open(path, "a+b")  # noqa: SIM115 - closed by __exit__
        except OSError as e:
            raise cannot_write(path, e, " the journal") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            message = "another run is writing to the same folder"
            raise wrong_call(message, where=path, code="B601") from None
        self._read()

    def _read(self) -> None:
        self._file.seek(0)
        content = self._file.read()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            self._file.truncate(len(whole))
        for line in whole.splitlines():
            try:
                self._take(json.loads(line))
            except (
                ValueError,
                KeyError,
                TypeError,
                RecursionError,
            ):  # a damaged line: its job is done again
                continue

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
        self._append([{"event": "claim", "id": i} for i in ids if i not in self.claimed])

    def finish(self, id: str, key: str, outcome: Outcome) -> None:
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
            raise cannot_write(self._file.name, e, " the journal") from None
        for r in records:
            self._take(r)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
