"""`netconv check` of ML Programs: errors that coremltools' own loader accepts."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mil_files import Blob, Block, Op, package

from converter.errors import ReadError
from converter.formats.coreml.proto import Model_pb2
from converter.formats.model_files import check
from support import corpus_cases

INNER = "Data/com.apple.CoreML/model.mlmodel"
STORED = "Data/com.apple.CoreML/weights/weight.bin"


def made(path: Path) -> Path:
    """y = relu(x) @ w on float32 [2,4], with names on all operations; w is a stored constant."""
    weight = np.ones((3, 4), np.float32)
    ops = [
        Op("relu", {"x": "$x"}, {"r": ("float32", [2, 4])}),
        Op("linear", {"x": "$r", "weight": Blob(weight)}, {"y": ("float32", [2, 3])}),
    ]
    package(path, Block({"x": ("float32", [2, 4])}, ops, ["y"]))
    model = Model_pb2.Model.FromString((path / INNER).read_bytes())
    block = block_of(model)
    value = block.operations[1].inputs["weight"].arguments[0].value
    const = Model_pb2.Model().mlProgram.functions["main"].block_specializations[""].operations.add()
    const.type = "const"
    const.attributes["val"].CopyFrom(value)
    out = const.outputs.add(name="w")
    out.type.CopyFrom(value.type)
    block.operations[1].inputs["weight"].arguments[0].name = "w"
    const.attributes["name"].CopyFrom(block.operations[0].attributes["name"])
    block.operations.insert(0, const)
    array_of(model.description.output[0]).shape.extend([2, 3])
    (path / INNER).write_bytes(model.SerializeToString())
    return path


def block_of(model: Any) -> Any:
    (block,) = model.mlProgram.functions["main"].block_specializations.values()
    return block


def array_of(feature: Any) -> Any:
    return feature.type.multiArrayType


def opset(model: Any, name: str) -> None:
    function = model.mlProgram.functions["main"]
    block = function.block_specializations[function.opset]
    function.block_specializations[name].CopyFrom(block)
    function.opset = name


def renamed(model: Any) -> None:
    model.description.input[0].name = "z"


def rename_value(model: Any) -> None:
    block = block_of(model)
    block.operations[1].outputs[0].name = "1/r"
    block.operations[2].inputs["x"].arguments[0].name = "1/r"


def image(model: Any, width: int) -> None:
    kind = model.description.input[0].type.imageType
    kind.width, kind.height, kind.colorSpace = width, 2, 10


def flexible(model: Any) -> None:
    array = array_of(model.description.input[0])
    array.shapeRange.sizeRanges.add(lowerBound=1, upperBound=5)
    array.shapeRange.sizeRanges.add(lowerBound=7, upperBound=7)


MUTATIONS: dict[str, tuple[Callable[[Any], object], str]] = {
    "opset": (lambda m: opset(m, "CoreML99"), "error R104 the operation set 'CoreML99' is not"),
    "newer opset": (lambda m: opset(m, "CoreML8"), "error R104 CoreML8 needs specificationVer"),
    "version": (
        lambda m: setattr(m, "specificationVersion", 5),
        "error R104 specificationVersion 5",
    ),
    "identifier": (rename_value, "error R105 '1/r' is not an identifier"),
    "no name": (
        lambda m: block_of(m).operations[1].attributes.pop("name"),
        "warning R105 operation relu has no name",
    ),
    "constant": (
        lambda m: setattr(
            block_of(m).operations[0].outputs[0].type.tensorType.dimensions[0].constant, "size", 5
        ),
        "error R110 the declared type of a constant is not",
    ),
    "input renamed": (renamed, "error R105 the description declares input 'z'"),
    "output missing": (
        lambda m: m.description.output.pop(),
        "error R105 the program has output 'y'",
    ),
    "shape": (
        lambda m: array_of(m.description.input[0]).shape.__setitem__(0, 9),
        "error R110 input 'x' is [9,4], in the program [2,4]",
    ),
    "axes": (
        lambda m: array_of(m.description.output[0]).shape.append(1),
        "error R110 output 'y' has 3 axes, in the program 2",
    ),
    "type": (
        lambda m: setattr(array_of(m.description.input[0]), "dataType", 131104),
        "error R110 input 'x' is INT32, in the program FLOAT",
    ),
    "no type": (
        lambda m: setattr(block_of(m).operations[2].outputs[0].type.tensorType, "dataType", 99),
        "error R110 output 'y' is FLOAT, in the program of unknown type",
    ),
    "range": (flexible, "error R110 input 'x' is [?,7], in the program [2,4]"),
    "image": (lambda m: image(m, 5), "error R110 input 'x' has 3 axes, in the program 2"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_program_that_contradicts_itself(name: str, tmp_path: Path) -> None:
    path = made(tmp_path / "m.mlpackage")
    assert check(path) == []
    model = Model_pb2.Model.FromString((path / INNER).read_bytes())
    change, said = MUTATIONS[name]
    change(model)
    (path / INNER).write_bytes(model.SerializeToString())
    try:
        found = [f"{d.level} {d.code} {d.message}" for d in check(path)]
    except ReadError as e:
        found = [str(e)]
    assert any(f.startswith(said) for f in found), found


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (struct.pack("<II", 2, 2), "warning R110 the weights file declares 2 weights, but has 1"),
        (struct.pack("<II", 1, 1), "error R104 the weights file has version 1"),
    ],
)
def test_the_storage_of_weights(head: bytes, said: str, tmp_path: Path) -> None:
    path = made(tmp_path / "m.mlpackage")
    stored = path / STORED
    stored.write_bytes(head + stored.read_bytes()[8:])
    (found,) = check(path)
    assert f"{found.level} {found.code} {found.message}".startswith(said)


def test_a_file_of_weights_that_is_not_there(tmp_path: Path) -> None:
    path = made(tmp_path / "m.mlpackage")
    (path / STORED).unlink()
    (found,) = check(path)
    assert found.code == "R102"


@pytest.mark.parametrize("case", corpus_cases("coreml/mlprogram-nets"), ids=lambda c: c.name)
def test_packages_of_the_corpus_are_valid(case: Path) -> None:
    assert check(case / "model.mlpackage") == []
