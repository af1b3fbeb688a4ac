"""Other tools, each with the command for the one step that it shares with netconv."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OVC = (
    "import sys, openvino as ov; ov.save_model(ov.convert_model(sys.argv[1]), sys.argv[2], "
    "compress_to_fp16=False)"
)
COREML = (
    "import sys, coremltools as ct; ct.utils.save_spec(ct.utils.load_spec(sys.argv[1]), "
    "sys.argv[2])"
)
PROGRAM = (
    "import shutil, sys, onnx2coreml; shutil.rmtree(sys.argv[2], ignore_errors=True); "
    "onnx2coreml.convert(sys.argv[1], compute_precision='fp32').save(sys.argv[2])"
)
CORE_AI = (
    "import pathlib, shutil, sys, coreai_onnx; shutil.rmtree(sys.argv[2], ignore_errors=True); "
    "coreai_onnx.convert(pathlib.Path(sys.argv[1])).save_asset(pathlib.Path(sys.argv[2]))"
)
SLIM = "import sys, onnxslim; onnxslim.slim(sys.argv[1], sys.argv[2], no_shape_infer=False)"
SIM = (
    "import sys, onnx, onnxsim; model, ok = onnxsim.simplify(sys.argv[1]); assert ok; "
    "onnx.save(model, sys.argv[2])"
)
SIM_PROGRAM = (
    "import shutil, sys, onnx, onnxsim; shutil.rmtree(sys.argv[2], ignore_errors=True); "
    "onnxsim.export_coreml(onnx.load(sys.argv[1]), sys.argv[2])"
)


@dataclass(frozen=True)
class Peer:
    """`command` and `netconv convert source -t target` do the same step."""

    name: str
    step: str
    source: Path
    target: str
    output: str
    command: list[str]
    missing: str = ""


# module, tool, step, netconv's target, output, command
_TABLE = (
    ("openvino", "ovc", "ONNX to OpenVINO IR 11", "openvino", "model.xml", OVC),
    ("onnx2coreml", "onnx2coreml", "ONNX to ML Program", "mlprogram", "model.mlpackage", PROGRAM),
    ("onnxsim", "onnxsim.export_coreml", "ONNX to ML Program", "mlprogram", "model.mlpackage",
     SIM_PROGRAM),
    ("coreai_onnx", "coreai-onnx", "ONNX to Core AI", "coreai", "model.aimodel", CORE_AI),
    ("coremltools", "coremltools", "Core ML read and written", "coreml", "model.mlmodel", COREML),
    ("onnxslim", "onnxslim", "ONNX read, shapes inferred, written", "onnx", "model.onnx", SLIM),
    ("onnxsim", "onnxsim", "ONNX read, shapes inferred, written", "onnx", "model.onnx", SIM),
)  # fmt: skip


def peers(folder: Path, python: str) -> Iterator[Peer]:
    """Yield the steps of the tools; `python` is the interpreter that has their packages."""
    resnet, mlmodel = folder / "resnet50.onnx", folder / "from" / "resnet50.mlmodel"
    (folder / "peer").mkdir(exist_ok=True)
    for module, name, step, target, output, code in _TABLE:
        have = subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False)
        missing = f"not installed: {module}" if have.returncode else ""
        for source in (mlmodel,) if target == "coreml" else (resnet, folder / "bert_base.onnx"):
            command = [python, "-c", code, str(source), str(folder / "peer" / output)]
            yield Peer(f"{name} {source.stem}", step, source, target, output, command, missing)
