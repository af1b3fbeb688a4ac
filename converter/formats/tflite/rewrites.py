"""Operators that NNAPI can say with two of its own: rewritten before the rows are applied.

Of floats and booleans only: of quantised tensors the intermediate result would have no scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from converter.formats.tflite.flatbuffer import (
    OPTIONS,
    LiteGraph,
    LiteOperator,
    LiteTensor,
    numbers,
)
from converter.formats.tflite.schema import schema

Rewrite = Callable[[LiteGraph, LiteOperator], "list[LiteOperator] | None"]
_FLOATS = (schema.TensorType.FLOAT32, schema.TensorType.FLOAT16)
_PLAIN = {schema.TensorType.FLOAT32: np.float32, schema.TensorType.INT32: np.int32}
_MANY = 1 << 20  # elements of a tensor beyond which no constant of its size is written


def plain(graph: LiteGraph) -> None:
    """Rewrites the operators of `graph` in place."""
    graph.operators = [made for operator in graph.operators for made in _rewritten(graph, operator)]


def _rewritten(graph: LiteGraph, operator: LiteOperator) -> Iterable[LiteOperator]:
    rewrite, known = REWRITES.get(operator.builtin), range(len(graph.tensors))
    if (
        rewrite is None
        or not operator.inputs
        or not operator.outputs
        or any(i not in known for i in (operator.inputs[0], *operator.outputs))
    ):
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
    return (
        [LiteOperator("MUL", [o.inputs[0]] * 2, o.outputs, "MulOptions", _options("MulOptions"))]
        if _floating(graph, o.inputs)
        else None
    )


def _squared_difference(graph: LiteGraph, o: LiteOperator) -> list[LiteOperator] | None:
    if not _floating(graph, o.inputs):
        return None
    result = graph.tensors[o.outputs[0]]
    difference = _add(graph, replace(result, name=f"{result.name}_difference", data=None))
    return [
        LiteOperator("SUB", o.inputs, [difference], "SubOptions", _options("SubOptions")),
        LiteOperator(
            "MUL", [difference, difference], o.outputs, "MulOptions", _options("MulOptions")
        ),
    ]


def _half(graph: LiteGraph, o: LiteOperator) -> list[LiteOperator] | None:
    """Halves become floats by CAST in NNAPI."""
    return (
        [LiteOperator("CAST", o.inputs, o.outputs)]
        if graph.tensors[o.inputs[0]].type == schema.TensorType.FLOAT16
        else None
    )


def _fully_connected(graph: LiteGraph, o: LiteOperator) -> list[LiteOperator] | None:
    """NNAPI's result has two dimensions; the others come back by a RESHAPE."""
    result = graph.tensors[o.outputs[0]]
    if not o.options.get("KeepNumDims") or min(result.shape, default=0) < 1:
        return None
    rows = [math.prod(result.shape[:-1]), result.shape[-1]]
    flat = _add(graph, replace(result, name=f"{result.name}_rows", shape=rows, data=None))
    shape = _add(
        graph,
        LiteTensor(
            f"{result.name}_shape",
            schema.TensorType.INT32,
            [len(result.shape)],
            numbers(result.shape),
        ),
    )
    return [
        replace(o, outputs=[flat], options={**o.options, "KeepNumDims": False}),
        LiteOperator("RESHAPE", [flat, shape], o.outputs),
    ]


def _leaky(graph: LiteGraph, o: LiteOperator) -> list[LiteOperator] | None:
    source = graph.tensors[o.inputs[0]]
    if source.type != schema.TensorType.FLOAT32:
        return None
    slope = np.array([o.options.get("Alpha", 0.0)], np.float32)
    return [
        LiteOperator(
            "PRELU",
            [o.inputs[0], _add(graph, LiteTensor(f"{source.name}_slope", source.type, [1], slope))],
            o.outputs,
        )
    ]


def _like_numbers(graph: LiteGraph, index: int, kind: int) -> tuple[LiteOperator, int] | None:
    """1 where a tensor is true, 0 where it is not: the operator that says so, and its result."""
    truth = graph.tensors[index]
    if min(truth.shape, default=1) < 1 or math.prod(truth.shape) > _MANY:
        return None
    one, zero = (
        _add(
            graph,
            LiteTensor(
                f"{truth.name}_{value}",
                kind,
                truth.shape,
                np.full(truth.shape, value, _PLAIN[kind]),
            ),
        )
        for value in (1, 0)
    )
    result = _add(graph, replace(truth, name=f"{truth.name}_numbers", type=kind, data=None))
    return LiteOperator("SELECT", [index, one, zero], [result]), result


def _cast(graph: LiteGraph, o: LiteOperator) -> list[LiteOperator] | None:
    """Truths are cast to nothing else in NNAPI."""
    kind = graph.tensors[o.outputs[0]].type
    if graph.tensors[o.inputs[0]].type != schema.TensorType.BOOL or kind not in _PLAIN:
        return None
    made = _like_numbers(graph, o.inputs[0], kind)
    return None if made is None else [replace(made[0], outputs=o.outputs)]


def _moved_truths(graph: LiteGraph, o: LiteOperator) -> list[LiteOperator] | None:
    """Truths are moved as 0.0 and 1.0."""
    result, kind = graph.tensors[o.outputs[0]], schema.TensorType.FLOAT32
    moved = o.inputs if o.builtin == "CONCATENATION" else o.inputs[:1]
    known = range(len(graph.tensors))
    if any(i not in known or graph.tensors[i].type != schema.TensorType.BOOL for i in moved):
        return None
    numbers_ = {i: _like_numbers(graph, i, kind) for i in dict.fromkeys(moved)}
    made = {i: m for i, m in numbers_.items() if m is not None}
    if len(made) < len(numbers_):
        return None
    there = _add(graph, replace(result, name=f"{result.name}_numbers", type=kind, data=None))
    zero = _add(graph, LiteTensor(f"{result.name}_zero", kind, [1], np.zeros(1, np.float32)))
    inputs = [*(made[i][1] for i in moved), *o.inputs[len(moved) :]]
    return [
        *(operator for operator, _ in made.values()),
        replace(o, inputs=inputs, outputs=[there]),
        LiteOperator("NOT_EQUAL", [there, zero], o.outputs),
    ]


def _reverse(graph: LiteGraph, o: LiteOperator) -> list[LiteOperator] | None:
    """One axis at a time."""
    result, axes = graph.tensors[o.outputs[0]], graph.tensors[o.inputs[1]].data
    if axes is None or graph.tensors[o.inputs[1]].type != schema.TensorType.INT32:
        return None
    made, source = [], o.inputs[0]
    each = np.asarray(axes).view(np.int32).reshape(-1).tolist()
    for i, axis in enumerate(each):
        target = (
            o.outputs[0]
            if i == len(each) - 1
            else _add(graph, replace(result, name=f"{result.name}_{i}", data=None))
        )
        number = LiteTensor(
            f"{result.name}_axis{i}",
            schema.TensorType.INT32,
            [1],
            numbers([axis + len(result.shape) if axis < 0 else axis]),
        )
        made.append(replace(o, inputs=[source, _add(graph, number)], outputs=[target]))
        source = target
    return made


_MOVES = """
    CONCATENATION EXPAND_DIMS GATHER RESHAPE SLICE SQUEEZE STRIDED_SLICE TILE TRANSPOSE
"""
REWRITES: dict[str, Rewrite] = {
    **dict.fromkeys(_MOVES.split(), _moved_truths),
    "CAST": _cast,
    "REVERSE_V2": _reverse,
    "DEQUANTIZE": _half,
    "FULLY_CONNECTED": _fully_connected,
    "LEAKY_RELU": _leaky,
    "SQUARE": _square,
    "SQUARED_DIFFERENCE": _squared_difference,
}
