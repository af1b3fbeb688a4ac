"""Standard streams that are closed, full or without a reader: the right result or exit code 5."""

from __future__ import annotations

import array
import fcntl
import json
import os
import re
import shlex
import subprocess
import sys
import termios
from pathlib import Path

import numpy as np
import pytest

import every_command
from batch.models import small
from support import HANG, ROOT, SAMPLES, until

FULL = Path("/dev/full")
BAD = {
    "output closed": ">&-",
    "errors closed": "2>&-",
    "input closed": "<&-",
    "all closed": "<&- >&- 2>&-",
    "output full": ">/dev/full",
    "errors full": "2>/dev/full",
    "both full": ">/dev/full 2>/dev/full",
    "no reader": "| true",
    "no reader of either": "2>&1 | true",
}


def models(folder: Path) -> list[every_command.Call]:
    folder.mkdir(exist_ok=True)
    small(folder / "first.onnx", 0.1)
    small(folder / "second.onnx", 0.2)
    small(folder / "nets" / "net.onnx")
    (folder / "zhouyi").mkdir()
    return every_command.calls("first.onnx", "second.onnx")


def run(folder: Path, arguments: list[str], streams: str) -> tuple[int, str]:
    """The exit code of netconv with such streams, and its output."""
    script = folder.parent / "bin" / "netconv"
    if not script.exists():
        every_command.script(folder.parent)
    command = shlex.join([sys.executable, str(script), *arguments])
    done = subprocess.run(
        ["bash", "-c", f"{command} {streams}; exit ${{PIPESTATUS[0]}}"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    return done.returncode, done.stdout + done.stderr


def usable(streams: str) -> None:
    if "/dev/full" in streams and not FULL.exists():
        pytest.skip("this system has no /dev/full")


@pytest.mark.slow
@pytest.mark.parametrize("names", [("all closed",), ("both full", "errors closed", "no reader")])
def test_every_command_is_right_or_says_5(tmp_path: Path, names: tuple[str, ...]) -> None:
    """With all streams closed, and with the other ways by turns."""
    usable(" ".join(BAD[n] for n in names))
    for number, call in enumerate(models(tmp_path / "work")):
        streams = BAD[names[number % len(names)]]
        code, said = run(tmp_path / "work", list(call.arguments), streams)
        assert code in (call.code, 5), f"{call} {streams}: {said}"
        assert "Traceback" not in said and "bug in netconv" not in said


@pytest.mark.sampled(4)
@pytest.mark.parametrize("streams", BAD.values(), ids=BAD)
def test_work_is_done_although_its_output_is_lost(tmp_path: Path, streams: str) -> None:
    """Output that cannot be written does not stop a conversion."""
    usable(streams)
    work = tmp_path / "work"
    models(work)
    output_lost = re.search(r"(?<!2)>(&-|/dev/full)", streams)
    expected = 5 if output_lost else 0
    for arguments in (
        ["convert", "first.onnx", "-o", "made.xml"],
        ["batch", "nets", "-t", "onnx", "-o", "out"],
    ):
        code, said = run(work, arguments, streams)
        assert code == expected, said
    made = [work / "made.xml", work / "made.bin", work / "out" / "onnx" / "net.onnx"]
    assert all(p.stat().st_size for p in made)
    weights = np.fromfile(made[1], np.float32)
    assert np.isclose(weights, 0.1).any()  # and not a text that was printed into the file


@pytest.mark.sampled(4)
@pytest.mark.parametrize("streams", BAD.values(), ids=BAD)
def test_errors_keep_their_exit_code(tmp_path: Path, streams: str) -> None:
    usable(streams)
    work = tmp_path / "work"
    models(work)
    (work / "bad.onnx").write_bytes(b"no model")
    for arguments, expected in (
        (["inspect", "bad.onnx"], 4),
        (["inspect", "absent.onnx", "--format", "json"], 4),
        (["nothing"], 2),
        (["diff", "first.onnx", "second.onnx"], 1),
    ):
        code, said = run(work, arguments, streams)
        lost = ">&-" in streams or ">/dev/full" in streams
        assert code == expected or (lost and code == 5), said
        assert "Traceback" not in said and "bug in netconv" not in said


def test_a_model_without_a_reader_is_not_written(tmp_path: Path) -> None:
    work = tmp_path / "work"
    models(work)
    arguments = ["convert", "first.onnx", "-o", "-", "-t", "onnx"]
    for streams in (">&-", "| true", *([">/dev/full"] if FULL.exists() else [])):
        assert run(work, arguments, streams)[0] == 5
    assert run(work, ["inspect", "-"], "<&-")[0] == 4


@pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="pipes have one size here")
def test_a_pipe_that_does_not_block_gets_everything(tmp_path: Path) -> None:
    """As one is that other programs made so, which share it."""
    script = str(every_command.script(tmp_path))
    command = [sys.executable, script, "inspect", str(SAMPLES / "digits_cnn.mlmodel")]
    command += ["--of", "json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    read, write = os.pipe()
    room = fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(write, False)
    process = subprocess.Popen(command, env=environment, stdout=write)
    os.close(write)
    until(lambda: waiting(read) >= room, process)
    with open(read, "rb") as f:
        said = f.read()
    assert process.wait(HANG) == 0 and len(said) > room
    assert json.loads(said)["format"] == "coreml"


def waiting(pipe: int) -> int:
    """The number of bytes in a pipe."""
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


def test_a_closed_output_is_named(tmp_path: Path) -> None:
    work = tmp_path / "work"
    models(work)
    code, said = run(work, ["inspect", "first.onnx"], ">&-")
    assert code == 5 and "error[W301]" in said and "standard output" in said
