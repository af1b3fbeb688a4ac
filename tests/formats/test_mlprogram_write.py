"""ML Programs as they are written: what a file holds, byte by byte where that is told, and what it
computes, by formulas.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

import converter
from converter.errors import ConverterError, UnsupportedError
from converter.formats.coreml_proto import Model_pb2

F = np.float32
RNG = np.random.default_rng(18)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(F)


def network(
    path: Path,
    nodes: list[Any],
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    dtype: int = T.FLOAT,
    **constants: Any,
) -> Path:
    graph = h.make_graph(
        nodes,
        "g",
        [h.make_tensor_value_info(k, dtype, v) for k, v in inputs.items()],
        [h.make_tensor_value_info(k, dtype, v) for k, v in outputs.items()],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    opset = [h.make_opsetid("", 20)]
    onnx.save(h.make_model(graph, opset_imports=opset, ir_version=9), str(path))
    return path


def model_of(package: Path) -> Any:
    model = Model_pb2.Model()
    model.ParseFromString((package / "Data/com.apple.CoreML/model.mlmodel").read_bytes())
    return model


def operations(package: Path) -> list[Any]:
    function = model_of(package).mlProgram.functions["main"]
    return list(function.block_specializations[function.opset].operations)


def kinds(package: Path) -> list[str]:
    return [o.type for o in operations(package) if o.type != "const"]


def run(path: Path, **feeds: Any) -> Any:
    return next(iter(converter.load(path).run(feeds).values()))


def content(package: Path) -> dict[str, bytes]:
    files = (p for p in package.rglob("*") if p.is_file())
    return {str(p.relative_to(package)): p.read_bytes() for p in files}


def linear(path: Path, weights: Any) -> Path:
    nodes = [h.make_node("MatMul", ["x", "w"], ["m"]), h.make_node("Add", ["m", "c"], ["y:0"])]
    n, m = weights.shape
    return network(path, nodes, {"x": [2, n]}, {"y:0": [2, m]}, w=weights, c=np.array([2.0], F))


def test_the_package_and_its_weights(tmp_path: Path) -> None:
    weights, x = floats(3, 7), floats(2, 3)
    package = tmp_path / "m.mlpackage"
    converter.convert(linear(tmp_path / "m.onnx", weights), package)
    manifest = json.loads((package / "Manifest.json").read_text())
    root = manifest["itemInfoEntries"][manifest["rootModelIdentifier"]]
    assert manifest["fileFormatVersion"] == "1.0.0"
    assert root["path"] == "com.apple.CoreML/model.mlmodel"
    stored = (package / "Data/com.apple.CoreML/weights/weight.bin").read_bytes()
    assert struct.unpack_from("<II", stored) == (1, 2)
    assert struct.unpack_from("<IIQQQ", stored, 64) == (0xDEADBEEF, 2, 4 * 21, 128, 0)
    assert stored[128:] == weights.T.tobytes()
    assert kinds(package) == ["linear", "add"]
    np.testing.assert_allclose(run(package, x=x), x @ weights + 2, rtol=1e-6)


def test_names_are_identifiers_and_those_of_the_source_come_back(tmp_path: Path) -> None:
    package = tmp_path / "m.mlpackage"
    converter.convert(linear(tmp_path / "m.onnx", floats(3, 7)), package)
    assert [o.name for o in model_of(package).description.output] == ["y_0"]
    assert [o.name for o in converter.load(package).outputs] == ["y:0"]


def test_the_same_network_makes_the_same_bytes(tmp_path: Path) -> None:
    source = linear(tmp_path / "m.onnx", floats(3, 7))
    packages = [tmp_path / f"{i}.mlpackage" for i in range(2)]
    for package in packages:
        converter.convert(source, package)
    assert content(packages[0]) == content(packages[1])


def test_a_package_replaces_a_package_and_no_other_folder(tmp_path: Path) -> None:
    source, package = linear(tmp_path / "m.onnx", floats(3, 7)), tmp_path / "m.mlpackage"
    converter.convert(source, package)
    (package / "left.txt").write_text("of the old one")
    with pytest.raises(ConverterError, match="exists"):
        converter.convert(source, package, force=False)
    converter.convert(source, package, force=True)
    assert not (package / "left.txt").exists()
    other = tmp_path / "n.mlpackage"
    other.mkdir()
    (other / "mine.txt").write_text("mine")
    with pytest.raises(ConverterError, match="no package of a model"):
        converter.convert(source, other, force=True)
    assert [p.name for p in other.iterdir()] == ["mine.txt"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.mlpackage", "m.onnx", "n.mlpackage"]


def test_a_quotient_of_whole_numbers_is_cut_off(tmp_path: Path) -> None:
    x = np.array([[-7, 7, 5], [6, -6, 2]], np.int32)
    y = np.array([[2, -2, 3], [-4, -4, 2]], np.int32)
    nodes = [h.make_node("Div", ["x", "y"], ["z"])]
    shapes = {"x": [2, 3], "y": [2, 3]}
    source = network(tmp_path / "m.onnx", nodes, shapes, {"z": [2, 3]}, T.INT32)
    converter.convert(source, tmp_path / "m.mlpackage")
    wanted = np.trunc(x / y).astype(np.int32)
    np.testing.assert_array_equal(run(tmp_path / "m.mlpackage", x=x, y=y), wanted)


def test_a_whole_number_of_more_than_32_bits_is_refused(tmp_path: Path) -> None:
    nodes = [h.make_node("Add", ["x", "c"], ["y"])]
    large = np.array([1 << 40], np.int64)
    source = network(tmp_path / "m.onnx", nodes, {"x": [1]}, {"y": [1]}, T.INT64, c=large)
    with pytest.raises(UnsupportedError, match=r"X204.*1099511627776"):
        converter.convert(source, tmp_path / "m.mlpackage")
