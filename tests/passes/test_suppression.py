"""Suppression of boxes, and scatters, in operations of NNAPI's level 3, against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

import converter
from converter.errors import UnsupportedError
from converter.graph.build import Builder, new_model
from converter.graph.network import Network as Model

RANDOM = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.uniform(0, 1, shape).astype(np.float32)


def written(folder: Path, feeds: dict[str, np.ndarray], target: str, make: object) -> np.ndarray:
    """Return the result of the written file, which equals that of onnxruntime."""
    model, b = new_model("m")
    types = {k: ir.DataType.from_numpy(v.dtype) for k, v in feeds.items()}
    with b:
        y = make(b, *(b.input(k, types[k], list(v.shape)) for k, v in feeds.items()))
        b.output(y)
    converter.save(Model(model, "onnx"), folder / "m.onnx")
    session = onnxruntime.InferenceSession(folder / "m.onnx")
    (expected,) = session.run(None, feeds)
    path = folder / ("m.nnapi.json" if "nnapi" in target else "m.xml")
    converter.save(Model(model, "onnx"), path, format=target)
    (actual,) = converter.load(path).run(feeds).values()
    np.testing.assert_allclose(actual, expected, atol=1e-6)
    return np.asarray(expected)


def mask(**attributes: int) -> object:
    def make(b: Builder, boxes: ir.Value, scores: ir.Value) -> ir.Value:
        found = b.SuppressionMask(boxes, scores, np.array([0.3], np.float32), **attributes)
        return b.Cast(found, to=ir.DataType.FLOAT)

    return make


@pytest.mark.parametrize("target", ["nnapi+level=3", "openvino+ir=7"])
def test_centers_and_sizes_of_which_some_are_negative(target: str, tmp_path: Path) -> None:
    boxes = np.concatenate([floats(2, 15, 2), floats(2, 15, 2) - 0.2], 2)
    feeds = {"b": boxes, "s": floats(2, 3, 15)}
    kept = written(tmp_path, feeds, target, mask(center_point_box=1)).sum()
    assert 30 < kept < 90


def test_few_boxes_have_a_score(tmp_path: Path) -> None:
    """A table of all pairs of 2,000 boxes would be too large; twelve of them take part."""
    low, scores = floats(1, 2000, 2), np.full((1, 2, 2000), -np.inf, np.float32)
    scores[:, 0, ::180], scores[:, 1, 100:1300:100] = 0.25 + floats(12), floats(12)
    feeds = {"b": np.concatenate([low, low + 0.5], 2), "s": scores}
    assert 0 < written(tmp_path, feeds, "nnapi+level=3", mask(most=12)).sum() < 24


def test_too_many_boxes_are_refused(tmp_path: Path) -> None:
    low = floats(1, 3000, 2)
    feeds = {"b": np.concatenate([low, low + 0.5], 2), "s": floats(1, 1, 3000)}
    with pytest.raises(UnsupportedError, match="the overlaps of 3000 boxes in 1 classes"):
        written(tmp_path, feeds, "nnapi+level=3", mask())


@pytest.mark.parametrize("target", ["nnapi", "openvino+ir=7"])
def test_the_last_of_several_updates_wins_in_a_large_scatter(target: str, tmp_path: Path) -> None:
    """A table of 2,500 elements and 2,000 updates would have more than 2^22 elements."""
    index = RANDOM.integers(-2500, 2500, 2000).astype(np.int32)
    feeds = {"x": floats(2500), "i": index, "u": floats(2000)}
    written(tmp_path, feeds, target, lambda b, x, i, u: b.ScatterElements(x, i, u, axis=0))
