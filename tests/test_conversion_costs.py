"""The costs of a small conversion, as counts, which are the same on every machine: the modules and
functions that it uses, and how often an operator is lowered until it is written.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support import HANG, ROOT, run_python

SAMPLE = ROOT / "samples" / "digits_cnn.mlmodel"
# target: file, most modules, most functions, lowerings of an operator that is written (median)
MOST = {
    "onnx": ("m.onnx", 95, 550, 0),
    "openvino": ("m.xml", 114, 712, 2),
    "openvino+ir=7": ("m.xml", 117, 741, 2),
    "coreml": ("m.mlmodel", 99, 680, 2),
    "mlprogram": ("m.mlpackage", 114, 715, 2),
    "tflite": ("m.tflite", 132, 885, 3),  # before and after the change of layout, and written
    "nnapi": ("m.nnapi.json", 142, 1004, 2),
    "zhouyi": ("m.txt", 117, 781, 2),
}


def cost_of(target: str, folder: Path) -> dict[str, float]:
    """Count the work of converting the sample in a process of its own."""
    command = [sys.executable, str(ROOT / "tests" / "conversion_costs.py")]
    command += [str(SAMPLE), str(folder / MOST[target][0]), target]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    "target",
    [t if t in ("onnx", "nnapi") else pytest.param(t, marks=pytest.mark.slow) for t in MOST],
)
def test_a_small_conversion_uses_few_modules_and_functions(target: str, tmp_path: Path) -> None:
    found, (_, modules, functions, lowered) = cost_of(target, tmp_path), MOST[target]
    assert found["modules"] <= modules and found["functions"] <= functions, found
    assert found["lowered"] <= lowered, found


def test_a_command_imports_nothing_that_it_does_not_use(tmp_path: Path) -> None:
    """Neither OpenSSL nor the modules of onnx and protobuf for text, archives and networks."""
    code = f"""
import sys
sys.argv = ["netconv", "convert", {str(SAMPLE)!r}, "-o", {str(tmp_path / "m.onnx")!r}, "-q"]
from converter.cli import main
try:
    main()
finally:
    loaded = {{n for n, m in sys.modules.items() if type(m).__name__ != "_Unused"}}
    print(*loaded)
"""
    loaded = set(run_python(code).split())
    unused = {"_hashlib", "argparse", "email", "tarfile", "sympy", "google.protobuf.json_format"}
    unused |= {"google.protobuf.internal.python_message", "google.protobuf.descriptor_pb2"}
    unused |= {f"converter.formats.coreml.neuralnetwork.rules.{n}" for n in ("recurrent", "resize")}
    unused |= {f"converter.passes.decompositions.{n}" for n in ("classical", "sampling")}
    unused |= {"converter.passes.fix_inputs", "fractions", "pickle", "bz2", "csv"}
    assert "onnx" in loaded and not unused & loaded
