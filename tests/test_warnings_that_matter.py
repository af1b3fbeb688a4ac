"""Warnings are about losses; messages name the model's own inputs, files and labels."""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.cli import app, console
from converter.commands import labels
from converter.engines import first_line
from converter.errors import ExitCode, UnsupportedError, UsageError
from converter.graph.build import new_model
from support import SAMPLES

Call = Callable[..., int]
CLASSES = ["cat", "dog", "cow"]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["netconv", *arguments])
        console.use(console.Console())
        return app._guarded()

    return run


def test_doubles_of_core_ml_are_one_note_and_strict_passes(call: Call, tmp_path: Path) -> None:
    shutil.copy(SAMPLES / "digits_cnn.mlmodel", tmp_path / "d.mlmodel")
    assert call("convert", "d.mlmodel", "d.tflite", "--strict") == 0
    notes = converter.convert(tmp_path / "d.mlmodel", tmp_path / "e.tflite")
    assert [(d.code, d.level) for d in notes] == [("X205", "note")]
    assert "float64" in notes[0].message


def test_doubles_of_onnx_are_a_warning(tmp_path: Path) -> None:
    model, b = new_model()
    b.output(b.op("Exp", b.input("x", ir.DataType.DOUBLE, [2])))
    notes = converter.save(Model(model, "onnx"), tmp_path / "d.tflite")
    assert [d.level for d in notes if d.code == "X205"] != [] and notes[0].level == "warning"


def test_a_side_file_of_the_source_is_not_overwritten(call: Call, tmp_path: Path) -> None:
    converter.convert(SAMPLES / "digits_cnn.mlmodel", tmp_path / "icl.xml")
    with pytest.raises(UsageError) as e:
        converter.convert(tmp_path / "icl.xml", tmp_path / "icl.txt", target="zhouyi")
    (found,) = e.value.diagnostics
    assert found.code == "W302" and found.where.file.endswith("icl.bin")
    assert found.message == "icl.txt needs icl.bin, which holds the weights of icl.xml"
    other = tmp_path / "icl-txt.txt"
    assert str(other) in found.help
    converter.convert(tmp_path / "icl.xml", other, target="zhouyi")


def dynamic(path: Path) -> Path:
    model, b = new_model()
    x = b.input("topo map", ir.DataType.FLOAT, [None, 1, 32, 32])
    y = b.input("psds", ir.DataType.FLOAT, ["n", 1, "w", 100])
    b.output(b.op("GlobalAveragePool", x, name="a"), b.op("GlobalAveragePool", y, name="b"))
    converter.save(Model(model, "onnx"), path)
    return path


def test_a_dynamic_model_gets_the_whole_option(tmp_path: Path) -> None:
    source = dynamic(tmp_path / "d.onnx")
    with pytest.raises(UnsupportedError) as e:
        converter.convert(source, tmp_path / "d.txt", target="zhouyi")
    helps = {d.help for d in e.value.diagnostics if d.code == "X203"}
    option = "--inputs 'topo map':1,1,32,32 --inputs psds:1,1,32,100"
    assert helps == {f"fix the inputs with {option}"}


def test_dimensions_of_one_name_have_one_size_in_the_option(tmp_path: Path) -> None:
    """The batch of a state is that of the data on another axis; following the help works."""
    model, b = new_model()
    x, h = (b.input(n, ir.DataType.FLOAT, s) for n, s in (("x", ["n", 4]), ("h", [2, "n", 4])))
    b.output(b.op("Add", x, h))
    source = tmp_path / "d.onnx"
    converter.save(Model(model, "onnx"), source)
    with pytest.raises(UnsupportedError) as e:
        converter.convert(source, tmp_path / "d.txt", target="zhouyi")
    assert "--inputs x:1,4 --inputs h:2,1,4" in e.value.diagnostics[0].help
    converter.convert(source, tmp_path / "d.txt", inputs={"x": [1, 4], "h": [2, 1, 4]})


def test_messages_of_engines_have_no_locations_in_their_source() -> None:
    text = (
        "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running "
        "Reshape node. Name:'r' Status Message: /onnxruntime_src/onnxruntime/core/providers/cpu/"
        "tensor/reshape_helper.h:45 onnxruntime::ReshapeHelper::ReshapeHelper(const onnxruntime::"
        "TensorShape&, onnxruntime::TensorShapeVector&, bool) input_shape_size == size was false."
    )
    assert first_line(Exception(text)) == (
        "running Reshape node. Name:'r' input_shape_size == size was false."
    )


@pytest.fixture
def classifier(tmp_path: Path) -> Path:
    """A network of scores and of the name of the largest."""
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [1, 3])
    scores = b.op("Softmax", x, axis=-1, name="scores")
    index = b.op("ArgMax", scores, axis=1, keepdims=0)
    b.output(scores, b.op("Gather", b.const(np.array(CLASSES, object)), index, name="label"))
    path = tmp_path / "c.onnx"
    converter.save(Model(model, "onnx"), path)
    np.savez(tmp_path / "in.npz", x=np.array([[0, 2, 1]], np.float32))
    return path


def test_run_prints_texts(call: Call, classifier: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("run", "c.onnx", "--data", "in.npz") == 0
    assert "label  string[1]  'dog'" in capsys.readouterr().out


@pytest.mark.parametrize(("target", "format"), [("c.tflite", "tflite"), ("c.xml", "openvino+ir=7")])
def test_labels_stay_with_a_model_that_has_no_texts(
    call: Call, classifier: Path, capsys: pytest.CaptureFixture[str], target: str, format: str
) -> None:
    converter.convert(classifier, classifier.with_name(target), target=format)
    assert labels.labels_of(converter.load(classifier.with_name(target)))[0] == CLASSES
    assert call("run", target, "--data", "in.npz") == 0
    assert "'dog' (0.6652)" in capsys.readouterr().out
    if target.endswith(".tflite"):
        with zipfile.ZipFile(classifier.with_name(target)) as archive:
            assert archive.read("labels.txt").decode().split() == CLASSES


def test_labels_go_on_to_the_next_format(classifier: Path) -> None:
    lite, back = classifier.with_name("c.tflite"), classifier.with_name("back.onnx")
    converter.convert(classifier, lite)
    converter.convert(lite, back)
    stored = converter.load(back).ir.metadata_props["netconv.labels"]
    assert json.loads(stored) == {"label": CLASSES}


def test_an_odd_table_of_labels_is_no_error(classifier: Path) -> None:
    model = converter.load(classifier)
    for text in ("[1]", "no json", '{"a": 3}'):
        model.ir.metadata_props["netconv.labels"] = text
        assert labels.labels_of(model) == []
    assert labels.described(np.array([[np.nan, 1, 2]], np.float32), [CLASSES]) == ""


def test_sizes_that_a_network_does_not_take_are_named_with_sizes_that_it_takes(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, ["n", 7])
    groups = b.op("Reshape", x, b.const(np.array([-1, 4, 7], np.int64)), name="groups")
    b.output(b.op("Exp", groups, name="y"))
    converter.save(Model(model, "onnx"), tmp_path / "m.onnx")
    for command in (("run", "m.onnx"), ("verify", "m.onnx", "m.onnx")):
        assert call(*command) in (ExitCode.USAGE, ExitCode.NOTHING_COMPARED)
        printed = capsys.readouterr().err
        assert "the sizes x:1,7 were chosen; use --inputs x:4,7" in printed
        assert "/onnxruntime" not in printed
        assert call(*command, "--inputs", "x:4,7") == 0
        capsys.readouterr()
    assert call("convert", "m.onnx", "m.tflite", "--inputs", "x:3,7") == ExitCode.USAGE
    printed = capsys.readouterr().err
    assert "21 elements cannot have the shape [-1,4,7]" in printed
    assert "(Reshape)" in printed and "use --inputs x:4,7" in printed


def test_images_of_core_ml_point_at_the_native_layout(tmp_path: Path) -> None:
    model, b = new_model()
    x = b.input("photo", ir.DataType.FLOAT, [1, 3, 8, 8])
    b.output(b.op("Conv", x, np.ones((4, 3, 3, 3), np.float32), name="conv"))
    network = Model(model, "coreml", interface={"images": {"photo": {"colour": "RGB"}}})
    notes = converter.save(network, tmp_path / "a.tflite")
    (note,) = [d for d in notes if d.code == "X211"]
    assert note.level == "note" and "--io-layout native" in note.help and "photo" in note.message
    native = converter.save(network, tmp_path / "b.tflite", io_layout="native")
    assert all(d.level == "warning" for d in native if d.code == "X211")
    assert not [d for d in converter.save(network, tmp_path / "c.onnx") if d.code == "X211"]


# --- inspect


@pytest.mark.parametrize(
    ("name", "target", "line"),
    [
        ("n.onnx", "onnx+opset=17", "n.onnx  onnx (IR version 10, opset 17), 1 layer, 1 node,"),
        ("n.xml", "openvino+ir=7", "n.xml  openvino (IR version 7), "),
        ("n.xml", "openvino+fp16", "n.xml  openvino (IR version 11), "),
        ("n.tflite", "tflite", "n.tflite  tflite (schema version 3), "),
        ("n.nnapi.json", "nnapi", "n.nnapi.json  nnapi (feature level 1), "),
        ("n.mlmodel", "coreml", "n.mlmodel  coreml (specification 4 (iOS 13)), "),
        ("n.mlpackage", "mlprogram+ios=16", "n.mlpackage  mlprogram (specification 7 (iOS 16)), "),
    ],
)
def test_inspect_begins_with_format_version_and_precision(
    tmp_path: Path, name: str, target: str, line: str
) -> None:
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [1, 3, 8, 8])
    b.output(b.op("Conv", x, np.ones((4, 3, 3, 3), np.float32), name="conv"))
    converter.save(Model(model, "onnx"), tmp_path / name, target)
    first = str(converter.load(tmp_path / name)).split("\n")[0]
    assert first.startswith(line)
    assert first.endswith(f"({'float16' if 'fp16' in target else 'float32'})")


def test_inspect_shows_author_labels_images_states_and_dynamic_dimensions(tmp_path: Path) -> None:
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, ["batch", 3])
    b.output(b.op("Exp", x, name="y"))
    model.metadata_props.update(
        {"author": "A. Author", "license": "MIT", "labels.txt": "cat\ndog\n"}
    )
    converter.save(Model(model, "onnx"), tmp_path / "n.onnx")
    read = converter.load(tmp_path / "n.onnx")
    read.interface["coreml"] = {"pictures": {"y": {"colour": "BGR", "size": [4, 5]}}}
    read.interface["states"] = {"x": "y"}
    lines = str(read).split("\n")
    for line in (
        "  author    A. Author",
        "  license   MIT",
        "  labels    2: cat, dog",
        "  image     y: BGR 4x5",
        "  states    x",
        "  dynamic   batch: x axis 0",
    ):
        assert line in lines
    assert converter.inspect(read)["about"]["dynamic"] == {"batch": ["x axis 0"]}
