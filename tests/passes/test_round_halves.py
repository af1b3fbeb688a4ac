"""Rounding to half precision in floats, against numpy's own, over all halves, the middles between
them and their neighbors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

import converter
from converter.api import Model
from converter.graph.build import new_model
from converter.passes.round_halves import round_halves
from judged import run_in

Array = np.ndarray[Any, Any]
HALVES = {ir.DataType.FLOAT16: np.float16, ir.DataType.BFLOAT16: ml_dtypes.bfloat16}


def interesting(dtype: Any) -> Array:
    halves = np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(np.float32)
    halves = np.unique(halves[np.isfinite(halves)])
    middles = ((halves[:-1].astype(np.float64) + halves[1:]) / 2).astype(np.float32)
    ends = np.array(
        [65504, 65520, 65536, 1e5, 3.4e38, np.inf, np.nan, 0.0, 1e-45, 2**-25, 2**-24], np.float32
    )
    bits = (
        np.random.default_rng(0)
        .integers(0, 1 << 32, 1 << 17, dtype=np.uint64)
        .astype(np.uint32)
        .view(np.float32)
    )
    values = np.concatenate([halves, middles, ends, -ends, bits])
    with np.errstate(all="ignore"):
        return np.concatenate(
            [
                values,
                np.nextafter(values, np.float32(np.inf)),
                np.nextafter(values, np.float32(-np.inf)),
            ]
        )


def there_and_back(to: ir.DataType, shape: list[Any]) -> Model:
    model, b = new_model("main")
    b.output(
        b.op(
            "Cast",
            b.op("Cast", b.input("x", ir.DataType.FLOAT, shape), to=int(to)),
            to=int(ir.DataType.FLOAT),
        )
    )
    return Model(model, "onnx")


def as_halves(values: Array, dtype: Any) -> Array:
    with np.errstate(all="ignore"):
        return values.astype(dtype).astype(np.float32)


@pytest.mark.parametrize("to", HALVES, ids=lambda t: t.name)
def test_every_number_is_the_nearest_half(to: ir.DataType) -> None:
    model = there_and_back(to, ["n"]).ir
    round_halves(model)
    for node in list(model.graph):  # the floats alone, without the types
        if node.op_type == "Cast":
            node.outputs[0].replace_all_uses_with(node.inputs[0], replace_graph_outputs=True)
            model.graph.remove(node)
    session = onnxruntime.InferenceSession(
        ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    values = interesting(HALVES[to])
    np.testing.assert_array_equal(
        session.run(None, {"x": values})[0], as_halves(values, HALVES[to])
    )


@pytest.mark.parametrize(
    "target", ["coreml", "openvino+ir=7", "openvino+ir=10", "openvino", "onnx"]
)
def test_no_format_drops_the_rounding(target: str, tmp_path: Path) -> None:
    values = np.array([1.0001, 1 / 3, 1e5, -3, 6e-8, 65519], np.float32)
    path = tmp_path / {"coreml": "n.mlmodel", "onnx": "n.onnx"}.get(target, "n.xml")
    converter.save(there_and_back(ir.DataType.FLOAT16, [6]), path, target)
    np.testing.assert_array_equal(
        next(iter(converter.run(path, {"x": values}).values())), as_halves(values, np.float16)
    )


@pytest.mark.judges
@pytest.mark.parametrize(
    ("target", "judge"), [("coreml", "coreml-interp"), ("openvino+ir=7", "legacy-engine")]
)
def test_outside_engines_round_alike(target: str, judge: str, tmp_path: Path) -> None:
    """Zeros keep their signs, too."""
    values = interesting(np.float16)[:200_000]
    path = tmp_path / ("n.mlmodel" if target == "coreml" else "n.xml")
    converter.save(there_and_back(ir.DataType.FLOAT16, [values.size]), path, target)
    got, want = (
        next(iter(run_in(judge, path, {"x": values}).values())).reshape(-1),
        as_halves(values, np.float16),
    )
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))
