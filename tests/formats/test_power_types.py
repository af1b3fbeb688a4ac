"""Powers whose exponent has another type than the base, in every format."""

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
    "onnx": "onnx",
    "openvino": "xml",
    "openvino+ir=7": "xml",
    "coreml": "mlmodel",
    "mlprogram": "mlpackage",
    "tflite": "tflite",
    "nnapi": "nnapi.json",
    "zhouyi": "txt",
}
CASES = {
    "integers of reals": (np.float32([1, 2, 3]), np.int64([2, 5, -1])),
    "fractions of integers": (np.int32([4, 9, 16]), np.float32([0.5, 1.5, 0.5])),
    "integers of other integers": (np.int32([4, 9, 16]), np.int64([1, 2, 3])),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_the_exponent_keeps_its_fraction(case: str, target: str, tmp_path: Path) -> None:
    base, exponent = CASES[case]
    model, b = new_model()
    x, y = (
        b.input(n, ir.DataType.from_numpy(v.dtype), [3]) for n, v in (("x", base), ("y", exponent))
    )
    b.output(b.op("Pow", x, y, name="z"))
    written = tmp_path / f"m.{TARGETS[target]}"
    if target == "nnapi" and case == "integers of other integers":
        with pytest.raises(UnsupportedError, match="POW: base must be"):
            converter.save(Model(model, "onnx"), written, target)
        return
    converter.save(Model(model, "onnx"), written, target)
    read = converter.load(written)
    (found,) = read.run({"x": base, "y": exponent}).values()
    wanted = (base.astype(float) ** exponent).astype(base.dtype)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    for node in read.ir.graph:
        if target == "mlprogram" and node.op_type == "Pow":
            assert len({v.dtype for v in node.inputs if v is not None}) == 1
