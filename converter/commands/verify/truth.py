"""Computation of pieces of a network in float64, where that is cheap: a difference that remains
there is not rounding.


Small changes of inputs and weights do not show a rounding error that all of them share: a sum of
equal numbers, or a sum in another order. In float64 both disappear, on exactly the inputs of the
comparison.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from converter.commands.verify.program import (
    CannotRun,
    Piece,
    Program,
    node_protos,
    to_type,
)
from converter.engines.reference import known_error
from converter.graph.infer import Array
from converter.graph.walk import subgraphs

NODES, WEIGHTS = 1000, 1 << 22  # maximum for a piece; weights in elements
COST = 1 << 26  # multiplications of a piece on one input
# operators that the evaluator computes element by element in Python, at the cost of some hundred
# multiplications
_SLOW = {
    *("MaxPool", "AveragePool", "LpPool", "ConvTranspose", "Resize", "GridSample", "RoiAlign"),
    *("DeformConv", "MaxRoiPool", "MaxUnpool", "Col2Im", "NonMaxSuppression", "ScatterND"),
    *("ScatterElements", "GatherElements", "GatherND", "Compress", "STFT"),
}
_SLOWNESS = 512


def in_doubles(
    program: Program, piece: Piece, feeds: Sequence[Mapping[str, Array]]
) -> list[list[Array]] | None:
    """Compute the targets of a piece for each feed, with all floats as doubles; None if that is
    expensive or impossible.
    """
    if not _possible(program, piece) or not _cheap(program, piece, feeds):
        return None
    try:
        evaluator = _evaluator(program, piece)
        with np.errstate(all="ignore"):
            return [_run(evaluator, piece, feed) for feed in feeds]
    except Exception:  # the evaluator raises any exception of numpy
        return None


def _possible(program: Program, piece: Piece) -> bool:
    weights = sum(
        v.const_value.size
        for n in piece.nodes
        for v in n.inputs
        if v is not None and v.const_value is not None
    )
    return (
        not (program.rounds or program.halves)
        and 0 < len(piece.nodes) <= NODES
        and weights <= WEIGHTS
        and not any([*subgraphs(n)] or known_error(n) for n in piece.nodes)
    )


def _cheap(program: Program, piece: Piece, feeds: Sequence[Mapping[str, Array]]) -> bool:
    names = [str(o.name) for n in piece.nodes for o in n.outputs if o.name]
    try:
        session = program.compile(Piece(piece.nodes, piece.inputs, tuple(names)), optimize=False)
        found = dict(zip(names, session.run(feeds[0]), strict=True))
    except (CannotRun, KeyError):
        return False
    shapes = {n: np.shape(a) for n, a in [*feeds[0].items(), *found.items()]}
    return sum(_cost(n, shapes) for n in piece.nodes) <= COST


def _cost(node: ir.Node, shapes: Mapping[str, tuple[int, ...]]) -> int:
    results = sum(math.prod(shapes.get(str(o.name), ())) for o in node.outputs)
    if node.op_type in _SLOW:
        return results * _SLOWNESS
    operands = [
        shapes.get(str(v.name)) or tuple(v.const_value.shape.numpy() if v.const_value else ())
        for v in node.inputs
        if v is not None
    ]
    if node.op_type == "Conv":
        return results * math.prod(operands[1][1:])
    if node.op_type in ("MatMul", "Gemm", "Einsum", "LSTM", "GRU", "RNN"):
        return max(results * max(map(math.prod, operands)), 1)
    return results


def _evaluator(program: Program, piece: Piece) -> Any:
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(_model(program, piece), new_ops=[_convolution()])


def _run(evaluator: Any, piece: Piece, feed: Mapping[str, Array]) -> list[Array]:
    given = {n: _wide(feed[n]) for n in piece.inputs}
    names = [n for n in dict.fromkeys(piece.targets) if n not in given]
    found = dict(zip(names, evaluator.run(names, given), strict=True))
    return [np.asarray(given[n] if n in given else found[n]) for n in piece.targets]


def _wide(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype == np.float32 else array


def _model(program: Program, piece: Piece) -> onnx.ModelProto:
    model = onnx.ModelProto(ir_version=program.ir.ir_version)
    for domain, version in program.ir.graph.opset_imports.items():
        model.opset_import.add(domain=domain, version=version or 1)
    graph = model.graph
    graph.name = "piece"
    for names, declared in ((piece.inputs, graph.input), (piece.targets, graph.output)):
        for name in dict.fromkeys(names):
            if declared is graph.input or name not in piece.inputs:
                value = program.values[name]
                info = declared.add(name=name)
                info.type.tensor_type.elem_type = int(value.dtype or ir.DataType.FLOAT)
    constants: dict[str, ir.Value] = {}
    graph.node.extend(node_protos(piece))
    for node in piece.nodes:
        constants.update(
            (str(v.name), v) for v in node.inputs if v is not None and v.const_value is not None
        )
    computed = {o for n in graph.node for o in n.output}
    for name, value in constants.items():
        if name not in computed and value.const_value is not None:
            tensor = ir.serde.serialize_tensor(ir.tensor(value.const_value.numpy(), name=name))
            graph.initializer.append(tensor)
    model.functions.extend(program.functions_of(piece.nodes))
    to_type(model, onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
    return model


def _convolution() -> Any:
    """Return a replacement for the evaluator's convolution, which visits every element in
    Python.
    """
    from onnx.reference.op_run import OpRun

    class Conv(OpRun):
        def _run(
            self,
            x: Array,
            w: Array,
            b: Array | None = None,
            auto_pad: str | None = None,
            dilations: Sequence[int] | None = None,
            group: int | None = None,
            kernel_shape: Sequence[int] | None = None,
            pads: Sequence[int] | None = None,
            strides: Sequence[int] | None = None,
        ) -> tuple[Array]:
            if auto_pad not in (None, "NOTSET", "VALID"):
                raise ValueError(f"auto_pad is {auto_pad}")
            axes = x.ndim - 2
            return (
                _convolved(
                    x,
                    w,
                    b,
                    group or 1,
                    [*(pads or [0] * (2 * axes))],
                    [*(strides or [1] * axes)],
                    [*(dilations or [1] * axes)],
                ),
            )

    return Conv


def _convolved(
    x: Array,
    w: Array,
    b: Array | None,
    group: int,
    pads: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> Array:
    axes = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *((pads[i], pads[axes + i]) for i in range(axes))])
    kernel = w.shape[2:]
    sizes = [
        (n - (k - 1) * d - 1) // s + 1
        for n, k, d, s in zip(x.shape[2:], kernel, dilations, strides, strict=True)
    ]
    parts = x.reshape(x.shape[0], group, -1, *x.shape[2:])
    filters = w.reshape(group, -1, *w.shape[1:])
    result = np.zeros((x.shape[0], group, filters.shape[1], *sizes))
    for at in product(*map(range, kernel)):
        window: tuple[Any, ...] = tuple(
            slice(i * d, i * d + (n - 1) * s + 1, s)
            for i, d, s, n in zip(at, dilations, strides, sizes, strict=True)
        )
        tap: tuple[Any, ...] = (..., *at)
        result += np.einsum(
            "ngc...,gmc->ngm...", parts[(..., *window)], filters[tap], optimize=True
        )
    result = result.reshape(x.shape[0], -1, *sizes)
    return result if b is None else result + b.reshape(-1, *[1] * axes)
