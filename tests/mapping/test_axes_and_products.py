"""Concepts of several formats have one answer: axes, permutations, matrix products.

ONNX's own engine decides the result of an operator that names no axes, or names them in any order;
the formats' rows are tried by the laws with such operators.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from converter.errors import MappingError
from converter.graph.build import new_model
from converter.graph.infer import constant
from converter.mapping.concepts.axes import (
    ALL,
    NONE,
    Axes,
    Axis,
    FixedAxis,
    Permutation,
    nonnegative_axes,
)
from converter.mapping.concepts.matmul import Transposes
from converter.mapping.context import LiftContext
from converter.mapping.fields import Field
from converter.mapping.node import Layer
from converter.mapping.rules import Rule, op
from laws.adapters import Adapter
from test_mapping_laws import ADAPTERS, check_lift_undoes_lower

REDUCTIONS = [
    pytest.param(rule, adapter, id=f"{name}-{rule.op}={rule.kind}")
    for name, adapter in ADAPTERS.items()
    for rule in adapter.table.rules
    if any(isinstance(f, Axes) for f in rule.fields) and not rule.lift_only
]


def of_type(rule: Rule) -> str:
    """The prefix of the type of its sample's data."""
    kind, colon, _ = rule.example_inputs.partition(" ")[0].rpartition(":")
    return kind + colon


def axes_of(rule: Rule) -> Axes:
    return next(f for f in rule.fields if isinstance(f, Axes))


@pytest.mark.parametrize(("rule", "adapter"), REDUCTIONS)
def test_a_reduction_that_names_no_axis_reduces_all(rule: Rule, adapter: Adapter) -> None:
    check_lift_undoes_lower(replace(rule, example_inputs=f"{of_type(rule)}2,3"), adapter, slice(1))


@pytest.mark.parametrize(("rule", "adapter"), REDUCTIONS)
def test_axes_come_in_any_order_and_count_from_the_end(rule: Rule, adapter: Adapter) -> None:
    given = f"{of_type(rule)}2,3,4 =[-1,0]"
    check_lift_undoes_lower(replace(rule, example_inputs=given), adapter, slice(1))


@pytest.mark.parametrize(("rule", "adapter"), REDUCTIONS)
def test_a_reduction_over_no_axes_is_written_or_refused_alike(rule: Rule, adapter: Adapter) -> None:
    attrs = {"keepdims": 1, "noop_with_empty_axes": 1}
    node, b = adapter.node(rule, f"{of_type(rule)}2,3 =[]", attrs)
    (version,) = adapter.versions(rule)[:1]
    if axes_of(rule).writable:
        assert adapter.write(rule, rule, node, b, version).layers
        return
    with pytest.raises(MappingError) as refused:
        adapter.write(rule, rule, node, b, version)
    assert str(refused.value) == f"{rule.op} over no axes is not supported by the target"
    assert refused.value.help


@pytest.mark.parametrize(("rule", "adapter"), REDUCTIONS)
def test_named_axes_are_reduced_for_any_meaning_of_no_axes(rule: Rule, adapter: Adapter) -> None:
    attrs = {"keepdims": 1, "noop_with_empty_axes": 1}
    node, b = adapter.node(rule, f"{of_type(rule)}2,3,4 =[1]", attrs)
    (version,) = adapter.versions(rule)[:1]
    assert adapter.write(rule, rule, node, b, version).layers


# reading -----------------------------------------------------------------------------------------


def reading(*fields: Field, shape: Any = (2, 3, 4), **attrs: Any) -> LiftContext:
    """A layer of one input with these attributes, as a row of these fields reads it."""
    _, b = new_model("test")
    x = b.input("x", ir.DataType.FLOAT, shape)
    r = LiftContext(Layer("Layer", attrs=attrs, inputs=[x]), b)
    r.begin(op("Operator", "Layer", *fields))
    for f in fields:
        f.lift(r)
    return r


def test_axes_are_sorted_counted_from_the_front_and_named_once() -> None:
    assert nonnegative_axes([-1, 0, 2], 3) == [0, 2]
    r = reading(Axes(), axes=[-1, 0, 2])
    assert constant(r.node.inputs[1]).tolist() == [0, 2]  # type: ignore[union-attr]


@pytest.mark.parametrize("axis", [3, -4])
def test_an_axis_beyond_the_rank_is_refused(axis: int) -> None:
    for field, attrs in (
        (Axes(), {"axes": [axis]}),
        (Axis(), {"axis": axis}),
        (Axis(signed=True), {"axis": axis}),
        (Permutation(), {"perm": [0, 1, axis]}),
    ):
        with pytest.raises(MappingError, match=f"axis {axis} is outside the rank 3") as refused:
            reading(field, **attrs)
        assert refused.value.code == "R110"


def test_an_empty_list_of_axes_has_the_meaning_of_the_format() -> None:
    every = reading(Axes(empty=ALL), axes=[])
    assert constant(every.node.inputs[1]).tolist() == [0, 1, 2]  # type: ignore[union-attr]
    none = reading(Axes(empty=NONE), axes=[])
    assert constant(none.node.inputs[1]).size == 0  # type: ignore[union-attr]
    assert none.node.attrs["noop_with_empty_axes"] == 1
    with pytest.raises(MappingError, match="axes must name at least one axis"):
        reading(Axes(absent=True), axes=[])
    absent = reading(Axes(absent=True))
    assert constant(absent.node.inputs[1]).tolist() == [0, 1, 2]  # type: ignore[union-attr]


def test_an_axis_is_one() -> None:
    assert reading(Axis(), axis=[1]).node.attrs["axis"] == 1
    assert reading(Axis(), axis=-1).node.attrs["axis"] == 2
    assert reading(Axis(signed=True), axis=-1).node.attrs["axis"] == -1
    assert reading(Axis(added=1), axis=3).node.attrs["axis"] == 3
    assert reading(Axis(default=5)).node.attrs["axis"] == 2
    assert "axis" not in reading(Axis(default=None)).node.attrs
    with pytest.raises(MappingError, match="input 1 is absent"):
        reading(Axis(of=1), axis=0)
    with pytest.raises(MappingError, match=r"axis must be one axis, got \[0, 1\]"):
        reading(Axis(), axis=[0, 1])


def test_a_fixed_axis_counts_from_the_end() -> None:
    assert reading(FixedAxis(-3)).node.attrs["axis"] == 0
    assert reading(FixedAxis(-1, signed=True)).node.attrs["axis"] == -1
    with pytest.raises(MappingError, match="the input has rank 2, so it has no axis -3"):
        reading(FixedAxis(-3), shape=(2, 3))


@pytest.mark.parametrize("perm", [[0, 0, 1], [0, 1], []])
def test_a_permutation_names_each_axis_once(perm: list[int]) -> None:
    with pytest.raises(MappingError, match="is not a permutation of 3 axes"):
        reading(Permutation(), perm=perm)


def test_a_permutation_that_is_left_out_reverses_the_axes() -> None:
    assert "perm" not in reading(Permutation(absent=True)).node.attrs
    assert reading(Permutation(), perm=[-1, 0, 1]).node.attrs["perm"] == [2, 0, 1]


def test_a_vector_is_not_transposed() -> None:
    field = Transposes("trans_a adj_x")
    assert reading(field, shape=(3,), trans_a=True).node.inputs[0].name == "x"  # type: ignore[union-attr]
    turned = reading(field, adj_x=True).node.inputs[0]
    assert turned is not None and tuple(turned.shape or ()) == (2, 4, 3)


def test_an_axis_of_slices_counts_those_of_the_data() -> None:
    """The selector of a Zhouyi Filter, which comes first, has one axis."""
    adapter = ADAPTERS["zhouyi"]
    (rule,) = (r for r in adapter.table.rules if r.kind == "Filter")
    node, b = adapter.node(rule, "b:3 2,3 -> 2", {"axis": 1})
    made = adapter.write(rule, rule, node, b, 0)
    assert made.layers[0].attrs["axis"] == 1


def test_numbers_of_an_axis_are_integers() -> None:
    with pytest.raises(MappingError, match="is not a valid value"):
        reading(Axis(), axis=np.float32(0.5))


def test_indices_that_cannot_be_negative_are_one_hot_in_zhouyi() -> None:
    """ONNX counts indices below zero from the end, the layer has them nowhere."""
    adapter = ADAPTERS["zhouyi"]
    (rule,) = (r for r in adapter.table.rules if r.op == "OneHot")
    node, b = adapter.node(rule, "ArgMax(2,3) =(3) =[0,1]", {"axis": -1})
    assert adapter.write(rule, rule, node, b, 0).layers[-1].kind == "OneHot"
    node, b = adapter.node(rule, "i64:2,3 =(3) =[0,1]", {"axis": -1})
    with pytest.raises(MappingError, match="negative indices are not supported"):
        adapter.write(rule, rule, node, b, 0)
