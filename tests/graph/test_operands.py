"""Refusals of extension operators for inputs that they cannot have."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest

from converter.graph import EXTENSION_DOMAIN
from converter.graph.infer import InferenceError, infer

FLOAT = ir.DataType.FLOAT


def value(*shape: int) -> ir.Value:
    return ir.Value(name="x", type=ir.TensorType(FLOAT), shape=ir.Shape(shape))


CASES: dict[str, tuple[str, list[ir.Value | None], dict[str, Any], str]] = {
    "too many axes": (
        "ReorgYolo",
        [value(1, 4, 4, 4, 1)],
        {"stride": 2},
        "'x' of ReorgYolo must have 4 axes, got 5",
    ),
    "a scalar": (
        "SegmentSum",
        [value(), value(3)],
        {"rows": 2},
        "'x' of SegmentSum must have 1 to 64 axes, got 0",
    ),
    "one of any number": (
        "PlanesToColor",
        [value(1, 4, 4, 1), value(1, 2, 2)],
        {"pairs": 1},
        "'planes' of PlanesToColor must have 4 axes, got 3",
    ),
    "left out": ("FloorDiv", [None, value(2)], {}, "FloorDiv needs 'x'"),
    "too large": (
        "AdaptiveAveragePool",
        [value(1, 1, 4, 4)],
        {"output_size": [1 << 60, 1]},
        "a table of 4 x 1152921504606846976 entries is too large",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_inputs_that_an_operator_cannot_have(case: str) -> None:
    kind, inputs, attributes, message = CASES[case]
    attrs = [
        ir.AttrInt64s(k, v) if isinstance(v, list) else ir.AttrInt64(k, v)
        for k, v in attributes.items()
    ]
    node = ir.Node(EXTENSION_DOMAIN, kind, inputs, attrs, num_outputs=1)
    with pytest.raises(InferenceError) as caught:
        infer(node)
    assert str(caught.value) == message


def test_an_input_that_may_be_left_out() -> None:
    scores, boxes = value(1, 1, 3), value(1, 3, 4)
    node = ir.Node(
        EXTENSION_DOMAIN,
        "FixedNonMaxSuppression",
        [boxes, scores, None],
        [ir.AttrInt64("rows", 3)],
        num_outputs=1,
    )
    infer(node)
    assert node.outputs[0].shape == [3, 3]
