"""Operators of ai.onnx.ml in matrix products: linear models, support vectors, tree ensembles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, Value, attrs_of
from converter.graph.infer import rank_of
from converter.passes.decompositions.activations import x_of
from converter.passes.decompositions.table import Table

DOMAIN = "ai.onnx.ml"
LARGEST = 1 << 24  # elements of the paths of all trees
_FLOAT = ir.DataType.FLOAT
_AFTER = {"NONE": "", "LOGISTIC": "Sigmoid", "SOFTMAX": "Softmax"}
_MODES = {
    "BRANCH_LEQ": "LessOrEqual",
    "BRANCH_LT": "Less",
    "BRANCH_GTE": "GreaterOrEqual",
    "BRANCH_GT": "Greater",
    "BRANCH_EQ": "Equal",
}


def _rows(node: ir.Node, b: Builder) -> Value | None:
    """The input as floats, one row for each sample."""
    x = x_of(node)
    if rank_of(x) != 2 or x.dtype not in (_FLOAT, ir.DataType.INT32, ir.DataType.INT64):
        return None
    return x if x.dtype == _FLOAT else b.Cast(x, to=_FLOAT)


def _numbers(attrs: dict[str, Any], name: str) -> np.ndarray:
    return np.array(attrs.get(name) or [], np.float32)


def _after(b: Builder, scores: Value, attrs: dict[str, Any]) -> Value:
    kind = _AFTER[attrs.get("post_transform", "NONE")]
    if kind == "Softmax":
        return b.Softmax(scores, axis=1)
    return b.operator(kind)(scores) if kind else scores


def _labels(attrs: dict[str, Any], *names: str) -> np.ndarray:
    strings, whole = (attrs.get(n) for n in names)
    return np.array(strings, object) if strings else np.array(whole or [], np.int64)


def _named(b: Builder, index: Value, labels: np.ndarray) -> Value:
    """The label of each index."""
    if labels.dtype == object:
        return b.Gather(
            ir.StringTensor(labels.tolist(), shape=ir.Shape([len(labels)]), name="labels"),
            index,
            axis=0,
        )
    return (
        index if np.array_equal(labels, np.arange(len(labels))) else b.Gather(labels, index, axis=0)
    )


def linear_classifier(node: ir.Node, b: Builder) -> list[Value] | None:
    """One row of coefficients for each label; the largest score wins."""
    x, attrs = _rows(node, b), attrs_of(node)
    labels, bias = (
        _labels(attrs, "classlabels_strings", "classlabels_ints"),
        _numbers(attrs, "intercepts"),
    )
    weights = _numbers(attrs, "coefficients")
    if (
        x is None
        or len(labels) < 2
        or weights.size % len(labels)
        or bias.size not in (0, len(labels))
        or attrs.get("post_transform", "NONE") not in _AFTER
    ):
        return None
    scores = x @ np.ascontiguousarray(weights.reshape(len(labels), -1).T)
    scores = scores + bias if bias.size else scores
    return [_named(b, b.ArgMax(scores, axis=1, keepdims=0), labels), _after(b, scores, attrs)]


def normalizer(node: ir.Node, b: Builder) -> Value | None:
    """Each row over its norm; a row whose norm is 0 stays."""
    x, kind = _rows(node, b), attrs_of(node).get("norm", "MAX")
    if x is None:
        return None
    norm = b.operator({"L1": "ReduceL1", "L2": "ReduceL2", "MAX": "ReduceMax"}[kind])(
        x, [1], keepdims=1
    )
    return x / b.Where(b.Equal(norm, b.like(norm, 0)), b.like(norm, 1), norm)


def svm_regressor(node: ir.Node, b: Builder) -> Value | None:
    """Coefficients times how near the row is to each support vector; without these, coefficients
    times the row.
    """
    x, attrs = _rows(node, b), attrs_of(node)
    weights, rho, count = (
        _numbers(attrs, "coefficients"),
        _numbers(attrs, "rho"),
        int(attrs.get("n_supports", 0)),
    )
    if x is None or attrs.get("post_transform", "NONE") != "NONE" or rho.size != 1:
        return None
    near = (
        _kernel(b, x, _numbers(attrs, "support_vectors").reshape(count, -1), attrs) if count else x
    )
    if near is None:
        return None
    y = near @ weights.reshape(-1, 1) + rho
    if not attrs.get("one_class", 0):
        return y
    return b.Where(y > 0, b.like(y, 1), b.like(y, -1))


def _kernel(b: Builder, x: Value, vectors: np.ndarray, attrs: dict[str, Any]) -> Value | None:
    kind, (gamma, constant, degree) = (
        attrs.get("kernel_type", "LINEAR"),
        (*map(float, attrs.get("kernel_params") or ()), 0.0, 0.0, 0.0)[:3],
    )
    if kind == "RBF":
        apart = b.Unsqueeze(x, [1]) - vectors[None]
        far = b.ReduceSum(apart * apart, [2], keepdims=0)
        return b.Exp(far * -gamma)
    product = x @ np.ascontiguousarray(vectors.T)
    if kind == "LINEAR":
        return product
    bent = product * gamma + constant
    return b.Tanh(bent) if kind == "SIGMOID" else bent**degree if kind == "POLY" else None


Path = list[tuple[int, bool]]


@dataclass(frozen=True)
class Forest:
    """All trees, filled up to one size: per decision a feature, a threshold and whether NaN passes;
    per leaf its path and its weights.

    `paths` [trees, decisions, leaves] is 1 where a leaf lies behind a decision that holds, -1
    behind one that does not; the number of the former is in `lengths` [trees, 1, leaves]: a leaf is
    reached when the decisions that hold, times its path, sum up to it.
    """

    mode: str
    features: np.ndarray
    thresholds: np.ndarray
    missing: np.ndarray
    paths: np.ndarray
    lengths: np.ndarray
    weights: np.ndarray


def tree_regressor(node: ir.Node, b: Builder) -> Value | None:
    attrs = attrs_of(node)
    count, kind = int(attrs.get("n_targets", 1)), attrs.get("aggregate_function", "SUM")
    found = _votes(node, b, attrs, "target", count) if kind in ("SUM", "AVERAGE") else None
    base = _numbers(attrs, "base_values")
    if (
        found is None
        or base.size not in (0, count)
        or attrs.get("post_transform", "NONE") != "NONE"
    ):
        return None
    votes, trees = found
    votes = votes * (1 / trees) if kind == "AVERAGE" else votes
    return votes + base if base.size else votes


def tree_classifier(node: ir.Node, b: Builder) -> list[Value] | None:
    """Each class has its votes; of two only the first of the numbers has any, which are those of
    the second label.

    What two classes with votes of their own mean, runtimes do not agree about.
    """
    attrs = attrs_of(node)
    labels, base = (
        _labels(attrs, "classlabels_strings", "classlabels_int64s"),
        _numbers(attrs, "base_values"),
    )
    alone = len(labels) == 2 and set(attrs.get("class_ids") or ()) == {0}
    if (
        attrs.get("post_transform", "NONE") not in _AFTER
        or len(labels) < (2 if alone else 3)
        or base.size not in ((0, 1) if alone else (0, len(labels)))
    ):
        return None
    found = _votes(node, b, attrs, "class", 1 if alone else len(labels))
    if found is None:
        return None
    votes = found[0] + base if base.size else found[0]
    if not alone:
        return [_named(b, b.ArgMax(votes, axis=1, keepdims=0), labels), _after(b, votes, attrs)]
    return _one_of_two(b, votes, attrs, labels)


def _one_of_two(
    b: Builder, votes: Value, attrs: dict[str, Any], labels: np.ndarray
) -> list[Value] | None:
    """Weights that are all positive are a probability, of which the other class has the rest."""
    positive = min(attrs["class_weights"]) >= 0
    after = attrs.get("post_transform", "NONE")
    if after == "SOFTMAX":
        return None
    second = b.Cast(votes > (0.5 if positive else 0), to=ir.DataType.INT64)
    certain = positive and after == "NONE"
    both = b.Concat(1 - votes if certain else -votes, votes, axis=1)
    scores = both if certain else _after(b, both, attrs)
    return [_named(b, b.Reshape(second, [-1]), labels), scores]


def _votes(
    node: ir.Node, b: Builder, attrs: dict[str, Any], kind: str, count: int
) -> tuple[Value, int] | None:
    """What the reached leaves of all trees give for each target, [samples, count], and the number
    of trees.
    """
    x, forest = _rows(node, b), _forest(attrs, kind, count)
    if x is None or forest is None:
        return None
    trees, decisions = forest.features.shape
    chosen = b.Gather(x, forest.features.reshape(-1), axis=1)
    holds = b.operator(_MODES[forest.mode])(chosen, forest.thresholds.reshape(-1))
    if forest.missing.any():
        holds = holds | b.IsNaN(chosen) & forest.missing.reshape(-1)
    facts = b.Cast(holds, to=_FLOAT)
    facts = b.Transpose(b.Reshape(facts, [-1, trees, decisions]), perm=[1, 0, 2])
    reached = b.Cast(b.Equal(facts @ forest.paths, forest.lengths), to=_FLOAT)
    return b.ReduceSum(reached @ forest.weights, [0], keepdims=0), trees


def _forest(attrs: dict[str, Any], kind: str, count: int) -> Forest | None:
    """None for decisions of several modes, trees that are not trees, and too many leaves."""
    names = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
    columns = [attrs.get(f"nodes_{n}") or [] for n in names]
    missing = attrs.get("nodes_missing_value_tracks_true") or [0] * len(columns[0])
    modes = {m for m in columns[3] if m != "LEAF"} or {"BRANCH_LEQ"}
    if (
        len(modes) > 1
        or not modes <= set(_MODES)
        or len({len(c) for c in (*columns, missing)}) > 1
        or not columns[0]
    ):
        return None
    trees: dict[int, dict[int, Any]] = {}
    for tree, index, *rest in zip(*columns, missing, strict=True):
        trees.setdefault(tree, {})[index] = rest
    walked = [_paths(nodes) for nodes in trees.values()]
    if any(w is None for w in walked):
        return None
    pairs = [w for w in walked if w is not None]
    decisions, leaves = max(1, *(len(d) for d, _ in pairs)), max(len(found) for _, found in pairs)
    if len(trees) * decisions * leaves > LARGEST:
        return None
    shape = (len(trees), decisions)
    forest = Forest(
        modes.pop(),
        np.zeros(shape, np.int64),
        np.zeros(shape, np.float32),
        np.zeros(shape, bool),
        np.zeros((*shape, leaves), np.float32),
        np.full((len(trees), 1, leaves), -1, np.float32),
        np.zeros((len(trees), leaves, count), np.float32),
    )
    places = {}
    for t, (tree, nodes, (order, found)) in enumerate(
        zip(trees, trees.values(), pairs, strict=True)
    ):
        _write(forest, t, nodes, order, found)
        places.update({(tree, leaf): (t, k) for k, leaf in enumerate(found)})
    rows = list(
        zip(
            *(attrs.get(f"{kind}_{n}") or [] for n in ("treeids", "nodeids", "ids", "weights")),
            strict=True,
        )
    )
    return forest if _weighted(forest, places, rows) else None


def _write(
    forest: Forest, t: int, nodes: dict[int, Any], order: dict[int, int], found: dict[int, Path]
) -> None:
    for i, index in enumerate(order):
        forest.features[t, i], forest.thresholds[t, i], forest.missing[t, i] = (
            nodes[index][0],
            nodes[index][2],
            nodes[index][5],
        )
    for k, path in enumerate(found.values()):
        forest.lengths[t, 0, k] = sum(holds for _, holds in path)
        for index, holds in path:
            forest.paths[t, order[index], k] = 1 if holds else -1


def _weighted(
    forest: Forest, places: dict[tuple[int, int], tuple[int, int]], rows: list[Any]
) -> bool:
    """Enters the weights; False where they belong to no leaf, or where a target may get none.

    A target that no reached leaf has a weight for has no score, which is not the same as 0: some
    tree has one for it in every leaf.
    """
    given = np.zeros(forest.weights.shape, bool)
    for tree, leaf, target, weight in rows:
        if (tree, leaf) not in places or not 0 <= target < forest.weights.shape[2]:
            return False
        forest.weights[(*places[tree, leaf], target)] += weight
        given[(*places[tree, leaf], target)] = True
    filled = forest.lengths.transpose(0, 2, 1) < 0
    return bool((given | filled).all(axis=1).any(axis=0).all())


def _paths(nodes: dict[int, Any]) -> tuple[dict[int, int], dict[int, Path]] | None:
    """The decisions of one tree, numbered, and the decisions on the way to each leaf with their
    outcomes; None for what is no tree.
    """
    order: dict[int, int] = {}
    found: dict[int, Path] = {}
    waiting: list[tuple[int, Path]] = [(next(iter(nodes)), [])]
    while waiting:
        index, path = waiting.pop()
        if index not in nodes or index in order or index in found:
            return None
        if nodes[index][1] == "LEAF":
            found[index] = path
            continue
        order[index] = len(order)
        waiting += [
            (nodes[index][4], [*path, (index, False)]),
            (nodes[index][3], [*path, (index, True)]),
        ]
    return order, found


TABLE: Table = {
    (DOMAIN, "LinearClassifier"): linear_classifier,
    (DOMAIN, "Normalizer"): normalizer,
    (DOMAIN, "SVMRegressor"): svm_regressor,
    (DOMAIN, "TreeEnsembleRegressor"): tree_regressor,
    (DOMAIN, "TreeEnsembleClassifier"): tree_classifier,
}
