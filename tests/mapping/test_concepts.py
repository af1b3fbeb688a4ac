"""Answers of concepts for all formats: defaults, other spellings, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from converter.errors import MappingError
from converter.graph.build import Builder, new_model
from converter.mapping.concepts.pads import Pads
from converter.mapping.concepts.resize import Resize, Rule, Sampling
from converter.mapping.concepts.transposed_window import TransposedWindow
from converter.mapping.concepts.window import Geometry, Window
from converter.mapping.context import LiftContext, LowerContext
from converter.mapping.fields import Field
from converter.mapping.lifting import FormatMapping
from converter.mapping.lowering import Lowering
from converter.mapping.node import Layer, Node
from converter.mapping.rules import Rule as Row
from converter.mapping.rules import Table

F = ir.DataType.FLOAT


class Spelled:
    """A spelling that keeps its arguments, with the limits of a format."""

    def __init__(self, given: Any = None, **limits: Any) -> None:
        self.given = given
        for name, limit in limits.items():
            setattr(self, name, limit)

    def read(self, r: Any) -> Any:
        return self.given

    def write(self, w: Any, *said: Any) -> None:
        self.said = said


class AnyWindow(Spelled, Window): ...


class AnyTransposedWindow(Spelled, TransposedWindow): ...


class AnyResize(Spelled, Resize): ...


class AnyPads(Spelled, Pads):
    def write_computed(self, w: Any, amounts: ir.Value) -> None:
        self.said = (amounts,)


def lift(field: Field, shape: list[Any]) -> dict[str, Any]:
    """The attributes of the operator that a layer with data of this shape becomes."""
    b = new_model()[1]
    r = LiftContext(Layer("L", "l", {}, {}, [b.input("x", F, shape)]), b)
    r.begin(Row("N", "L"))
    field.lift(r)
    return r.node.attrs


def lower(field: Any, op: str, shape: list[Any], *operands: Any, **attrs: Any) -> Any:
    """The context of a field that writes an operator, whose shapes are inferred."""
    b: Builder = new_model()[1]
    x = b.input("x", F, shape)
    out = b.op(op, x, *operands, **attrs)
    node = out.producer()
    assert node is not None
    view = Node(op, "", {**attrs}, list(node.inputs), [out])
    w = LowerContext(view, Lowering(FormatMapping(Table([]))))
    w.begin(Row(op, "LAYER"))
    field.lower(w)
    return field.said[0] if len(field.said) == 1 else field.said


def weights(*shape: int) -> Any:
    return np.ones(shape, np.float32)


POOL = {"kernel_shape": [3, 3], "strides": [2, 2]}


class Pool(AnyWindow):
    def kernel(self, node: Node) -> list[int]:
        return list(node.attrs["kernel_shape"])


# windows -----------------------------------------------------------------------------------------


def test_omitted_attributes_have_the_defaults_of_onnx() -> None:
    found = lower(AnyWindow(), "Conv", [1, 2, 8, 8], weights(4, 2, 3, 2))
    assert found.steps == ([3, 2], [1, 1], [1, 1])
    assert (found.pads, found.scheme, found.ceil) == ([0, 0, 0, 0], "", False)


@pytest.mark.parametrize(("scheme", "pads"), [("SAME_UPPER", [0, 1]), ("SAME_LOWER", [1, 0])])
def test_a_scheme_becomes_pads_where_sizes_are_known(scheme: str, pads: list[int]) -> None:
    same = Geometry([3], [2], [], scheme=scheme)
    assert lift(AnyWindow(same), [1, 2, 8])["pads"] == pads
    found = lower(AnyWindow(), "Conv", [1, 2, 8], weights(4, 2, 3), strides=[2], auto_pad=scheme)
    assert (found.pads, found.scheme) == (pads, "")


def test_a_scheme_stays_where_sizes_are_not_known() -> None:
    same = Geometry([3], [2], [], scheme="SAME_LOWER", ceil=True)
    expected = {"kernel_shape": [3], "strides": [2], "auto_pad": "SAME_LOWER"}
    assert lift(AnyWindow(same), [1, 2, "n"]) == expected
    assert lift(AnyWindow(Geometry([3], scheme="SAME_LOWER")), [1, 2, "n"])["pads"] == [1, 1]


def test_a_scheme_of_unknown_sizes_is_written_by_formats_that_name_it() -> None:
    operator: Any = ("Conv", [1, 2, "n"], weights(4, 2, 3))
    same: Any = {"strides": [2], "auto_pad": "SAME_LOWER"}
    assert lower(AnyWindow(schemes=("SAME_LOWER",)), *operator, **same).scheme == "SAME_LOWER"
    for field in (AnyWindow(), AnyWindow(schemes=("SAME_UPPER",))):
        with pytest.raises(MappingError, match="static sizes") as info:
            lower(field, *operator, **same)
        assert info.value.code == "X203" and "--inputs" in str(info.value.help)


@pytest.mark.parametrize("kernel", [[0], [1 << 31]])
def test_a_window_that_cannot_be_is_refused(kernel: list[int]) -> None:
    with pytest.raises(MappingError, match="invalid value") as info:
        lift(AnyWindow(Geometry(kernel, [1], [1])), [1, 2, 8])
    assert info.value.code == "R110"


def test_a_window_that_no_file_can_have_is_not_written() -> None:
    class Whole(AnyWindow):
        def kernel(self, node: Node) -> list[int]:
            return [1 << 31]

    with pytest.raises(MappingError, match="kernel has the invalid value 2147483648"):
        lower(Whole(), "GlobalMaxPool", [1, 2, 1 << 31])


def test_a_window_over_other_axes_than_the_data_is_refused() -> None:
    with pytest.raises(MappingError, match="2 axes does not fit data of 3"):
        lift(AnyWindow(Geometry([3, 3])), [1, 2, 8])


def test_refusals_of_limits_name_the_supported_values() -> None:
    operator: Any = ("Conv", [1, 2, 8, 8], weights(4, 2, 3, 3))
    cases: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({"axes": (1,)}, {}, "LAYER supports 1 spatial axes, got 2"),
        ({"axes": (3, 4)}, {}, "LAYER supports 3 to 4 spatial axes, got 2"),
        ({"dilated": False}, {"dilations": [2, 1]}, r"does not support dilations, got \[2, 1\]"),
        ({"padding": "none"}, {"pads": [0, 1, 0, 0]}, "does not support padding, got"),
        ({"padding": "symmetric"}, {"pads": [0, 1, 0, 0]}, "needs equal padding at both ends, got"),
    ]
    for limits, attrs, message in cases:
        with pytest.raises(MappingError, match=message):
            lower(AnyWindow(**limits), *operator, **attrs)
    pads = [1, 0, 1, 0]
    assert lower(AnyWindow(padding="symmetric"), *operator, pads=pads).pads == pads


def test_rounding_up_is_more_padding_at_the_end_unless_the_format_rounds() -> None:
    operator: Any = ("MaxPool", [1, 2, 8, 8])
    found = lower(Pool(), *operator, **POOL, ceil_mode=1, pads=[1, 0, 0, 0])
    assert (found.pads, found.ceil) == ([1, 0, 0, 1], False)
    found = lower(Pool(rounds=True), *operator, **POOL, ceil_mode=1, pads=[1, 0, 0, 0])
    assert (found.pads, found.ceil) == ([1, 0, 0, 0], True)


def test_padding_that_counts_is_part_of_the_data_where_that_of_layers_never_counts() -> None:
    operator: Any = ("AveragePool", [1, 2, 8, 8])
    attrs = {**POOL, "ceil_mode": 1, "pads": [1, 0, 0, 0], "count_include_pad": 1}
    found = lower(Pool(counts=False), *operator, **attrs)
    assert (found.counted, found.pads) == ([1, 0, 0, 0], [0, 0, 0, 1])
    with pytest.raises(MappingError, match="must not count"):
        lower(Pool(), *operator, **attrs)
    assert lower(Pool(), *operator, **{**attrs, "ceil_mode": 0}).pads == [1, 0, 0, 0]


def test_a_scheme_whose_padding_counts_is_not_named_where_that_of_layers_never_counts() -> None:
    attrs = {**POOL, "auto_pad": "SAME_UPPER", "count_include_pad": 1}
    with pytest.raises(MappingError, match="static sizes"):
        lower(Pool(counts=False, schemes=("SAME_UPPER",)), "AveragePool", [1, 2, "h", 8], **attrs)


# transposed windows ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "pads", "extra"),
    [
        (Geometry([3], [2], [], scheme="SAME_UPPER"), [0, 1], None),
        (Geometry([3], [2], [], scheme="SAME_LOWER"), [1, 0], None),
        (Geometry([1], [2], [], scheme="SAME_UPPER"), [0, 0], [1]),  # stride * size elements
        (Geometry([3], [2], [], [1, 0], target=[7]), [1, 1], None),  # 9 without padding
        (Geometry([3], [2], [], [1, 0], target=[9]), [1, 0], [1]),
        (Geometry([3], [2], [], [1, 0], extra=[1], target=[9]), [1, 0], [1]),
        (Geometry([3], [2], [], [1, 1], extra=[1]), [1, 1], [1]),
    ],
)
def test_a_transposed_window_ends_where_its_scheme_or_target_says(
    given: Geometry, pads: list[int], extra: list[int] | None
) -> None:
    found = lift(AnyTransposedWindow(given), [1, 2, 4])
    assert (found["pads"], found.get("output_padding")) == (pads, extra)


def test_output_padding_is_less_padding_where_layers_have_none() -> None:
    operator: Any = ("ConvTranspose", [1, 2, 4], weights(2, 3, 3))
    attrs: Any = {"strides": [2], "pads": [1, 1], "output_padding": [1]}
    assert lower(AnyTransposedWindow(), *operator, **attrs).pads == [1, 0]
    found = lower(AnyTransposedWindow(extends=True), *operator, **attrs)
    assert (found.pads, found.extra) == ([1, 1], [1])
    attrs["pads"] = [1, 0]
    with pytest.raises(MappingError, match="output_padding must be 0 for"):
        lower(AnyTransposedWindow(), *operator, **attrs)
    assert lower(AnyTransposedWindow(beyond=True), *operator, **attrs).pads == [1, -1]


@pytest.mark.parametrize(("scheme", "pads"), [("NOTSET", [1, 0]), ("SAME_UPPER", [0, 1])])
def test_an_output_shape_is_pads(scheme: str, pads: list[int]) -> None:
    """The formula of ONNX's ConvTranspose: the larger half is cut off at the begin unless the
    scheme is SAME_UPPER.
    """
    attrs: Any = {"strides": [2], "output_shape": [8], "auto_pad": scheme}
    weights_ = weights(2, 3, 3)
    found = lower(AnyTransposedWindow(), "ConvTranspose", [1, 2, 4], weights_, **attrs)
    assert found.pads == pads
    with pytest.raises(MappingError, match="needs static sizes of the input"):
        lower(AnyTransposedWindow(), "ConvTranspose", [1, 2, "n"], weights_, **attrs)


# resizing ----------------------------------------------------------------------------------------

HALF = Rule("nearest", "half_pixel", "round_prefer_ceil")
FLOOR = Rule("nearest", "asymmetric", "floor")
LINEAR = tuple(Rule("linear", c) for c in ("asymmetric", "align_corners", "half_pixel"))


def resized(
    rules: tuple[Rule, ...], size: list[Any], result: list[int], **attrs: Any
) -> tuple[Sampling, Rule]:
    found: tuple[Sampling, Rule] = lower(
        AnyResize(rules=rules),
        *("Resize", [1, 2, *size], None, None, np.array([1, 2, *result])),
        **{"nearest_mode": "round_prefer_floor", **attrs},
    )
    return found


def test_the_first_rule_that_reads_the_same_elements_is_written() -> None:
    nearest: Any = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
    # by a factor of two both pick each element twice
    _, rule = resized((HALF, FLOOR), [4, 4], [8, 8], **nearest, nearest_mode="floor")
    assert rule is HALF
    _, rule = resized((HALF, FLOOR), [4, 4], [6, 6], **nearest, nearest_mode="floor")
    assert rule is FLOOR
    with pytest.raises(MappingError, match="is not supported by this layer"):
        resized((HALF,), [4, 4], [6, 6], **nearest, nearest_mode="floor")


def test_a_coordinate_that_is_whole_but_for_an_error_of_rounding_is_whole() -> None:
    """9 / (18 / 14) is 7, in double precision a little less; engines compute 7."""
    nearest: Any = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
    _, rule = resized((FLOOR,), [14, 14], [18, 18], **nearest, nearest_mode="floor")
    assert rule is FLOOR


@pytest.mark.parametrize(
    ("rule", "result", "expected"),
    [
        ("pytorch_half_pixel", 8, "half_pixel"),
        ("pytorch_half_pixel", 1, "asymmetric"),  # all read element 0
        ("half_pixel_symmetric", 8, "half_pixel"),
        ("align_corners", 8, "align_corners"),
    ],
)
def test_rules_of_other_names_may_read_the_same(rule: str, result: int, expected: str) -> None:
    how: Any = {"mode": "linear", "coordinate_transformation_mode": rule}
    _, found = resized(LINEAR, [4, 4], [result, result], **how)
    assert found.coordinates == expected


def test_rounding_is_of_the_nearest_alone() -> None:
    for rule, more in ((LINEAR[2], {}), (HALF, {"nearest_mode": "round_prefer_ceil"})):
        sizes = [1, 2, 8, 8]
        expected = {"mode": rule.mode, "coordinate_transformation_mode": "half_pixel", **more}
        assert lift(AnyResize((sizes, rule)), [1, 2, 4, 4]) == expected


def test_antialiasing_matters_only_where_an_axis_shrinks() -> None:
    how: Any = {"mode": "linear", "antialias": 1, "coordinate_transformation_mode": "half_pixel"}
    _, found = resized(LINEAR, [4, 4], [8, 4], **how)
    assert found.coordinates == "half_pixel"
    with pytest.raises(MappingError, match="antialias"):
        resized(LINEAR, [4, 4], [8, 3], **how)


def test_other_axes_than_height_and_width_are_refused() -> None:
    with pytest.raises(MappingError, match="height and width"):
        lower(
            AnyResize(rules=LINEAR),
            *("Resize", [1, 2, 4, 4], None, None, np.array([1, 4, 4, 4])),
            mode="linear",
            coordinate_transformation_mode="half_pixel",
            nearest_mode="floor",
        )


def test_sizes_that_are_not_known_are_refused_with_a_way_out() -> None:
    with pytest.raises(MappingError, match="must be static") as info:
        lower(
            AnyResize(rules=LINEAR),
            *("Resize", [1, "c", 4, 4], None, None, np.array([1, 4, 4, 4])),
            mode="linear",
            coordinate_transformation_mode="half_pixel",
            nearest_mode="floor",
        )
    assert info.value.code == "X203" and "--inputs" in str(info.value.help)


# the amounts of a Pad ----------------------------------------------------------------------------


def padded(field: AnyPads, amounts: Any, axes: Any = None, mode: str = "constant") -> Any:
    more = [] if axes is None else [None, np.array(axes)]
    return lower(field, "Pad", [2, 3, 4], amounts, *more, mode=mode)


def test_amounts_are_those_of_all_axes() -> None:
    assert padded(AnyPads(), np.array([1, 2, 3, 4]), [-1, 0]) == ([2, 0, 1], [4, 0, 3])
    assert padded(AnyPads(), np.array([1, 0, 0, 0, 0, 2])) == ([1, 0, 0], [0, 0, 2])


def test_negative_amounts_are_written_in_the_modes_that_have_them() -> None:
    removed = np.array([-1, 0, 0, 0, 0, 0])
    assert padded(AnyPads(negative=("constant",)), removed)[0] == [-1, 0, 0]
    for field, mode in ((AnyPads(), "constant"), (AnyPads(negative=("constant",)), "edge")):
        with pytest.raises(
            MappingError, match=f"negative padding .* is not supported with mode='{mode}'"
        ):
            padded(field, removed, mode=mode)


def test_other_modes_may_know_the_last_axes_only() -> None:
    amounts = np.array([1, 0, 0, 0, 0, 0])
    assert padded(AnyPads(last=2), amounts) == ([1, 0, 0], [0, 0, 0])
    with pytest.raises(MappingError, match="only the last 2 axes can be padded with mode='edge'"):
        padded(AnyPads(last=2), amounts, mode="edge")


def test_computed_amounts_are_written_by_formats_that_take_them() -> None:
    b = new_model()[1]
    amounts = b.input("amounts", ir.DataType.INT64, [6])
    assert padded(AnyPads(computed=True), amounts) is amounts
    for field, axes in ((AnyPads(), None), (AnyPads(computed=True), [1, 0, 2])):
        with pytest.raises(MappingError, match="must be known at conversion time"):
            padded(field, amounts, axes)
