"""Layers with one fault, each refused with the reason and nothing else; operators that a version
lacks.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import converter
from converter.api import Model
from converter.errors import MappingError, UnsupportedError
from converter.formats.openvino.opset.rules.fields import parse_shape
from converter.io.limits import MOST_AXES
from layers import cases
from layers.altered import altered_layer
from layers.models import model_of, network_of

Change = str | Callable[[cases.Case], Any]


def constant(index: int, *values: Any) -> Change:
    """Make an input a constant with these integers."""

    def change(case: cases.Case) -> None:
        case.inputs[index] = cases.Tensor.of(np.array(values, np.int64), True)

    return change


def more(*arrays: Any) -> Change:
    """Add inputs."""
    return lambda case: case.inputs.extend(cases.Tensor.of(a, True) for a in arrays)


def shaped(*shape: int) -> Change:
    """Give input 0 another shape."""
    return lambda case: setattr(case.inputs[0], "shape", shape)


def leaving(*shape: int) -> Change:
    """Declare another shape for output 0."""
    return lambda case: setattr(case.outputs[0], "shape", shape)


def cut_weights(case: cases.Case) -> None:
    """Leave half of the blob."""
    blob = case.weights["weights"]
    blob.values = blob.values[: blob.values.size // 2]
    blob.shape = blob.values.shape


ONE = np.float32(1)
# file, the change (see altered.py, or a function), the message
REFUSED: list[tuple[str, Change, str]] = [
    ("legacy/Convolution", lambda case: case.outputs.clear(), "output port 0 is absent"),
    (
        "legacy/Eltwise-operation-sum-coeff",
        "coeff='1'",
        "1 coefficients are given for 2 operands",
    ),
    ("legacy/Convolution", "group='1.5'", "group='1.5' is not a valid value"),
    ("legacy/Convolution", "kernel='2,2,2'", "a window of 3 axes does not fit 2 spatial axes"),
    ("legacy/Convolution", "auto_pad='largest'", "auto_pad='largest' is not known"),
    ("legacy/Convolution-by-axis", "-kernel-x", "required attribute 'kernel' is absent"),
    ("legacy/RNNCell", "activations='softmax'", "activations='softmax' contains an unknown"),
    ("legacy/TopK", "sort='largest'", "sort must be value, index or none"),
    ("legacy/ArgMax-whole", shaped(), "without an axis, data need at least 1 axis"),
    (
        "legacy/Deconvolution",
        leaving(1, 2, 40, 40),
        "the output port is larger than a deconvolution can produce",
    ),
    ("legacy/BinaryConvolution", "no weights", "the blob 'weights' is absent or too small"),
    ("legacy/BinaryConvolution", cut_weights, "the blob 'weights' is absent or too small"),
    ("legacy/CTCGreedyDecoder", lambda case: case.inputs.pop(), "takes 2 to 2 inputs, got 1"),
    ("legacy/Tile", "-tiles", "required attribute 'tiles' is absent"),
    ("opset/DetectionOutput", "keep_top_k='-2'", "keep_top_k='-2' is not a valid value"),
    ("opset/ReorgYolo", "stride='2,3'", "stride='2,3' is not a valid value"),
    ("opset/Clamp", "type 0 bool", "bounds must be numeric"),
    ("opset/Convolution", "auto_pad='largest'", "auto_pad='largest' is not known"),
    ("opset/IRDFT", constant(1), "the axes are empty"),
    ("opset/DFT", constant(1), "the axes are empty"),
    ("opset/RDFT", more(np.array([3, 4])), "2 sizes are given for 1 axes"),
    ("opset/IRDFT", more(np.array([12])), "a signal size larger than the data is not supported"),
    ("opset/MVN", constant(1), "the axes are empty"),
    ("opset/MVN-opset1", shaped(24), "the axes are empty"),
    ("opset/AvgPool", "rounding_type='up'", "rounding_type='up' is not known"),
    ("opset/GRUCell", "activations='sigmoid,softmax'", "activation 'softmax' is not known"),
    ("opset/RNNCell-hardsigmoid", "activations_alpha='1,2'", "2 parameters do not fit the activ"),
    ("opset/LSTMCell", more(np.zeros((1, 12), np.float32)), "peepholes are not supported"),
    ("opset/Interpolate-opset1-grows", "mode='bicubic'", "mode='bicubic' is not supported in op"),
    ("opset/Interpolate-opset1-grows", "mode='area'", "mode='area' is not supported"),
    ("opset/Interpolate-linear", "mode='lanczos'", "mode='lanczos' is not known"),
    (
        "opset/Interpolate-linear",
        "coordinate_transformation_mode='middle'",
        "coordinate_transformation_mode='middle' with mode='linear' is not supported",
    ),
    (
        "opset/Interpolate-antialias-rank-5",
        "flip 1",
        "mode='linear' with these options needs a constant size",
    ),
    ("opset/Unsqueeze", lambda case: case.inputs.pop(), "inputs are invalid: Unsqueeze"),
    ("opset/Eye-batch", constant(3, [2]), "inputs are invalid: Concat"),
    ("opset/Interpolate-linear", constant(1, 3), "1 sizes are given for 2 axes"),
    ("opset/Reshape", constant(1, [2, 3]), "a shape must be a vector"),
    ("opset/Split", "num_splits='9'", "num_splits=9, but there are 2 outputs"),
    ("opset/Split", shaped(2, 7), "7 elements cannot be split into 2 equal parts"),
    ("opset/Broadcast-explicit", lambda case: case.inputs.pop(), "the axes mapping is absent"),
    ("opset/ExtractImagePatches", "sizes='30,30'", "the window is larger than the image"),
    (
        "opset/ScaledDotProductAttention-mask",
        more(ONE, np.ones((1, 1), np.float32)),
        "attention sinks are not supported",
    ),
    ("opset/StridedSlice", constant(3, 1), "begin, end and strides must have the same length"),
]


def changed(file: str, change: Change) -> cases.Case:
    case = cases.read(cases.FOLDER / f"{file}.toml")
    if isinstance(change, str):
        return altered_layer(case, change) if change else case
    change(case)
    return case


@pytest.mark.parametrize(
    ("file", "change", "message"), [pytest.param(*r, id=f"openvino-{r[0]}-{r[2]}") for r in REFUSED]
)
def test_a_layer_with_a_fault_is_refused(file: str, change: Change, message: str) -> None:
    folder, case = file.partition("/")[0], changed(file, change)
    with pytest.raises(UnsupportedError) as e:
        model_of(folder).lift(network_of(folder, case))
    (found,) = e.value.diagnostics
    assert message in found.message and found.where.layer == "layer"


# file, the change, the message
NOT_IN_V10: list[tuple[str, Change, str]] = [
    ("opset/ROIAlign-aligned_mode-half_pixel_for_nn", "", "half_pixel needs opset9"),
    ("opset/Unique", "", "Unique needs version 10"),
]


@pytest.mark.parametrize(("file", "change", "message"), NOT_IN_V10)
def test_an_operator_that_v10_lacks_is_refused(
    file: str, change: Change, message: str, tmp_path: Path
) -> None:
    model = Model.of(model_of("opset").lift(network_of("opset", changed(file, change))))
    with pytest.raises(UnsupportedError, match=message):
        model.save(tmp_path / "m.xml", "openvino+ir=10")


@pytest.mark.parametrize(("domain", "version"), [("mine", "mine"), ("com.acme", "extension")])
def test_a_carried_operator_of_openvino_has_its_own_opset(
    domain: str, version: str, tmp_path: Path
) -> None:
    x, y, z = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xyz")
    nodes = [helper.make_node("Warp", ["x"], ["y"], domain=domain)]
    nodes += [helper.make_node("Relu", ["y"], ["z"])]
    graph = helper.make_graph(nodes, "g", [x], [z], value_info=[y])
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid(domain, 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    converter.convert(tmp_path / "m.onnx", tmp_path / "m.xml", allow_custom=True)
    assert f'type="Warp" version="{version}"' in (tmp_path / "m.xml").read_text()


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("1,3,?,1..4", [1, 3, None, None]),
        (" 2 , -1", [2, None]),
        ("..5,7,0", [None, 7, 0]),
        ("", []),
        ("...", None),
    ],
)
def test_shapes_of_openvino_may_be_dynamic(text: str, shape: list[int | None] | None) -> None:
    assert parse_shape(text) == shape


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,x", "'x' is not a valid dimension"),
        ("1.5", "'1.5' is not a valid dimension"),
        (",".join(["1"] * (MOST_AXES + 1)), "dimensions are too many"),
    ],
)
def test_other_shapes_of_openvino_are_refused(text: str, message: str) -> None:
    with pytest.raises(MappingError, match=message):
        parse_shape(text)
