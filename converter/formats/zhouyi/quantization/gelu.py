"""GELU as exporters write it, from quantized steps -> one layer with one table.

x -> Div(sqrt(2)) -> Erf -> Add(1) -> Mul(x) -> Mul(0.5), each between DequantizeLinear and
QuantizeLinear
becomes    Gelu(x), with the result of the steps for each of the 256 quantized values of x
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.quantization.constants import quantized_constant
from converter.formats.zhouyi.quantization.quant_params import QuantParams, params_of_node
from converter.graph.build import Builder
from converter.graph.infer import Array, constant, evaluate

_LINEAR = ("QuantizeLinear", "DequantizeLinear")
_STEPS = frozenset(("Add", "Div", "Erf", "Mul", "Pow", "Sub", "Tanh", *_LINEAR))
_MOST = 40  # nodes of the longest form, including those that quantize
_NEAR = 1e-4  # the two Gelus differ by five times as much
_TABLE = "netconv.table"


def table_of_steps(node: ir.Node) -> Array | None:
    """Return the results of a Gelu for all quantized values of its operand, lowest first, if it was
    made from several steps.
    """
    found: Array | None = node.meta.get(_TABLE)
    return found


def gelu(node: ir.Node, b: Builder, places: Mapping[ir.Node, int]) -> ir.Value | None:
    """Match the product at the end of such steps; None for other products.

    `places`: the index of each node in the graph.
    """
    for source, steps in _sources(node, places):
        producer = source.producer()
        if producer is None or producer.op_type != "DequantizeLinear":
            continue
        params = params_of_node(producer)
        if params.dtype.bitwidth != 8:
            return None
        kind, table = _kind(source, steps), _computed(source, steps, params)
        if kind is not None and table is not None:
            y = b.Gelu(source, approximate=kind)
            made = y.producer()
            assert made is not None
            made.meta[_TABLE] = table
            return y
    return None


def _sources(
    node: ir.Node, places: Mapping[ir.Node, int]
) -> Iterator[tuple[ir.Value, list[ir.Node]]]:
    """Return values on which alone a node depends, the nearest first, and the elementwise steps
    from each to the node.
    """
    steps: list[ir.Node] = []
    pending: dict[ir.Value, None] = {}
    last: ir.Node | None = node
    while last is not None and last.op_type in _STEPS and not last.domain and len(steps) < _MOST:
        steps.insert(0, last)
        pending |= {v: None for v in last.inputs if v is not None and _number(v) is None}
        if len(pending) == 1:
            yield next(iter(pending)), [*steps]
        makers = {v.producer(): v for v in pending}
        last = max(makers, key=lambda n: -1 if n is None else places.get(n, -1), default=None)
        pending.pop(makers[last] if last in makers else node.outputs[0], None)


def _number(value: ir.Value) -> Array | None:
    held = quantized_constant(value)
    found = constant(value) if held is None else held.real()
    return None if found is None or found.size != 1 else found.reshape(())


def _computed(
    source: ir.Value, steps: list[ir.Node], params: QuantParams | None, x: Array | None = None
) -> Array | None:
    """Return the result of the last step for each quantized value of the source; without its params
    for the numbers `x`, as if nothing was quantized in between.
    """
    if params is not None:
        x = params.every
    assert x is not None
    values: dict[ir.Value, Array] = {source: x}
    for step in steps:
        inputs = [values[v] if v in values else _number(v) for v in step.inputs if v is not None]
        linear = params is None and step.op_type in _LINEAR
        results = inputs[:1] if linear else evaluate(step, inputs)
        if not results or results[0] is None:
            return None
        values[step.outputs[0]] = np.asarray(results[0])
    return np.broadcast_to(values[steps[-1].outputs[0]], x.shape)


def _kind(source: ir.Value, steps: list[ir.Node]) -> str | None:
    """Return which of ONNX's two Gelus the steps compute, apart from rounding."""
    x = np.linspace(-6, 6, 97, dtype=np.float32)
    found = _computed(source, steps, None, x)
    if found is None:
        return None
    exact = x * (1 + np.array([math.erf(v / math.sqrt(2)) for v in x])) / 2
    curve = x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2
    for kind, wanted in (("none", exact), ("tanh", curve)):
        if np.allclose(found, wanted, rtol=0, atol=_NEAR):
            return kind
    return None
