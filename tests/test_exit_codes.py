"""Exit codes: a file with invalid content is unreadable (4), whichever command reads it; of several
codes the most severe counts.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import every_command
from converter import api
from converter.errors import (
    INVALID,
    SEVERITY,
    Diagnostic,
    ExitCode,
    ReadError,
    UnsupportedError,
    most_severe,
    refused_file,
)
from converter.formats.coreml.proto import Model_pb2


def few_weights(path: Path) -> Path:
    """An innerProduct from 4 to 3 channels with 15 weights."""
    model = Model_pb2.Model(specificationVersion=4)
    for feature, name, size in (
        (model.description.input, "x", 4),
        (model.description.output, "y", 3),
    ):
        kind = feature.add(name=name).type.multiArrayType
        kind.shape.append(size)
        kind.dataType = kind.FLOAT32
    network = model.neuralNetwork
    layer = network.layers.add(name="ip", input=["x"], output=["y"])
    layer.innerProduct.inputChannels, layer.innerProduct.outputChannels = 4, 3
    layer.innerProduct.weights.floatValue.extend([1.0] * 15)
    file = path / "weights.mlmodel"
    file.write_bytes(model.SerializeToString())
    return file


def onnx_file(path: Path, node: onnx.NodeProto, *constants: onnx.TensorProto) -> Path:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [x], [y], [*constants])
    file = path / "net.onnx"
    file.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    )
    return file


def wrong_axis(path: Path) -> Path:
    return onnx_file(path, helper.make_node("Softmax", ["x"], ["y"], axis=7))


def wrong_sizes(path: Path) -> Path:
    weights = numpy_helper.from_array(np.ones((3, 5), np.float32), "w")
    return onnx_file(path, helper.make_node("MatMul", ["x", "w"], ["y"]), weights)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("made", [few_weights, wrong_axis, wrong_sizes])
def test_invalid_content_is_unreadable(tmp_path: Path, made: object) -> None:
    file = made(tmp_path)  # type: ignore[operator]
    with pytest.raises(ReadError) as refused:
        api.load(file)
    assert {d.code for d in refused.value.diagnostics} <= INVALID
    script = str(every_command.script(tmp_path))
    for command in (
        ["convert", file.name, "-o", "out.onnx", "--force"],
        ["convert", file.name, "-o", "out.xml"],
        ["check", file.name, "-t", "onnx"],
        ["check", file.name],
        ["inspect", file.name],
        ["run", file.name],
        ["batch", ".", "-t", "onnx", "-o", "out"],
    ):
        done = every_command.run([script, *command], tmp_path)
        assert done.returncode == 4, f"{command}: {done.stdout}{done.stderr}"


def test_an_invalid_layer_outweighs_an_unsupported_one() -> None:
    unsupported, invalid = Diagnostic("X201", "no such layer"), Diagnostic("R103", "too short")
    unknown = Diagnostic("R111", "unknown attribute")
    assert isinstance(refused_file(UnsupportedError([unsupported, invalid])), ReadError)
    for known in (unsupported, unknown, Diagnostic("R103", "a detail", "warning")):
        assert isinstance(refused_file(UnsupportedError([known])), UnsupportedError)


def test_the_most_severe_code_counts() -> None:
    assert [int(c) for c in SEVERITY] == [70, 130, 5, 2, 4, 3, 7, 8, 6, 1, 9, 0]
    assert {*SEVERITY} == {*ExitCode}
    assert most_severe([]) == 0
    assert most_severe([9, 1, 4, 3]) == 4
    assert most_severe([9, 1]) == 1
    assert most_severe([8, 7, 6]) == 7


@pytest.mark.parametrize(
    ("codes", "expected"), [([9, 4, 3], 4), ([9, 1], 1), ([9, 0], 9), ([3, 5], 5), ([4, 130], 130)]
)
def test_a_report_ends_with_the_most_severe(
    tmp_path: Path, codes: list[int], expected: int
) -> None:
    for number, code in enumerate(codes):
        data = {
            "schema": "netconv/run/1",
            "command": "convert",
            "exit_code": code,
            "diagnostics": [],
            "result": None,
        }
        (tmp_path / f"{number}.json").write_text(json.dumps(data))
    files = [f"{n}.json" for n in range(len(codes))]
    script = str(every_command.script(tmp_path))
    assert every_command.run([script, "report", *files], tmp_path).returncode == expected
