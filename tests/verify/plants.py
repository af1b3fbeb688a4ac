"""One network with most kinds of layers, and 27 kinds of faults that converters are known for, each
planted in one layer of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from converter.api import Model
from converter.graph.build import Builder, new_model
from converter.graph.names import Names
from converter.graph.shapes import infer_all


class Layers:
    """Layers with seeded weights."""

    def __init__(self, b: Builder, seed: int) -> None:
        self.b, self.rng = b, np.random.default_rng(seed)

    def weight(self, name: str, *shape: int) -> ir.Value:
        fan = int(np.prod(shape[1:])) or 1
        array = self.rng.standard_normal(shape) * 1.2 / np.sqrt(fan)
        return self.b.const(array.astype(np.float32), name)

    def conv(self, x: ir.Value, name: str, out: int, kernel: int) -> ir.Value:
        assert x.shape is not None
        w = self.weight(f"{name}_w", out, int(x.shape[1]), kernel, kernel)
        bias = self.weight(f"{name}_b", out)
        return self.b.op("Conv", x, w, bias, pads=[kernel // 2] * 4, name=name)

    def batch_norm(self, x: ir.Value, name: str) -> ir.Value:
        scale, shift, mean, variance = (
            self.b.const((self.rng.random(8) * 0.8 + 0.6).astype(np.float32), f"{name}_{part}")
            for part in ("scale", "shift", "mean", "variance")
        )
        return self.b.op(
            "BatchNormalization", x, scale, shift, mean, variance, epsilon=1e-5, name=name
        )

    def layer_norm(self, x: ir.Value, name: str) -> ir.Value:
        scale = self.b.const((self.rng.random(8) + 0.5).astype(np.float32), f"{name}_scale")
        shift = self.weight(f"{name}_shift", 8)
        return self.b.op("LayerNormalization", x, scale, shift, axis=-1, epsilon=1e-5, name=name)

    def dense(self, x: ir.Value, name: str, width: int) -> ir.Value:
        assert x.shape is not None
        w = self.weight(f"{name}_w", int(x.shape[-1]), width)
        product = self.b.op("MatMul", x, w, name=name)
        return self.b.op("Add", product, self.weight(f"{name}_b", width), name=f"{name}_o")


def network(seed: int = 0, half: bool = False, named: bool = True) -> Model:
    """Convolutions with skips, a gate, windows, then attention and a classifier: 61 nodes. `half`
    adds an output of half precision that nothing else reads; `named` nodes are called as the ones
    they compute, others have no names.
    """
    model, b = new_model()
    net = Layers(b, seed)
    image = b.input("image", ir.DataType.FLOAT, [1, 3, 16, 16])
    x = _convolutions(net, image)
    x = b.op("Transpose", b.op("Reshape", x, b.const([1, 8, 64]), name="flat"), perm=[0, 2, 1])
    x.name = "tokens"
    x = _attention(net, x)
    x = _root_mean_square(net, x)
    y = net.dense(net.layer_norm(x, "ln2"), "ff1", 16)
    y = net.dense(b.op("Gelu", y, name="gelu"), "ff2", 8)
    x = b.op("Add", x, y, name="ff_skip")
    x = b.op("ReduceMean", x, b.const([1]), keepdims=0, name="pooled")
    x = b.op("Gemm", x, net.weight("fc_w", 8, 10), net.weight("fc_b", 10), name="fc")
    b.output(b.op("Softmax", x, axis=-1, name="prob"))
    if half:
        b.output(b.op("Cast", image, to=int(ir.DataType.FLOAT16), name="half"))
    for n in model.graph if named else ():
        n.name = n.outputs[0].name
    return Model(model, "onnx")


def _convolutions(net: Layers, image: ir.Value) -> ir.Value:
    b = net.b
    x = net.batch_norm(net.conv(image, "stem", 8, 3), "bn")
    x = b.op("LeakyRelu", x, alpha=0.1, name="leaky")
    x = b.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], name="pool")
    y = b.op("Relu", net.conv(x, "b1_c1", 8, 3), name="b1_r1")
    y = b.op("Add", net.conv(y, "b1_c2", 8, 3), x, name="b1_sum")
    x = b.op("Relu", y, name="b1_out")
    y = b.op("Elu", net.conv(x, "b2_c1", 8, 3), alpha=1.0, name="b2_elu")
    y = net.conv(y, "b2_c2", 8, 3)
    gate = net.conv(b.op("GlobalAveragePool", y, name="gap"), "gate", 8, 1)
    y = b.op("Mul", y, b.op("Sigmoid", gate, name="gate_act"), name="gated")
    x = b.op("Sub", x, y, name="diff")
    window = {"kernel_shape": [3, 3], "strides": [1, 1], "pads": [1, 1, 1, 1]}
    y = b.op("AveragePool", x, count_include_pad=0, **window, name="average")
    x = net.conv(b.op("Concat", x, y, axis=1, name="cat"), "squeeze", 8, 1)
    sizes = b.const(np.array([1, 1, 2, 2], np.float32), "sizes")
    x = b.op("Resize", x, None, sizes, mode="nearest", name="up", **_NEAREST)
    x = b.op("Clip", x, np.float32(-2), np.float32(2), name="clip")
    return b.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], name="down")


_NEAREST = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


def _attention(net: Layers, x: ir.Value) -> ir.Value:
    b = net.b
    heads = b.const([1, 64, 2, 4])

    def head(name: str, perm: list[int]) -> ir.Value:
        split = b.op("Reshape", net.dense(normed, name, 8), heads, name=f"{name}_split")
        return b.op("Transpose", split, perm=perm, name=f"{name}_heads")

    normed = net.layer_norm(x, "ln1")
    q, v = head("q", [0, 2, 1, 3]), head("v", [0, 2, 1, 3])
    k = head("k", [0, 2, 3, 1])
    scores = b.op("Mul", b.op("MatMul", q, k, name="qk"), np.float32(0.5), name="scores")
    y = b.op("MatMul", b.op("Softmax", scores, axis=-1, name="attention"), v, name="context")
    y = b.op("Transpose", y, perm=[0, 2, 1, 3], name="merge")
    y = net.dense(b.op("Reshape", y, b.const([1, 64, 8]), name="merged"), "o", 8)
    return b.op("Add", x, y, name="attended")


def _root_mean_square(net: Layers, x: ir.Value) -> ir.Value:
    """x / sqrt(mean of x^2), with squares that halves cannot hold."""
    b = net.b
    large = b.op("Mul", x, np.float32(500), name="large")
    squares = b.op("Mul", large, large, name="squares")
    mean = b.op("ReduceMean", squares, b.const([-1]), keepdims=1, name="mean")
    return b.op("Div", large, b.op("Sqrt", mean, name="root"), name="rms")


# faults: each changes the graph in place

Fault = Callable[[ir.Model], None]


@dataclass(frozen=True)
class Plant:
    """A fault, the layers that may be named for it, and the text of its first cause (a regular
    expression).
    """

    plant: Fault
    layers: tuple[str, ...]
    cause: str


def node(model: ir.Model, name: str) -> ir.Node:
    return next(n for n in model.graph if str(n.outputs[0].name) == name)


def constant(name: str, index: int, change: Callable[[np.ndarray], np.ndarray]) -> Fault:
    def plant(model: ir.Model) -> None:
        value = node(model, name).inputs[index]
        assert value is not None and value.const_value is not None
        array = change(value.const_value.numpy().copy()).astype(np.float32)
        value.const_value = ir.Tensor(np.ascontiguousarray(array), name=value.name)

    return plant


def attribute(name: str, **values: object) -> Fault:
    def plant(model: ir.Model) -> None:
        target = node(model, name)
        for key, value in values.items():
            target.attributes[key] = ir.convenience.convert_attribute(key, value)

    return plant


def swapped(name: str) -> Fault:
    def plant(model: ir.Model) -> None:
        target = node(model, name)
        a, b = target.inputs[:2]
        target.replace_input_with(0, b)
        target.replace_input_with(1, a)

    return plant


def reads(name: str, index: int, other: str) -> Fault:
    def plant(model: ir.Model) -> None:
        node(model, name).replace_input_with(index, node(model, other).outputs[0])

    return plant


def dropped(name: str) -> Fault:
    def plant(model: ir.Model) -> None:
        target = node(model, name)
        target.outputs[0].replace_all_uses_with(target.inputs[0])  # type: ignore[arg-type]
        model.graph.remove(target, safe=True)

    return plant


def replaced(name: str, op_type: str, keep: tuple[str, ...] = (), **attributes: object) -> Fault:
    def plant(model: ir.Model) -> None:
        old = node(model, name)
        kept = {k: old.attributes[k].value for k in keep}
        _instead(model, old, op_type, **kept, **attributes)

    return plant


def _instead(model: ir.Model, old: ir.Node, op_type: str, **attributes: object) -> None:
    b = Builder(model.graph, Names(model), before=old)
    new, out = b.op(op_type, *old.inputs, **attributes), old.outputs[0]
    name = out.name
    out.replace_all_uses_with(new)
    model.graph.remove(old, safe=True)
    new.name = name


def through_halves(name: str) -> Fault:
    """The result of a layer is rounded to halves."""

    def plant(model: ir.Model) -> None:
        out = node(model, name).outputs[0]
        users = [(u.node, u.idx) for u in out.uses()]
        b = Builder(model.graph, Names(model), before=users[0][0])
        narrow = b.op("Cast", out, to=int(ir.DataType.FLOAT16), name=f"{name}_half")
        wide = b.op("Cast", narrow, to=int(ir.DataType.FLOAT), name=f"{name}_float")
        for user, index in users:
            user.replace_input_with(index, wide)

    return plant


def _one(array: np.ndarray) -> np.ndarray:
    array.reshape(-1)[5] += 0.02 * np.abs(array).max()
    return array


def _exchanged(model: ir.Model) -> None:
    """Mean and variance of the batch normalization."""
    target = node(model, "bn")
    mean, variance = target.inputs[3:5]
    target.replace_input_with(3, variance)
    target.replace_input_with(4, mean)


VALUES = r"\)  .*(values differ|became|transposed)"
FAULTS: dict[str, Plant] = {
    "const_small": Plant(constant("b1_c1", 1, _one), ("b1_c1",), VALUES),
    "bias_missing": Plant(constant("b1_c2", 2, np.zeros_like), ("b1_c2",), VALUES),
    "weights_scaled": Plant(constant("ff1", 1, lambda a: a * 1.01), ("ff1",), VALUES),
    "kernel_turned": Plant(
        constant("b2_c1", 1, lambda a: a.transpose(0, 1, 3, 2)), ("b2_c1",), VALUES
    ),
    "matmul_transposed": Plant(constant("v", 1, lambda a: a.T), ("v",), VALUES),
    "channels_reversed": Plant(constant("stem", 1, lambda a: a[:, ::-1]), ("stem",), VALUES),
    "half_weights": Plant(constant("ff2", 1, lambda a: a.astype(np.float16)), ("ff2",), VALUES),
    "norm_exchanged": Plant(_exchanged, ("bn",), f"{VALUES}|exchanged"),
    "norm_unscaled": Plant(constant("ln2", 1, np.ones_like), ("ln2",), VALUES),
    "eps_bn": Plant(attribute("bn", epsilon=1e-3), ("bn",), "epsilon"),
    "eps_ln": Plant(attribute("ln1", epsilon=1e-3), ("ln1",), "epsilon"),
    "leaky": Plant(attribute("leaky", alpha=0.2), ("leaky",), "alpha|slope"),
    "gelu_tanh": Plant(attribute("gelu", approximate="tanh"), ("gelu",), "approximate|tanh|Tanh"),
    "softmax_axis": Plant(attribute("attention", axis=-2), ("attention",), "axis"),
    "pads": Plant(attribute("stem", pads=[2, 1, 0, 1]), ("stem",), "pads"),
    "count_include_pad": Plant(
        attribute("average", count_include_pad=1), ("average",), "count_include_pad"
    ),
    "dilation": Plant(
        attribute("b2_c2", dilations=[2, 2], pads=[2, 2, 2, 2]), ("b2_c2",), "dilations|pads"
    ),
    "clip_max": Plant(constant("clip", 2, lambda a: a / 2), ("clip",), "max"),
    "resize_mode": Plant(attribute("up", mode="linear"), ("up",), "mode"),
    "perm": Plant(attribute("merge", perm=[0, 2, 3, 1]), ("merge", "merged"), "perm"),
    "swap_sub": Plant(swapped("diff"), ("diff",), "operands|reads"),
    "swap_concat": Plant(swapped("cat"), ("cat",), "operands|reads"),
    "swap_qk": Plant(reads("k_split", 0, "q_o"), ("k_split", "k_heads"), "operands|reads"),
    "wrong_skip": Plant(reads("b1_sum", 1, "b1_r1"), ("b1_sum",), "operands|reads"),
    "dropped_relu": Plant(dropped("b1_out"), ("b1_out",), "Relu"),
    "other_activation": Plant(
        replaced("gate_act", "HardSigmoid", alpha=0.2, beta=0.5), ("gate_act",), "Sigmoid"
    ),
    "other_pool": Plant(
        replaced("pool", "AveragePool", ("kernel_shape", "strides")), ("pool",), "MaxPool"
    ),
    "half_overflow": Plant(
        through_halves("squares"), ("squares", "mean"), "exists in the candidate only"
    ),
}


def planted(names: tuple[str, ...], seed: int = 0, half: bool = False, named: bool = True) -> Model:
    model = network(seed, half, named)
    for name in names:
        FAULTS[name].plant(model.ir)
    infer_all(model.ir)
    return model
