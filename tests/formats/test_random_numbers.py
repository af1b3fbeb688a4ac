"""Random numbers keep their shape, type and distribution, in the engines of the written files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.graph.build import new_model

SHAPE = [300, 40]
LIKE = ir.DataType.FLOAT16
CASES: dict[str, tuple[str, dict[str, Any], float, float]] = {  # and mean and deviation
    "uniform": ("RandomUniform", {"shape": SHAPE, "low": -2.0, "high": 4.0}, 1.0, 3**0.5),
    "normal": ("RandomNormal", {"shape": SHAPE, "mean": 3.0, "scale": 0.5}, 3.0, 0.5),
    "uniform, of another type": (
        "RandomUniform",
        {"shape": SHAPE, "dtype": int(ir.DataType.DOUBLE), "seed": 7.0},
        0.5,
        12**-0.5,
    ),
    "uniform, like": ("RandomUniformLike", {}, 0.5, 12**-0.5),
    "normal, like": ("RandomNormalLike", {"dtype": 1, "seed": 2.0}, 0.0, 1.0),
}


def network(kind: str, attributes: dict[str, Any]) -> Model:
    m, b = new_model()
    x = b.input("x", LIKE, SHAPE)
    y = b.op(kind, *([x] if kind.endswith("Like") else []), **attributes)
    b.output(b.op("Identity", y, name="y"), b.op("Neg", x, name="z"))
    return Model(m, "onnx")


@pytest.mark.parametrize("target", ["openvino", "mlprogram", "coreml"])
@pytest.mark.parametrize("name", CASES)
def test_the_distribution(name: str, target: str, tmp_path: Path) -> None:
    kind, attributes, mean, deviation = CASES[name]
    path = tmp_path / f"m{ {'openvino': '.xml', 'coreml': '.mlmodel'}.get(target, '.mlpackage') }"
    converter.save(network(kind, attributes), path, target)
    if target == "coreml":  # whose random layers are carried, not computed
        return
    engine = "openvino" if target == "openvino" else "onnxruntime"
    feeds = {"x": np.zeros(SHAPE, np.float16)}
    y = np.asarray(converter.load(path).run(feeds, engine=engine)["y"], np.float64)
    assert y.shape == tuple(SHAPE)
    np.testing.assert_allclose(y.mean(), mean, atol=0.1)
    np.testing.assert_allclose(y.std(), deviation, rtol=0.05)
    assert len(np.unique(y)) > y.size // 20
