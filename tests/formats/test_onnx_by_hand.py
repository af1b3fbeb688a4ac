"""Graphs that were built by hand, in any spelling that ONNX allows, are saved as if they had been
read.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

import converter
from converter.errors import ConverterError, ReadError
from converter.graph.invariants import violations

TEXT = """<ir_version: 8, opset_import: ["" : 12]>
by_hand (float[1,3,7,7] x) => (float[1,4,4,4] y) <float[4,3,3,3] w> {
  kept, mask = Dropout(x)
  same = Identity(kept)
  turned = Conv <auto_pad="SAME_UPPER", strides=[2,2]> (same, w)
  y = Softmax(turned)
}"""


def by_hand() -> onnx.ModelProto:
    proto = onnx.parser.parse_model(TEXT)
    weights = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    del proto.graph.initializer[:]
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    return proto


@pytest.mark.parametrize("name", ["model.onnx", "model.xml", "model.txt", "model.mlmodel"])
def test_saved_and_computed(name: str, tmp_path: Path) -> None:
    proto, x = by_hand(), np.random.default_rng(1).normal(size=(1, 3, 7, 7)).astype(np.float32)
    model = converter.Model(ir.from_proto(proto), "onnx")
    assert violations(model.ir)
    model.save(tmp_path / name)
    (found,) = converter.load(tmp_path / name).run({"x": x}).values()
    (wanted,) = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    ).run(None, {"x": x})
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert model.ir.graph.opset_imports[""] == 12  # the model itself stays as it was built


def test_errors_of_graphs_are_reported() -> None:
    proto = by_hand()
    proto.graph.node[2].attribute.append(onnx.helper.make_attribute("colour", 3))
    with pytest.raises(ConverterError, match="colour") as caught:
        converter.Model(ir.from_proto(proto), "onnx").save("never.xml")
    assert isinstance(caught.value, ReadError) and not Path("never.xml").exists()
