"""Spellings of ONNX that engines read differently: one form for all of them, or a warning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime import InferenceSession

import converter

X = np.arange(6, dtype=np.float32)


def written_again(text: str, path: Path) -> Path:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    onnx.save(model, path / "m.onnx")
    converter.convert(path / "m.onnx", path / "again.onnx")
    return path / "again.onnx"


def computed(path: Path, **feeds: Any) -> Any:
    return InferenceSession(path).run(None, feeds)[0]


@pytest.mark.parametrize("end", [2**31 - 1, 2**63 - 1])
def test_backwards_to_the_largest_integer_is_to_the_first_element(end: int, tmp_path: Path) -> None:
    again = written_again(
        f"""g (float[6] x) => (float[n] y)
        <int64[1] start = {{4}}, int64[1] end = {{{end}}}, int64[1] axis = {{0}},
        int64[1] step = {{-2}}> {{ y = Slice (x, start, end, axis, step) }}""",
        tmp_path,
    )
    for path in (tmp_path / "m.onnx", again):
        np.testing.assert_array_equal(computed(path, x=X), [4, 2, 0])
    found = converter.load(tmp_path / "m.onnx")
    assert list(found.ir.graph.outputs[0].shape or ()) == [3]
    np.testing.assert_array_equal(found.run({"x": X})["y"], [4, 2, 0])
    converter.save(found, tmp_path / "m.xml")
    np.testing.assert_array_equal(converter.load(tmp_path / "m.xml").run({"x": X})["y"], [4, 2, 0])


@pytest.mark.parametrize(
    ("node", "size"),
    [
        (
            "MaxPool <kernel_shape = [3, 3], strides = [2, 2], dilations = [2, 2], "
            'auto_pad = "S"> (x)',
            5,
        ),
        ('ConvTranspose <strides = [3, 3], auto_pad = "S"> (x, w)', 27),
        ('AveragePool <kernel_shape = [1, 1], strides = [3, 3], auto_pad = "S"> (x)', 3),
        ('LpPool <kernel_shape = [1, 1], strides = [3, 3], auto_pad = "S"> (x)', 3),
    ],
)
def test_different_results_of_onnxruntime_are_noted(node: str, size: int, tmp_path: Path) -> None:
    node = node.replace('"S"', '"SAME_UPPER"')
    weights = "<float[1,1,2,2] w = {1, 1, 1, 1}>" if "w)" in node else ""
    again = written_again(
        f"g (float[1,1,9,9] x) => (float[1,1,h,w] y) {weights} {{ y = {node} }}", tmp_path
    )
    (note,) = converter.load(tmp_path / "m.onnx").notes
    assert note.code == "X213" and "onnxruntime" in note.message
    x = np.ones((1, 1, 9, 9), np.float32)
    assert computed(again, x=x).shape == (1, 1, size, size)
    assert converter.load(again).notes == []


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_an_average_begins_at_the_first_element(mode: str, tmp_path: Path) -> None:
    """As the formula of the specification says; onnxruntime takes 1 and 4 for SAME_UPPER."""
    pool = f'AveragePool <kernel_shape = [1], strides = [3], auto_pad = "{mode}"> (x)'
    again = written_again(f"g (float[1,1,6] x) => (float[1,1,n] y) {{ y = {pool} }}", tmp_path)
    np.testing.assert_array_equal(computed(again, x=X[None, None]), [[[0, 3]]])
    assert len(converter.load(tmp_path / "m.onnx").notes) == (mode == "SAME_UPPER")


@pytest.mark.parametrize("attributes", ["strides = [2, 2]", "dilations = [1, 1]"])
def test_padding_that_all_engines_read_alike_needs_no_warning(
    attributes: str, tmp_path: Path
) -> None:
    pool = f'MaxPool <kernel_shape = [3, 3], {attributes}, auto_pad = "SAME_LOWER"> (x)'
    written_again(f"g (float[1,1,9,9] x) => (float[1,1,h,w] y) {{ y = {pool} }}", tmp_path)
    assert converter.load(tmp_path / "m.onnx").notes == []
