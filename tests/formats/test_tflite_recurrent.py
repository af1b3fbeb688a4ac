"""Recurrent operators and variables: each run, and the next with the states that it leaves, gives
the results of LiteRT.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import converter
from converter.engines import litert

pytest.importorskip("tflite", reason="the schema package tflite is not installed")
from tflite_files import Graph, Op, Tensor, const, in_litert, write

pytestmark = pytest.mark.skipif(not litert.available(), reason="LiteRT is not installed")
RNG = np.random.default_rng(23)
F, SIZE, UNITS = np.float32, 3, 4
TANH, RELU = 4, 1


def floats(*shape: int) -> Any:
    return (RNG.standard_normal(shape) * 0.7).astype(F)


def file_of(
    path: Path, op: str, slots: Sequence[Any], outputs: Sequence[Tensor], **options: Any
) -> Path:
    """An operator with these inputs; None is left out. The first is the network's input."""
    tensors, inputs = [], []
    for slot in slots:
        inputs.append(-1 if slot is None else len(tensors))
        if slot is not None:
            tensors.append(slot if isinstance(slot, Tensor) else const(slot))
    results = list(range(len(tensors), len(tensors) + len(outputs)))
    table = options.pop("table")
    operator = Op(op, inputs, results, table, options)
    return write(path, Graph([*tensors, *outputs], [operator], [0], results))


def check(path: Path, feed: Any, atol: float = 1e-5) -> None:
    """Three runs, one after the other."""
    model, left = converter.load(path), {}
    for times in (1, 2, 3):
        found = model.run({model.inputs[0].name: feed, **left})
        wanted = in_litert(path, [feed], times)
        for got, value in zip(found.values(), wanted, strict=False):
            np.testing.assert_allclose(got, value, rtol=1e-4, atol=atol)
        left = {i: found[o] for i, o in model.interface["states"].items()}


def lstm(
    coupled: bool = False, peepholes: bool = False, projected: int = 0, normalised: bool = False
) -> list[Any]:
    """The inputs of an LSTM after the data."""
    out = projected or UNITS
    weights = [None if coupled and i == 0 else floats(UNITS, SIZE) for i in range(4)]
    recurrent = [None if coupled and i == 0 else floats(UNITS, out) for i in range(4)]
    peeps = [floats(UNITS) if peepholes and not (coupled and i == 0) else None for i in range(3)]
    biases = [None if coupled and i == 0 else floats(UNITS) for i in range(4)]
    projection = [floats(projected, UNITS), floats(projected)] if projected else [None, None]
    states = [Tensor(F, [2, out], variable=True), Tensor(F, [2, UNITS], variable=True)]
    norms = [None if coupled and i == 0 else floats(UNITS) for i in range(4)]
    found = [*weights, *recurrent, *peeps, *biases, *projection, *states]
    return [*found, *norms] if normalised else found


KINDS = {
    "plain": {},
    "coupled": {"coupled": True},
    "peepholes": {"peepholes": True},
    "coupled with peepholes": {"coupled": True, "peepholes": True},
    "projected": {"projected": 3},
    "normalised": {"normalised": True},
}


@pytest.mark.parametrize("kind", KINDS)
def test_steps(kind: str, tmp_path: Path) -> None:
    slots = [Tensor(F, [2, SIZE]), *lstm(**KINDS[kind])]
    y = Tensor(F, [2, KINDS[kind].get("projected", UNITS)])
    options = {"table": "LSTMOptions", "FusedActivationFunction": TANH}
    path = file_of(tmp_path / "m.tflite", "LSTM", slots, [y], **options)
    check(path, floats(2, SIZE))


def test_a_step_of_the_older_kernel(tmp_path: Path) -> None:
    """All gates are one matrix, and the states are inputs and results."""
    weights = [const(floats(4 * UNITS, SIZE + UNITS)), const(floats(4 * UNITS))]
    x, h, c = (Tensor(F, [2, n]) for n in (SIZE, UNITS, UNITS))
    results = [Tensor(F, [2, n]) for n in (UNITS, UNITS, SIZE + UNITS, 4 * UNITS)]
    options = {"FusedActivationFunction": TANH, "KernelType": 1}
    operator = Op("LSTM", range(5), range(5, 9), "LSTMOptions", options)
    graph = Graph([x, h, *weights, c, *results], [operator], [0, 1, 4], range(5, 9))
    path, feeds = write(tmp_path / "m.tflite", graph), [floats(2, n) for n in (SIZE, UNITS, UNITS)]
    model = converter.load(path)
    found = model.run({i.name: feed for i, feed in zip(model.inputs, feeds, strict=True)})
    for got, value in zip(found.values(), in_litert(path, feeds), strict=True):
        np.testing.assert_allclose(got, value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("major", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_sequences(kind: str, major: bool, tmp_path: Path) -> None:
    shape = [5, 2, SIZE] if major else [2, 5, SIZE]
    slots = [Tensor(F, shape), *lstm(**KINDS[kind])]
    y = Tensor(F, [*shape[:2], KINDS[kind].get("projected", UNITS)])
    options = {"table": "UnidirectionalSequenceLSTMOptions", "FusedActivationFunction": TANH}
    path = file_of(
        *(tmp_path / "m.tflite", "UNIDIRECTIONAL_SEQUENCE_LSTM", slots, [y]),
        TimeMajor=major,
        **options,
    )
    check(path, floats(*shape))
    kinds = {n.op_type for n in converter.load(path).ir.graph}
    assert ("LSTM" in kinds) == (kind not in ("projected", "normalised"))


@pytest.mark.parametrize(("cell", "projection"), [(0.3, 0.0), (0.0, 0.1)])
def test_limits_of_the_states(cell: float, projection: float, tmp_path: Path) -> None:
    slots = [Tensor(F, [2, 5, SIZE]), *lstm(projected=3)]
    options = {"CellClip": cell, "ProjClip": projection, "FusedActivationFunction": TANH}
    path = file_of(
        *(tmp_path / "m.tflite", "UNIDIRECTIONAL_SEQUENCE_LSTM", slots, [Tensor(F, [2, 5, 3])]),
        table="UnidirectionalSequenceLSTMOptions",
        **options,
    )
    check(path, floats(2, 5, SIZE))


def both(path: Path, ways: Sequence[list[Any]], merged: bool) -> Path:
    first, second = ways
    slots = [Tensor(F, [2, 5, SIZE]), *first[:17], *second[:17], *first[17:], *second[17:]]
    one, two = Tensor(F, [2, 5, UNITS]), Tensor(F, [2, 5, 2 * UNITS])
    return file_of(
        *(path, "BIDIRECTIONAL_SEQUENCE_LSTM", [*slots, *[None] * 9]),
        [two] if merged else [one, one],
        table="BidirectionalSequenceLSTMOptions",
        FusedActivationFunction=TANH,
        MergeOutputs=merged,
        TimeMajor=False,
    )


def test_both_directions(tmp_path: Path) -> None:
    check(both(tmp_path / "m.tflite", [lstm(), lstm()], False), floats(2, 5, SIZE))


def test_both_directions_side_by_side(tmp_path: Path) -> None:
    """LiteRT's own numbers of merged outputs change from run to run."""
    ways, feed = [lstm(), lstm()], floats(2, 5, SIZE)
    wanted = np.concatenate(in_litert(both(tmp_path / "a.tflite", ways, False), [feed]), axis=2)
    model = converter.load(both(tmp_path / "b.tflite", ways, True))
    found = next(iter(model.run({model.inputs[0].name: feed}).values()))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def rnn() -> list[Any]:
    state = Tensor(F, [2, UNITS], variable=True)
    return [floats(UNITS, SIZE), floats(UNITS, UNITS), floats(UNITS), state]


@pytest.mark.parametrize("activation", [TANH, RELU])
def test_simple_steps(activation: int, tmp_path: Path) -> None:
    slots = [Tensor(F, [2, SIZE]), *rnn()]
    options = {"table": "RNNOptions", "FusedActivationFunction": activation}
    path = file_of(tmp_path / "m.tflite", "RNN", slots, [Tensor(F, [2, UNITS])], **options)
    check(path, floats(2, SIZE))


@pytest.mark.parametrize("major", [False, True])
def test_simple_sequences(major: bool, tmp_path: Path) -> None:
    shape = [5, 2, SIZE] if major else [2, 5, SIZE]
    path = file_of(
        *(tmp_path / "m.tflite", "UNIDIRECTIONAL_SEQUENCE_RNN", [Tensor(F, shape), *rnn()]),
        [Tensor(F, [*shape[:2], UNITS])],
        table="SequenceRNNOptions",
        FusedActivationFunction=TANH,
        TimeMajor=major,
    )
    check(path, floats(*shape))


def test_simple_sequences_in_both_directions(tmp_path: Path) -> None:
    slots = [Tensor(F, [2, 5, SIZE]), *rnn(), *rnn(), None, None, None]
    one = Tensor(F, [2, 5, UNITS])
    path = file_of(
        *(tmp_path / "m.tflite", "BIDIRECTIONAL_SEQUENCE_RNN", slots, [one, one]),
        table="BidirectionalSequenceRNNOptions",
        FusedActivationFunction=TANH,
    )
    check(path, floats(2, 5, SIZE))


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("biased", [False, True])
def test_filters_in_time(rank: int, biased: bool, tmp_path: Path) -> None:
    filters, memory = 4, 6
    state = Tensor(F, [2, filters * memory], variable=True)
    bias = floats(filters // rank) if biased else None
    slots = [Tensor(F, [2, SIZE]), floats(filters, SIZE), floats(filters, memory), bias, state]
    path = file_of(
        *(tmp_path / "m.tflite", "SVDF", slots, [Tensor(F, [2, filters // rank])]),
        table="SVDFOptions",
        Rank=rank,
        FusedActivationFunction=RELU,
    )
    check(path, floats(2, SIZE))


def accumulator(path: Path) -> Path:
    """y = variable + x, which the variable becomes; it begins with 2."""
    handle = Tensor(13, [1])  # a resource
    name = {"SharedName": "total", "Container": ""}
    main = Graph(
        [Tensor(F, [3]), handle, Tensor(F, [3]), Tensor(F, [3])],
        [
            Op("CALL_ONCE", [], [], "CallOnceOptions", {"InitSubgraphIndex": 1}),
            Op("VAR_HANDLE", [], [1], "VarHandleOptions", name),
            Op("READ_VARIABLE", [1], [2], "ReadVariableOptions"),
            Op("ADD", [0, 2], [3], "AddOptions"),
            Op("ASSIGN_VARIABLE", [1, 3], [], "AssignVariableOptions"),
        ],
        [0],
        [3],
    )
    first = Graph(
        [handle, const(np.full(3, 2, F))],
        [
            Op("VAR_HANDLE", [], [0], "VarHandleOptions", name),
            Op("ASSIGN_VARIABLE", [0, 1], [], "AssignVariableOptions"),
        ],
        [],
        [],
    )
    return write(path, main, first)


def test_a_variable_is_a_state(tmp_path: Path) -> None:
    path = accumulator(tmp_path / "m.tflite")
    check(path, floats(3))
    model = converter.load(path)
    assert model.interface["states"] == {"total": "total_out"}
    np.testing.assert_array_equal(model.interface["defaults"]["total"], [2, 2, 2])


@pytest.mark.parametrize("target", ["onnx", "openvino"])
def test_a_state_is_one_in_other_formats(target: str, tmp_path: Path) -> None:
    path = accumulator(tmp_path / "m.tflite")
    written = tmp_path / ("m.onnx" if target == "onnx" else "m.xml")
    converter.convert(path, written, target=target)
    model = converter.load(written)
    assert model.interface["states"] == {"total": "total_out"}
    first = model.run({"t0": np.ones(3, F)})
    np.testing.assert_array_equal(next(iter(first.values())), [3, 3, 3])
    again = model.run({"t0": np.ones(3, F), "total": first["total_out"]})
    np.testing.assert_array_equal(next(iter(again.values())), [4, 4, 4])


def test_a_variable_that_has_no_first_value_is_refused(tmp_path: Path) -> None:
    name = {"SharedName": "total"}
    graph = Graph(
        [Tensor(13, [1]), Tensor(F, [3])],
        [
            Op("VAR_HANDLE", [], [0], "VarHandleOptions", name),
            Op("READ_VARIABLE", [0], [1], "ReadVariableOptions"),
        ],
        [],
        [1],
    )
    with pytest.raises(converter.errors.UnsupportedError, match="read before it is assigned"):
        converter.load(write(tmp_path / "m.tflite", graph))


# written
# -------------------------------------------------------------------------------------------


def network(path: Path, steps: int, batch: int, peepholes: bool, bias: bool, **more: Any) -> Path:
    """An LSTM of ONNX that begins with zeros; its results are all steps and the last one."""
    ways = 2 if more.get("direction") == "bidirectional" else 1
    given = {"W": floats(ways, 4 * UNITS, SIZE), "R": floats(ways, 4 * UNITS, UNITS)}
    if bias:
        given["B"] = floats(ways, 8 * UNITS)
    if peepholes:
        given["P"] = floats(ways, 3 * UNITS)
    inputs = ["X", "W", "R", "B" * bias, "", "", "", "P" * peepholes]
    node = helper.make_node("LSTM", inputs, ["Y", "H"], hidden_size=UNITS, **more)
    shapes = {"Y": [steps, ways, batch, UNITS], "H": [ways, batch, UNITS]}
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [steps, batch, SIZE])],
        [helper.make_tensor_value_info(k, TensorProto.FLOAT, v) for k, v in shapes.items()],
        [numpy_helper.from_array(v, k) for k, v in given.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def kinds_of(path: Path) -> list[str]:
    from converter.formats.tflite.codec import read_flat

    return [o.builtin for o in read_flat(path).graphs[0].operators]


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("peepholes", "bias", "batch"), [(0, 1, 2), (1, 1, 1), (0, 0, 3)])
def test_stateless_lstm_is_one_operator_that_keeps_nothing(
    direction: str, peepholes: int, bias: int, batch: int, tmp_path: Path
) -> None:
    source = network(
        *(tmp_path / "m.onnx", 12, batch, bool(peepholes), bool(bias)), direction=direction
    )
    converter.convert(source, tmp_path / "m.tflite")
    ways = 2 if direction == "bidirectional" else 1
    assert kinds_of(tmp_path / "m.tflite").count("UNIDIRECTIONAL_SEQUENCE_LSTM") == ways
    again = converter.load(tmp_path / "m.tflite")
    assert [n.op_type for n in again.ir.graph].count("LSTM") == ways
    assert [i.name for i in again.inputs] == ["X"]
    feed = 3 * floats(12, batch, SIZE)
    wanted = onnxruntime.InferenceSession(source).run(None, {"X": feed})
    for times in (1, 3):  # the states of one invocation do not reach the next
        for got, value in zip(in_litert(tmp_path / "m.tflite", [feed], times), wanted, strict=True):
            np.testing.assert_allclose(got, value, rtol=1e-4, atol=1e-5)
    for got, value in zip(again.run({"X": feed}).values(), wanted, strict=True):
        np.testing.assert_allclose(got, value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("major", [False, True])
@pytest.mark.parametrize("kind", ["plain", "peepholes", "coupled"])
def test_states_of_the_network_stay_variable_tensors(
    kind: str, major: bool, tmp_path: Path
) -> None:
    shape = [5, 2, SIZE] if major else [2, 5, SIZE]
    options = {"table": "UnidirectionalSequenceLSTMOptions", "FusedActivationFunction": TANH}
    file_of(
        *(tmp_path / "a.tflite", "UNIDIRECTIONAL_SEQUENCE_LSTM"),
        [Tensor(F, shape), *lstm(**KINDS[kind])],
        [Tensor(F, [*shape[:2], UNITS])],
        TimeMajor=major,
        **options,
    )
    feed = floats(*shape)
    converter.convert(tmp_path / "a.tflite", tmp_path / "b.onnx")
    for source in ("a.tflite", "b.onnx"):
        converter.convert(tmp_path / source, tmp_path / "c.tflite", force=True)
        assert "UNIDIRECTIONAL_SEQUENCE_LSTM" in kinds_of(tmp_path / "c.tflite")
        for times in (1, 2, 3):
            (wanted,) = in_litert(tmp_path / "a.tflite", [feed], times)
            (got,) = in_litert(tmp_path / "c.tflite", [feed], times)
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_states_that_are_given_are_no_variable_tensors(tmp_path: Path) -> None:
    source = network(tmp_path / "m.onnx", 12, 2, False, True)
    model = onnx.load(source)
    model.graph.node[0].input[5] = "S"
    state = helper.make_tensor_value_info("S", TensorProto.FLOAT, [1, 2, UNITS])
    model.graph.input.append(state)
    onnx.save(model, source)
    converter.convert(source, tmp_path / "m.tflite")
    assert "UNIDIRECTIONAL_SEQUENCE_LSTM" not in kinds_of(tmp_path / "m.tflite")
    feeds = {"X": floats(12, 2, SIZE), "S": floats(1, 2, UNITS)}
    wanted = onnxruntime.InferenceSession(source).run(None, feeds)
    found = in_litert(tmp_path / "m.tflite", list(feeds.values()))
    for got, value in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, value, rtol=1e-4, atol=1e-5)
