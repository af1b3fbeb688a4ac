"""The journal of a batch, and its folder, may come from anybody: from a clone, an archive, an
upload.
"""

from __future__ import annotations

import copy
import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batch.models import small
from converter.cli import app, console
from converter.commands.batch.job import is_outcome
from converter.commands.batch.journal import Journal
from converter.errors import ExitCode, UsageError
from support import ROOT

Call = Callable[..., int]
JOB = "a.onnx -> onnx"
RESULT = Path("out") / "onnx" / "a.onnx"
JOURNAL = Path("out") / ".netconv" / "journal.jsonl"


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs netconv in a folder with one model in `nets`, and gives the exit code."""
    monkeypatch.chdir(tmp_path)
    small(tmp_path / "nets" / "a.onnx")

    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["netconv", *arguments])
        console.use(console.Console())
        return app._guarded()

    return run


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where a batch with a comparison has been run."""
    folder = tmp_path_factory.mktemp("done")
    small(folder / "nets" / "a.onnx")
    command = [sys.executable, "-m", "converter.cli", *VERIFIED]
    subprocess.run(command, cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)
    return folder


BATCH = ("batch", "nets", "-t", "onnx", "-o", "out", "--jobs", "1", "--progress", "never")
VERIFIED = (*BATCH, "--verify", "--report", "report")


# --- links


def test_a_journal_that_is_a_link_is_not_written_through(call: Call, tmp_path: Path) -> None:
    (tmp_path / JOURNAL).parent.mkdir(parents=True)
    (tmp_path / "target.txt").write_bytes(b"a\nunfinished")
    (tmp_path / JOURNAL).symlink_to("../../target.txt")
    assert call(*BATCH) == ExitCode.UNWRITABLE
    assert (tmp_path / "target.txt").read_bytes() == b"a\nunfinished"
    assert not (tmp_path / RESULT).exists()


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_of_the_journal_that_is_a_link_is_refused(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str], there: bool
) -> None:
    if there:
        (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".netconv").symlink_to(tmp_path / "elsewhere")
    assert call(*BATCH) == ExitCode.UNWRITABLE
    assert "W301" in capsys.readouterr().err
    assert not there or list((tmp_path / "elsewhere").iterdir()) == []


def test_a_state_folder_that_the_user_names_may_be_a_link(call: Call, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "state").symlink_to(tmp_path / "elsewhere")
    assert call(*BATCH, "--state", "state") == 0
    assert (tmp_path / "elsewhere" / "journal.jsonl").is_file()


def test_a_stage_that_is_a_link_is_not_followed(call: Call, tmp_path: Path) -> None:
    (tmp_path / JOURNAL).parent.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "precious").touch()
    (tmp_path / JOURNAL).with_name("stage").symlink_to(tmp_path / "elsewhere")
    before = os.stat(tmp_path / "elsewhere").st_mtime_ns
    assert call(*BATCH) == 0
    assert [p.name for p in (tmp_path / "elsewhere").iterdir()] == ["precious"]
    assert os.stat(tmp_path / "elsewhere").st_mtime_ns == before


@pytest.mark.parametrize("first", [True, False], ids=["from the start", "meanwhile"])
def test_a_folder_of_results_that_is_a_link_is_refused(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str], first: bool
) -> None:
    (tmp_path / "elsewhere").mkdir()
    if first:
        (tmp_path / "out").mkdir()
    else:
        assert call(*BATCH) == 0
        (tmp_path / RESULT).rename(tmp_path / "elsewhere" / "a.onnx")
        (tmp_path / RESULT).parent.rmdir()
    before = {p.name: p.read_bytes() for p in (tmp_path / "elsewhere").iterdir()}
    (tmp_path / "out" / "onnx").symlink_to(tmp_path / "elsewhere")
    assert call(*BATCH, "-v") == ExitCode.UNWRITABLE
    said = capsys.readouterr()
    assert "does not follow links" in said.err + said.out
    assert {p.name: p.read_bytes() for p in (tmp_path / "elsewhere").iterdir()} == before


def test_the_folder_of_all_results_may_be_a_link(call: Call, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere")
    assert call(*BATCH) == 0 and (tmp_path / "elsewhere" / "onnx" / "a.onnx").is_file()


def test_a_result_that_became_a_link_is_made_again(call: Call, tmp_path: Path) -> None:
    assert call(*BATCH) == 0
    (tmp_path / RESULT).rename(tmp_path / "elsewhere.onnx")
    (tmp_path / RESULT).symlink_to(tmp_path / "elsewhere.onnx")
    assert call(*BATCH) == 0
    assert (tmp_path / RESULT).is_file() and not (tmp_path / RESULT).is_symlink()


# --- other files


@pytest.mark.parametrize(
    "data", [b"a\nunfinished", b"unfinished", b"mine\n", b"{}\n[]\n{", b"\0" * 100, b"[" * 10**5]
)
def test_a_file_that_is_no_journal_is_not_changed(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=r"B607.*not a journal"):
        Journal(path)
    assert path.read_bytes() == data


@pytest.mark.parametrize("data", [b"", b"{", b'{"event"', b'{"event":"claim","id":"a'])
def test_a_journal_whose_first_line_was_cut_off_is_used(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(data)
    with Journal(path) as journal:
        journal.claim(["a"])
    assert path.read_bytes() == b'{"event":"claim","id":"a"}\n'


# --- file systems without locks


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL])
def test_a_batch_runs_where_there_are_no_locks(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], code: int,
) -> None:  # fmt: skip
    def flock(file: Any, operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)
    assert call(*BATCH, "-v") == 0 and (tmp_path / RESULT).is_file()
    assert "B606" in capsys.readouterr().err
    assert call(*BATCH) == 0


def test_a_second_run_is_refused_where_there_are_locks(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.jsonl"), pytest.raises(UsageError, match="B601"):
        Journal(tmp_path / "journal.jsonl")


# --- outcomes that no job made


def outcome_of(folder: Path) -> dict[str, Any]:
    (line,) = (r for r in records(folder) if r["event"] == "done")
    found: dict[str, Any] = line["outcome"]
    return found


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / JOURNAL).read_text().splitlines()]


def replace_outcome(folder: Path, outcome: Any) -> None:
    lines = [r | {"outcome": outcome} if r["event"] == "done" else r for r in records(folder)]
    (folder / JOURNAL).write_text("".join(json.dumps(r) + "\n" for r in lines))


def test_a_job_without_its_files_is_done_again(call: Call, tmp_path: Path) -> None:
    assert call(*BATCH) == 0
    (tmp_path / RESULT).unlink()
    replace_outcome(tmp_path, {"exit_code": 0, "diagnostics": [], "files": {}})
    assert call(*BATCH) == 0 and (tmp_path / RESULT).is_file()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["../b.onnx", "b.onnx", "..", ".", "", "a.onnx/..", "a\0.onnx"])
def test_a_job_with_the_files_of_another_is_done_again(
    call: Call, tmp_path: Path, name: str
) -> None:
    assert call(*BATCH) == 0
    facts = outcome_of(tmp_path)["files"]["a.onnx"]
    (tmp_path / RESULT).rename(tmp_path / "out" / "b.onnx")
    replace_outcome(tmp_path, {"exit_code": 0, "diagnostics": [], "files": {name: facts}})
    assert call(*BATCH) == 0 and (tmp_path / RESULT).is_file()


NOTE: dict[str, Any] = {
    "code": "X212", "message": "", "level": "warning", "evidence": [], "help": "",
    "where": {"file": "", "line": 0, "path": "", "layer": "", "kind": ""},
}  # fmt: skip
HOSTILE: list[dict[str, Any]] = [
    {"numbers": []},
    {"numbers": 5},
    {"numbers": {"status": 5}},
    {"numbers": None},
    {"structure": 5},
    {"structure": [5]},
    {"structure": [{}]},
    {"structure": {}},
    {"coverage": "x"},
    {"coverage": {"layers": 5}},
    {"roundtrip": []},
    {"roundtrip": {"structure": None}},
    {"diagnostics": [{**NOTE, "where": 5}]},
    {"diagnostics": [{**NOTE, "where": {**NOTE["where"], "line": "1"}}]},
    {"diagnostics": [{**NOTE, "message": None}]},
    {"diagnostics": [{**NOTE, "level": "loud"}]},
    {"diagnostics": [{**NOTE, "level": []}]},
    {"diagnostics": [{**NOTE, "evidence": "text"}]},
    {"diagnostics": [{**NOTE, "evidence": [None]}]},
    {"diagnostics": [[]]},
    {"files": {"a\0": {"sha256": "", "bytes": 0}}},
    {"files": {"\ud800": {"sha256": "", "bytes": 0}}},
    {"files": {"a.onnx": 5}},
    {"files": {"a.onnx": {"sha256": 5, "bytes": "x"}}},
    {"files": {"a.onnx": {"sha256": "", "bytes": 10**30}}},
    {"exit_code": True},
    {"exit_code": 0.0},
    {"exit_code": "0"},
    {"exit_code": 77},
    {"exit_code": None},
    {"exit_code": []},
    {"status": "ok"},
    {"id": "another"},
]


@pytest.mark.parametrize("more", HOSTILE, ids=str)
def test_an_outcome_that_no_job_made_is_none(done: Path, more: dict[str, Any]) -> None:
    whole = outcome_of(done)
    assert is_outcome(whole) and not is_outcome({**whole, **more})


@pytest.mark.parametrize("more", [HOSTILE[0], HOSTILE[20]], ids=str)
def test_a_job_whose_outcome_was_damaged_is_done_again(
    call: Call, done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    more: dict[str, Any],
) -> None:  # fmt: skip
    """And reports are as they were."""
    shutil.copytree(done, tmp_path, dirs_exist_ok=True)
    whole, report = outcome_of(tmp_path), (tmp_path / "report" / "results.json").read_bytes()
    capsys.readouterr()
    replace_outcome(tmp_path, {**whole, **more})
    assert call(*VERIFIED) == 0
    assert "kept" not in capsys.readouterr().out
    assert (tmp_path / "report" / "results.json").read_bytes() == report
    assert call(*VERIFIED) == 0 and "kept" in capsys.readouterr().out


def test_values_of_other_types_anywhere_in_an_outcome_are_dropped_or_shown(
    done: Path,
) -> None:
    """Every value of a whole outcome, replaced by each kind of value there is."""
    from converter.commands.batch import result
    from converter.commands.report import facts, html, render

    whole = outcome_of(done)
    assert is_outcome(whole) and "numbers" in whole and "structure" in whole
    job = {"id": "a", "action": "convert", "source": "a", "target": "onnx", "status": "ok"}
    shown = 0
    for path in paths_of(whole):
        for value in (None, True, 5, -1, 1.5, 1e400, 10**400, "x", [], [[]], {}, {"x": 1}):
            other = copy.deepcopy(whole)
            inner = other
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = value
            if not is_outcome(other):
                continue
            data = {"schema": "netconv/batch/1", "version": "1", "jobs": [{**job, **other}]}
            report = facts.Report("batch", "1", tuple(facts.of_data(data, "batch")))
            assert render(report, "junit") and html.render(report) and result.dumps(data)
            shown += 1
    assert shown > 20


def paths_of(value: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, inner in items:
        found.append((*before, key))
        if isinstance(inner, dict | list):
            found += paths_of(inner, (*before, key))
    return found


@pytest.mark.parametrize("more", [h for h in HOSTILE if "files" not in h], ids=str)
def test_stored_results_of_other_types_are_refused_or_shown(
    call: Call, done: Path, tmp_path: Path, more: dict[str, Any]
) -> None:
    path = tmp_path / "results.json"
    data = json.loads((done / "report" / "results.json").read_text())
    data["jobs"][0] |= more
    path.write_text(json.dumps(data))
    for form in ("text", "junit", "html", "md", "sarif", "github"):
        assert call("report", str(path), "--to", form) != ExitCode.BUG, form
