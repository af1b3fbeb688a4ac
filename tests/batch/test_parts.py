"""The parts of a batch: job files, hashes, the journal, one worker process."""

from __future__ import annotations

import errno
import json
import os
import random
import threading
from pathlib import Path

import onnx
import pytest

from batch.models import endless, small
from converter.commands.batch import content, plan, pool
from converter.commands.batch.job import is_outcome
from converter.commands.batch.journal import Journal
from converter.commands.batch.pool import Runner, default_size
from converter.commands.batch.work import Task
from converter.errors import Diagnostic, ExitCode, UsageError, WriteError
from converter.formats import sidefiles


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the job file has no job"),
        ("[[job]]\nmodel = 'a.onnx'\nto = 'onnx'", "perhaps you meant 'models'"),
        ("[[job]]\nmodels = 'a.onnx'\nto = 'onxx'", "perhaps you meant 'onnx'"),
        ("[[job]]\nmodels = 'b*.onnx'\nto = 'onnx'", "no file matches the models"),
        ("[[job]]\nmodels = 'a.onnx'", "a job needs a target"),
        ("[[job]]\nmodels = 'a.onnx'\nto = 'onnx'\nexclude='a*'", "a job needs models"),
        (
            "[[job]]\nmodels = 'a.onnx'\nto = 'onnx'\naction='covnert'",
            "perhaps you meant 'convert'",
        ),
        ("[[job]]\nmodels = 'a.onnx'\nto = 'onnx'\nmemory='much'", "not an amount"),
        ("[[job]]\nmodels = 'a.onnx'\nto = 'onnx'\ntimeout=true", "wrong type"),
        ("[[job]]\nmodels = 'a.onnx'\nto = 'onnx'\nverify={rtoll=1}", "perhaps you meant 'rtol'"),
        ("job = 1", "wrong type"),
        ("[[job]", "not valid TOML"),
    ],
)
def test_a_wrong_job_file_is_refused(tmp_path: Path, text: str, said: str) -> None:
    small(tmp_path / "a.onnx")
    (tmp_path / "jobs.toml").write_text(text)
    with pytest.raises(UsageError) as e:
        plan.of_file(tmp_path / "jobs.toml")
    assert said in str(e.value)


def test_outputs_never_clash(tmp_path: Path) -> None:
    small(tmp_path / "x[1]" / "a.onnx")
    (tmp_path / "x[1]" / "a.mlmodel").write_bytes((tmp_path / "x[1]" / "a.onnx").read_bytes())
    found = plan.of_folder(tmp_path, ["onnx"], {})
    assert [Path(j.output).relative_to(tmp_path).as_posix() for j in found.jobs] == [
        "converted/onnx/x[1]/a.mlmodel.onnx",
        "converted/onnx/x[1]/a.onnx.onnx",
    ]
    (tmp_path / "x[1]" / "jobs.toml").write_text(
        '[[job]]\nmodels="*.onnx"\nto=["onnx", "onnx+opset=17"]\ntimeout=3\nmemory="2G"'
    )
    jobs = plan.of_file(tmp_path / "x[1]" / "jobs.toml").jobs
    assert [j.id for j in jobs] == ["a.onnx -> onnx", "a.onnx -> onnx+opset=17"]
    assert jobs[0].timeout == 3 and jobs[0].memory == 2 << 30


def test_side_files_count(tmp_path: Path) -> None:
    model = onnx.load(small(tmp_path / "made.onnx"))
    onnx.save(
        model,
        tmp_path / "net.onnx",
        save_as_external_data=True,
        location="w" * 150 + ".raw",
        size_threshold=0,
    )
    assert sidefiles.names(tmp_path / "net.onnx") == ["w" * 150 + ".raw"]
    before = content.fingerprint(tmp_path / "net.onnx")
    assert set(before) == {"net.onnx", "w" * 150 + ".raw"}
    side = tmp_path / ("w" * 150 + ".raw")
    side.write_bytes(side.read_bytes()[:-1] + b"?")
    assert content.fingerprint(tmp_path / "net.onnx") != before
    assert content.fingerprint(tmp_path / "absent.onnx") == {}


def test_a_journal_that_was_cut_off_is_read(tmp_path: Path) -> None:
    path = tmp_path / "state" / "journal.jsonl"
    with Journal(path) as j:
        j.claim(["a", "b"])
        j.finish("a", "k", OUTCOME)
        with pytest.raises(UsageError, match="another run"):
            Journal(path)
    whole = path.read_bytes()
    path.write_bytes(whole + b"damaged\n" + b'{"event":"done","id":"b","key"')
    with Journal(path) as j:
        assert j.done == {"a": ("k", OUTCOME)} and j.claimed == {"a", "b"}
        j.finish("b", "k2", OUTCOME)
    with Journal(path) as j:
        assert set(j.done) == {"a", "b"}


def task(path: Path) -> Task:
    return Task(
        "convert",
        str(path),
        path.name,
        "onnx",
        str(path.parent / "out" / path.name),
        "out",
        {"verify": {}},
    )


def test_a_crash_is_tried_once_more(tmp_path: Path) -> None:
    runner, model = Runner(), small(tmp_path / "a.onnx")
    runner._ready().process.kill()
    ran = runner.run(task(model))
    assert ran.outcome["exit_code"] == 0 and ran.attempts == 2
    first = runner._ready().process.pid
    assert runner.run(Task("check", str(model), "a.onnx", "onnx")).attempts == 1
    assert runner._ready().process.pid == first  # workers stay
    runner.stop()


def test_two_crashes_are_an_outcome(tmp_path: Path) -> None:
    runner, model = Runner(), endless(tmp_path / "endless.onnx")
    stop = threading.Event()

    def kill() -> None:
        while not stop.wait(0.2):
            worker = runner._worker
            if worker is not None:
                worker.process.kill()

    runner._ready()
    thread = threading.Thread(target=kill)
    thread.start()
    try:
        ran = runner.run(task(model))
    finally:
        stop.set()
        thread.join()
        runner.stop()
    (said,) = ran.outcome["diagnostics"]
    assert (
        ran.outcome["exit_code"] == ExitCode.BUG
        and said["code"] == "B602"
        and said["evidence"][0] == "SIGKILL"
    )


def test_bugs_are_outcomes_and_paths_stay_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from converter.commands.batch import work

    def broken(t: Task) -> dict[str, object]:
        raise RuntimeError(f"at {t.source}")

    monkeypatch.setitem(work._ACTIONS, "convert", broken)
    found = work.perform(Task("convert", str(tmp_path / "a.onnx"), "a.onnx", "onnx"))
    assert found["exit_code"] == 70 and str(tmp_path) not in json.dumps(found)


def test_the_pool_fits_the_machine() -> None:
    assert default_size() >= 1
    assert default_size(1 << 60) == 1


OUTCOME = {"exit_code": 0, "diagnostics": [], "files": {}}
NO_RECORDS = [
    b"[]",
    b"1",
    b"{}",
    b"[" * 100_000,
    b"\xff\xfe",
    b'{"event":"done","id":[1],"key":"k","outcome":{}}',
    b'{"event":"done","id":"x","key":5,"outcome":{}}',
    b'{"event":"done","id":"x","key":"k","outcome":5}',
    b'{"event":"done","id":"x","key":"k","outcome":{"exit_code":3.5,"files":{},"diagnostics":[]}}',
    b'{"event":"done","id":"x","key":"k","outcome":{"exit_code":0,"files":{"../x":{"sha256":"","bytes":1}},"diagnostics":[]}}',
    b'{"event":"done","id":"x","key":"k","outcome":{"exit_code":0,"files":[],"diagnostics":[]}}',
    b'{"event":"done","id":"x","key":"k","outcome":{"exit_code":0,"files":{},"diagnostics":[7]}}',
    b'{"event":"dont","id":"x"}',
]


@pytest.mark.parametrize("line", NO_RECORDS, ids=[str(i) for i in range(len(NO_RECORDS))])
def test_a_line_that_is_no_record_is_passed_over(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path) as j:
        j.finish("a", "k", OUTCOME)
    path.write_bytes(line + b"\n" + path.read_bytes() + line + b"\n")
    with Journal(path) as j:
        assert j.done == {"a": ("k", OUTCOME)} and j.claimed == {"a"}


def test_a_journal_of_noise_is_read(tmp_path: Path) -> None:
    rng = random.Random(0)
    with Journal(tmp_path / "journal.jsonl") as j:
        for n in range(20):
            j.finish(f"job {n}", "k", OUTCOME)
    whole = (tmp_path / "journal.jsonl").read_bytes()
    for _ in range(300):
        noisy = bytearray(whole)
        for _ in range(rng.choice((1, 5, 50))):
            noisy[rng.randrange(len(noisy))] = rng.randrange(256)
        (tmp_path / "journal.jsonl").write_bytes(bytes(noisy))
        with Journal(tmp_path / "journal.jsonl") as j:
            assert all(is_outcome(o) for _, o in j.done.values())


def test_a_journal_on_a_full_disk_is_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with Journal(tmp_path / "journal.jsonl") as j, pytest.raises(WriteError, match="W301"):
        j.claim(["a"])


def test_a_journal_that_is_no_file_is_refused() -> None:
    with pytest.raises(WriteError, match="W301"):
        Journal(Path("/dev/zero"))


def test_a_worker_that_would_begin_at_the_end_of_a_run_does_not() -> None:
    """An interruption may arrive while jobs are still being handed to threads."""
    pool.kill_all()
    late = pool.runner()
    assert late.closed
    job = Task("check", "absent.onnx", "absent.onnx", "onnx")
    assert late.run(job).outcome["exit_code"] == ExitCode.INTERRUPTED
    pool.begin()
    assert not pool.runner().closed
    pool.kill_all()
    pool.begin()


@pytest.mark.parametrize("room, code", [(1 << 10, "B604"), (64 << 20, "R101")])
def test_an_error_for_lack_of_memory_is_no_damaged_file(
    room: int, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Libraries report a damaged file where they get no memory for it."""
    from converter.commands.batch import work
    from converter.errors import ReadError
    from converter.io import limits

    def parse(task: Task) -> work.Outcome:
        raise ReadError([Diagnostic("R101", "netconv does not recognize this file format")])

    monkeypatch.setitem(work._ACTIONS, "convert", parse)
    task = Task("convert", str(tmp_path / "a.onnx"), "a.onnx", "onnx", memory=room)
    with limits.memory(room):
        found = work.perform(task)
    assert [d["code"] for d in found["diagnostics"]] == [code]
