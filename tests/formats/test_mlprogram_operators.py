"""Operators in unusual forms, computed by ONNX Runtime and by the written operations, and refusals
with their messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.errors import ConverterError, UnsupportedError
from converter.formats.coreml.proto import Model_pb2
from converter.graph.build import Builder, new_model
from formats.mil_files import PACKED, TYPES, Block, Op, package
from layers import cases, test_layers
from layers.models import mlprogram

Array = np.ndarray[Any, Any]
Build = Callable[..., Any]
F, FAR = np.float32, np.iinfo(np.int64).max
rng = np.random.default_rng(29)


def floats(*shape: int) -> Array:
    return rng.normal(size=shape).astype(F)


def network_of(
    build: Build, feeds: dict[str, Any], shapes: dict[str, list[Any] | None] | None = None
) -> Model:
    """The results of a function of inputs with the types and shapes of the feeds; other declared
    shapes are given by name.
    """
    model, b = new_model("main")
    made = [
        b.input(k, ir.DataType.from_numpy(v.dtype), (shapes or {}).get(k, list(v.shape)))
        for k, v in feeds.items()
    ]
    found = build(b, *made)
    b.output(*found if isinstance(found, tuple) else (found,))
    return Model(model, "onnx")


def operations(path: Path) -> list[Any]:
    model = Model_pb2.Model()
    model.ParseFromString((path / "Data/com.apple.CoreML/model.mlmodel").read_bytes())
    function = model.mlProgram.functions["main"]
    return [o for o in function.block_specializations[function.opset].operations]


def scan(trips: Any, part: Callable[..., Any] | None = None, *, until: float = 0) -> Build:
    """A loop that collects a doubled state, or a part of it; `until`: as long as its sum is below
    this number.
    """

    def build(b: Builder, x: ir.Value, *n: ir.Value) -> Any:
        body = b.loop(n[0] if n else trips, x)
        y = body.Mul(body.states[0], 2.0)
        going = body.Less(body.ReduceSum(y, keepdims=0), until) if until else None
        return body.end(y, y if part is None else part(body, y), going=going)

    return build


def branches(b: Builder, x: ir.Value, c: ir.Value) -> Any:
    """An If by a vector of one element."""
    graphs = {}
    for key in ("then_branch", "else_branch"):
        inner = Builder(b.inner_graph(key), b.names)
        inner.output(inner.Neg(x) if key == "else_branch" else inner.Abs(x))
        graphs[key] = inner.graph
    return b.ops("If", c, outputs=1, **graphs)


def palette(b: Builder, size: int, *shape: int) -> Any:
    """Weights with a table of this size."""
    indices = np.resize(np.arange(size, dtype=np.uint8), shape)
    return b.Gather(floats(size), b.Cast(indices, to=int(ir.DataType.INT32)))


def matrix(b: Builder, x: ir.Value, size: int) -> Any:
    return b.MatMul(x, b.Transpose(palette(b, size, 4, 3), perm=[1, 0]))


def quantized(b: Builder, x: ir.Value, scale: Any, **attrs: Any) -> Any:
    zero = np.ones_like(scale, np.int8)
    return b.DequantizeLinear(b.QuantizeLinear(x, scale, zero, **attrs), scale, zero, **attrs)


X, X3, X4 = {"x": floats(2, 3)}, {"x": floats(2, 3, 4)}, {"x": floats(2, 3, 4, 5)}
COUNT = np.array(3)
Form = tuple[Build, dict[str, Any], dict[str, Any], str]
FORMS: dict[str, Form] = {
    "three operands and one": (
        lambda b, x, y, z: (b.Max(x, y, z), b.Min(x)),
        {**X, "y": floats(3), "z": floats(2, 1)},
        {},
        "maximum",
    ),
    "branches by a vector": (branches, {**X, "c": np.array([True])}, {}, "squeeze"),
    "a loop until a condition": (
        lambda b, x: _while(b, x),
        {"x": np.ones(2, F)},
        {},
        "while_loop",
    ),
    "a loop that collects scalars": (
        scan(None, lambda body, y: body.ReduceSum(y, keepdims=0)),
        {**X, "n": COUNT},
        {},
        "while_loop",
    ),
    "a loop that collects matrices": (scan(None), {**X, "n": COUNT}, {}, "while_loop"),
    "a product with a shared bias": (
        lambda b, x: b.Gemm(x, floats(4, 3), floats(1), transB=1),
        X,
        {},
        "linear",
    ),
    "a product and a column": (
        lambda b, x: b.Gemm(x, floats(3, 4), floats(2, 1)),
        X,
        {},
        "add",
    ),
    "a slope for each channel": (
        lambda b, x: b.PRelu(x, floats(3, 1)),
        X3,
        {},
        "prelu",
    ),
    "a vector of one number as a scalar": (
        lambda b, x: b.Reshape(x, np.zeros(0, np.int64)),
        {"x": floats(1)},
        {},
        "squeeze",
    ),
    "a slope for each of as many columns": (
        lambda b, x: b.PRelu(x, floats(1, 3)),
        {"x": floats(2, 3, 3)},
        {},
        "",
    ),
    "a slope for each channel of an image": (
        lambda b, x: b.PRelu(x, floats(1, 3, 1, 1)),
        X4,
        {},
        "prelu",
    ),
    "a slope for each image": (lambda b, x: b.PRelu(x, floats(2, 1, 1, 1)), X4, {}, ""),
    "a slope for each column": (lambda b, x: b.PRelu(x, floats(5)), X4, {}, ""),
    "a scale that is spread, without a bias": (
        lambda b, x: b.LayerNormalization(x, floats(4), axis=1),
        X3,
        {},
        "layer_norm",
    ),
    "a bias that is spread": (
        lambda b, x: b.LayerNormalization(x, floats(3, 4), floats(3, 1), axis=1),
        X3,
        {},
        "layer_norm",
    ),
    "a computed scale": (
        lambda b, x, g: b.LayerNormalization(x, g),
        {**X3, "g": floats(4)},
        {},
        "reduce_mean",
    ),
    "scales of blocks": (
        lambda b, x: quantized(b, x, np.array([[0.5, 0.25], [1, 2]], F), axis=1, block_size=2),
        {"x": floats(2, 4)},
        {},
        "",
    ),
    "a quantized scalar": (
        lambda b, x: b.Add(x, b.DequantizeLinear(np.int8(3), np.array(0.5, F))),
        X,
        {},
        "",
    ),
    "a computed zero of a constant": (
        lambda b, x, z: b.Add(x, b.DequantizeLinear(np.array([1, 2, -3], np.int8), F(0.5), z)),
        {**X, "z": np.array(3, np.int8)},
        {},
        "",
    ),
    "padding of the first axes": (
        lambda b, x: b.Pad(x, [1, 0, 0, 2, 0, 3, 0, 0], 0.5),
        X4,
        {},
        "pad",
    ),
    "reflections of four axes": (
        lambda b, x: b.Pad(x, [0, 0, 1, 2, 0, 0, 0, 1], mode="reflect"),
        X4,
        {},
        "pad",
    ),
    "slices of a dynamic axis": (
        lambda b, x: tuple(
            b.Slice(x, [start], [end], [0], [step])
            for start, end, step in (
                *((-1, -FAR, -1), (FAR, 1, -1), (3, -FAR, -2), (-2, 0, -1), (FAR, -4, -2)),
                *((1, FAR, 1), (-2, FAR, 1), (0, -1, 1), (-FAR, 3, 2), (0, FAR, 3), (1, 4, 2)),
            )
        ),
        {"x": floats(5, 3)},
        {"x": [None, 3]},
        "slice_by_index",
    ),
    "a computed number of the largest": (
        lambda b, x, k: b.ops("TopK", x, k, outputs=2, axis=1),
        {"x": floats(2, 5, 3), "k": np.array([2])},
        {},
        "argsort",
    ),
    "a squeeze of no axis": (lambda b, x: b.Squeeze(x, np.zeros(0, np.int64)), X, {}, ""),
    "indices that count from the end of a dynamic axis": (
        lambda b, x: (b.Gather(x, [-1, 0]), b.GatherElements(x, np.array([[-1, 0, -2]]))),
        X,
        {"x": [None, 3]},
        "gather",
    ),
    "an RNN of two directions": (
        lambda b, x: b.ops(
            "RNN",
            *(x, floats(2, 2, 4), floats(2, 2, 2), floats(2, 4)),
            outputs=2,
            hidden_size=2,
            direction="bidirectional",
        ),
        X3,
        {},
        "rnn",
    ),
    "a GRU of two directions": (
        lambda b, x: b.ops(
            "GRU",
            *(x, floats(2, 6, 4), floats(2, 6, 2)),
            outputs=2,
            hidden_size=2,
            direction="bidirectional",
        ),
        X3,
        {},
        "gru",
    ),
    "an LSTM of two directions with states and peepholes": (
        lambda b, x, h, c: b.ops(
            "LSTM",
            *(x, floats(2, 8, 4), floats(2, 8, 2), floats(2, 16), None, h, c, floats(2, 6)),
            outputs=3,
            hidden_size=2,
            direction="bidirectional",
        ),
        {**X3, "h": floats(2, 3, 2), "c": floats(2, 3, 2)},
        {},
        "lstm",
    ),
    "a Squeeze of a dynamic size": (
        lambda b, x: b.Squeeze(x, [0, 2]),
        {"x": floats(1, 3, 1, 2)},
        {"x": [None, 3, None, 2]},
        "slice_by_index",
    ),
    "a band without its diagonal": (
        lambda b, x: (b.Trilu(x, 1), b.Trilu(x, -1, upper=0)),
        X3,
        {},
        "",
    ),
    "an even number of channels in a normalization": (
        lambda b, x: b.LRN(x, size=2, alpha=0.5),
        X4,
        {},
        "",
    ),
    "rows of no size that is known": (
        lambda b, x: b.LayerNormalization(x, F([2])),
        X3,
        {"x": [2, 3, None]},
        "",
    ),
    "an LSTM for any number of sequences": (
        lambda b, x: b.ops("LSTM", x, floats(1, 8, 4), floats(1, 8, 2), outputs=3, hidden_size=2),
        X3,
        {"x": [2, None, 4]},
        "lstm",
    ),
    "a function that no cell has": (
        lambda b, x: b.ops(
            "RNN",
            *(x, floats(1, 2, 4), floats(1, 2, 2)),
            outputs=2,
            hidden_size=2,
            activations=["Elu"],
        ),
        X3,
        {},
        "",
    ),
    "hard sigmoids of a GRU": (
        lambda b, x: b.ops(
            "GRU",
            *(x, floats(1, 6, 4), floats(1, 6, 2)),
            outputs=2,
            hidden_size=2,
            activations=["HardSigmoid", "Tanh"],
        ),
        X3,
        {},
        "",
    ),
    "one part": (lambda b, x: b.ops("Split", x, outputs=1, num_outputs=1, axis=1), X, {}, ""),
    "parts of a dynamic axis": (
        lambda b, x: b.ops("Split", x, outputs=2, num_outputs=2, axis=0),
        X,
        {"x": [None, 3]},
        "",
    ),
    "sizes that are kept": (
        lambda b, x: b.Reshape(x, [0, 0, 2, 2]),
        X3,
        {"x": [None, None, 4]},
        "",
    ),
    "one and a half times a dynamic size": (
        lambda b, x: b.Resize(
            x,
            *(None, None, b.Cast(b.Mul(b.Cast(b.Shape(x), to=1), F([1, 1, 1.5, 1.5])), to=7)),
            mode="nearest",
            nearest_mode="round_prefer_floor",
        ),
        X4,
        {"x": [2, 3, None, None]},
        "",
    ),
    "the size of another image": (
        lambda b, x, y: b.Resize(
            x,
            *(None, None),
            b.Concat(b.Shape(x, end=2), b.Shape(y, start=2), axis=0),
            mode="linear",
        ),
        {**X4, "y": floats(1, 1, 5, 7)},
        {"y": [1, 1, None, None]},
        "resize",
    ),
    "a computed size of the nearest elements": (
        lambda b, x, n: b.Resize(
            x,
            *(None, None, n),
            axes=[2, 3],
            mode="nearest",
            nearest_mode="round_prefer_ceil",
        ),
        {**X4, "n": np.array([5, 7])},
        {},
        "resize",
    ),
    "an attention with another scale": (
        lambda b, x, y: b.MatMul(
            b.Softmax(b.Mul(b.MatMul(x, b.Transpose(y, perm=[0, 2, 1])), 0.25)), y
        ),
        {"x": floats(2, 3, 4), "y": floats(2, 5, 4)},
        {},
        "softmax",
    ),
}


def _while(b: Builder, x: ir.Value) -> Any:
    body = b.loop(None, x)
    y = body.Mul(body.states[0], 2.0)
    return body.end(y, going=body.Less(body.ReduceSum(y, keepdims=0), 50.0))


def check(model: Model, feeds: dict[str, Any], path: Path, target: str) -> None:
    expected = model.run(feeds)
    converter.save(model, path, target)
    for x, y in zip(expected.values(), converter.run(path, feeds).values(), strict=True):
        np.testing.assert_allclose(y.reshape(x.shape), x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", FORMS)
def test_the_operations_compute_what_the_operator_does(name: str, tmp_path: Path) -> None:
    build, feeds, shapes, kind = FORMS[name]
    check(network_of(build, feeds, shapes), feeds, tmp_path / "m.mlpackage", "mlprogram")
    assert not kind or kind in {o.type for o in operations(tmp_path / "m.mlpackage")}


def test_reflections_are_given_for_the_last_two_axes(tmp_path: Path) -> None:
    """Other modes than the constant one take no more."""
    for name, count in (("reflections of four axes", 4), ("padding of the first axes", 8)):
        build, feeds, shapes, _ = FORMS[name]
        network_of(build, feeds, shapes).save(tmp_path / f"{count}.mlpackage")
        (pad,) = (o for o in operations(tmp_path / f"{count}.mlpackage") if o.type == "pad")
        sizes = pad.inputs["pad"].arguments[0].value.type.tensorType.dimensions
        assert [n.constant.size for n in sizes] == [count]


@pytest.mark.parametrize("ios", ["16", "18"])
def test_a_reset_after_the_product_has_its_own_bias(ios: str, tmp_path: Path) -> None:
    """Before iOS 18 there is no such operation."""

    def build(b: Builder, x: ir.Value) -> Any:
        operands = x, floats(1, 6, 4), floats(1, 6, 2), floats(1, 12)
        return b.ops("GRU", *operands, outputs=2, hidden_size=2, linear_before_reset=1)

    path = tmp_path / "m.mlpackage"
    check(network_of(build, X3), X3, path, f"mlprogram+ios={ios}")
    assert ("gru" in {o.type for o in operations(path)}) == (ios == "18")


@pytest.mark.parametrize("ios", ["16", "18"])
@pytest.mark.parametrize("size", [3, 16, 20])
def test_weights_with_a_table_stay_compact(size: int, ios: str, tmp_path: Path) -> None:
    """The indices have 1, 2, 4, 6 or 8 bits, since iOS 18 in a type of 4 or 8."""
    bits = {"16": {3: 2, 16: 4, 20: 6}, "18": {3: 4, 16: 4, 20: 8}}[ios][size]
    path = tmp_path / "m.mlpackage"
    check(network_of(lambda b, x: matrix(b, x, size), X), X, path, f"mlprogram+ios={ios}")
    found = operations(path)
    (table,) = (o for o in found if o.type == "constexpr_lut_to_dense")
    assert "linear" in {o.type for o in found}
    given = table.inputs if "lut" in table.inputs else table.attributes
    value = given["lut"]
    table_type = (value.arguments[0].value if hasattr(value, "arguments") else value).type
    sizes = [n.constant.size for n in table_type.tensorType.dimensions]
    indices = given["indices"]
    stored = (indices.arguments[0].value if hasattr(indices, "arguments") else indices).type
    four = ios == "18" and bits == 4
    assert stored.tensorType.dataType == (PACKED["uint4"][1] if four else TYPES["uint8"])
    assert (np.prod(sizes), len(sizes)) == (1 << bits, 1 if ios == "16" else 4)


def _suppressed(b: Builder, boxes: ir.Value, scores: ir.Value) -> Any:
    found = b.NonMaxSuppression(
        boxes, scores, np.array([2]), np.array([0.5], F), np.array([0.1], F)
    )
    return b.Cast(found, to=1)


BOXES = {"b": floats(1, 3, 4), "s": floats(1, 1, 3)}
REFUSED: dict[str, tuple[Build, dict[str, Any], str, str]] = {
    "a loop that collects without a count": (
        scan(None, until=50),
        X,
        "mlprogram",
        "Loop: a loop that collects results needs an iteration count",
    ),
    "collected parts of a size that the data determine": (
        scan(None, lambda body, y: body.Compress(y, body.Greater(y, 0.0))),
        {"x": floats(4), "n": COUNT},
        "mlprogram",
        "Loop: a result that the loop collects has a dynamic shape",
    ),
    "collected booleans": (
        scan(None, lambda body, y: body.Greater(y, 0.0)),
        {**X, "n": COUNT},
        "mlprogram",
        "Loop: a loop that collects booleans is not supported",
    ),
    "a score threshold since iOS 17": (
        _suppressed,
        BOXES,
        "mlprogram+ios=17",
        "score thresholds are only supported before iOS 17",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_operators_are_refused_with_a_reason(name: str, tmp_path: Path) -> None:
    build, feeds, target, reason = REFUSED[name]
    with pytest.raises(UnsupportedError, match=re.escape(reason)):
        converter.save(network_of(build, feeds), tmp_path / "m.mlpackage", target)
    assert not (tmp_path / "m.mlpackage").exists()


DAMAGED: dict[str, tuple[str, dict[str, Any], str]] = {
    "the output of one axis": (
        "conv_transpose-output_shape",
        {"output_shape": [5]},
        "output_shape must have 2 spatial axes, got [5]",
    ),
    "axes beyond the last": ("topk-whole-axis", {"axis": 3}, "axis"),
    "an unknown padding": ("conv-same", {"pad_type": "some"}, "pad_type 'some' is not known"),
    "an unknown type": ("cast", {"dtype": "fp8"}, "dtype 'fp8' is not known"),
    "batch axes after the axis": (
        "gather-batch_dims",
        {"batch_dims": 2, "axis": 1},
        "batch_dims=2 with axis=1 is not supported",
    ),
    "an unknown mode of a pad": ("pad", {"mode": "wrap"}, "mode='wrap' is not known"),
    "an unknown direction": ("rnn", {"direction": "up"}, "direction 'up' is not known"),
    "an unknown activation": ("rnn", {"activation": "elu"}, "activation 'elu' is not known"),
    "an unknown sampling": (
        "resize_bilinear",
        {"sampling_mode": "CUBIC"},
        "sampling_mode 'CUBIC' is not known",
    ),
    "regions with an unknown sampling": (
        "crop_resize",
        {"sampling_mode": "CUBIC"},
        "regions with sampling_mode='CUBIC' are not supported",
    ),
    "coordinates of an unknown kind": (
        "resample",
        {"coordinates_mode": "meters"},
        "coordinates_mode 'meters' is not known",
    ),
    "an unknown padding of images": (
        "resample",
        {"padding_mode": "wrap"},
        "padding_mode='wrap' is not known",
    ),
    "cubic sizes": (
        "resize",
        {"interpolation_mode": "CUBIC"},
        "CUBIC with sampling_mode=",
    ),
    "numbers of another type": (
        "quantize",
        {"output_dtype": "int4"},
        "output_dtype='int4' is not supported",
    ),
    "masks for fewer axes": (
        "slice_by_index-masks",
        {"squeeze_mask": [True]},
        "the ranges must have one element for each of 2 axes",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_operations_are_refused_with_a_reason(name: str) -> None:
    file, attributes, reason = DAMAGED[name]
    case = cases.read(cases.FOLDER / "mlprogram" / f"{file}.toml")
    case.attributes |= attributes
    with pytest.raises(ConverterError, match=re.escape(reason)):
        mlprogram.lift(mlprogram.build(case))


PROGRAMS: dict[str, tuple[str, dict[str, Any], Any, str]] = {
    "one recurrent vector": (
        "rnn",
        {
            "initial_h": np.zeros((1, 2), F),
            "weight_ih": np.ones((2, 2), F),
            "weight_hh": np.ones(2, F),
        },
        [3, 1, 2],
        "weight_hh must have 2 axes, got 1",
    ),
    "gates that are not equal": (
        "gru",
        {
            "initial_h": np.zeros((1, 2), F),
            "weight_ih": np.ones((7, 2), F),
            "weight_hh": np.ones((7, 2), F),
        },
        [3, 1, 2],
        "weights of 3 gates cannot have the shape [7, 2]",
    ),
    "scales of another rank": (
        "constexpr_blockwise_shift_scale",
        {"data": np.ones((2, 2), np.int8), "scale": np.ones(2, F)},
        [2, 2],
        "scales have 1 axes, the data have 2",
    ),
    "a state that is none": (
        "read_state",
        {"input": np.ones(2, F)},
        [2],
        "the input must be a state",
    ),
    "an operation without an operand": (
        "linear",
        {"weight": "$x", "x": [], "bias": "$x"},
        [3, 3],
        "input 'x' must be one value, got 0",
    ),
    "lengths of the axis that is reversed": (
        "reverse_sequence",
        {"lengths": np.ones(2, np.int32), "seq_axis": 1, "batch_axis": 1},
        [2, 2],
        "the lengths of the reversed axis cannot be converted",
    ),
    "too many amounts": (
        "pad",
        {"pad": np.ones(6, np.int32)},
        [2, 2],
        "6 amounts are given for 2 axes",
    ),
    "channels of a vector": (
        "batch_norm",
        {"mean": np.ones(3, F), "variance": np.ones(3, F)},
        [3],
        "the data need an axis of channels",
    ),
    "labels that are none": (
        "classify",
        {"probabilities": "$x", "classes": "$x"},
        [3],
        "class labels must be strings or integers",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_refused_with_a_reason(name: str, tmp_path: Path) -> None:
    kind, given, shape, reason = PROGRAMS[name]
    data = {} if kind.startswith(("constexpr", "read", "classify")) else {"x": "$x"}
    op = Op(kind, {**data, **given}, {"y": ("float32", shape)})
    block = Block({"x": ("float32", shape)}, [op], ["y"])
    path = package(tmp_path / "m.mlpackage", block, opset="CoreML8")
    with pytest.raises(ConverterError, match=re.escape(reason)):
        converter.load(path)


def program(tmp_path: Path, ops: list[Op], **inputs: tuple[str, list[int]]) -> Any:
    """Results of the last operation."""
    block = Block(inputs, ops, [*ops[-1].outputs])
    return converter.load(package(tmp_path / "m.mlpackage", block))


def test_random_numbers_keep_their_seed(tmp_path: Path) -> None:
    given = {"shape": np.array([9], np.int32), "seed": 3}
    found = program(tmp_path, [Op("random_uniform", given, {"y": ("float32", [9])})])
    path = tmp_path / "m.onnx"
    found.save(path)
    (node,) = (n for n in onnx.load(path).graph.node if n.op_type.startswith("Random"))
    assert {a.name: a.f for a in node.attribute}["seed"] == 3


def test_labels_may_be_integers(tmp_path: Path) -> None:
    given = {"probabilities": "$x", "classes": np.array([7, 5, 9], np.int32)}
    made = {"label": ("int32", []), "p": ("float32", [3])}
    block = Block({"x": ("float32", [3])}, [Op("classify", given, made)], ["label"])
    found = converter.load(package(tmp_path / "m.mlpackage", block))
    label, *_ = found.run({"x": F([0.2, 0.7, 0.1])}).values()
    assert label == 5


def test_a_computed_number_of_elements_is_read(tmp_path: Path) -> None:
    ops = [
        Op("reduce_max", {"x": "$n", "keep_dims": False}, {"k": ("int32", [])}),
        Op(
            "topk",
            {"x": "$x", "k": "$k", "axis": 0},
            {"y": ("float32", [-1, 3]), "i": ("int32", [-1, 3])},
        ),
    ]
    x, n = floats(4, 3), np.array([1, 2], np.int32)
    found = program(tmp_path, ops, x=("float32", [4, 3]), n=("int32", [2]))
    y, i = found.run({"x": x, "n": n}).values()
    order = np.argsort(-x, axis=0)[:2]
    np.testing.assert_array_equal(i, order)
    np.testing.assert_array_equal(y, np.take_along_axis(x, order, 0))


def test_probabilities_are_one_half_by_default(tmp_path: Path) -> None:
    """As coremltools has it: https://apple.github.io/coremltools/source/coremltools.converters.mil.mil.ops.defs.html"""
    draw = Op(
        "random_bernoulli", {"shape": np.array([40, 50], np.int32)}, {"r": ("float32", [40, 50])}
    )
    total = Op("add", {"x": "$r", "y": "$x"}, {"y": ("float32", [40, 50])})
    (y,) = program(tmp_path, [draw, total], x=("float32", [1])).run({"x": np.zeros(1, F)}).values()
    assert 800 < y.sum() < 1200 and set(np.unique(y)) == {0, 1}


def test_computed_sizes_of_the_last_of_three_axes(tmp_path: Path) -> None:
    ops = [
        Op(
            "resize",
            {
                "x": "$x",
                "shape": "$n",
                "resized_dims": np.uint32(2),
                "interpolation_mode": "NEAREST_NEIGHBOR",
                "sampling_mode": "DEFAULT",
            },
            {"y": ("float32", [2, 4, 9])},
        ),
    ]
    x, size = floats(2, 2, 3), np.array([4, 9], np.int32)
    found = program(tmp_path, ops, x=("float32", [2, 2, 3]), n=("int32", [2]))
    (y,) = found.run({"x": x, "n": size}).values()
    np.testing.assert_array_equal(y, x.repeat(2, 1).repeat(3, 2))


def test_numbers_of_a_table_are_scaled(tmp_path: Path) -> None:
    data, scale, offset = floats(2, 4), F([[0.5, 2]]), F([[1, -3]])
    ops = [
        Op(
            "constexpr_blockwise_shift_scale",
            {"data": data, "scale": scale, "offset": offset},
            {"w": ("float32", [2, 4])},
        ),
        Op("add", {"x": "$w", "y": "$x"}, {"y": ("float32", [2, 4])}),
    ]
    block = Block({"x": ("float32", [4])}, ops, ["y"])
    found = converter.load(package(tmp_path / "m.mlpackage", block, opset="CoreML8"))
    x = floats(4)
    (y,) = found.run({"x": x}).values()
    expected = (data - offset.repeat(2, 1)) * scale.repeat(2, 1) + x
    np.testing.assert_allclose(y, expected, rtol=1e-6)


@pytest.mark.parametrize(("mode", "values"), [("probs", [0, 1, 0]), ("logits", [-99, 0, -99])])
def test_the_only_possible_class_is_drawn(mode: str, values: Any, tmp_path: Path) -> None:
    draw = Op("random_categorical", {"x": "$x", "mode": mode, "size": 4}, {"y": ("int32", [1, 4])})
    found = program(tmp_path, [draw], x=("float32", [1, 3]))
    (y,) = found.run({"x": np.array([values], F)}).values()
    np.testing.assert_array_equal(y, [[1] * 4])


def test_elements_before_a_late_one_are_zeros(tmp_path: Path) -> None:
    """A list of dynamic length grows up to the element that is written."""
    ops = [
        Op(
            "make_list",
            {"init_length": np.int32(1), "dynamic_length": True, "elem_shape": [np.int32(2)]},
            {"l": ("float32", [-1, 2])},
        ),
        Op(
            "list_write",
            {"ls": "$l", "index": np.int32(0), "value": "$x"},
            {"v": ("float32", [-1, 2])},
        ),
        Op(
            "list_write",
            {"ls": "$v", "index": np.int32(3), "value": "$x"},
            {"w": ("float32", [-1, 2])},
        ),
        Op(
            "list_gather",
            {"ls": "$w", "indices": np.array([3, 2, 0], np.int32)},
            {"y": ("float32", [3, 2])},
        ),
    ]
    x = floats(2)
    (y,) = program(tmp_path, ops, x=("float32", [2])).run({"x": x}).values()
    np.testing.assert_array_equal(y, np.stack([x, x * 0, x]))


@pytest.mark.parametrize(
    "file", ["scaled_dot_product_attention", "concat-interleave", "upsample_nearest_neighbor"]
)
def test_a_layer_is_read_alike_for_other_sizes(file: str) -> None:
    """Code for dynamic sizes alone, which the sampled tests of all layers may leave out."""
    path = cases.FOLDER / "mlprogram" / f"{file}.toml"
    test_layers.test_a_layer_is_read_alike_for_other_sizes("mlprogram", path)


def test_a_list_has_as_many_elements_as_its_length_says(tmp_path: Path) -> None:
    size = np.array(2, np.int32)
    ops = [
        Op(
            "make_list",
            {"init_length": np.int32(3), "dynamic_length": False, "elem_shape": [size]},
            {"l": ("float32", [3, 2])},
        ),
        Op(
            "list_write",
            {"ls": "$l", "index": np.int32(1), "value": "$x"},
            {"w": ("float32", [3, 2])},
        ),
        Op("list_length", {"ls": "$w"}, {"n": ("int32", [])}),
        Op(
            "list_gather",
            {"ls": "$w", "indices": np.array([1, 0], np.int32)},
            {"g": ("float32", [2, 2])},
        ),
        Op("cast", {"x": "$n", "dtype": "fp32"}, {"f": ("float32", [])}),
        Op("add", {"x": "$g", "y": "$f"}, {"y": ("float32", [2, 2])}),
    ]
    x = floats(2)
    (y,) = program(tmp_path, ops, x=("float32", [2])).run({"x": x}).values()
    np.testing.assert_allclose(y, np.stack([x, np.zeros(2)]) + 3, rtol=1e-6)
