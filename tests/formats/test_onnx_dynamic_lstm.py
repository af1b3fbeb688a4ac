"""com.microsoft DynamicQuantizeLSTM: X and each state are rounded to bytes, also if the network
becomes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import converter
from converter import engines
from converter.errors import ConverterError
from converter.formats.format import Flavor
from converter.formats.onnx.codec import TensorFiles
from converter.formats.onnx.lift import lift
from converter.formats.tflite import lower as tflite

rng = np.random.default_rng(11)
STEPS, BATCH, SIZE, HIDDEN = 5, 1, 6, 4


def f(*shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


def case(
    ways: int = 1,
    batch: int = BATCH,
    kind: type = np.int8,
    columns: bool = False,
    lengths: list[int] | None = None,
    states: bool = False,
    peepholes: bool = False,
    outputs: tuple[int, ...] = (1, 1, 1),
    **attributes: Any,
) -> tuple[list[np.ndarray | None], dict[str, Any], tuple[int, ...]]:
    """Weights of 7 bits, whose products no kernel cuts."""
    low, high = (-63, 64) if kind is np.int8 else (60, 190)
    quantized = [
        rng.integers(low, high, (ways, n, 4 * HIDDEN)).astype(kind) for n in (SIZE, HIDDEN)
    ]
    shape = (ways, 4 * HIDDEN) if columns else (ways,)
    middle = 0 if kind is np.int8 else 128
    # the kernel wants the zero points of columns to be alike
    steps = [
        [
            rng.uniform(0.004, 0.02, shape).astype(np.float32),
            np.full(shape, middle + (0 if columns else n + 2)).astype(kind),
        ]
        for n in range(2)
    ]
    given = [
        None if lengths is None else np.array(lengths, np.int32),
        *([f(ways, batch, HIDDEN), f(ways, batch, HIDDEN)] if states else [None, None]),
        f(ways, 3 * HIDDEN) if peepholes else None,
    ]
    inputs = [
        f(STEPS, batch, SIZE) * 3 + 1,
        *quantized,
        f(ways, 8 * HIDDEN),
        *given,
        *steps[0],
        *steps[1],
    ]
    return inputs, {"hidden_size": HIDDEN, **attributes}, outputs


CASES = {
    "forward": case(),
    "forward, columns": case(columns=True),
    "unsigned": case(kind=np.uint8),
    "reverse, states": case(direction="reverse", states=True),
    "both, batch": case(
        ways=2, batch=2, direction="bidirectional", states=True, columns=True, kind=np.uint8
    ),
    "both, lengths": case(
        ways=2, batch=3, direction="bidirectional", lengths=[2, 4, 0], states=True
    ),
    "lengths, no Y": case(batch=2, lengths=[2, 4], outputs=(0, 1, 1)),
    "peepholes": case(peepholes=True, clip=0.7),
    "coupled": case(input_forget=1, activations=["HardSigmoid", "Relu", "Tanh"]),
}


def proto_of(key: str) -> tuple[onnx.ModelProto, np.ndarray]:
    inputs, attributes, outputs = CASES[key]
    names = ["" if x is None else f"i{i}" for i, x in enumerate(inputs)]
    results = [f"o{i}" if wanted else "" for i, wanted in enumerate(outputs)]
    x = inputs[0]
    assert x is not None
    constants = [
        numpy_helper.from_array(v, n)
        for v, n in zip(inputs[1:], names[1:], strict=True)
        if v is not None
    ]
    node = helper.make_node(
        "DynamicQuantizeLSTM", names, results, domain="com.microsoft", **attributes
    )
    declared = [
        helper.make_tensor_value_info(r, onnx.TensorProto.FLOAT, None) for r in results if r
    ]
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("i0", onnx.TensorProto.FLOAT, x.shape)],
        declared,
        constants,
    )
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)],
        ir_version=9,
    ), x


def times(x: np.ndarray, weight: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """x, as bytes of its own range, times the weight."""
    low, high = min(float(x.min()), 0.0), max(float(x.max()), 0.0)
    step = (
        np.float32((np.float32(high) - np.float32(low)) / np.float32(255))
        if high > low
        else np.float32(1)
    )
    point = np.clip(np.rint(-np.float32(low) / step), 0, 255)
    stored = np.clip(np.rint(x / step) + point, 0, 255).astype(np.int64)
    return (
        (stored - int(point)) @ (weight.astype(np.int64) - zero.astype(np.int64)) * (step * scale)
    )


ACTIVATIONS = {
    "Sigmoid": lambda v: 1 / (1 + np.exp(-v)),
    "Tanh": np.tanh,
    "Relu": lambda v: np.maximum(v, 0),
    "HardSigmoid": lambda v: np.clip(0.2 * v + 0.5, 0, 1),
}


def witness(key: str) -> list[np.ndarray]:
    """Compute onnxruntime's kernel on one thread, in numpy."""
    inputs, attributes, outputs = CASES[key]
    x, w, r, bias, lengths, h0, c0, p, ws, wz, rs, rz = inputs
    assert x is not None and w is not None and r is not None and bias is not None
    ends = np.full(x.shape[1], len(x)) if lengths is None else lengths
    ways, found = len(w), []
    fs = [ACTIVATIONS[a] for a in attributes.get("activations", ["Sigmoid", "Tanh", "Tanh"])]
    clip = attributes.get("clip", np.inf)
    for d in range(ways):
        backward = d == 1 or attributes.get("direction") == "reverse"
        turned = x.copy()
        for n, end in enumerate(ends):
            turned[:end, n] = x[:end, n][::-1] if backward else x[:end, n]
        rows = times(turned[: ends.max()], w[d], ws[d], wz[d])  # type: ignore[index]
        h = np.zeros((x.shape[1], HIDDEN)) if h0 is None else h0[d].astype(np.float64)
        c = np.zeros((x.shape[1], HIDDEN)) if c0 is None else c0[d].astype(np.float64)
        fed, y = h.copy(), np.zeros((len(x), x.shape[1], HIDDEN))
        for t in range(ends.max()):
            total = (
                rows[t]
                + times(fed.astype(np.float32), r[d], rs[d], rz[d])
                + bias[d, : 4 * HIDDEN]
                + bias[d, 4 * HIDDEN :]
            )  # type: ignore[index]
            i, o, forget, new = np.split(total, 4, axis=1)
            pi, po, pf = np.split(np.zeros(3 * HIDDEN) if p is None else p[d], 3)
            i = fs[0](np.clip(i + pi * c, -clip, clip))
            forget = (
                1 - i
                if attributes.get("input_forget")
                else fs[0](np.clip(forget + pf * c, -clip, clip))
            )
            cell = forget * c + i * fs[1](np.clip(new, -clip, clip))
            state = fs[0](np.clip(o + po * cell, -clip, clip)) * fs[2](cell)
            here = (t < ends)[:, None]
            y[t] = np.where(here, state, 0)
            h, c = np.where(here, state, h), np.where(here, cell, c)
            fed = y[t] if outputs[0] else h
        if backward:
            for n, end in enumerate(ends):
                y[:end, n] = y[:end, n][::-1].copy()
        some = (ends > 0)[:, None]
        found.append((y, h * some, c * some))
    results = [
        np.stack([v[0] for v in found], 1),
        *(np.stack([v[i] for v in found], 0) for i in (1, 2)),
    ]
    return [v for v, wanted in zip(results, outputs, strict=True) if wanted]


def one_thread() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # a batch is rounded as a whole
    return options


def close(found: np.ndarray, wanted: np.ndarray) -> None:
    """Activations differ by a step of float32 from one engine to the next, which may round a byte
    the other way; a float LSTM is off by 0.0016 and more.
    """
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=0, atol=3e-4)


@pytest.mark.parametrize("key", CASES)
def test_the_witness_is_the_kernel(key: str) -> None:
    proto, x = proto_of(key)
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), one_thread(), providers=["CPUExecutionProvider"]
    )
    for found, wanted in zip(session.run(None, {"i0": x}), witness(key), strict=True):
        close(found, wanted)


@pytest.mark.parametrize("key", CASES)
def test_the_read_network_agrees_with_the_kernel(key: str) -> None:
    proto, x = proto_of(key)
    for found, wanted in zip(
        engines.run(lift(proto, TensorFiles(Path("model.onnx"))), {"i0": x}).values(),
        witness(key),
        strict=True,
    ):
        close(found, wanted)


def test_states_of_an_open_batch_are_inputs() -> None:
    proto, x = proto_of("reverse, states")
    wanted = witness("reverse, states")
    given = {"i0": x}
    for name in ("i5", "i6"):  # the first state and cell
        (value,) = [t for t in proto.graph.initializer if t.name == name]
        given[name] = numpy_helper.to_array(value)
        proto.graph.initializer.remove(value)
        shape: list[str | int | None] = [1, "batch", HIDDEN]
        proto.graph.input.append(helper.make_tensor_value_info(name, value.data_type, shape))
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "batch"
    found = engines.run(lift(proto, TensorFiles(Path("model.onnx"))), given)
    for result, want in zip(found.values(), wanted, strict=True):
        close(result, want)


def test_weights_that_change_their_sign_are_stored_once(tmp_path: Path) -> None:
    """onnxruntime multiplies bytes of one sign exactly: the others are moved by 128."""
    proto, _ = proto_of("forward")
    onnx.save(proto, tmp_path / "in.onnx")
    converter.convert(tmp_path / "in.onnx", tmp_path / "out.onnx")
    graph = onnx.load(tmp_path / "out.onnx").graph
    bodies = [a.g for n in graph.node for a in n.attribute if a.type == a.GRAPH]
    read = {name for g in (graph, *bodies) for n in g.node for name in n.input}
    assert {t.name for g in (graph, *bodies) for t in g.initializer} <= read


@pytest.mark.parametrize(
    "target",
    ["onnx", "onnx+opset=13", "openvino", "openvino+ir=7", "coreml", "zhouyi", "nnapi", "tflite"],
)
@pytest.mark.parametrize("key", ["forward", "both, batch"])
@pytest.mark.sampled(5)
def test_it_stays_so_in_every_format(key: str, target: str, tmp_path: Path) -> None:
    proto, x = proto_of(key)
    onnx.save(proto, tmp_path / "in.onnx")
    suffix = {
        "onnx": ".onnx",
        "openvino": ".xml",
        "coreml": ".mlmodel",
        "zhouyi": ".txt",
        "nnapi": ".nnapi.json",
        "tflite": ".tflite",
    }
    path = tmp_path / f"out{suffix[target.split('+')[0]]}"
    converter.convert(tmp_path / "in.onnx", path, target=target)
    model = converter.load(path)
    found = list(model.run({model.inputs[0].name: x}).values())
    for result, wanted in zip(found, witness(key), strict=True):
        close(result.reshape(wanted.shape), wanted)


def test_steps_share_the_floats_of_a_weight() -> None:
    """A file of 2 GiB would not hold one for each step."""
    proto, _ = proto_of("forward")
    network = lift(proto, TensorFiles(Path("model.onnx")))
    written = tflite.lower(network, Flavor("tflite"), [])
    matrices = [
        t.data for g in written.graphs for t in g.tensors if t.shape == [4 * HIDDEN, HIDDEN]
    ]
    assert len(matrices) > len(set(matrices)) == 1


def test_the_batch_first_is_refused_by_name() -> None:
    proto, _ = proto_of("forward")
    proto.graph.node[0].attribute.append(helper.make_attribute("layout", 1))
    with pytest.raises(ConverterError, match="DynamicQuantizeLSTM"):
        lift(proto, TensorFiles(Path("model.onnx")))
