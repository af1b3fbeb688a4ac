"""Operators between values and operators by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from converter.graph import EXTENSION_DOMAIN
from converter.graph.build import Builder, Value, new_model
from converter.graph.extensions import catalogue
from converter.graph.infer import InferenceError, constant, schema_of
from converter.graph.value import MAX, with_operators
from converter.passes.fold import fold

T = ir.DataType


def written(value: ir.Value) -> tuple[Any, ...]:
    """Operator and operands, constants as numbers."""
    node = value.producer()
    assert node is not None
    operands = [
        v.const_value.numpy().tolist() if v is not None and v.const_value is not None else v
        for v in node.inputs
    ]
    return node.op_type, *operands


@pytest.fixture
def b() -> Builder:
    return new_model()[1]


@pytest.mark.parametrize(
    ("apply", "op_type"),
    [
        (lambda x, y: x + y, "Add"),
        (lambda x, y: x - y, "Sub"),
        (lambda x, y: x * y, "Mul"),
        (lambda x, y: x / y, "Div"),
        (lambda x, y: x**y, "Pow"),
        (lambda x, y: x @ y, "MatMul"),
        (lambda x, y: x < y, "Less"),
        (lambda x, y: x <= y, "LessOrEqual"),
        (lambda x, y: x > y, "Greater"),
        (lambda x, y: x >= y, "GreaterOrEqual"),
    ],
)
def test_operators(b: Builder, apply: Callable[[Any, Any], Value], op_type: str) -> None:
    x, y = b.input("x", T.FLOAT, [2, 2]), b.input("y", T.FLOAT, [2, 2])
    with b:
        assert written(apply(x, y)) == (op_type, x, y)


@pytest.mark.parametrize(
    ("cut", "operands"),
    [
        (lambda x: x[1:3], ([1], [3], [0])),
        (lambda x: x[:, 2:], ([2], [MAX], [1])),
        (lambda x: x[..., -1:], ([-1], [MAX], [-1])),
        (lambda x: x[..., 1:2, :], ([1], [2], [-2])),
        (lambda x: x[::-1], ([-1], [-MAX], [0], [-1])),
        (lambda x: x[:2, :, ::3], ([0, 0], [2, MAX], [0, 2], [1, 3])),
    ],
)
def test_slices(b: Builder, cut: Callable[[Any], Value], operands: tuple[Any, ...]) -> None:
    """The shape is that of NumPy's slice."""
    x = b.input("x", T.FLOAT, [4, 6, 8])
    with b:
        y = cut(x)
    assert written(y) == ("Slice", x, *operands)
    assert y.shape is not None and tuple(y.shape) == cut(np.zeros((4, 6, 8))).shape


@pytest.mark.parametrize(
    "cut",
    [
        lambda x: x[2],
        lambda x: x[..., -1],
        lambda x: x[:, 3, :2],
        lambda x: x[1, ..., 2, :3],
        lambda x: x[0, 1:, 5],
    ],
)
def test_places(cut: Callable[[Any], Any]) -> None:
    """An axis indexed by an integer vanishes, as in NumPy."""
    array = np.arange(192, dtype=np.float32).reshape(4, 6, 8)
    model, b = new_model()
    with b:
        b.output(cut(b.const(array)))
    fold(model)
    assert np.array_equal(constant(model.graph.outputs[0]), cut(array))


def test_a_value_is_no_sequence(b: Builder) -> None:
    x = b.input("x", T.FLOAT, [2])
    with b, pytest.raises(TypeError):
        list(x)


@pytest.mark.parametrize("dtype", [T.FLOAT, T.FLOAT16, T.INT64, T.UINT8])
def test_numbers_take_the_type_of_the_other_operand(b: Builder, dtype: ir.DataType) -> None:
    x = b.input("x", dtype, [2])
    with b:
        assert written(x * 3) == ("Mul", x, 3)
        assert written(3 - x) == ("Sub", 3, x)
        assert (2 / x).dtype == (x < 3).producer().inputs[1].dtype == dtype  # type: ignore[union-attr]


def test_arrays_keep_their_type_and_position(b: Builder) -> None:
    x = b.input("x", T.FLOAT, [2])
    with b:
        assert written(np.array([1, 2], np.float32) / x) == ("Div", [1, 2], x)
        with pytest.raises(InferenceError):
            x + np.array([1, 2])


def test_a_fraction_with_integers_is_refused(b: Builder) -> None:
    x = b.input("x", T.INT64, [2])
    with b, pytest.raises(InferenceError):
        x * 0.5


def test_logic_of_booleans_and_of_bits(b: Builder) -> None:
    p, i = b.input("p", T.BOOL, [2]), b.input("i", T.INT32, [2])
    with b:
        assert [written(v)[0] for v in (p & p, p | p, p ^ p, ~p)] == ["And", "Or", "Xor", "Not"]
        assert [written(v)[0] for v in (i & i, i | 1, i ^ i, ~i)] == [
            "BitwiseAnd",
            "BitwiseOr",
            "BitwiseXor",
            "BitwiseNot",
        ]
        assert [written(v)[0] for v in (-i, i % 2)] == ["Neg", "Mod"]


def test_identity_stays(b: Builder) -> None:
    x, y = b.input("x", T.FLOAT, [2]), b.input("y", T.FLOAT, [2])
    assert (x == x) is True and (x == y) is False and len({x, y, x}) == 2


def test_values_of_others_become_writable_and_stay_the_same(b: Builder) -> None:
    plain = ir.Value(name="x", type=ir.TensorType(T.FLOAT), shape=ir.Shape([2]))
    held, user = {plain: 1}, ir.Node("", "Relu", [plain])
    x = with_operators(plain)
    assert x is plain and held[x] == 1 and user.inputs[0] is x and x.uses()
    assert with_operators(None) is None
    with b:
        assert written(x + 1) == ("Add", x, 1)


def test_the_innermost_block_writes(b: Builder) -> None:
    x = b.input("x", T.FLOAT, [2])
    with b:
        with b.body("loop") as inner:
            assert (x + 1).producer().graph is inner.graph  # type: ignore[union-attr]
        assert (x + 1).producer().graph is b.graph  # type: ignore[union-attr]
    with pytest.raises(RuntimeError, match="with block"):
        x + 1


def test_operators_by_name(b: Builder) -> None:
    x = b.input("x", T.FLOAT, [2, 4])
    y = b.Transpose(x, perm=[1, 0], name="turned")
    assert written(y) == ("Transpose", x) and y.name == "turned"
    assert [v.name for v in b.Split(x, outputs=2, axis=1, num_outputs=2)] == ["split", "split_1"]
    assert b.NormalizeL2(x, axes=[1]).producer().domain == EXTENSION_DOMAIN  # type: ignore[union-attr]
    assert written(b.operator("Relu")(x)) == ("Relu", x)


@pytest.mark.parametrize("name", ["Unheard", "graphs", "__wrapped__"])
def test_unknown_operators_are_no_attributes(b: Builder, name: str) -> None:
    assert not hasattr(b, name)


def test_names_that_two_domains_have() -> None:
    """`b.RandomNormal` is ONNX's; the catalogue's is written with `b.ext`."""
    assert [n for n in catalogue() if schema_of(n)] == ["RandomNormal", "RandomUniform"]
