"""`netconv view`: the content of the page. The page itself is tried in test_view_browser.py."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.cli import app, console
from converter.commands.view import families, scopes, weights
from converter.commands.view.page import render
from converter.graph.build import new_model
from converter.graph.walk import all_nodes, constant_nodes
from report.views import blocks, drawn, integers, scope_of
from support import SAMPLES
from verify.nets import copy_of, resnet

TARGETS = {
    "onnx": "net.onnx", "openvino+ir=7": "net.xml", "openvino+ir=11": "net11.xml",
    "zhouyi": "net.txt", "nnapi": "net.nnapi.json", "tflite": "net.tflite",
    "mlprogram": "net.mlpackage", "coreml": "net.mlmodel",
}  # fmt: skip


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["netconv", *arguments])
    console.use(console.Console())
    return app._guarded()


def contents(model: dict[str, Any]) -> Counter[int]:
    """The number of boxes directly in each scope, -1 is the drawing."""
    return Counter([n["scope"] for n in model["nodes"]] + [s["parent"] for s in model["scopes"]])


# ---- folding


@pytest.mark.slow
@pytest.mark.parametrize("named", [True, False])
def test_thousands_of_layers_are_folded(named: bool) -> None:
    (model,) = drawn(render([("a", blocks(1000, named))]))["models"]
    assert len(model["nodes"]) == 5002
    assert max(contents(model).values()) <= scopes.MOST
    assert all(s["parent"] < i for i, s in enumerate(model["scopes"]))
    by_name = {n["n"]: n for n in model["nodes"]}
    if named:
        path = scope_of(model, by_name["/net/stage.37/block.4/Add"])
        assert path[0] == "net/stage" and path[-2:] == ["37/block", "4"]
    else:  # the cuts are where one tensor passes
        first = {
            min(i for i, n in enumerate(model["nodes"]) if n["scope"] == s)
            for s in {n["scope"] for n in model["nodes"]}
        }
        assert {model["nodes"][i]["k"] for i in first} <= {"MatMul", "Sigmoid", "input"}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["enc/a", "enc/b", "enc/c", "dec/x", "dec/y", "dec/z"], [["enc"]] * 3 + [["dec"]] * 3),
        (["enc/deep/a", "enc/deep/b", "enc/deep/c", "out"], [["enc/deep"]] * 3 + [[]]),
        (["all/a", "all/b", "all/c"], [[], [], []]),  # a scope around everything
        (["one/a", "b", "two/c", "d"], [[], [], [], []]),  # too few to be worth a fold
    ],
)
def test_scopes_are_parts_of_names(names: list[str], expected: list[list[str]]) -> None:
    paths = [[(scopes.PREFIX, p) for p in n.split("/")[:-1]] for n in names]
    folded = scopes.fold(paths, names, names, [])
    nodes = [{"scope": s} for s in folded.of]
    assert [scope_of({"scopes": folded.scopes}, n) for n in nodes] == expected


def test_a_prefix_that_names_the_operator_is_no_scope() -> None:
    paths = [[(scopes.PREFIX, kind)] for _ in range(20) for kind in ("conv", "relu")]
    kinds = [path[0][1] for path in paths]
    assert scopes.fold(paths, kinds, kinds, []).scopes == []
    far = [[(scopes.PREFIX, "block")] if i in (0, 1, 99) else [] for i in range(100)]
    numbers = [str(i) for i in range(100)]
    folded = scopes.fold(far, numbers, numbers, [])
    assert all(s["kind"] == scopes.RUN for s in folded.scopes)
    first, *_, last = (s["name"] for s in folded.scopes)  # by their first and last layers
    assert first.startswith("0 … ") and last.endswith(" … 99")


def test_bodies_and_layers_of_several_operators_are_scopes() -> None:
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [2, 3])
    bodies = []
    for kind in ("Relu", "Tanh"):
        body = b.body(kind.lower())
        body.output(body.op(kind, x, name=f"inner_{kind}"))
        bodies.append(body.graph)
    condition = b.op("Greater", b.op("ReduceMax", x, keepdims=0), np.float32(0), name="test")
    y = b.op("If", condition, then_branch=bodies[0], else_branch=bodies[1], name="choice")
    b.output(b.op("Neg", y, name="last"))
    (made,) = drawn(render([("a", Model(model, "onnx"))]))["models"]
    by_kind = {n["k"]: n for n in made["nodes"]}
    assert scope_of(made, by_kind["Relu"])[-1] == "then_branch"
    assert scope_of(made, by_kind["Tanh"])[-1] == "else_branch"
    assert scope_of(made, by_kind["If"]) == scope_of(made, by_kind["Relu"])[:-1] != []
    edges = {(made["nodes"][a]["k"], made["nodes"][c]["k"]) for a, c, _ in made["edges"]}
    assert {
        ("input", "Relu"),
        ("Relu", "If"),
        ("Tanh", "If"),
        ("Greater", "If"),
        ("If", "Neg"),
    } <= edges


# ---- layers, in every format


@pytest.mark.parametrize("target", TARGETS)
def test_every_format_is_drawn(target: str, tmp_path: Path) -> None:
    path = tmp_path / TARGETS[target]
    converter.convert(SAMPLES / "digits_cnn.mlmodel", path, target=target)
    model = converter.load(path)
    (made,) = drawn(render([("net", model)]))["models"]
    layers = [n for n in made["nodes"] if "port" not in n]
    fixed = constant_nodes(model.ir.graph)
    assert Counter(n["k"].split(".")[-1] for n in layers) == Counter(
        n.op_type for n in all_nodes(model.ir.graph) if n not in fixed
    )
    ports = [(n["port"], n["n"]) for n in made["nodes"] if "port" in n]
    assert ports == [("input", i.name) for i in model.inputs] + [
        ("output", o.name) for o in model.outputs
    ]
    reached = {0}  # everything follows from the input, in the order of the nodes
    for a, b, _ in sorted(made["edges"], key=lambda e: e[1]):
        assert a < b
        if a in reached:
            reached.add(b)
    assert {i for i, n in enumerate(made["nodes"]) if n.get("port") == "output"} <= reached
    told = sum(w["bytes"] for w in made["weights"])
    assert told == made["about"]["weights"]["bytes"] > 50_000
    assert any(n.get("t") for n in layers) or target == "onnx"  # the file's own names of layers


def test_a_layer_shows_attributes_shapes_and_weights() -> None:
    net = resnet(np.random.default_rng(0))
    (made,) = drawn(render([("a", net)]))["models"]
    conv = next(n for n in made["nodes"] if n["n"] == "stem")
    assert dict(conv["a"])["strides"] == "[2,2]" and dict(conv["a"])["pads"] == "[3,3,3,3]"
    assert conv["in"][0] == ["X", "image", "float[1,3,24,24]", -1]
    assert conv["out"][0][2] == "float[1,8,12,12]"
    weight = made["weights"][conv["in"][1][3]]
    node = next(n for n in net.ir.graph if n.name == "stem" or n.outputs[0].name == "stem")
    array = node.inputs[1].const_value.numpy()  # type: ignore[union-attr]
    assert weight["d"] == "float[8,3,7,7]" and weight["bytes"] == array.nbytes
    assert weight["low"] == pytest.approx(array.min(), rel=1e-4)
    assert weight["mean"] == pytest.approx(array.mean(), abs=1e-4)
    assert sum(weight["bars"]) == weight["of"] == array.size


def halves(pads: list[int], stored: type = np.float16) -> Model:
    """A network whose weights are stored in half precision, or in single precision."""
    model, b = new_model()
    rng = np.random.default_rng(0)
    y = b.input("x", ir.DataType.FLOAT, [1, 3, 8, 8])
    for i in range(3):
        weight = rng.standard_normal((3, 3, 3, 3)).astype(np.float16).astype(stored)
        w = b.const(weight, f"w{i}")
        w = b.op("Cast", w, to=1, name=f"cast{i}") if stored is np.float16 else w
        y = b.op("Conv", y, w, kernel_shape=[3, 3], pads=[1, 1, 1, 1], name=f"conv{i}")
    y = b.op("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2], pads=pads, name="pool")
    b.output(b.op("Relu", y, name="last"))
    return Model(model, "onnx")


def test_nodes_of_constants_belong_to_their_consumer() -> None:
    (made,) = drawn(render([("a", halves([1, 1, 1, 1]))]))["models"]
    assert Counter(n["k"] for n in made["nodes"] if "port" not in n) == Counter(
        {"Conv": 3, "MaxPool": 1, "Relu": 1}
    )
    conv = next(n for n in made["nodes"] if n["n"] == "conv1")
    weight = made["weights"][conv["in"][1][3]]
    assert (weight["n"], weight["d"]) == ("w1", "float16[3,3,3,3]")
    assert weight["steps"] == ["Cast to float[3,3,3,3]"] and weight["bytes"] == 162


def test_folded_constants_are_no_differences_and_move_no_finding() -> None:
    """The second model stores its weights in single precision, and has a wrong pool."""
    a, b = halves([1, 1, 1, 1]), halves([0, 1, 2, 1], np.float32)
    result = converter.verify(a, b, tensors="all")
    data = drawn(render([("a", a), ("b", b)], result))
    assert data["counts"] == {
        "same": 4, "changed": 1, "only in the first": 0, "only in the second": 0
    }  # fmt: skip
    for side in data["models"]:
        assert [n["n"] for n in side["nodes"] if n.get("state") == "wrong"] == ["pool"]


def test_a_quantized_layer_shows_bits_and_scales() -> None:
    (made,) = drawn(render([("a", integers())]))["models"]
    kinds = [n["k"] for n in made["nodes"]]
    assert kinds == ["input", "QuantizeLinear", "MatMul", "output"]  # as the file has them
    dense = made["nodes"][2]
    assert dense["t"] == "DENSE" and dense["in"][0][1] == "q"
    assert dense["in"][0][2] == "int8[1,4], scale 0.5, zero point 3"
    weight = made["weights"][dense["in"][1][3]]
    assert weight["d"].startswith("int8[4,2]") and weight["bytes"] == 8
    (step,) = weight["steps"]
    assert "0.25 2" in step and "axis 1" in step
    assert [1, 2] in [e[:2] for e in made["edges"]]


def test_shapes_and_operators_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.tflite"
    converter.convert(SAMPLES / "digits_cnn.mlmodel", path)
    (made,) = drawn(render([("a", converter.load(path))]))["models"]
    convolutions = [n for n in made["nodes"] if n["k"] == "Conv"]
    assert {n["t"] for n in convolutions} == {"CONV_2D"}
    assert "float[1,8,8,16]" in {n["out"][0][2] for n in convolutions}  # channels last
    converter.convert(path, tmp_path / "b.onnx")
    (other,) = drawn(render([("b", converter.load(tmp_path / "b.onnx"))]))["models"]
    assert not any("t" in n for n in other["nodes"])  # the file has ONNX's operators
    facts = dict(made["about"]["facts"])
    assert facts["format"].startswith("tflite (schema version 3") and facts["costs"]


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("Conv", "convolution"), ("ConvTranspose", "convolution"), ("Relu", "activation"),
        ("BatchNormalization", "normalization"), ("MaxPool", "pooling and resizing"),
        ("Gemm", "matrix product"), ("com.microsoft.MatMulNBits", "matrix product"),
        ("Reshape", "shape"), ("Gather", "shape"), ("ReduceMean", "reduction"),
        ("LSTM", "recurrence and attention"), ("If", "control flow"), ("Cast",
        "types and quantization"), ("Add", "arithmetic and other"), ("PRelu", "activation"),
    ],
)  # fmt: skip
def test_operators_have_families(operator: str, expected: str) -> None:
    assert families.FAMILIES[families.family(operator)] == expected


def test_weights_are_described() -> None:
    rng = np.random.default_rng(0)
    large = rng.normal(3, 2, 3 << 18).astype(np.float16)
    large[:6] = [np.nan, np.inf, -np.inf, 0, 0, 0]
    found = weights.described(large)
    assert found["of"] == 1 << 18 and found["mean"] == pytest.approx(3, abs=0.02)
    assert found["std"] == pytest.approx(2, abs=0.02) and found["strange"] == 1
    assert sum(found["bars"]) == found["of"] - 1
    assert weights.described(np.array([1, -1], np.int64)) == {"values": ["1", "-1"]}
    assert weights.described(np.array(["a", "b"], object)) == {"values": ["a", "b"]}
    assert weights.described(np.full(100, np.nan, np.float32)) == {"of": 100, "strange": 100}
    flat = weights.described(np.full(100, 7, np.int8))
    assert (flat["low"], flat["high"], max(flat["bars"])) == (7, 7, 100)
    assert weights.described(np.zeros((0, 3), np.float32)) == {"values": []}
    palette = np.tile(np.linspace(-1, 1, 16, dtype=np.float32), 64)
    assert weights.described(palette)["distinct"] == 16
    assert "distinct" not in weights.described(np.arange(4096, dtype=np.float32))
    wide = weights.described(np.array([-1.7e308, 1.7e308] * 10))
    assert (wide["bars"][0], wide["bars"][-1], wide["mean"]) == (10, 10, 0)
    near = weights.described(np.array([1e16, 1e16 + 2] * 10))
    assert sum(near["bars"]) == 20 and near["mean"] == 1e16
    even = np.linspace(-3, 5, 2400).astype(np.float32)
    assert set(weights.described(even)["bars"]) <= {99, 100, 101}


# ---- two models


def faulty() -> tuple[Model, Model]:
    good = resnet(np.random.default_rng(0))
    bad = copy_of(good)
    node = next(n for n in bad.ir.graph if n.op_type == "MaxPool")
    node.attributes["pads"] = ir.AttrInt64s("pads", [0, 1, 2, 1])
    return good, bad


def test_two_models_are_aligned_and_differences_marked() -> None:
    data = drawn(render([("a", faulty()[0]), ("b", faulty()[1])]))
    a, b = data["models"]
    assert data["counts"] == {
        "same": 28, "changed": 1, "only in the first": 0, "only in the second": 0
    }  # fmt: skip
    for i, n in enumerate(a["nodes"]):
        assert b["nodes"][n["twin"]]["twin"] == i and b["nodes"][n["twin"]]["n"] == n["n"]
    (changed,) = [n for n in a["nodes"] if n.get("state")]
    assert (changed["n"], changed["state"]) == ("stem_pool", "changed")
    assert changed["causes"] == ["pads  [1,1,1,1] became [0,1,2,1]"]


def test_layers_that_one_model_lacks_are_marked() -> None:
    def net(extra: bool) -> Model:
        model, b = new_model()
        y = b.op("Tanh", b.input("x", ir.DataType.FLOAT, [2, 3]), name="t")
        b.output(b.op("Relu", b.op("Exp", y, name="more") if extra else y, name="r"))
        return Model(model, "onnx")

    data = drawn(render([("a", net(False)), ("b", net(True))]))
    assert data["counts"]["only in the second"] == 1 and data["counts"]["only in the first"] == 0
    only = [n for n in data["models"][1]["nodes"] if n.get("state") == "only"]
    assert [(n["n"], n.get("twin")) for n in only] == [("more", None)]


def test_bodies_are_paired_in_their_order() -> None:
    """Another operator, another number and one more operator, in the branches of an If."""

    def net(changed: bool) -> Model:
        model, b = new_model()
        x = b.input("x", ir.DataType.FLOAT, [2])

        def branch(*steps: tuple[str, object]) -> ir.Graph:
            inner, i = new_model()
            y: ir.Value = x
            for op, operand in steps:
                y = i.op(op, y, *([] if operand is None else [operand]))
            inner.graph.outputs.append(y)
            return inner.graph

        then = [("Exp", None), ("Tanh" if changed else "Relu", None), ("Mul", np.float32(2))]
        other = [("Add", np.float32(3 if changed else 1)), *([("Neg", None)] if changed else [])]
        condition = b.op("Greater", b.op("ReduceMax", x, keepdims=0), np.float32(0))
        attributes = {"then_branch": branch(*then), "else_branch": branch(*other)}
        b.output(b.op("If", condition, name="y", **attributes))
        return Model(model, "onnx")

    data = drawn(render([("a", net(False)), ("b", net(True))]))
    left, right = ({n["k"]: n for n in m["nodes"]} for m in data["models"])
    assert "state" not in left["Exp"] and right["Neg"]["state"] == "only"
    assert left["Relu"]["causes"] == ["Relu became Tanh"]
    assert right["Tanh"]["twin"] == data["models"][0]["nodes"].index(left["Relu"])
    assert "1 became 3" in left["Add"]["causes"][0]


def test_another_operator_under_the_same_name() -> None:
    def net(kind: str) -> Model:
        model, b = new_model()
        y = b.op(kind, b.input("x", ir.DataType.FLOAT, [2, 3]), name="act")
        b.output(b.op("Exp", y, name="out"))
        return Model(model, "onnx")

    data = drawn(render([("a", net("Tanh")), ("b", net("Sigmoid"))]))
    one, other = (next(n for n in m["nodes"] if n["n"] == "act") for m in data["models"])
    assert one["causes"] == other["causes"] == ["Tanh became Sigmoid"]
    assert data["counts"]["changed"] == 1 and "twin" in one


def test_layers_have_the_errors_of_verify() -> None:
    good, bad = faulty()
    result = converter.verify(good, bad, tensors="all")
    data = drawn(render([("a", good), ("b", bad)], result))
    assert data["errors"] == result.counts() and data["passed"] is False
    for side in data["models"]:
        states = {n["n"]: n.get("state") for n in side["nodes"] if "port" not in n}
        assert states["stem_pool"] == "wrong" and states["stem"] == "equal"
        assert states["fc"] == "inherited" and "changed" not in states.values()
    pool = next(n for n in data["models"][0]["nodes"] if n["n"] == "stem_pool")
    own = result.findings[0].own
    assert (
        pool["eo"].startswith(f"{own.abs_at_index:.3g}, tolerance {own.tolerance:.3g}")
        and 0.9 < pool["own"] <= 1
    )
    assert pool["causes"] == list(result.findings[0].causes)


# ---- the command


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = faulty()
    a, b, page = tmp_path / "a.onnx", tmp_path / "b.onnx", tmp_path / "page.html"
    converter.save(good, a)
    converter.save(bad, b)
    assert call(monkeypatch, "view", str(a), "-o", str(page)) == 0
    text = page.read_text(encoding="utf-8")
    assert len(drawn(text)["models"]) == 1 and "Permission is hereby granted" in text
    assert call(monkeypatch, "view", str(a), str(b), "--verify", "-o", str(page)) == 0
    assert drawn(page)["errors"]["wrong"] == 1
    capsys.readouterr()
    assert call(monkeypatch, "view", str(a), "--verify", "-o", str(page)) == 2
    assert "two models" in capsys.readouterr().err
    assert call(monkeypatch, "view", str(tmp_path / "absent.onnx"), "-o", str(page)) == 4
    assert call(monkeypatch, "view", str(a), "-o", str(tmp_path / "no" / "page.html")) == 5


def test_a_name_is_escaped(tmp_path: Path) -> None:
    model, b = new_model()
    odd = '</script><script>alert(1)</script>"'
    b.output(b.op("Relu", b.input("x", ir.DataType.FLOAT, [2]), name=odd))
    page = render([("<b>.onnx", Model(model, "onnx"))])
    assert "<script>alert" not in page and "<b>" not in page
    assert any(n["n"] == odd for n in drawn(page)["models"][0]["nodes"])


def test_one_box_is_wrong_where_the_cause_is_before_the_compared_tensor() -> None:
    """The second model has other names, so that the tensor after the pool is the first compared."""

    def net(kind: str, name: str) -> Model:
        model, b = new_model()
        y = b.op("Tanh", b.input("x", ir.DataType.FLOAT, [1, 2, 6, 6]), name="t")
        y = b.op(kind, y, kernel_shape=[2, 2], name=name)
        y.producer().name = "pool"  # type: ignore[union-attr]
        b.output(b.op("Relu", y, name="last"))
        return Model(model, "onnx")

    a, b = net("MaxPool", "one"), net("AveragePool", "other")
    result = converter.verify(a, b, tensors="all")
    assert [f.layer for f in result.findings] == ["pool"]
    for side in drawn(render([("a", a), ("b", b)], result))["models"]:
        states = {n["n"]: n.get("state") for n in side["nodes"] if "port" not in n}
        assert states == {"t": "equal", "pool": "wrong", "last": "inherited"}
