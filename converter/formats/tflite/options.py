"""The options of operators, by the names of the schema: `stride_w`, `fused_activation_function`.

The package of the schema has a class for each table of options with a method for each field, named
`StrideW`, but does not state which table belongs to which operator.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from converter.formats.tflite.schema import flatbuffers, schema

# The tables that are not named like their operators.
_SHARED = {
    "Pool2DOptions": "AVERAGE_POOL_2D MAX_POOL_2D L2_POOL_2D",
    "ReducerOptions": "MEAN SUM REDUCE_MAX REDUCE_MIN REDUCE_PROD REDUCE_ALL REDUCE_ANY",
    "MaximumMinimumOptions": "MAXIMUM MINIMUM",
    "Conv2DOptions": "CONV_2D",
    "DepthwiseConv2DOptions": "DEPTHWISE_CONV_2D",
    "Conv3DOptions": "CONV_3D CONV_3D_TRANSPOSE",
    "TopKV2Options": "TOPK_V2",
    "SplitVOptions": "SPLIT_V",
    "PadV2Options": "PADV2",
    "SelectV2Options": "SELECT_V2",
    "ReverseV2Options": "REVERSE_V2",
    "L2NormOptions": "L2_NORMALIZATION",
    "LocalResponseNormalizationOptions": "LOCAL_RESPONSE_NORMALIZATION",
    "LSTMOptions": "LSTM",
    "RNNOptions": "RNN",
    "SVDFOptions": "SVDF",
    "SequenceRNNOptions": "UNIDIRECTIONAL_SEQUENCE_RNN",
    "BidirectionalSequenceRNNOptions": "BIDIRECTIONAL_SEQUENCE_RNN",
    "UnidirectionalSequenceLSTMOptions": "UNIDIRECTIONAL_SEQUENCE_LSTM",
    "BidirectionalSequenceLSTMOptions": "BIDIRECTIONAL_SEQUENCE_LSTM",
    "LSHProjectionOptions": "LSH_PROJECTION",
    "BatchMatMulOptions": "BATCH_MATMUL",
    "BatchToSpaceNDOptions": "BATCH_TO_SPACE_ND",
    "SpaceToBatchNDOptions": "SPACE_TO_BATCH_ND",
    "RandomOptions": "RANDOM_UNIFORM RANDOM_STANDARD_NORMAL MULTINOMIAL",
    "Rfft2dOptions": "RFFT2D",
    "NonMaxSuppressionV4Options": "NON_MAX_SUPPRESSION_V4",
    "NonMaxSuppressionV5Options": "NON_MAX_SUPPRESSION_V5",
    "ATan2Options": "ATAN2",
    "StableHLOCompositeOptions": "STABLEHLO_COMPOSITE",
}
TABLES = {builtin: table for table, names in _SHARED.items() for builtin in names.split()}
_UNIONS = (
    ("BuiltinOptions", schema.BuiltinOptions),
    ("BuiltinOptions2", schema.BuiltinOptions2),
)
_KINDS = {
    name: {v: k for k, v in vars(numbers).items() if isinstance(v, int)}
    for name, numbers in _UNIONS
}
# Options that only affect how the result is computed, or that repeat declarations of the tensors.
_HOW = frozenset(
    [
        "asymmetric_quantize_inputs",
        "in_data_type",
        "out_data_type",
        "out_type",
        "output_type",
        "idx_out_type",
        "pot_scale_int16",
        "quantized_bias_type",
        "seed",
        "seed2",
        "stablehlo",
        "values_count",
    ]
)


def accessor(key: str) -> str:
    """Return the method of an option: `StrideW` for stride_w."""
    return key if key[:1].isupper() else "".join(p[:1].upper() + p[1:] for p in key.split("_"))


def schema_name(method: str) -> str:
    """Return the name in the schema: `stride_w` for StrideW."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", method).lower()


@cache
def fields_of(table: str) -> tuple[str, ...]:
    """Return the methods of the options of a table, for which the package has functions that write
    them.
    """
    start = f"{table}Add"
    return tuple(n[len(start) :] for n in schema.functions(table) if n.startswith(start))


def table_of(builtin: str) -> str:
    """Return the table of an operator's options, "" where the schema has none."""
    name = TABLES.get(builtin) or "".join(p.capitalize() for p in builtin.split("_")) + "Options"
    return name if hasattr(schema, name) else ""


def options_of(
    builtin: str, operator: Any, count: Callable[[int], int]
) -> tuple[str, dict[str, Any]]:
    """Return the table of an operator's options, and all options; an operator without a table has
    the schema's defaults. `count` is called with the lengths of lists.
    """
    for name, _ in _UNIONS:
        kind = _KINDS[name].get(getattr(operator, f"{name}Type")(), "NONE")
        union = getattr(operator, name)()
        if kind != "NONE" and union is not None and hasattr(schema, kind):
            found = getattr(schema, kind)()
            found.Init(union.Bytes, union.Pos)
            return kind, _values(kind, found, count)
    kind = table_of(builtin)
    return kind, _values(kind, _empty(kind), count) if kind else {}


def _values(kind: str, table: Any, count: Callable[[int], int]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for method in fields_of(kind):
        name, get = schema_name(method), getattr(table, method)
        if name in _HOW:
            continue
        if hasattr(table, f"{method}Length"):
            values[name] = [get(i) for i in range(count(getattr(table, f"{method}Length")()))]
        else:
            found = get()
            values[name] = found.decode() if isinstance(found, bytes) else found
    return values


@cache
def _empty(kind: str) -> Any:
    """Return a table of options with no option set."""
    b: Any = flatbuffers.Builder(64)
    getattr(schema, f"{kind}Start")(b)
    b.Finish(getattr(schema, f"{kind}End")(b))
    return getattr(schema, kind).GetRootAs(b.Output(), 0)
