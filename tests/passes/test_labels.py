"""Classifiers whose labels are text, in targets without text: the scores stay."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import helper

import converter
from converter.api import Model
from converter.graph.build import new_model
from converter.passes.labels import LABELS, take_out_labels

WORDS = [b"cat", "Dörte".encode(), b"cow"]
X = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)


def classifier(samples: int = 2, scores: bool = True) -> Model:
    """Softmax, and the label of the largest."""
    model, b = new_model()
    y = b.Softmax(b.input("x", ir.DataType.FLOAT, [samples, 3]), axis=1, name="p")
    table = b.const(ir.StringTensor(np.array(WORDS, object)))
    label = b.Gather(table, b.ArgMax(y, axis=1, keepdims=0), axis=0, name="label")
    b.output(*([label, y] if scores else [label]))
    return Model(model, "onnx")


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("openvino+ir=7", "m.xml"),
        ("openvino+ir=10", "m.xml"),
        ("coreml", "m.mlmodel"),
        ("mlprogram", "m.mlpackage"),
        ("zhouyi", "m.txt"),
        ("nnapi", "m.nnapi.json"),
        ("tflite", "m.tflite"),
    ],
)
def test_the_scores_stay_and_a_note_says_so(target: str, name: str, tmp_path: Path) -> None:
    notes = converter.save(classifier(), tmp_path / name, target)
    (note,) = [n for n in notes if n.code == "X207"]
    assert note.level == "note" and "'label'" in note.message and "1 'Dörte'" in note.message
    model = converter.load(tmp_path / name)
    (found,) = model.run({model.inputs[0].name: X}).values()
    wanted = np.exp(X) / np.exp(X).sum(1, keepdims=True)
    np.testing.assert_allclose(found.reshape(2, 3), wanted, rtol=1e-5)


def test_the_table_is_metadata(tmp_path: Path) -> None:
    model = classifier()
    take_out_labels(model.ir)
    assert json.loads(model.ir.metadata_props[LABELS]) == {"label": ["cat", "Dörte", "cow"]}
    converter.save(classifier(), tmp_path / "m.tflite")
    converter.save(classifier(), tmp_path / "m.xml", "openvino+ir=7")
    for file in ("m.tflite", "m.xml"):
        assert "Dörte" in (tmp_path / file).read_bytes().decode(errors="replace")


def test_a_label_alone_becomes_its_index(tmp_path: Path) -> None:
    converter.save(classifier(scores=False), tmp_path / "m.tflite")
    model = converter.load(tmp_path / "m.tflite")
    (found,) = model.run({model.inputs[0].name: X}).values()
    np.testing.assert_array_equal(found, X.argmax(1))


@pytest.mark.parametrize("name", ["m.mlmodel", "m.mlpackage"])
def test_one_sample_is_a_classifier_of_core_ml(name: str, tmp_path: Path) -> None:
    assert converter.save(classifier(samples=1), tmp_path / name) == []
    found = converter.load(tmp_path / name).run({"x": X[:1]})
    assert found["label"].reshape(-1)[0] == WORDS[X[0].argmax()].decode()


def test_a_linear_classifier_with_names(tmp_path: Path) -> None:
    node = helper.make_node(
        "LinearClassifier",
        ["x"],
        ["label", "scores"],
        domain="ai.onnx.ml",
        coefficients=[float(n) for n in range(9)],
        intercepts=[0.5, -1.0, 0.25],
        classlabels_strings=["a", "b", "c"],
        post_transform="SOFTMAX",
    )
    info = helper.make_tensor_value_info("x", 1, [2, 3])
    outputs = [onnx.ValueInfoProto(name=n) for n in node.output]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    graph = helper.make_graph([node], "g", [info], outputs)
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "m.onnx")
    _, wanted = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(None, {"x": X})
    converter.convert(tmp_path / "m.onnx", tmp_path / "m.txt", target="zhouyi")
    model = converter.load(tmp_path / "m.txt")
    (found,) = model.run({model.inputs[0].name: X}).values()
    np.testing.assert_allclose(found.reshape(2, 3), wanted, rtol=1e-5)
