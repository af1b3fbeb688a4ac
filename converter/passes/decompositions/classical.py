"""Operators of ai.onnx.ml: linear models and support vector machines as matrix products, tree
ensembles as lookups and comparisons. Counts of n-grams as comparisons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from operator import add, or_
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, Value, attributes
from converter.graph.infer import rank_of
from converter.graph.loops import while_loop
from converter.graph.value import BOOL, FLOAT, INT32, INT64, array_type, known_sizes, with_operators
from converter.passes.decompositions.activations import x_of
from converter.passes.decompositions.table import Table
from converter.record import record

DOMAIN = "ai.onnx.ml"
DOUBLE = ir.DataType.DOUBLE
LARGEST = 1 << 22  # elements of a table of n-grams
_AFTER = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")
_MODES = {
    "BRANCH_LEQ": "LessOrEqual",
    "BRANCH_LT": "Less",
    "BRANCH_GTE": "GreaterOrEqual",
    "BRANCH_GT": "Greater",
    "BRANCH_EQ": "Equal",
}


def _rows(node: ir.Node, b: Builder) -> Value | None:
    """Return the input as floats, with one row per sample; a vector is one sample."""
    x = x_of(node)
    if rank_of(x) not in (1, 2) or x.dtype not in (FLOAT, DOUBLE, INT32, INT64):
        return None
    rows = b.Unsqueeze(x, [0]) if rank_of(x) == 1 else x
    return rows if x.dtype == FLOAT else b.Cast(rows, to=FLOAT)


def _features(node: ir.Node, b: Builder) -> Value | None:
    """Return the input with one row per sample, as floats, or unchanged if it has doubles."""
    x = x_of(node)
    return x if rank_of(x) == 2 and x.dtype == DOUBLE else _rows(node, b)


def _numbers(attrs: dict[str, Any], name: str) -> np.ndarray:
    return np.array(attrs.get(name) or [], np.float32)


def _after(b: Builder, scores: Value, kind: str) -> Value:
    """Apply `post_transform` to rows of several scores, as onnxruntime computes it."""
    if kind == "SOFTMAX":
        return b.Softmax(scores, axis=1)
    if kind == "LOGISTIC":
        return b.Sigmoid(scores)
    if kind == "SOFTMAX_ZERO":
        return _softmax_zero(b, scores)
    return _probit(b, scores) if kind == "PROBIT" else scores


def _softmax_zero(b: Builder, scores: Value) -> Value:
    """Return the softmax over the scores that are not 0; the others stay 0."""
    some = b.Cast(b.Abs(scores) > 1e-7, to=FLOAT)
    parts = b.Exp(scores - b.ReduceMax(scores, [1])) * some
    return parts / b.ReduceSum(parts, [1])


def _probit(b: Builder, scores: Value) -> Value:
    """Return the quantiles of the normal distribution, by onnxruntime's approximation of the
    inverse error function (`ErfInv` in its ml_common.h).
    """
    x = scores * 2 - 1
    log = b.Log((1 - x) * (x + 1))
    v = log * 0.5 + 2 / (3.14159 * 0.147)
    root = b.Sqrt(b.Sqrt(v * v - log * (1 / 0.147)) - v)
    return b.Where(x < 0, -root, root) * 1.41421356


def _pair(b: Builder, score: Value, kind: str, complement: bool) -> Value:
    """Return the scores of two classes from that of the second, as onnxruntime does: any
    `post_transform` but LOGISTIC is ignored.
    """
    if kind == "LOGISTIC":
        return b.Sigmoid(b.Concat(-score, score, axis=1))
    return b.Concat(1 - score if complement else -score, score, axis=1)


def _labels(attrs: dict[str, Any], *names: str) -> np.ndarray:
    strings, whole = (attrs.get(n) for n in names)
    return np.array(strings, object) if strings else np.array(whole or [], np.int64)


def _named(b: Builder, index: Value, labels: np.ndarray) -> Value:
    """Return the label of each index."""
    if labels.dtype == object:
        words = ir.StringTensor(labels.tolist(), shape=ir.Shape([len(labels)]), name="labels")
        return b.Gather(words, index)
    return index if np.array_equal(labels, np.arange(len(labels))) else b.Gather(labels, index)


def linear_classifier(node: ir.Node, b: Builder) -> list[Value] | None:
    """Compute one score per label, each with its own row of coefficients; the largest score
    wins. A single row belongs to the second of two labels, which wins if its score is positive.
    """
    x, attrs = _rows(node, b), attributes(node)
    labels = _labels(attrs, "classlabels_strings", "classlabels_ints")
    weights, bias = _numbers(attrs, "coefficients"), _numbers(attrs, "intercepts")
    kind, count = attrs["post_transform"], bias.size or len(labels)
    if (
        x is None
        or len(labels) < 2
        or weights.size % count
        or count not in ((1, 2) if len(labels) == 2 else (len(labels),))
        or kind not in _AFTER[: 4 if count == 1 else None]
    ):
        return None
    scores = x @ np.ascontiguousarray(weights.reshape(count, -1).T)
    scores = scores + bias if bias.size else scores
    if count == 1:
        second = b.Reshape(b.Cast(scores > 0, to=INT64), [-1])
        return [_named(b, second, labels), _pair(b, scores, kind, complement=True)]
    return [_named(b, b.ArgMax(scores, axis=1, keepdims=0), labels), _after(b, scores, kind)]


def label_encoder(node: ir.Node, b: Builder) -> Value | None:
    """Look up numbers in a table of numbers; the first of equal keys counts, and NaN equals NaN."""
    attrs, x = attributes(node), x_of(node)
    keys, values = (_table(attrs, what) for what in ("keys", "values"))
    if keys is None or values is None or not keys.size or x.dtype is None:
        return None
    if x.dtype.numpy() != keys.dtype:
        return None
    plain = attrs["default_int64" if values.dtype.kind == "i" else "default_float"]
    stated = attrs.get("default_tensor")
    absent = plain if stated is None else np.reshape(stated, -1)[0]
    column = b.Unsqueeze(x, [-1])
    found = b.Equal(column, keys)
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        found = b.Or(found, b.And(b.IsNaN(column), b.const(np.isnan(keys))))
    hits = b.Cast(found, to=FLOAT)
    value = b.Gather(b.const(values, "values"), b.ArgMax(hits, axis=-1, keepdims=0))
    known = b.Cast(b.ReduceMax(hits, [-1], keepdims=0), to=ir.DataType.BOOL)
    return b.Where(known, value, np.asarray(absent, values.dtype))


def _table(attrs: dict[str, Any], what: str) -> np.ndarray | None:
    """Return the numbers of an attribute that has one name per type; None for text."""
    if attrs.get(f"{what}_tensor") is not None:
        found = np.asarray(attrs[f"{what}_tensor"])
        return found if found.dtype.kind in "if" else None
    for kind, dtype in (("int64", np.int64), ("float", np.float32)):
        if numbers := attrs.get(f"{what}_{kind}s"):
            return np.array(numbers, dtype)
    return None


def normalizer(node: ir.Node, b: Builder) -> Value | None:
    """Divide each row by its norm; rows with a norm of 0 are unchanged."""
    x, kind = _rows(node, b), attributes(node)["norm"]
    if x is None:
        return None
    norm = b.operator({"L1": "ReduceL1", "L2": "ReduceL2", "MAX": "ReduceMax"}[kind])(x, [1])
    y = x / b.Where(b.Equal(norm, 0), 1, norm)
    return b.Squeeze(y, [0]) if rank_of(x_of(node)) == 1 else y


def svm_regressor(node: ir.Node, b: Builder) -> Value | None:
    """Sum coefficients times the kernel of the row and each support vector; without support
    vectors, multiply coefficients by the row.
    """
    x, attrs = _rows(node, b), attributes(node)
    weights, rho = _numbers(attrs, "coefficients"), _numbers(attrs, "rho")
    count = attrs["n_supports"]
    if x is None or attrs["post_transform"] != "NONE" or rho.size != 1:
        return None
    vectors = _numbers(attrs, "support_vectors").reshape(count, -1) if count else None
    near = x if vectors is None else _kernel(b, x, vectors, attrs)
    if near is None:
        return None
    y = near @ weights.reshape(-1, 1) + rho
    if not attrs["one_class"]:
        return y
    return b.Where(y > 0, b.like(y, 1), b.like(y, -1))


def svm_classifier(node: ir.Node, b: Builder) -> list[Value] | None:
    """Compare each pair of classes by the kernels of their support vectors; the class that wins
    most comparisons is the label. The scores are those of the pairs, or with `prob_a` the
    probabilities of the classes.
    """
    x, attrs = _rows(node, b), attributes(node)
    labels, kind = (
        _labels(attrs, "classlabels_strings", "classlabels_ints"),
        attrs["post_transform"],
    )
    counts = [int(n) for n in attrs.get("vectors_per_class") or ()]
    weights, rho = _numbers(attrs, "coefficients"), _numbers(attrs, "rho")
    classes, size = len(labels), sum(counts)
    probable = [_numbers(attrs, key) for key in ("prob_a", "prob_b")]
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    if (
        x is None
        or kind not in _AFTER[:4]
        or not 2 <= classes == len(counts)
        or weights.size != size * (classes - 1)
        or {rho.size, probable[0].size or rho.size, probable[1].size or rho.size} != {len(pairs)}
        or probable[0].size != probable[1].size
    ):
        return None
    near = _kernel(b, x, _numbers(attrs, "support_vectors").reshape(size, -1), attrs)
    if near is None:
        return None
    scores = near @ _pair_weights(weights.reshape(classes - 1, size), counts, pairs) + rho
    wins = b.Cast(scores > 0, to=FLOAT)
    signs = np.zeros((len(pairs), classes), np.float32)
    for row, (i, j) in enumerate(pairs):
        signs[row, i], signs[row, j] = 1, -1
    votes = wins @ signs + np.array([(signs[:, c] < 0).sum() for c in range(classes)], np.float32)
    label = _named(b, b.ArgMax(votes, axis=1, keepdims=0), labels)
    if probable[0].size:
        chances = b.Sigmoid(scores * probable[0] + probable[1])
        limit = np.float32(1 - 1e-7)
        return [label, _after(b, _coupled(b, b.Clip(1 - chances, 1e-7, limit), pairs), kind)]
    if classes == 2:
        return [label, _pair(b, scores, kind, complement=kind != "NONE")]
    return [label, _after(b, scores, kind)]


def _coupled(b: Builder, chances: Value, pairs: Sequence[tuple[int, int]]) -> Value:
    """Return the probabilities of classes, [rows, classes], from the chances of the first class of
    each pair. Like onnxruntime, each row is improved until its error is small, at most 100 times.

    Source: https://www.csie.ntu.edu.tw/~cjlin/papers/svmprob/svmprob.pdf, algorithm 2.
    """
    k = max(j for _, j in pairs) + 1
    position, shift = np.zeros((len(pairs), k * k), np.float32), np.zeros(k * k, np.float32)
    for row, (i, j) in enumerate(pairs):
        position[row, i * k + j], position[row, j * k + i], shift[j * k + i] = 1, -1, 1
    r = b.Reshape(chances @ position + shift, [-1, k, k])  # the chances of class i against j
    t = b.Transpose(r, perm=[0, 2, 1])
    own = b.ReduceSum(t * t, [2], keepdims=1)
    q = own * np.eye(k, dtype=np.float32) - t * r
    columns = [b.Reshape(q[:, i : i + 1], [-1, k]) for i in range(k)]
    equal = chances[:, :1] * 0 + np.full((1, k), 1 / k, np.float32)

    def step(inner: Builder, states: Sequence[ir.Value]) -> Sequence[ir.Value]:
        with inner:
            p, turn = with_operators(states[0]), with_operators(states[1])
            products = inner.Reshape(inner.MatMul(q, p[:, :, None]), [-1, k])
            total = inner.ReduceSum(p * products, [1], keepdims=1)
            error = inner.ReduceMax(inner.Abs(products - total), [1], keepdims=1)
            open_ = error >= np.float32(0.005) / np.float32(k)
            better = p
            for i, column in enumerate(columns):
                weight, product = column[:, i : i + 1], products[:, i : i + 1]
                change = (total - product) / weight
                scale = change + 1
                total = (total + change * (change * weight + product * 2)) / scale / scale
                products = (products + change * column) / scale
                better = (better + change * np.eye(k, dtype=np.float32)[i]) / scale
            left = inner.Cast(inner.ReduceMax(inner.Cast(open_, to=FLOAT), keepdims=0), to=BOOL)
            return [inner.Where(open_, better, p), turn + 1, left]

    def goes_on(inner: Builder, states: Sequence[ir.Value]) -> Sequence[ir.Value]:
        with inner:
            return [inner.And(with_operators(states[1]) < 100, states[2])]

    first = [equal, b.const(np.array(0, np.int64)), b.const(np.array(True))]
    return while_loop(b, first, goes_on, step)[0]


def _pair_weights(
    weights: np.ndarray, counts: Sequence[int], pairs: Sequence[tuple[int, int]]
) -> np.ndarray:
    """Return the weight of each support vector in each pair of classes, [vectors, pairs]."""
    ends = np.cumsum(counts)
    spans = [slice(end - n, end) for end, n in zip(ends, counts, strict=True)]
    found = np.zeros((weights.shape[1], len(pairs)), np.float32)
    for column, (i, j) in enumerate(pairs):
        found[spans[i], column] = weights[j - 1, spans[i]]
        found[spans[j], column] = weights[i, spans[j]]
    return found


def _kernel(b: Builder, x: Value, vectors: np.ndarray, attrs: dict[str, Any]) -> Value | None:
    kind, given = attrs["kernel_type"], attrs.get("kernel_params") or ()
    gamma, constant, degree = (*map(float, given), 0.0, 0.0, 0.0)[:3]
    if kind == "RBF":
        apart = x[:, None] - vectors[None]
        far = b.ReduceSum(apart * apart, [2], keepdims=0)
        return b.Exp(far * -gamma)
    product = x @ np.ascontiguousarray(vectors.T)
    if kind == "LINEAR":
        return product
    bent = product * gamma + constant
    return b.Tanh(bent) if kind == "SIGMOID" else bent**degree if kind == "POLY" else None


# trees -------------------------------------------------------------------------------------------

Nodes = dict[int, "TreeNode"]


@record
class TreeNode:
    """A decision (`branches` are the nodes for true and for false) or a leaf (mode LEAF).

    `members` are the numbers that BRANCH_MEMBER compares with.
    """

    feature: int
    mode: str
    threshold: float
    branches: tuple[int, int]
    missing: bool = False
    members: tuple[float, ...] = ()


@record
class Forest:
    """All nodes of all trees in one numbering, decisions first: their conditions, their successors
    (a leaf is its own), and their weights for each target, which are 0 for decisions.

    `given` is true if a leaf has a weight for a target. `depth` is the largest number of decisions
    from a root to a leaf.
    """

    nodes: Sequence[TreeNode]
    roots: np.ndarray
    weights: np.ndarray
    given: np.ndarray
    depth: int

    @property
    def decisions(self) -> int:
        return sum(n.mode != "LEAF" for n in self.nodes)

    def column(self, name: str, dtype: Any) -> np.ndarray:
        """Return an attribute of all nodes as an array."""
        return np.array([getattr(n, name) for n in self.nodes], dtype)


def tree_regressor(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite TreeEnsembleRegressor, unless onnxruntime ignores its post transform."""
    attrs = attributes(node)
    kind, after = attrs["aggregate_function"], attrs["post_transform"]
    count = int(attrs.get("n_targets", 1))
    # with a single target, onnxruntime ignores the others
    if after not in _AFTER or (count == 1 and after not in ("NONE", "PROBIT")):
        return None
    forest = _read_forest(attrs, "target", count)
    scores = _scores(node, b, forest, kind, _column(attrs, "base_values"))
    return None if scores is None else _after(b, scores, after)


AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")  # in the order of their enumeration values


def tree_ensemble(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite the operator of version 5, whose leaves are separate from decisions and have one
    target each.

    The values 1 and 2 of `post_transform` are SOFTMAX and LOGISTIC in its specification, but the
    other way round in onnxruntime.
    """
    attrs = attributes(node)
    number = attrs["aggregate_function"]
    if attrs["post_transform"] or number not in range(len(AGGREGATES)):
        return None
    kind = AGGREGATES[number]
    return _scores(node, b, _read_ensemble(attrs), kind, np.zeros(0))


def _scores(
    node: ir.Node, b: Builder, forest: Forest | None, kind: str, base: np.ndarray
) -> Value | None:
    """Return the aggregated scores of all trees for each target."""
    if (
        forest is None
        or base.size not in (0, forest.weights.shape[1])
        or not all(0 <= n.feature < 1 << 31 for n in forest.nodes)
        or (kind in ("MIN", "MAX") and not forest.given.all())
    ):
        return None
    votes = _votes(node, b, forest)
    if votes is None:
        return None
    y = b.operator(_TOGETHER[kind])(votes, [1], keepdims=0)
    y = y + b.const(base.astype(array_type(y))) if base.size else y
    wanted = node.outputs[0].dtype or FLOAT
    return y if y.dtype == wanted else b.Cast(y, to=wanted)


_TOGETHER = {"SUM": "ReduceSum", "AVERAGE": "ReduceMean", "MIN": "ReduceMin", "MAX": "ReduceMax"}


def tree_classifier(node: ir.Node, b: Builder) -> list[Value] | None:
    """Sum the votes of each class. With two classes, the first index alone may have votes, which
    belong to the second label, or both have, of which onnxruntime looks at the second.
    """
    attrs = attributes(node)
    labels = _labels(attrs, "classlabels_strings", "classlabels_int64s")
    base, after = _column(attrs, "base_values"), attrs["post_transform"]
    alone = len(labels) == 2 and set(attrs.get("class_ids") or ()) == {0}
    bases = (0, 1) if alone else (0,) if len(labels) == 2 else (0, len(labels))
    if after not in _AFTER or len(labels) < 2 or base.size not in bases:
        return None
    forest = _read_forest(attrs, "class", 1 if alone else len(labels))
    if forest is None or not _all_voted(forest):
        return None
    found = _votes(node, b, forest)
    if found is None:
        return None
    votes = b.ReduceSum(found, [1], keepdims=0)
    votes = votes + b.const(base.astype(array_type(votes))) if base.size else votes
    votes = b.Cast(votes, to=FLOAT) if votes.dtype != FLOAT else votes
    if alone:
        return _one_of_two(b, votes, attrs, labels)
    if len(labels) == 2:
        if labels.dtype != object and labels.tolist() != [0, 1]:
            return None  # onnxruntime gives 0 and 1 for any labels
        best = b.Cast(votes[:, 1] > 0, to=INT64)
    else:
        best = b.ArgMax(votes, axis=1, keepdims=0)
    return [_named(b, best, labels), _after(b, votes, after)]


def _all_voted(forest: Forest) -> bool:
    """Return whether each class gets votes in every case: some tree has votes for it in all its
    leaves.

    A class without votes has no score, which differs from a score of 0.
    """
    voted = np.zeros(forest.weights.shape[1], bool)
    for root in forest.roots:
        leaves = [i for i in _reached(forest.nodes, int(root)) if forest.nodes[i].mode == "LEAF"]
        voted |= forest.given[leaves].all(axis=0)
    return bool(voted.all())


def _one_of_two(
    b: Builder, votes: Value, attrs: dict[str, Any], labels: np.ndarray
) -> list[Value] | None:
    """Compute the scores of two classes from the votes of one.

    If all weights are positive, the votes are a probability, and the other class has its
    complement.
    """
    positive = bool(_column(attrs, "class_weights").min() >= 0)
    after = attrs["post_transform"]
    if after in ("SOFTMAX", "SOFTMAX_ZERO", "PROBIT"):  # onnxruntime and ONNX's definition differ
        return None
    second = b.Cast(votes > (0.5 if positive else 0), to=INT64)
    return [_named(b, b.Reshape(second, [-1]), labels), _pair(b, votes, after, positive)]


def _votes(node: ir.Node, b: Builder, forest: Forest) -> Value | None:
    """Return the weights of the leaf that is reached in each tree, [samples, trees, targets],
    computed one level at a time for all trees.
    """
    x = _features(node, b)
    if x is None:
        return None
    decide = _Decision(b, x, forest)
    at = decide.first()
    for _ in range(forest.depth - 1):
        at = decide.next(at)
    weights = forest.weights[forest.decisions :].astype(array_type(x))
    leaf = at - b.const(np.array(forest.decisions, np.int32))
    return b.Gather(b.const(weights, "leaf_weights"), leaf, axis=0)


class _Decision:
    """One level of decisions, for each tree."""

    def __init__(self, b: Builder, x: Value, forest: Forest) -> None:
        self.b, self.x, self.forest = b, x, forest
        used = {n.mode for n in forest.nodes if n.mode != "LEAF"} or {"BRANCH_LEQ"}
        modes, width = forest.column("mode", object), max(len(n.members) for n in forest.nodes)
        self.tables = {
            "feature": forest.column("feature", np.int32),
            "threshold": forest.column("threshold", array_type(x)),
            "missing": forest.column("missing", bool),
            "holds": np.array([n.branches[0] for n in forest.nodes], np.int32),
            "fails": np.array([n.branches[1] for n in forest.nodes], np.int32),
            "members": np.array(
                [(*n.members, *[np.nan] * (width - len(n.members))) for n in forest.nodes],
                array_type(x),
            ),
            **{mode: modes == mode for mode in used},
        }
        self.modes = sorted(used)
        self._constants: dict[str, Value] = {}

    def first(self) -> Value:
        """Return the successors of the roots, [samples, trees]."""
        b, roots = self.b, self.forest.roots
        chosen = b.Gather(self.x, self.tables["feature"][roots], axis=1)
        here = {name: b.const(table[roots]) for name, table in self.tables.items()}
        return self._successors(chosen, here.__getitem__)

    def next(self, at: Value) -> Value:
        """Return the successors of the nodes `at`, which are computed."""
        b = self.b
        for name, table in self.tables.items():
            self._constants.setdefault(name, b.const(table, name))

        def here(name: str) -> Value:
            return b.Gather(self._constants[name], at, axis=0)

        return self._successors(b.GatherElements(self.x, here("feature"), axis=1), here)

    def _successors(self, chosen: Value, here: Callable[[str], Value]) -> Value:
        """Return the successors; `here` looks up a table's entries for the current nodes."""
        holds = {mode: self._compared(mode, chosen, here) for mode in self.modes}
        if len(holds) > 1:
            holds = {mode: held & here(mode) for mode, held in holds.items()}
        held = reduce(or_, holds.values())
        if self.tables["missing"].any():
            held = held | (self.b.IsNaN(chosen) & here("missing"))
        return self.b.Where(held, here("holds"), here("fails"))

    def _compared(self, mode: str, chosen: Value, here: Callable[[str], Value]) -> Value:
        b = self.b
        if mode == "BRANCH_NEQ":
            return ~b.Equal(chosen, here("threshold"))
        if mode != "BRANCH_MEMBER":
            return b.operator(_MODES[mode])(chosen, here("threshold"))
        same = b.Cast(b.Equal(chosen[:, :, None], here("members")), to=FLOAT)
        return b.ReduceMax(same, [2], keepdims=0) > 0.5


# reading trees from attributes --------------------------------------------------------------------


def _column(attrs: dict[str, Any], name: str) -> np.ndarray:
    """Return numbers that are stored as a list or as a tensor."""
    found = attrs.get(f"{name}_as_tensor", attrs.get(name))
    return np.array([] if found is None else found).reshape(-1)


def _read_forest(attrs: dict[str, Any], kind: str, count: int) -> Forest | None:
    """Read the operators of versions 1 to 3; None for graphs that are no trees, and for unknown
    modes.
    """
    names = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
    columns = [list(_column(attrs, f"nodes_{n}")) for n in names]
    size = len(columns[0])
    missing = attrs.get("nodes_missing_value_tracks_true") or [0] * size
    if len({len(c) for c in (*columns, missing)}) > 1 or not size:
        return None
    positions = {position: i for i, position in enumerate(zip(*columns[:2], strict=True))}
    nodes: list[TreeNode] = []
    roots: dict[int, int] = {}
    for i, (tree, _, feature, mode, value, yes, no, tracks) in enumerate(
        zip(*columns, missing, strict=True)
    ):
        branches = [positions.get((tree, n)) for n in (yes, no)]
        if mode == "LEAF":
            branches = [i, i]
        if None in branches or (mode != "LEAF" and mode not in (*_MODES, "BRANCH_NEQ")):
            return None
        roots.setdefault(tree, i)
        known = (branches[0] or 0, branches[1] or 0)
        nodes.append(TreeNode(int(feature), str(mode), float(value), known, bool(tracks)))
    rows = [_column(attrs, f"{kind}_{n}") for n in ("treeids", "nodeids", "ids", "weights")]
    weights, given = np.zeros((size, count)), np.zeros((size, count), bool)
    for tree, leaf, target, weight in zip(*rows, strict=True):
        i = positions.get((tree, leaf), -1)
        if i < 0 or nodes[i].mode != "LEAF" or not 0 <= target < count:
            return None
        weights[i, int(target)] += weight
        given[i, int(target)] = True
    return _forest(nodes, list(roots.values()), weights, given)


_MODE_NUMBERS = (*_MODES, "BRANCH_NEQ", "BRANCH_MEMBER")


def _read_ensemble(attrs: dict[str, Any]) -> Forest | None:
    """Read the operator of version 5; its leaves are numbered after its decisions."""
    names = ("featureids", "modes", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")
    columns = [[int(n) for n in _column(attrs, f"nodes_{name}")] for name in names]
    size, splits = len(columns[0]), [float(n) for n in _column(attrs, "nodes_splits")]
    missing = attrs.get("nodes_missing_value_tracks_true") or [0] * size
    targets, worth = _column(attrs, "leaf_targetids"), _column(attrs, "leaf_weights")
    count, roots = int(attrs.get("n_targets", 1)), [int(n) for n in _column(attrs, "tree_roots")]
    total = size + len(targets)
    if (
        not size
        or len({len(c) for c in (*columns, splits, missing)}) > 1
        or len(targets) != len(worth)
        or not set(columns[1]) <= set(range(len(_MODE_NUMBERS)))
        or not {int(t) for t in targets} <= set(range(count))
    ):
        return None
    sets = _member_sets(_column(attrs, "membership_values"))
    nodes: list[TreeNode] = []
    for feature, mode, yes, no, yes_leaf, no_leaf, split, tracks in zip(
        *columns, splits, missing, strict=True
    ):
        name = _MODE_NUMBERS[mode]
        members = next(sets, ()) if name == "BRANCH_MEMBER" else ()
        branches = (yes + size * bool(yes_leaf), no + size * bool(no_leaf))
        nodes.append(TreeNode(feature, name, split, branches, bool(tracks), members))
    nodes += [TreeNode(0, "LEAF", 0.0, (i, i)) for i in range(size, total)]
    weights, given = np.zeros((total, count)), np.zeros((total, count), bool)
    for i, (target, weight) in enumerate(zip(targets, worth, strict=True)):
        weights[size + i, int(target)], given[size + i, int(target)] = weight, True
    return _forest(nodes, roots, weights, given)


def _member_sets(values: np.ndarray) -> Iterator[tuple[float, ...]]:
    """Yield sets that are separated by NaN."""
    found: list[float] = []
    for value in values:
        if np.isnan(value):
            yield tuple(found)
            found = []
        else:
            found.append(float(value))
    if found:
        yield tuple(found)


def _forest(
    nodes: list[TreeNode], roots: list[int], weights: np.ndarray, given: np.ndarray
) -> Forest | None:
    """Number the nodes as in a Forest; None for graphs that are no trees."""
    order = sorted(range(len(nodes)), key=lambda i: nodes[i].mode == "LEAF")
    position = {old: new for new, old in enumerate(order)}
    if any(n not in position for node in nodes for n in node.branches) or any(
        r not in position for r in roots
    ):
        return None
    moved = ((nodes[i], nodes[i].branches) for i in order)
    nodes = [replace(node, branches=(position[yes], position[no])) for node, (yes, no) in moved]
    roots, weights, given = [position[r] for r in roots], weights[order], given[order]
    depth = 1
    for root in roots:
        reached = _reached(nodes, root)
        if not reached:
            return None
        depth = max(depth, max(reached.values()))
    inner = np.array([n.mode != "LEAF" for n in nodes])
    return Forest(nodes, np.array(roots, np.int64), weights, given | inner[:, None], depth)


def _reached(nodes: Sequence[TreeNode], root: int) -> dict[int, int]:
    """Return the nodes of the tree at `root` with the number of decisions before them; empty if it
    is no tree.
    """
    found: dict[int, int] = {}
    waiting = [(root, 0)]
    while waiting:
        i, depth = waiting.pop()
        if i in found:
            # a tree of a single leaf is stored as two branches to the same leaf
            if nodes[i].mode == "LEAF":
                continue
            return {}
        found[i] = depth
        if nodes[i].mode != "LEAF":
            waiting += [(n, depth + 1) for n in nodes[i].branches]
    return found


def tf_idf(node: ir.Node, b: Builder) -> Value | None:
    """Count n-grams of numbers: those at each position are compared with all of the pool, and hits
    are added to their entries of the result.
    """
    x, a = x_of(node), attributes(node)
    length = (known_sizes(x) or [None])[-1]
    if not a.get("pool_int64s") or rank_of(x) not in (1, 2) or length is None:
        return None
    entries = np.array(a["ngram_indexes"])
    if not _is_pool(a, entries) or len(a["pool_int64s"]) * max(length, entries.max() + 1) > LARGEST:
        return None
    rows = b.Cast(x if rank_of(x) == 2 else b.Unsqueeze(x, [0]), to=INT64)
    grams = [*_grams(b, rows, length, a, entries)]
    if not grams:  # of all lengths that count, each is longer than the rows
        zeros = np.zeros((length, entries.max() + 1), np.float32)
        grams = [b.MatMul(b.Cast(rows, to=FLOAT), zeros)]
    total = reduce(add, grams)
    if a["mode"] == "IDF":
        total = b.Min(total, 1)
    if a["mode"] != "TF" and a.get("weights"):
        factors = np.zeros(entries.max() + 1, np.float32)
        factors[entries] = a["weights"]
        total = total * factors
    return total if rank_of(x) == 2 else b.Squeeze(total, [0])


def _is_pool(a: dict[str, Any], entries: np.ndarray) -> bool:
    """Return whether the attributes of a TfIdfVectorizer agree: each n-gram has an entry of the
    result.
    """
    starts, pool = a["ngram_counts"], a["pool_int64s"]
    ends = [*starts[1:], len(pool)]
    if not starts or starts[0] != 0 or sorted(ends) != ends or entries.min(initial=0) < 0:
        return False
    sizes = [end - start for start, end in zip(starts, ends, strict=True)]
    whole = all(n % size == 0 for size, n in enumerate(sizes, 1))
    count = sum(n // size for size, n in enumerate(sizes, 1))
    return whole and 0 < count == entries.size and len(a.get("weights") or entries) == count


def _grams(
    b: Builder, rows: Value, length: int, a: dict[str, Any], entries: np.ndarray
) -> Iterator[Value]:
    """Yield the number of occurrences of n-grams in each of the rows, [rows, entries]: n-grams of
    one length, with a fixed number of elements skipped between their own.
    """
    pool, positions = np.array(a["pool_int64s"]), np.eye(entries.max() + 1, dtype=np.float32)
    for size, part in enumerate(np.split(pool, a["ngram_counts"][1:]), 1):
        grams = part.reshape(-1, size)
        own, entries = entries[: len(grams)], entries[len(grams) :]
        if not a["min_gram_length"] <= size <= a["max_gram_length"] or not grams.size:
            continue
        for step in range(1, a["max_skip_count"] + 2 if size > 1 else 2):
            count = length - (size - 1) * step
            if count < 1:
                break
            starts = [i * step for i in range(size)]
            windows = [b.Unsqueeze(rows[:, s : s + count], [2]) for s in starts]
            same = [b.Equal(v, b.const(grams[:, i])) for i, v in enumerate(windows)]
            hits = b.Cast(reduce(b.And, same), to=FLOAT)
            yield b.ReduceSum(hits, [1], keepdims=0) @ positions[own]


TABLE: Table = {
    (DOMAIN, "LinearClassifier"): linear_classifier,
    (DOMAIN, "LabelEncoder"): label_encoder,
    (DOMAIN, "Normalizer"): normalizer,
    (DOMAIN, "SVMClassifier"): svm_classifier,
    (DOMAIN, "SVMRegressor"): svm_regressor,
    (DOMAIN, "TreeEnsemble"): tree_ensemble,
    (DOMAIN, "TreeEnsembleRegressor"): tree_regressor,
    (DOMAIN, "TreeEnsembleClassifier"): tree_classifier,
    ("", "TfIdfVectorizer"): tf_idf,
}
