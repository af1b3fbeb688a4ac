"""ai.onnx.ml, the operators of classical machine learning: rewritten with standard operators where
possible, else kept as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx.defs
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.onnx.op import Op, Results, Rows, missing
from converter.formats.onnx.schema import check
from converter.graph.build import Builder
from converter.graph.infer import set_type
from converter.graph.value import Value
from converter.graph.walk import all_nodes

DOMAIN = "ai.onnx.ml"
LEAST = 2  # the version whose operators are kept: only LabelEncoder is another one in version 1
ROWS = Rows()
_FLOAT = ir.DataType.FLOAT
OF_MAPS = ("CastMap", "DictVectorizer")


def lift_classical(op: Op, b: Builder) -> Results:
    """Return the standard operators for one of ai.onnx.ml, or the operator itself, which only ONNX
    can preserve.
    """
    if op.kind in OF_MAPS:
        raise MappingError(
            f"{op.kind} takes a map, which netconv does not support (only tensors and sequences)",
            help="keep only the part after it: netconv extract --from NAME, or export the "
            "model without it",
        )
    try:
        schema: Any = onnx.defs.get_schema(op.kind, op.version, DOMAIN)
    except onnx.defs.SchemaError:
        missing(op)
    check(op, schema)
    if op.kind == "ZipMap":
        return op.x  # its labels are kept by the network, see `labels_of`
    results = ROWS.apply(op, b)
    return results if results is not None else _kept(op, b)


def labels_of(op: Op) -> list[Any]:
    """Return the keys of the maps that a ZipMap makes, one for each column."""
    return list(op.attr("classlabels_int64s") or op.attr("classlabels_strings") or ())


def kept(graph: ir.Graph) -> bool:
    """Return whether operators of the domain remain."""
    return any(n.domain == DOMAIN for n in all_nodes(graph))


def _kept(op: Op, b: Builder) -> Sequence[Value]:
    """Preserve the operator, with the shapes that onnx's inference does not determine: one row for
    each sample.
    """
    results = b.ops(
        op.kind, *op.inputs, domain=DOMAIN, outputs=len(op.outputs), names=op.outputs, **op.attrs
    )
    x = op.inputs[0] if op.inputs else None
    if x is None or x.shape is None or results[0].shape is not None:
        return results
    rows = x.shape[0] if len(x.shape) > 1 else 1
    if op.kind in ("Normalizer", "Imputer"):
        set_type(results[0], None, list(x.shape))
    elif op.kind in ("SVMRegressor", "LinearRegressor"):
        set_type(results[0], None, [rows, int(op.attr("targets", 1))])
    elif op.kind in ("TreeEnsemble", "TreeEnsembleRegressor"):
        set_type(results[0], None, [rows, int(op.attr("n_targets", 1))])
    elif op.kind in ("SVMClassifier", "LinearClassifier"):
        set_type(results[0], None, [rows])
        if len(results) > 1 and results[1].shape is None:
            set_type(results[1], None, [rows, _scores(op)])
    return results


def _scores(op: Op) -> int | None:
    """Return the number of scores of a classifier for each sample: of two classes both, else one
    for each class, or one for each pair of classes that a support vector machine compares.
    """
    labels = op.attr("classlabels_ints") or op.attr("classlabels_strings") or ()
    classes, vectors = len(labels), op.attr("vectors_per_class")
    if op.kind == "LinearClassifier" or classes == 2 or op.attr("prob_a") or not vectors:
        return max(2, classes) if classes else None
    return classes * (classes - 1) // 2


def _real(b: Builder, x: Value) -> Value:
    return x if x.dtype == ir.DataType.FLOAT else b.Cast(x, to=_FLOAT)


def _numbers(op: Op, name: str) -> np.ndarray:
    return np.array(op.attr(name) or [], np.float32)


@ROWS.always("Scaler")
def scaler(op: Op, b: Builder) -> Results:
    """Compute (x - offset) * scale, for each feature or for all."""
    x, offset, scale = _real(b, op.x), _numbers(op, "offset"), _numbers(op, "scale")
    return (x - offset) * scale if offset.size and scale.size else None


@ROWS.always("Binarizer")
def binarizer(op: Op, b: Builder) -> Results:
    """Rewrite Binarizer as a comparison with the threshold."""
    x = op.x
    return b.Cast(x > op.attr("threshold", 0.0), to=x.dtype or _FLOAT)


@ROWS.always("ArrayFeatureExtractor")
def array_feature_extractor(op: Op, b: Builder) -> Results:
    """Select columns; a vector is treated as one row."""
    if op.x.dtype == ir.DataType.STRING:
        return None
    x = b.Unsqueeze(op.x, [0]) if op.rank(0) == 1 else op.x
    return b.Gather(x, b.Reshape(op.need(1), [-1]), axis=op.rank(0) - 1 if op.rank(0) > 1 else 1)


@ROWS.always("FeatureVectorizer")
def feature_vectorizer(op: Op, b: Builder) -> Results:
    """Concatenate the columns of all inputs."""
    if any(op.rank(i) != 2 for i in range(len(op.inputs))):
        return None
    return b.Concat(*(_real(b, op.need(i)) for i in range(len(op.inputs))), axis=1)


@ROWS.always("OneHotEncoder")
def one_hot_encoder(op: Op, b: Builder) -> Results:
    """Rewrite OneHotEncoder of integers as comparisons with the categories."""
    categories = op.attr("cats_int64s")
    if not categories or op.x.dtype == ir.DataType.STRING:
        return None
    if not op.attr("zeros", 1):
        op.notes.append(
            "OneHotEncoder returns zeros for an unknown category, for which onnxruntime fails"
        )
    number = b.Cast(op.x, to=ir.DataType.INT64)
    return b.Cast(b.Equal(b.Unsqueeze(number, [-1]), np.array(categories, np.int64)), to=_FLOAT)


@ROWS.always("Imputer")
def imputer(op: Op, b: Builder) -> Results:
    """Replace missing numbers by constants, column by column."""
    x = op.x
    whole = x.dtype == ir.DataType.INT64
    if not whole and x.dtype != _FLOAT:
        return None
    given = op.attr("imputed_value_int64s" if whole else "imputed_value_floats")
    values = np.array(given or [], np.int64 if whole else np.float32)
    mark = op.attr("replaced_value_int64" if whole else "replaced_value_float", 0)
    if not values.size:
        return None
    absent = b.IsNaN(x) if np.isnan(mark) else b.Equal(x, b.like(x, mark))
    return b.Where(absent, values, x)


@ROWS.always("LinearRegressor")
def linear_regressor(op: Op, b: Builder) -> Results:
    """Multiply x by the coefficients [targets, features] and add the intercepts."""
    targets, weights, bias = (
        int(op.attr("targets", 1)),
        _numbers(op, "coefficients"),
        _numbers(op, "intercepts"),
    )
    if (
        op.attr("post_transform", "NONE") != "NONE"
        or op.rank(0) != 2
        or not weights.size
        or weights.size % targets
    ):
        return None
    y = _real(b, op.x) @ b.const(
        np.ascontiguousarray(weights.reshape(targets, -1).T), "coefficients"
    )
    return y + bias if bias.size else y


@ROWS.always("LabelEncoder")
def label_encoder(op: Op, b: Builder) -> Results:
    """Rewrite the form of version 1, a list of texts that numbers index or the reverse, as keys and
    values of the later versions.
    """
    if op.version > 1:
        return None
    texts = list(op.take("classes_strings") or [])
    numbers = list(range(len(texts)))
    absent = op.take("default_int64", -1), op.take("default_string", "_Unused")
    if op.x.dtype == ir.DataType.STRING:
        op.attrs.update(keys_strings=texts, values_int64s=numbers, default_int64=absent[0])
    else:
        op.attrs.update(keys_int64s=numbers, values_strings=texts, default_string=absent[1])
    return None
