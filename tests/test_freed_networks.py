"""Networks that are no longer used are freed: their weights are mapped files."""

from __future__ import annotations

import gc
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

import converter
from support import SAMPLES

TARGETS = {
    "onnx": ".onnx",
    "openvino": ".xml",
    "openvino+ir=7": ".xml",
    "coreml": ".mlmodel",
    "mlprogram": ".mlpackage",
    "tflite": ".tflite",
    "nnapi": ".nnapi.json",
    "zhouyi": ".txt",
}
DYNAMIC = """<ir_version: 9, opset_import: ["": 18]>
main (float[N,3,H,W] x) => (float[N,3,A,B] y)
  <int64[1] two = {2}, int64[2] front = {0, 1}, int64[2] back = {2, 3}> {
    shape = Shape(x)
    outer = Gather<axis=0>(shape, front)
    inner = Gather<axis=0>(shape, back)
    twice = Mul(inner, two)
    sizes = Concat<axis=0>(outer, twice)
    y = Resize<coordinate_transformation_mode="asymmetric", nearest_mode="floor">(x, , , sizes) }"""
STATIC = ("nnapi", "zhouyi", "openvino+ir=7")


def graphs() -> int:
    gc.collect()
    return sum(type(o) is ir.Graph for o in gc.get_objects())


def test_a_conversion_leaves_nothing(tmp_path: Path) -> None:
    source = tmp_path / "source.onnx"
    onnx.save(onnx.parser.parse_model(DYNAMIC), source)

    def convert(target: str) -> None:
        options = {"inputs": {"x": [1, 3, 8, 8]}} if target in STATIC else {}
        written = tmp_path / f"{target}{TARGETS[target]}"
        converter.convert(source, written, target=target, force=True, **options)
        converter.load(written)

    def left(*targets: str) -> int:
        before = graphs()
        for target in targets:
            convert(target)
        return graphs() - before

    for target in TARGETS:  # fills caches
        convert(target)
    # counting looks at each object of the process, so it is not done for each target
    assert left(*TARGETS) == 0, {t: left(t) for t in TARGETS}


@pytest.mark.parametrize("sample", ["digits_cnn.mlmodel", "digits_lstm.mlmodel"])
def test_a_comparison_leaves_nothing(sample: str) -> None:
    path = SAMPLES / sample
    converter.verify(path, path)
    before = graphs()
    converter.verify(path, path)
    assert graphs() == before
