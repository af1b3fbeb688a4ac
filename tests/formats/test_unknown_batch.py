"""Networks whose batch is known only at run time, as exporters leave it: the refusal of a target
without the number, it says for every batch.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.graph.build import Builder, new_model
from converter.graph.infer import shape_of

RNG = np.random.default_rng(3)
FLOAT = ir.DataType.FLOAT


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def batch_and(b: Builder, x: ir.Value, *rest: int) -> ir.Value:
    """[batch, *rest] as exporters compute it."""
    return b.op(
        "Concat", b.op("Unsqueeze", b.op("Gather", b.op("Shape", x), 0), [0]), list(rest), axis=0
    )


def windows(b: Builder, x: ir.Value) -> ir.Value:
    """A picture [batch, 4, 6, 5] cut into windows of 2 x 3, by way of six axes, and put together
    again.
    """
    cut = b.op(
        "Transpose", b.op("Reshape", x, batch_and(b, x, 2, 2, 2, 3, 5)), perm=[0, 1, 3, 2, 4, 5]
    )
    each = b.op("Softmax", b.op("Reshape", cut, [-1, 6, 5]), axis=1)
    back = b.op("Transpose", b.op("Reshape", each, [-1, 2, 2, 2, 3, 5]), perm=[0, 1, 3, 2, 4, 5])
    return b.op("Reshape", back, batch_and(b, x, 4, 6, 5))


def gru(b: Builder, x: ir.Value) -> Any:
    """The reset gate after the matrix, both directions, states of zeros as many as the batch
    has.
    """
    steps = b.op("Transpose", x, perm=[1, 0, 2])
    start = b.op(
        "ConstantOfShape",
        b.op("Concat", [2], b.op("Slice", b.op("Shape", x), [0], [1], [0]), [4], axis=0),
    )
    weights = floats(2, 12, 3), floats(2, 12, 4), floats(2, 24)
    return b.ops(
        "GRU",
        steps,
        *weights,
        None,
        start,
        hidden_size=4,
        direction="bidirectional",
        linear_before_reset=1,
        outputs=2,
    )


def parts(b: Builder, x: ir.Value) -> Any:
    members = b.op("SplitToSequence", x, [1, 3], axis=1)
    return tuple(b.op("Relu" if i else "Neg", b.op("SequenceAt", members, i)) for i in (0, 1))


CASES: dict[str, tuple[Callable[..., Any], list[int]]] = {
    "windows": (windows, [4, 6, 5]),
    "gru": (gru, [5, 3]),
    "parts": (parts, [4, 2]),
    "repeated along other axes": (lambda b, x: b.op("Expand", x, [1, 4, 3]), [1, 3]),
    "experts": (
        lambda b, x: b.op(
            "Einsum",
            b.op("Einsum", x, floats(4, 3, 5), equation="nd, edh -> neh"),
            floats(4, 5, 2),
            equation="neh,ehd->ned",
        ),
        [3],
    ),
    "several unknown": (
        lambda b, x: b.op("Einsum", x, b.op("Neg", x), equation="b h i d, b h j d -> b h i j"),
        [2, 4, 3],
    ),
    "nothing is written": (
        lambda b, x: b.op(
            "Neg", b.op("ScatterND", x, np.zeros((0, 1), np.int64), b.op("Slice", x, [0], [0], [0]))
        ),
        [3],
    ),
}


def made(case: str) -> Model:
    build, shape = CASES[case]
    m, b = new_model()
    found = build(b, b.input("x", FLOAT, ["batch", *shape]))
    b.output(*(found if isinstance(found, tuple) else (found,)))
    return Model(m, "test")


@pytest.mark.parametrize("case", CASES)
def test_core_ml_for_every_batch(case: str, tmp_path: Path) -> None:
    model = made(case)
    converter.save(model, tmp_path / "a.mlmodel")
    back = converter.load(tmp_path / "a.mlmodel")
    for batch in (1, 3):
        feeds = {"x": floats(batch, *CASES[case][1])}
        for (name, want), got in zip(
            model.run(feeds).items(), back.run(feeds).values(), strict=True
        ):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("case", CASES)
def test_openvino_computes_every_batch(case: str) -> None:
    pytest.importorskip("openvino", reason="OpenVINO is not installed")
    model = made(case)
    for batch in (1, 3):
        feeds = {"x": floats(batch, *CASES[case][1])}
        for (name, want), got in zip(
            model.run(feeds).items(), model.run(feeds, "openvino").values(), strict=True
        ):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=name)


def test_sizes_next_to_the_unknown_one() -> None:
    b = new_model()[1]
    x = b.input("x", FLOAT, ["batch", 12])
    grown = b.op("Reshape", x, batch_and(b, x, 3, 4))
    zeros = b.op("ConstantOfShape", batch_and(b, x, 7))
    part = b.op("SequenceAt", b.op("SplitToSequence", grown, [1, 2], axis=1), -1)
    assert [list(v.shape or ())[1:] for v in (grown, zeros, part)] == [[3, 4], [7], [2, 4]]
    assert shape_of(grown) is None
