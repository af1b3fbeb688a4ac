"""Batches as a user runs them: outcomes, what is kept, and what is left after something was killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from batch.models import slow, small, wide
from support import ROOT

MANY = 30


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "converter.cli", "batch", *arguments]


ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}


def batch(folder: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, results.json and what was printed."""
    done = subprocess.run(
        [*command(*arguments), "--report", "report"], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, errors="surrogateescape", timeout=110
    )
    path = folder / "report" / "results.json"
    assert path.exists(), done.stderr
    return done.returncode, json.loads(path.read_text()), done.stdout


def journal(folder: Path, event: str) -> list[str]:
    path = folder / "converted" / ".netconv" / "journal.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [r["id"] for r in map(json.loads, lines) if r["event"] == event]


@pytest.fixture
def many(tmp_path: Path) -> Path:
    for i in range(MANY):
        small(tmp_path / "nets" / f"net{i:02}.onnx", 0.1 + i / 100)
    (tmp_path / "jobs.toml").write_text('[[job]]\nmodels = "nets/*.onnx"\nto = "onnx+opset=17"\nverify = true\n')
    return tmp_path


def test_many_models_are_converted_once_and_kept_after(many: Path) -> None:
    code, first, out = batch(many, "jobs.toml", "--jobs", "2")
    assert code == 0 and first["counts"] == {"ok": MANY} and len(out.splitlines()) == MANY + 2
    stored = (many / "report" / "results.json").read_bytes()
    made = {p: p.stat().st_mtime_ns for p in (many / "converted").rglob("*.onnx")}
    assert len(made) == MANY
    code, _, out = batch(many, "jobs.toml", "--jobs", "1")
    assert out.count("(kept)") == MANY
    assert (many / "report" / "results.json").read_bytes() == stored
    assert {p: p.stat().st_mtime_ns for p in made} == made
    assert not (many / "converted" / ".netconv" / "stage").exists()


def test_what_changed_is_done_again(many: Path) -> None:
    batch(many, "jobs.toml")
    small(many / "nets" / "net03.onnx", 0.9)
    (many / "converted" / "onnx+opset=17" / "nets" / "net04.onnx").unlink()
    (many / "converted" / "onnx+opset=17" / "nets" / "net05.onnx").write_bytes(b"damaged")
    _, data, out = batch(many, "jobs.toml")
    again = [line.split()[2] for line in out.splitlines() if line.startswith("[") and "(kept)" not in line]
    assert sorted(again) == ["nets/net03.onnx", "nets/net04.onnx", "nets/net05.onnx"]
    assert data["counts"] == {"ok": MANY}
    (many / "jobs.toml").write_text((many / "jobs.toml").read_text() + 'outputs = ["conv"]\n')
    assert "(kept)" not in batch(many, "jobs.toml")[2]


def start(folder: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(command("jobs.toml", "--jobs", "2"), cwd=folder, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(journal(folder, "done")) < 4:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    return process


def test_a_killed_run_is_continued(many: Path) -> None:
    endless = slow(many / "nets" / "zz.onnx")
    process = start(many)
    workers = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    assert psutil.wait_procs(workers, timeout=20)[1] == []
    endless.unlink()
    before = journal(many, "done")
    assert 4 <= len(before) <= MANY
    code, data, out = batch(many, "jobs.toml")
    assert code == 0 and data["counts"] == {"ok": MANY}
    assert out.count("(kept)") == len(before)
    assert Counter(journal(many, "done")) == Counter(f"nets/net{i:02}.onnx -> onnx+opset=17" for i in range(MANY))
    left = [p for p in (many / "converted").rglob("*") if p.is_file() and p.suffix != ".onnx"]
    assert [p.name for p in left] == ["journal.jsonl"]


def test_an_interrupted_run_ends_with_130_and_is_continued(many: Path) -> None:
    endless = slow(many / "nets" / "zz.onnx")  # however late the signal comes, something still runs
    process = start(many)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    endless.unlink()
    before = len(journal(many, "done"))
    assert batch(many, "jobs.toml")[2].count("(kept)") == before


def test_killed_workers_lose_nothing(many: Path) -> None:
    process = start(many)
    for _ in range(2):
        for worker in psutil.Process(process.pid).children(recursive=True):
            worker.kill()
        time.sleep(2.5)
    assert process.wait(90) == 0
    assert Counter(journal(many, "done")) == Counter(f"nets/net{i:02}.onnx -> onnx+opset=17" for i in range(MANY))


def test_limits_stop_one_job_and_not_the_others(tmp_path: Path) -> None:
    small(tmp_path / "a.onnx")
    slow(tmp_path / "slow.onnx")
    wide(tmp_path / "wide.onnx")
    jobs = '[[job]]\nmodels="{0}.onnx"\nto="onnx"\nverify=true\n'
    (tmp_path / "jobs.toml").write_text(
        jobs.format("slow") + "timeout = 2\n" + jobs.format("wide") + 'memory = "600M"\n' + jobs.format("a") + 'timeout = 60\nmemory = "600M"\n'
    )
    code, data, _ = batch(tmp_path, "jobs.toml", "--jobs", "2")
    found = {j["source"]: (j["exit_code"], [d["code"] for d in j["diagnostics"]]) for j in data["jobs"]}
    assert found == {"a.onnx": (0, []), "slow.onnx": (5, ["B603"]), "wide.onnx": (5, ["B604"])}
    assert code == 5
    assert [p.name for p in (tmp_path / "converted").rglob("*.onnx")] == ["a.onnx"]
    assert journal(tmp_path, "done") == ["a.onnx -> onnx"]


def test_outcomes_and_exit_codes(tmp_path: Path) -> None:
    small(tmp_path / "good.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    (tmp_path / "jobs.toml").write_text('[[job]]\nmodels="*.onnx"\nto="onnx"\n')
    code, data, _ = batch(tmp_path, "jobs.toml")
    assert code == 4 == data["exit_code"] and data["counts"] == {"ok": 1, "unreadable": 1}
    assert batch(tmp_path, "jobs.toml", "--exit-zero")[0] == 0
    for name in range(40):  # some are under way when the limit is reached
        (tmp_path / f"{name}.onnx").write_bytes(b"no model either")
    code, data, _ = batch(tmp_path, "jobs.toml", "--max-failures", "2", "--jobs", "1")
    assert code == 4 and data["counts"]["not run"] >= 3


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
    (tmp_path / "jobs.toml").write_text("".join(f'[[job]]\nmodels="a.onnx"\nto="onnx"\naction="{a}"\n' for a in ("check", "roundtrip")))
    code, data, _ = batch(tmp_path, "jobs.toml")
    assert code == 0
    assert [j["id"] for j in data["jobs"]] == ["a.onnx -> onnx (check)", "a.onnx -> onnx (roundtrip)"]
    assert data["jobs"][0]["coverage"]["layers"] == {"all": 2, "convert": 2}
    assert data["jobs"][1]["roundtrip"]["structure"]["same"] and data["jobs"][1]["numbers"]["passed"]
    assert list((tmp_path / "converted").rglob("*.onnx")) == []


# --- under fire


def pairs(folder: Path) -> dict[str, bytes]:
    """The results that others see; a model never stands beside another model's weights."""
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in (folder / "converted").rglob("net*") if p.is_file() and ".netconv" not in str(p.relative_to(folder))
    }


@pytest.fixture
def sets(many: Path) -> Path:
    """Jobs whose results are two files each."""
    (many / "jobs.toml").write_text('[[job]]\nmodels = "nets/net0*.onnx"\nto = ["openvino", "zhouyi"]\n')
    return many


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_whatever_ends_a_run_results_are_complete_or_absent(sets: Path, number: int) -> None:
    batch(sets, "jobs.toml", "--jobs", "2")
    whole = pairs(sets)
    assert len(whole) == 40
    shutil.rmtree(sets / "converted")
    for attempt in range(4):
        process = subprocess.Popen(command("jobs.toml", "--jobs", "2"), cwd=sets, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        wanted = 3 * (attempt + 1)
        deadline = time.monotonic() + 60
        while len(journal(sets, "done")) < wanted and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        workers = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
        assert process.returncode in (-signal.SIGKILL, 130, 0) and b"Traceback" not in said, said.decode()
        assert psutil.wait_procs(workers, timeout=20)[1] == []
        found = pairs(sets)
        models = [n for n in found if n.endswith((".xml", ".txt"))]
        for n in models:  # each model that is seen has its weights
            assert found[n] == whole[n] and found[str(Path(n).with_suffix(".bin"))] == whole[str(Path(n).with_suffix(".bin"))]
    batch(sets, "jobs.toml", "--jobs", "2")
    assert pairs(sets) == whole
    left = {p.name for p in (sets / "converted").rglob("*") if p.is_file()} - {Path(n).name for n in whole}
    assert left == {"journal.jsonl"}


def test_a_second_interruption_leaves_no_worker_and_no_traceback(many: Path) -> None:
    process = subprocess.Popen(command("jobs.toml", "--jobs", "2"), cwd=many, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while len(journal(many, "done")) < 4:
        assert process.poll() is None
        time.sleep(0.01)
    workers = psutil.Process(process.pid).children(recursive=True)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.02)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and b"Traceback" not in said, said.decode()
    assert psutil.wait_procs(workers, timeout=20)[1] == []
    assert not (many / "converted" / ".netconv" / "stage").exists() or batch(many, "jobs.toml")[0] == 0


def test_names_that_are_no_text(tmp_path: Path) -> None:
    small(tmp_path / "a.onnx")
    os.rename(os.fsencode(tmp_path / "a.onnx"), os.fsencode(tmp_path) + b"/n\xff.onnx")
    for times in range(2):
        code, data, out = batch(tmp_path, ".", "-t", "openvino")
        assert code == 0 and data["counts"] == {"ok": 1}
        assert ("(kept)" in out) == bool(times)
    assert (tmp_path / os.fsdecode(b"converted/openvino/n\xff.xml")).exists()
