"""Unchanged pairs: a network and its conversion to a format, which `verify` must not call
different.

    .venv/bin/python tests/unchanged.py --heads 300 --integers 60 --random 600

prints one line for each alarm (an exit code that is neither 0 nor a refusal) and a table. The same
numbers give the same networks. --native also runs the files in their own engines; --faults plants
faults in the integer networks instead and prints those that are not found.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import logging
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TARGETS = (
    *("onnx", "openvino", "openvino+ir=7", "zhouyi", "coreml", "mlprogram", "tflite", "nnapi"),
)
INTEGER_TARGETS = ("onnx", "openvino", "zhouyi+int8", "tflite", "nnapi")
ACTIVATIONS = ("Relu", "LeakyRelu", "Sigmoid", "Tanh", "HardSwish", "Elu")
Array = np.ndarray


class Graph:
    """A small ONNX graph with seeded weights."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, *shape: int, scale: float = 1.0) -> str:
        fan = int(np.prod(shape[1:])) or 1
        array = self.rng.standard_normal(shape) * scale / np.sqrt(fan)
        return self.const(array.astype(np.float32))

    def const(self, array: Array) -> str:
        self.weights.append(numpy_helper.from_array(array, f"w{len(self.weights)}"))
        return f"w{len(self.weights) - 1}"

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def model(self, x: tuple[str, tuple[int, ...]], y: str) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "net",
            [helper.make_tensor_value_info(x[0], TensorProto.FLOAT, x[1])],
            [helper.make_tensor_value_info(y, TensorProto.FLOAT, None)],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        model = onnx.shape_inference.infer_shapes(model)
        onnx.checker.check_model(model, full_check=True)
        return model


def head(seed: int) -> onnx.ModelProto:
    """A classifier: Conv, an activation, the mean of the image, and a dense layer with Softmax."""
    g = Graph(seed)
    size, channels = int(g.rng.integers(4, 33)), int(g.rng.integers(2, 17))
    classes, depth = int(g.rng.integers(2, 20)), int(g.rng.integers(1, 3))
    x, width = "x", 3
    for _ in range(depth):
        kernel = int(g.rng.choice([1, 3, 5]))
        w, b = g.weight(channels, width, kernel, kernel), g.weight(channels)
        x = g.op("Conv", x, w, b, pads=[kernel // 2] * 4)
        x = g.op(str(g.rng.choice(ACTIVATIONS)), x)
        width = channels
    x = g.op("GlobalAveragePool", x)
    x = g.op("Flatten", x)
    if g.rng.random() < 0.5:
        x = g.op("Gemm", x, g.weight(width, classes), g.weight(classes))
    else:
        x = g.op("MatMul", x, g.weight(width, classes))
    end = g.rng.random()
    if end < 0.8:
        x = g.op("Softmax", x, axis=-1)
    elif end < 0.9:
        x = g.op("LogSoftmax", x, axis=-1)
    return g.model(("x", (1, 3, size, size)), x)


def integers(seed: int, folder: Path) -> onnx.ModelProto:
    """A small network of convolutions, quantized by onnxruntime."""
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_static,
    )

    model = _plain(seed)
    rng = np.random.default_rng([seed, 1])
    shape = tuple(d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim)

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.feeds = iter(
                {"x": rng.standard_normal(shape).astype(np.float32)} for _ in range(4)
            )

        def get_next(self) -> dict[str, Array] | None:
            return next(self.feeds, None)

    source, result = folder / f"f{seed}.onnx", folder / f"q{seed}.onnx"
    onnx.save(model, source)
    signed = bool(rng.integers(2))
    logging.disable(logging.WARNING)
    try:
        quantize_static(
            source,
            result,
            Reader(),
            quant_format=QuantFormat.QDQ,
            per_channel=bool(rng.integers(2)),
            activation_type=QuantType.QInt8 if signed else QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            extra_options={"WeightSymmetric": True},
        )
    finally:
        logging.disable(logging.NOTSET)
    return onnx.load(result)


def _plain(seed: int) -> onnx.ModelProto:
    """The float network that is quantized: skips, depthwise convolutions, pools, an activation."""
    g = Graph(seed)
    size, width = int(g.rng.integers(6, 17)), int(g.rng.choice([4, 8, 12]))
    x = g.op("Conv", "x", g.weight(width, 3, 3, 3), g.weight(width), pads=[1] * 4)
    x = g.op("Relu", x)
    for _ in range(int(g.rng.integers(1, 4))):
        kind = str(g.rng.choice(["skip", "depthwise", "pool", "activation", "gate"]))
        if kind == "skip":
            y = g.op("Conv", x, g.weight(width, width, 3, 3), g.weight(width), pads=[1] * 4)
            x = g.op("Add", x, y)
        elif kind == "depthwise":
            w = g.weight(width, 1, 3, 3)
            x = g.op("Relu", g.op("Conv", x, w, g.weight(width), pads=[1] * 4, group=width))
        elif kind == "pool":
            pool = str(g.rng.choice(["MaxPool", "AveragePool"]))
            x = g.op(pool, x, kernel_shape=[2, 2], strides=[1, 1])
        elif kind == "activation":
            x = g.op(str(g.rng.choice(["Sigmoid", "Tanh", "LeakyRelu"])), x)
        else:
            y = g.op("Conv", x, g.weight(width, width, 1, 1), g.weight(width))
            x = g.op("Mul", x, g.op("Sigmoid", y))
    x = g.op("Flatten", g.op("GlobalAveragePool", x))
    x = g.op("Gemm", x, g.weight(width, 6), g.weight(6))
    if g.rng.random() < 0.6:
        x = g.op("Softmax", x, axis=-1)
    return g.model(("x", (1, 3, size, size)), x)


def _scales(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    return {t.name: t for t in model.graph.initializer}


def _of_activations(model: onnx.ModelProto, rng: np.random.Generator) -> onnx.NodeProto:
    """A QuantizeLinear of the middle, whose input is computed."""
    made = {o for n in model.graph.node for o in n.output}
    inner = [n for n in model.graph.node if n.op_type == "QuantizeLinear" and n.input[0] in made]
    return inner[int(rng.integers(len(inner)))]


def _own(model: onnx.ModelProto, node: onnx.NodeProto, place: int, array: Array) -> None:
    """Gives an operand of one node a value of its own."""
    name = f"{node.input[place]}_planted"
    model.graph.initializer.append(numpy_helper.from_array(array, name))
    node.input[place] = name


def zero_point(model: onnx.ModelProto, rng: np.random.Generator) -> str:
    node = _of_activations(model, rng)
    zero = numpy_helper.to_array(_scales(model)[node.input[2]])
    other = zero.astype(np.int64) + (1 if zero < np.iinfo(zero.dtype).max else -1)
    _own(model, node, 2, other.astype(zero.dtype))
    return node.name


def scale(model: onnx.ModelProto, rng: np.random.Generator) -> str:
    node = _of_activations(model, rng)
    _own(model, node, 1, numpy_helper.to_array(_scales(model)[node.input[1]]) * np.float32(1.01))
    return node.name


def rounding(model: onnx.ModelProto, rng: np.random.Generator) -> str:
    """Down instead of to the nearest."""
    node = _of_activations(model, rng)
    half = numpy_helper.to_array(_scales(model)[node.input[1]]) * np.float32(0.5)
    model.graph.initializer.append(numpy_helper.from_array(half, "planted_half"))
    place = [n.name for n in model.graph.node].index(node.name)
    down = helper.make_node("Sub", [node.input[0], "planted_half"], ["planted"], name="planted")
    model.graph.node.insert(place, down)
    model.graph.node[place + 1].input[0] = "planted"
    return node.name


def _weights(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    known = _scales(model)
    return [
        n
        for n in model.graph.node
        if n.op_type == "DequantizeLinear"
        and n.input[0] in known
        and known[n.input[0]].data_type == TensorProto.INT8
    ]


def weight(model: onnx.ModelProto, rng: np.random.Generator) -> str:
    nodes = _weights(model)
    node = nodes[int(rng.integers(len(nodes)))]
    array = numpy_helper.to_array(_scales(model)[node.input[0]]).copy()
    at = int(rng.integers(array.size))
    array.flat[at] = array.flat[at] + 40 if array.flat[at] < 60 else array.flat[at] - 40
    _own(model, node, 0, array)
    return node.name


def clamped(model: onnx.ModelProto, rng: np.random.Generator) -> str:
    """The highest tenth of the values is cut off."""
    node = _of_activations(model, rng)
    step, zero = (numpy_helper.to_array(_scales(model)[n]) for n in node.input[1:3])
    info = np.iinfo(zero.dtype)
    low, high = (np.float32((v - int(zero)) * step) for v in (info.min, info.max))
    for name, v in (("planted_low", low), ("planted_high", high - (high - low) * 0.3)):
        model.graph.initializer.append(numpy_helper.from_array(np.float32(v), name))
    place = [n.name for n in model.graph.node].index(node.name)
    inputs = [node.input[0], "planted_low", "planted_high"]
    model.graph.node.insert(place, helper.make_node("Clip", inputs, ["planted"], name="planted"))
    model.graph.node[place + 1].input[0] = "planted"
    return node.name


def shifted_scales(model: onnx.ModelProto, rng: np.random.Generator) -> str | None:
    """Scales of channels, each that of the next one."""
    known = _scales(model)
    nodes = [n for n in _weights(model) if numpy_helper.to_array(known[n.input[1]]).size > 1]
    if not nodes:
        return None
    node = nodes[int(rng.integers(len(nodes)))]
    _own(model, node, 1, np.roll(numpy_helper.to_array(known[node.input[1]]), 1))
    return node.name


FAULTS: tuple[Callable[[onnx.ModelProto, np.random.Generator], str | None], ...] = (
    *(zero_point, scale, rounding, weight, clamped, shifted_scales),
)


def felt(a: onnx.ModelProto, b: onnx.ModelProto, seed: int) -> bool:
    """Whether a fault changes any output of the random inputs that `verify` draws."""
    import onnxruntime

    import converter
    from converter.commands.verify.feeds import feeds_for
    from converter.engines.onnxruntime import exact_options

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.onnx"
        onnx.save(a, path)
        feeds = feeds_for(converter.load(path), seed=seed)
    sessions = [
        onnxruntime.InferenceSession(m.SerializeToString(), exact_options()) for m in (a, b)
    ]
    return any(not np.array_equal(*(s.run(None, f.arrays)[0] for s in sessions)) for f in feeds)


def compared(reference: Path, target: str, source: Path, folder: Path, native: str) -> str:
    """The verdict of `verify` on a network and on the conversion of `source`: "" for no finding,
    else its text; "refused" where there is nothing to compare.
    """
    import converter
    from converter.commands.verify.text import headline
    from converter.errors import ConverterError, ExitCode
    from random_graphs import suffix_of

    path = folder / f"{source.stem}-{target.replace('+', '-')}{suffix_of(target)}"
    try:
        with np.errstate(all="ignore"):
            converter.save(converter.load(source), path, target)
            result = converter.verify(reference, path, native=native)
    except ConverterError as e:
        return f"refused {e.diagnostics[0].code}"
    return "" if result.code == ExitCode.OK else f"{int(result.code)} {headline(result)}"


def pairs(
    heads: int, integer: int, folder: Path, first: int = 0
) -> Iterator[tuple[str, Path, str]]:
    """Kinds, files and targets."""
    for seed in range(first, first + heads):
        path = folder / f"head{seed}.onnx"
        onnx.save(head(seed), path)
        for target in TARGETS:
            yield f"head {seed}", path, target
    for seed in range(first, first + integer):
        path = folder / f"integer{seed}.onnx"
        onnx.save(integers(seed, folder), path)
        for target in INTEGER_TARGETS:
            yield f"integer {seed}", path, target


def randoms(count: int, folder: Path) -> Iterator[tuple[str, Path, str]]:
    """Networks of random operators, each for two targets."""
    import converter
    import random_operators  # noqa: F401 - enters its operators
    from converter.errors import ConverterError
    from random_graphs import network

    for i in range(count):
        with np.errstate(all="ignore"):
            model = network(f"pairs {i}", 1 + i % 8)
        if model is None or not any(n.dtype.kind == "f" for n in model.outputs):
            continue
        path = folder / f"random{i}.onnx"
        try:
            converter.save(model, path, "onnx")
        except ConverterError:
            continue
        for k in (0, 3):
            yield f"random {i}", path, TARGETS[(i + k) % len(TARGETS)]


def planted(count: int, folder: Path) -> Iterator[tuple[str, Path, Path, str]]:
    """Faults in integer networks that change an output: the fault, both files, and a target."""
    for seed in range(count):
        reference = folder / f"integer{seed}.onnx"
        model = integers(seed, folder)
        onnx.save(model, reference)
        for k, fault in enumerate(FAULTS):
            wrong = onnx.ModelProto()
            wrong.CopyFrom(model)
            place = fault(wrong, np.random.default_rng([seed, k]))
            if place is None or not felt(model, wrong, 0):
                continue
            path = folder / f"integer{seed}-{fault.__name__}.onnx"
            onnx.save(wrong, path)
            target = INTEGER_TARGETS[(seed + k) % len(INTEGER_TARGETS)]
            yield f"{fault.__name__} {seed} {place}", reference, path, target


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("heads", "integers", "random", "faults", "first"):
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--native", default="off")
    given = parser.parse_args()
    table: collections.Counter[str] = collections.Counter()
    bad = 0
    with tempfile.TemporaryDirectory() as whole, contextlib.suppress(KeyboardInterrupt):
        folder = Path(whole)
        for what, path, target in itertools.chain(
            pairs(given.heads, given.integers, folder, given.first),
            randoms(given.random, folder),
        ):
            said = compared(path, target, path, folder, given.native)
            kind = what.split()[0]
            table[f"{kind} {target} {said if said.startswith('refused') else 'compared'}"] += 1
            if said and not said.startswith("refused"):
                bad += 1
                print(f"ALARM {what} {target}: {said}", flush=True)
        for what, reference, path, target in planted(given.faults, folder):
            said = compared(reference, target, path, folder, given.native)
            table[f"fault {what.split()[0]} {said.split()[0] if said else 'MISSED'}"] += 1
            if not said:
                bad += 1
                print(f"MISSED {what} {target}", flush=True)
    for line in sorted(table):
        print(f"{table[line]:6} {line}")
    print(f"{bad} of {sum(table.values())}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
