"""Parts of models (extract), their costs (inspect), their times (run --profile), their
answers for a data set (verify --labels), and the table of engines (verify --engine A,B).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import converter
from batch.models import small
from converter.api import Model
from converter.cli import app, console
from converter.commands import profile
from converter.commands.costs import costs
from converter.commands.verify.feeds import feeds_for
from converter.errors import ExitCode
from converter.graph.build import new_model
from support import SAMPLES

T = ir.DataType
Call = Callable[..., int]
CNN, LSTM = SAMPLES / "digits_cnn.mlmodel", SAMPLES / "digits_lstm.mlmodel"


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs netconv in an empty folder and return the exit code; its output is in capsys."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["netconv", *map(str, arguments)])
        console.use(console.Console())
        return app._guarded()

    return run


# --- extract


@pytest.mark.parametrize("target", ["part.onnx", "part.xml"])
def test_a_part_computes_the_same_as_the_whole(call: Call, tmp_path: Path, target: str) -> None:
    image = np.random.default_rng(0).random((1, 8, 8)).astype(np.float32)
    converter.convert(CNN, tmp_path / "all.onnx", outputs=["relu1", "pool2", "probabilities"])
    whole = converter.load(tmp_path / "all.onnx").run({"image": image})
    assert call("extract", CNN, "--from", "relu1", "--to", "pool2", "-o", target) == 0
    part = converter.load(tmp_path / target)
    assert [i.name for i in part.inputs] == ["relu1"]
    assert [o.name for o in part.outputs] == ["pool2"]
    (found,) = part.run({"relu1": whole["relu1"]}).values()
    np.testing.assert_allclose(found, whole["pool2"], rtol=1e-5, atol=1e-6)


def test_a_part_of_several_tensors_with_other_names_and_sizes(call: Call, tmp_path: Path) -> None:
    model, b = new_model()
    x, y = b.input("x", T.FLOAT, ["n", 3]), b.input("y", T.FLOAT, ["n", 3])
    s = b.op("Add", b.op("Neg", x, name="minus"), b.op("Exp", y, name="power"), name="sum")
    b.output(b.op("Relu", s, name="act"))
    converter.save(Model(model, "onnx"), tmp_path / "a.onnx")
    cut = ("--from", "power", "--to", "act", "--to", "minus", "--rename", "power=p")
    assert call("extract", "a.onnx", *cut, "--inputs", "x:2,3", "-o", "b.onnx") == 0
    part = converter.load(tmp_path / "b.onnx")
    assert [i.name for i in part.inputs] == ["x", "p"] and part.inputs[0].shape == (2, 3)
    found = part.run({"x": np.full((2, 3), 2.0), "p": np.full((2, 3), 5.0)})
    assert list(found) == ["act", "minus"]
    assert (found["act"] == 3).all() and (found["minus"] == -2).all()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--from", "relu9"], "perhaps you meant 'relu"),
        (["--to", "nobody"], "netconv inspect -v"),
        (["--from", "pool3", "--to", "relu1"], "no kept output depends on pool3"),
        (["--rename", "picture=x"], "the result has: image, probabilities"),
        (["--rename", "image"], "OLD=NEW"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_a_part_that_there_is_not(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    assert call("extract", CNN, *options, "-o", "part.onnx") == ExitCode.USAGE
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# --- costs


def test_costs_of_the_samples_are_those_of_paper_and_pencil() -> None:
    """Convolutions: results x inputs per group x window; LSTM: steps x 4 x hidden x (input +
    hidden).
    """
    found = costs(converter.load(CNN).ir)
    by_name = {c.name: c for c in found.layers}
    assert by_name["conv1"].macs == 16 * 8 * 8 * 1 * 9
    assert by_name["conv2"].macs == 32 * 4 * 4 * 4 * 16 * 9
    assert by_name["conv3"].macs == 32 * 4 * 4 * 32 * 9
    assert by_name["dense"].macs == 128 * 10
    assert found.macs == 9216 + 294912 + 147456 + 1280
    assert by_name["conv2"].parameters == 32 * 16 * 9 + 32
    assert by_name["conv2"].weight_bytes == 4 * by_name["conv2"].parameters
    assert by_name["conv2"].activation_bytes == 4 * 32 * 8 * 8
    # between a batch normalization of conv2 and its input both are needed
    assert found.peak_bytes == 2 * 4 * 32 * 8 * 8 and found.uncounted == ()
    lstm = {c.name: c for c in costs(converter.load(LSTM).ir).layers}["lstm"]
    assert lstm.macs == 8 * 4 * 64 * (8 + 64)


def test_costs_of_groups_products_and_transposed_convolutions() -> None:
    model, b = new_model()
    x = b.input("x", T.FLOAT, [2, 4, 6, 6])
    w = np.ones((8, 2, 3, 3), np.float32)
    y = b.op("Conv", x, w, group=2, name="conv")
    z = b.op("ConvTranspose", y, np.ones((8, 5, 2, 2), np.float32), name="up")
    m = b.op("MatMul", z, np.ones((5, 7), np.float32), name="product")
    e = b.op("Einsum", m, np.ones((7, 3), np.float32), equation="abcd,de->abce", name="sum")
    b.output(b.op("Gemm", b.op("Flatten", e, axis=3), np.ones((3, 4), np.float32), name="gemm"))
    found = {c.name: c.macs for c in costs(model).layers}
    assert found["conv"] == 2 * 8 * 4 * 4 * 2 * 9
    assert found["up"] == 2 * 8 * 4 * 4 * 5 * 4
    assert found["product"] == 2 * 5 * 5 * 5 * 7
    assert found["sum"] == 2 * 5 * 5 * 7 * 3
    assert found["gemm"] == 2 * 5 * 5 * 3 * 4


def test_costs_that_depend_on_a_dynamic_size_are_marked(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, b = new_model()
    shared = b.const(np.ones((3, 3), np.float32))
    y = b.op("MatMul", b.input("x", T.FLOAT, ["n", 3]), shared, name="first")
    b.output(b.op("MatMul", y, shared, name="second"))
    converter.save(Model(model, "onnx"), tmp_path / "a.onnx")
    found = costs(converter.load(tmp_path / "a.onnx").ir)
    assert [c.macs for c in found.layers] == [None, None] and found.peak_bytes is None
    assert [c.parameters for c in found.layers] == [9, 0] and len(found.uncounted) == 2
    assert call("inspect", "a.onnx", "--layers") == 0
    out = capsys.readouterr().out
    assert "without 2 layers of dynamic shape" in out and "MatMul float[n,3]" in out
    assert call("inspect", "a.onnx", "--of", "json") == 0
    assert json.loads(capsys.readouterr().out)["costs"]["layers"][0]["macs"] is None


# --- profile


def test_a_profile_names_layers_also_of_fused_kernels(
    call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    model = converter.load(CNN)
    found = profile.profile(model, feeds_for(model, ["random"]), runs=2)
    layers = {s.layer for s in found}
    assert {"dense", "pool2", "probabilities"} <= layers
    assert any(s.kernel != s.operator and s.layer for s in found)  # a convolution with its ReLU
    assert all(s.milliseconds >= 0 for s in found)
    times = [s.milliseconds for s in found]
    assert times == sorted(times, reverse=True)
    assert call("run", CNN, "--profile") == 0
    assert "kernels of onnxruntime" in capsys.readouterr().out
    assert call("run", CNN, "--profile", "--engine", "openvino") == ExitCode.USAGE


# --- data sets


def classifier(path: Path, flip: bool = False) -> Path:
    """The class of a picture is its brightest corner; `flip`: two classes are exchanged."""
    model, b = new_model()
    x = b.input("x", T.FLOAT, [1, 3, 2, 2])
    m = b.op("ReduceMean", x, np.array([1]), keepdims=0)
    order = np.eye(4, dtype=np.float32)[[1, 0, 2, 3] if flip else [0, 1, 2, 3]]
    b.output(b.op("MatMul", b.op("Flatten", m), order, name="scores"))
    converter.save(Model(model, "onnx"), path)
    return path


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Four pictures with one white corner each, in two sizes, and their labels; the last is
    wrong.
    """
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    folder = tmp_path / "images"
    folder.mkdir()
    for corner in range(4):
        pixels = np.zeros((2, 2, 3), np.uint8)
        pixels[divmod(corner, 2)] = 255
        picture = image.fromarray(pixels).resize((2 + 2 * (corner % 2),) * 2, 0)
        picture.save(folder / f"{corner}.png")
    (tmp_path / "labels.csv").write_text("file,label\n0.png,0\n1.png,1\n2.png,2\n3.png,0\n")
    return tmp_path


def test_two_models_say_the_same_of_pictures(
    call: Call, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = classifier(pictures / "a.onnx"), classifier(pictures / "b.onnx", flip=True)
    data = ("--data", "images", "--labels", "labels.csv")
    assert call("verify", a, a, *data, "--format", "json") == 0
    found = json.loads(capsys.readouterr().out)["result"]
    assert (found["samples"], found["agree"], found["right"]) == (4, 4, [3, 3])
    assert call("verify", a, b, *data) == ExitCode.FINDING
    said = capsys.readouterr()
    assert "N409" in said.err and "50.00% agree" in said.out and "0.png: 0 became 1" in said.out
    assert call("verify", a, b, *data, "--agreement", "0.5") == 0


def test_pixels_are_prepared_as_asked(pictures: Path) -> None:
    from converter.commands.dataset import Preparation, image

    model = converter.load(classifier(pictures / "a.onnx"))
    path = pictures / "images" / "1.png"  # 4 x 4, the upper right quarter is white
    white = image(path, model.inputs[0], Preparation((55, 5, 0), (2, 50, 255)))
    assert white.shape == (1, 3, 2, 2)
    level = np.asarray(image(path, model.inputs[0], Preparation()))[0, 0, 0, 1]
    assert 128 < level <= 255
    expected = [(level - 55) / 2, (level - 5) / 50, level / 255]
    np.testing.assert_allclose(white[0, :, 0, 1], expected, rtol=1e-6)
    model, b = new_model()
    b.output(b.op("Relu", b.input("x", T.FLOAT, [5, 5, 1])))
    assert image(path, Model(model, "onnx").inputs[0], Preparation()).shape == (5, 5, 1)


def test_samples_of_one_archive(call: Call, capsys: pytest.CaptureFixture[str]) -> None:
    data = str(SAMPLES / "digits_lstm.npz")
    assert call("verify", LSTM, LSTM, "--data", data, "--labels", "labels", "--format", "json") == 0
    found = json.loads(capsys.readouterr().out)["result"]
    truth = np.load(SAMPLES / "digits_lstm.npz")
    model = converter.load(LSTM)
    right = sum(
        next(iter(model.run({"rows": r}).values())).argmax() == label
        for r, label in zip(truth["rows"], truth["labels"], strict=True)
    )
    assert found["samples"] == 360 and found["right"] == [right, right]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--data", "images", "--labels", "nowhere.csv"], "cannot read the labels"),
        (["--data", "images", "--labels", "odd.csv"], "line 2 must be FILE,LABEL"),
        (["--data", "images", "--labels", "more.csv"], "'9.png' has a label, but is not"),
        (["--labels", "labels.csv"], "--labels needs one --data"),
        (["--data", "images", "--labels", "labels.csv", "--mean", "1,2"], "must have 3 numbers"),
        (
            ["--data", "images", "--labels", "labels.csv", "--mean", "a"],
            "must be a list of numbers",
        ),
        (["--data", "images", "--labels", "text.csv"], "neither an image"),
    ],
    ids=lambda v: v[-1] if isinstance(v, list) else "",
)
def test_data_sets_that_do_not_fit_are_refused(
    call: Call, pictures: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    classifier(pictures / "a.onnx")
    (pictures / "odd.csv").write_text("0.png,0\n1.png,one\n")
    (pictures / "more.csv").write_text("9.png,0\n")
    (pictures / "text.csv").write_text("a.txt,0\n")
    (pictures / "images" / "a.txt").write_text("text")
    assert call("verify", "a.onnx", "a.onnx", *options) in (ExitCode.USAGE, ExitCode.UNREADABLE)
    assert said in capsys.readouterr().err


# --- several engines


def test_one_table_for_several_engines(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("openvino", reason="openvino is not installed")
    small(tmp_path / "a.onnx")
    small(tmp_path / "b.onnx", slope=0.3)
    assert call("verify", "a.onnx", "a.onnx", "--engine", "onnxruntime,openvino") == 0
    header, *table = capsys.readouterr().out.splitlines()
    assert header.startswith("engine") and [t.split()[0] for t in table] == [
        "onnxruntime",
        "openvino",
    ]
    assert all("same" in line for line in table)
    both = ("--engine", "openvino,onnxruntime", "--format", "json")
    assert call("verify", "a.onnx", "b.onnx", *both) == ExitCode.FINDING
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["result"]
    assert [(r["engine"], r["exit_code"]) for r in found] == [("openvino", 1), ("onnxruntime", 1)]
    assert call("verify", "a.onnx", "a.onnx", "--engine", "onnxruntime,abacus") == ExitCode.USAGE
    if sys.platform != "darwin":
        engines = "onnxruntime,coreml"
        assert call("verify", "a.onnx", "a.onnx", "--engine", engines) == ExitCode.NOTHING_COMPARED
        assert "could not compare: only macOS can run Core ML models" in capsys.readouterr().out
