"""Other tools, each with the command for the one step that it shares with netconv."""

from __future__ import annotations

import importlib.util
import sys
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
SLIM = "import sys, onnxslim; onnxslim.slim(sys.argv[1], sys.argv[2], no_shape_infer=False)"
SIM = (
    "import sys, onnx, onnxsim; model, ok = onnxsim.simplify(sys.argv[1]); assert ok; "
    "onnx.save(model, sys.argv[2])"
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


def peers(folder: Path) -> Iterator[Peer]:
    resnet, mlmodel = folder / "resnet50.onnx", folder / "from" / "resnet50.mlmodel"
    table = (
        (
            "openvino",
            "ovc",
            "ONNX to OpenVINO IR 11",
            "openvino",
            "model.xml",
            OVC,
            (resnet, folder / "bert_base.onnx"),
        ),
        (
            "coremltools",
            "coremltools",
            "Core ML read and written",
            "coreml",
            "model.mlmodel",
            COREML,
            (mlmodel,),
        ),
        (
            "onnxslim",
            "onnxslim",
            "ONNX read, shapes inferred, written",
            "onnx",
            "model.onnx",
            SLIM,
            (resnet, folder / "bert_base.onnx"),
        ),
        (
            "onnxsim",
            "onnxsim",
            "ONNX read, shapes inferred, written",
            "onnx",
            "model.onnx",
            SIM,
            (resnet, folder / "bert_base.onnx"),
        ),
    )
    (folder / "peer").mkdir(exist_ok=True)
    for module, name, step, target, output, code, sources in table:
        missing = "" if importlib.util.find_spec(module) else f"not installed: {module}"
        for source in sources:
            command = [sys.executable, "-c", code, str(source), str(folder / "peer" / output)]
            yield Peer(f"{name} {source.stem}", step, source, target, output, command, missing)
