"""Every kind of field in both directions, and its message where it cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from converter.errors import MappingError
from converter.graph.build import Builder, new_model
from converter.graph.infer import constant
from converter.mapping import codecs
from converter.mapping.codecs import enum
from converter.mapping.context import LiftContext, LowerContext
from converter.mapping.fields import (
    Attr,
    AttrInput,
    Const,
    Field,
    Group,
    Guard,
    ImpliedAttrs,
    Nested,
    Outputs,
    RequireAttr,
    RequireInput,
    RequireKey,
    Weight,
    WriteKey,
    attrs,
    ignore,
    pads,
    spread,
)
from converter.mapping.lifting import FormatMapping
from converter.mapping.lowering import Lowering
from converter.mapping.node import Layer, Node
from converter.mapping.rules import Rule, Table, custom, op, ops


@pytest.fixture
def b() -> Builder:
    return new_model()[1]


def activation(b: Builder, *shape: int) -> ir.Value:
    return b.input("x", ir.DataType.FLOAT, shape)


NO_TABLE = FormatMapping(Table([]))


def lift(
    field: Field,
    b: Builder,
    attrs: dict[str, Any] | None = None,
    inputs: list[Any] | None = None,
    **blobs: Any,
) -> Node:
    r = LiftContext(Layer("F", "f", dict(attrs or {}), blobs, list(inputs or [])), b)
    r.begin(Rule("N", "F"))
    field.lift(r)
    return r.node


def lower(
    field: Field,
    attrs: dict[str, Any] | None = None,
    inputs: list[Any] | None = None,
    outputs: list[Any] | None = None,
    version: int = 0,
) -> Layer:
    node = Node("N", "", dict(attrs or {}), list(inputs or []), list(outputs or []))
    w = LowerContext(node, Lowering(NO_TABLE, version))
    w.begin(Rule("N", "F"))
    field.lower(w)
    return w.layer


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
        field = Attr("alpha", "a", node_default=1.0, default=2.0)
        assert lift(field, b).attrs == {"alpha": 2.0}
        assert lower(field).attrs == {"a": 1.0}
        assert lower(Attr("alpha", "a", default=2.0)).attrs == {}
        assert lift(Attr("alpha", "a", default=None), b).attrs == {}

    def test_defaults_are_omitted(self) -> None:
        field = Attr("alpha", "a", default=2.0, omit=True)
        assert lower(field, {"alpha": 2.0}).attrs == {} and lower(field, {"alpha": 3.0}).attrs == {
            "a": 3.0
        }

    def test_a_key_that_came_later(self, b: Builder) -> None:
        field = Attr("alpha", "a", default=2.0, since=9)
        assert lower(field, {"alpha": 3.0}, version=9).attrs == {"a": 3.0}
        assert lower(field, {"alpha": 2.0}, version=8).attrs == {}
        refused = reason(lower, field, {"alpha": 3.0}, version=8)
        assert (refused.code, str(refused)) == ("X206", "alpha=3.0 needs version 9")

    def test_several_at_once(self, b: Builder) -> None:
        count, clip, word = attrs(count=int, clip=False, word="Some")
        assert str(reason(lift, count, b)) == "required attribute 'count' is absent"
        assert (lift(clip, b).attrs, lift(word, b).attrs) == ({"clip": 0}, {"word": "Some"})
        assert lift(clip, b, {"clip": True}).attrs == {"clip": 1}
        assert lower(clip, {"clip": 1}).attrs == {"clip": True}

    def test_an_unknown_word_names_its_key(self, b: Builder) -> None:
        refused = reason(lift, Attr("mode", kind=enum({"a": "A"})), b, {"mode": "B"})
        expected = "mode: value 'B' is not supported (only 'A')"
        assert (refused.code, str(refused)) == ("R110", expected)

    @pytest.mark.parametrize("bad", ["1,x", "one", None])
    def test_a_bad_value(self, b: Builder, bad: Any) -> None:
        refused = reason(lift, Attr("strides", "stride", codecs.csv), b, {"stride": bad})
        assert refused.code == "R110" and str(refused) == f"stride={bad!r} is not a valid value"


class TestFixedAndOnly:
    def test_fixed(self, b: Builder) -> None:
        field = RequireKey("method", "CLIP")
        assert lift(field, b, {"method": "CLIP"}).attrs == {} and lower(field).attrs == {
            "method": "CLIP"
        }
        assert (
            str(reason(lift, field, b, {"method": "RELU"}))
            == "method='RELU' is not supported here (only 'CLIP')"
        )
        assert str(reason(lift, field, b)) == "method=(absent) is not supported here (only 'CLIP')"
        assert lift(RequireKey("method", "CLIP", absent=True), b).attrs == {}

    def test_only(self, b: Builder) -> None:
        field = RequireAttr("group", 1)
        assert (
            lift(field, b).attrs == {"group": 1}
            and lower(field, {"group": 1}).attrs == {}
            and lower(field).attrs == {}
        )
        assert str(reason(lower, field, {"group": 2})) == "group=2 is not supported (only 1)"
        assert lift(RequireAttr("group", None), b).attrs == {}

    def test_lists_and_arrays_compare_by_value(self) -> None:
        assert lower(RequireAttr("dilations", [1, 1]), {"dilations": np.array([1, 1])}).attrs == {}
        assert (
            str(reason(lower, RequireAttr("dilations", [1, 1]), {"dilations": [1, 2]}))
            == "dilations=[1, 2] is not supported (only [1, 1])"
        )

    def test_always(self, b: Builder) -> None:
        assert lower(WriteKey("note", [])).attrs == {"note": []}
        assert lift(WriteKey("note", []), b, {"note": "x"}).attrs == {}

    def test_implied_is_not_written(self, b: Builder) -> None:
        field = ImpliedAttrs(("momentum",))
        assert lower(field, {"momentum": 0.5}).attrs == {} and lift(field, b).attrs == {}

    def test_ignore_writes_nothing(self, b: Builder) -> None:
        field = ignore("note", "hint")
        assert (
            field.keys == ("note", "hint")
            and lift(field, b, {"note": 1}).attrs == {}
            and lower(field).attrs == {}
        )


class TestGroups:
    def test_pads(self, b: Builder) -> None:
        field = pads("begin", "end", codecs.csv)
        assert lift(field, b, {"begin": "1,2", "end": "3,4"}).attrs == {"pads": [1, 2, 3, 4]}
        assert lower(field, {"pads": [1, 2, 3, 4]}).attrs == {"begin": "1,2", "end": "3,4"}
        assert str(reason(lift, field, b, {"begin": "1,2"})) == "required attribute 'end' is absent"
        assert str(reason(lower, field)) == "required attribute 'pads' is absent"

    def test_spread(self, b: Builder) -> None:
        field = spread("strides", "y", "x")
        assert lift(field, b, {"x": 1, "y": 2}).attrs == {"strides": [2, 1]} and lower(
            field, {"strides": [2, 1]}
        ).attrs == {"y": 2, "x": 1}
        assert (
            str(reason(lower, field, {"strides": [1, 1, 1]}))
            == "strides must have 2 elements, got 3"
        )

    def test_group_sees_both_sides(self, b: Builder) -> None:
        field = Group(
            ("axis",),
            ("last",),
            lambda r: {"axis": -1 if r.layer.attrs["last"] else 1},
            lambda w: {"last": w.node.attrs["axis"] == -1},
        )
        assert lift(field, b, {"last": True}).attrs == {"axis": -1} and lower(
            field, {"axis": 1}
        ).attrs == {"last": False}


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
        assert lower(
            Const(1, "min", codecs.number, node_default=float("-inf")), inputs=[x]
        ).attrs == {"min": "-inf"}
        assert lower(Const(1, "min", default=None), inputs=[x]).attrs == {}
        assert lift(Const(1, "min", default=None), b, {}, [x]).inputs == [x]
        assert (
            str(reason(lower, Const(1, "min"), inputs=[x]))
            == "input 1 is absent, but the target needs 'min'"
        )
        assert (
            str(reason(lift, Const(1, "min"), b, {}, [x])) == "required attribute 'min' is absent"
        )

    def test_not_a_constant(self, b: Builder) -> None:
        x = activation(b, 2)
        assert (
            str(reason(lower, Const(1, "axes"), inputs=[x, x]))
            == "input 1 (x) must be constant for 'axes'"
        )

    def test_a_bad_value(self, b: Builder) -> None:
        assert (
            str(reason(lift, Const(1, "axes", codecs.csv), b, {"axes": "a"}))
            == "axes='a' is not a valid value"
        )


class TestInputsAndOutputs:
    def test_an_input_that_is_left_out_for_its_default(self, b: Builder) -> None:
        field, x = AttrInput("length", 1, default=-1, omit=True), activation(b, 2)
        assert lift(field, b, inputs=[x]).attrs == {"length": -1}
        assert lower(field, {"length": -1}, [x]).inputs == [x]
        assert len(lower(field, {"length": 3}, [x]).inputs) == 2

    def test_outputs_that_the_operator_leaves_out(self, b: Builder) -> None:
        x, y = activation(b, 2), ir.Value(name="y")
        own, second, third = lower(
            Outputs((None, None, ir.DataType.INT32)), inputs=[x], outputs=[y]
        ).outputs
        assert own is y
        assert (second.dtype, third.dtype) == (ir.DataType.FLOAT, ir.DataType.INT32)


class TestFixedInput:
    field = RequireInput(1, 6.0)

    def test_both_ways(self, b: Builder) -> None:
        x = activation(b, 2, 3)
        near = lift(self.field, b, {}, [x])
        assert near.inputs[0] is x and constant(near.inputs[1]).tolist() == 6.0
        assert near.inputs[1].dtype == x.dtype
        assert lower(self.field, inputs=near.inputs).attrs == {}

    def test_another_value_is_for_another_row(self, b: Builder) -> None:
        x = activation(b, 2)
        for other in (b.const(np.float32(5)), b.const(np.zeros(2, np.float32)), x, None):
            refused = reason(lower, self.field, inputs=[x, other])
            assert str(refused) == "input 1 must be 6" and refused.no_match


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
        field = Weight("weights", 1, shape=lambda r: (2, 3))
        assert constant(lift(field, b, weights=np.zeros(6)).inputs[1]).shape == (2, 3)
        refused = reason(lift, field, b, weights=np.zeros(5))
        assert (
            refused.code == "R103"
            and str(refused) == "the weights 'weights' have 5 elements, but 2x3 = 6 are needed"
        )

    def test_permutation_by_rank(self, b: Builder) -> None:
        field = Weight("w", 0, lambda rank: tuple(reversed(range(rank))))
        assert constant(lift(field, b, w=np.zeros((2, 3))).inputs[0]).shape == (3, 2)

    def test_absent(self, b: Builder) -> None:
        assert str(reason(lift, Weight("w", 1), b)) == "the weights 'w' are absent"
        assert str(reason(lower, Weight("w", 1))) == "input 1 is absent, but the target needs 'w'"
        assert (
            lift(Weight("w", 1, optional=True), b).inputs == []
            and lower(Weight("w", 1, optional=True)).blobs == {}
        )

    def test_computed(self, b: Builder) -> None:
        x = activation(b, 2)
        assert "must be constant" in str(reason(lower, Weight("w", 0), inputs=[x]))
        assert lift(Weight("w", 0), b, w=x).inputs == [x]  # some formats have weights as inputs


def test_guard(b: Builder) -> None:
    field = Guard(
        "only small ones", lambda w: w.node.attrs["n"] < 3, lambda r: r.layer.attrs["n"] < 3
    )
    lift(field, b, {"n": 1}), lower(field, {"n": 1})
    assert (
        str(reason(lift, field, b, {"n": 3}))
        == str(reason(lower, field, {"n": 3}))
        == "only small ones"
    )


class TestCodecs:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (1.0, "1"),
            (0.1, "0.1"),
            (np.float32(0.1), "0.1"),
            (1e-5, "1e-05"),
            (float("inf"), "inf"),
            (-2.5, "-2.5"),
        ],
    )
    def test_numbers_are_the_shortest_that_read_back(self, value: float, text: str) -> None:
        assert codecs.number.lower(value) == text and np.float32(
            codecs.number.lift(text)
        ) == np.float32(value)

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
        assert (
            str(reason(mode.lift, "round"))
            == "value 'round' is not supported (only 'floor', 'ceil')"
        )
        assert "is not supported" in str(reason(mode.lower, [1]))

    def test_an_enum_is_one_to_one(self) -> None:
        with pytest.raises(AssertionError, match="not one-to-one"):
            enum({0: "a", 1: "a"})


class TestTable:
    table = Table([
        op("Clip", "Activation", RequireKey("method", "CLIP"), Attr("lowest", "clip_min"), since=2),
        op("Elu", "Activation", RequireKey("method", "ELU"), Attr("alpha", "alpha", codecs.number)),
        *ops("Relu=ReLU Abs"),
        op("Relu", "OldReLU", lift_only=True),
    ])  # fmt: skip

    def lift(self, layer: Layer, b: Builder) -> ir.Node | None:
        layer.inputs = [activation(b, 2)]
        return self.table.lift(LiftContext(layer, b))[0].producer()

    def lower(self, op_type: str, table: Table | None = None, version: int = 0) -> Layer:
        low = Lowering(FormatMapping(table or self.table), version)
        low.mapping.table.lower(low.writing(Node(op_type)))
        return low.layers[-1]

    def test_discriminator(self, b: Builder) -> None:
        node = self.lift(Layer("Activation", attrs={"method": "ELU", "alpha": "1"}), b)
        assert node is not None and node.op_type == "Elu"
        # the schema's default is filled in
        assert self.lower("Elu").attrs == {"method": "ELU", "alpha": "1"}

    def test_unknown(self, b: Builder) -> None:
        refused = reason(self.lift, Layer("Foo"), b)
        assert refused.code == "X201" and str(refused) == "Foo is not supported"

    def test_version(self) -> None:
        table = Table([op("Abs", "Abs", since=3)])
        refused = reason(self.lower, "Abs", table, 2)
        assert refused.code == "X206" and str(refused) == "Abs needs version 3"
        assert self.lower("Abs", table, 3).kind == "Abs"

    def test_did_you_mean(self, b: Builder) -> None:
        layer = Layer("Activation", attrs={"method": "ELU", "alpha": "1", "alpa": "2"})
        refused = reason(self.lift, layer, b)
        assert refused.code == "R111" and str(refused) == "attribute 'alpa' is not known"
        assert refused.help == "perhaps you meant 'alpha'"
        assert reason(self.lift, Layer("Abs", attrs={"zzz": 1}), b).help == ""

    def test_unknown_weights(self, b: Builder) -> None:
        refused = reason(self.lift, Layer("Abs", blobs={"w": np.zeros(1)}), b)
        assert str(refused) == "weights 'w' is not known"

    def test_lift_only(self, b: Builder) -> None:
        node = self.lift(Layer("OldReLU"), b)
        assert node is not None and node.op_type == "Relu" and self.lower("Relu").kind == "ReLU"

    def test_only_the_reason_that_matters(self, b: Builder) -> None:
        """Rows whose conditions do not hold stay silent where another row says more."""
        refused = reason(self.lift, Layer("Activation", attrs={"method": "ELU"}), b)
        assert str(refused) == "required attribute 'alpha' is absent"
        refused = reason(self.lift, Layer("Activation", attrs={"method": "X"}), b)
        assert str(refused).startswith("method='X' is not supported (only CLIP, ")

    def test_kinds_and_operators_of_a_table(self) -> None:
        assert self.table.kinds() == {"Activation", "ReLU", "Abs", "OldReLU"}
        assert ("", "Elu") in self.table.ops()


class TestHooks:
    """A row of which one detail is not regular: nodes and layers in addition to its own."""

    table = Table(
        [
            op("Sigmoid", "Swish", before_lift=lambda r: swish(r), lift_only=True),
            op(
                "Relu",
                "ReluOfHalf",
                after_lift=lambda r, y: r.b.op("Neg", y),
                after_lower=lambda w: w.put("Behind"),
            ),
            op(
                "Elu",
                "Elu",
                AttrInput("alpha", 1, float, None),
                before_lower=lambda w: w.emit("InFront"),
            ),
            custom(
                "Abs",
                "Abs Absolute",
                lift=lambda r: r.b.op("Abs", r.input(0)),
                lower=lambda w: w.put("Abs", w.input(0)) and None,
            ),
        ]
    )

    def results(self, kind: str, b: Builder, *operands: Any) -> ir.Node:
        inputs = [activation(b, 2), *(b.const(v) for v in operands)]
        made = self.table.lift(LiftContext(Layer(kind, inputs=inputs), b))[0].producer()
        assert made is not None
        return made

    def layers(self, node: Node) -> list[Layer]:
        low = Lowering(FormatMapping(self.table))
        self.table.lower(low.writing(node))
        return low.layers

    def test_nodes_before_and_after(self, b: Builder) -> None:
        node = self.results("Swish", b)
        assert node.op_type == "Mul" and node.inputs[1].producer().op_type == "Sigmoid"
        assert self.results("ReluOfHalf", b).op_type == "Neg"

    def test_layers_before_and_after(self, b: Builder) -> None:
        x, y = activation(b, 2), activation(b, 2)
        layers = self.layers(Node("Relu", inputs=[x], outputs=[y]))
        assert [layer.kind for layer in layers] == ["ReluOfHalf", "Behind"]
        layers = self.layers(Node("Elu", inputs=[x], outputs=[y]))
        assert [layer.kind for layer in layers] == ["InFront", "Elu"]

    def test_a_value_that_exists_already_is_the_result(self, b: Builder) -> None:
        def nothing(r: LiftContext) -> None:
            r.forwarded = [r.input(0)]

        x = activation(b, 2)
        table = Table([op("Cast", "Convert", before_lift=nothing, lift_only=True)])
        assert table.lift(LiftContext(Layer("Convert", inputs=[x]), b)) == [x]
        assert not list(b.graph)

    def test_an_attribute_that_is_an_input_there(self, b: Builder) -> None:
        assert self.results("Elu", b, np.float32(0.5)).attributes["alpha"].as_float() == 0.5
        x = activation(b, 2)
        layer = self.layers(Node("Elu", attrs={"alpha": 0.25}, inputs=[x], outputs=[x]))[-1]
        alpha = constant(layer.inputs[1])
        assert alpha.dtype == np.float32 and alpha.tolist() == 0.25
        assert str(reason(self.results, "Elu", b)) == "input 1 is absent"

    def test_a_custom_converter(self, b: Builder) -> None:
        assert self.results("Absolute", b).op_type == "Abs"
        x = activation(b, 2)
        assert self.layers(Node("Abs", inputs=[x], outputs=[x]))[0].kind == "Abs"
        assert self.table.kinds() == {"Swish", "ReluOfHalf", "Elu", "Abs", "Absolute"}

    def test_layers_of_a_failed_row_are_removed(self) -> None:
        def fails(w: LowerContext) -> None:
            w.emit("InFront")
            raise MappingError("no")

        table = Table([op("Abs", "A", before_lower=fails), op("Abs", "B")])
        low = Lowering(FormatMapping(table))
        table.lower(low.writing(Node("Abs")))
        assert [layer.kind for layer in low.layers] == ["B"]


def swish(r: LiftContext) -> None:
    x = r.input(0)
    r.after_emit(lambda results: [r.b.op("Mul", x, results[0])])


class TestNested:
    FIELD = Nested("leaky", Attr("alpha", "slope", float))

    def test_fields_see_the_message_inside(self, b: Builder) -> None:
        assert lift(self.FIELD, b, {"leaky": {"slope": 0.5}}).attrs == {"alpha": 0.5}
        assert lower(self.FIELD, {"alpha": 0.5}).attrs == {"leaky": {"slope": 0.5}}

    def test_without_the_message_another_row_is_meant(self, b: Builder) -> None:
        assert reason(lift, self.FIELD, b, {"slope": 0.5}).no_match

    def test_leftover_attributes_inside(self, b: Builder) -> None:
        error = reason(lift, self.FIELD, b, {"leaky": {"slope": 0.5, "shift": 1.0}})
        assert (error.code, str(error)) == ("R111", "attribute leaky.shift is not known")


class TestFixedInputInFront:
    FIELD = RequireInput(0, 2.0)

    def test_both_ways(self, b: Builder) -> None:
        x = activation(b, 2)
        base, exponent = lift(self.FIELD, b, inputs=[x]).inputs
        assert exponent is x and constant(base) == 2.0
        lower(self.FIELD, inputs=[base, x])


def test_zero_stands_for_a_default() -> None:
    codec = codecs.unset(0.5)
    assert [codec.lift(v) for v in (0.0, 2)] == [0.5, 2.0]
    assert codec.lower(2.0) == 2.0
    assert "0 is not supported" in str(reason(codec.lower, 0.0))


def test_messages_that_are_known_are_one_reason(b: Builder) -> None:
    table = Table(op(name, "F", Nested(name.lower())) for name in ("Abs", "Exp"))
    r = LiftContext(Layer("F"), b)
    known = "message=(absent) is not supported (only abs, exp)"
    assert str(reason(table.lift, r)) == known
