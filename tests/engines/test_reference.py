"""The reference evaluator: right, or refused where it is known to be wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from converter import engines
from converter.api import Model
from converter.errors import ConverterError, UnsupportedError
from converter.formats.onnx.codec import TensorFiles
from converter.formats.onnx.lift import lift
from converter.graph.build import new_model
from onnx_node_cases import (
    as_arrays,
    differences,
    expected_difference,
    expected_refusal,
    node_case,
    node_cases,
    quick_node_cases,
)

RNG = np.random.default_rng(5)


def f(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def both(
    kind: str, *arrays: Any, outputs: int = 1, **attributes: Any
) -> tuple[Model, dict[str, np.ndarray]]:
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, arrays[0].shape)
    b.output(*b.ops(kind, x, *arrays[1:], outputs=outputs, **attributes))
    return Model(model, "test"), {"x": arrays[0]}


@pytest.mark.parametrize("part", range(2))
def test_sample_of_node_cases(part: int) -> None:
    compare(sorted(quick_node_cases())[part * 15 :: 30])


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_node_cases(part: int) -> None:
    """But those that are other cases written out in more operators."""
    compare([n for n in sorted(node_cases()) if "_expanded" not in n][part::4])


def compare(names: list[str]) -> None:
    wrong, refused = {}, 0
    for name in names:
        case = node_case(name)
        if expected_refusal(name) or expected_difference(name):
            continue
        inputs, outputs = case.data_sets[0]
        try:
            model = lift(case.model, TensorFiles(Path("model")))
            found = engines.run(
                model,
                {i.name: as_arrays(x) for i, x in zip(case.model.graph.input, inputs, strict=True)},
                engine="reference",
            )
        except ConverterError as e:
            assert all(d.code == "N403" for d in e.diagnostics), e
            refused += 1
            continue
        problems = [
            d
            for y, (n, r) in zip(outputs, found.items(), strict=True)
            for d in differences(n, as_arrays(y), r, max(case.rtol, 1e-3), 1e-5)
        ]
        if problems:
            wrong[name] = problems
    assert wrong == {}
    assert refused <= max(3, len(names) // 50)


AGREE: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("MaxPool", [f(1, 2, 9, 8)], {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1]}),
    ("GridSample", [f(1, 2, 5, 6), f(1, 3, 4, 2)], {"mode": "cubic", "padding_mode": "border"}),
    ("LRN", [f(2, 5, 4, 4)], {"size": 3, "alpha": 0.1}),
    ("LpNormalization", [f(3, 4)], {"p": 1, "axis": 0}),
    ("GlobalLpPool", [f(1, 2, 4, 4)], {"p": 3}),
    ("ConvTranspose", [f(1, 4, 5, 6), f(4, 3, 3, 2)], {"strides": [2, 3], "pads": [1, 0, 1, 1]}),
    ("AveragePool", [f(1, 2, 9, 8)], {"kernel_shape": [3, 2], "strides": [2, 3], "ceil_mode": 1}),
    ("LSTM", [f(4, 2, 5), f(1, 12, 5), f(1, 12, 3)], {"hidden_size": 3}),
    (
        "LSTM",
        [f(4, 2, 5), f(1, 12, 5), f(1, 12, 3), None, np.array([4, 2], np.int32)],
        {"hidden_size": 3},
    ),
    ("GRU", [f(4, 2, 5), f(2, 9, 5), f(2, 9, 3)], {"hidden_size": 3, "direction": "bidirectional"}),
    ("GRU", [f(4, 2, 5), f(1, 9, 5), f(1, 9, 3)], {"hidden_size": 3, "clip": 0.5}),
    (
        "Resize",
        [f(1, 2, 5, 6), None, np.array([1, 1, 0.6, 0.5], np.float32)],
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    ),
]


@pytest.mark.parametrize(("kind", "arrays", "attributes"), AGREE, ids=[a[0] for a in AGREE])
def test_engines_agree(kind: str, arrays: list[Any], attributes: dict[str, Any]) -> None:
    model, feeds = both(kind, *arrays, **attributes)
    (first,) = model.run(feeds).values()
    try:
        (second,) = model.run(feeds, engine="reference").values()
    except ConverterError as e:
        assert "Unsupported value 2 for num_directions" in str(e)  # of onnx before 1.20
        pytest.skip(str(e))
    np.testing.assert_allclose(first, second, rtol=1e-3, atol=1e-4)


WRONG: list[tuple[str, list[Any], dict[str, Any], int]] = [
    ("MaxPool", [f(1, 2, 9, 8)], {"kernel_shape": [3, 2]}, 2),
]


@pytest.mark.parametrize(("kind", "arrays", "attributes", "outputs"), WRONG)
def test_operators_that_it_computes_incorrectly_are_refused(
    kind: str, arrays: list[Any], attributes: dict[str, Any], outputs: int
) -> None:
    model, feeds = both(kind, *arrays, outputs=outputs, **attributes)
    with pytest.raises(UnsupportedError, match=f"onnx.reference computes {kind} incorrectly"):
        model.run(feeds, engine="reference")


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_results_of_iterations_are_stacked(rank: int) -> None:
    model, b = new_model()
    shape = [2, 3][:rank]
    x = b.input("x", ir.DataType.FLOAT, shape)
    body = b.body("body")
    body.input("i", ir.DataType.INT64, [])
    body.input("go", ir.DataType.BOOL, [])
    state = body.input("state", ir.DataType.FLOAT, shape)
    grown = body.op("Add", state, body.like(state, 1))
    body.output(body.const(np.array(True)), grown, body.op("Mul", grown, grown))
    b.output(*b.ops("Loop", np.array(3), np.array(True), x, outputs=2, body=body.graph))
    feeds = {"x": np.ones(shape, np.float32)}
    first, second = (
        list(Model(model, "test").run(feeds, engine=e).values())
        for e in ("onnxruntime", "reference")
    )
    for a, c in zip(first, second, strict=True):
        assert a.shape == c.shape
        np.testing.assert_array_equal(a, c)
