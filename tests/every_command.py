"""A call of each command, and of each engine that is installed, on small models: for tests of
properties that every call has.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from converter.cli.app import COMMANDS
from support import HANG, ROOT

ENGINES = ["onnxruntime", "reference"] + [
    name
    for name, module in (("openvino", "openvino"), ("litert", "ai_edge_litert"))
    if find_spec(module)
]


@dataclass(frozen=True)
class Call:
    """A command line without `netconv`, and the exit code it ends with."""

    arguments: tuple[str, ...]
    code: int = 0

    def __str__(self) -> str:
        return " ".join(self.arguments)


def calls(first: str, second: str) -> list[Call]:
    """One call or more of each command. `first` and `second` are models of the same structure and
    other numbers; the folder `nets` holds models. The calls need the results of those before.
    """
    made = [
        Call(("convert", first, "-o", "made.onnx", "-t", "onnx", "--verify")),
        Call(("convert", first, "-o", "made.mlmodel", "--verify")),
        Call(("convert", first, "-o", "made.mlpackage")),
        Call(("convert", first, "-o", "zhouyi/made.txt", "-t", "zhouyi")),
        Call(("convert", first, "-o", "made.nnapi.json")),
        Call(("convert", first, "-o", "made.xml", "--verify", "--map")),
        Call(("convert", first, "-o", "made.tflite", "--verify")),
        Call(("quantize", first, "-o", "int8.tflite", "--data", "random")),
        Call(("quantize", first, "-o", "half.onnx", "--weights", "f16")),
        Call(("convert", first, "-o", "carried.onnx", "--allow-custom")),
        Call(("check", first)),
        Call(("check", first, "-t", "zhouyi")),
        Call(("inspect", first, "-vv")),
        *(Call(("run", first, "--engine", name)) for name in ENGINES),
        Call(("run", first, "--profile")),
        Call(("diff", first, second), 1),
        Call(("verify", first, second, "--tensors", "all", "--report", "verify.html"), 1),
        Call(("verify", first, "made.onnx", "--native", "on", "--certificate", "made.json")),
        Call(("certify-check", "made.json")),
        Call(("view", first, second, "-o", "view.html", "--verify")),
        Call(("reduce", first, second, "-o", "reduced"), 1),
        Call(("extract", first, "-o", "part.onnx", "--inputs", "x:1,3,8,8")),
        Call(("roundtrip", first, "--via", "openvino")),
        Call(("batch", "nets", "-t", "onnx", "-t", "openvino", "-o", "out", "--verify")),
        Call(("batch", "nets", "-t", "onnx", "-o", "again", "-v", "--report", "report")),
        Call(("report", "report/results.json")),
        Call(("report", "report/results.json", "--to", "md")),
        Call(("report", "report/results.json", "--to", "html", "-o", "report.html")),
        Call(("formats", "tflite")),
        Call(("ops", "zhouyi")),
        Call(("explain", "R103")),
        Call(("explain", "pipeline", "nnapi", "--of", first)),
        Call(("env",)),
        Call(("completion", "bash")),
    ]
    assert {c.arguments[0] for c in made} == set(COMMANDS), "a command without a call"
    return made


def script(folder: Path) -> Path:
    """A script as an installer makes it for `netconv`, in a folder of its own."""
    path = folder / "bin" / "netconv"
    path.parent.mkdir()
    path.write_text("import sys\nfrom converter.cli import main\nsys.exit(main())\n")
    return path


def run(command: list[str], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder. Python is not asked to keep away from the folder."""
    left_out = (
        "PYTHONSAFEPATH",
        "ORT_DISABLE_TELEMETRY",
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
    )
    environment = {k: v for k, v in os.environ.items() if k not in left_out}
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT), **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=HANG,
    )
