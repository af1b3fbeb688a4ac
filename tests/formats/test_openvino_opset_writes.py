"""Canonical graphs written as IR v10 and v11: the openvino runtime loads every file and gives the
numbers of the graph.
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
from converter.errors import UnsupportedError
from converter.graph.build import Builder, new_model

ov = pytest.importorskip("openvino")
from openvino_runtime import PRECISE  # noqa: E402

T = ir.DataType
RNG = np.random.default_rng(3)
Make = Callable[..., Any]


def f(*shape: int) -> Any:
    return RNG.random(shape, np.float32)


def loop(b: Builder, x: ir.Value) -> Any:
    """A running sum, its steps collected, ended by a condition before the trip count."""
    inner = b.body("body")
    number = inner.input("i", T.INT64, [])
    inner.input("go", T.BOOL, [])
    state = inner.input("state", T.FLOAT, [4])
    total = inner.op("Add", state, inner.op("Gather", x, number, axis=0))
    inner.output(inner.op("Less", inner.op("ReduceSum", total, [0], keepdims=0), 1000.0), total)
    inner.output(inner.op("Mul", total, 2.0))
    return b.ops("Loop", 3, True, np.zeros(4, np.float32), body=inner.graph, outputs=2)


def chosen(b: Builder, x: ir.Value) -> Any:
    """The rows whose first element is above 2, flattened: their number is unknown, and here
    there are none.
    """
    rows = b.op(
        "NonZero", b.op("Greater", b.op("Reshape", b.op("Slice", x, [0], [1], [1]), [-1]), 2.0)
    )
    return b.op("Flatten", b.op("Unsqueeze", b.op("Gather", x, b.op("Reshape", rows, [-1])), [1]))


def choose(b: Builder, x: ir.Value) -> Any:
    then, other = b.body("then"), b.body("else")
    then.output(then.op("Add", x, 1.0))
    other.output(other.op("Mul", x, b.const(f(4))))
    return b.op(
        "If",
        b.op("Greater", b.op("ReduceSum", b.op("Reshape", x, [-1]), [0], keepdims=0), 5.0),
        then_branch=then.graph,
        else_branch=other.graph,
    )


def rnn(kind: str, gates: int, **options: Any) -> Make:
    both = 2 if options.get("direction") == "bidirectional" else 1

    def make(b: Builder, x: ir.Value) -> Any:
        weights = f(both, gates * 3, 4), f(both, gates * 3, 3), f(both, 2 * gates * 3)
        return b.ops(kind, x, *weights, outputs=2, hidden_size=3, **options)

    return make


def peephole(b: Builder, x: ir.Value) -> Any:
    return b.ops(
        "LSTM",
        x,
        f(1, 12, 4),
        f(1, 12, 3),
        f(1, 24),
        None,
        None,
        None,
        f(1, 9),
        outputs=3,
        hidden_size=3,
    )


def quantized(b: Builder, x: ir.Value) -> Any:
    scale, zero = b.const(np.float32(0.02)), b.const(np.uint8(3))
    return b.op("DequantizeLinear", b.op("QuantizeLinear", x, scale, zero), scale, zero)


def weight(b: Builder, x: ir.Value) -> Any:
    packed = b.const(RNG.integers(-100, 100, (6, 4)).astype(np.int8))
    return b.op(
        "MatMul",
        x,
        b.op("Transpose", b.op("DequantizeLinear", packed, b.const(f(6)), axis=0), perm=[1, 0]),
    )


# name -> (the builder, shape of the input x)
CASES: dict[str, tuple[Make, tuple[int, ...]]] = {
    "ArgMax-last": (
        lambda b, x: b.op("ArgMax", b.op("Round", x), axis=1, keepdims=0, select_last_index=1),
        (3, 5),
    ),
    "AveragePool": (
        lambda b, x: b.op(
            "AveragePool",
            x,
            kernel_shape=[3, 2],
            strides=[2, 2],
            pads=[1, 0, 1, 1],
            count_include_pad=1,
        ),
        (1, 2, 7, 7),
    ),
    "Clip-one": (lambda b, x: b.op("Clip", x, b.const(np.float32(0.3))), (2, 3)),
    "Compress": (
        lambda b, x: b.op("Compress", x, b.const(np.array([True, False, True])), axis=0),
        (3, 2),
    ),
    "Conv-group": (
        lambda b, x: b.op(
            "Conv", x, f(4, 1, 3, 3), f(4), group=2, pads=[1, 0, 1, 2], strides=[1, 2]
        ),
        (1, 2, 6, 6),
    ),
    "ConvTranspose": (
        lambda b, x: b.op(
            "ConvTranspose",
            x,
            f(2, 3, 3, 3),
            f(3),
            strides=[2, 2],
            pads=[1, 1, 1, 1],
            output_padding=[1, 1],
        ),
        (1, 2, 4, 4),
    ),
    "CumSum": (
        lambda b, x: b.op("CumSum", x, b.const(np.int64(1)), reverse=1, exclusive=1),
        (2, 5),
    ),
    "DepthToSpace": (lambda b, x: b.op("DepthToSpace", x, blocksize=2, mode="CRD"), (1, 8, 2, 2)),
    "Flatten-empty": (chosen, (3, 4)),
    "Expand": (lambda b, x: b.op("Expand", x, [2, 3, 4]), (3, 1)),
    "FakeQuantize": (
        lambda b, x: b.ext("FakeQuantize", x, *(np.float32(v) for v in (0, 1, 0, 2)), levels=16),
        (2, 9),
    ),
    "Gemm": (lambda b, x: b.op("Gemm", x, f(5, 4), f(5), transB=1, alpha=0.5), (3, 4)),
    "GlobalAveragePool": (lambda b, x: b.op("GlobalAveragePool", x), (1, 3, 4, 5)),
    "GRU": (rnn("GRU", 3, direction="reverse", linear_before_reset=1), (5, 2, 4)),
    "GridSample": (
        lambda b, x: b.op("GridSample", x, b.const(f(1, 3, 3, 2) * 2 - 1)),
        (1, 2, 4, 4),
    ),
    "Hardmax": (lambda b, x: b.op("Hardmax", x, axis=1), (3, 4)),
    "If": (choose, (3, 4)),
    "InstanceNormalization": (
        lambda b, x: b.op("InstanceNormalization", x, f(3), f(3)),
        (2, 3, 4, 4),
    ),
    "LayerNormalization": (lambda b, x: b.op("LayerNormalization", x, f(4), f(4)), (2, 3, 4)),
    "LeakyRelu": (lambda b, x: b.op("LeakyRelu", b.op("Sub", x, 0.5), alpha=0.1), (2, 3)),
    "Loop": (loop, (3, 4)),
    "LRN-even": (lambda b, x: b.op("LRN", x, size=4, alpha=0.5), (1, 6, 2, 2)),
    "LSTM": (rnn("LSTM", 4, direction="bidirectional"), (5, 2, 4)),
    "LSTM-peephole": (peephole, (5, 2, 4)),
    "MaxPool-indices": (
        lambda b, x: b.ops("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], outputs=2),
        (2, 2, 4, 4),
    ),
    "OneHot": (
        lambda b, x: b.op(
            "OneHot",
            b.op("Cast", b.op("Mul", x, 4.0), to=7),
            [4],
            b.const(np.array([0.5, 2], np.float32)),
            axis=0,
        ),
        (5,),
    ),
    "OneHot double": (
        lambda b, x: b.op(
            "OneHot", b.op("Cast", b.op("Mul", x, 4.0), to=7), [4], b.const(np.array([0.5, 2]))
        ),
        (5,),
    ),
    "Pad-reflect": (lambda b, x: b.op("Pad", x, [1, 2, 0, 1], mode="reflect"), (3, 4)),
    "PRelu": (lambda b, x: b.op("PRelu", b.op("Sub", x, 0.5), f(4)), (2, 3, 4)),
    "QuantizeLinear": (quantized, (3, 4)),
    "ReduceLogSumExp": (lambda b, x: b.op("ReduceLogSumExp", x, [1], keepdims=0), (3, 4)),
    "Resize": (
        lambda b, x: b.op(
            "Resize",
            x,
            None,
            None,
            [1, 2, 5, 7],
            mode="linear",
            coordinate_transformation_mode="half_pixel",
        ),
        (1, 2, 4, 4),
    ),
    "RNN": (rnn("RNN", 1), (5, 2, 4)),
    "Slice": (lambda b, x: b.op("Slice", x, [-1, 0], [-9, 3], [1, 0], [-2, 1]), (4, 6)),
    "Split": (lambda b, x: b.ops("Split", x, [1, 3], axis=1, outputs=2), (2, 4)),
    "Sub-int": (
        lambda b, x: b.op(
            "Div", b.op("Cast", b.op("Mul", b.op("Sub", x, 0.5), 20.0), to=6), b.const(np.int32(3))
        ),
        (3, 4),
    ),
    "TopK": (lambda b, x: b.ops("TopK", x, [2], axis=1, largest=0, outputs=2), (3, 5)),
    "Trilu": (lambda b, x: b.op("Trilu", x, b.const(np.int64(1)), upper=0), (2, 4, 5)),
    "Where": (
        lambda b, x: b.op("Where", b.op("Greater", x, 0.5), x, b.const(np.float32(-1))),
        (3, 4),
    ),
    "weight of 8 bits": (weight, (2, 4)),
}


def build(name: str) -> tuple[Model, dict[str, Any]]:
    make, shape = CASES[name]
    model, b = new_model()
    results = make(b, b.input("x", T.FLOAT, shape))
    b.output(*(results if isinstance(results, tuple) else (results,)))
    return Model(model, "test"), {"x": f(*shape)}


def infer(path: Path, feeds: list[Any]) -> list[Any]:
    core = ov.Core()
    return [
        np.asarray(v)
        for v in core.compile_model(core.read_model(path), "CPU", PRECISE)(feeds).values()
    ]


def compare(got: list[Any], wanted: list[Any], tolerance: float = 1e-4) -> None:
    assert [g.shape for g in got] == [w.shape for w in wanted]
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_allclose(
            g.astype(np.float64), w.astype(np.float64), rtol=10 * tolerance, atol=tolerance
        )


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(5)
def test_v11_in_the_runtime_and_read_back(name: str, tmp_path: Path) -> None:
    model, feeds = build(name)
    wanted = list(model.run(feeds).values())
    path = tmp_path / "m.xml"
    model.save(path, "openvino")
    compare(infer(path, list(feeds.values())), wanted)
    again = converter.load(path)
    assert [i.name for i in again.inputs] == ["x"]
    assert [o.name for o in again.outputs] == [o.name for o in model.outputs]
    compare(list(again.run(feeds).values()), wanted)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(5)
def test_v10_in_the_runtime(name: str, tmp_path: Path) -> None:
    model, feeds = build(name)
    path = tmp_path / "m.xml"
    model.save(path, "openvino+ir=10")
    compare(infer(path, list(feeds.values())), list(model.run(feeds).values()))


def test_v10_refuses_newer_operations(tmp_path: Path) -> None:
    """GridSample came later; without static shapes nothing else says it."""
    m, b = new_model()
    b.output(b.op("GridSample", b.input("x", T.FLOAT, [1, 2, None, 4]), b.const(f(1, 3, 3, 2))))
    with pytest.raises(converter.errors.UnsupportedError, match="needs version 9"):
        Model(m, "test").save(tmp_path / "m.xml", "openvino+ir=10")
    assert list(tmp_path.iterdir()) == []


def test_half_precision_weights_are_smaller_and_close(tmp_path: Path) -> None:
    model, feeds = build("Conv-group")
    sizes = []
    for flavor in ("openvino", "openvino+fp16"):
        path = tmp_path / f"{len(sizes)}.xml"
        model.save(path, flavor)
        sizes.append(path.with_suffix(".bin").stat().st_size)
        compare(infer(path, list(feeds.values())), list(model.run(feeds).values()), 1e-2)
        compare(
            list(converter.load(path).run(feeds).values()), list(model.run(feeds).values()), 1e-2
        )
    assert sizes[1] < sizes[0]
    assert 'name="decompression"' in (tmp_path / "1.xml").read_text()


def test_a_state_is_an_input_with_a_default_and_is_written_as_one(tmp_path: Path) -> None:
    model, b = new_model()
    x, state = b.input("x", T.FLOAT, [3]), b.input("sum", T.FLOAT, [3])
    total = b.op("Add", x, state)
    b.output(b.op("Mul", total, 2.0))
    b.output(total)
    from converter.graph.names import set_public_name

    set_public_name(model.graph.outputs[1], "sum_out")
    interface = {"defaults": {"sum": np.ones(3, np.float32)}, "states": {"sum": "sum_out"}}
    source = Model(model, "test", interface=interface)
    source.save(tmp_path / "m.xml", "openvino")
    assert "ReadValue" in (tmp_path / "m.xml").read_text()
    again = converter.load(tmp_path / "m.xml")
    feed = f(3)
    np.testing.assert_allclose(
        next(iter(again.run({"x": feed}).values())), 2 * (feed + 1), rtol=1e-6
    )
    np.testing.assert_allclose(infer(tmp_path / "m.xml", [feed])[0], 2 * (feed + 1), rtol=1e-6)


def test_a_state_without_an_initial_value_begins_with_zeros(tmp_path: Path) -> None:
    from openvino import opset13

    info = ov.op.util.VariableInfo()
    info.data_shape, info.data_type, info.variable_id = ov.PartialShape([2]), ov.Type.f32, "sum"
    variable = ov.op.util.Variable(info)
    x = opset13.parameter([2], np.float32)
    total = opset13.add(x, ov.op.read_value(variable))
    path = tmp_path / "state.xml"
    ov.serialize(
        ov.Model(
            results=[opset13.result(total)],
            sinks=[ov.op.assign(total, variable)],
            parameters=[x],
            name="state",
        ),
        path,
    )
    model = converter.load(path)
    np.testing.assert_array_equal(model.interface["defaults"]["sum"], np.zeros(2, np.float32))
    found = model.run({model.inputs[0].name: np.float32([1, 2]), "sum": np.float32([5, 5])})
    np.testing.assert_array_equal(found["sum_out"], [6, 7])
    assert model.interface["states"] == {"sum": "sum_out"}


@pytest.mark.parametrize(("ranked", "counted"), [(True, False), (False, True), (False, False)])
@pytest.mark.parametrize("size", [(2, 3), (2, 0)])
def test_repeats_of_a_number_that_is_not_stated(
    ranked: bool, counted: bool, size: tuple[int, int], tmp_path: Path
) -> None:
    m, b = new_model()
    x, shape, repeats = (
        b.input("x", T.FLOAT, size),
        b.input("shape", T.INT64, ["R"]),
        b.input("repeats", T.INT64, [2] if counted else ["N"]),
    )
    b.output(b.op("Tile", x if ranked else b.op("Reshape", x, shape, allowzero=1), repeats))
    feeds = {"x": f(*size), "shape": np.array(size[::-1]), "repeats": np.array([3, 2])}
    if ranked:
        b.graph.inputs.remove(shape)
        del feeds["shape"]
    wanted = [np.tile(feeds["x"].reshape(size if ranked else size[::-1]), (3, 2))]
    if not ranked:
        with pytest.raises(UnsupportedError, match="Reshape: the rank of the result is unknown"):
            Model(m, "test").save(tmp_path / "m.xml", "openvino")
        return
    Model(m, "test").save(tmp_path / "m.xml", "openvino")
    compare(list(converter.load(tmp_path / "m.xml").run(feeds).values()), wanted)
    compare(infer(tmp_path / "m.xml", list(feeds.values())), wanted)


def test_a_loop_over_states_of_unknown_rank_is_refused(tmp_path: Path) -> None:
    m, b = new_model()
    inner = b.body("turn")
    inner.input("i", T.INT64, [])
    go, state = inner.input("go", T.BOOL, []), inner.input("state", T.FLOAT, None)
    inner.output(
        inner.op("Identity", go), inner.op("Mul", state, np.float32(2)), inner.op("Neg", state)
    )
    start = b.op("Reshape", b.input("x", T.FLOAT, [2, 3]), b.input("shape", T.INT64, ["R"]))
    b.output(*b.ops("Loop", np.array(3), np.array(True), start, body=inner.graph, outputs=2))
    with pytest.raises(UnsupportedError, match="Reshape: the rank of the result is unknown"):
        Model(m, "test").save(tmp_path / "m.xml", "openvino")
