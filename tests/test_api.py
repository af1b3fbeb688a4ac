"""`converter.convert` does the same as `netconv convert`: the same files byte for byte, the same
refusals.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.cli import app, console
from converter.errors import UsageError, WriteError
from converter.graph.build import new_model
from support import corpus_cases


@pytest.fixture
def net(tmp_path: Path) -> Path:
    """net.xml with net.bin: an image of unknown batch, and two outputs."""
    model, b = new_model()
    y = b.op(
        "Conv",
        b.input("x", ir.DataType.FLOAT, ["n", 3, 8, 8]),
        np.ones((4, 3, 3, 3), np.float32),
        pads=[1, 1, 1, 1],
        name="conv",
    )
    b.output(b.op("Sigmoid", y, name="act"), b.op("Exp", b.op("Neg", y, name="minus"), name="exp"))
    converter.save(Model(model, "onnx"), tmp_path / "net.xml")
    return tmp_path / "net.xml"


SHAPE = {"x": [2, 3, 8, 8]}
CALLS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("out.onnx", {}, []),
    (
        "out.xml",
        {"source": "openvino", "target": "openvino+ir=10+fp16"},
        ["-f", "openvino", "-t", "openvino+ir=10+fp16"],
    ),
    ("out.txt", {"inputs": SHAPE}, ["--inputs", "x:2,3,8,8"]),
    ("out.onnx", {"outputs": ["exp", "act"]}, ["--outputs", "exp", "--outputs", "act"]),
    ("out.onnx", {"outputs": "act"}, ["--outputs", "act"]),
    (
        "out.onnx",
        {"inputs": {"x": [1, 3, 8, 8]}, "freeze": {"x": 2}},
        ["--inputs", "x:1,3,8,8", "--freeze", "x=2"],
    ),
    (
        "out.nnapi.json",
        {"inputs": {"x": (2, np.int64(3), 8, 8)}, "io_layout": "keep"},
        ["--inputs", "x:2,3,8,8", "--io-layout", "keep"],
    ),
    (
        "out.nnapi.json",
        {"inputs": SHAPE, "io_layout": "native"},
        ["--inputs", "x:2,3,8,8", "--io-layout", "native"],
    ),
    ("out.onnx", {"weights": "moved.data"}, ["--weights", "moved.data"]),
]


@pytest.mark.parametrize(
    ("name", "said", "typed"),
    CALLS,
    ids=lambda v: "" if isinstance(v, dict) else v if isinstance(v, str) else " ".join(v),
)
def test_a_call_is_the_command(
    net: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    said: dict[str, Any],
    typed: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if "weights" in said:
        net.with_suffix(".bin").rename("moved.data")
    (tmp_path / "called").mkdir()
    (tmp_path / "typed").mkdir()
    notes = converter.convert(net.name, f"called/{name}", **said)
    monkeypatch.setattr(
        sys,
        "argv",
        ["netconv", "convert", net.name, "-o", f"typed/{name}", *typed, "--log", "log.jsonl"],
    )
    console.use(console.Console())
    assert app._guarded() == 0
    called = {p.name: p.read_bytes() for p in (tmp_path / "called").iterdir()}
    assert called == {p.name: p.read_bytes() for p in (tmp_path / "typed").iterdir()}
    assert name in called
    events = [json.loads(line) for line in Path("log.jsonl").read_text().splitlines()]
    assert [e["code"] for e in events if e["event"] == "diagnostic"] == [n.code for n in notes]


def test_existing_files_are_overwritten_unless_force_is_false(net: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    converter.convert(net, out, inputs=SHAPE)
    first = out.read_bytes()
    with pytest.raises(WriteError, match="the output exists"):
        converter.convert(net, out, inputs={"x": [1, 3, 8, 8]}, force=False)
    assert out.read_bytes() == first
    converter.convert(net, out, inputs={"x": [1, 3, 8, 8]})
    assert out.read_bytes() != first
    assert [i.shape for i in converter.load(out).inputs] == [(1, 3, 8, 8)]


def test_neither_the_model_nor_its_weights_are_overwritten(net: Path, tmp_path: Path) -> None:
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    # the second would have weights of its own in net.bin
    for name, why in (("net.xml", "overwrite the input"), ("net.txt", "holds the weights of")):
        with pytest.raises(UsageError, match=why):
            converter.convert(net, tmp_path / name, inputs=SHAPE, force=True)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"inputs": {"y": [1]}}, "inputs that the model does not have: y"),
        ({"inputs": {"x": [1, 3, 8]}}, "has 4 dimensions, got 3"),
        ({"inputs": {"x": [-1, 3, 8, 8]}}, "is not a valid shape"),
        ({"inputs": {"x": ["n", 3, 8, 8]}}, "is not a valid shape"),
        ({"freeze": {"y": 1}}, "--freeze names inputs that the model does not have: y"),
        ({"outputs": ["nothing"]}, "no tensors or layers named nothing"),
        ({"io_layout": "nhwc"}, "--io-layout 'nhwc' is not known"),
        ({"target": "onnx+opset=21+fp16"}, "no flavor 'fp16'"),
    ],
)
def test_unknown_names_are_refused(
    net: Path, tmp_path: Path, said: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        converter.convert(net, tmp_path / "out.onnx", **said)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.bin", "net.xml"]


@pytest.mark.parametrize("case", corpus_cases("zhouyi/int8", "m*"))
def test_the_fifth_argument_by_position_is_dequantize(case: Path, tmp_path: Path) -> None:
    converter.convert(case / "model.txt", tmp_path / "a.onnx", None, "onnx", True)
    converter.convert(case / "model.txt", tmp_path / "b.onnx", dequantize=True)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
