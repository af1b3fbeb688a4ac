"""Every kind of field in both directions, and what it says when it cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from converter.graph.build import Builder, new_model
from converter.graph.infer import constant
from converter.mapping import codecs
from converter.mapping.codecs import enum
from converter.mapping.fields import Attr, Const, Field, Fixed, Group, Guard, Only, Ports, Weight, ignore, pads, spread
from converter.mapping.node import Layer, MappingError, Node
from converter.mapping.table import Table, op, ops


@pytest.fixture
def b() -> Builder:
    return new_model()[1]


def activation(b: Builder, *shape: int) -> ir.Value:
    return b.input("x", ir.DataType.FLOAT, shape)


def lift(field: Field, b: Builder, attrs: dict[str, Any] | None = None, inputs: list[Any] | None = None, **blobs: Any) -> Node:
    near = Node("N", inputs=list(inputs or []))
    field.lift(Layer("F", "f", dict(attrs or {}), blobs, list(inputs or [])), near, b)
    return near


def lower(field: Field, attrs: dict[str, Any] | None = None, inputs: list[Any] | None = None) -> Layer:
    far = Layer("F", inputs=list(inputs or []))
    field.lower(Node("N", attrs=dict(attrs or {}), inputs=list(inputs or [])), far)
    return far


def reason(step: Any, *args: Any, **options: Any) -> MappingError:
    with pytest.raises(MappingError) as caught:
        step(*args, **options)
    return caught.value


class TestAttr:
    def test_through_a_codec(self, b: Builder) -> None:
        field = Attr("strides", "stride", codecs.csv)
        assert lift(field, b, {"stride": "1,2"}).attrs == {"strides": [1, 2]}
        assert lower(field, {"strides": [1, 2]}).attrs == {"stride": "1,2"}

    def test_required(self, b: Builder) -> None:
        field = Attr("alpha", "a")
        refused = reason(lift, field, b)
        assert str(refused) == "required attribute 'a' is absent" and refused.code == "R110"
        assert str(reason(lower, field)) == "required attribute 'alpha' is absent"

    def test_defaults_of_either_side(self, b: Builder) -> None:
        field = Attr("alpha", "a", default=1.0, far_default=2.0)
        assert lift(field, b).attrs == {"alpha": 2.0}
        assert lower(field).attrs == {"a": 1.0}
        assert lower(Attr("alpha", "a", far_default=2.0)).attrs == {}
        assert lift(Attr("alpha", "a", far_default=None), b).attrs == {}

    def test_omit_what_is_default(self) -> None:
        field = Attr("alpha", "a", far_default=2.0, omit=True)
        assert lower(field, {"alpha": 2.0}).attrs == {} and lower(field, {"alpha": 3.0}).attrs == {"a": 3.0}

    @pytest.mark.parametrize("bad", ["1,x", "one", None])
    def test_a_bad_value(self, b: Builder, bad: Any) -> None:
        refused = reason(lift, Attr("strides", "stride", codecs.csv), b, {"stride": bad})
        assert refused.code == "R110" and str(refused) == f"stride={bad!r} is not a valid value"


class TestFixedAndOnly:
    def test_fixed(self, b: Builder) -> None:
        field = Fixed("method", "CLIP")
        assert lift(field, b, {"method": "CLIP"}).attrs == {} and lower(field).attrs == {"method": "CLIP"}
        assert str(reason(lift, field, b, {"method": "RELU"})) == "method='RELU', only 'CLIP' is known here"
        assert str(reason(lift, field, b)) == "method=(absent), only 'CLIP' is known here"
        assert lift(Fixed("method", "CLIP", absent=True), b).attrs == {}

    def test_only(self, b: Builder) -> None:
        field = Only("group", 1)
        assert lift(field, b).attrs == {"group": 1} and lower(field, {"group": 1}).attrs == {} and lower(field).attrs == {}
        assert str(reason(lower, field, {"group": 2})) == "group=2 cannot be expressed (only 1)"
        assert lift(Only("group", None), b).attrs == {}

    def test_lists_and_arrays_compare_by_value(self) -> None:
        assert lower(Only("dilations", [1, 1]), {"dilations": np.array([1, 1])}).attrs == {}
        assert str(reason(lower, Only("dilations", [1, 1]), {"dilations": [1, 2]})) == "dilations=[1, 2] cannot be expressed (only [1, 1])"

    def test_ignore_writes_nothing(self, b: Builder) -> None:
        field = ignore("note", "hint")
        assert field.far == ("note", "hint") and lift(field, b, {"note": 1}).attrs == {} and lower(field).attrs == {}


class TestGroups:
    def test_pads(self, b: Builder) -> None:
        field = pads("begin", "end", codecs.csv)
        assert lift(field, b, {"begin": "1,2", "end": "3,4"}).attrs == {"pads": [1, 2, 3, 4]}
        assert lower(field, {"pads": [1, 2, 3, 4]}).attrs == {"begin": "1,2", "end": "3,4"}
        assert str(reason(lift, field, b, {"begin": "1,2"})) == "required attribute 'end' is absent"
        assert str(reason(lower, field)) == "required attribute 'pads' is absent"

    def test_spread(self, b: Builder) -> None:
        field = spread("strides", "y", "x")
        assert lift(field, b, {"x": 1, "y": 2}).attrs == {"strides": [2, 1]} and lower(field, {"strides": [2, 1]}).attrs == {"y": 2, "x": 1}
        assert str(reason(lower, field, {"strides": [1, 1, 1]})) == "strides has 3 entries, the target needs 2"

    def test_group_sees_both_sides(self, b: Builder) -> None:
        field = Group(("axis",), ("last",), lambda far, near: {"axis": -1 if far.attrs["last"] else 1}, lambda near, far: {"last": near.attrs["axis"] == -1})
        assert lift(field, b, {"last": True}).attrs == {"axis": -1} and lower(field, {"axis": 1}).attrs == {"last": False}


class TestConst:
    def test_both_ways(self, b: Builder) -> None:
        field = Const(1, "axes", codecs.csv)
        x = activation(b, 2, 3)
        near = lift(field, b, {"axes": "0,1"}, [x])
        assert near.inputs[0] is x and constant(near.inputs[1]).tolist() == [0, 1]
        assert lower(field, inputs=near.inputs).attrs == {"axes": "0,1"}

    def test_type_of_the_first_input(self, b: Builder) -> None:
        near = lift(Const(1, "min", dtype=None), b, {"min": 0}, [activation(b, 2)])
        assert near.inputs[1].dtype == ir.DataType.FLOAT

    def test_left_out(self, b: Builder) -> None:
        x = activation(b, 2)
        assert lower(Const(1, "min", codecs.number, default=float("-inf")), inputs=[x]).attrs == {"min": "-inf"}
        assert lower(Const(1, "min", far_default=None), inputs=[x]).attrs == {}
        assert lift(Const(1, "min", far_default=None), b, {}, [x]).inputs == [x]
        assert str(reason(lower, Const(1, "min"), inputs=[x])) == "input 1 is absent, the target needs 'min'"
        assert str(reason(lift, Const(1, "min"), b, {}, [x])) == "required attribute 'min' is absent"

    def test_not_a_constant(self, b: Builder) -> None:
        x = activation(b, 2)
        assert str(reason(lower, Const(1, "axes"), inputs=[x, x])) == "input 1 (x) must be constant for 'axes'"

    def test_a_bad_value(self, b: Builder) -> None:
        assert str(reason(lift, Const(1, "axes", codecs.csv), b, {"axes": "a"})) == "axes='a' is not a valid value"


class TestWeight:
    def test_permuted_as_a_view(self, b: Builder) -> None:
        stored = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
        field = Weight("weights", 1, (1, 2, 0))
        near = lift(field, b, inputs=[activation(b, 2)], weights=stored)
        array = constant(near.inputs[1])
        assert array.shape == (4, 2, 3) and np.shares_memory(array, stored)
        back = lower(field, inputs=near.inputs).blobs["weights"]
        assert np.array_equal(back, stored) and np.shares_memory(back, stored)

    def test_flat_blob(self, b: Builder) -> None:
        field = Weight("weights", 1, shape=lambda far, near: (2, 3))
        assert constant(lift(field, b, weights=np.zeros(6)).inputs[1]).shape == (2, 3)
        refused = reason(lift, field, b, weights=np.zeros(5))
        assert refused.code == "R103" and str(refused) == "the weights 'weights' have 5 elements, 2x3 = 6 are needed"

    def test_permutation_by_rank(self, b: Builder) -> None:
        field = Weight("w", 0, lambda rank: tuple(reversed(range(rank))))
        assert constant(lift(field, b, w=np.zeros((2, 3))).inputs[0]).shape == (3, 2)

    def test_absent(self, b: Builder) -> None:
        assert str(reason(lift, Weight("w", 1), b)) == "the weights 'w' are absent"
        assert str(reason(lower, Weight("w", 1))) == "input 1 is absent, the target needs 'w'"
        assert lift(Weight("w", 1, optional=True), b).inputs == [] and lower(Weight("w", 1, optional=True)).blobs == {}

    def test_computed(self, b: Builder) -> None:
        x = activation(b, 2)
        assert "must be constant" in str(reason(lower, Weight("w", 0), inputs=[x]))
        assert lift(Weight("w", 0), b, w=x).inputs == [x]  # some formats have weights as inputs


def test_ports(b: Builder) -> None:
    x, y = activation(b, 1), activation(b, 2)
    field = Ports((1, 0))
    near = lift(field, b, inputs=[x, y])
    assert near.inputs == [y, x] and lower(field, inputs=near.inputs).inputs == [x, y]


def test_guard(b: Builder) -> None:
    field = Guard("only small ones", lambda near: near.attrs["n"] < 3, lambda far: far.attrs["n"] < 3)
    lift(field, b, {"n": 1}), lower(field, {"n": 1})
    assert str(reason(lift, field, b, {"n": 3})) == str(reason(lower, field, {"n": 3})) == "only small ones"


class TestCodecs:
    @pytest.mark.parametrize(("value", "text"), [(1.0, "1"), (0.1, "0.1"), (np.float32(0.1), "0.1"), (1e-5, "1e-05"), (float("inf"), "inf"), (-2.5, "-2.5")])
    def test_numbers_are_the_shortest_that_read_back(self, value: float, text: str) -> None:
        assert codecs.number.lower(value) == text and np.float32(codecs.number.lift(text)) == np.float32(value)

    def test_a_float64_keeps_its_digits(self) -> None:
        assert float(codecs.number.lower(1 / 3)) == 1 / 3

    @pytest.mark.parametrize(("codec", "near", "far"), [
        (codecs.csv, [1, -2], "1,-2"),
        (codecs.csv, [], ""),
        (codecs.csv_floats, [0.5, 1.0], "0.5,1"),
        (codecs.int_text, 7, "7"),
        (codecs.integer, 7, 7),
        (codecs.flag, 1, True),
        (codecs.bool_text, 0, "false"),
        (codecs.same, "x", "x"),
    ])  # fmt: skip
    def test_inverse(self, codec: codecs.Codec, near: Any, far: Any) -> None:
        assert codec.lower(near) == far and codec.lift(far) == near
        assert (~codec).lift(near) == far and (~codec).lower(far) == near

    @pytest.mark.parametrize("text", ["true", "True", "1"])
    def test_spellings_of_true(self, text: str) -> None:
        assert codecs.bool_text.lift(text) == 1

    def test_enum(self) -> None:
        mode = enum({0: "floor", 1: "ceil"})
        assert mode.lower(1) == "ceil" and mode.lift("floor") == 0 and (~mode).lift(1) == "ceil"
        assert str(reason(mode.lift, "round")) == "value 'round' has no counterpart (known: 'floor', 'ceil')"
        assert "no counterpart" in str(reason(mode.lower, [1]))

    def test_an_enum_is_one_to_one(self) -> None:
        with pytest.raises(AssertionError, match="not one-to-one"):
            enum({0: "a", 1: "a"})


class TestTable:
    table = Table([
        op("Clip", "Activation", Fixed("method", "CLIP"), Attr("lowest", "clip_min"), since=2),
        op("Elu", "Activation", Fixed("method", "ELU"), Attr("alpha", "alpha", codecs.number)),
        *ops("Relu=ReLU Abs"),
        op("Relu", "OldReLU", lift_only=True),
    ])  # fmt: skip

    def test_discriminator(self, b: Builder) -> None:
        assert self.table.lift(Layer("Activation", attrs={"method": "ELU", "alpha": "1"}), b).op == "Elu"
        assert self.table.lower(Node("Elu")).attrs == {"method": "ELU", "alpha": "1"}  # the schema's default is filled in

    def test_unknown(self, b: Builder) -> None:
        refused = reason(self.table.lift, Layer("Foo"), b)
        assert refused.code == "X201" and str(refused) == "Foo has no counterpart"

    def test_version(self, b: Builder) -> None:
        table = Table([op("Abs", "Abs", since=3)])
        refused = reason(table.lower, Node("Abs"), version=2)
        assert refused.code == "X206" and str(refused) == "Abs needs version 3"
        assert table.lower(Node("Abs"), version=3).kind == "Abs"

    def test_did_you_mean(self, b: Builder) -> None:
        refused = reason(self.table.lift, Layer("Activation", attrs={"method": "ELU", "alpha": "1", "alpa": "2"}), b)
        assert refused.code == "R111" and str(refused) == "attribute 'alpa' is not known" and refused.help == "did you mean 'alpha'?"
        assert reason(self.table.lift, Layer("Abs", attrs={"zzz": 1}), b).help == ""

    def test_unknown_weights(self, b: Builder) -> None:
        assert str(reason(self.table.lift, Layer("Abs", blobs={"w": np.zeros(1)}), b)) == "weights 'w' is not known"

    def test_lift_only(self, b: Builder) -> None:
        assert self.table.lift(Layer("OldReLU"), b).op == "Relu" and self.table.lower(Node("Relu")).kind == "ReLU"

    def test_only_the_reason_that_matters(self, b: Builder) -> None:
        """Rows whose discriminator does not match stay silent."""
        assert str(reason(self.table.lift, Layer("Activation", attrs={"method": "ELU"}), b)) == "required attribute 'alpha' is absent"
        assert str(reason(self.table.lift, Layer("Activation", attrs={"method": "X"}), b)).startswith("method='X', only 'CLIP' is known here; method='X'")

    def test_what_it_knows(self) -> None:
        assert self.table.far_kinds() == {"Activation", "ReLU", "Abs", "OldReLU"} and ("", "Elu") in self.table.near_ops()
