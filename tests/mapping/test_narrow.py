"""Numbers of 64 bits for targets with floats of 32: refused where they do not survive, wherever a
layer would hold them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.errors import UnsupportedError
from converter.graph.build import new_model

TARGETS = {
    "openvino+ir=7": ".xml",
    "coreml": ".mlmodel",
    "zhouyi": ".txt",
    "nnapi": ".nnapi.json",
    "tflite": ".tflite",
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["Add", "Sub", "Mul", "Pow", "Max", "Min"])
@pytest.mark.parametrize("shape", [[], [3]], ids=["one number", "a vector"])
def test_a_number_beyond_float32_is_refused(
    kind: str, shape: list[int], target: str, tmp_path: Path
) -> None:
    m, b = new_model()
    b.output(b.op(kind, b.input("x", ir.DataType.DOUBLE, [3]), np.full(shape, 1e300)))
    with pytest.raises(UnsupportedError) as e:
        converter.save(Model(m, "test"), tmp_path / f"m{TARGETS[target]}", target)
    assert {d.code for d in e.value.diagnostics} == {"X204"}
