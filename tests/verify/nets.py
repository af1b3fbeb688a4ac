"""Small networks of the usual kinds, seeded, and single faults planted in them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from converter.api import Model
from converter.graph.build import Builder, new_model

Rng = np.random.Generator


def _weight(rng: Rng, *shape: int) -> np.ndarray:
    fan = int(np.prod(shape[1:])) or 1
    return (rng.standard_normal(shape) / float(np.sqrt(fan))).astype(np.float32)


def _conv(
    b: Builder,
    rng: Rng,
    x: ir.Value,
    out: int,
    kernel: int,
    name: str,
    stride: int = 1,
    group: int = 1,
) -> ir.Value:
    shape = x.shape
    assert shape is not None
    w, p = _weight(rng, out, int(shape[1]) // group, kernel, kernel), kernel // 2
    return b.op(
        "Conv",
        x,
        b.const(w, f"{name}_w"),
        _weight(rng, out),
        pads=[p] * 4,
        strides=[stride] * 2,
        group=group,
        name=name,
    )


def _norm(b: Builder, rng: Rng, x: ir.Value, name: str) -> ir.Value:
    assert x.shape is not None
    c = int(x.shape[1])
    scale, shift, mean, var = (rng.random(c).astype(np.float32) + 0.5 for _ in range(4))
    return b.op("BatchNormalization", x, scale, shift - 1, mean - 1, var, epsilon=1e-5, name=name)


def resnet(rng: Rng) -> Model:
    model, b = new_model()
    x = b.input("image", ir.DataType.FLOAT, [1, 3, 24, 24])
    x = b.op("Relu", _norm(b, rng, _conv(b, rng, x, 8, 7, "stem", 2), "stem_bn"), name="stem_relu")
    x = b.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], name="stem_pool")
    for i in range(3):
        y = b.op(
            "Relu",
            _norm(b, rng, _conv(b, rng, x, 8, 3, f"block{i}_a"), f"block{i}_a_bn"),
            name=f"block{i}_a_relu",
        )
        y = _norm(b, rng, _conv(b, rng, y, 8, 3, f"block{i}_b"), f"block{i}_b_bn")
        x = b.op("Relu", b.op("Add", x, y, name=f"block{i}_sum"), name=f"block{i}_relu")
    x = b.op("Flatten", b.op("GlobalAveragePool", x, name="gap"), name="flat")
    b.output(
        b.op(
            "Softmax",
            b.op(
                "Gemm",
                x,
                b.const(_weight(rng, 10, 8), "fc_w"),
                _weight(rng, 10),
                transB=1,
                name="fc",
            ),
            axis=1,
            name="prob",
        )
    )
    return Model(model, "onnx")


def mobilenet(rng: Rng) -> Model:
    model, b = new_model()
    x = b.input("image", ir.DataType.FLOAT, [1, 3, 16, 16])
    x = b.op("Clip", _conv(b, rng, x, 8, 3, "stem", 2), 0.0, 6.0, name="stem_relu6")
    for i in range(4):
        y = b.op("HardSwish", _conv(b, rng, x, 16, 1, f"expand{i}"), name=f"expand{i}_act")
        y = b.op(
            "Clip", _conv(b, rng, y, 16, 3, f"depth{i}", group=16), 0.0, 6.0, name=f"depth{i}_relu6"
        )
        gate = b.op("GlobalAveragePool", y, name=f"squeeze{i}")
        gate = b.op(
            "HardSigmoid",
            _conv(b, rng, gate, 16, 1, f"excite{i}"),
            alpha=0.2,
            beta=0.5,
            name=f"excite{i}_act",
        )
        y = _conv(b, rng, b.op("Mul", y, gate, name=f"gated{i}"), 8, 1, f"project{i}")
        x = b.op("Sub", x, y, name=f"sub{i}")
    up = b.op(
        "Resize", x, None, b.const(np.array([1, 1, 2, 2], np.float32)), mode="nearest", name="up"
    )
    skip = b.op("LeakyRelu", _conv(b, rng, up, 8, 3, "head"), alpha=0.1, name="head_act")
    joined = b.op("Concat", up, skip, axis=1, name="joined")
    b.output(b.op("AveragePool", joined, kernel_shape=[2, 2], strides=[2, 2], name="pooled"))
    return Model(model, "onnx")


def perceptron(rng: Rng) -> Model:
    model, b = new_model()
    x = b.input("features", ir.DataType.FLOAT, [2, 12])
    for i, act in enumerate(("Tanh", "Sigmoid", "Elu", "Gelu", "Softplus")):
        x = b.op("MatMul", x, b.const(_weight(rng, 12, 12), f"dense{i}_w"), name=f"dense{i}")
        x = b.op(act, b.op("Add", x, _weight(rng, 12), name=f"bias{i}"), name=f"act{i}")
        x = b.op(
            "LayerNormalization",
            x,
            rng.random(12).astype(np.float32) + 0.5,
            _weight(rng, 12),
            axis=-1,
            name=f"norm{i}",
        )
    b.output(x)
    return Model(model, "onnx")


def recurrent(rng: Rng) -> Model:
    model, b = new_model()
    tokens = b.input("tokens", ir.DataType.INT64, [6, 1])
    x = b.op("Gather", b.const(_weight(rng, 20, 8), "table"), tokens, axis=0, name="embedded")
    y, _, _ = b.ops(
        "LSTM",
        x,
        _weight(rng, 1, 32, 8),
        _weight(rng, 1, 32, 8),
        _weight(rng, 1, 64),
        hidden_size=8,
        outputs=3,
        names=("lstm", "lstm_h", "lstm_c"),
    )
    y = b.op("Squeeze", y, b.const([1]), name="squeezed")
    y, _ = b.ops(
        "GRU",
        y,
        _weight(rng, 1, 24, 8),
        _weight(rng, 1, 24, 8),
        _weight(rng, 1, 48),
        hidden_size=8,
        outputs=2,
        names=("gru", "gru_h"),
    )
    y = b.op("Tanh", b.op("Squeeze", y, b.const([1]), name="squeezed2"), name="act")
    y = b.op("Transpose", y, perm=[1, 0, 2], name="batch_first")
    b.output(
        b.op(
            "LogSoftmax",
            b.op("MatMul", y, b.const(_weight(rng, 8, 8), "out_w"), name="logits"),
            axis=-1,
            name="scores",
        )
    )
    return Model(model, "onnx")


NETS: dict[str, Callable[[Rng], Model]] = {
    "resnet": resnet,
    "mobilenet": mobilenet,
    "perceptron": perceptron,
    "recurrent": recurrent,
}


def copy_of(model: Model) -> Model:
    return Model(model.ir.clone(), model.format)


# faults: each takes the candidate's graph and gives the name of the layer that is now wrong, or
# None when it cannot be inserted

Fault = Callable[[ir.Model, Rng], "str | None"]
_ACTIVATIONS = {
    "Relu",
    "Clip",
    "HardSwish",
    "HardSigmoid",
    "LeakyRelu",
    "Tanh",
    "Sigmoid",
    "Elu",
    "Gelu",
    "Softplus",
}


def _pick(rng: Rng, items: list[ir.Node]) -> ir.Node | None:
    return items[int(rng.integers(len(items)))] if items else None


def _weights(node: ir.Node) -> list[int]:
    return [
        i
        for i, v in enumerate(node.inputs)
        if v is not None
        and v.const_value is not None
        and v.const_value.dtype == ir.DataType.FLOAT
        and v.const_value.size > 1
    ]


def _set(graph: ir.Graph, node: ir.Node, index: int, array: np.ndarray) -> None:
    old = node.inputs[index]
    assert old is not None
    value = ir.Value(
        name=f"{old.name}_planted",
        type=old.type,
        shape=ir.Shape(array.shape),
        const_value=ir.Tensor(array),
    )
    graph.register_initializer(value)
    node.replace_input_with(index, value)


def wrong_constant(model: ir.Model, rng: Rng) -> str | None:
    """One weight of one layer is off by half of the layer's largest weight."""
    node = _pick(rng, [n for n in model.graph if _weights(n) and n.op_type != "Resize"])
    if node is None:
        return None
    index = int(rng.choice(_weights(node)))
    array = node.inputs[index].const_value.numpy().copy()  # type: ignore[union-attr]
    array.reshape(-1)[int(rng.integers(array.size))] += 0.5 * np.abs(array).max()
    _set(model.graph, node, index, array)
    return node.outputs[0].name


def wrong_attribute(model: ir.Model, rng: Rng) -> str | None:
    wrong = {"alpha": 1.7, "beta": 0.6, "epsilon": 0.05, "axis": None}
    nodes = [(n, a) for n in model.graph for a in n.attributes if wrong.get(a)]
    if not nodes:
        return None
    node, name = nodes[int(rng.integers(len(nodes)))]
    node.attributes[name] = ir.AttrFloat32(name, wrong[name])  # type: ignore[arg-type]
    return node.outputs[0].name


def swapped_inputs(model: ir.Model, rng: Rng) -> str | None:
    node = _pick(
        rng,
        [
            n
            for n in model.graph
            if n.op_type in ("Sub", "Concat", "Div")
            and len(n.inputs) > 1
            and n.inputs[0] is not n.inputs[1]
        ],
    )
    if node is None:
        return None
    a, b = node.inputs[:2]
    node.replace_input_with(0, b)
    node.replace_input_with(1, a)
    return node.outputs[0].name


def transposed_weight(model: ir.Model, rng: Rng) -> str | None:
    def square(n: ir.Node) -> list[int]:
        return [
            i
            for i in _weights(n)
            if len(s := n.inputs[i].const_value.shape) >= 2 and s[-1] == s[-2] and s[-1] > 1
        ]  # type: ignore[union-attr]

    node = _pick(rng, [n for n in model.graph if square(n)])
    if node is None:
        return None
    index = square(node)[0]
    _set(
        model.graph,
        node,
        index,
        np.ascontiguousarray(node.inputs[index].const_value.numpy().swapaxes(-1, -2)),
    )  # type: ignore[union-attr]
    return node.outputs[0].name


def wrong_pad(model: ir.Model, rng: Rng) -> str | None:
    node = _pick(
        rng,
        [
            n
            for n in model.graph
            if "pads" in n.attributes and max(n.attributes["pads"].as_ints()) > 0
        ],
    )
    if node is None:
        return None
    pads = list(node.attributes["pads"].as_ints())
    node.attributes["pads"] = ir.AttrInt64s("pads", [pads[0] - 1, pads[1], pads[2] + 1, pads[3]])
    return node.outputs[0].name


def dropped_activation(model: ir.Model, rng: Rng) -> str | None:
    node = _pick(
        rng,
        [
            n
            for n in model.graph
            if n.op_type in _ACTIVATIONS and not n.outputs[0].is_graph_output()
        ],
    )
    if node is None:
        return None
    source = node.inputs[0]
    assert source is not None
    name = node.outputs[0].name
    node.outputs[0].replace_all_uses_with(source)
    model.graph.remove(node, safe=True)
    return name


FAULTS: tuple[Fault, ...] = (
    wrong_constant,
    wrong_attribute,
    swapped_inputs,
    transposed_weight,
    wrong_pad,
    dropped_activation,
)
