"""Operators that NNAPI lacks but can say with two of its own, as exporters write them: rewritten before the rows are applied.

Of floats only: of quantised tensors the intermediate result would have no scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from converter.formats.nnapi.liteflat import OPTIONS, LiteGraph, LiteOperator, LiteTensor
from converter.formats.nnapi.liteschema import schema
from converter.formats.nnapi.tflite import numbers

Rewrite = Callable[[LiteGraph, LiteOperator], "list[LiteOperator] | None"]
_FLOATS = (schema.TensorType.FLOAT32, schema.TensorType.FLOAT16)


def plain(graph: LiteGraph) -> None:
    """Rewrites the operators of `graph` in place."""
    graph.operators = [made for operator in graph.operators for made in _rewritten(graph, operator)]


def _rewritten(graph: LiteGraph, operator: LiteOperator) -> Iterable[LiteOperator]:
    rewrite, known = REWRITES.get(operator.builtin), range(len(graph.tensors))
    if rewrite is None or not operator.inputs or not operator.outputs or any(i not in known for i in (operator.inputs[0], *operator.outputs)):
        return [operator]
    return rewrite(graph, operator) or [operator]


def _add(graph: LiteGraph, tensor: LiteTensor) -> int:
    graph.tensors.append(tensor)
    return len(graph.tensors) - 1


def _options(kind: str, **given: object) -> dict[str, object]:
    return {**OPTIONS[kind], **given}


def _floating(graph: LiteGraph, indexes: Iterable[int]) -> bool:
    return all(0 <= i < len(graph.tensors) and graph.tensors[i].type in _FLOATS for i in indexes)


def _square(graph: LiteGraph, o: LiteOperator) -> list[LiteOperator] | None:
    return [LiteOperator("MUL", [o.inputs[0]] * 2, o.outputs, "MulOptions", _options("MulOptions"))] if _floating(graph, o.inputs) else None


def _squared_difference(graph: LiteGraph, o: LiteOperator) -> list[LiteOperator] | None:
    if not _floating(graph, o.inputs):
        return None
    result = graph.tensors[o.outputs[0]]
    difference = _add(graph, replace(result, name=f"{result.name}_difference", data=None))
    return [
        LiteOperator("SUB", o.inputs, [difference], "SubOptions", _options("SubOptions")),
        LiteOperator("MUL", [difference, difference], o.outputs, "MulOptions", _options("MulOptions")),
    ]


def _half(graph: LiteGraph, o: LiteOperator) -> list[LiteOperator] | None:
    """Halves become floats by CAST in NNAPI."""
    return [LiteOperator("CAST", o.inputs, o.outputs)] if graph.tensors[o.inputs[0]].type == schema.TensorType.FLOAT16 else None


def _fully_connected(graph: LiteGraph, o: LiteOperator) -> list[LiteOperator] | None:
    """NNAPI's result has two dimensions; the others come back by a RESHAPE."""
    result = graph.tensors[o.outputs[0]]
    if not o.options.get("KeepNumDims") or min(result.shape, default=0) < 1:
        return None
    rows = [math.prod(result.shape[:-1]), result.shape[-1]]
    flat = _add(graph, replace(result, name=f"{result.name}_rows", shape=rows, data=None))
    shape = _add(graph, LiteTensor(f"{result.name}_shape", schema.TensorType.INT32, [len(result.shape)], numbers(result.shape)))
    return [replace(o, outputs=[flat], options={**o.options, "KeepNumDims": False}), LiteOperator("RESHAPE", [flat, shape], o.outputs)]


def _leaky(graph: LiteGraph, o: LiteOperator) -> list[LiteOperator] | None:
    source = graph.tensors[o.inputs[0]]
    if source.type != schema.TensorType.FLOAT32:
        return None
    slope = np.array([o.options.get("Alpha", 0.0)], np.float32)
    return [LiteOperator("PRELU", [o.inputs[0], _add(graph, LiteTensor(f"{source.name}_slope", source.type, [1], slope))], o.outputs)]


REWRITES: dict[str, Rewrite] = {
    "DEQUANTIZE": _half,
    "FULLY_CONNECTED": _fully_connected,
    "LEAKY_RELU": _leaky,
    "SQUARE": _square,
    "SQUARED_DIFFERENCE": _squared_difference,
}
