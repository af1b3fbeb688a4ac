"""The same jobs on dask.distributed: in this process with stores in memory, and on a scheduler with
two workers of their own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from batch.models import small
from converter.cli import app, console
from converter.commands.batch import plan, run, staging
from converter.commands.options.batch import Batch
from converter.errors import UsageError
from support import HANG, ROOT, until

distributed = pytest.importorskip(
    "distributed", reason="dask.distributed is not installed: pip install 'netconv[batch]'"
)
fsspec = pytest.importorskip(
    "fsspec", reason="fsspec is not installed: pip install 'netconv[batch]'"
)

ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "DASK_LOGGING__DISTRIBUTED": "error"}


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[object]:
    """Five models in a store in memory."""
    store = fsspec.filesystem("memory")
    for i in range(5):
        store.pipe_file(f"/nets/net{i}.onnx", small(tmp_path / "m.onnx", 0.1 + i / 10).read_bytes())
    store.pipe_file("/nets/broken.onnx", b"no model")
    yield store
    store.rm("/", recursive=True)


JOBS = '[[job]]\nmodels = "memory://nets/*.onnx"\nto = "onnx+opset=17"\nverify = true\n'


def test_a_local_cluster_with_stores_in_memory(memory, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "jobs.toml").write_text('out = "memory://made"\n' + JOBS)
    jobs = plan.of_file(tmp_path / "jobs.toml")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    ) as cluster:
        settings = Batch(scheduler=cluster.scheduler_address, state=str(tmp_path / "state"))
        done = run.run(jobs, settings)
        assert [d.status for d in done] == ["unreadable", *["ok"] * 5]
        assert all(d.outcome["numbers"]["passed"] for d in done[1:])
        assert sorted(p.rsplit("/", 1)[1] for p in memory.glob("/made/**/*.onnx")) == [
            f"net{i}.onnx" for i in range(5)
        ]
        assert str(tmp_path) not in json.dumps(
            [d.outcome for d in done]
        ) and "/tmp" not in json.dumps([d.outcome for d in done])
        assert all(d.kept for d in run.run(jobs, settings))
        # a journal that was lost: the markers next to the results know
        before = memory.modified(memory.glob("/made/**/net0.onnx")[0])
        again = run.run(
            jobs,
            Batch(scheduler=cluster.scheduler_address, state=str(tmp_path / "other"), force=True),
        )
        assert [d.outcome for d in again] == [d.outcome for d in done]
        assert memory.modified(memory.glob("/made/**/net0.onnx")[0]) == before


def test_stores_without_a_cluster(memory, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "jobs.toml").write_text(f'out = "file://{tmp_path}/made"\n' + JOBS)
    done = run.run(plan.of_file(tmp_path / "jobs.toml"), Batch(workers=2))
    assert [d.status for d in done] == ["unreadable", *["ok"] * 5]
    assert len(list((tmp_path / "made").rglob("*.onnx"))) == 5


def test_unknown_stores_and_silent_schedulers_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="U502"):
        staging.filesystem("nowhere://bucket/a.onnx")
    monkeypatch.setattr("converter.commands.batch.cluster.CONNECT", 1)
    small(tmp_path / "a.onnx")
    (tmp_path / "jobs.toml").write_text('[[job]]\nmodels="a.onnx"\nto="onnx"\n')
    with pytest.raises(UsageError, match="no scheduler responds"):
        run.run(plan.of_file(tmp_path / "jobs.toml"), Batch(scheduler="tcp://127.0.0.1:9"))


@contextmanager
def process(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen(
        [sys.executable, "-m", *command],
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield started
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def done_ids(folder: Path) -> list[str]:
    path = folder / "converted" / ".netconv" / "journal.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [r["id"] for r in map(json.loads, lines) if r["event"] == "done"]


@pytest.mark.slow
def test_a_scheduler_and_two_workers_one_of_which_is_killed(tmp_path: Path) -> None:
    count = 40
    for i in range(count):
        small(tmp_path / "nets" / f"net{i:02}.onnx", 0.1 + i / 100)
    (tmp_path / "jobs.toml").write_text(
        '[[job]]\nmodels = "nets/*.onnx"\nto = "onnx"\nverify = true\n'
    )
    file = tmp_path / "scheduler.json"
    with process(
        "distributed.cli.dask_scheduler",
        "--port",
        "0",
        "--no-dashboard",
        "--scheduler-file",
        str(file),
    ) as scheduler:
        until(lambda: file.exists() and bool(file.read_text()), scheduler)
        address = json.loads(file.read_text())["address"]
        worker = (
            "distributed.cli.dask_worker",
            address,
            "--nthreads",
            "1",
            "--no-dashboard",
            "--local-directory",
            str(tmp_path / "dask"),
        )
        with process(*worker, "--no-nanny") as first, process(*worker):
            command = [
                sys.executable,
                "-m",
                "converter.cli",
                "batch",
                "jobs.toml",
                "--scheduler",
                address,
                "--report",
                "report",
            ]
            batch = subprocess.Popen(
                command, cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.DEVNULL
            )
            until(lambda: len(done_ids(tmp_path)) >= 5, batch)
            helpers = psutil.Process(first.pid).children(recursive=True)
            first.kill()
            assert psutil.wait_procs(helpers, timeout=HANG)[1] == []
            assert batch.wait(HANG) == 0
    assert json.loads((tmp_path / "report" / "results.json").read_text())["counts"] == {"ok": count}
    assert sorted(done_ids(tmp_path)) == [f"nets/net{i:02}.onnx -> onnx" for i in range(count)]


def test_reports_are_written_to_stores(
    memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.toml").write_text('out = "memory://made"\n' + JOBS)

    def call(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["netconv", "batch", *arguments])
        console.use(console.Console())
        return app._guarded()

    assert (
        call("jobs.toml", "--report", "memory://reports/today/", "--jobs", "1") == 4
    )  # one of the models is none
    assert json.loads(memory.cat_file("/reports/today/results.json"))["counts"] == {
        "ok": 5,
        "unreadable": 1,
    }
    names = {"results.json", "timing.json", "junit.xml", "index.html"}
    assert names <= {p.rsplit("/", 1)[1] for p in memory.ls("/reports/today", detail=False)}
    assert "memory://reports/today/index.html" in capsys.readouterr().out
    assert {p.name for p in tmp_path.iterdir()} <= {"jobs.toml", "m.onnx", ".netconv"}
    assert sorted(memory.glob("/made/**/*.onnx"))[0] == "/made/onnx+opset=17/memory/nets/net0.onnx"
    assert (
        call("jobs.toml", "--report", "nowhere://reports") == 2
        and "U502" in capsys.readouterr().err
    )

    def full(*arguments: object, **keywords: object) -> None:
        raise PermissionError("no writing here")

    monkeypatch.setattr(type(memory), "pipe_file", full)
    assert (
        call("jobs.toml", "--report", "memory://reports") == 5 and "W301" in capsys.readouterr().err
    )
