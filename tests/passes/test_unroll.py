"""Loops and choices that are known are written out; those that depend on the data stay."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.api import Model
from converter.graph.build import Builder, new_model
from converter.graph.infer import shape_of
from converter.graph.walk import all_nodes
from converter.passes.dead_code import remove_dead_code
from converter.passes.unroll import never_runs, unroll
from networks import choice


def doubling(trips: int | None, stop_at: float | None = None) -> ir.Model:
    """s doubles in every turn; every state is collected; with `stop_at` the loop ends when the sum
    of s reaches it.
    """
    model, b = new_model("m")
    s = b.input("s", ir.DataType.FLOAT, [2])
    body = b.body("body")
    body.input("turn", ir.DataType.INT64, [])
    go = body.input("go", ir.DataType.BOOL, [])
    state = body.input("state", ir.DataType.FLOAT, [2])
    new = body.op("Mul", state, 2.0)
    body.output(
        go
        if stop_at is None
        else body.op("Less", body.op("ReduceSum", new, [0], keepdims=0), stop_at),
        new,
        body.op("Identity", new),
    )
    results = b.ops(
        "Loop",
        None if trips is None else b.const(np.array(trips)),
        b.const(np.array(True)),
        s,
        outputs=2,
        body=body.graph,
    )
    b.output(*results)
    return model


def test_a_loop_with_known_turns() -> None:
    model = doubling(3)
    wanted = Model(model.clone(), "onnx").run({"s": np.float32([1, 2])})
    assert unroll(model)
    remove_dead_code(model)
    assert not [n for n in all_nodes(model.graph) if n.op_type == "Loop"]
    for name, found in Model(model, "onnx").run({"s": np.float32([1, 2])}).items():
        np.testing.assert_array_equal(found, wanted[name])


def test_a_loop_without_iterations_gives_its_states_and_stacks_nothing() -> None:
    model = doubling(0)
    (loop,) = (n for n in model.graph if n.op_type == "Loop")
    assert never_runs(loop) and unroll(model)
    remove_dead_code(model)
    assert not [n for n in all_nodes(model.graph) if n.op_type == "Loop"]
    state, stacked = Model(model, "onnx").run({"s": np.float32([1, 2])}).values()
    assert state.tolist() == [1, 2] and stacked.shape == (0, 2)
    (loop,) = (n for n in doubling(2).graph if n.op_type == "Loop")
    assert not never_runs(loop)


def test_a_loop_that_depends_on_the_data_stays() -> None:
    model = doubling(10, stop_at=20.0)
    assert not unroll(model)
    assert [n for n in model.graph if n.op_type == "Loop"]


def test_a_choice_with_a_known_condition() -> None:
    model, b = new_model("m")
    x = b.input("x", ir.DataType.FLOAT, [2])

    def branch(factor: float) -> Builder:
        inner = b.body("branch")
        inner.output(inner.op("Mul", x, factor))
        return inner

    b.output(
        b.op(
            "If",
            b.const(np.array(False)),
            then_branch=branch(2.0).graph,
            else_branch=branch(3.0).graph,
        )
    )
    assert unroll(model)
    (found,) = Model(model, "onnx").run({"x": np.float32([1, 2])}).values()
    np.testing.assert_array_equal(found, [3, 6])


def test_a_branch_that_is_taken_keeps_its_loops() -> None:
    model, b = new_model("m")
    x = b.input("x", ir.DataType.FLOAT, [2])
    branch, other = b.body("then"), b.body("else")
    body = branch.body("body")
    body.input("turn", ir.DataType.INT64, [])
    go, state = body.input("go", ir.DataType.BOOL, []), body.input("state", ir.DataType.FLOAT, [2])
    new = body.op("Add", state, x)
    body.output(
        body.op("And", go, body.op("Less", body.op("ReduceMax", new, [0], keepdims=0), 10.0)), new
    )
    branch.output(
        branch.op(
            "Loop", branch.const(np.array(20)), branch.const(np.array(True)), x, body=body.graph
        )
    )
    other.output(other.op("Neg", x))
    b.output(b.op("If", b.const(np.array(True)), then_branch=branch.graph, else_branch=other.graph))
    assert unroll(model)
    remove_dead_code(model)
    assert [n.op_type for n in model.graph] == ["Loop"]
    (found,) = Model(model, "onnx").run({"x": np.float32([1, 2])}).values()
    np.testing.assert_array_equal(found, [5, 10])


def test_a_loop_that_counts_by_itself() -> None:
    """As TensorFlow's: the condition compares a counter. A consumer of the collected states has a
    size then.
    """
    model, b = new_model("m")
    s = b.input("s", ir.DataType.FLOAT, [2])
    body = b.body("body")
    body.input("turn", ir.DataType.INT64, [])
    body.input("go", ir.DataType.BOOL, [])
    time, state = (
        body.input("time", ir.DataType.INT32, []),
        body.input("state", ir.DataType.FLOAT, [2]),
    )
    later, new = body.op("Add", time, np.array(1, np.int32)), body.op("Tanh", state)
    body.output(body.op("Less", later, np.array(5, np.int32)), later, new, body.op("Identity", new))
    results = b.ops(
        "Loop",
        b.const(np.array(7)),
        b.const(np.array(True)),
        b.const(np.array(0, np.int32)),
        s,
        outputs=3,
        body=body.graph,
    )
    b.output(b.op("Transpose", results[2], perm=[1, 0]))
    wanted = Model(model.clone(), "onnx").run({"s": np.float32([1, 2])})
    assert unroll(model)
    remove_dead_code(model)
    assert shape_of(model.graph.outputs[0]) == (2, 5)
    for name, found in Model(model, "onnx").run({"s": np.float32([1, 2])}).items():
        np.testing.assert_allclose(found, wanted[name], rtol=1e-6)


def test_a_loop_with_a_computed_number_of_iterations_stays() -> None:
    """The body ends it after three iterations, unless there are fewer."""
    model, b = new_model("m")
    trips, s = b.input("trips", ir.DataType.INT64, []), b.input("s", ir.DataType.FLOAT, [2])
    with b.loop(trips, s) as body:
        (end,) = body.end(body.Mul(body.states[0], 2.0), going=body.Less(body.iteration, 2))
    b.output(end)
    assert not unroll(model)
    feeds = {"trips": np.array(2), "s": np.float32([1, 2])}
    np.testing.assert_array_equal(Model(model, "onnx").run(feeds)[str(end.name)], [4, 8])


def test_a_choice_that_depends_on_sizes_after_another_choice() -> None:
    """The file declares dimensions between the choices by names of its own."""
    model, b = new_model("m")
    x = b.input("x", ir.DataType.FLOAT, ["N", 1, "T"])

    def chosen(condition: ir.Value, then: str, value: ir.Value) -> ir.Value:
        return choice(b, condition, lambda c: c.op(then, value, [1]), lambda c: c.Identity(value))

    one = b.op("Equal", b.op("Gather", b.op("Shape", x), np.array(1)), np.array(1))
    y = b.op("Neg", chosen(one, "Squeeze", x))
    y.shape = ir.Shape(["rows", "columns"])
    z = b.op("Exp", y)
    rank = b.op("Size", b.op("Shape", z))
    b.output(chosen(b.op("Equal", rank, np.array(2)), "Unsqueeze", z))
    assert unroll(model)
    remove_dead_code(model)
    assert not [n for n in all_nodes(model.graph) if n.op_type == "If"]
    (y,) = Model(model, "onnx").run({"x": np.zeros((2, 1, 3), np.float32)}).values()
    assert y.shape == (2, 1, 3)
