"""The shared graph: building, inference, names, promises, extension operators, fixing of input
shapes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

from converter.api import Model
from converter.errors import MappingError, UnsupportedError, UsageError
from converter.graph import CHANNELS_LAST_DOMAIN, EXTENSION_DOMAIN
from converter.graph.build import Builder, as_array, attribute, attrs_of, builder_before, new_model
from converter.graph.extensions import (
    CATALOGUE,
    bind,
    catalogue,
    expand_all,
    extension,
    function_for,
    lookup,
    opaque,
    unbind,
)
from converter.graph.infer import InferenceError, constant, infer, known, rank_of, shape_of
from converter.graph.invariants import violations
from converter.graph.names import Names, public_name, set_public_name
from converter.graph.shapes import infer_all
from converter.graph.walk import all_graphs, all_nodes
from converter.passes.channels_last import to_nhwc
from converter.passes.fix_inputs import fix_inputs

T = ir.DataType


@pytest.fixture
def b() -> Builder:
    return new_model()[1]


def x_of(b: Builder, *shape: Any, dtype: ir.DataType = T.FLOAT, name: str = "x") -> ir.Value:
    return b.input(name, dtype, shape)


NUMBERS = [
    (1, np.int64),
    ([1, 2], np.int64),
    ([], np.int64),
    (1.5, np.float32),
    ([1, 2.5], np.float32),
    (True, np.bool_),
]
ATTRIBUTES = [
    (1, "INT"),
    (True, "INT"),
    (1.0, "FLOAT"),
    (np.float32(1), "FLOAT"),
    ("s", "STRING"),
    ([], "INTS"),
    ([1], "INTS"),
    ([1, 2.0], "FLOATS"),
]
ATTRIBUTES += [(["a"], "STRINGS"), (np.zeros(2), "TENSOR")]


class TestBuilder:
    @pytest.mark.parametrize(("data", "dtype"), NUMBERS)
    def test_python_numbers(self, data: Any, dtype: Any) -> None:
        assert as_array(data).dtype == dtype

    def test_arrays_keep_their_type_and_memory(self, b: Builder) -> None:
        weights = np.arange(6, dtype=np.float64).reshape(2, 3).T
        assert (
            np.shares_memory(constant(b.const(weights)), weights)
            and constant(b.const(weights)).dtype == np.float64
        )

    def test_types_and_shapes_at_once(self, b: Builder) -> None:
        y = b.op(
            "Conv", x_of(b, "N", 3, 8, 8), np.zeros((4, 3, 3, 3), np.float32), pads=[1, 1, 1, 1]
        )
        assert y.dtype == T.FLOAT and str(y.shape) == "[N,4,8,8]"

    def test_attributes_in_the_types_of_the_schema(self, b: Builder) -> None:
        y = b.op("Elu", x_of(b, 2), alpha=3)
        assert y.producer().attributes["alpha"].type == ir.AttributeType.FLOAT
        assert b.op("Transpose", y, perm=None).producer().attributes == {}

    @pytest.mark.parametrize(("value", "kind"), ATTRIBUTES)
    def test_attributes_by_value(self, value: Any, kind: str) -> None:
        assert attribute("a", value).type.name == kind

    def test_attrs_of_gives_python_values(self, b: Builder) -> None:
        y = b.op("Pad", x_of(b, 2), [1, 1], mode="edge")
        assert attrs_of(y.producer()) == {"mode": "edge"}
        assert attrs_of(b.op("MaxPool", x_of(b, 1, 1, 4), kernel_shape=(2,)).producer()) == {
            "kernel_shape": [2]
        }

    def test_several_outputs(self, b: Builder) -> None:
        left, right = b.ops("Split", x_of(b, 4), axis=0, num_outputs=2, outputs=2, names=("left",))
        assert (left.name, shape_of(left), shape_of(right)) == ("left", (2,), (2,))

    def test_optional_inputs(self, b: Builder) -> None:
        node = b.op("Clip", x_of(b, 2), None, np.float32(6)).producer()
        assert (
            node.inputs[1] is None
            and len(b.op("Clip", x_of(b, 2), None, None).producer().inputs) == 1
        )

    def test_like(self, b: Builder) -> None:
        assert b.like(x_of(b, 2, dtype=T.FLOAT16), 3).dtype == T.FLOAT16

    def test_a_number_takes_the_type_that_the_operator_demands(self, b: Builder) -> None:
        x = x_of(b, 2, dtype=T.DOUBLE)
        for y in (b.Max(x, 0), b.Clip(x, -1, 2.5), b.Where(b.Equal(x, 1), 0, x)):
            assert {v.dtype for v in y.producer().inputs} <= {T.DOUBLE, T.BOOL}
        assert b.Gather(x, 1).producer().inputs[1].dtype == T.INT64

    def test_a_fraction_is_no_integer(self, b: Builder) -> None:
        with pytest.raises(InferenceError):
            b.Max(x_of(b, 2, dtype=T.INT32), 0.5)

    def test_before_a_node_with_its_provenance(self, b: Builder) -> None:
        with b.provenance(format="coreml", layer="l1", type="activation", where=""):
            y = b.op("Relu", x_of(b, 2))
        z = builder_before(y.producer(), b.names).op("Neg", b.graph.inputs[0])
        assert [n.op_type for n in b.graph] == ["Neg", "Relu"]
        assert z.producer().metadata_props == {
            "netconv.format": "coreml",
            "netconv.layer": "l1",
            "netconv.type": "activation",
        }
        assert b.op("Neg", y).producer().metadata_props == {}

    def test_outputs_of_every_kind(self, b: Builder) -> None:
        """An input, a constant, or the same value twice gets an Identity."""
        x = x_of(b, 2)
        y = b.op("Relu", x)
        b.output(y, y, x, b.const([1.0]))
        assert [v.producer().op_type for v in b.graph.outputs] == [
            "Relu",
            "Identity",
            "Identity",
            "Identity",
        ]
        assert len({v.name for v in b.graph.outputs}) == 4

    def test_contradicting_inputs(self, b: Builder) -> None:
        with pytest.raises(InferenceError, match="MatMul"):
            b.op("MatMul", x_of(b, 2, 3), x_of(b, 4, 5, name="y"))


class TestKnownValues:
    def test_shape_arithmetic(self, b: Builder) -> None:
        x = x_of(b, 2, 3, 4)
        rows = b.op("Gather", b.op("Shape", x), 0)
        y = b.op("Reshape", x, b.op("Concat", b.op("Unsqueeze", rows, [0]), [-1], axis=0))
        assert known(rows) == 2 and shape_of(y) == (2, 12)

    def test_known_part_of_a_symbolic_shape(self, b: Builder) -> None:
        x = x_of(b, "N", 3, 4)
        assert (
            known(b.op("Shape", x)) is None
            and known(b.op("Shape", x, start=1)).tolist() == [3, 4]
            and known(b.op("Size", x)) is None
        )

    def test_a_choice_among_known_and_unknown_dimensions(self, b: Builder) -> None:
        shape = b.op("Shape", x_of(b, "n", 3, 8, 9))
        assert known(b.op("Gather", shape, [3, 1], axis=0)).tolist() == [9, 3]  # type: ignore[union-attr]
        assert known(b.op("Squeeze", b.op("Slice", shape, [-1], [1 << 40], [0]))).tolist() == 9  # type: ignore[union-attr]
        assert known(b.op("Gather", shape, [0, 1], axis=0)) is None

    def test_size(self, b: Builder) -> None:
        assert known(b.op("Size", x_of(b, 2, 3))) == 6

    def test_weights_are_not_evaluated(self, b: Builder) -> None:
        large = b.const(np.zeros(5000, np.float32))
        assert (
            known(large) is None
            and constant(large).shape == (5000,)
            and known(b.op("Neg", large)) is None
        )

    def test_random_numbers_are_not_known(self, b: Builder) -> None:
        assert known(b.op("RandomNormal", shape=[2])) is None

    def test_activations_are_not(self, b: Builder) -> None:
        x = x_of(b, 2)
        assert known(x) is None and constant(x) is None and known(None) is None and rank_of(x) == 1


class TestNames:
    def test_fresh(self) -> None:
        names = Names()
        assert [names.fresh(n) for n in ("a", "a", "a_1", "a", "")] == [
            "a",
            "a_1",
            "a_1_1",
            "a_2",
            "v",
        ]

    def test_names_of_a_model(self) -> None:
        model, b = new_model()
        x = x_of(b, 2)
        body = b.body("then")
        body.output(body.op("Relu", x, name="inner"))
        b.output(
            b.op(
                "If",
                b.const(True, "flag"),
                then_branch=body.graph,
                else_branch=body.graph.clone(allow_outer_scope_values=True),
                name="y",
            )
        )
        names = Names(model)
        assert [names.fresh(n) for n in ("x", "inner", "flag", "y")] == [
            "x_1",
            "inner_1",
            "flag_1",
            "y_1",
        ]

    def test_many_names_take_linear_time(self) -> None:
        names = Names()
        assert len({names.fresh("same") for _ in range(50_000)}) == 50_000

    def test_public_names(self, b: Builder) -> None:
        x = x_of(b, 2)
        assert public_name(x) == "x"
        set_public_name(x, "image:0")
        assert public_name(x) == "image:0" and x.name == "x"
        set_public_name(x, "x")
        assert x.metadata_props == {}


def broken(write: Callable[[ir.Model, Builder], Any]) -> list[str]:
    model, b = new_model()
    write(model, b)
    return violations(model)


class TestInvariants:
    def test_a_good_graph(self) -> None:
        assert broken(lambda m, b: b.output(b.op("Relu", x_of(b, 2)))) == []

    @pytest.mark.parametrize(
        ("write", "message"),
        [
            (lambda m, b: setattr(x_of(b, 2), "name", ""), "name '' is empty or used twice"),
            (
                lambda m, b: setattr(b.op("Relu", x_of(b, 2)), "name", "x"),
                "name 'x' is empty or used twice",
            ),
            (
                lambda m, b: m.graph.opset_imports.update({"": 20}),
                "the model has ir version 10 and opset 20",
            ),
            (lambda m, b: b.op("Unheard", x_of(b, 2)), "Unheard is not an operator of opset 21"),
            (
                lambda m, b: b.op("Unheard", x_of(b, 2), domain=EXTENSION_DOMAIN),
                "Unheard is not in the extension catalogue",
            ),
            (
                lambda m, b: b.op("Constant", value_int=1),
                "a constant is a node, not an initializer",
            ),
            (
                lambda m, b: b.op(
                    "MaxPool", x_of(b, 1, 1, 4), kernel_shape=[2], auto_pad="SAME_UPPER"
                ),
                "MaxPool has implicit padding",
            ),
            (
                lambda m, b: b.op("Relu", ir.Value(name="elsewhere", type=ir.TensorType(T.FLOAT))),
                "Relu reads elsewhere, which is not defined before it",
            ),
            (
                lambda m, b: m.graph.outputs.append(ir.Value(name="nowhere")),
                "output nowhere is not defined",
            ),
            (
                lambda m, b: b.op(
                    "Relu", b.op("Custom", x_of(b, 2), domain="foreign", name="untyped")
                ),
                "untyped has no type",
            ),
        ],
    )
    def test_each_promise(self, write: Callable[[ir.Model, Builder], Any], message: str) -> None:
        assert message in broken(write)

    def test_bodies_are_looked_at(self) -> None:
        def write(model: ir.Model, b: Builder) -> None:
            body = b.body("then")
            body.output(body.op("Unheard", x_of(b, 2)))
            b.op("If", b.const(True), then_branch=body.graph, else_branch=body.graph)

        assert "Unheard is not an operator of opset 21" in broken(write)


@pytest.fixture
def temporary() -> Any:
    """Names entered by a test leave the catalogue again."""
    catalogue()
    before = dict(CATALOGUE)
    yield
    CATALOGUE.clear()
    CATALOGUE.update(before)


@pytest.fixture
def twice(temporary: None) -> None:
    @extension
    def TestTwice(
        b: Builder, x: ir.Value, y: ir.Value | None = None, *, factor: float = 2.0, name: str = ""
    ) -> ir.Value:
        """x * factor, plus y."""
        if x.shape is None:
            raise MappingError("TestTwice needs a rank")
        scaled = b.op("Mul", x, np.full([1] * x.shape.rank(), factor, np.float32))
        return scaled if y is None else b.op("Add", scaled, y)

    @extension
    def TestFourTimes(b: Builder, x: ir.Value) -> ir.Value:
        """Twice twice, by the other operator."""
        return b.ext("TestTwice", b.ext("TestTwice", x))

    @opaque
    def TestDice(b: Builder, x: ir.Value, *, sides: int) -> Any:
        """Return the type of a random result."""
        return [(T.INT32, x.shape)]


@pytest.mark.usefixtures("twice")
class TestExtensions:
    def test_the_entry(self) -> None:
        entry = lookup("TestTwice")
        assert (
            entry.inputs == ("x", "y")
            and entry.attributes == {"factor": 2.0, "name": ""}
            and entry.doc == "x * factor, plus y."
        )
        assert not entry.opaque and not entry.variadic and lookup("TestNothing") is None

    def test_two_of_a_name(self) -> None:
        with pytest.raises(AssertionError, match="two extension operators"):
            extension(CATALOGUE["TestTwice"].body)

    def test_types_come_from_the_definition(self, b: Builder) -> None:
        assert str(b.ext("TestTwice", x_of(b, "N", 3)).shape) == "[N,3]"
        assert b.ext("TestDice", x_of(b, 4), sides=6).dtype == T.INT32

    def test_a_definition_may_refuse(self, b: Builder) -> None:
        x = ir.Value(name="x", type=ir.TensorType(T.FLOAT))
        with pytest.raises(MappingError, match="needs a rank"):
            b.ext("TestTwice", x)

    def model(self) -> tuple[ir.Model, Builder]:
        model, b = new_model()
        x, flag = x_of(b, 2), x_of(b, dtype=T.BOOL, name="flag")
        y = b.ext("TestFourTimes", b.ext("TestTwice", x, x, factor=3))
        then, other = b.body("then"), b.body("other")
        then.output(then.ext("TestTwice", y, None, factor=5))
        other.output(other.op("Neg", y))
        b.output(
            b.op("If", flag, then_branch=then.graph, else_branch=other.graph),
            b.ext("TestTwice", b.op("Unsqueeze", y, [0])),
        )
        return model, b

    def run(self, model: ir.Model) -> list[Any]:
        feeds = {"x": np.array([1, 2], np.float32), "flag": np.array(True)}
        return [v.tolist() for v in Model(model, "onnx").run(feeds).values()]

    def test_runs(self) -> None:
        assert self.run(self.model()[0]) == [[80, 160], [[32, 64]]]

    def test_bound_functions_are_distinguished(self) -> None:
        """Other attributes, other ranks, other inputs: other functions, named by a letter and a
        hash; the same in bodies.
        """
        model, _ = self.model()
        bind(model)
        onnx.checker.check_model(ir.to_proto(model), full_check=True)
        overloads = {n.overload for n in all_nodes(model.graph) if n.op_type == "TestTwice"}
        assert len(overloads) == 3 and all(o[0] == "b" and len(o) == 13 for o in overloads)
        assert {k[2] for k in model.functions if k[1] == "TestTwice"} == overloads

    def test_equal_nodes_share_a_function(self, b: Builder) -> None:
        x = x_of(b, 2)
        first, second = (function_for(b.ext("TestTwice", x).producer()) for _ in range(2))
        assert first.identifier() == second.identifier()
        assert function_for(b.ext("TestTwice", x, factor=7).producer()).overload != first.overload

    def test_unbind_undoes_bind(self) -> None:
        model, _ = self.model()
        bind(model)
        unbind(model)
        assert not model.functions and all(n.overload == "" for n in all_nodes(model.graph))

    def test_foreign_functions_stay(self) -> None:
        model, _ = self.model()
        foreign = ir.Function(
            "other",
            "F",
            "",
            graph=ir.Graph([], [], nodes=[], opset_imports={"": 21}),
            attributes=[],
        )
        model.functions[foreign.identifier()] = foreign
        bind(model), unbind(model)
        assert list(model.functions) == [foreign.identifier()]

    def test_expansion(self) -> None:
        model, _ = self.model()
        before, names = self.run(model), [v.name for v in model.graph.outputs]
        expand_all(model, Names(model))
        assert not [n for n in all_nodes(model.graph) if n.domain] and violations(model) == []
        assert self.run(model) == before and [v.name for v in model.graph.outputs] == names

    def test_expansion_of_some(self) -> None:
        model, _ = self.model()
        expand_all(model, Names(model), keep=lambda n: n.op_type == "TestTwice")
        assert {n.op_type for n in all_nodes(model.graph) if n.domain} == {"TestTwice"}

    def test_expansion_of_a_loop_body(self) -> None:
        model, b = new_model()
        x = x_of(b, 2)
        body = b.body("body")
        body.input("i", T.INT64, [])
        go, carried = body.input("go", T.BOOL, []), body.input("carried", T.FLOAT, [2])
        body.output(body.op("Identity", go), body.ext("TestTwice", carried))
        b.output(b.op("Loop", 3, True, x, body=body.graph))
        assert Model(model, "onnx").run({"x": np.ones(2, np.float32)})[
            model.graph.outputs[0].name
        ].tolist() == [8, 8]
        expand_all(model, Names(model))
        assert Model(model, "onnx").run({"x": np.ones(2, np.float32)})[
            model.graph.outputs[0].name
        ].tolist() == [8, 8]

    def test_opaque_operators_do_not_run(self) -> None:
        model, b = new_model()
        b.output(b.ext("TestDice", x_of(b, 2), sides=6))
        expand_all(model, Names(model))
        assert [n.op_type for n in model.graph] == ["TestDice"]
        with pytest.raises(UnsupportedError) as refused:
            Model(model, "onnx").run({"x": np.ones(2)})
        assert refused.value.diagnostics[0].code == "X208"

    def test_twins_expand_to_transposes(self) -> None:
        model, b = new_model()
        b.output(b.op("MaxPool", x_of(b, 1, 3, 4, 4), kernel_shape=[2, 2]))
        to_nhwc(model)
        assert [n.domain for n in model.graph if n.op_type == "MaxPool"] == [CHANNELS_LAST_DOMAIN]
        expand_all(model, Names(model))
        assert [n.op_type for n in model.graph] == [
            "Transpose",
            "Transpose",
            "MaxPool",
            "Transpose",
            "Transpose",
        ]


def test_every_catalogue_entry_is_documented() -> None:
    assert [e.name for e in catalogue().values() if not e.doc] == []


class TestFixInputs:
    def test_a_symbol_means_the_same_everywhere(self) -> None:
        model, b = new_model()
        x, y = x_of(b, "N", 3, "H"), x_of(b, "N", 3, 1, name="y")
        b.output(b.op("Add", x, y))
        assert fix_inputs(model, {"x": [2, 3, 8]}) == []
        assert [str(v.shape) for v in [*model.graph.inputs, *model.graph.outputs]] == [
            "[2,3,8]",
            "[2,3,1]",
            "[2,3,8]",
        ]

    def test_shape_arithmetic_becomes_known(self) -> None:
        model, b = new_model()
        x = x_of(b, "N", 3, None)
        b.output(b.op("Reshape", x, b.op("Concat", b.op("Shape", x, end=1), [-1], axis=0)))
        fix_inputs(model, {"x": [2, 3, 5]})
        assert shape_of(model.graph.outputs[0]) == (2, 15)

    def test_by_public_name(self) -> None:
        model, b = new_model()
        x = x_of(b, "N")
        set_public_name(x, "image:0")
        b.output(b.op("Relu", x))
        fix_inputs(model, {"image:0": [3]})
        assert shape_of(model.graph.outputs[0]) == (3,)

    def test_unknown_rank(self) -> None:
        model, b = new_model()
        x = b.input("x", T.FLOAT, None)
        b.output(b.op("Relu", x))
        fix_inputs(model, {"x": [3, 4]})
        assert shape_of(model.graph.outputs[0]) == (3, 4)

    def test_inside_bodies(self) -> None:
        model, b = new_model()
        x, flag = x_of(b, "N", 3), x_of(b, dtype=T.BOOL, name="flag")
        then, other = b.body("then"), b.body("other")
        then.output(then.op("Relu", x)), other.output(other.op("Neg", x))
        b.output(b.op("If", flag, then_branch=then.graph, else_branch=other.graph))
        fix_inputs(model, {"x": [2, 3]})
        assert [shape_of(g.outputs[0]) for g in all_graphs(model.graph)] == [(2, 3)] * 3

    @pytest.mark.parametrize(("shapes", "message"), [
        ({"x": [2, 3]}, "input 'x' has 3 dimensions, got 2"),
        ({"x": [2, 4, 8]}, "input 'x' has a fixed dimension of 3, got 4"),
        ({"x": [2, 3, 8], "y": [3, 3, 1]}, "the network does not accept these shapes:"),
        ({"other": [1]}, "--inputs names inputs that the model does not have: other"),
        ({"x": [2, 3, 8], "z": [7]}, "the network does not accept these shapes:"),
    ])  # fmt: skip
    def test_contradictions(self, shapes: dict[str, list[int]], message: str) -> None:
        model, b = new_model()
        x, y, z = x_of(b, "N", 3, "H"), x_of(b, "N", 3, 1, name="y"), x_of(b, "K", name="z")
        b.output(b.op("Add", b.op("Add", x, y), z))
        with pytest.raises(UsageError, match=message) as refused:
            fix_inputs(model, shapes)
        assert refused.value.diagnostics[0].code == "U501"

    def test_types_unknown_to_inference_stay_declared(self) -> None:
        model, b = new_model()
        y = b.op("Custom", x_of(b, "N", 3), domain="foreign")
        y.type, y.shape = ir.TensorType(T.FLOAT), ir.Shape(["N", 7])
        b.output(b.op("Relu", y))
        fix_inputs(model, {"x": [2, 3]})
        assert shape_of(y) == shape_of(model.graph.outputs[0]) == (2, 7)


class TestLoops:
    def loop(
        self, write: Callable[[Builder, ir.Value], ir.Value], *shape: Any, trips: int = 3
    ) -> ir.Model:
        """A loop whose body declares no types of its carried values."""
        model, b = new_model()
        x = x_of(b, *shape)
        body = b.body("body")
        body.input("i", T.INT64, [])
        go = body.input("go", T.BOOL, [])
        carried = ir.Value(name="carried")
        body.graph.inputs.append(carried)
        carried.type = x.type
        after = write(body, carried)
        body.output(body.op("Identity", go), after)
        b.output(b.op("Loop", trips, True, x, body=body.graph))
        infer_all(model)
        return model

    def test_carried_values_of_fixed_shape_have_it_in_the_body(self) -> None:
        model = self.loop(lambda b, v: b.op("Relu", b.op("Neg", v)), 2, 3)
        assert [
            shape_of(v)
            for v in (model.graph.outputs[0], next(all_graphs(model.graph)).node(0).outputs[0])
        ] == [(2, 3)] * 2
        inner = list(all_graphs(model.graph))[1]
        assert shape_of(inner.inputs[2]) == (2, 3)

    def test_carried_values_that_grow_have_no_shape_in_the_body(self) -> None:
        model = self.loop(lambda b, v: b.op("Concat", v, v, axis=0), 2, 3)
        assert [d if isinstance(d, int) else None for d in model.graph.outputs[0].shape] == [
            None,
            3,
        ]
        assert Model(model, "onnx").run({"x": np.ones((2, 3), np.float32)})[
            model.graph.outputs[0].name
        ].shape == (16, 3)

    def test_shapes_known_from_a_wrong_assumption_are_forgotten(self) -> None:
        model = self.loop(
            lambda b, v: b.op("Concat", v, b.op("Expand", np.float32(0), b.op("Shape", v)), axis=0),
            1,
            3,
        )
        inner = list(all_graphs(model.graph))[1]
        assert all(known(o) is None for n in inner for o in n.outputs if n.op_type == "Shape")
        assert Model(model, "onnx").run({"x": np.ones((1, 3), np.float32)})[
            model.graph.outputs[0].name
        ].shape == (8, 3)


def test_inference_keeps_declarations_that_it_cannot_infer(b: Builder) -> None:
    y = b.op("Custom", x_of(b, 2), domain="foreign")
    infer(y.producer())
    assert y.type is None and y.shape is None


@pytest.mark.parametrize(
    "source, target",
    [
        ("float32", "int32"),
        ("float64", "int64"),
        ("float16", "uint16"),
        ("bfloat16", "int16"),
        ("float32", "uint32"),
        ("int8", "uint8"),
    ],
)
def test_bit_cast_against_numpy(source: str, target: str) -> None:
    """Both ways, on numbers of every size, subnormal ones, zeros of both signs and infinities."""
    first, second = (np.dtype(getattr(ml_dtypes, t, t)) for t in (source, target))
    width = first.itemsize * 8
    bits = (
        np.random.default_rng(0).integers(0, 2**63, 500, dtype=np.uint64).astype(f"u{width // 8}")
    )
    bits = np.concatenate(
        [
            bits,
            bits >> (width // 2),
            bits & ((1 << (width - 6)) - 1),
            np.array([0, 1, 1 << (width - 1)], bits.dtype),
        ]
    )
    numbers = np.concatenate(
        [
            bits.view(first),
            np.array([np.inf, -np.inf, 1, -2], first) if width > 8 else np.zeros(0, first),
        ]
    )
    with np.errstate(invalid="ignore"):
        numbers = numbers[numbers == numbers]
    for data, to in ((numbers, second), (numbers.view(second), first)):
        model, b = new_model()
        x = b.input("x", ir.DataType.from_numpy(data.dtype), [len(data)])
        b.output(b.ext("BitCast", x, to=int(ir.DataType.from_numpy(to))))
        (found,) = Model(model, "onnx").run({"x": data}).values()
        np.testing.assert_array_equal(
            np.asarray(found).view(f"u{width // 8}"), data.view(f"u{width // 8}")
        )


def test_one_element_that_is_looked_up_is_a_scalar() -> None:
    _, b = new_model()
    x, places = b.input("x", ir.DataType.FLOAT, [3, 4]), b.input("i", ir.DataType.INT64, [2])
    assert shape_of(b.op("GatherND", x, places)) == ()
    assert shape_of(b.op("GatherND", x, places, batch_dims=0)) == ()


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool", "LpPool"])
def test_windows_that_begin_in_the_padding_at_the_end_are_not_counted(kind: str) -> None:
    """onnxruntime is the witness of the sizes."""
    for size, kernel, stride, begin, end in itertools.product(
        range(1, 6), (1, 2, 3), (1, 2, 3), (0, 1), (0, 1)
    ):
        if max(begin, end) >= kernel or size + begin + end < kernel:
            continue
        model, b = new_model()
        y = b.op(
            kind,
            b.input("x", ir.DataType.FLOAT, [1, 1, size]),
            kernel_shape=[kernel],
            strides=[stride],
            pads=[begin, end],
            ceil_mode=1,
        )
        b.output(y)
        (result,) = Model(model, "test").run({"x": np.ones((1, 1, size), np.float32)}).values()
        assert shape_of(y) == result.shape
