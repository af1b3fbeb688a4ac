"""Whole comparisons of small models."""

from __future__ import annotations

import onnx_ir as ir

from converter.graph.build import new_model
from converter.model import Model
from converter.verify import verify


def _net(alpha: float) -> Model:
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [1, 4])
    b.output(b.op("LeakyRelu", b.op("Add", x, -0.5), alpha=alpha, name="y"))
    return Model(model, "onnx")


def test_equal_models_pass() -> None:
    result = verify(_net(0.1), _net(0.1))
    assert result.passed and result.max_difference == 0


def test_a_different_constant_is_a_difference() -> None:
    result = verify(_net(0.1), _net(0.2))
    assert not result.passed and result.max_difference > 0
