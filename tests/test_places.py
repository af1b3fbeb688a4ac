"""Files that are somewhere else (standard input, URLs), limits of time, and the line of
progress.
"""

from __future__ import annotations

import http.server
import io
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import converter
from batch.models import endless, small
from converter.cli import app, console, streams, waiting
from converter.errors import ExitCode
from converter.io import progress
from support import HANG, ROOT, run_python

Call = Callable[..., int]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs netconv in an empty folder and return the exit code; its output is in capsys."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["netconv", *arguments])
        console.use(console.Console())
        return app._guarded()

    return run


# --- URLs


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    """a.onnx, and a.xml with a.bin, in a store in memory."""
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed: pip install '.[batch]'")
    found = fsspec.filesystem("memory")
    converter.convert(small(tmp_path / "a.onnx"), tmp_path / "a.xml")
    for name in ("a.onnx", "a.xml", "a.bin"):
        found.pipe_file(f"/nets/{name}", (tmp_path / name).read_bytes())
        (tmp_path / name).unlink()
    x = io.BytesIO()
    np.savez(x, x=np.ones((1, 3, 8, 8), np.float32))
    found.pipe_file("/data/one.npz", x.getvalue())
    yield found
    found.rm("/", recursive=True)


A, XML = "memory://nets/a.onnx", "memory://nets/a.xml"


class Hub(http.server.BaseHTTPRequestHandler):
    """The few answers of a model hub that a file needs."""

    content = b""

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        file = {"type": "file", "path": "model.onnx", "size": len(self.content), "oid": "a" * 40}
        about = {"id": "org/name", "sha": "c" * 40, "siblings": [{"rfilename": "model.onnx"}]}
        if path == "/org/name/resolve/main/model.onnx":
            self._send(self.content)
        elif path.startswith("/api/models/org/name/tree"):
            self._send(json.dumps([file]).encode())
        elif path == "/api/models/org/name":
            self._send(json.dumps(about).encode())
        else:
            self.send_error(404)

    do_HEAD = do_GET

    def _send(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", '"x"')
        self.send_header("X-Repo-Commit", "c" * 40)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.slow
def test_a_model_of_a_hub_is_read(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub", reason="the extra `hub` is not installed")
    Hub.content = small(tmp_path / "a.onnx").read_bytes()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        done = subprocess.run(
            [sys.executable, "-m", "converter.cli", "convert", "hf://org/name/model.onnx", "b.xml"],
            cwd=tmp_path,
            env=os.environ
            | {"PYTHONPATH": str(ROOT), "HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "hub")},
            capture_output=True,
            text=True,
            timeout=HANG,
        )
    finally:
        server.shutdown()
    assert done.returncode == 0, done.stderr
    assert converter.load(tmp_path / "b.xml").inputs[0].name == "x"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["inspect", A], "a.onnx  onnx"),
        (["check", XML], "a.xml: valid"),
        (["diff", A, A], ""),
        (["verify", A, XML, "--data", "memory://data/one.npz"], "same"),
        (["verify", A, A, "--data", "memory://data"], "same"),
        (["run", A, "--data", "memory://data/one.npz"], "one.npz"),
        (["roundtrip", XML, "--via", "onnx"], "numbers: equal"),
    ],
    ids=lambda v: v[0] if isinstance(v, list) else "",
)
def test_inputs_may_be_urls(
    call: Call, store: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    arguments: list[str], said: str,
) -> None:  # fmt: skip
    assert call(*arguments) == 0
    assert said in (out := capsys.readouterr().out) and "/netconv-" not in out
    assert list(tmp_path.iterdir()) == []


def test_results_are_written_to_urls_when_they_are_complete(
    call: Call, store: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = "memory://made/b.xml"
    assert call("convert", A, "-o", made, "--verify", "--native", "off", "--map") == 0
    assert sorted(store.ls("/made", detail=False)) == [
        "/made/b.bin",
        "/made/b.xml",
        "/made/b.xml.map.json",
    ]
    assert "/netconv-" not in capsys.readouterr().out
    assert call("convert", A, "-o", made) == ExitCode.UNWRITABLE
    assert call("convert", XML, "-o", XML, "--force") == ExitCode.USAGE
    assert call("convert", A, "-o", "memory://made/c.foo") == ExitCode.USAGE
    assert call("verify", A, made, "--map", f"{made}.map.json") == 0
    assert call("run", A, "--out", "memory://made/out.npz", "--data", "memory://data/one.npz") == 0
    assert store.exists("/made/out.npz") and not store.exists("/made/c.foo")
    assert list(tmp_path.iterdir()) == []


def test_the_message_names_the_url(
    call: Call, store: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    store.pipe_file("/nets/broken.onnx", b"no model")
    assert call("inspect", "memory://nets/broken.onnx") == ExitCode.UNREADABLE
    assert "memory://nets/broken.onnx" in capsys.readouterr().err
    assert call("inspect", "memory://nets/broken.onnx", "--format", "json") == 4
    where = json.loads(capsys.readouterr().out)["diagnostics"][0]["where"]["file"]
    assert where == "memory://nets/broken.onnx"
    assert call("inspect", "memory://nets/absent.onnx") == ExitCode.UNREADABLE


def test_a_batch_of_a_folder_and_of_a_job_file_at_a_url(
    call: Call, store: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    store.pipe_file("/nets/other.xml", b"<html/>")  # no model
    common = ("--jobs", "1", "--progress", "never")
    assert call("batch", "memory://nets", "-t", "onnx", "-o", "memory://out", *common) == 0
    made = [p for p in store.find("/out") if p.endswith(".onnx")]
    assert len(made) == 2 and all(p.startswith("/out/onnx/memory/") for p in made)
    store.pipe_file("/nets/jobs.toml", b'[[job]]\nmodels = "*.onnx"\nto = "onnx+opset=17"\n')
    assert call("batch", "memory://nets/jobs.toml", "--report", "memory://report", *common) == 0
    assert any("converted/onnx+opset=17" in p for p in store.find("/nets"))
    assert store.exists("/report/index.html")


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "absent://bucket/a.onnx"],
        ["convert", "a.onnx", "-o", "absent://bucket/a.xml"],
        ["run", "a.onnx", "--out", "absent://bucket/out.npz"],
        ["report", "a.json", "-o", "absent://bucket/report.html"],
        ["batch", "absent://bucket", "-t", "onnx", "-o", "made"],
        ["verify", "a.onnx", "a.onnx", "--keep-tensors", "s3://bucket/tensors"],
        ["batch", ".", "-t", "onnx", "--state", "s3://bucket/state"],
        ["inspect", "a.onnx", "--log", "s3://bucket/log"],
    ],
    ids=" ".join,
)
def test_a_url_is_opened_or_refused(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    """Never taken for the name of a folder."""
    pytest.importorskip("fsspec", reason="fsspec is not installed: pip install '.[batch]'")
    small(tmp_path / "a.onnx")
    (tmp_path / "a.json").write_text(
        '{"schema": "netconv/run/1", "version": "1", "command": "x", "exit_code": 0,'
        ' "diagnostics": [], "result": null}'
    )
    before = sorted(tmp_path.iterdir())
    assert call(*arguments) == ExitCode.USAGE
    assert "://bucket" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


# --- standard input


@pytest.mark.parametrize("command", ["inspect", "check", "run"])
def test_standard_input_is_a_file(tmp_path: Path, command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "converter.cli", command, "-"],
        input=small(tmp_path / "a.onnx").read_bytes(),
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=HANG,
    )
    assert (done.returncode, done.stderr) == (0, b"")


# --- limits of time


def test_run_and_verify_end_at_their_limit(tmp_path: Path) -> None:
    """In processes of their own, which end by force where native code does not come back."""
    endless(tmp_path / "a.onnx")
    small(tmp_path / "b.onnx")

    def ended(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "converter.cli", *arguments],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=HANG,
        )
        return done.returncode, done.stderr

    for command in (("run", "a.onnx"), ("verify", "a.onnx", "a.onnx")):
        code, said = ended(*command, "--timeout", "0.5")
        assert code == ExitCode.TIME_LIMIT and "U505" in said
    assert ended("run", "b.onnx", "--timeout", str(HANG))[0] == 0


# signals that meet the bookkeeping of a test runner end it: each in a process of its own
LIMITS = """if True:
    import contextlib, signal, time
    from converter.errors import TimeLimitError
    from converter.io import limits

    def late(seconds, work):
        try:
            with limits.time(seconds):
                work()
        except TimeLimitError:
            return True
        return False
"""
INTERRUPTED = """
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job of the background ignores it
    interrupted = False
    try:
        late(60, lambda: signal.raise_signal(signal.SIGINT))
    except KeyboardInterrupt:
        interrupted = True
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the limit does not need it
    print(interrupted, late(0.05, lambda: time.sleep(60)), limits.timed())
"""
ENDING = """
    limits.GRACE = 60
    for i in range(200):
        late(1e-6 * (1 + i % 40), lambda: sum(range(10 * i)))
    sum(range(100_000))
    print(limits.timed())
"""
LOST = """
    interrupt, calls = limits._interrupt, []

    def lossy():
        calls.append(None)
        if len(calls) > 1:
            interrupt()

    limits._interrupt = lossy
    print(late(0.05, lambda: time.sleep(60)), limits.timed())
"""


def test_an_interruption_is_not_taken_for_the_limit() -> None:
    assert run_python(LIMITS + INTERRUPTED).split() == ["True", "True", "False"]


def test_a_limit_is_kept_wherever_it_comes_to_an_end() -> None:
    """Before the first line, in the middle, after the last: late is late, and nothing comes
    afterwards.
    """
    assert run_python(LIMITS + ENDING).split() == ["False"]


def test_an_interruption_that_gets_lost_is_repeated() -> None:
    """A signal between the last instruction of Python and the call to the system ends neither."""
    assert run_python(LIMITS + LOST).split() == ["True", "False"]


def test_native_code_that_does_not_end_ends_with_the_process() -> None:
    code = (
        "import ctypes, signal\nfrom converter.io import limits\nlimits.GRACE = 0.3\n"
        "with limits.time(0.1):\n"
        "    signal.signal(signal.SIGALRM, signal.SIG_IGN)\n"  # as if nothing came to Python
        f"    ctypes.CDLL(None).sleep({HANG})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert (done.returncode, done.stderr.count("U505")) == (ExitCode.TIME_LIMIT, 1)


# --- the line of progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_step_that_takes_long_is_shown_and_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(waiting, "PATIENCE", 0.0)
    monkeypatch.setattr(waiting, "PERIOD", 0.001)

    def until_shown(text: str) -> None:
        deadline = time.monotonic() + HANG
        while text not in screen.getvalue() and time.monotonic() < deadline:
            time.sleep(0.001)
        assert text in screen.getvalue()

    with waiting.shown(True), progress.step("reading a"):
        until_shown("reading a 0 s")
        with progress.step("writing b"):
            until_shown("writing b")
    assert screen.getvalue().endswith("\r\x1b[K")
    assert progress.current() == ("", 0.0)


@pytest.mark.parametrize("wanted", [True, False])
def test_no_progress_where_it_is_not_seen(monkeypatch: pytest.MonkeyPatch, wanted: bool) -> None:
    screen = io.StringIO() if wanted else Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(waiting, "PATIENCE", 0.0)
    monkeypatch.setattr(waiting, "PERIOD", 0.001)
    with waiting.shown(wanted), progress.step("reading a"):
        time.sleep(0.02)
    assert screen.getvalue() == ""


def test_reading_writing_and_comparing_are_steps(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    small(tmp_path / "a.onnx")
    monkeypatch.setattr(progress, "_steps", Recording(names))
    assert call("convert", "a.onnx", "-o", "b.xml", "--verify", "--native", "off") == 0
    assert names[:3] == ["reading a.onnx", "writing b.xml", "reading b.xml"]
    assert "running both models" in names


class Recording(list[Any]):
    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.names = names

    def append(self, step: Any) -> None:
        self.names.append(step[0])
        super().append(step)


# --- data


def test_arrays_that_are_no_inputs_are_left_out_with_a_note(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small(tmp_path / "a.onnx")
    np.savez(tmp_path / "in.npz", x=np.ones((1, 3, 8, 8), np.float32), labels=np.arange(3))
    assert call("run", "a.onnx", "--data", "in.npz") == 0
    assert "N407" in (said := capsys.readouterr()).err and "labels" in said.err
    assert call("verify", "a.onnx", "a.onnx", "--data", "in.npz") == 0
    assert "no input has the name labels" in capsys.readouterr().out
    np.savez(tmp_path / "in.npz", labels=np.arange(3))
    assert call("run", "a.onnx", "--data", "in.npz") == ExitCode.USAGE
    assert "input 'x' is missing" in capsys.readouterr().err


def test_temporary_files_are_reported_as_their_originals(tmp_path: Path) -> None:
    with streams.uploaded(str(tmp_path / "a")) as path:
        assert path == tmp_path / "a"
    assert streams.with_original_names("nothing to replace") == "nothing to replace"
