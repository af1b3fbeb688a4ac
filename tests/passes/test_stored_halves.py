"""Weights that a file stores in half precision, and equal ones."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from converter.graph.build import new_model
from converter.graph.infer import set_type
from converter.passes.share_weights import share_weights
from converter.passes.stored_halves import note_halves, store_halves, stored_half

D = ir.DataType
EXACT = np.arange(2048, dtype=np.float32).reshape(32, 64)


def network(*weights: np.ndarray) -> ir.Model:
    model, b = new_model("net")
    x = ir.Value(name="x")
    set_type(x, D.FLOAT, [32, 64])
    b.graph.inputs.append(x)
    for i, weight in enumerate(weights):
        x = b.Add(x, b.const(weight, f"w{i}"))
    b.graph.outputs.append(x)
    return model


def stored(model: ir.Model) -> list[ir.DataType]:
    return [v.const_value.dtype for v in model.graph.initializers.values()]


@pytest.mark.parametrize(("name", "dtype"), [("f16", D.FLOAT16), ("bf16", D.BFLOAT16)])
def test_the_note_says_the_type(name: str, dtype: ir.DataType) -> None:
    model = network(EXACT)
    note_halves(model, dtype)
    assert model.metadata_props["netconv.weights"] == name and stored_half(model) == dtype


def test_only_exact_weights_are_stored_as_halves() -> None:
    inexact, large = EXACT + np.float32(1e-4), EXACT * 1000
    model = network(EXACT, inexact, large, EXACT[:1, :1])
    assert stored_half(model) is None
    store_halves(model, D.FLOAT16)
    assert sorted(stored(model)) == sorted([D.FLOAT16, *[D.FLOAT] * 3])
    assert [n.op_type for n in model.graph].count("Cast") == 1
    cast = next(n for n in model.graph if n.op_type == "Cast")
    assert np.array_equal(cast.inputs[0].const_value.numpy().astype(np.float32), EXACT)
    assert stored_half(model) == D.FLOAT16


def test_no_type_changes_nothing() -> None:
    model = network(EXACT)
    store_halves(model, None)
    assert stored(model) == [D.FLOAT]


def test_equal_weights_become_one() -> None:
    other = EXACT.copy()
    other[3, 4] = -1
    model = network(EXACT, EXACT.copy(), other, EXACT[:, :1].copy(), EXACT[:, :1].copy())
    share_weights(model)
    assert sorted(model.graph.initializers) == ["w0", "w2", "w3", "w4"]  # small ones stay
    assert [n.inputs[1].name for n in model.graph] == ["w0", "w0", "w2", "w3", "w4"]
