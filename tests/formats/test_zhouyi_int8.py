"""Zhouyi integer IR written from quantized networks: read back exactly, against onnxruntime's
evaluation of the quantized network.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.errors import ConverterError
from converter.formats.zhouyi.codec import read_ir
from converter.formats.zhouyi.quantization.requantize import approximate, per_channel
from converter.formats.zhouyi.validate import validate
from converter.graph.build import new_model
from support import corpus_cases

Array = Any
RNG = np.random.default_rng(7)
OUT = 0.03


class Net:
    """A quantized network in the making: every `q` is a QuantizeLinear and a DequantizeLinear."""

    def __init__(
        self, *shape: int, scale: float = 0.02, zero: int = 3, dtype: Any = np.int8
    ) -> None:
        self.model, self.b = new_model()
        self.x = self.q(self.b.input("x", ir.DataType.FLOAT, shape), scale, zero, dtype)
        self.shape = shape

    def q(self, y: ir.Value, scale: float = OUT, zero: int = -5, dtype: Any = np.int8) -> ir.Value:
        step, point = self.b.const(np.float32(scale)), self.b.const(np.asarray(zero, dtype))
        return self.b.op(
            "DequantizeLinear", self.b.op("QuantizeLinear", y, step, point), step, point
        )

    def w(self, *shape: int, axis: int | None = 0, dtype: Any = np.int8, zero: int = 0) -> ir.Value:
        """Stored weights; a step for each slice of `axis`."""
        info = np.iinfo(dtype)
        stored = RNG.integers(info.min + 1, info.max, shape).astype(dtype)
        count = 1 if axis is None else shape[axis]
        scales = (0.002 + 0.004 * RNG.random(count)).astype(np.float32)
        points = np.full(count, zero, dtype)
        if axis is None:
            return self.b.op(
                "DequantizeLinear",
                self.b.const(stored),
                self.b.const(scales.reshape(())),
                self.b.const(points.reshape(())),
            )
        return self.b.op(
            "DequantizeLinear",
            self.b.const(stored),
            self.b.const(scales),
            self.b.const(points),
            axis=axis,
        )

    def ends(self, y: ir.Value) -> Model:
        self.b.output(y)
        return Model(self.model, "onnx")

    def op(self, kind: str, *operands: Any, **attrs: Any) -> ir.Value:
        return self.b.op(kind, self.x, *operands, **attrs)


def floats(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


def conv(net: Net, dtype: Any = np.int8, zero: int = 0) -> ir.Value:
    return net.op(
        "Conv",
        net.w(6, 3, 3, 3, dtype=dtype, zero=zero),
        net.b.const(floats(6) * 0.1),
        pads=[1, 1, 1, 1],
    )


UNARY = (
    "Sigmoid",
    "Tanh",
    "HardSwish",
    "Elu",
    "Gelu",
    "Softplus",
    "Erf",
    "Exp",
    "Abs",
    "Neg",
    "Mish",
    "HardSigmoid",
    "Softsign",
    "Floor",
    "Selu",
    "Sign",
)
NETS: dict[str, tuple[tuple[int, ...], Callable[[Net], ir.Value]]] = {
    "convolution": ((1, 3, 7, 7), lambda n: n.q(conv(n))),
    "a constant with two scales": (
        (1, 3, 7, 7),
        lambda n: n.q(n.op("Add", n.q(n.w(1, 3, 7, 7, axis=None)))),
    ),
    "unsigned weights": ((1, 3, 7, 7), lambda n: n.q(conv(n, np.uint8, 131))),
    "relu": ((1, 3, 7, 7), lambda n: n.q(n.b.op("Relu", conv(n)), 0.01, 0, np.uint8)),
    "relu inside the range": ((1, 3, 7, 7), lambda n: n.q(n.b.op("Relu", conv(n)))),
    "clip inside the range": (
        (1, 3, 7, 7),
        lambda n: n.q(n.b.op("Clip", conv(n), np.float32(-0.3), np.float32(1.1))),
    ),
    "leaky": ((1, 3, 7, 7), lambda n: n.q(n.b.op("LeakyRelu", conv(n), alpha=0.013))),
    "depthwise": (
        (1, 4, 7, 7),
        lambda n: n.q(n.op("Conv", n.w(4, 1, 3, 3), group=4, strides=[2, 2])),
    ),
    "groups": (
        (1, 4, 7, 7),
        lambda n: n.q(n.op("Conv", n.w(6, 2, 3, 3), group=2, dilations=[2, 2])),
    ),
    "transposed": (
        (1, 4, 5, 5),
        lambda n: n.q(n.op("ConvTranspose", n.w(4, 3, 3, 3, axis=1), strides=[2, 2])),
    ),
    "transposed in groups": (
        (1, 4, 5, 5),
        lambda n: n.q(n.op("ConvTranspose", n.w(4, 3, 3, 3, axis=None), group=2, strides=[2, 2])),
    ),
    "volumes": ((1, 2, 4, 5, 5), lambda n: n.q(n.op("Conv", n.w(3, 2, 2, 3, 3)))),
    "dense behind flatten": (
        (2, 3, 4, 4),
        lambda n: n.q(
            n.b.op(
                "Gemm",
                n.b.op("Flatten", n.q(n.op("Conv", n.w(5, 3, 1, 1)))),
                n.w(10, 80),
                n.b.const(floats(10)),
                transB=1,
            ),
            0.08,
        ),
    ),
    "dense in batches": (
        (2, 5, 8),
        lambda n: n.q(n.b.op("Add", n.op("MatMul", n.w(8, 6, axis=1)), n.b.const(floats(6)))),
    ),
    "products": (
        (2, 5, 8),
        lambda n: n.q(n.op("MatMul", n.b.op("Transpose", n.x, perm=[0, 2, 1])), 0.2),
    ),
    "sum": (
        (1, 3, 5, 5),
        lambda n: n.q(n.b.op("Relu", n.b.op("Add", n.x, n.q(n.op("Neg"), 0.011, 7)))),
    ),
    "difference with a constant": (
        (1, 3, 5, 5),
        lambda n: n.q(n.op("Sub", n.w(1, 3, 1, 1, axis=None))),
    ),
    "product with a number": ((1, 3, 5, 5), lambda n: n.q(n.op("Mul", np.float32(0.37)))),
    "product with a number for each channel": (
        (1, 3, 5, 5),
        lambda n: n.q(n.op("Mul", n.w(3, 1, 1, axis=None))),
    ),
    "at least a number": ((2, 3, 5, 5), lambda n: n.q(n.op("Max", n.w(1, axis=None)))),
    "larger and smaller": (
        (1, 3, 5, 5),
        lambda n: n.q(n.b.op("Min", n.q(n.op("Max", n.w(1, 3, 5, 5, axis=None))), n.x)),
    ),
    "quotient": ((1, 3, 5, 5), lambda n: n.q(n.op("Div", n.q(n.b.op("Exp", n.x), 0.05, -128)))),
    "maximum": (
        (1, 3, 8, 8),
        lambda n: n.q(
            n.op("MaxPool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]), 0.02, 3
        ),
    ),
    "average": (
        (1, 3, 8, 8),
        lambda n: n.q(
            n.op("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]), 0.013, 1
        ),
    ),
    "average of padded": (
        (1, 3, 8, 8),
        lambda n: n.q(
            n.op("AveragePool", kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1), 0.006, 1
        ),
    ),
    "average of whole images": ((1, 3, 9, 9), lambda n: n.q(n.op("GlobalAveragePool"), 0.002, 3)),
    "distances": ((1, 3, 5, 5), lambda n: n.q(n.op("Abs"), 0.011, -128)),
    "leaky alone": ((1, 3, 7, 7), lambda n: n.q(n.op("LeakyRelu", alpha=0.13), 0.007)),
    "mean": ((1, 3, 8, 8), lambda n: n.q(n.op("ReduceMean", [2, 3], keepdims=0), 0.003)),
    "global average": ((1, 8, 4, 4), lambda n: n.q(n.op("GlobalAveragePool"), 0.02, 3)),
    "joined": (
        (1, 3, 5, 5),
        lambda n: n.q(n.b.op("Concat", n.x, n.q(n.op("Sigmoid"), 1 / 256, -128), axis=1), 0.025),
    ),
    "softmax": ((3, 10), lambda n: n.q(n.op("Softmax", axis=-1), 1 / 256, -128)),
    "softmax of few": ((1, 4, 16, 8), lambda n: n.q(n.op("Softmax", axis=1), 1 / 256, 0, np.uint8)),
    "moved": (
        (1, 3, 4, 4),
        lambda n: n.q(
            n.b.op(
                "Reshape",
                n.b.op("Slice", n.op("Transpose", perm=[0, 2, 3, 1]), [1], [3], [1]),
                [1, 8, 3],
            ),
            0.02,
            3,
        ),
    ),
    "padded": (
        (1, 3, 4, 4),
        lambda n: n.q(
            n.b.op(
                "Conv",
                n.q(n.op("Pad", [0, 0, 1, 0, 0, 0, 2, 1], np.float32(0.5)), 0.02, 3),
                n.w(4, 3, 3, 3),
            )
        ),
    ),
    "halves": (
        (1, 4, 4, 4),
        lambda n: n.q(
            n.b.op(
                "Mul", *(n.q(v, 0.02, 3) for v in n.b.ops("Split", n.x, [2, 2], axis=1, outputs=2))
            )
        ),
    ),
    "nearest": (
        (1, 3, 4, 4),
        lambda n: n.q(
            n.op(
                "Resize",
                None,
                np.array([1, 1, 2, 2], np.float32),
                mode="nearest",
                nearest_mode="floor",
            ),
            0.02,
            3,
        ),
    ),
    "bilinear": (
        (1, 3, 4, 4),
        lambda n: n.q(
            n.op("Resize", None, np.array([1, 1, 2, 2], np.float32), mode="linear"), 0.02, 3
        ),
    ),
    "slopes": ((1, 3, 4, 4), lambda n: n.q(n.op("PRelu", n.b.const(np.abs(floats(3, 1, 1)))))),
    "across channels": (
        (1, 8, 4, 4),
        lambda n: n.q(n.op("LRN", size=5, alpha=0.2, beta=0.75, bias=1.5)),
    ),
    "another grid": ((1, 3, 4, 4), lambda n: n.q(n.x, 0.017, 40, np.uint8)),
} | {
    kind: ((1, 3, 5, 5), lambda n, kind=kind: n.q(n.b.op(kind, n.x)))  # type: ignore[misc]
    for kind in UNARY
}
# consecutive layers, each of which may be a step off with 15 bits
FAR = {"larger and smaller": 3, "quotient": 2, "halves": 2, "dense behind flatten": 2, "joined": 2}
# layers that are exact in floats alone
IN_FLOATS = {
    "softmax": "Softmax",
    "softmax of few": "Softmax",
    "quotient": "Div",
    "average": "Pooling",
}


def integers(
    model: Model, folder: Path, name: str = "z", target: str = "zhouyi+int8", floats: str = ""
) -> Path:
    """The integer IR of a network; the file is sound, `floats` is the layer that computes in
    floats.
    """
    path = folder / f"{name}.txt"
    notes = converter.save(model, path, target)
    assert [n.message for n in notes if not floats or floats not in n.message] == []
    assert [str(d) for d in validate(read_ir(path)) if d.level == "error"] == []
    return path


def apart(first: Array, second: Array, step: float) -> float:
    return float(np.abs(np.asarray(first) - np.asarray(second)).max() / step)


def last_step(model: Model) -> float:
    node = model.ir.graph.outputs[0].producer()
    assert node is not None and node.op_type == "DequantizeLinear"
    scale = node.inputs[1]
    assert scale is not None and scale.const_value is not None
    return float(scale.const_value.numpy())


@pytest.mark.parametrize("target", ["zhouyi+int8", "zhouyi+int8+npu"])
@pytest.mark.parametrize("name", NETS)
@pytest.mark.sampled(7)
def test_written_integers_follow_the_quantized_network(
    name: str, target: str, tmp_path: Path
) -> None:
    shape, make = NETS[name]
    net = Net(*shape)
    model = net.ends(make(net))
    npu = target.endswith("npu")
    path = integers(model, tmp_path, target=target, floats="" if npu else IN_FLOATS.get(name, ""))
    types = {layer.type for layer in read_ir(path).layers}
    assert "Quantize" in types and "DeQuantize" in types
    step, far = last_step(model), FAR.get(name, 1) if npu else 1
    feeds = {"x": floats(*shape)}
    wanted = next(iter(model.run(feeds).values()))
    exact, numbers = converter.load(path), converter.load(path, dequantize=True)
    assert np.ptp(wanted) > 4 * step
    assert apart(next(iter(exact.run(feeds).values())), wanted, step) <= far + 0.01
    assert apart(next(iter(numbers.run(feeds).values())), wanted, step) <= 2.01


@pytest.mark.parametrize(
    "name",
    [
        "convolution",
        "unsigned weights",
        "depthwise",
        "transposed",
        "transposed in groups",
        "dense behind flatten",
        "sum",
        "joined",
    ],
)
def test_integers_survive_dequantizing_and_writing_again(name: str, tmp_path: Path) -> None:
    shape, make = NETS[name]
    net = Net(*shape)
    first = read_ir(integers(net.ends(make(net)), tmp_path, "first"))
    second = read_ir(
        integers(converter.load(tmp_path / "first.txt", dequantize=True), tmp_path, "second")
    )
    assert [x.type for x in first.layers] == [x.type for x in second.layers]
    for a, b in zip(first.layers, second.layers, strict=True):
        assert a.attrs.get("layer_top_zp") == b.attrs.get("layer_top_zp")
        for key, constant in a.constants.items():
            same = constant.array.astype(np.float64), b.constants[key].array.astype(np.float64)
            if constant.dtype.is_float:
                np.testing.assert_allclose(*same, rtol=1e-6)
            else:
                close = {"weights": 0, "weights_zp": 0, "scale": 2.0**31 * 1e-7}.get(key, 1)
                assert np.abs(same[0] - same[1]).max() <= close, key


def test_weights_are_the_stored_ones(tmp_path: Path) -> None:
    net = Net(1, 3, 7, 7)
    weights = net.w(6, 3, 3, 3)
    model = net.ends(net.q(net.op("Conv", weights)))
    path = integers(model, tmp_path, target="zhouyi+int8+npu")
    found = next(x for x in read_ir(path).layers if x.type == "Convolution").constants
    node = weights.producer()
    assert (
        node is not None and node.inputs[0] is not None and node.inputs[0].const_value is not None
    )
    np.testing.assert_array_equal(
        found["weights"].array, node.inputs[0].const_value.numpy().transpose(0, 2, 3, 1)
    )
    assert (
        found["scale"].dtype == "uint16"
        and found["shift"].dtype == "int8"
        and found["biases"].dtype == "int32"
    )


def test_stored_inputs_and_outputs_keep_their_types(tmp_path: Path) -> None:
    """A network whose border is quantized already has neither Quantize nor DeQuantize."""
    model, b = new_model()
    x = b.input("x", ir.DataType.UINT8, (1, 3, 4, 4))
    step, zero = b.const(np.float32(0.02)), b.const(np.uint8(100))
    y = b.op("Sigmoid", b.op("DequantizeLinear", x, step, zero))
    b.output(
        b.op("QuantizeLinear", y, b.const(np.float32(1 / 256)), b.const(np.uint8(0)), name="y")
    )
    whole = Model(model, "onnx")
    path = integers(whole, tmp_path)
    assert [layer.type for layer in read_ir(path).layers] == ["Input", "Activation"]
    feeds = {"x": RNG.integers(0, 256, (1, 3, 4, 4), np.uint8)}
    np.testing.assert_array_equal(
        *(next(iter(m.run(feeds).values())) for m in (converter.load(path), whole))
    )


def test_layers_outside_the_quantized_part_stay_floats_with_a_warning(tmp_path: Path) -> None:
    net = Net(1, 3, 4, 4)
    model = net.ends(
        net.b.op("LayerNormalization", net.q(conv(net)), net.b.const(floats(4)), axis=-1)
    )
    notes = converter.save(model, tmp_path / "z.txt", "zhouyi+int8")
    assert [n.code for n in notes] == ["X209"] and "LayerNorm" in notes[0].message
    feeds = {"x": floats(1, 3, 4, 4)}
    found, wanted = (
        next(iter(m.run(feeds).values())) for m in (converter.load(tmp_path / "z.txt"), model)
    )
    np.testing.assert_allclose(found, wanted, atol=0.3)


def test_quantized_layers_without_integer_form_stay_floats_with_a_warning(tmp_path: Path) -> None:
    net = Net(1, 3, 4, 4)
    y = net.q(
        net.b.op(
            "LayerNormalization", net.q(conv(net)), *(net.w(4, axis=None) for _ in "wb"), axis=-1
        )
    )
    model = net.ends(net.q(net.b.op("ReduceL2", y, [3]), 0.05))
    (note,) = converter.save(model, tmp_path / "z.txt", "zhouyi+int8")
    assert note.code == "X209" and "L2" in note.message
    assert "LayerNorm: no integer form can be written" in note.message
    feeds = {"x": floats(1, 3, 4, 4)}
    found, wanted = (
        next(iter(m.run(feeds).values())) for m in (converter.load(tmp_path / "z.txt"), model)
    )
    assert apart(found, wanted, 0.05) <= 1.01


def test_a_bias_after_a_gemm_is_stored_in_its_layer(tmp_path: Path) -> None:
    """As QGemm is read, whose bias is 32-bit integers."""
    net = Net(4, 6)
    stored = net.b.const(RNG.integers(-9000, 9000, 5).astype(np.int32))
    added = net.b.op("DequantizeLinear", stored, net.b.const(np.float32(1e-4)))
    model = net.ends(net.q(net.b.op("Add", net.op("Gemm", net.w(6, 5, axis=None)), added), 0.02))
    path = integers(model, tmp_path)
    kinds = [layer.type for layer in read_ir(path).layers]
    assert kinds == ["Input", "Quantize", "FullyConnected", "DeQuantize"]
    feeds = {"x": floats(4, 6)}
    found, wanted = (next(iter(m.run(feeds).values())) for m in (converter.load(path), model))
    assert apart(found, wanted, 0.02) <= 1.01


@pytest.mark.parametrize("apiece", [False, True])
def test_the_steps_of_a_gelu_are_one_table(apiece: bool, tmp_path: Path) -> None:
    """As exporters of older opsets write it, a quantization to 8 bits after each operator;
    `apiece`: each that reads x dequantizes it for itself, as QLinearMul does.
    """
    net = Net(1, 3, 8, 8)
    half, one, root = (
        net.b.op("DequantizeLinear", net.b.const(np.int8(v)), net.b.const(np.float32(s)))
        for v, s in ((127, 0.5 / 127), (127, 1 / 127), (127, 2**0.5 / 127))
    )
    y = net.q(net.b.op("Erf", net.q(net.op("Div", root))), 1 / 127, 0)
    y = net.q(net.b.op("Add", y, one), 2 / 127, 0)
    if apiece:
        node = net.x.producer()
        assert node is not None
        net.x = net.b.op("DequantizeLinear", *node.inputs)
    y = net.q(net.b.op("Mul", net.q(net.op("Mul", y), 0.04, 0), half), 0.02, 0)
    model = net.ends(y)
    path = integers(model, tmp_path)
    kinds = [layer.type for layer in read_ir(path).layers]
    assert kinds == ["Input", "Quantize", "Activation", "DeQuantize"]
    feeds = {"x": 2 * floats(1, 3, 8, 8)}
    found, wanted = (next(iter(m.run(feeds).values())) for m in (converter.load(path), model))
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("quantized", [False, True])
def test_networks_that_are_not_quantized_are_refused(quantized: bool, tmp_path: Path) -> None:
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, (1, 3, 4, 4))
    axis = b.const(np.full(3, 0.1, np.float32))
    x = (
        b.op("DequantizeLinear", b.op("QuantizeLinear", x, axis, axis=1), axis, axis=1)
        if quantized
        else x
    )
    b.output(b.op("Sigmoid", x))
    with pytest.raises(
        ConverterError,
        match="several scales"
        if quantized
        else (
            "the network is not quantized: it has no layer between DequantizeLinear and "
            "QuantizeLinear"
        ),
    ):
        converter.save(Model(model, "onnx"), tmp_path / "z.txt", "zhouyi+int8")


@pytest.mark.parametrize("per_channel", [False, True])
def test_fake_quantization_and_biases_as_separate_layers(per_channel: bool, tmp_path: Path) -> None:
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, (1, 3, 6, 6))

    def fake(v: Any, low: Array, high: Array, levels: int) -> ir.Value:
        bounds = [np.asarray(a, np.float32) for a in (low, high, low, high)]
        return b.ext("FakeQuantize", v, *bounds, levels=levels)

    bound = np.abs(floats(4, 1, 1, 1)) + 0.2 if per_channel else np.array([0.7])
    weights = fake(b.const(floats(4, 3, 3, 3) * 0.3), -bound, bound, 255)
    y = b.op(
        "Add", b.op("Conv", fake(x, [-1.28], [1.27], 256), weights), b.const(floats(1, 4, 1, 1))
    )
    b.output(fake(b.op("Relu", y), [0.0], [5.1], 256))
    whole = Model(model, "onnx")
    path = integers(whole, tmp_path)
    convolution = next(x for x in read_ir(path).layers if x.type == "Convolution")
    assert (
        convolution.constants["weights"].dtype == "int8"
        and convolution.constants["biases"].array.any()
    )
    feeds = {"x": floats(1, 3, 6, 6)}
    assert (
        apart(*(next(iter(m.run(feeds).values())) for m in (converter.load(path), whole)), 0.02)
        <= 1.01
    )


@pytest.mark.parametrize("case", corpus_cases("zhouyi/int8", "[cdm]*"))
def test_the_vendors_networks_come_back_as_integers(case: Path | None, tmp_path: Path) -> None:
    assert case is not None
    model = converter.load(case / "model.txt", dequantize=True)
    path = integers(model, tmp_path)
    before, after = (
        [c.array for x in read_ir(p).layers for k, c in x.constants.items() if k == "weights"]
        for p in (case / "model.txt", path)
    )
    assert len(before) == len(after)
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    with np.load(case / "inputs.npz") as feeds, np.load(case / "outputs.npz") as wanted:
        found = converter.load(path).run(dict(feeds))
        for f, w in zip(found.values(), wanted.values(), strict=True):
            assert np.abs(np.asarray(f, int) - w.astype(int)).max() <= 2


@pytest.mark.parametrize(
    "factors",
    [[0.5, 1.0, 1.005], [1.0, 1.0], [0.001, 0.0009, 0.2], [3e-9, 4e-9], [700.0, 1.5], [1e-6, 0.9]],
)
def test_factors_keep_their_precision_next_to_any_others(factors: list[float]) -> None:
    multipliers, shifts = per_channel(factors, 15)
    assert multipliers.max() < 1 << 15 and shifts.max() <= 31
    np.testing.assert_allclose(multipliers * 2.0**-shifts, factors, rtol=0.002, atol=2.0**-31)
    single, shift = approximate(factors, 15)
    np.testing.assert_allclose(single * 2.0**-shift, factors, rtol=2.0**-14, atol=2.0**-31)
    for multipliers, shifts in (per_channel(factors, 31), approximate(factors, 31)):
        assert multipliers.max() < 1 << 31
        np.testing.assert_allclose(multipliers * 2.0**-shifts, factors, rtol=1e-7)


def test_multiples_that_only_a_quantized_layer_reads(tmp_path: Path) -> None:
    net = Net(2, 6)
    model = net.ends(
        net.q(net.b.op("Softmax", net.op("Mul", np.float32(0.7)), axis=-1), 1 / 256, -128)
    )
    feeds = {"x": floats(2, 6)}
    wanted = next(iter(model.run(feeds).values()))
    path = integers(model, tmp_path, target="zhouyi+int8+npu")
    for dequantize in (False, True):
        found = converter.load(path, dequantize=dequantize).run(feeds)
        assert apart(next(iter(found.values())), wanted, 1 / 256) <= 1.01


@pytest.mark.parametrize("kind", ["Greater", "LessOrEqual", "Equal"])
def test_comparisons_of_quantized_numbers(kind: str, tmp_path: Path) -> None:
    net = Net(1, 3, 4, 4)
    model = net.ends(
        net.b.op(
            "Cast", net.b.op(kind, net.x, net.q(net.op("Neg"), 0.02, 3)), to=int(ir.DataType.FLOAT)
        )
    )
    converter.save(model, tmp_path / "z.txt", "zhouyi+int8")
    assert "Logical" in {x.type for x in read_ir(tmp_path / "z.txt").layers}
    feeds = {"x": floats(1, 3, 4, 4)}
    found, wanted = (
        next(iter(m.run(feeds).values())) for m in (converter.load(tmp_path / "z.txt"), model)
    )
    np.testing.assert_array_equal(found, wanted)


def test_a_choice_between_two_grids(tmp_path: Path) -> None:
    net = Net(1, 3, 4, 4)
    condition = net.b.input("c", ir.DataType.BOOL, (1, 3, 4, 4))
    model = net.ends(net.q(net.b.op("Where", condition, net.x, net.q(net.op("Exp"), 0.05, -128))))
    feeds = {"x": floats(1, 3, 4, 4), "c": RNG.integers(0, 2, (1, 3, 4, 4)).astype(bool)}
    converter.save(model, tmp_path / "z.txt", "zhouyi+int8")
    written = converter.load(tmp_path / "z.txt")
    given = {
        i.name: feeds[i.name].astype(np.uint8 if i.name == "c" else np.float32)
        for i in written.inputs
    }
    found = next(iter(written.run(given).values()))
    assert apart(found, next(iter(model.run(feeds).values())), OUT) <= 2.01


def test_a_relu_that_only_a_quantized_layer_reads(tmp_path: Path) -> None:
    net = Net(1, 3, 4, 4)
    model = net.ends(
        net.q(
            net.b.op(
                "Resize", net.op("Relu"), None, np.array([1, 1, 2, 2], np.float32), mode="linear"
            )
        )
    )
    feeds = {"x": floats(1, 3, 4, 4)}
    found = converter.load(integers(model, tmp_path)).run(feeds)
    assert apart(next(iter(found.values())), next(iter(model.run(feeds).values())), OUT) <= 1.01


def test_products_with_a_step_for_each_column_and_windows_over_one_axis(tmp_path: Path) -> None:
    """Both have integer layers, though the network's operators have other ranks than these."""
    net = Net(2, 4, 8)
    filters = net.op("Conv", net.w(6, 4, 3), kernel_shape=[3], pads=[1, 1])
    y = net.q(filters, 0.1)
    y = net.q(net.b.op("MatMul", y, net.w(8, 5, axis=1)), 0.2)
    model = net.ends(y)
    path = integers(model, tmp_path)
    types = [layer.type for layer in read_ir(path).layers]
    assert "Convolution" in types and "FullyConnected" in types
    feeds = {"x": floats(2, 4, 8)}
    wanted = next(iter(model.run(feeds).values()))
    found = next(iter(converter.load(path).run(feeds).values()))
    assert apart(found, wanted, last_step(model)) <= 2.01


def test_sums_and_shares_of_a_softmax_are_nearly_always_those_of_the_network(
    tmp_path: Path,
) -> None:
    """One operand twice as coarse as the result: half of the sums lie between two steps."""
    net = Net(1, 40, 25)
    y = net.q(net.op("Add", net.q(net.b.const(floats(1, 1, 25)), 0.0400008, 2)), 0.0200004, 1)
    y = net.q(net.b.op("Softmax", y, axis=-1), 1 / 256, -128)
    model = net.ends(y)
    feeds = {"x": floats(1, 40, 25)}
    wanted = next(iter(model.run(feeds).values()))
    for target, share in (("zhouyi+int8", 0), ("zhouyi+int8+npu", 0.003)):
        path = integers(model, tmp_path, target=target, floats="Softmax")
        found = next(iter(converter.load(path).run(feeds).values()))
        steps = np.rint((found - wanted) * 256)
        assert np.abs(steps).max() <= 1 and (steps != 0).mean() <= share


def test_slopes_of_a_network_without_signs_are_stored_with_them(tmp_path: Path) -> None:
    """The executor cuts off numbers below 0 where the result of a PRELU has no sign."""
    net = Net(1, 3, 4, 4, zero=120, dtype=np.uint8)
    slopes = net.b.const(np.array([0.2, 0.5, 0.9], np.float32).reshape(3, 1, 1))
    model = net.ends(net.q(net.op("PRelu", slopes), 0.02, 100, np.uint8))
    path = integers(model, tmp_path)
    (layer,) = [x for x in read_ir(path).layers if x.type == "Activation"]
    assert layer.outputs[0].dtype == "int8"
    feeds = {"x": floats(1, 3, 4, 4)}
    wanted = next(iter(model.run(feeds).values()))
    found = next(iter(converter.load(path).run(feeds).values()))
    assert wanted.min() < -0.1 and apart(found, wanted, last_step(model)) <= 1.01
