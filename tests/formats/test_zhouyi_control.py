"""Zhouyi Compass IR: If and Loop as sub-graphs, or unrolled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.errors import ReadError
from converter.formats.zhouyi.codec import read_ir
from converter.formats.zhouyi.validate import validate
from converter.graph.build import Builder, new_model
from converter.graph.infer import shape_of
from judged import run_in

FLOAT, INT64, BOOL = ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.BOOL


def written(model: ir.Model, folder: Path) -> tuple[Model, Any]:
    path = folder / "m.txt"
    converter.save(Model(model, "onnx"), path)
    document = read_ir(path)
    assert [str(d) for d in validate(document) if d.level == "error"] == []
    return converter.load(path), document


def same(model: ir.Model, again: Model, *feeds: dict[str, Any]) -> None:
    for feed in feeds:
        for found, wanted in zip(
            again.run(feed).values(), Model(model, "onnx").run(feed).values(), strict=True
        ):
            np.testing.assert_allclose(found, wanted, 1e-5, 1e-6)


def choice() -> ir.Model:
    """x * 2 where the sum is positive, else a convolution of x and y: both branches read from
    outside.
    """
    model, b = new_model("m")
    x, y = b.input("x", FLOAT, [1, 2, 4, 4]), b.input("y", FLOAT, [1, 2, 4, 4])
    inside, other = b.body("then"), b.body("else")
    inside.output(inside.op("Mul", x, 2.0))
    weights = other.const(np.arange(36, dtype=np.float32).reshape(2, 2, 3, 3) / 36)
    other.output(
        other.op(
            "Add",
            other.op(
                "Conv",
                x,
                weights,
                kernel_shape=[3, 3],
                pads=[1, 1, 1, 1],
                strides=[1, 1],
                dilations=[1, 1],
            ),
            y,
        )
    )
    go = b.op("Reshape", b.op("Greater", b.op("ReduceSum", x, [0, 1, 2, 3]), 0.0), [])
    b.output(b.op("If", go, then_branch=inside.graph, else_branch=other.graph))
    return model


def test_if_is_two_sub_graphs(tmp_path: Path) -> None:
    model = choice()
    again, document = written(model, tmp_path)
    (layer,) = [x for x in document.layers if x.type == "If"]
    assert [g.name for g in document.subgraphs] == [
        layer.attrs["then_branch"],
        layer.attrs["else_branch"],
    ]
    assert (layer.attrs["then_branch_inputs_num"], layer.attrs["else_branch_inputs_num"]) == (1, 2)
    assert all(
        {t.name for x in g.layers for t in x.inputs}
        <= {t.name for x in g.layers for t in x.outputs}
        for g in document.subgraphs
    )
    rng = np.random.default_rng(0)
    x, y = (rng.random((1, 2, 4, 4)).astype(np.float32) for _ in range(2))
    same(model, again, {"x": x, "y": y}, {"x": -x, "y": y})


def halving(counts: bool) -> ir.Model:
    """x * factor + turn (or without) until the sum is small: the count depends on the data."""
    model, b = new_model("m")
    x, factor = b.input("x", FLOAT, [3]), b.input("factor", FLOAT, [1])
    body = b.body("body")
    turn, _, state = (
        body.input("turn", INT64, []),
        body.input("go", BOOL, []),
        body.input("s", FLOAT, [3]),
    )
    new = body.op("Mul", state, factor)
    if counts:
        new = body.op("Add", new, body.op("Cast", turn, to=int(FLOAT)))
    body.output(body.op("Less", body.op("Reshape", body.op("ReduceSum", new, [0]), []), 100.0), new)
    go = b.op("Reshape", b.op("Less", b.op("ReduceSum", x, [0]), 100.0), [])
    b.output(b.op("Loop", None, go, x, body=body.graph))
    return model


@pytest.mark.parametrize("counts", [False, True])
def test_loop_is_a_sub_graph(counts: bool, tmp_path: Path) -> None:
    model = halving(counts)
    again, document = written(model, tmp_path)
    (layer,) = [x for x in document.layers if x.type == "Loop"]
    (body,) = document.subgraphs
    assert len(layer.inputs) == len(body.input_tensors) == len(body.output_tensors) + 2
    assert (layer.attrs["dependency_inputs_num"], layer.attrs["scan_outputs_num"]) == (1, 0)
    assert len(layer.outputs) == 1, "the factor from outside is no state"
    read = {t.name for x in body.layers for t in x.inputs}
    assert (body.input_tensors[0] in read) == counts, "an executor feeds the turn there"
    same(
        model,
        again,
        *(
            {"x": np.array(x, np.float32), "factor": np.array([f], np.float32)}
            for x, f in (([1, 2, 3], 2), ([40, 2, 3], 1.5), ([200, 1, 1], 3))
        ),
    )


def sums_of_turns(shape: tuple[int, ...]) -> ir.Model:
    """As many turns as the data say, of which the file says that there are 4: s + factor, and the
    squares of all turns stacked.
    """
    model, b = new_model("m")
    x, factor = b.input("x", FLOAT, shape), b.input("factor", FLOAT, shape)
    turns, body = b.input("turns", INT64, []), b.body("body")
    _, go, state = (
        body.input("turn", INT64, []),
        body.input("go", BOOL, []),
        body.input("s", FLOAT, shape),
    )
    new = body.op("Add", state, factor)
    body.output(go, new, body.op("Mul", new, new))
    results = b.ops("Loop", turns, b.const(np.array(True)), x, outputs=2, body=body.graph)
    results[1].shape = ir.Shape([4, *shape])
    b.output(*results)
    return model


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (1, 2, 3)])
def test_results_of_iterations_are_joined_along_the_first_axis(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    """As the vendor's executor does: stacked values are vectors."""
    again, document = written(sums_of_turns(shape), tmp_path)
    (layer,) = [x for x in document.layers if x.type == "Loop"]
    assert (layer.attrs["dependency_inputs_num"], layer.attrs["scan_outputs_num"]) == (1, 1)
    assert len(layer.outputs[1].shape or ()) == 2
    rng = np.random.default_rng(0)
    x, factor = (np.asarray(rng.random(shape), np.float32) for _ in range(2))
    same(sums_of_turns(shape), again, {"x": x, "factor": factor, "turns": np.array(4)})


def block(number: int, kind: str, bottom: str, top: str, types: dict[str, Any], *more: str) -> str:
    lines = [f"layer_id={number}", f"layer_name=l{number}", f"layer_type={kind}"]
    for key, names in (("bottom", bottom.split()), ("top", top.split())):
        shapes, dtypes = ([types[n][i] for n in names] for i in range(2))
        lines += [f"layer_{key}=[{','.join(names)}]", f"layer_{key}_shape={shapes}"]
        lines += [f"layer_{key}_type=[{','.join(dtypes)}]"]
    return "\n".join([*lines, *more])


def parser_file(path: Path, shape: list[int], rows: list[int]) -> None:
    """`sums_of_turns` as the vendor's parser lays it out: values from outside after the states,
    and one tensor with the rows of all turns.
    """
    types = {n: (shape, "float32") for n in ["x", "factor", "s", "w", "n", "o", "y"]} | {
        n: ([1], "int32" if n in ("turns", "i") else "uint8") for n in ("turns", "i", "go", "c")
    }
    types["z"] = (rows, "float32")
    keys = ["dependency_inputs_num=1", "scan_outputs_num=1", "body=body_g", "loop_default_count=4"]
    act = "with_activation=NONE"
    main = [block(i, "Input", "", n, types) for i, n in enumerate(("turns", "go", "x", "factor"))]
    main.append(block(4, "Loop", "turns go x factor", "y z", types, *keys))
    body = [block(i, "Input", "", n, types) for i, n in enumerate("icsw")]
    body.append(block(4, "Eltwise", "s w", "n", types, "method=ADD", act))
    body.append(block(5, "Eltwise", "n n", "o", types, "method=MUL", act))
    heads = (
        ("model_name=m", main, "turns,go,x,factor", "y,z"),
        ("subgraph_name=body_g", body, "i,c,s,w", "c,n,o"),
    )
    text = ""
    for name, layers, given, results in heads:
        text += f"{name}\nlayer_number={len(layers)}\nprecision=float32\n"
        text += f"compat_quantized_model=false\ninput_tensors=[{given}]\n"
        text += f"output_tensors=[{results}]\n\n" + "\n\n".join(layers) + "\n\n"
    path.write_text(text)
    path.with_suffix(".bin").write_bytes(b"")


@pytest.mark.parametrize("shape", [(3,), (1, 3), (2, 2, 3)])
def test_a_loop_of_the_vendors_parser(shape: tuple[int, ...], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, factor = (rng.random(shape).astype(np.float32) for _ in range(2))
    wanted = np.vstack([(x + i * factor) ** 2 for i in range(1, 5)])
    parser_file(tmp_path / "m.txt", list(shape), list(wanted.shape))
    feeds = {"turns": np.array([4], np.int32), "go": np.array([1], np.uint8)}
    for path in (tmp_path / "m.txt", tmp_path / "again.txt"):
        model = converter.load(path)
        y, z = model.run(feeds | {"x": x, "factor": factor}).values()
        np.testing.assert_allclose(y, x + 4 * factor, 1e-5)
        np.testing.assert_allclose(z, wanted, 1e-5)
        converter.save(model, tmp_path / "again.txt")


def without_constants() -> ir.Model:
    """An If of which only the branches have constants."""
    model, b = new_model("m")
    x, go = b.input("x", FLOAT, [2, 3]), b.input("go", BOOL, [])
    inside, other = b.body("then"), b.body("else")
    inside.output(inside.op("Mul", x, 2.0))
    other.output(other.op("Add", x, np.arange(6, dtype=np.float32).reshape(2, 3)))
    b.output(b.op("If", go, then_branch=inside.graph, else_branch=other.graph))
    return model


def test_the_main_graph_has_a_constant_where_a_sub_graph_has_one(tmp_path: Path) -> None:
    """The vendor's reader opens the .bin for the main graph."""
    model = without_constants()
    again, document = written(model, tmp_path)
    assert [x.type for x in document.layers] == ["Input", "Input", "Constant", "If"]
    x = np.ones((2, 3), np.float32)
    same(model, again, {"x": x, "go": np.array(True)}, {"x": x, "go": np.array(False)})
    converter.save(again, tmp_path / "again.txt")
    assert "Constant" in [x.type for x in read_ir(tmp_path / "again.txt").layers]


def recurrent(op: str, activations: list[str] | None) -> ir.Model:
    gates, (model, b) = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], new_model("m")
    rng = np.random.default_rng(1)
    weights = [rng.standard_normal((1, gates * 4, n)).astype(np.float32) * 0.4 for n in (3, 4)]
    x = b.input("x", FLOAT, [5, 2, 3])
    b.output(*b.ops(op, x, *weights, outputs=2, hidden_size=4, activations=activations))
    return model


RECURRENT = [
    ("LSTM", ["Sigmoid", "Relu", "Tanh"]),
    ("GRU", ["HardSigmoid", "Tanh"]),
    ("RNN", ["Relu"]),
    ("LSTM", None),
    ("GRU", None),
    ("RNN", ["Sigmoid"]),
]


@pytest.mark.parametrize(("op", "activations"), RECURRENT)
def test_activations_that_the_executor_lacks_are_written_out(
    op: str, activations: list[str] | None, tmp_path: Path
) -> None:
    model = recurrent(op, activations)
    again, document = written(model, tmp_path)
    kept = {x.type for x in document.layers} & {"BasicLSTM", "GRUv1", "GRUv3", "RNN"}
    assert bool(kept) == (not activations or set(activations) <= {"Sigmoid", "Tanh"})
    same(
        model, again, {"x": np.random.default_rng(2).standard_normal((5, 2, 3)).astype(np.float32)}
    )


@pytest.mark.judges
@pytest.mark.parametrize(
    "name",
    [
        *("choice", "loop", "counting", "bare", "turns-0", "turns-2", "turns-3"),
        *(f"{op}-{a}" for op, a in RECURRENT),
    ],
)
def test_the_vendors_executor_runs_written_files(name: str, tmp_path: Path) -> None:
    made = {
        "choice": choice,
        "loop": lambda: halving(False),
        "counting": lambda: halving(True),
        "bare": without_constants,
    }
    made |= {f"turns-{n}": lambda n=n: sums_of_turns((2, 2, 3)[3 - n :]) for n in range(4)}
    made |= {f"{op}-{a}": lambda op=op, a=a: recurrent(op, a) for op, a in RECURRENT}
    model, rng = made[name](), np.random.default_rng(4)
    converter.save(Model(model, "onnx"), tmp_path / "m.txt")
    feeds = {
        v.name: np.array(True)
        if v.dtype == BOOL
        else np.array(4)
        if v.dtype == INT64
        else np.asarray(rng.random(shape_of(v)), np.float32) + 1
        for v in model.graph.inputs
    }
    wanted = Model(model, "onnx").run(feeds)
    for found, right in zip(
        run_in("zhouyi-vendor", tmp_path / "m.txt", feeds).values(), wanted.values(), strict=True
    ):
        np.testing.assert_allclose(found.reshape(right.shape), right, 1e-4, 1e-5)


UNSTARTED = {"x": np.array([200, 1, 1], np.float32), "factor": np.array([3], np.float32)}


def test_a_loop_without_iterations_returns_its_initial_states(tmp_path: Path) -> None:
    """The executor would return zeros, so that a Where after the Loop selects."""
    model = halving(False)
    again, document = written(model, tmp_path)
    (loop,) = [x for x in document.layers if x.type == "Loop"]
    (selection,) = [x for x in document.layers if x.type == "Where"]
    assert loop.outputs[0].name in [t.name for t in selection.inputs]
    same(model, again, UNSTARTED)


@pytest.mark.judges
def test_the_vendors_executor_runs_a_loop_without_iterations(tmp_path: Path) -> None:
    converter.save(Model(halving(False), "onnx"), tmp_path / "m.txt")
    (found,) = run_in("zhouyi-vendor", tmp_path / "m.txt", UNSTARTED).values()
    np.testing.assert_array_equal(found, UNSTARTED["x"])


def test_a_loop_of_known_length_is_written_out(tmp_path: Path) -> None:
    model, b = new_model("m")
    x = b.input("x", FLOAT, [2])
    body = b.body("body")
    turn, go, state = (
        body.input("turn", INT64, []),
        body.input("go", BOOL, []),
        body.input("s", FLOAT, [2]),
    )
    body.output(
        go, body.op("Add", body.op("Mul", state, 2.0), body.op("Cast", turn, to=int(FLOAT)))
    )
    b.output(b.op("Loop", b.const(np.array(3)), b.const(np.array(True)), x, body=body.graph))
    again, document = written(model, tmp_path)
    assert document.subgraphs == []
    same(model, again, {"x": np.array([1, 2], np.float32)})


def read_body(folder: Path, change: tuple[str, str]) -> None:
    converter.save(Model(halving(False), "onnx"), folder / "m.txt")
    text = (folder / "m.txt").read_text()
    assert change[0] in text
    (folder / "m.txt").write_text(text.replace(*change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("body=body_0", "body=nobody"), "is not a sub-graph"),
        (("body=body_0\n", ""), "'body' is absent"),
        (
            ("scan_outputs_num=0", "scan_outputs_num=1"),
            "scan_outputs_num=1, but the layer has 1 outputs and 1 states",
        ),
        (
            ("dependency_inputs_num=1", "dependency_inputs_num=3"),
            "dependency_inputs_num=3, but 2 inputs follow the condition",
        ),
    ],
)
def test_a_body_that_is_missing(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    read_body(tmp_path, change)
    with pytest.raises(ReadError, match=message):
        converter.load(tmp_path / "m.txt")


def test_nested(tmp_path: Path) -> None:
    model, b = new_model("m")
    x, y = b.input("x", FLOAT, [2]), b.input("y", FLOAT, [2])

    def positive(at: Builder, v: ir.Value) -> ir.Value:
        return at.op("Reshape", at.op("Greater", at.op("ReduceSum", v, [0]), 0.0), [])

    def choose(at: Builder, v: ir.Value, w: ir.Value, deep: bool) -> ir.Value:
        first, second = at.body("yes"), at.body("no")
        first.output(choose(first, w, v, False) if deep else first.op("Add", v, w))
        second.output(second.op("Sub", v, w))
        return at.op("If", positive(at, v), then_branch=first.graph, else_branch=second.graph)

    b.output(choose(b, x, y, True))
    again, document = written(model, tmp_path)
    assert len(document.subgraphs) == 4
    one, two = np.array([1, 2], np.float32), np.array([3, 5], np.float32)
    same(model, again, *({"x": p * one, "y": q * two} for p in (1, -1) for q in (1, -1)))
