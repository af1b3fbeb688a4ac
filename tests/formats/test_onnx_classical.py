"""ai.onnx.ml: read, and written again, against onnxruntime's kernels; to other formats where
standard operators say the same.
"""

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
    "n_targets": 1, "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [1, 0, 0], "nodes_values": [0.1, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0], "target_treeids": [0, 0], "target_nodeids": [1, 2],
    "target_ids": [0, 0], "target_weights": [1.5, -2.0],
    "nodes_missing_value_tracks_true": [0, 0, 0], "nodes_hitrates": [1.0] * 3,
}  # fmt: skip
# two trees: one of three leaves, where a missing number holds, and one that is a leaf
FOREST: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0, 0, 0, 1],
    "nodes_nodeids": [0, 1, 2, 3, 4, 0],
    "nodes_featureids": [1, 3, 0, 0, 0, 0],
    "nodes_hitrates": [1.0] * 6,
    "nodes_values": [0.1, -0.2, 0.0, 0.0, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LT", "BRANCH_LT", "LEAF", "LEAF", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 2, 0, 0, 0, 0],
    "nodes_falsenodeids": [4, 3, 0, 0, 0, 0],
    "nodes_missing_value_tracks_true": [1, 0, 0, 0, 0, 0],
}
HOLES = np.where(X > 1, np.nan, X).astype(np.float32)


def forest(kind: str, ids: list[int], weights: list[float], **more: Any) -> dict[str, Any]:
    """The four leaves once, or again and again, for the targets `ids`."""
    times = len(ids) // 4
    places = {
        f"{kind}_treeids": [0, 0, 0, 1] * times,
        f"{kind}_nodeids": [2, 3, 4, 0] * times,
        f"{kind}_ids": ids,
        f"{kind}_weights": weights,
    }
    return {**FOREST, **places, **more}


def votes(ids: list[int], weights: list[float], **more: Any) -> dict[str, Any]:
    return forest("class", ids, weights, **more)


VECTORS: dict[str, Any] = {
    "coefficients": [0.5, -1.0],
    "support_vectors": NUMBERS,
    "n_supports": 2,
    "rho": [0.25],
}


def tensor(values: list[float], dtype: int = TensorProto.FLOAT) -> TensorProto:
    return helper.make_tensor("t", dtype, [len(values)], values)


def ensemble(modes: list[int], **more: Any) -> dict[str, Any]:
    """Of version 5: a tree of two decisions and three leaves, one of one decision, and one that is
    a leaf.
    """
    return {
        "nodes_featureids": [1, 3, 0, 0],
        "nodes_modes": tensor(modes, TensorProto.UINT8),
        "nodes_splits": tensor([0.1, -0.2, 0.5, 0.0]),
        "nodes_truenodeids": [1, 0, 3, 5],
        "nodes_trueleafs": [0, 1, 1, 1],
        "nodes_falsenodeids": [2, 1, 4, 5],
        "nodes_falseleafs": [1, 1, 1, 1],
        "nodes_missing_value_tracks_true": [1, 0, 0, 0],
        "tree_roots": [0, 2, 3],
        "n_targets": 1,
        "leaf_targetids": [0, 0, 0, 0, 0, 0],
        "leaf_weights": tensor([1.5, -2.0, 0.25, 3.0, -0.5, 0.125]),
        **more,
    }


def grown(trees: int, depth: int, seed: int = 0) -> dict[str, Any]:
    """Full trees with random features, thresholds and weights, for a regressor of four features."""
    rng, size = np.random.default_rng(seed), 2 ** (depth + 1) - 1
    inner = [n < size // 2 for n in range(size)] * trees
    leaves = [(t, n) for t in range(trees) for n in range(size // 2, size)]
    return {
        "nodes_treeids": [t for t in range(trees) for _ in range(size)],
        "nodes_nodeids": list(range(size)) * trees,
        "nodes_featureids": rng.integers(0, 4, trees * size).tolist(),
        "nodes_values": rng.normal(size=trees * size).astype(np.float32).tolist(),
        "nodes_modes": ["BRANCH_LEQ" if i else "LEAF" for i in inner],
        "nodes_truenodeids": [2 * n + 1 if n < size // 2 else 0 for n in range(size)] * trees,
        "nodes_falsenodeids": [2 * n + 2 if n < size // 2 else 0 for n in range(size)] * trees,
        "target_treeids": [t for t, _ in leaves],
        "target_nodeids": [n for _, n in leaves],
        "target_ids": [0] * len(leaves),
        "target_weights": rng.normal(size=len(leaves)).astype(np.float32).tolist(),
        "n_targets": 1,
    }


CASES: dict[str, tuple[np.ndarray, dict[str, Any], list[str]]] = {
    "Scaler": (X, {"offset": NUMBERS[:4], "scale": NUMBERS[4:]}, ["y"]),
    "Scaler#1": (X, {"offset": [0.5], "scale": [2.0]}, ["y"]),
    "Binarizer": (X, {"threshold": 0.25}, ["y"]),
    "OneHotEncoder": (np.array([3, 1, 7]), {"cats_int64s": [1, 3, 5]}, ["y"]),
    "Imputer": (
        np.where(X > 1, np.nan, X).astype(np.float32),
        {"imputed_value_floats": NUMBERS[:4], "replaced_value_float": float("nan")},
        ["y"],
    ),
    "LinearRegressor": (
        X,
        {"coefficients": NUMBERS, "intercepts": [0.5, -1.0], "targets": 2},
        ["y"],
    ),
    "Normalizer": (X, {"norm": "L2"}, ["y"]),
    "TreeEnsembleRegressor": (X, TREE, ["y"]),
    "TreeEnsembleRegressor#1": (
        HOLES,
        forest("target", [1, 1, 1, 0], NUMBERS[:4], n_targets=2, base_values=[0.5, -1.0]),
        ["y"],
    ),
    "TreeEnsembleRegressor#2": (
        X,
        forest("target", [0] * 4, NUMBERS[:4], n_targets=1, aggregate_function="AVERAGE"),
        ["y"],
    ),
    "TreeEnsembleRegressor#3": (
        X,
        forest(
            "target",
            [0] * 4,
            NUMBERS[:4],
            n_targets=1,
            aggregate_function="MAX",
            base_values=[0.5],
        ),
        ["y"],
    ),
    "TreeEnsembleRegressor#4": (
        X,
        {
            **TREE,
            "nodes_modes": ["BRANCH_NEQ", "LEAF", "LEAF"],
            "nodes_values": [X[1, 1], 0.0, 0.0],
        },
        ["y"],
    ),
    "TreeEnsembleRegressor#5": (X, grown(3, 4), ["y"]),
    "TreeEnsemble": (HOLES, ensemble([0, 0, 0, 0]), ["y"]),
    "TreeEnsemble#1": (X, ensemble([1, 3, 2, 4], aggregate_function=2), ["y"]),
    "TreeEnsemble#2": (
        HOLES,
        ensemble([0, 1, 0, 0], aggregate_function=0),
        ["y"],
    ),
    "TreeEnsemble#3": (
        X,
        ensemble(
            [0, 6, 0, 6],
            membership_values=tensor([X[0, 3], X[2, 3], np.nan, X[1, 0], np.nan]),
        ),
        ["y"],
    ),
    "TreeEnsemble#4": (
        X,
        ensemble([0, 3, 2, 0], leaf_targetids=[0, 1, 1, 0, 0, 1], n_targets=2),
        ["y"],
    ),
    "TreeEnsemble#5": (
        HOLES.astype(np.float64),
        ensemble(
            [0, 1, 2, 3],
            nodes_splits=tensor([0.1, X[0, 3], 0.5, 0.3], TensorProto.DOUBLE),
            leaf_weights=tensor([1.5, -2.0, 0.25, 3.0, -0.5, 0.125], TensorProto.DOUBLE),
        ),
        ["y"],
    ),
    "TreeEnsembleClassifier": (
        HOLES,
        votes(
            [0] * 4 + [1] * 4 + [2] * 4,
            [*NUMBERS, 0.5, 8.0, 9.0, 2.0],
            classlabels_int64s=[3, 5, 9],
            post_transform="SOFTMAX",
        ),
        ["label", "y"],
    ),
    "TreeEnsembleClassifier#1": (
        X,
        votes([0] * 4, [0.25, 0.0, 0.5, 0.25], classlabels_int64s=[0, 1]),
        ["label", "y"],
    ),
    "TreeEnsembleClassifier#2": (
        X,
        votes(
            [0] * 4, [-1.0, 1.0, 0.5, 0.25], classlabels_int64s=[4, 2], post_transform="LOGISTIC"
        ),
        ["label", "y"],
    ),
    "TreeEnsembleClassifier#3": (
        X,
        votes(
            [0] * 4 + [1] * 4,
            [0.25, 0.5, -0.5, 0.25, 0.5, -1.0, 0.5, 0.25],
            classlabels_int64s=[0, 1],
            post_transform="SOFTMAX",
        ),
        ["label", "y"],
    ),
    "TreeEnsembleClassifier#4": (
        X,
        votes(
            [0] * 4 + [1] * 4 + [2] * 4,
            [0.0, 0.5, 1.0, 0.0, 0.5, -1.0, 0.5, 0.0, 1.0, 1.0, 2.0, 0.5],
            classlabels_int64s=[4, 2, 1],
            post_transform="SOFTMAX_ZERO",
        ),
        ["label", "y"],
    ),
    "TreeEnsembleRegressor#6": (
        X,
        forest(
            "target",
            [0] * 4 + [1] * 4,
            [0.25, 0.125, 0.0625, 0.5, 0.0625, 0.125, 0.25, 0.0625],
            n_targets=2,
            post_transform="PROBIT",
        ),
        ["y"],
    ),
    **{
        f"SVMClassifier#{kind}": (
            X,
            {
                "classlabels_ints": [3, 5, 8],
                "coefficients": [0.5, -0.7, 0.2, 0.4, 0.1, -0.9],
                "kernel_type": kind,
                "kernel_params": [0.05, 0.1, 2.0],
                "rho": [0.3, -0.1, 0.05],
                "support_vectors": [*NUMBERS, 0.5, -0.5, 0.25, 0.0],
                "vectors_per_class": [1, 1, 1],
            },
            ["label", "y"],
        )
        for kind in ("RBF", "POLY")
    },
    **{
        f"SVMClassifier#probabilities{classes}": (
            X,
            {
                "classlabels_ints": [3, 5, 8][:classes],
                "coefficients": [0.5, -0.7, 0.2, 0.4, 0.1, -0.9][: classes * (classes - 1)],
                "kernel_type": "LINEAR",
                "kernel_params": [0.0, 0.0, 3.0],
                "rho": [0.3, -0.1, 0.05][: 2 * classes - 3],
                "support_vectors": [*NUMBERS, 0.5, -0.5, 0.25, 0.0][: 4 * classes],
                "vectors_per_class": [1] * classes,
                "prob_a": [-1.5, -0.25, -0.75][: 2 * classes - 3],
                "prob_b": [0.125, -0.5, 0.25][: 2 * classes - 3],
            },
            ["label", "y"],
        )
        for classes in (2, 3)
    },
    "SVMClassifier": (
        X,
        {
            "classlabels_ints": [3, 5],
            "coefficients": [0.5, -0.7],
            "kernel_type": "SIGMOID",
            "kernel_params": [0.05, 0.1, 2.0],
            "rho": [0.3],
            "support_vectors": NUMBERS,
            "vectors_per_class": [1, 1],
            "post_transform": "LOGISTIC",
        },
        ["label", "y"],
    ),
    "Imputer#1": (
        np.array([[1, 2], [3, 4]]),
        {"imputed_value_int64s": [7, 8], "replaced_value_int64": 3},
        ["y"],
    ),
    "LinearClassifier#2": (
        X,
        {
            "coefficients": NUMBERS[:4],
            "intercepts": [0.25],
            "classlabels_ints": [7, 9],
            "post_transform": "LOGISTIC",
        },
        ["label", "y"],
    ),
    "LinearClassifier#3": (
        X,
        {"coefficients": NUMBERS[:4], "intercepts": [0.25], "classlabels_ints": [7, 9]},
        ["label", "y"],
    ),
    "Normalizer#3": (X[0], {"norm": "L2"}, ["y"]),
    "SVMRegressor": (
        X,
        {**VECTORS, "kernel_type": "RBF", "kernel_params": [0.25, 0.0, 0.0]},
        ["y"],
    ),
    "SVMRegressor#1": (
        X,
        {**VECTORS, "kernel_type": "POLY", "kernel_params": [0.1, 1.0, 3.0]},
        ["y"],
    ),
    "SVMRegressor#2": (
        X,
        {**VECTORS, "kernel_type": "SIGMOID", "kernel_params": [0.1, 0.5, 0.0], "one_class": 1},
        ["y"],
    ),
    "SVMRegressor#3": (
        X,
        {
            "coefficients": NUMBERS[:4],
            "n_supports": 0,
            "support_vectors": [0.0],
            "rho": [0.25],
            "kernel_type": "LINEAR",
            "kernel_params": [0.0, 0.0, 0.0],
        },
        ["y"],
    ),
    "Normalizer#1": (X, {"norm": "L1"}, ["y"]),
    "Normalizer#2": (np.abs(X), {"norm": "MAX"}, ["y"]),
    "LinearClassifier#1": (
        X,
        {
            "coefficients": NUMBERS,
            "intercepts": [0.0, 0.5],
            "classlabels_ints": [0, 1],
            "post_transform": "SOFTMAX",
        },
        ["label", "y"],
    ),
    "LinearClassifier": (
        X,
        {
            "coefficients": [*NUMBERS, *NUMBERS[:4]],
            "intercepts": NUMBERS[:3],
            "classlabels_ints": [4, 5, 6],
        },
        ["label", "y"],
    ),
    "LabelEncoder": (
        np.array([1, 2, 9]),
        {"keys_int64s": [1, 2], "values_floats": [0.5, 0.25], "default_float": -1.0},
        ["y"],
    ),
    "LabelEncoder#1": (
        np.array([[0.5, np.nan], [2.0, 3.0]], np.float32),
        {"keys_floats": [2.0, np.nan, 0.5, 0.5], "values_floats": [7.0, 8.0, 9.0, 10.0]},
        ["y"],
    ),
    "LabelEncoder#2": (
        np.array([4, 7, 4, 5]),
        {"keys_int64s": [5, 4], "values_int64s": [10, 20]},
        ["y"],
    ),
}
EVERYWHERE = list(CASES)


def saved(key: str, folder: Path) -> tuple[Path, dict[str, np.ndarray]]:
    data, attributes, outputs = CASES[key]
    # onnxruntime finds the key NaN from version 4 on, ONNX from version 2 on
    version = {"TreeEnsemble": 5, "LabelEncoder": 4}.get(key.split("#")[0], 3)
    node = helper.make_node(key.split("#")[0], ["x"], outputs, domain="ai.onnx.ml", **attributes)
    info = helper.make_tensor_value_info(
        "x", helper.np_dtype_to_tensor_dtype(data.dtype), data.shape
    )
    graph = helper.make_graph([node], "g", [info], [onnx.ValueInfoProto(name=o) for o in outputs])
    proto = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)],
        ir_version=9,
    )
    onnx.save(proto, folder / "in.onnx")
    return folder / "in.onnx", {"x": data}


def compared(path: Path, expected: list[Any], feeds: dict[str, np.ndarray]) -> None:
    for wanted, found in zip(expected, converter.load(path).run(feeds).values(), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("key", CASES)
def test_to_onnx_and_back(key: str, tmp_path: Path) -> None:
    path, feeds = saved(key, tmp_path)
    expected = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(
        None, feeds
    )
    for target in ("onnx", "onnx+opset=17"):
        converter.convert(path, tmp_path / "out.onnx", target=target)
        compared(tmp_path / "out.onnx", expected, feeds)
        again = onnxruntime.InferenceSession(
            tmp_path / "out.onnx", providers=["CPUExecutionProvider"]
        ).run(None, feeds)
        for wanted, found in zip(expected, again, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("key", EVERYWHERE)
@pytest.mark.sampled(4)
def test_other_targets_get_its_decomposition(key: str, tmp_path: Path) -> None:
    path, feeds = saved(key, tmp_path)
    expected = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(
        None, feeds
    )
    for target in ("ir.xml", "coreml.mlmodel", "zhouyi.txt", "table.nnapi.json"):
        if key.split("#")[0] in ("OneHotEncoder", "Imputer") and target != "ir.xml":
            # integers of 64 bits; the padding of constants that no format but that one has
            continue
        if "probabilities" in key and "nnapi" in target:
            continue  # it has no loops
        converter.convert(path, tmp_path / target)
        compared(tmp_path / target, expected, feeds)
    native = converter.load(tmp_path / "ir.xml").run(feeds, "openvino")
    for wanted, found in zip(expected, native.values(), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_forest_stays_as_small_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing grows with decisions times leaves: 20 trees of 512 leaves."""
    key = "TreeEnsembleRegressor#grown"
    monkeypatch.setitem(CASES, key, (X, grown(20, 9), ["y"]))
    path, feeds = saved(key, tmp_path)
    expected = onnxruntime.InferenceSession(path).run(None, feeds)
    converter.convert(path, tmp_path / "out.xml")
    compared(tmp_path / "out.xml", expected, feeds)
    assert (tmp_path / "out.bin").stat().st_size < 2 * path.stat().st_size


TEXTS = helper.make_node(
    "LabelEncoder",
    ["x"],
    ["y"],
    domain="ai.onnx.ml",
    classes_strings=["a", "b", "c"],
    default_int64=-7,
    default_string="none",
)


@pytest.mark.parametrize("given", [["b", "z", "c"], [2, 0, 5]], ids=["texts", "numbers"])
def test_a_label_encoder_of_the_first_version(given: list[Any], tmp_path: Path) -> None:
    """Texts become their positions in the list, or the reverse."""
    data = np.array(given, object if isinstance(given[0], str) else np.int64)
    types = [TensorProto.STRING, TensorProto.INT64]
    kinds = types if data.dtype == object else types[::-1]
    x, y = (helper.make_tensor_value_info(n, k, [3]) for n, k in zip("xy", kinds, strict=True))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    graph = helper.make_graph([TEXTS], "g", [x], [y])
    path = tmp_path / "in.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    (expected,) = onnxruntime.InferenceSession(path).run(None, {"x": data})
    converter.convert(path, tmp_path / "out.onnx")
    (again,) = onnxruntime.InferenceSession(tmp_path / "out.onnx").run(None, {"x": data})
    assert again.tolist() == expected.tolist()
    assert converter.load(path).run({"x": data})["y"].tolist() == expected.tolist()


def test_unsupported_operators_are_refused_by_name(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.STRING, [3])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, [3])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    model = helper.make_model(
        helper.make_graph([TEXTS], "g", [x], [y]), opset_imports=opsets, ir_version=9
    )
    onnx.save(model, tmp_path / "in.onnx")
    with pytest.raises(UnsupportedError, match="LabelEncoder"):
        converter.convert(tmp_path / "in.onnx", tmp_path / "out.xml")


ZIP = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2, 3])
CAST_MAP = helper.make_node("CastMap", ["x"], ["y"], domain="ai.onnx.ml")
MAP = helper.make_map_type_proto(
    TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, [])
)


def with_maps(folder: Path, node: onnx.NodeProto, output: onnx.ValueInfoProto) -> Path:
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 4])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    graph = helper.make_graph([node], "g", [info], [output])
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), folder / "in.onnx")
    return folder / "in.onnx"


@pytest.mark.parametrize("declared", [True, False])
def test_a_sequence_of_maps_is_a_tensor_with_columns(declared: bool, tmp_path: Path) -> None:
    """ONNX has the maps again, as onnxruntime gives them; other formats have the numbers."""
    output = (
        helper.make_value_info("y", helper.make_sequence_type_proto(MAP))
        if declared
        else onnx.ValueInfoProto(name="y")
    )
    path = with_maps(tmp_path, ZIP, output)
    (expected,) = onnxruntime.InferenceSession(path).run(None, {"x": X})
    converter.convert(path, tmp_path / "out.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "out.onnx"), full_check=True)
    (again,) = onnxruntime.InferenceSession(tmp_path / "out.onnx").run(None, {"x": X})
    assert again == expected
    columns = np.array([[row[k] for k in range(4)] for row in expected], np.float32)
    np.testing.assert_array_equal(converter.load(path).run({"x": X})["y"], columns)
    notes = converter.convert(path, tmp_path / "out.xml")
    assert [d.code for d in notes] == ["X207"]
    np.testing.assert_array_equal(
        converter.load(tmp_path / "out.xml").run({"x": X}, "openvino")["y"], columns
    )


def test_maps_are_refused_by_name(tmp_path: Path) -> None:
    path = with_maps(tmp_path, CAST_MAP, onnx.ValueInfoProto(name="y"))
    with pytest.raises(UnsupportedError, match="CastMap takes a map"):
        converter.load(path)
