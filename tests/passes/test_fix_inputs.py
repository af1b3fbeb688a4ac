"""Inputs that get shapes and values, and their consequences."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.errors import UnsupportedError, UsageError
from converter.graph.build import Builder, new_model
from converter.graph.infer import shape_of
from converter.passes.fix_inputs import fix_inputs, needed_to_accept
from networks import choice

T = ir.DataType


def axes_dropped(b: Builder, x: ir.Value) -> ir.Value:
    """x[0] for each axis but the last, each after a choice on the number of axes before it."""
    for rank in (3, 2):
        x = choice(
            b,
            b.Equal(b.Size(b.Shape(x)), rank),
            lambda c, x=x: c.Squeeze(c.Slice(x, [0], [1], [0]), [0]),
            lambda c, x=x: c.Neg(x),
        )
    return x


def chained() -> ir.Model:
    model, b = new_model()
    y = axes_dropped(b, b.input("x", T.FLOAT, ["a", "b", 4]))
    b.output(b.Mul(y, 2.0))
    return model


@pytest.mark.parametrize(
    "target",
    ["openvino", "openvino+ir=7", "coreml", "mlprogram", "zhouyi", "nnapi", "tflite"],
)
@pytest.mark.parametrize("given", [(3, 5, 4), None])
def test_nested_choices_on_sizes_are_folded(
    target: str, given: tuple[int, ...] | None, tmp_path: Path
) -> None:
    """Sizes that `inputs` gives, and sizes that the file itself has."""
    model = chained()
    if given is None:
        model.graph.inputs[0].shape = ir.Shape([3, 5, 4])
    x = np.random.default_rng(0).standard_normal((3, 5, 4)).astype(np.float32)
    (wanted,) = Model(model.clone(), "onnx").run({"x": x}).values()
    np.testing.assert_array_equal(wanted, x[0, 0] * 2)
    converter.save(Model(model, "onnx"), tmp_path / "m.onnx")
    suffix = {"zhouyi": "txt", "nnapi": "nnapi.json", "tflite": "tflite", "coreml": "mlmodel"}
    out = tmp_path / f"out.{suffix.get(target, 'mlpackage' if target == 'mlprogram' else 'xml')}"
    inputs = None if given is None else {"x": given}
    converter.convert(tmp_path / "m.onnx", out, target=target, inputs=inputs)
    found = converter.load(out)
    (y,) = found.run({found.inputs[0].name: x}).values()
    np.testing.assert_allclose(y.reshape(4), wanted, rtol=1e-6)


def test_a_branch_that_is_not_taken_need_not_fit() -> None:
    """The second choice is known once the first is written out, and its other branch does not
    fit the result of the first.
    """
    model, b = new_model()
    x = b.input("x", T.FLOAT, ["a", 4])
    y = choice(
        b,
        b.Equal(b.Size(b.Shape(x)), 2),
        lambda c: c.Transpose(x, perm=[1, 0]),
        lambda c: c.Unsqueeze(x, [0]),
    )
    z = choice(
        b,
        b.Equal(b.Size(b.Shape(y)), 3),
        lambda c: c.MatMul(y, np.ones((4, 3), np.float32)),
        lambda c: c.MatMul(y, np.ones((2, 3), np.float32)),
    )
    b.output(z)
    fix_inputs(model, {"x": [2, 4]})
    assert shape_of(model.graph.outputs[0]) == (4, 3)
    assert not [n for n in model.graph if n.op_type == "If"]


def rates() -> ir.Model:
    """A network for two lengths of its input, as its second input says."""
    model, b = new_model()
    x, rate = b.input("x", T.FLOAT, ["n", "length"]), b.input("rate", T.INT64, [])
    y = choice(
        b,
        b.Equal(rate, 16),
        lambda c: c.Relu(c.MatMul(x, np.ones((6, 2), np.float32))),
        lambda c: c.Neg(c.MatMul(x, np.ones((3, 2), np.float32))),
    )
    b.output(y)
    return model


def test_padding_by_name_gets_its_numbers() -> None:
    """As exporters write it for sizes that are dynamic in the file."""
    m, b = new_model()
    x = b.input("x", T.FLOAT, [1, 3, "h", "w"])
    attrs = {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}
    b.output(b.op("MaxPool", x, **attrs))
    fix_inputs(m, {"x": [1, 3, 8, 7]})
    (pool,) = m.graph
    assert list(pool.attributes["pads"].as_ints()) == [0, 1, 1, 1]  # ONNX: ceil(size / stride)
    assert "auto_pad" not in pool.attributes


def test_a_value_decides() -> None:
    model = rates()
    assert fix_inputs(model, {"x": [1, 6]}, {"rate": 16}) == []
    assert [v.name for v in model.graph.inputs] == ["x"]
    assert [n.op_type for n in model.graph if n.op_type in ("If", "Relu", "Neg")] == ["Relu"]
    x = np.float32([[1, 2, 3, 4, 5, 6]])
    (found,) = Model(model, "onnx").run({"x": x}).values()
    np.testing.assert_array_equal(found, [[21, 21]])


def test_the_value_that_would_decide_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="whose condition is computed") as refused:
        fix_inputs(rates(), {"x": [1, 6]})
    assert refused.value.diagnostics[0].help == "--freeze rate=VALUE"
    model, b = new_model()
    x, count = b.input("x", T.FLOAT, [4]), b.input("count", T.INT64, [])
    b.output(b.Slice(x, [0], b.Reshape(count, [1])))
    with pytest.raises(UnsupportedError) as unsized:
        converter.save(Model(model, "onnx"), tmp_path / "m.txt", "zhouyi")
    assert "--freeze count=VALUE" in unsized.value.diagnostics[0].help


@pytest.mark.parametrize(
    ("dtype", "shape", "given", "wanted"),
    [
        (T.INT64, [], 3, np.array(3, np.int64)),
        (T.INT64, [], 3.0, np.array(3, np.int64)),
        (T.FLOAT, [2], 0.5, np.float32([0.5, 0.5])),
        (T.FLOAT, ["n"], [1, 2, 3], np.float32([1, 2, 3])),
        (T.BOOL, [], True, np.array(True)),
        (T.FLOAT16, ["n", 1], np.float64([[0.1]]), np.float16([[0.1]])),
    ],
)
def test_values(dtype: T, shape: list[Any], given: Any, wanted: np.ndarray) -> None:
    model, b = new_model()
    b.output(b.Identity(b.input("k", dtype, shape)), b.Relu(b.input("x", T.FLOAT, [1])))
    fix_inputs(model, {}, {"k": given})
    found = Model(model, "onnx").run({"x": np.float32([1])})
    first = next(iter(found.values()))
    assert first.dtype == wanted.dtype
    np.testing.assert_array_equal(first, wanted)


@pytest.mark.parametrize(
    ("dtype", "shape", "given", "message"),
    [
        (T.INT64, [], 0.5, "outside the range of the int64"),
        (T.UINT8, [], 300, "outside the range of the uint8"),
        (T.BOOL, [], 2, "outside the range of the bool"),
        (T.FLOAT, [2], "text", "its value 'text' is not"),
        (T.FLOAT, [2], [1, 2, 3], "a fixed dimension of 2, got 3"),
        (T.FLOAT, [2], [[1], [2, 3]], "must be an array"),
        (T.FLOAT, ["n"], 1, "has 1 dimensions, got 0"),
    ],
)
def test_values_that_do_not_fit(dtype: T, shape: list[Any], given: Any, message: str) -> None:
    model, b = new_model()
    b.output(b.Identity(b.input("k", dtype, shape)))
    with pytest.raises(UsageError, match=message):
        fix_inputs(model, {}, {"k": given})


def test_a_name_that_stands_for_different_sizes(tmp_path: Path) -> None:
    """Some exporters call every unknown dimension '?'."""
    model, b = new_model()
    x = b.input("x", T.FLOAT, [1, "?", "?"])
    b.input("unused", T.FLOAT, ["?"])
    b.output(b.Relu(x))
    model.graph.outputs[0].shape = ir.Shape([1, "?", "?"])
    notes = fix_inputs(model, {"x": [1, 3, 8]})
    assert [(n.code, n.level) for n in notes] == [("U504", "warning")]
    assert shape_of(model.graph.outputs[0]) == (1, 3, 8)
    assert shape_of(model.graph.inputs[1]) is None


def test_frozen_inputs_are_no_states() -> None:
    model, b = new_model()
    b.output(b.Add(b.input("x", T.FLOAT, [2]), b.input("s", T.FLOAT, [2])))
    network = Model(
        model, "onnx", interface={"defaults": {"s": np.zeros(2)}, "states": {"s": "gone"}}
    )
    network.tidy()
    assert network.interface == {"defaults": {"s": pytest.approx(np.zeros(2))}, "states": {}}
    fix_inputs(model, {}, {"s": 1})
    network.tidy()
    assert network.interface == {"defaults": {}, "states": {}}


def short_or_long(b: Builder, x: ir.Value, flag: ir.Value) -> ir.Value:
    """Two windows, of which the longer one needs 100 steps."""
    short, long = (np.ones((1, 2, n), np.float32) for n in (3, 100))
    return choice(
        b,
        flag,
        lambda c: c.ReduceSum(c.Conv(x, short), keepdims=0),
        lambda c: c.ReduceSum(c.Conv(x, long), keepdims=0),
    )


@pytest.mark.parametrize(("steps", "needed"), [(2, None), (50, "--freeze flag=VALUE"), (128, "")])
def test_what_shapes_need_besides(steps: int, needed: str | None) -> None:
    model, b = new_model()
    x, flag = b.input("x", T.FLOAT, ["N", 2, "T"]), b.input("flag", T.BOOL, [])
    b.output(short_or_long(b, x, flag))
    before = Model(model.clone(), "onnx")
    assert needed_to_accept(model, {"x": [1, 2, steps]}) == needed
    assert [str(d) for d in x.shape or ()] == ["N", "2", "T"]
    if steps == 128:
        (y,) = before.run({"x": np.ones((1, 2, 128), np.float32), "flag": np.array(False)}).values()
        assert y == 29 * 200


@pytest.mark.parametrize("target", ["nnapi", "openvino+ir=7"])
def test_the_proposed_sizes_are_accepted(target: str, tmp_path: Path) -> None:
    model, b = new_model()
    x, state = b.input("x", T.FLOAT, ["N", 2, None]), b.input("h", T.FLOAT, [1, None, 3])
    wide = b.Conv(x, np.ones((4, 2, 200), np.float32))
    rows = b.Transpose(wide, perm=[2, 0, 1])
    w, r = (np.ones((1, 12, n), np.float32) for n in (4, 3))
    b.output(b.LSTM(rows, w, r, None, None, state, outputs=3, hidden_size=3)[1])
    path = tmp_path / "m.onnx"
    converter.save(Model(model, "onnx"), path)
    suffix = ".xml" if "openvino" in target else ".nnapi.json"
    with pytest.raises(UnsupportedError) as error:
        converter.convert(path, tmp_path / f"m{suffix}", target=target)
    (text,) = {d.help for d in error.value.diagnostics if "--inputs" in d.help}
    given = dict(re.findall(r"--inputs (\w+):([\d,]+)", text))
    shapes = {name: [int(n) for n in sizes.split(",")] for name, sizes in given.items()}
    converter.convert(path, tmp_path / f"m{suffix}", target=target, inputs=shapes)
