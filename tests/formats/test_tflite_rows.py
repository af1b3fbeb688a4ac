"""Operators of TensorFlow Lite as rows of the mapping engine: the engine can say this format, too.

The rows are in tflite_rows.py. They keep the laws of all rows, and LiteRT judges the numbers: of
files that the rows write.
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
from tflite_rows import MAPPING, LiteLowering, save

from converter.api import Model
from converter.graph import CHANNELS_LAST_DOMAIN
from converter.graph.build import new_model
from converter.mapping.node import Layer
from converter.mapping.rules import Rule
from test_mapping_laws import check_lift_undoes_lower, check_lower_undoes_lift, lowered

RULES = [pytest.param(r, id=r.kind) for r in MAPPING.table.rules]
RNG = np.random.default_rng(16)
F = np.float32
NONE, RELU, RELU1, RELU6 = range(4)
SAME, VALID = 0, 1
needs_litert = pytest.mark.skipif(not litert.available(), reason="LiteRT is not installed")


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
