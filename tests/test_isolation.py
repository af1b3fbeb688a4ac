"""In every call no code of the working folder is executed, no address is looked up, and the
home folder stays as it is.
"""

from __future__ import annotations

import ast
import os
import shutil
import sys
from pathlib import Path

import pytest

import every_command
from batch.models import small
from support import ROOT, Source, sources

# files in the working folder with names of modules; Python itself imports the others of
# its own that are used
TRAPS = (
    "json",
    "random",
    "numpy",
    "onnx",
    "onnx_ir",
    "onnxruntime",
    "openvino",
    "ai_edge_litert",
    "lxml",
    "click",
    "rich",
    "tempfile",
    "socket",
    "logging",
    "queue",
)
# `python -m` finds the package itself by way of the working folder: which cannot be avoided
LAUNCHER_TRAPS = ("converter", "typing", "contextlib", "collections", "enum", "signal")

HOOK = """
import os, sys

def note(*words):
    with open(os.environ["NETCONV_TEST_LOG"], "a") as f:
        print(*words, file=f)

def hook(event, arguments):
    if event.startswith("socket."):
        note("net", event, *map(str, arguments))

sys.addaudithook(hook)
note("process", *sys.orig_argv)
"""


def set_traps(folder: Path, names: tuple[str, ...]) -> None:
    for name in names:
        mark = folder.parent / f"imported-{name}"
        (folder / f"{name}.py").write_text(f"open({str(mark)!r}, 'w').close()\nraise SystemExit\n")


def models(folder: Path) -> list[every_command.Call]:
    small(folder / "first.onnx", 0.1)
    small(folder / "second.onnx", 0.2)
    small(folder / "nets" / "net.onnx")
    (folder / "zhouyi").mkdir()
    return every_command.calls("first.onnx", "second.onnx")


@pytest.mark.slow
def test_commands_import_nothing_of_the_folder_and_connect_to_nothing(tmp_path: Path) -> None:
    """Every command runs in the folder `work`, between traps, with `home` as home folder; `log`
    names the processes and the connections.
    """
    work, home, hook = (tmp_path / n for n in ("work", "home", "hook"))
    for place in (work, home, hook):
        place.mkdir()
    (hook / "sitecustomize.py").write_text(HOOK)
    script = every_command.script(tmp_path)
    calls = models(work)
    set_traps(work, TRAPS + LAUNCHER_TRAPS)
    more = {
        "HOME": str(home),
        "NETCONV_TEST_LOG": str(tmp_path / "log"),
        "PYTHONPATH": f"{ROOT}{os.pathsep}{hook}",
    }
    for call in calls:
        done = every_command.run([str(script), *call.arguments], work, **more)
        assert done.returncode == call.code, f"{call}: {done.stdout}{done.stderr}"
    assert [p.name for p in tmp_path.glob("imported-*")] == []
    assert [str(p) for p in home.rglob("*")] == []
    lines = (tmp_path / "log").read_text().splitlines()
    processes = [line for line in lines if line.startswith("process")]
    for part in ("bin/netconv", "file_child.py", "converter.commands.batch.worker"):
        assert any(part in line for line in processes), f"the hook is not active in {part}"
    addresses = [line for line in lines if line.startswith("net") and " socket.gethost" not in line]
    assert addresses == []


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
@pytest.mark.parametrize("engine", every_command.ENGINES)
def test_engines_connect_to_nothing(tmp_path: Path, engine: str) -> None:
    """Engines are C++ code, whose connections Python does not see."""
    small(tmp_path / "a.onnx")
    trace = tmp_path / "trace"
    script = every_command.script(tmp_path)
    tracer = f"-qqf -o {trace} -e trace=connect,sendto,sendmsg,sendmmsg".split()
    code = "import os, sys; os.execvp('strace', ['strace', *sys.argv[1:]])"
    done = every_command.run(
        ["-c", code, *tracer, sys.executable, str(script), "run", "a.onnx", "--engine", engine],
        tmp_path,
    )
    if "ptrace" in done.stderr:
        pytest.skip("this system does not let strace look")
    assert done.returncode == 0, done.stderr
    assert [line for line in trace.read_text().splitlines() if "AF_INET" in line] == []


@pytest.mark.parametrize("path", ["", ":", "."])
def test_python_m_leaves_the_working_folder(tmp_path: Path, path: str) -> None:
    """As does an empty or relative entry of PYTHONPATH."""
    work = tmp_path / "work"
    work.mkdir()
    models(work)
    set_traps(work, TRAPS)
    more = {"PYTHONPATH": os.pathsep.join([str(ROOT), *([path] if path else [])])}
    module = ["-m", "converter.cli"]
    done = every_command.run([*module, "convert", "first.onnx", "-o", "a.xml"], work, **more)
    assert done.returncode == 0, done.stderr
    done = every_command.run([*module, "batch", "nets", "-t", "onnx", "-o", "out"], work, **more)
    assert done.returncode == 0, done.stderr
    assert [p.name for p in tmp_path.glob("imported-*")] == []


STARTERS = ("multiprocessing", "concurrent.futures.process", "pty", "runpy", "code")


def imported(source: Source) -> set[str]:
    """The modules that a source names in its imports."""
    found = {a.name for n in source.imports if isinstance(n, ast.Import) for a in n.names}
    members = [n for n in source.imports if isinstance(n, ast.ImportFrom) and not n.level]
    return found | {n.module for n in members if n.module}


def test_one_function_makes_command_lines_of_python() -> None:
    """And nothing else starts processes: each that does takes its command from there."""
    for name, source in sources().items():
        modules, calls = imported(source), source.calls
        assert not any(m.split(".")[0] in STARTERS or m in STARTERS for m in modules), name
        assert not any(n.startswith(("os.exec", "os.spawn", "os.posix_spawn")) for n in calls), name
        assert not calls & {"os.system", "os.popen", "os.fork", "ProcessPoolExecutor"}, name
        if name != "io/child.py":
            assert "sys.executable" not in source.text, name
        if any(n.startswith("subprocess.") for n in calls):
            assert {"python_command", "python_environment"} <= calls, name


def test_one_module_imports_engines_that_phone_home() -> None:
    for name, source in sources().items():
        named = [a.name for n in source.imports if isinstance(n, ast.Import) for a in n.names]
        first = {n.split(".")[0] for n in named}
        assert not first & {"openvino", "onnxruntime"} or name == "engines/file_child.py", name
