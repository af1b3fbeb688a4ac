"""The graph as text and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from converter.api import Model
from converter.errors import ReadError
from converter.graph.build import new_model
from converter.graph.invariants import violations
from converter.graph.text import parse_text, print_text, weights_of
from converter.passes.channels_last import to_nhwc

T = ir.DataType


def sample() -> ir.Model:
    model, b = new_model()
    x = b.input("x", T.FLOAT, [1, 4, 8, 8])
    y = b.op(
        "Conv",
        x,
        np.arange(96, dtype=np.float32).reshape(4, 4, 3, 2) / 50,
        np.ones(4, np.float32),
        pads=[1, 0, 1, 1],
        name="layer/1:0",
    )
    y = b.op("Clip", y, None, np.float32(1 / 3))
    b.output(b.op("Elu", b.ext("ShuffleChannels", y, group=2), alpha=0.1))
    return model


def same_numbers(a: ir.Model, b: ir.Model, *feeds: Any) -> None:
    named = dict(zip([v.name for v in a.graph.inputs], feeds, strict=True))
    for left, right in zip(
        Model(a, "onnx").run(named).values(), Model(b, "onnx").run(named).values(), strict=True
    ):
        np.testing.assert_array_equal(left, right)


def test_looks_like_this() -> None:
    model, b = new_model()
    x = b.input("x", T.FLOAT, ["N", 3])
    b.output(
        b.op(
            "Relu",
            b.op("MatMul", x, np.arange(18, dtype=np.float32).reshape(3, 6), name="mm"),
            name="y",
        )
    )
    assert print_text(model) == (
        '<\n   ir_version: 10,\n   opset_import: ["" : 21, "netconv" : 1],\n   '
        'producer_name: "netconv"\n>\n'
        "main (float[N,3] x) => (float[N,6] y) \n"
        '   <float[3,6] const = ["location": "const", "sha256": "e2fea6553423387a"], '
        "float[N,6] mm>\n"
        "{\n   mm = MatMul (x, const)\n   y = Relu (mm)\n}\n"
    )


def test_round_trip() -> None:
    model = sample()
    text = print_text(model)
    back = parse_text(text, weights_of(model))
    assert violations(back) == [] and print_text(back) == text
    same_numbers(model, back, np.linspace(-3, 3, 256, dtype=np.float32).reshape(1, 4, 8, 8))


def test_without_types_they_are_inferred() -> None:
    model = sample()
    short = print_text(model, types=False)
    assert len(short) < len(print_text(model))
    assert print_text(parse_text(short, weights_of(model))) == print_text(model)


def test_channels_last_dialect() -> None:
    model = sample()
    to_nhwc(model)
    text = print_text(model)
    assert "netconv.channels_last.Conv" in text
    back = parse_text(text, weights_of(model))
    assert print_text(back) == text
    same_numbers(model, back, np.linspace(-3, 3, 256, dtype=np.float32).reshape(1, 4, 8, 8))


def test_bodies() -> None:
    model, b = new_model()
    flag, x = b.input("flag", T.BOOL, []), b.input("x", T.FLOAT, [2, 20])
    then, other = b.body("then"), b.body("other")
    then.output(then.op("Add", x, np.arange(20, dtype=np.float32)))
    other.output(other.op("Mul", x, np.float32(2)))
    b.output(b.op("If", flag, then_branch=then.graph, else_branch=other.graph))
    text, weights = print_text(model), weights_of(model)
    assert len(weights) == 1
    back = parse_text(text, weights)
    assert print_text(back) == text
    same_numbers(model, back, np.array(True), np.ones((2, 20), np.float32))


DTYPES = [
    np.float16,
    np.int8,
    np.uint8,
    np.int64,
    np.bool_,
    np.float64,
    np.complex64,
    ml_dtypes.bfloat16,
    ml_dtypes.int4,
    ml_dtypes.float8_e4m3fn,
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_constants_of_every_kind(dtype: Any, tmp_path: Path) -> None:
    """Also those that the syntax has no literals for, and after a stay in an .npz."""
    model, b = new_model()
    small, large = np.array([1, 0, 1]).astype(dtype), np.ones(40).astype(dtype)
    b.output(b.op("Identity", b.const(small, "small")), b.op("Identity", b.const(large, "large")))
    np.savez(tmp_path / "weights.npz", **weights_of(model))
    with np.load(tmp_path / "weights.npz") as weights:
        back = parse_text(print_text(model), weights)
    assert print_text(back) == print_text(model)
    found = {k: v.const_value.numpy() for k, v in back.graph.initializers.items()}
    assert found["small"].dtype == found["large"].dtype == np.dtype(dtype)
    assert np.array_equal(found["small"], small) and np.array_equal(found["large"], large)


def test_zeros_take_no_memory() -> None:
    model, b = new_model()
    b.output(b.op("MatMul", b.input("x", T.FLOAT, [1, 1000]), np.ones((1000, 1000), np.float32)))
    back = parse_text(print_text(model))
    (weights,) = [v.const_value.numpy() for v in back.graph.initializers.values()]
    assert weights.shape == (1000, 1000) and not weights.any() and weights.strides == (0, 0)


def test_small_changes_show() -> None:
    model, text = sample(), print_text(sample())
    next(
        v for v in model.graph.initializers.values() if v.const_value.size > 16
    ).const_value.numpy()[0, 0, 0, 0] += 1
    assert print_text(model) != text


@pytest.mark.parametrize(("weights", "message"), [
    ({}, "the text refers to the weights 'const', which were not given"),
    ({"const": np.zeros((4, 4))}, "have shape"),
    ({"const": np.zeros((4, 4, 3, 2))}, "are float64, but the text declares float32"),
    ({"const": np.zeros((4, 4, 3, 2), np.float32)}, "have changed since the text was printed"),
])  # fmt: skip
def test_wrong_weights(weights: dict[str, Any], message: str) -> None:
    with pytest.raises(ReadError, match=message) as refused:
        parse_text(print_text(sample()), weights)
    assert refused.value.diagnostics[0].code == "R110"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        print_text(sample())[:150],
        "<ir_version: 10>\nmain (float x) => (float y) { y = }",
    ],
)
def test_not_the_syntax(text: str) -> None:
    with pytest.raises(ReadError) as refused:
        parse_text(text)
    assert (
        refused.value.diagnostics[0].code == "R101"
        and "\n" not in refused.value.diagnostics[0].message
    )
