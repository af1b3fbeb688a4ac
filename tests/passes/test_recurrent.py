"""LSTM, GRU and RNN written out step by step, against onnxruntime's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.graph.build import new_model
from converter.passes.legalize import rewrite_illegal

TARGETS = {
    **{"openvino": ".xml", "openvino+ir=7": ".xml", "coreml": ".mlmodel", "zhouyi": ".txt"},
    **{"nnapi": ".nnapi.json", "tflite": ".tflite"},
}
T, B, N, H = 4, 3, 2, 5  # steps, sequences, features, size
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
CASES: dict[str, tuple[str, dict[str, Any], set[str]]] = {
    "lstm": ("LSTM", {}, set()),
    "lstm, everything given": ("LSTM", {}, {"bias", "lengths", "hidden", "cell", "peepholes"}),
    "lstm, both ways": (
        "LSTM",
        {"direction": "bidirectional"},
        {"bias", "lengths", "hidden", "cell", "peepholes"},
    ),
    "lstm, backwards": ("LSTM", {"direction": "reverse"}, {"bias", "lengths"}),
    "lstm, clipped and coupled": (
        "LSTM",
        {"clip": 0.2, "input_forget": 1},
        {"bias", "peepholes", "cell"},
    ),
    "lstm, other functions": (
        "LSTM",
        {
            "activations": ["HardSigmoid", "Softsign", "ScaledTanh"],
            "activation_alpha": [0.3, 1.5],
            "activation_beta": [0.4, 0.7],
        },
        {"bias"},
    ),
    "gru": ("GRU", {}, set()),
    "gru, linear before reset": ("GRU", {"linear_before_reset": 1}, {"bias", "hidden", "lengths"}),
    "gru, both ways": ("GRU", {"direction": "bidirectional"}, {"bias", "hidden", "lengths"}),
    "gru, both ways, linear": (
        "GRU",
        {"direction": "bidirectional", "linear_before_reset": 1},
        {"bias"},
    ),
    "gru, other functions": (
        "GRU",
        {"activations": ["Sigmoid", "Elu"], "activation_alpha": [0.5], "clip": 0.3},
        {"bias"},
    ),
    "rnn": ("RNN", {}, {"bias", "hidden", "lengths"}),
    "rnn, both ways": (
        "RNN",
        {
            "direction": "bidirectional",
            "activations": ["LeakyRelu", "Affine"],
            "activation_alpha": [0.1, 0.5],
            "activation_beta": [0.2],
        },
        {"bias"},
    ),
}


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape) + sum(shape)).normal(size=shape).astype(np.float32)


def network(
    kind: str, attributes: dict[str, Any], given: set[str], constant: bool = True, steps: Any = T
) -> tuple[Model, dict[str, np.ndarray]]:
    ways, gates = (2 if attributes.get("direction") == "bidirectional" else 1), _GATES[kind]
    feeds = {"x": random(T, B, N)}
    operands = {"w": random(ways, gates * H, N), "r": random(ways, gates * H, H)}
    m, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [steps, B, N])
    if not constant:
        feeds |= operands
    w, r = (v if constant else b.input(n, ir.DataType.FLOAT, v.shape) for n, v in operands.items())
    more: list[Any] = [random(ways, 2 * gates * H) if "bias" in given else None, None]
    if "lengths" in given:
        feeds["lengths"] = np.array([2, T, 1], np.int32)
        more[1] = b.input("lengths", ir.DataType.INT32, [B])
    more.append(random(ways, B, H) if "hidden" in given else None)
    if kind == "LSTM":
        more += [
            random(ways, B, H) / 2 if "cell" in given else None,
            random(ways, 3 * H) if "peepholes" in given else None,
        ]
    b.output(
        *b.ops(
            kind, x, w, r, *more, outputs=3 if kind == "LSTM" else 2, hidden_size=H, **attributes
        )
    )
    return Model(m, "onnx"), feeds


def written_out(m: Model) -> Model:
    copy = Model(m.ir.clone(), "onnx")
    rewrite_illegal(copy.ir, lambda n: n.op_type in _GATES, {})
    assert not {n.op_type for n in copy.ir.graph} & {*_GATES, "Loop", "Scan"}
    return copy


@pytest.mark.parametrize("constant", [True, False], ids=["constant weights", "weights as inputs"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(5)
def test_written_out_it_computes_the_same(name: str, constant: bool) -> None:
    m, feeds = network(*CASES[name], constant)
    wanted, got = m.run(feeds), written_out(m).run(feeds)
    for a, b in zip(wanted.values(), got.values(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("name", ["lstm, everything given", "lstm, both ways", "gru, both ways"])
def test_a_sequence_without_steps_ends_with_zeros(name: str, constant: bool) -> None:
    """For any initial states; onnxruntime has it so, the specification is silent."""
    m, feeds = network(*CASES[name], constant)
    lengths = np.array([0, T, 1], np.int32)
    if constant:
        node = next(n for n in m.ir.graph if n.op_type == CASES[name][0])
        assert node.inputs[4] is not None
        if node.inputs[4].const_value is not None:
            node.inputs[4].const_value = ir.Tensor(lengths)
    feeds |= {"lengths": lengths} if "lengths" in feeds else {}
    expected = m.run(feeds)
    for a, b in zip(expected.values(), written_out(m).run(feeds).values(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    ends = list(expected.values())[1:]
    assert all((v[:, 0] == 0).all() and (v[:, 1] != 0).any() for v in ends)


def test_batch_first() -> None:
    """The same numbers with the first two axes of the data, and of the states, swapped."""
    kind, attributes, given = CASES["gru, both ways"]
    m, feeds = network(kind, attributes, given - {"lengths"})
    first = Model(m.ir.clone(), "onnx")
    node = next(n for n in first.ir.graph if n.op_type == kind)
    x = first.ir.graph.inputs[0]
    x.shape = ir.Shape([B, T, N])
    node.attributes["layout"] = ir.AttrInt64("layout", 1)
    h = node.inputs[5]
    assert h is not None and h.const_value is not None
    h.const_value, h.shape = (
        ir.Tensor(np.ascontiguousarray(h.const_value.numpy().transpose(1, 0, 2))),
        ir.Shape([B, 2, H]),
    )
    for out in node.outputs:
        out.shape = None
    from converter.graph.infer import infer

    infer(node)
    wanted, got = (
        list(m.run({"x": feeds["x"]}).values()),
        list(written_out(first).run({"x": feeds["x"].transpose(1, 0, 2)}).values()),
    )
    np.testing.assert_allclose(wanted[0].transpose(2, 0, 1, 3), got[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(wanted[1].transpose(1, 0, 2), got[1], rtol=1e-5, atol=1e-6)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(5)
def test_every_target_has_them(name: str, target: str, tmp_path: Path) -> None:
    m, feeds = network(*CASES[name])
    path = tmp_path / f"m{TARGETS[target]}"
    converter.save(m, path, target)
    for a, b in zip(m.run(feeds).values(), converter.load(path).run(feeds).values(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_any_number_of_steps_is_a_loop(direction: str, tmp_path: Path) -> None:
    """An LSTM that LSTMSequence cannot say; the file runs in OpenVINO."""
    attributes = {"direction": direction, "input_forget": 1}
    m, feeds = network("LSTM", attributes, {"bias", "lengths", "cell", "peepholes"}, steps="steps")
    converter.save(m, tmp_path / "m.xml", "openvino")
    read = converter.load(tmp_path / "m.xml")
    for steps in (T, 7):
        feeds["x"] = random(steps, B, N)
        feeds["lengths"] = np.array([2, steps, 1], np.int32)
        wanted, found = m.run(feeds), read.run(feeds, engine="openvino")
        for a, b in zip(wanted.values(), found.values(), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_weights_put_together_from_slices_are_constant(tmp_path: Path) -> None:
    """Exporters reorder the gates of a cell by slices of its weights."""
    size = 40  # more elements than are folded into the graph
    rng = np.random.default_rng(0)
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [1, 2, size])
    joined = []
    for name in ("w", "r"):
        array = rng.standard_normal((4 * size, size)).astype(np.float32) / size
        whole, ends = b.const(array, name), (0, size, 3 * size, 4 * size)
        parts = [b.Slice(whole, [ends[i]], [ends[i + 1]], [0]) for i in (0, 2, 1)]
        joined.append(b.Unsqueeze(b.Concat(*parts, axis=0), [0]))
    b.output(b.LSTM(x, *joined, outputs=3, hidden_size=size)[1])
    converter.save(Model(model.clone(), "onnx"), tmp_path / "m.mlmodel")
    feeds = {"x": rng.standard_normal((1, 2, size)).astype(np.float32)}
    (expected,) = Model(model, "onnx").run(feeds).values()
    written = converter.load(tmp_path / "m.mlmodel")
    assert "LSTM" in {n.op_type for n in written.ir.graph}
    (found,) = written.run(feeds).values()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
