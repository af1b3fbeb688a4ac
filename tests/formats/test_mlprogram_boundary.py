"""Inputs and outputs in the description of an ML Program, and pipelines."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mil_files import Blob, Block, Op, package

import converter
from converter.errors import ConverterError, ReadError, UsageError
from converter.formats.coreml.proto import Model_pb2
from converter.formats.model_files import check
from support import ROOT

INNER = "Data/com.apple.CoreML/model.mlmodel"
STORED = "Data/com.apple.CoreML/weights/weight.bin"
F = np.float32


def message_of(path: Path) -> Any:
    return Model_pb2.Model.FromString((path / INNER).read_bytes())


def described(path: Path) -> Any:
    """The message of a bare file or a package."""
    return Model_pb2.Model.FromString((path / INNER if path.is_dir() else path).read_bytes())


def rewrite(path: Path, model: Any) -> Path:
    (path / INNER).write_bytes(model.SerializeToString())
    return path


def added(path: Path, x: list[int], y: list[int]) -> Path:
    """y = x + z, of x the sizes -1 are open."""
    op = Op("add", {"x": "$x", "y": "$z"}, {"y": ("float32", x)})
    given = {"x": ("float32", x), "z": ("float32", y)}
    return package(path, Block(given, [op], ["y"]))


def array_of(model: Any, index: int = 0) -> Any:
    return model.description.input[index].type.multiArrayType


def flexible(path: Path) -> Path:
    """x is [2 to 8, 4], 3 by default."""
    model = message_of(added(path, [-1, 4], [1, 4]))
    array = array_of(model)
    array.shape[:] = [3, 4]
    array.shapeRange.sizeRanges.add(lowerBound=2, upperBound=8)
    array.shapeRange.sizeRanges.add(lowerBound=4, upperBound=4)
    return rewrite(path, model)


def enumerated(path: Path) -> Path:
    """x is 2x4 or 6x4 or 6x5; the program leaves a third axis open, too, which is always 1."""
    model = message_of(added(path, [-1, -1, -1], [1, 1, 1]))
    array = array_of(model)
    array.shape[:] = [1, 2, 4]
    for shape in ([1, 2, 4], [1, 6, 4], [1, 6, 5]):
        array.enumeratedShapes.shapes.add().shape.extend(shape)
    return rewrite(path, model)


def test_dynamic_sizes_have_names_and_fixed_ones_numbers(tmp_path: Path) -> None:
    x, z = converter.load(flexible(tmp_path / "a.mlpackage")).inputs
    assert (x.shape, z.shape) == (("x_0", 4), (1, 4))
    x, _ = converter.load(enumerated(tmp_path / "b.mlpackage")).inputs
    assert x.shape == (1, "x_1", "x_2")


@pytest.mark.parametrize("target", ["coreml", "mlprogram"])
@pytest.mark.parametrize("form", ["coreml", "onnx"])
def test_bounds_and_choices_are_declared_again_or_said_to_be_lost(
    form: str, target: str, tmp_path: Path
) -> None:
    """In Core ML itself, also by way of ONNX, which keeps notes."""
    for make in (flexible, enumerated):
        path = make(tmp_path / f"{make.__name__}.mlpackage")
        written = tmp_path / f"{make.__name__}.{target}"
        source = path
        if form == "onnx":
            (note,) = converter.convert(path, source := tmp_path / "net.onnx")
            said = {flexible: "(2 to 8)x4", enumerated: "1x2x4 or 1x6x4 or 1x6x5"}[make]
            assert note.code == "X207" and said in note.message
        assert converter.convert(source, written, target=target) == []
        assert array_of(described(written)) == array_of(message_of(path))


def test_numbers_are_made_in_the_sizes_that_are_meant(tmp_path: Path) -> None:
    """Three rows, and 1x2x4: the network might take no others."""
    from converter.commands.verify.feeds import generate

    for make, wanted in ((flexible, (3, 4)), (enumerated, (1, 2, 4))):
        model = converter.load(make(tmp_path / f"{make.__name__}.mlpackage"))
        assert generate(model, "normal")["x"].shape == wanted


def test_sizes_are_fixed(tmp_path: Path) -> None:
    path = flexible(tmp_path / "a.mlpackage")
    converter.convert(path, tmp_path / "a.onnx", inputs={"x": [5, 4]})
    fixed = converter.load(tmp_path / "a.onnx")
    assert fixed.inputs[0].shape == (5, 4) and fixed.outputs[0].shape == (5, 4)
    with pytest.raises(UsageError):
        converter.convert(path, tmp_path / "b.onnx", inputs={"x": [5, 3]})


def test_an_input_that_may_be_left_out(tmp_path: Path) -> None:
    path = added(tmp_path / "m.mlpackage", [2, 4], [1, 4])
    model = message_of(path)
    model.description.input[1].type.isOptional = True
    array_of(model, 1).floatDefaultValue = 0.5
    x = np.arange(8, dtype=F).reshape(2, 4)
    rewrite(path, model)
    converter.convert(path, tmp_path / "m.onnx")
    for file in (path, tmp_path / "m.onnx"):
        read = converter.load(file)
        np.testing.assert_array_equal(read.run({"x": x})["y"], x + F(0.5))
        z = np.full((1, 4), 2, F)
        np.testing.assert_array_equal(read.run({"x": x, "z": z})["y"], x + F(2))


def pictures(path: Path, color: int = 30) -> Path:
    """x and y are images of 6 x 8."""
    channels, kind = (1, "float16") if color == 40 else (3, "float32")
    op = Op("relu", {"x": "$x"}, {"y": (kind, [1, channels, 6, 8])})
    opset = "CoreML6" if color == 40 else "CoreML5"
    block = Block({"x": (kind, [1, channels, 6, 8])}, [op], ["y"])
    model = message_of(package(path, block, opset=opset))
    for feature in (model.description.input[0], model.description.output[0]):
        image = feature.type.imageType
        image.width, image.height, image.colorSpace = 8, 6, color
    model.description.metadata.author = "somebody"
    model.description.metadata.userDefined["key"] = "value"
    return rewrite(path, model)


@pytest.mark.parametrize("form", ["mlmodel", "mlpackage"])
@pytest.mark.parametrize("color", [30, 40])
def test_images_and_metadata(color: int, form: str, tmp_path: Path) -> None:
    """Inputs and outputs that are images are so again, also by way of ONNX, which keeps notes.
    Neural networks of the version that is written have no pixels of half precision.
    """
    path = pictures(tmp_path / "m.mlpackage", color)
    (note,) = converter.convert(path, tmp_path / "m.onnx")
    assert "y is an image" in note.message
    if (color, form) == (40, "mlmodel"):
        return
    for source in (path, tmp_path / "m.onnx"):
        assert converter.convert(source, tmp_path / f"n.{form}") == []
        model = described(tmp_path / f"n.{form}")
        written, own = model.description, message_of(path).description
        assert [f.type.imageType for f in (*written.input, *written.output)] == [
            own.input[0].type.imageType
        ] * 2
        assert written.metadata == own.metadata
        if form == "mlpackage":
            assert model.specificationVersion == (7 if color == 40 else 6)
            assert check(tmp_path / "n.mlpackage") == []


def test_sizes_of_pictures_may_be_chosen(tmp_path: Path) -> None:
    """Those of an input; an output is a picture where its size is known."""
    model = message_of(pictures(tmp_path / "m.mlpackage"))
    block = model.mlProgram.functions["main"].block_specializations["CoreML5"]
    for kind in (
        model.mlProgram.functions["main"].inputs[0].type,
        block.operations[0].outputs[0].type,
    ):
        for axis in (2, 3):
            kind.tensorType.dimensions[axis].unknown.variadic = False
    image = model.description.input[0].type.imageType
    image.imageSizeRange.heightRange.lowerBound, image.imageSizeRange.heightRange.upperBound = 4, 9
    image.imageSizeRange.widthRange.lowerBound, image.imageSizeRange.widthRange.upperBound = 8, -1
    path = rewrite(tmp_path / "m.mlpackage", model)
    (note,) = converter.convert(path, tmp_path / "n.mlpackage")
    assert "y is an image in the source" in note.message
    written = described(tmp_path / "n.mlpackage").description
    assert written.input[0].type.imageType == image
    assert written.output[0].type.WhichOneof("Type") == "multiArrayType"
    assert check(tmp_path / "n.mlpackage") == []


def test_default_values_of_several_optional_inputs(tmp_path: Path) -> None:
    """All inputs may be; but one of several default values cannot be described."""
    path = added(tmp_path / "m.mlpackage", [2, 4], [1, 4])
    model = message_of(path)
    for index in range(2):
        model.description.input[index].type.isOptional = True
        array_of(model, index).floatDefaultValue = 0.5 + index
    assert converter.convert(rewrite(path, model), tmp_path / "n.mlpackage") == []
    written = described(tmp_path / "n.mlpackage").description.input
    assert [f.type.isOptional for f in written] == [True, True]
    assert written[1].type.multiArrayType.floatDefaultValue == 1.5
    network = converter.load(path)
    network.interface["defaults"] = {"z": np.arange(4, dtype=F).reshape(1, 4)}
    (note,) = converter.save(network, tmp_path / "o.mlpackage")
    assert "several default values" in note.message
    assert not any(f.type.isOptional for f in described(tmp_path / "o.mlpackage").description.input)


# --- pipelines


def pipeline(path: Path, *members: Any) -> Path:
    """A package with a pipeline of these models; inputs are those of the first, outputs those of
    the last one.
    """
    model = Model_pb2.Model()
    model.specificationVersion = 8
    model.description.input.extend(members[0].description.input)
    model.description.output.extend(members[-1].description.output)
    model.pipeline.models.extend(members)
    return rewrite(path, model)


def doubled(path: Path, name: str, out: str, weight: Any) -> Any:
    """The message of a matrix on `name` that gives `out`; its weights are in a file of its own."""
    op = Op("linear", {"x": f"${name}", "weight": Blob(weight)}, {out: ("float32", [2, 3])})
    package(path, Block({name: ("float32", [2, 3])}, [op], [out]))
    stored = (path / STORED).with_name(f"{out}.bin")
    (path / STORED).rename(stored)
    data = (path / INNER).read_bytes()
    data = data.replace(b"@model_path/weights/weight.bin", b"@model_path/weights/%s.bin"
                        % out.encode().ljust(6, b"_"))  # fmt: skip
    stored.rename(stored.with_name(out.ljust(6, "_") + ".bin"))
    return Model_pb2.Model.FromString(data)


def test_a_pipeline_of_programs_is_one_network(tmp_path: Path) -> None:
    """Each member has its own file of weights."""
    a, b = (np.random.default_rng(n).standard_normal((3, 3)).astype(F) for n in (0, 1))
    path = tmp_path / "m.mlpackage"
    first, second = doubled(path, "x", "mid", a), doubled(tmp_path / "b.mlpackage", "mid", "y", b)
    weights = (tmp_path / "b.mlpackage" / STORED).with_name("y_____.bin")
    shutil.copy(weights, (path / STORED).parent)
    pipeline(path, first, second)
    read = converter.load(path)
    assert read.format == "mlprogram" and [o.name for o in read.outputs] == ["y"]
    x = np.random.default_rng(2).standard_normal((2, 3)).astype(F)
    np.testing.assert_allclose(read.run({"x": x})["y"], x @ a.T @ b.T, rtol=1e-5, atol=1e-6)
    with pytest.raises(UsageError, match="no functions"):
        converter.load(path, signature="main")
    apart = tmp_path / "apart"
    shutil.move((path / STORED).parent, apart)
    with pytest.raises(ConverterError, match=r"R102.*second weights file"):
        converter.load(path, weights=apart / "mid___.bin")
    found = converter.load(path, weights=apart).run({"x": x})["y"]
    np.testing.assert_allclose(found, x @ a.T @ b.T, rtol=1e-5, atol=1e-6)


def test_a_pipeline_ends_with_suppression(tmp_path: Path) -> None:
    """Three boxes, of which two are the same; the thresholds are inputs that may be left out."""
    ops = [Op("relu", {"x": f"${n}"}, {f"raw_{n}": ("float32", [3, w])})
           for n, w in (("scores", 2), ("boxes", 4))]  # fmt: skip
    given = {"scores": ("float32", [3, 2]), "boxes": ("float32", [3, 4])}
    path = package(tmp_path / "m.mlpackage", Block(given, ops, ["raw_scores", "raw_boxes"]))
    last = Model_pb2.Model()
    nms = last.nonMaximumSuppression
    nms.confidenceInputFeatureName, nms.coordinatesInputFeatureName = "raw_scores", "raw_boxes"
    nms.confidenceOutputFeatureName, nms.coordinatesOutputFeatureName = "confidence", "coordinates"
    nms.iouThresholdInputFeatureName = "iouThreshold"
    nms.confidenceThresholdInputFeatureName = "confidenceThreshold"
    nms.iouThreshold, nms.confidenceThreshold = 0.5, 0.2
    for name in ("confidence", "coordinates"):
        last.description.output.add(name=name).type.multiArrayType.dataType = 65568
    first = message_of(path)
    for name in ("iouThreshold", "confidenceThreshold"):
        last.description.input.add(name=name).type.doubleType.SetInParent()
    pipeline(path, first, last)
    model = message_of(path)
    model.description.input.extend(last.description.input)
    rewrite(path, model)
    box = [0.5, 0.5, 0.2, 0.2]
    feeds = {
        "scores": np.array([[0.3, 0.1], [0.9, 0.0], [0.1, 0.4]], F),
        "boxes": np.array([box, box, [0.1, 0.1, 0.1, 0.1]], F),
    }
    read = converter.load(path)
    np.testing.assert_array_equal(read.run(feeds)["confidence"], feeds["scores"][[1, 2]])
    strict = {**feeds, "confidenceThreshold": np.array([0.5])}
    np.testing.assert_array_equal(read.run(strict)["coordinates"], feeds["boxes"][[1]])
    model.pipeline.models[1].nonMaximumSuppression.coordinatesInputFeatureName = "nothing"
    rewrite(path, model)
    with pytest.raises(ReadError, match=r"R105.*'nothing', which no layer writes"):
        converter.load(path)


def test_a_pipeline_with_another_kind_is_refused_by_name(tmp_path: Path) -> None:
    op = Op("relu", {"x": "$x"}, {"y": ("float32", [2])})
    path = package(tmp_path / "m.mlpackage", Block({"x": ("float32", [2])}, [op], ["y"]))
    tree = Model_pb2.Model()
    tree.treeEnsembleRegressor.SetInParent()
    pipeline(path, message_of(path), tree)
    with pytest.raises(ReadError, match=r"R106.*treeEnsembleRegressor"):
        converter.load(path)


# --- functions


def test_functions_are_chosen_by_name(tmp_path: Path) -> None:
    """Also on the command line, and with weights that lie elsewhere."""
    weight = np.arange(6, dtype=F).reshape(3, 2)
    op = Op("linear", {"x": "$x", "weight": Blob(weight)}, {"y": ("float32", [1, 3])})
    path = package(tmp_path / "m.mlpackage", Block({"x": ("float32", [1, 2])}, [op], ["y"]))
    model = message_of(path)
    main = model.mlProgram.functions["main"]
    model.mlProgram.functions["twice"].CopyFrom(main)
    block = model.mlProgram.functions["twice"].block_specializations["CoreML7"]
    more = block.operations.add(type="add")
    for key in "xy":
        more.inputs[key].arguments.add().name = "y"
    more.outputs.add(name="z").type.CopyFrom(block.operations[0].outputs[0].type)
    block.outputs[:] = ["z"]
    own = model.description
    for name, last in (("main", "y"), ("twice", "z")):
        function = model.description.functions.add(name=name)
        function.input.extend(own.input)
        function.output.extend(own.output)
        function.output[0].name = last
    own.defaultFunctionName = "main"
    del own.input[:]
    del own.output[:]
    rewrite(path, model)
    apart = tmp_path / "apart.bin"
    (path / STORED).rename(apart)
    x = np.ones((1, 2), F)
    wanted = {"": weight.sum(1), "main": weight.sum(1), "twice": 2 * weight.sum(1)}
    for name, numbers in wanted.items():
        found = converter.load(path, weights=apart, signature=name).run({"x": x})
        np.testing.assert_array_equal(next(iter(found.values()))[0], numbers)
    with pytest.raises(UsageError, match="no function 'other', it has main, twice"):
        converter.load(path, weights=apart, signature="other")
    (path / STORED).parent.mkdir(exist_ok=True)
    apart.rename(path / STORED)
    command = [sys.executable, "-m", "converter.cli", "convert", "m.mlpackage", "-o", "m.onnx"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([*command, "--function", "twice"], cwd=tmp_path, env=env, check=True)
    assert [o.name for o in converter.load(tmp_path / "m.onnx").outputs] == ["z"]
