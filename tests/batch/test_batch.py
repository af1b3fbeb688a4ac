"""Batches as a user runs them: outcomes, kept files, and leftovers after something was
killed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import converter
from batch.models import endless, opaque, small, wide
from converter.commands.batch import plan, result, run
from converter.commands.batch.job import Job
from converter.commands.batch.pool import TaskResult
from converter.commands.options.batch import Batch
from converter.errors import UsageError
from support import HANG, ROOT, until

MANY = 20


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "converter.cli", "batch", *arguments]


ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}


def batch(folder: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, results.json and the printed text."""
    done = subprocess.run(
        [*command(*arguments), "--report", "report"],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=HANG,
    )
    path = folder / "report" / "results.json"
    assert path.exists(), done.stderr
    return done.returncode, json.loads(path.read_text()), done.stdout


def journal(folder: Path, event: str) -> list[str]:
    path = folder / "converted" / ".netconv" / "journal.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [r["id"] for r in map(json.loads, lines) if r["event"] == event]


def kept(out: str) -> int:
    """Return the number of jobs that were kept, which is one line."""
    found = re.findall(r"(\d+) kept from an earlier run", out)
    assert len(found) <= 1
    return int(found[0]) if found else 0


@pytest.fixture
def many(tmp_path: Path) -> Path:
    for i in range(MANY):
        small(tmp_path / "nets" / f"net{i:02}.onnx", 0.1 + i / 100)
    (tmp_path / "jobs.toml").write_text(
        '[[job]]\nmodels = "nets/*.onnx"\nto = "onnx+opset=17"\nverify = true\n'
    )
    return tmp_path


def test_many_models_are_converted_once_and_kept_after(many: Path) -> None:
    code, first, out = batch(many, "jobs.toml", "--jobs", "2")
    assert code == 0 and first["counts"] == {"ok": MANY} and len(out.splitlines()) == MANY + 2
    stored = (many / "report" / "results.json").read_bytes()
    made = {p: p.stat().st_mtime_ns for p in (many / "converted").rglob("*.onnx")}
    assert len(made) == MANY
    code, _, out = batch(many, "jobs.toml", "--jobs", "1")
    assert kept(out) == MANY
    assert (many / "report" / "results.json").read_bytes() == stored
    assert {p: p.stat().st_mtime_ns for p in made} == made
    assert not (many / "converted" / ".netconv" / "stage").exists()


def test_changed_jobs_run_again(many: Path) -> None:
    batch(many, "jobs.toml")
    small(many / "nets" / "net03.onnx", 0.9)
    (many / "converted" / "onnx+opset=17" / "nets" / "net04.onnx").unlink()
    (many / "converted" / "onnx+opset=17" / "nets" / "net05.onnx").write_bytes(b"damaged")
    _, data, out = batch(many, "jobs.toml")
    again = [
        line.split()[2] for line in out.splitlines() if line.startswith("[") and "kept" not in line
    ]
    assert sorted(again) == ["nets/net03.onnx", "nets/net04.onnx", "nets/net05.onnx"]
    assert data["counts"] == {"ok": MANY}
    (many / "jobs.toml").write_text((many / "jobs.toml").read_text() + 'outputs = ["conv"]\n')
    assert not kept(batch(many, "jobs.toml")[2])


def start(folder: Path, **more: Any) -> subprocess.Popen[bytes]:
    """A run that has done some jobs and does not end by itself: the last one never does."""
    endless(folder / "nets" / "zz.onnx")
    process = subprocess.Popen(
        command("jobs.toml", "--jobs", "2"),
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        **more,
    )
    until(lambda: len(journal(folder, "done")) >= 4, process)
    return process


def ended(processes: list[psutil.Process]) -> bool:
    return psutil.wait_procs(processes, timeout=HANG)[1] == []


def test_a_killed_run_is_continued(many: Path) -> None:
    process = start(many)
    workers = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    assert ended(workers)
    (many / "nets" / "zz.onnx").unlink()
    before = journal(many, "done")
    assert 4 <= len(before) <= MANY
    code, data, out = batch(many, "jobs.toml")
    assert code == 0 and data["counts"] == {"ok": MANY}
    assert kept(out) == len(before)
    assert Counter(journal(many, "done")) == Counter(
        f"nets/net{i:02}.onnx -> onnx+opset=17" for i in range(MANY)
    )
    left = [p for p in (many / "converted").rglob("*") if p.is_file() and p.suffix != ".onnx"]
    assert [p.name for p in left] == ["journal.jsonl"]


def test_an_interrupted_run_ends_with_130_and_is_continued(many: Path) -> None:
    process = start(many)
    process.send_signal(signal.SIGINT)
    assert process.wait(HANG) == 130
    (many / "nets" / "zz.onnx").unlink()
    before = len(journal(many, "done"))
    assert kept(batch(many, "jobs.toml")[2]) == before


@pytest.mark.slow
def test_killed_workers_lose_nothing(many: Path) -> None:
    """Each job is lost at most once: all workers of one moment are killed."""
    process = start(many)
    for worker in psutil.Process(process.pid).children(recursive=True):
        worker.kill()
    until(lambda: len(journal(many, "done")) == MANY, process)
    process.send_signal(signal.SIGINT)
    assert process.wait(HANG) == 130
    assert Counter(journal(many, "done")) == Counter(
        f"nets/net{i:02}.onnx -> onnx+opset=17" for i in range(MANY)
    )


@pytest.mark.slow
def test_limits_stop_one_job_and_not_the_others(tmp_path: Path) -> None:
    small(tmp_path / "a.onnx")
    endless(tmp_path / "slow.onnx")
    wide(tmp_path / "wide.onnx")
    jobs = '[[job]]\nmodels="{0}.onnx"\nto="onnx"\nverify=true\n'
    (tmp_path / "jobs.toml").write_text(
        jobs.format("slow")
        + "timeout = 2\n"
        + jobs.format("wide")
        + 'memory = "600M"\n'
        + jobs.format("a")
        + f'timeout = {HANG}\nmemory = "600M"\n'
    )
    code, data, _ = batch(tmp_path, "jobs.toml", "--jobs", "2")
    found = {
        j["source"]: (j["exit_code"], [d["code"] for d in j["diagnostics"]]) for j in data["jobs"]
    }
    assert found == {"a.onnx": (0, []), "slow.onnx": (7, ["B603"]), "wide.onnx": (8, ["B604"])}
    assert code == 7  # the more severe
    assert data["counts"] == {"ok": 1, "time limit": 1, "memory limit": 1}
    assert [p.name for p in (tmp_path / "converted").rglob("*.onnx")] == ["a.onnx"]
    assert journal(tmp_path, "done") == ["a.onnx -> onnx"]


def test_outcomes_and_exit_codes(tmp_path: Path) -> None:
    small(tmp_path / "good.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    (tmp_path / "jobs.toml").write_text('[[job]]\nmodels="*.onnx"\nto="onnx"\n')
    code, data, _ = batch(tmp_path, "jobs.toml")
    assert code == 4 == data["exit_code"] and data["counts"] == {"ok": 1, "unreadable": 1}
    assert batch(tmp_path, "jobs.toml", "--exit-zero")[0] == 0


def test_models_that_no_engine_runs_are_written_and_not_compared(tmp_path: Path) -> None:
    opaque(tmp_path / "a.onnx")
    (tmp_path / "jobs.toml").write_text('[[job]]\nmodels="a.onnx"\nto="onnx"\nverify=true\n')
    code, data, _ = batch(tmp_path, "jobs.toml")
    assert code == 6 and data["counts"] == {"could not compare": 1}
    assert (tmp_path / "converted" / "onnx" / "a.onnx").exists()
    assert kept(batch(tmp_path, "jobs.toml")[2])


def test_a_target_that_is_never_read_is_written_but_not_compared(tmp_path: Path) -> None:
    small(tmp_path / "a.onnx")
    job = '[[job]]\nmodels="a.onnx"\nto="nnapi+c"\n'
    (tmp_path / "jobs.toml").write_text(job)
    assert batch(tmp_path, "jobs.toml")[0] == 0
    assert "ANeuralNetworks" in (tmp_path / "converted" / "nnapi+c" / "a.nnapi.c").read_text()
    for more in ("verify = true", 'action = "roundtrip"'):
        (tmp_path / "jobs.toml").write_text(job + more)
        with pytest.raises(UsageError, match="netconv cannot read"):
            plan.of_file(tmp_path / "jobs.toml")


def test_after_so_many_failures_no_job_is_started(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}.onnx").write_bytes(b"no model")
    (tmp_path / "jobs.toml").write_text('[[job]]\nmodels="*.onnx"\nto="onnx"\n')

    class OneByOne(run.Executor):
        """Hands out each result before the next job is looked at."""

        def run(
            self, jobs: Sequence[Job], keys: dict[str, str]
        ) -> Iterator[tuple[Job, TaskResult]]:
            for job in jobs:
                yield job, self._one(job)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run, "Executor", OneByOne)
        done = run.run(plan.of_file(tmp_path / "jobs.toml"), Batch(workers=1, max_failures=2))
    assert [d.status for d in done] == ["unreadable", "unreadable", "not run", "not run", "not run"]
    assert result.exit_code(done) == 4
    code, data, _ = batch(tmp_path, "jobs.toml", "--max-failures", "1", "--jobs", "1")
    assert code == 4 and data["counts"]["unreadable"] >= 1


def test_files_of_others_are_not_overwritten(tmp_path: Path) -> None:
    small(tmp_path / "a.onnx")
    theirs = tmp_path / "converted" / "onnx" / "a.onnx"
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(b"mine")
    assert batch(tmp_path, ".", "-t", "onnx")[0] == 5
    assert theirs.read_bytes() == b"mine"
    assert batch(tmp_path, ".", "-t", "onnx", "--force")[0] == 0
    assert theirs.read_bytes() != b"mine"


def test_check_and_roundtrip(tmp_path: Path) -> None:
    small(tmp_path / "a.onnx")
    (tmp_path / "jobs.toml").write_text(
        "".join(
            f'[[job]]\nmodels="a.onnx"\nto="onnx"\naction="{a}"\n' for a in ("check", "roundtrip")
        )
    )
    code, data, _ = batch(tmp_path, "jobs.toml")
    assert code == 0
    assert [j["id"] for j in data["jobs"]] == [
        "a.onnx -> onnx (check)",
        "a.onnx -> onnx (roundtrip)",
    ]
    assert data["jobs"][0]["coverage"]["layers"] == {"all": 2, "convert": 2}
    assert (
        data["jobs"][1]["roundtrip"]["structure"]["same"] and data["jobs"][1]["numbers"]["passed"]
    )
    assert list((tmp_path / "converted").rglob("*.onnx")) == []


def test_quantize(tmp_path: Path) -> None:
    shutil.copy(ROOT / "samples" / "digits_cnn.mlmodel", tmp_path)
    arrays = np.load(ROOT / "samples" / "digits_cnn.npz")
    job = (
        '[[job]]\nmodels="*.mlmodel"\nto="onnx"\naction="quantize"\n'
        'quantize = { data = "calib.npz", labels = "labels", native = "off" }\n'
    )
    (tmp_path / "jobs.toml").write_text(job)
    np.savez(tmp_path / "calib.npz", **{n: arrays[n][:20] for n in arrays.files})
    code, data, _ = batch(tmp_path, "jobs.toml")
    (done,) = data["jobs"]
    assert code == 0 and [d["code"] for d in done["diagnostics"]] == ["N413"]
    written = converter.load(tmp_path / "converted" / "onnx" / "digits_cnn.onnx")
    assert any(n.op_type == "QuantizeLinear" for n in written.ir.graph)
    first = done["files"]
    np.savez(tmp_path / "calib.npz", **{n: arrays[n][20:40] for n in arrays.files})
    assert batch(tmp_path, "jobs.toml")[1]["jobs"][0]["files"] != first  # other data, other scales


# --- under fire


def pairs(folder: Path) -> dict[str, bytes]:
    """The results that others see; a model never has the weights of another one."""
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in (folder / "converted").rglob("net*")
        if p.is_file() and ".netconv" not in str(p.relative_to(folder))
    }


def children(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The processes that a process has started; none when it has ended meanwhile."""
    try:
        return list(psutil.Process(process.pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


@pytest.fixture
def sets(many: Path) -> Path:
    """Jobs whose results are two files each."""
    (many / "jobs.toml").write_text(
        '[[job]]\nmodels = "nets/net0*.onnx"\nto = ["openvino", "zhouyi"]\n'
    )
    return many


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.sampled(3)
def test_results_are_complete_or_absent_after_any_end_of_a_run(sets: Path, number: int) -> None:
    batch(sets, "jobs.toml", "--jobs", "2")
    whole = pairs(sets)
    assert len(whole) == 40
    shutil.rmtree(sets / "converted")
    for attempt in range(4):
        process = subprocess.Popen(
            command("jobs.toml", "--jobs", "2"),
            cwd=sets,
            env=ENVIRONMENT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        wanted = 3 * (attempt + 1)
        until(
            lambda wanted=wanted, process=process: (
                len(journal(sets, "done")) >= wanted or process.poll() is not None
            ),
            process,
        )  # type: ignore[misc]
        workers = children(process)
        process.send_signal(number)
        _, said = process.communicate(timeout=HANG)
        assert process.returncode in (-signal.SIGKILL, 130, 0) and b"Traceback" not in said, (
            said.decode()
        )
        assert ended(workers)
        found = pairs(sets)
        models = [n for n in found if n.endswith((".xml", ".txt"))]
        for n in models:  # each model that is seen has its weights
            assert (
                found[n] == whole[n]
                and found[str(Path(n).with_suffix(".bin"))]
                == whole[str(Path(n).with_suffix(".bin"))]
            )
    batch(sets, "jobs.toml", "--jobs", "2")
    assert pairs(sets) == whole
    left = {p.name for p in (sets / "converted").rglob("*") if p.is_file()} - {
        Path(n).name for n in whole
    }
    assert left == {"journal.jsonl"}


@pytest.mark.slow
def test_a_second_interruption_leaves_no_worker_and_no_traceback(many: Path) -> None:
    process = start(many, stderr=subprocess.PIPE)
    workers = children(process)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.02)
    _, said = process.communicate(timeout=HANG)
    assert process.returncode == 130 and b"Traceback" not in said, said.decode()
    assert ended(workers)
    (many / "nets" / "zz.onnx").unlink()
    assert (
        not (many / "converted" / ".netconv" / "stage").exists() or batch(many, "jobs.toml")[0] == 0
    )


def test_names_that_are_no_text(tmp_path: Path) -> None:
    small(tmp_path / "a.onnx")
    os.rename(os.fsencode(tmp_path / "a.onnx"), os.fsencode(tmp_path) + b"/n\xff.onnx")
    for times in range(2):
        code, data, out = batch(tmp_path, ".", "-t", "openvino")
        assert code == 0 and data["counts"] == {"ok": 1}
        assert bool(kept(out)) == bool(times)
    assert (tmp_path / os.fsdecode(b"converted/openvino/n\xff.xml")).exists()
