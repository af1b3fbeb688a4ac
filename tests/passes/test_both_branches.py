"""Choices in a target without branches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.errors import UnsupportedError
from converter.graph.build import Builder, new_model

T = ir.DataType


def choosing(guarded: bool = False) -> Model:
    """A choice on the data, with another one in its first branch, and two results."""
    model, b = new_model()
    x = b.input("x", T.FLOAT, [2, 3])

    def branches(b: Builder, least: float, *bodies: Builder) -> tuple[ir.Value, ...]:
        condition = b.Greater(b.ReduceMax(x, keepdims=1), least)  # one element of two axes
        then, other = (body.graph for body in bodies)
        return b.If(condition, then_branch=then, else_branch=other, outputs=2)

    low, high, rest = b.body("low"), b.body("high"), b.body("rest")
    inner = [low.body("one"), low.body("two")]
    for body, factor in zip(inner, (3.0, 5.0), strict=True):
        body.output(body.Mul(x, factor), body.ReduceSum(x, keepdims=0))
    low.output(*branches(low, 2.0, *inner))
    rest.output(rest.Neg(x), rest.ReduceMin(x, keepdims=0))
    if guarded:
        place = high.Cast(high.ReduceMax(x, keepdims=0), to=T.INT64)
        high.output(high.Gather(x, high.Reshape(place, [1]), axis=0), high.ReduceMin(x, keepdims=0))
        rest = b.body("least")
        rest.output(rest.Slice(x, [0], [1], [0]), rest.ReduceMin(x, keepdims=0))
    b.output(*branches(b, 1.0, high if guarded else low, rest))
    return Model(model, "onnx")


def test_both_are_computed(tmp_path: Path) -> None:
    model = choosing()
    converter.save(model, tmp_path / "m.xml", "openvino+ir=7")
    back = converter.load(tmp_path / "m.xml")
    assert not [n for n in back.ir.graph if n.op_type == "If"]
    for scale, factor in ((0.5, -1), (1.5, 5), (3, 3)):
        x = np.float32([[0.25, -1, 0.5], [1, 0, -2]]) * np.float32(scale)
        total = x.min() if factor < 0 else x.sum()
        first, second = back.run({"x": x}).values()
        np.testing.assert_allclose(first, x * factor, rtol=1e-6)
        np.testing.assert_allclose(second, total, rtol=1e-6)
        for found, wanted in zip((first, second), model.run({"x": x}).values(), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_guarded_operators_are_not_computed(tmp_path: Path) -> None:
    """Beyond its range an engine may read anything."""
    with pytest.raises(UnsupportedError, match="If"):
        converter.save(choosing(guarded=True), tmp_path / "m.xml", "openvino+ir=7")
