"""Operators of TensorFlow Lite as rows of the mapping engine: the engine can say this format, too.

The rows are in tflite_rows.py. They keep the laws of all rows, and LiteRT judges the numbers: of
files that are read through the rows, and of files that the rows write.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from converter.engines import litert

pytest.importorskip("tflite", reason="the schema package tflite is not installed")
from tflite import TensorType
from tflite_rows import MAPPING, MORE, LiteLowering, constant_value, load, save

from converter.api import Model
from converter.formats.tflite import flatbuffer
from converter.graph import CHANNELS_LAST_DOMAIN
from converter.graph.build import new_model
from converter.graph.infer import set_type
from converter.mapping.node import Layer
from converter.mapping.rules import Rule
from test_mapping_laws import check_lift_undoes_lower, check_lower_undoes_lift, lowered

RULES = [pytest.param(r, id=r.kind) for r in MAPPING.table.rules]
RNG = np.random.default_rng(16)
F = np.float32
NONE, RELU, RELU1, RELU6 = range(4)
SAME, VALID = 0, 1
needs_litert = pytest.mark.skipif(not litert.available(), reason="LiteRT is not installed")


@pytest.fixture(autouse=True)
def all_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, fields in MORE.items():
        monkeypatch.setitem(flatbuffer.OPTIONS, kind, fields)


@pytest.mark.parametrize("rule", RULES)
def test_lift_undoes_lower(rule: Rule) -> None:
    check_lift_undoes_lower(rule, MAPPING)


@pytest.mark.parametrize("rule", RULES)
def test_lower_undoes_lift(rule: Rule) -> None:
    check_lower_undoes_lift(rule, MAPPING)


def run_file(path: Path, feeds: Sequence[Any]) -> list[Any]:
    """The outputs of a file in LiteRT, with its own kernels."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kind = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(str(path), num_threads=1, experimental_op_resolver_type=kind)
    interpreter.allocate_tensors()
    for detail, value in zip(interpreter.get_input_details(), feeds, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(d["index"]).copy() for d in interpreter.get_output_details()]


def compare(found: Sequence[Any], wanted: Sequence[Any]) -> None:
    assert len(found) == len(wanted)
    for f, w in zip(found, wanted, strict=True):
        assert f.dtype == w.dtype and f.shape == w.shape
        np.testing.assert_allclose(f, w, rtol=1e-4, atol=1e-5)


def numbers(shape: Sequence[int]) -> Any:
    return RNG.uniform(-4, 4, shape).astype(F)


@needs_litert
@pytest.mark.parametrize("rule", RULES)
def test_what_a_row_writes_is_right_in_litert(rule: Rule, tmp_path: Path) -> None:
    for node, layers, b in lowered(rule, MAPPING):
        names = save(layers, node.outputs, tmp_path / "m.tflite")
        b.graph.outputs.clear()
        b.output(*node.outputs)
        model = Model(ir.Model(b.graph, ir_version=10), "onnx")
        feeds = {i.name: numbers([int(d) for d in i.shape or ()]) for i in model.inputs}
        found = run_file(tmp_path / "m.tflite", [feeds[n] for n in names])
        compare(found, list(model.run(feeds).values()))


def image(kernel: Sequence[int], padding: int, activation: int, stride: int = 1) -> dict[str, Any]:
    size = {"filter_height": kernel[0], "filter_width": kernel[1]} if kernel else {}
    steps = {"stride_h": stride, "stride_w": 2}
    return {**size, **steps, "padding": padding, "fused_activation_function": activation}


def conv(padding: int, activation: int, stride: int, dilation: int = 1) -> dict[str, Any]:
    factors = {"dilation_h_factor": dilation, "dilation_w_factor": 1}
    return {**image((), padding, activation, stride), **factors}


I32 = np.int32
Case = tuple[str, list[int], list[Any], dict[str, Any], list[int], Any]


def case(
    kind: str,
    shape: list[int],
    *constants: Any,
    to: list[int] | None = None,
    as_: Any = F,
    **attrs: Any,
) -> Case:
    """An operator, its input, its constants and options, and its result (if not like the input)."""
    return kind, shape, list(constants), attrs, shape if to is None else to, as_


CASES = {
    **{
        f"ADD-{code}": case("ADD", [2, 3], numbers([3]), fused_activation_function=code)
        for code in (NONE, RELU, RELU1, RELU6)
    },
    "CONV_2D-same": case(
        *("CONV_2D", [1, 7, 6, 4], numbers([6, 3, 2, 4]), numbers([6])),
        to=[1, 4, 3, 6],
        **conv(SAME, RELU6, 2),
    ),
    "CONV_2D-dilated": case(
        *("CONV_2D", [2, 9, 6, 4], numbers([5, 3, 3, 4]), numbers([5])),
        to=[2, 5, 2, 5],
        **conv(VALID, NONE, 1, 2),
    ),
    "CONV_2D-grouped": case(
        *("CONV_2D", [1, 5, 5, 4], numbers([6, 3, 3, 2]), numbers([6])),
        to=[1, 5, 3, 6],
        **conv(SAME, RELU, 1),
    ),
    "AVERAGE_POOL_2D-same": case(
        "AVERAGE_POOL_2D", [1, 7, 6, 3], to=[1, 4, 3, 3], **image((3, 2), SAME, RELU1, 2)
    ),
    "AVERAGE_POOL_2D-valid": case(
        "AVERAGE_POOL_2D", [1, 7, 6, 3], to=[1, 6, 2, 3], **image((2, 3), VALID, NONE)
    ),
    "SOFTMAX-beta": case("SOFTMAX", [2, 3, 5], beta=0.5),
    "SOFTMAX": case("SOFTMAX", [2, 5], beta=1.0),
    "RESHAPE-input": case("RESHAPE", [2, 6], I32([3, -1]), to=[3, 4]),
    "RESHAPE-option": case("RESHAPE", [2, 6], to=[4, 3], new_shape=[4, 3]),
    "TRANSPOSE": case("TRANSPOSE", [2, 3, 4], I32([2, 0, 1]), to=[4, 2, 3]),
    "MEAN-kept": case("MEAN", [2, 3, 4], I32([-1, 1]), to=[2, 1, 1], keep_dims=True),
    "MEAN": case("MEAN", [2, 3, 4], I32([0]), to=[3, 4], keep_dims=False),
    "GATHER": case("GATHER", [2, 5, 3], I32([4, 0, 4]), to=[2, 3, 3], axis=1, batch_dims=0),
    "GATHER-last": case("GATHER", [2, 3], I32([[2], [0]]), to=[2, 2, 1], axis=-1, batch_dims=0),
    "LEAKY_RELU": case("LEAKY_RELU", [2, 3], alpha=0.3),
    "CEIL": case("CEIL", [2, 3]),
    "RELU": case("RELU", [2, 3]),
    "GELU-erf": case("GELU", [2, 9], approximate=False),
    "GELU-tanh": case("GELU", [2, 9], approximate=True),
    "ARG_MAX-32": case("ARG_MAX", [3, 7], I32(1), to=[3], as_=I32, output_type=TensorType.INT32),
    "ARG_MAX-64": case(
        "ARG_MAX", [3, 7], I32(-2), to=[7], as_=np.int64, output_type=TensorType.INT64
    ),
    "LOCAL_RESPONSE_NORMALIZATION": case(
        "LOCAL_RESPONSE_NORMALIZATION", [1, 2, 2, 9], radius=2, bias=1.5, alpha=0.3, beta=0.75
    ),
    "PAD": case("PAD", [2, 3], I32([[1, 0], [0, 2]]), to=[3, 5]),
}


def test_every_row_is_read_from_a_file() -> None:
    read = {kind for kind, *_ in CASES.values()}
    assert read == {r.kind for r in MAPPING.table.rules} and len(read) >= 10


@needs_litert
@pytest.mark.parametrize("name", CASES)
def test_a_file_is_read_as_litert_computes_it(name: str, tmp_path: Path) -> None:
    kind, shape, constants, attrs, result, dtype = CASES[name]
    x, y = ir.Value(name="x"), ir.Value(name="y")
    set_type(x, ir.DataType.FLOAT, shape)
    set_type(y, ir.DataType.from_numpy(np.dtype(dtype)), result)
    tensors = [constant_value(c, f"c{i}") for i, c in enumerate(constants)]
    layer = Layer(kind, attrs=attrs, inputs=[x, *tensors], outputs=[y])
    save([layer], [y], tmp_path / "m.tflite")
    model, feed = load(tmp_path / "m.tflite"), numbers(shape)
    compare(list(model.run({"x": feed}).values()), run_file(tmp_path / "m.tflite", [feed]))


def lower(model: Model) -> list[Layer]:
    low = LiteLowering(MAPPING)
    for node in model.ir.graph:
        low.node(node)
    assert not low.problems
    return low.layers


def test_an_activation_behind_is_fused(tmp_path: Path) -> None:
    _, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [1, 7, 6, 4])
    filter_ = b.const(numbers([5, 4, 3, 2]))
    same = {"auto_pad": "SAME_UPPER", "strides": [2, 2]}
    y = b.op("Conv", x, filter_, domain=CHANNELS_LAST_DOMAIN, **same)
    z = b.op("Clip", y, b.const(F(0)), b.const(F(6)))
    w = b.op("Relu", b.op("Add", z, b.const(numbers([5]))))
    b.output(w)
    model = Model(ir.Model(b.graph, ir_version=10), "onnx")
    layers = lower(model)
    assert [layer.kind for layer in layers] == ["CONV_2D", "ADD"]
    activations = [layer.attrs["fused_activation_function"] for layer in layers]
    assert activations == [RELU6, RELU] and layers[0].attrs["padding"] == SAME
    if litert.available():
        save(layers, [w], tmp_path / "m.tflite")
        feed = numbers([1, 7, 6, 4])
        wanted = list(model.run({"x": feed}).values())
        compare(run_file(tmp_path / "m.tflite", [feed]), wanted)
        compare(list(load(tmp_path / "m.tflite").run({"x": feed}).values()), wanted)


def test_an_activation_of_a_value_that_others_read_is_an_operator() -> None:
    _, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [2, 3])
    y = b.op("Add", x, x)
    b.output(y, b.op("Relu", y))
    assert [n.kind for n in lower(Model(ir.Model(b.graph, ir_version=10), "onnx"))] == [
        "ADD",
        "RELU",
    ]


def test_a_mean_without_axes_is_over_all() -> None:
    _, b = new_model()
    b.output(b.op("ReduceMean", b.input("x", ir.DataType.FLOAT, [2, 3]), keepdims=0))
    (mean,) = lower(Model(ir.Model(b.graph, ir_version=10), "onnx"))
    axes = mean.inputs[1]
    assert axes is not None and axes.const_value is not None
    assert axes.const_value.numpy().tolist() == [0, 1] and axes.dtype == ir.DataType.INT32
    assert mean.attrs == {"keep_dims": False}
