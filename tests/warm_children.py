"""Children of netconv that begin with their engine imported: the tests run thousands of files in
engines, each in a process of its own, which would spend most of its time on imports.

A server, this file as a script, imports the packages of one engine and forks for each request.
A forked child is as fresh as a process that has just imported them: it runs the same script with
the same arguments, output, folder, environment and limits, and ends in the same ways. Where it
would not be the same (another environment or limit, no fork on this system, packages that start
threads when they are imported), the child is started as netconv starts it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

CHANGING = "PYTEST_CURRENT_TEST"  # the variable that is another one in each test
# script, and its first argument if that decides -> packages that its process imports anyway
PACKAGES = {
    ("file_child.py", "coreai"): ("numpy", "asyncio", "coreai.authoring", "coreai.runtime"),
    ("file_child.py", "litert"): ("numpy", "ai_edge_litert.interpreter"),
    ("file_child.py", "onnxruntime"): ("numpy", "onnxruntime"),
    ("file_child.py", "openvino"): ("numpy", "openvino"),
    ("worker.py", ""): ("coreai.authoring", "coreai._compiler.ir"),
}
Captured = Callable[..., "subprocess.CompletedProcess[str]"]


class Server:
    """A process that has imported some packages and forks for each request."""

    def __init__(self, packages: tuple[str, ...], environment: dict[str, str]) -> None:
        from converter.io.child import python_command

        self.process = subprocess.Popen(
            python_command(__file__, *packages),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            bufsize=0,
        )
        self.lock = threading.Lock()
        self.fit = self.answer() == "ready"

    def answer(self, timeout: float | None = None) -> Any:
        """Return the next answer; None if there is none in time."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], timeout)[0]:
            return None
        return json.loads(self.process.stdout.readline())

    def run(self, call: list[str], timeout: float) -> subprocess.CompletedProcess[str]:
        assert self.process.stdin is not None
        with tempfile.TemporaryDirectory(prefix="warm-") as folder:
            out, err = (os.path.join(folder, name) for name in ("out", "err"))
            self.process.stdin.write(f"{json.dumps([call, os.getcwd(), out, err])}\n".encode())
            fit, self.fit = self.fit, False  # whoever interrupts this leaves answers unread
            child = self.answer()
            if (code := self.answer(timeout)) is None:
                os.kill(child, signal.SIGKILL)
                self.answer()
            self.fit = fit
            said = [Path(path).read_text(errors="replace") for path in (out, err)]
        if code is None:
            raise subprocess.TimeoutExpired(call, timeout, *said)
        return subprocess.CompletedProcess(call, code, *said)


def surroundings() -> Any:
    """Return the environment and limits that a child takes over from this process."""
    import resource

    limits = [resource.getrlimit(n) for n in (resource.RLIMIT_AS, resource.RLIMIT_CPU)]
    return {k: v for k, v in os.environ.items() if k != CHANGING}, limits


@contextmanager
def warm(run_captured: Captured) -> Iterator[Captured]:
    """`run_captured` with a server for each engine in PACKAGES; it starts other scripts itself."""
    from converter.io.child import python_environment

    servers: dict[tuple[str, str], Server] = {}
    start = surroundings() if hasattr(os, "fork") else None

    def run(script: Path, *arguments: str, timeout: float) -> subprocess.CompletedProcess[str]:
        kinds = ((script.name, arguments[0]), (script.name, ""))
        kind = next((k for k in kinds if k in PACKAGES), None)
        if kind is not None and start is not None and surroundings() == start:
            if kind not in servers:
                servers[kind] = Server(PACKAGES[kind], python_environment())
            server = servers[kind]
            if server.fit and server.lock.acquire(blocking=False):
                try:
                    return server.run([str(script), *arguments], timeout)
                finally:
                    server.lock.release()
        return run_captured(script, *arguments, timeout=timeout)

    try:
        yield run
    finally:
        for server in servers.values():
            server.process.communicate()


def serve(packages: list[str]) -> None:
    """Fork for each line of standard input; a child returns, with the arguments of its script."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    fit = True
    try:
        for name in packages:
            importlib.import_module(name)
    except ImportError:
        fit = False  # the script itself says so
    with suppress(OSError):
        fit = fit and len(os.listdir("/proc/self/task")) == 1
    # a child that ends looks through all that it may free: not through the packages
    gc.collect()
    gc.freeze()
    print(json.dumps("ready" if fit else "unfit"), file=answers, flush=True)
    for line in requests:
        call, folder, out, err = json.loads(line)
        child = os.fork()
        if child == 0:
            requests.close()
            answers.close()
            become(folder, out, err)
            sys.argv = call
            return
        print(json.dumps(child), file=answers, flush=True)
        _, status = os.waitpid(child, 0)
        print(json.dumps(os.waitstatus_to_exitcode(status)), file=answers, flush=True)
    sys.exit(0)


def become(folder: str, out: str, err: str) -> None:
    """Take the folder and the standard streams of a child."""
    os.chdir(folder)
    for number, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, out, os.O_WRONLY | os.O_CREAT),
        (2, err, os.O_WRONLY | os.O_CREAT),
    ):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)


if __name__ == "__main__":
    serve(sys.argv[1:])
    runpy.run_path(sys.argv[0], run_name="__main__")
