"""Operators of NNAPI that TensorFlow Lite lacks are written with others, and LiteRT computes the
same; quantized numbers that NNAPI has no type for stay floats.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.engines import litert
from converter.errors import UnsupportedError
from converter.formats.tflite.codec import read_flat
from converter.graph.build import Builder, new_model

RNG = np.random.default_rng(11)
FLOAT = ir.DataType.FLOAT
LOWEST = np.finfo(np.float32).min


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def recurrent(direction: str, given: bool) -> Callable[..., Any]:
    def build(b: Builder, x: ir.Value) -> Any:
        d = 2 if direction == "bidirectional" else 1
        states = (None, b.const(floats(d, 2, 4)), b.const(floats(d, 2, 4))) if given else ()
        return b.ops(
            "LSTM",
            x,
            floats(d, 16, 3),
            floats(d, 16, 4),
            floats(d, 32),
            *states,
            hidden_size=4,
            direction=direction,
            outputs=3,
        )

    return build


def stored(b: Builder, x: ir.Value, scale: float, zero: Any) -> ir.Value:
    """x as its integers give it back."""
    s, z = b.const(np.float32(scale)), b.const(np.array(zero))
    return b.op("DequantizeLinear", b.op("QuantizeLinear", x, s, z), s, z)


def joined(b: Builder, x: ir.Value) -> ir.Value:
    parts = [
        stored(b, b.op("Relu", x), 0.02, np.int8(-128)),
        stored(b, b.op("Tanh", x), 0.01, np.int8(3)),
    ]
    return stored(b, b.op("Concat", *parts, axis=1), 0.025, np.int8(-20))


def masked(b: Builder, x: ir.Value) -> ir.Value:
    """A mask down to the lowest float, which the scale of the sum has to reach."""
    mask = b.op("Where", b.op("Greater", x, b.like(x, 0)), b.like(x, 0), b.like(x, float(LOWEST)))
    total = b.op(
        "Add", stored(b, x, 0.03, np.int8(0)), stored(b, mask, float(-LOWEST / 255), np.int8(127))
    )
    return b.op("Softmax", stored(b, total, float(-LOWEST / 255), np.int8(127)), axis=-1)


def blocks_of_four_bits(b: Builder, x: ir.Value) -> ir.Value:
    """More weights than are folded."""
    weights = b.const(RNG.integers(0, 16, (1056, 1024)).astype(ml_dtypes.uint4))
    zeros = b.const(RNG.integers(0, 16, (33, 1024)).astype(ml_dtypes.uint4))
    scales = b.const(RNG.uniform(0.001, 0.01, (33, 1024)).astype(np.float32))
    real = b.op("DequantizeLinear", weights, scales, zeros, axis=0, block_size=32)
    return b.op("MatMul", x, real)


CASES: dict[str, tuple[Callable[..., Any], list[int]]] = {
    "blocks of four bits": (blocks_of_four_bits, [2, 1056]),
    "forward": (recurrent("forward", True), [5, 2, 3]),
    "reverse": (recurrent("reverse", False), [5, 2, 3]),
    "neighbours in three axes": (
        lambda b, x: b.op("LRN", x, size=3, alpha=0.5, beta=0.75, bias=1.0),
        [2, 4, 3],
    ),
    "bidirectional": (recurrent("bidirectional", True), [5, 2, 3]),
    "each picture by itself": (
        lambda b, x: b.op("InstanceNormalization", x, floats(3), floats(3)),
        [2, 3, 4, 5],
    ),
    "signed bytes of different scales": (joined, [1, 3, 4, 5]),
    "a scale that is huge": (masked, [2, 6]),
    "numbers of 16 bits": (
        lambda b, x: stored(
            b, b.op("Exp", stored(b, x, 1e-4, np.uint16(32768))), 2e-4, np.uint16(0)
        ),
        [3, 4],
    ),
    "signed numbers of 16 bits": (
        lambda b, x: stored(b, b.op("Tanh", stored(b, x, 1e-4, np.int16(0))), 5e-5, np.int16(-7)),
        [3, 4],
    ),
}


def computed_weights(b: Builder, x: ir.Value) -> Any:
    """A recurrence in a loop, whose weights are transposed before it."""
    recurrent_weights = b.op("Reshape", b.op("Tanh", b.op("Slice", x, [0], [6], [0])), [1, 12, 4])
    return b.ops("GRU", x, floats(1, 12, 4), recurrent_weights, hidden_size=4, outputs=2)


def many_places(b: Builder, x: ir.Value) -> ir.Value:
    """The positions are computed, and too many for a table of positions and updates."""
    places = b.ops("TopK", x, [400], axis=1, outputs=2)[1]
    return b.op("ScatterElements", x, places, b.const(floats(1, 400, 3)), axis=1)


def positive(b: Builder, x: ir.Value) -> Any:
    """The numbers above zero, and how many there are."""
    rows = b.op("Reshape", b.op("NonZero", b.op("Greater", x, b.like(x, 0))), [-1])
    return b.op("Gather", x, rows), b.op("Shape", rows)


def least(b: Builder, x: ir.Value) -> Any:
    found, count = positive(b, x)
    return b.ops("TopK", found, count, largest=0, outputs=2)


def of_computed_height(b: Builder, x: ir.Value) -> ir.Value:
    _, count = positive(b, b.op("Reshape", x, [-1]))
    sizes = b.op("Concat", b.const(np.array([1, 3])), count, b.const(np.array([9])), axis=0)
    attrs = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    return b.op("Resize", x, None, None, sizes, **attrs)


# operators without an operation in NNAPI, or with an operand of unknown size
LITE_CASES: dict[str, tuple[Callable[..., Any], list[int]]] = {
    "weights of a loop that are computed": (computed_weights, [9, 2, 4]),
    "many places": (many_places, [1, 900, 3]),
    "the least of an unknown number": (least, [20]),
    "a picture of computed height": (of_computed_height, [1, 3, 4, 5]),
}


def made(case: str) -> tuple[Model, dict[str, np.ndarray]]:
    build, shape = {**CASES, **LITE_CASES}[case]
    m, b = new_model()
    found = build(b, b.input("x", FLOAT, shape))
    b.output(*([found] if isinstance(found, ir.Value) else found))
    return Model(m, "test"), {"x": floats(*shape)}


@pytest.mark.parametrize("case", CASES)
def test_the_table_means_the_same(case: str, tmp_path: Path) -> None:
    model, feeds = made(case)
    converter.save(model, tmp_path / "a.nnapi.json")
    for (name, want), got in zip(
        model.run(feeds).items(),
        converter.load(tmp_path / "a.nnapi.json").run(feeds).values(),
        strict=True,
    ):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=3e-4, err_msg=name)


@pytest.mark.skipif(not litert.available(), reason="LiteRT is not installed")
@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", [*CASES, *LITE_CASES])
def test_litert_computes_the_same(case: str) -> None:
    model, feeds = made(case)
    got = model.run(feeds, engine="litert")
    for name, want in model.run(feeds).items():
        np.testing.assert_allclose(
            got[name], want, rtol=1e-4, atol=0.026 if "bytes" in case else 3e-4, err_msg=name
        )


def test_a_constant_beyond_32_bits_is_refused(tmp_path: Path) -> None:
    model, b = new_model()
    x = b.input("x", ir.DataType.INT64, [3])
    b.output(b.op("Div", x, b.const(np.array(1 << 33))), b.op("Div", x, b.const(np.array(5))))
    with pytest.raises(UnsupportedError, match="Div: no kernel of DIV supports int64") as error:
        converter.save(Model(model, "test"), tmp_path / "a.tflite")
    assert len(error.value.diagnostics) == 1


def test_nnapi_has_its_own_cell(tmp_path: Path) -> None:
    model, _ = made("forward")
    converter.save(model, tmp_path / "a.nnapi.json")
    converter.save(model, tmp_path / "a.tflite")
    assert '"UNIDIRECTIONAL_SEQUENCE_LSTM"' in (tmp_path / "a.nnapi.json").read_text()
    graphs = read_flat(tmp_path / "a.tflite").graphs
    assert {"TANH", "LOGISTIC"} <= {o.builtin for g in graphs for o in g.operators}
