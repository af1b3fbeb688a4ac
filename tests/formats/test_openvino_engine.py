"""Legacy IR for the engine of 2020: operators that it cannot run are written in a form that it can;
where the engine is there, it runs the files.
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
from converter.graph.names import set_public_name
from judged import run_in
from legacy_rules import layers_of, troubles, types_of
from random_graphs import STEPS, expected, feeds_of, network
from support import corpus_cases

T = ir.DataType
rng = np.random.default_rng(9)
F = rng.normal(size=(2, 3, 4)).astype(np.float32)
IMAGE = rng.normal(size=(1, 4, 5, 6)).astype(np.float32)
DEEP = rng.normal(size=(2, 1, 3, 2, 2, 2)).astype(np.float32)
WHOLE = rng.integers(-9, 10, (3, 4)).astype(np.int32)
OTHER = rng.integers(-9, 10, (3, 4)).astype(np.int32)
PIXELS = rng.integers(-(10**6), 10**6, (1, 4, 2, 3)).astype(np.int32)
BYTES = np.array([[200, 7, 255], [3, 100, 1]], np.uint8)
TURNS = rng.normal(size=(1, 2, 1, 5, 3)).astype(np.float32)
EVERY_OTHER = rng.normal(size=(2, 1, 3, 1, 2, 1)).astype(np.float32)
PLACES = np.array([[0, 1], [2, 3]])
STEP = [rng.normal(size=(1, 4, n)).astype(np.float32) for n in (4, 1)] + [None]
PEEPHOLES = np.array([[0.5, -0.7, 2]], np.float32)
STRANGE = np.array([[np.nan, np.inf, -0.0]], np.float32)

Write = Callable[..., Any]
Case = tuple[Write, dict[str, np.ndarray], Callable[..., Any]]


def last_state(x: np.ndarray) -> np.ndarray:
    """The state of an LSTM of one element after one step from zeros."""
    i, o, _, c = np.moveaxis(x[0] @ STEP[0][0].T, -1, 0)
    c = np.tanh(c) / (1 + np.exp(-i))
    return (np.tanh(c) / (1 + np.exp(-o - PEEPHOLES[0, 1] * c)))[None, :, None]


def repeated(b: Builder, x: ir.Value, goes_on: bool = False) -> ir.Value:
    """x doubled three times, in a loop that neither counts nor collects."""
    inner = b.body("body")
    inner.input("i", T.INT64, [])
    go = inner.input("go", T.BOOL, [])
    state = inner.input("s", T.FLOAT, [2, 3, 4])
    condition = inner.op("Identity", go) if goes_on else inner.const(True)
    inner.output(condition, inner.op("Add", state, state))
    return b.op("Loop", 3, True, x, body=inner.graph)


# name -> (the function of the outputs, the inputs, the outputs by numpy)
CASES: dict[str, Case] = {
    "a product of five axes that are spread by turns": (
        lambda b, x, y: b.op("MatMul", x, y),
        {"x": rng.normal(size=(2, 1, 3, 4, 5)).astype(np.float32), "y": TURNS},
        lambda x, y: x @ y,
    ),
    "a sum over seven axes that are spread by turns": (
        lambda b, x, y: b.op("Add", x, y),
        {"x": F[:, :1].reshape(2, 1, 2, 1, 2, 1, 1)[..., [0, 0]], "y": EVERY_OTHER},
        lambda x, y: x + y,
    ),
    "rows of a transposed matrix, with a bias for each": (
        lambda b, x: b.op("Gemm", x, b.const(F[0]), F[1, :2, :1], transA=1, alpha=0.5, beta=2.0),
        {"x": F[0, :, :2]},
        lambda x: 0.5 * x.T @ F[0] + 2 * F[1, :2, :1],
    ),
    "numbers put into zeros": (
        lambda b, x: b.op("ScatterND", b.const(np.zeros((3, 4), np.float32)), PLACES, x),
        {"x": F[0, 0, :2]},
        lambda x: np.array([[0, x[0], 0, 0], [0] * 4, [0, 0, 0, x[1]]]),
    ),
    "whole rows put into ones": (
        lambda b, x: b.op("ScatterND", b.const(np.ones((3, 4), np.int32)), PLACES[:, :1], x),
        {"x": WHOLE[:2]},
        lambda x: np.stack([x[0], np.ones(4), x[1]]),
    ),
    "integers put into minus ones": (
        lambda b, x: b.op("ScatterND", b.const(np.full((3, 4), -1, np.int32)), PLACES, x),
        {"x": WHOLE[0, :2]},
        lambda x: np.array([[-1, x[0], -1, -1], [-1] * 4, [-1, -1, -1, x[1]]]),
    ),
    "a piece of an image that nobody reads": (
        lambda b, x: b.ops("Split", x, [1, 2, 3], outputs=3, axis=3)[1:],
        {"x": IMAGE},
        lambda x: (x[..., 1:3], x[..., 3:]),
    ),
    "one step of a recurrent network with peepholes": (
        lambda b, x: b.ops("LSTM", x, *STEP, None, None, None, PEEPHOLES, outputs=3, hidden_size=1)[
            1
        ],
        {"x": F[:1, :2]},
        lambda x: last_state(x),
    ),
    "a loop that goes on as it began": (
        lambda b, x: repeated(b, x, goes_on=True),
        {"x": F},
        lambda x: 8 * x,
    ),
    "a convolution with computed weights": (
        lambda b, x, w: b.op("Conv", x, w),
        {"x": IMAGE, "w": IMAGE[:, :, :1, :2]},
        lambda x, w: np.einsum(
            "bchwk,bck->bhw", np.stack([x[..., :-1], x[..., 1:]], -1), w[:, :, 0]
        )[:, None],
    ),
    "a loop of states alone": (
        lambda b, x: repeated(b, x),
        {"x": F},
        lambda x: 8 * x,
    ),
    "integers compared": (
        lambda b, x, y: b.op("Less", x, y),
        {"x": WHOLE, "y": OTHER},
        lambda x, y: x < y,
    ),
    "integers compared, as integers": (
        lambda b, x, y: b.op("Cast", b.op("Equal", x, y), to=T.INT32),
        {"x": WHOLE, "y": OTHER},
        lambda x, y: x == y,
    ),
    "truth of both kinds": (
        lambda b, x, f: b.op(
            "Where",
            b.op("And", b.op("Less", x, b.like(x, 2)), b.op("Greater", f, b.like(f, 0))),
            x,
            b.op("Neg", x),
        ),
        {"x": WHOLE, "f": rng.normal(size=(3, 4)).astype(np.float32)},
        lambda x, f: np.where((x < 2) & (f > 0), x, -x),
    ),
    "truth of fractions": (
        lambda b, x: b.op("Not", b.op("Cast", x, to=T.BOOL)),
        {"x": np.array([0.5, 0, -0.2, 3], np.float32)},
        lambda x: x == 0,
    ),
    "truth chosen and counted": (
        lambda b, x: b.op(
            "ReduceSum",
            b.op(
                "Cast",
                b.op("Xor", b.op("Equal", x, b.like(x, 1)), b.const(np.ones((3, 4), bool))),
                to=T.INT32,
            ),
            [1],
        ),
        {"x": WHOLE},
        lambda x: (x != 1).sum(1, keepdims=True),
    ),
    "slice of three axes": (
        lambda b, x: b.op("Slice", x, [1], [3], [2]),
        {"x": F},
        lambda x: x[:, :, 1:3],
    ),
    "slice of one axis": (
        lambda b, x: b.op("Slice", x, [1], [3], [0]),
        {"x": F[0, 0]},
        lambda x: x[1:3],
    ),
    "a piece that nobody reads": (
        lambda b, x: b.ops("Split", x, [1, 3], outputs=2, axis=2)[1],
        {"x": F},
        lambda x: x[:, :, 1:],
    ),
    "unused input": (
        lambda b, x, u: b.op("Relu", x),
        {"x": F, "u": STRANGE},
        lambda x, u: np.maximum(x, 0),
    ),
    "unused input beside integers": (
        lambda b, x, u: b.op("Add", x, x),
        {"x": WHOLE, "u": STRANGE},
        lambda x, u: 2 * x,
    ),
    "constant output": (
        lambda b, x: (b.op("Relu", x), b.op("Identity", b.const(STRANGE))),
        {"x": F},
        lambda x: (np.maximum(x, 0), STRANGE),
    ),
    "shape as output": (lambda b, x: b.op("Shape", x), {"x": F}, lambda x: np.array(x.shape)),
    "two networks in one, reshaped at the end": (
        lambda b, x, y: (b.op("Reshape", b.op("Abs", x), list(F.shape)), b.op("Exp", y)),
        {"x": F.reshape(-1), "y": F[0, 0]},
        lambda x, y: (np.abs(x).reshape(F.shape), np.exp(y)),
    ),
    "two networks in one": (
        lambda b, x, y: (b.op("Relu", x), b.op("Exp", y)),
        {"x": F, "y": IMAGE},
        lambda x, y: (np.maximum(x, 0), np.exp(y)),
    ),
    "input as output": (
        lambda b, x, y: (b.op("Identity", x), b.op("Add", x, y)),
        {"x": WHOLE, "y": OTHER},
        lambda x, y: (x, x + y),
    ),
    "bytes divided": (
        lambda b, x, y: b.op("Div", x, y),
        {"x": BYTES, "y": np.full_like(BYTES, 2)},
        lambda x, y: x // y,
    ),
    "bytes overflow": (
        lambda b, x: b.op("Cast", b.op("Mul", b.op("Add", x, x), b.like(x, 3)), to=T.INT32),
        {"x": BYTES},
        lambda x: (x + x) * np.uint8(3),
    ),
    "signed bytes overflow": (
        lambda b, x: b.op("Cast", b.op("Sub", x, b.like(x, 100)), to=T.INT32),
        {"x": np.array([-100, 3, 127], np.int8)},
        lambda x: x - np.int8(100),
    ),
    "words compared": (
        lambda b, x: b.op("Greater", x, b.like(x, 100)),
        {"x": np.array([65535, 3, 101], np.uint16)},
        lambda x: x > 100,
    ),
    "words cut to bytes": (
        lambda b, x: b.op("Cast", b.op("Cast", x, to=T.INT8), to=T.FLOAT),
        {"x": np.array([300, -300, 5], np.int32)},
        lambda x: x.astype(np.int8),
    ),
    "bits of bytes": (
        lambda b, x, y: b.op("Cast", b.op("BitwiseXor", x, y), to=T.INT32),
        {"x": BYTES, "y": BYTES[::-1].copy()},
        lambda x, y: x ^ y,
    ),
    "bits of words": (
        lambda b, x, y: b.op("Cast", b.op("BitwiseOr", x, y), to=T.INT32),
        {"x": np.array([-64, 300, -1], np.int16), "y": np.array([8, -300, 5], np.int16)},
        lambda x, y: x | y,
    ),
    "negative places": (
        lambda b, x, i: b.op("Gather", x, i, axis=1),
        {"x": F, "i": np.array([-1, 0, -3, 2], np.int32)},
        lambda x, i: np.take(x, i, 1),
    ),
    "negative places, many axes": (
        lambda b, x, i: b.op("Gather", x, i, axis=1),
        {"x": F, "i": rng.integers(-3, 3, (1, 2, 1, 2, 1, 2)).astype(np.int32)},
        lambda x, i: np.take(x, i, 1),
    ),
    "transposed list": (lambda b, x: b.op("Transpose", x, perm=[0]), {"x": F[0, 0]}, lambda x: x),
    "integers transposed behind a reshape": (
        lambda b, x: b.op("Transpose", b.op("Reshape", x, [2, 6]), perm=[1, 0]),
        {"x": WHOLE},
        lambda x: x.reshape(2, 6).T,
    ),
    "integers transposed behind a tile": (
        lambda b, x: b.op("Transpose", b.op("Tile", x, [2, 1]), perm=[1, 0]),
        {"x": WHOLE},
        lambda x: np.tile(x, (2, 1)).T,
    ),
    "chosen in five axes": (
        lambda b, x, y: b.op("Where", b.op("Less", x, y), x, y),
        {"x": DEEP[0], "y": DEEP[1]},
        lambda x, y: np.where(x < y, x, y),
    ),
    "six axes": (
        lambda b, x: b.op("Softmax", b.op("Tanh", b.op("Add", x, b.const(DEEP[:, :, :1]))), axis=3),
        {"x": DEEP},
        lambda x: (lambda e: e / e.sum(3, keepdims=True))(np.exp(np.tanh(x + DEEP[:, :, :1]))),
    ),
    "six axes repeated": (
        lambda b, x: b.op("Tile", x, [1, 3, 1, 1, 2, 1]),
        {"x": DEEP},
        lambda x: np.tile(x, (1, 3, 1, 1, 2, 1)),
    ),
    "six axes, every other one spread": (
        lambda b, x: b.op("Mul", x, b.const(DEEP[:, :, :1, :, :1])),
        {"x": DEEP},
        lambda x: x * DEEP[:, :, :1, :, :1],
    ),
    "matrices with many axes in front": (
        lambda b, x, y: b.op("MatMul", x, y),
        {"x": DEEP, "y": DEEP[:1].swapaxes(4, 5).copy()},
        lambda x, y: x @ y,
    ),
    "matrices of integers": (
        lambda b, x, y: b.op("MatMul", b.op("Transpose", x, perm=[1, 0]), y),
        {"x": WHOLE, "y": OTHER},
        lambda x, y: x.T @ y,
    ),
    "slopes of six axes": (
        lambda b, x: b.op("PRelu", x, np.array([[[[[0.5]]]]], np.float32)),
        {"x": DEEP},
        lambda x: np.where(x < 0, x / 2, x),
    ),
    "more pads at the end": (
        lambda b, x: b.op(
            "AveragePool",
            x,
            kernel_shape=[1, 3],
            pads=[0, 1, 0, 2],
            strides=[1, 1],
            count_include_pad=1,
        ),
        {"x": IMAGE},
        lambda x: (lambda p: (p[..., :-2] + p[..., 1:-1] + p[..., 2:]) / 3)(
            np.pad(x, ((0, 0), (0, 0), (0, 0), (1, 2)))
        ),
    ),
    "largest of negative numbers": (
        lambda b, x: b.op("ReduceMax", x, [1], keepdims=0),
        {"x": -np.abs(F) - 1},
        lambda x: x.max(1),
    ),
    "sum of large exponents": (
        lambda b, x: b.op("ReduceLogSumExp", x, [2], keepdims=0),
        {"x": 200 * F},
        lambda x: np.logaddexp.reduce(x, 2),
    ),
    "signs of integers": (
        lambda b, x: (b.op("Sign", x), b.op("Abs", x), b.op("Neg", x)),
        {"x": WHOLE},
        lambda x: (np.sign(x), np.abs(x), -x),
    ),
    "one-hot integers": (
        lambda b, x: b.op("OneHot", x, 4, np.array([0, 7], np.int32), axis=-1),
        {"x": np.array([0, 3, 1], np.int32)},
        lambda x: 7 * np.eye(4, dtype=int)[x],
    ),
    "classes counted from the end": (
        lambda b, x: b.op("OneHot", x, 4, np.array([0, 1], np.float32), axis=-1),
        {"x": np.array([0, -1, -3], np.int32)},
        lambda x: np.eye(4)[x],
    ),
    "moved by half a row, zeros behind the last": (
        lambda b, x, o: b.op(
            "DeformConv",
            x,
            np.eye(4, dtype=np.float32).reshape(4, 4, 1, 1),
            o,
            kernel_shape=[1, 1],
            pads=[0] * 4,
        ),
        {"x": IMAGE, "o": np.stack([np.full((5, 6), n, np.float32) for n in (0.5, 0)])[None]},
        lambda x, o: (x + np.pad(x[:, :, 1:], ((0, 0), (0, 0), (0, 1), (0, 0)))) / 2,
    ),
    "integers padded with a number": (
        lambda b, x: b.op("Pad", x, [0, 1, 2, 0], np.array(3, np.int32)),
        {"x": WHOLE},
        lambda x: np.pad(x, ((0, 2), (1, 0)), constant_values=3),
    ),
    "an image of integers, each pixel four times": (
        lambda b, x: b.op("Resize", x, None, np.array([1, 1, 2, 2], np.float32), mode="nearest"),
        {"x": PIXELS},
        lambda x: x.repeat(2, 2).repeat(2, 3),
    ),
    "channels of integers shuffled": (
        lambda b, x: b.ext("ShuffleChannels", x, group=2),
        {"x": PIXELS},
        lambda x: x[:, [0, 2, 1, 3]],
    ),
    "logarithms of very small shares": (
        lambda b, x: b.op("LogSoftmax", x, axis=1),
        {"x": np.array([[0, 500, -500]], np.float32)},
        lambda x: x - 500,
    ),
    "best integers": (
        lambda b, x: b.ops("TopK", x, [2], outputs=2, axis=1),
        {"x": np.array([[1, 9, 4], [7, 3, 5]], np.int32)},
        lambda x: ([[9, 4], [7, 5]], [[1, 2], [0, 2]]),
    ),
    "least of one": (lambda b, x: b.op("Min", x), {"x": F}, lambda x: x),
    "norm around two": (
        lambda b, x: b.op("LRN", x, size=1, alpha=0.5, beta=0.75, bias=2.0),
        {"x": IMAGE},
        lambda x: x / (2 + 0.5 * x * x) ** 0.75,
    ),
    "norm over an even number of channels": (
        lambda b, x: b.op("LRN", x, size=2, alpha=0.5, beta=0.75, bias=1.0),
        {"x": IMAGE},
        lambda x: (
            x
            / (1 + 0.25 * (x * x + np.pad(x[:, 1:] ** 2, ((0, 0), (0, 1), (0, 0), (0, 0))))) ** 0.75
        ),
    ),
    "weights that are an input, and a bias": (
        lambda b, x, w: b.op("Conv", x, w, np.array([1, -2], np.float32), kernel_shape=[1, 1]),
        {"x": IMAGE, "w": IMAGE[:, :, :2, :1].swapaxes(0, 2).copy()},
        lambda x, w: np.einsum("bchw,oc->bohw", x, w[:, :, 0, 0]) + np.array([[[1]], [[-2]]]),
    ),
    "pixels laid far apart": (
        lambda b, x: b.op(
            "ConvTranspose",
            x,
            b.const(IMAGE[0, :, :3, :1, None]),
            np.array([1, 2, 3], np.float32),
            strides=[9, 20],
            pads=[1, 0, 0, 2],
            output_padding=[2, 0],
        ),
        {"x": IMAGE},
        lambda x: (
            (lambda y: np.pad(y[:, :, 1:, :-2], ((0, 0), (0, 0), (0, 2), (0, 0))))(
                np.kron(
                    np.einsum("bchw,co->bohw", x, IMAGE[0, :, :3, 0]), np.eye(1, 180).reshape(9, 20)
                )[:, :, :37, :101]
            )
            + np.array([[[1]], [[2]], [[3]]])
        ),
    ),
    "average over pads at the end": (
        lambda b, x: b.op(
            "AveragePool",
            x,
            kernel_shape=[1, 2],
            pads=[0, 0, 0, 1],
            strides=[1, 1],
            count_include_pad=1,
        ),
        {"x": IMAGE},
        lambda x: (x + np.pad(x[..., 1:], ((0, 0), (0, 0), (0, 0), (0, 1)))) / 2,
    ),
    "bytes as weights": (
        lambda b, x: b.op(
            "MatMul", x, b.op("DequantizeLinear", b.const(BYTES), np.float32(0.5), np.uint8(3))
        ),
        {"x": F[0, :, :2].copy()},
        lambda x: x @ ((BYTES.astype(np.float32) - 3) / 2),
    ),
    "quantised weights": (
        lambda b, x: b.op(
            "Conv",
            x,
            b.ext(
                "FakeQuantize",
                b.const(IMAGE[:, :, :1, :1]),
                *(np.float32(v) for v in (-2, 2, -2, 2)),
                levels=5,
            ),
        ),
        {"x": IMAGE},
        lambda x: np.einsum("bchw,oc->bohw", x, np.clip(np.round(IMAGE[:, :, 0, 0]), -2, 2)),
    ),
    "quantised with computed bounds": (
        lambda b, x, y: b.op(
            "Relu", b.ext("FakeQuantize", x, b.op("Neg", y), y, b.op("Neg", y), y, levels=5)
        ),
        {"x": IMAGE, "y": np.array([2], np.float32)},
        lambda x, y: np.clip(np.round(x), 0, 2),
    ),
}


def model_of(case: Case) -> Model:
    write, feeds, _ = case
    model, b = new_model()
    results = write(
        b, *(b.input(name, ir.DataType.from_numpy(a.dtype), a.shape) for name, a in feeds.items())
    )
    b.output(*(results if isinstance(results, list | tuple) else [results]))
    for i, out in enumerate(model.graph.outputs):
        set_public_name(out, f"out{i}")
    return Model(model, "onnx")


def same(found: dict[str, np.ndarray], wanted: Any) -> None:
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    assert sorted(found) == [f"out{i}" for i in range(len(wanted))]
    for i, want in enumerate(wanted):
        np.testing.assert_allclose(
            found[f"out{i}"].astype(np.float64).reshape(-1),
            np.asarray(want, np.float64).reshape(-1),
            rtol=1e-4,
            atol=1e-5,
        )


@pytest.mark.parametrize("name", CASES)
def test_written_files_keep_the_rules_of_the_engine(name: str, tmp_path: Path) -> None:
    _, feeds, formula = CASES[name]
    converter.save(model_of(CASES[name]), tmp_path / "m.xml", "openvino+ir=7")
    assert troubles(tmp_path / "m.xml") == []
    same(converter.load(tmp_path / "m.xml").run(feeds), formula(*feeds.values()))


@pytest.mark.judges
@pytest.mark.parametrize("name", CASES)
def test_the_engine_gives_these_numbers(name: str, tmp_path: Path) -> None:
    _, feeds, formula = CASES[name]
    converter.save(model_of(CASES[name]), tmp_path / "m.xml", "openvino+ir=7")
    same(run_in("legacy-engine", tmp_path / "m.xml", feeds), formula(*feeds.values()))


def test_a_file_without_inputs_is_refused(tmp_path: Path) -> None:
    model, b = new_model()
    b.output(b.op("Identity", b.const(F)))
    with pytest.raises(UnsupportedError, match="depend on an input"):
        converter.save(Model(model, "onnx"), tmp_path / "m.xml", "openvino+ir=7")


def test_texts_are_refused_by_name(tmp_path: Path) -> None:
    model, b = new_model()
    b.output(
        b.op(
            "Equal",
            b.input("x", T.STRING, [2]),
            b.const(ir.StringTensor(np.array([b"a", b"c"], object), shape=ir.Shape([2]))),
        )
    )
    with pytest.raises(UnsupportedError, match="strings are not supported"):
        converter.save(Model(model, "onnx"), tmp_path / "m.xml", "openvino+ir=7")


def test_an_output_that_is_the_input_of_that_name_is_renamed_aloud(tmp_path: Path) -> None:
    """One layer of that name is the input; a memory would be another network."""
    model, b = new_model()
    x = b.input("x", T.FLOAT, [2, 3])
    b.output(x)
    set_public_name(model.graph.outputs[0], "x")
    notes = converter.save(Model(model, "onnx"), tmp_path / "m.xml", "openvino+ir=7")
    assert any("output x is renamed to x_1" in str(n) for n in notes)
    assert troubles(tmp_path / "m.xml") == []
    np.testing.assert_array_equal(
        converter.load(tmp_path / "m.xml").run({"x": F[0, :2, :3]})["x_1"], F[0, :2, :3]
    )


def test_layers_keep_off_the_names_of_ports(tmp_path: Path) -> None:
    """A layer with several ports writes L.0, L.1, ..: no other layer may be called so."""
    model, b = new_model()
    x = b.input("x", T.FLOAT, [1, 4])
    with b.provenance(layer="L"):
        left, right = b.ops("Split", x, [2, 2], outputs=2, axis=1)
    with b.provenance(layer="L.1"):
        y = b.op("Exp", left)
    b.output(b.op("Add", y, right))
    converter.save(Model(model, "onnx"), tmp_path / "m.xml", "openvino+ir=7")
    assert troubles(tmp_path / "m.xml") == []


def test_bounds_of_channels_stand_apart(tmp_path: Path) -> None:
    """Put together with the layer before it, a FakeQuantize with bounds for each channel reads
    after them.
    """
    model, b = new_model()
    x = b.input("x", T.FLOAT, [1, 4, 5, 6])
    high = np.arange(1, 5, dtype=np.float32).reshape(1, 4, 1, 1)
    b.output(
        b.op(
            "Exp",
            b.ext(
                "FakeQuantize",
                b.op("Relu", x),
                np.zeros_like(high),
                high,
                np.zeros_like(high),
                high,
                levels=256,
            ),
        )
    )
    converter.save(Model(model, "onnx"), tmp_path / "m.xml", "openvino+ir=7")
    (quantized,) = [
        layer for layer in layers_of(tmp_path / "m.xml") if layer.type == "FakeQuantize"
    ]
    assert quantized.sources[0].type == "Power"


@pytest.mark.parametrize("operator", sorted(STEPS))
@pytest.mark.sampled(7)
def test_random_networks_keep_the_rules(operator: str, tmp_path: Path) -> None:
    for seed in range(3):
        model = network(f"{operator}{seed}", 2, operator)
        if model is None or expected(model) is None:
            continue
        path = tmp_path / f"{seed}.xml"
        try:
            converter.save(model, path, "openvino+ir=7")
        except UnsupportedError:
            continue
        assert troubles(path) == []


@pytest.mark.judges
@pytest.mark.parametrize("operator", sorted(STEPS))
def test_the_engine_runs_random_networks(operator: str, tmp_path: Path) -> None:
    model = network(f"{operator}1", 2, operator)
    wanted = None if model is None else expected(model)
    if model is None or wanted is None:
        pytest.skip("no such network")
    try:
        converter.save(model, tmp_path / "m.xml", "openvino+ir=7")
    except UnsupportedError as e:
        pytest.skip(str(e))
    found = run_in("legacy-engine", tmp_path / "m.xml", feeds_of(model))
    for key, want in wanted.items():
        scale = (
            float(np.max(np.abs(want[np.isfinite(want)]), initial=1.0))
            if want.dtype.kind == "f"
            else 1.0
        )
        np.testing.assert_allclose(
            found[key].astype(np.float64).reshape(-1),
            want.astype(np.float64).reshape(-1),
            rtol=2e-3,
            atol=2e-4 * scale,
            err_msg=key,
        )


# nets of legacy layers that are written with other ones, and why
OTHERWISE = {
    "argmax_noaxis": "the layer without an axis",
    "bucketize_r1": "is written out",
    "d2s_*": "the engine's layer is wrong for more than one channel",
    "eltwise_3in": "two operands each",
    "eltwise_coeff": "factors of their own",
    "eltwise_squared_diff": "a difference and a product",
    "eltwise_bcast": "one number for each channel is ScaleShift",
    "normalize_1_1": "the scale stands apart",
    "norm_same": "is written out",
    "crop1": "an input that nobody reads",
    "esws": "an input that nobody reads",
    "sparsetodense": "an input that nobody reads",
    "sparsefillemptyrows": "an input that nobody reads",
    "priorbox*": "the boxes are constant",
    "preprocess_value": "means are subtracted by a layer",
    "broadcast": "ranks are made equal first",
    "onehot": "classes become integers",
    "regionyolo_v3": "the layer's own shape, then the port's",
    "grucell_*": "a sequence of one step",
    "rnncell_*": "a sequence of one step",
    "ti_lstm_*": "the body gives every step an axis",
    "stridedslice_mask1_used": "Crop where no step is taken",
    "node__test_mvn_expanded": "a reciprocal with a shift",
    "node__test_softsign*": "a reciprocal with a shift",
    "v2__pytorch-converted__test_BatchNorm1d_3d_input_eval": "ScaleShift is for images",
    "v4__pytorch-operator__test_operator_index": "a cut of one piece",
    "wild_*": "boxes of the catalogue's shape, and reshapes that leave the shape",
    "mo_v7fp16_shufflenet": "reshapes that leave the shape",
}
LEGACY = [
    c
    for suite in ("legacy-layers", "legacy-nets", "legacy-ops")
    for c in corpus_cases(f"openvino/{suite}")
]


@pytest.mark.parametrize("case", LEGACY)
@pytest.mark.sampled(7)
def test_a_legacy_net_keeps_its_layers(case: Path, tmp_path: Path) -> None:
    if b'version="10"' in (case / "model.xml").read_bytes()[:300]:
        pytest.skip("an opset IR")
    converter.save(converter.load(case / "model.xml"), tmp_path / "m.xml", "openvino+ir=7")
    before, after = types_of(case / "model.xml"), types_of(tmp_path / "m.xml")
    if not any(case.match(name) for name in OTHERWISE):
        assert after == before


def padded_bits(folder: Path, pad_value: float) -> tuple[Path, Any, Any]:
    x, w = (np.random.default_rng(4).random(s) > 0.5 for s in ((1, 8, 5, 5), (5, 8, 3, 3)))
    model, b = new_model("main")
    value = b.input("x", ir.DataType.FLOAT, list(x.shape))
    attrs: dict[str, Any] = {"strides": [1, 1], "pads": [1] * 4, "dilations": [1, 1]}
    kernel = b.const(w.astype(np.float32))
    b.output(b.ext("BinaryConvolution", value, kernel, pad_value=pad_value, **attrs))
    converter.save(Model(model, "onnx"), folder / "m.xml", "openvino+ir=7")
    around = np.pad(2.0 * x - 1, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=pad_value)
    windows = np.lib.stride_tricks.sliding_window_view(around[0], (3, 3), (1, 2))
    return (
        folder / "m.xml",
        {"x": x.astype(np.float32)},
        np.einsum("chwij,ocij->ohw", windows, 2.0 * w - 1)[None],
    )


@pytest.mark.parametrize("sign", [-1.0, 0.0, 1.0])
def test_bits_around_a_binary_convolution(sign: float, tmp_path: Path) -> None:
    path, feeds, wanted = padded_bits(tmp_path, sign)
    assert f'pad_value="{sign:g}"' in path.read_text()
    (found,) = converter.load(path).run(feeds).values()
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.judges
@pytest.mark.parametrize("sign", [-1.0, 0.0, 1.0])
def test_the_engine_pads_bits_like_this(sign: float, tmp_path: Path) -> None:
    path, feeds, wanted = padded_bits(tmp_path, sign)
    (found,) = run_in("legacy-engine", path, feeds).values()
    np.testing.assert_array_equal(found, wanted)
