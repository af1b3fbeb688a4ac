"""ai.onnx.ml: read, and written again, against onnxruntime's kernels; to other formats where standard operators say the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import converter
from converter.errors import UnsupportedError

X = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
NUMBERS = [float(n) for n in range(1, 9)]
TREE: dict[str, Any] = {
    "n_targets": 1, "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [1, 0, 0], "nodes_values": [0.1, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0], "target_treeids": [0, 0],
    "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [1.5, -2.0], "nodes_missing_value_tracks_true": [0, 0, 0], "nodes_hitrates": [1.0] * 3,
}  # fmt: skip
CASES: dict[str, tuple[np.ndarray, dict[str, Any], list[str]]] = {
    "Scaler": (X, {"offset": NUMBERS[:4], "scale": NUMBERS[4:]}, ["y"]),
    "Scaler#1": (X, {"offset": [0.5], "scale": [2.0]}, ["y"]),
    "Binarizer": (X, {"threshold": 0.25}, ["y"]),
    "OneHotEncoder": (np.array([3, 1, 7]), {"cats_int64s": [1, 3, 5]}, ["y"]),
    "Imputer": (np.where(X > 1, np.nan, X).astype(np.float32), {"imputed_value_floats": NUMBERS[:4], "replaced_value_float": float("nan")}, ["y"]),
    "LinearRegressor": (X, {"coefficients": NUMBERS, "intercepts": [0.5, -1.0], "targets": 2}, ["y"]),
    "Normalizer": (X, {"norm": "L2"}, ["y"]),
    "TreeEnsembleRegressor": (X, TREE, ["y"]),
    "LinearClassifier": (X, {"coefficients": [*NUMBERS, *NUMBERS[:4]], "intercepts": NUMBERS[:3], "classlabels_ints": [4, 5, 6]}, ["label", "y"]),
    "LabelEncoder": (np.array([1, 2, 9]), {"keys_int64s": [1, 2], "values_floats": [0.5, 0.25], "default_float": -1.0}, ["y"]),
}
STANDARD = ("Scaler", "Scaler#1", "Binarizer", "OneHotEncoder", "Imputer", "LinearRegressor")


def saved(key: str, folder: Path, version: int = 3) -> tuple[Path, dict[str, np.ndarray]]:
    data, attributes, outputs = CASES[key]
    node = helper.make_node(key.split("#")[0], ["x"], outputs, domain="ai.onnx.ml", **attributes)
    info = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(data.dtype), data.shape)
    graph = helper.make_graph([node], "g", [info], [onnx.ValueInfoProto(name=o) for o in outputs])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)], ir_version=9)
    onnx.save(proto, folder / "in.onnx")
    return folder / "in.onnx", {"x": data}


def compared(path: Path, expected: list[Any], feeds: dict[str, np.ndarray]) -> None:
    for wanted, found in zip(expected, converter.load(path).run(feeds).values(), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("key", CASES)
def test_to_onnx_and_back(key: str, tmp_path: Path) -> None:
    path, feeds = saved(key, tmp_path)
    expected = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)
    for target in ("onnx", "onnx+opset=17"):
        converter.convert(path, tmp_path / "out.onnx", target=target)
        compared(tmp_path / "out.onnx", expected, feeds)
        again = onnxruntime.InferenceSession(tmp_path / "out.onnx", providers=["CPUExecutionProvider"]).run(None, feeds)
        for wanted, found in zip(expected, again, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("key", STANDARD)
def test_what_is_standard_goes_everywhere(key: str, tmp_path: Path) -> None:
    path, feeds = saved(key, tmp_path)
    expected = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)
    converter.convert(path, tmp_path / "out.xml")
    compared(tmp_path / "out.xml", expected, feeds)


def test_what_is_not_is_refused_by_name(tmp_path: Path) -> None:
    path, _ = saved("TreeEnsembleRegressor", tmp_path)
    with pytest.raises(UnsupportedError, match="TreeEnsembleRegressor"):
        converter.convert(path, tmp_path / "out.xml")


def test_maps_are_refused_by_name(tmp_path: Path) -> None:
    node = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2, 3])
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 4])
    graph = helper.make_graph([node], "g", [info], [onnx.ValueInfoProto(name="y")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)], ir_version=9), tmp_path / "in.onnx")
    with pytest.raises(UnsupportedError, match="ZipMap is about maps"):
        converter.load(tmp_path / "in.onnx")
