"""The costs of a network: multiplications, parameters, and activation memory; in total, and for
each layer of its file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from converter.errors import counted
from converter.graph.extensions import can_expand
from converter.graph.infer import shape_of
from converter.graph.value import optional
from converter.graph.walk import all_nodes, reads
from converter.passes.stored_halves import stored_bytes, stored_half

Shape = tuple[int, ...]


@dataclass(frozen=True)
class LayerCost:
    """One layer of the file (a node if the graph has no layers): its operators, the type and shape
    of its last result, `macs` (multiply-accumulate operations), `parameters` and `weight_bytes` (of
    weights that no earlier layer uses), and `activation_bytes`, the size of its results. None: it
    depends on a dynamic size, or the computation is unknown.
    """

    name: str
    operators: tuple[str, ...]
    result: str
    macs: int | None
    parameters: int
    weight_bytes: int
    activation_bytes: int | None


@dataclass(frozen=True)
class Costs:
    """The sums of all layers; `peak_bytes` is the maximum memory of inputs, outputs and
    intermediate results at one time, each stored once. `uncounted` are layers whose macs are None
    and not part of the sum; bodies of loops count once.
    """

    layers: tuple[LayerCost, ...]
    macs: int
    parameters: int
    weight_bytes: int
    peak_bytes: int | None
    uncounted: tuple[str, ...]


def costs(model: ir.Model) -> Costs:
    """Return the costs of a network in the shared graph."""
    groups: dict[str, list[ir.Node]] = {}
    for node in all_nodes(model.graph):
        groups.setdefault(_name(node), []).append(node)
    seen: set[ir.Value] = set()
    half = stored_half(model)
    layers = tuple(_layer(name, nodes, seen, half) for name, nodes in groups.items())
    return Costs(
        layers,
        sum(c.macs or 0 for c in layers),
        sum(c.parameters for c in layers),
        sum(c.weight_bytes for c in layers),
        peak(model.graph),
        tuple(c.name for c in layers if c.macs is None),
    )


def _name(node: ir.Node) -> str:
    return node.metadata_props.get("netconv.layer") or str(node.outputs[0].name)


def _layer(
    name: str, nodes: list[ir.Node], seen: set[ir.Value], half: ir.DataType | None
) -> LayerCost:
    weights = []
    for value in (v for n in nodes for v in n.inputs if v is not None):
        if value.const_value is not None and value.producer() is None and value not in seen:
            seen.add(value)
            weights.append(value.const_value)
    macs = [_macs(n) for n in nodes]
    sizes = [size_of(o) for n in nodes for o in n.outputs if o.name]
    last = nodes[-1].outputs[0]
    return LayerCost(
        name,
        tuple(n.op_type for n in nodes),
        describe(last),
        None if None in macs else sum(m for m in macs if m),
        sum(int(t.size) for t in weights),
        sum(stored_bytes(t, half) for t in weights),
        _sum(sizes),
    )


def describe(value: ir.Value) -> str:
    """Format type and shape of a value, `?` for unknown parts: float[1,n,?]."""
    dims = (
        None if value.shape is None else [d if isinstance(d, int) else d.value for d in value.shape]
    )
    return f"{str(value.dtype).lower() if value.dtype is not None else '?'}{shape(dims)}"


def shape(dims: list[Any] | None) -> str:
    """Format comma-separated sizes, `?` for unknown ones."""
    return (
        "[?]" if dims is None else "[" + ",".join("?" if d is None else str(d) for d in dims) + "]"
    )


def _sum(sizes: Iterable[int | None]) -> int | None:
    found = list(sizes)
    return None if None in found else sum(s for s in found if s)


def size_of(value: ir.Value) -> int | None:
    """Return the bytes of a tensor, 0 for text, whose length the network does not determine; None
    if the type or a size is unknown.
    """
    if value.dtype == ir.DataType.STRING:
        return 0
    shape = shape_of(value)
    if shape is None or value.dtype is None:
        return None
    return -(-math.prod(shape) * int(value.dtype.bitwidth) // 8)


def peak(graph: ir.Graph) -> int | None:
    """Return the maximum bytes of live tensors when the nodes run in their order."""
    order = list(graph)
    last: dict[ir.Value, int] = {}
    for place, node in enumerate(order):
        for value in reads(node):
            last[value] = place
    last.update((v, len(order)) for v in graph.outputs)
    live = {v: size_of(v) for v in graph.inputs}
    most = _sum(live.values())
    for place, node in enumerate(order):
        live.update((o, size_of(o)) for o in node.outputs if o.name)
        now = _sum(live.values())
        if now is None or most is None:
            return None
        most = max(most, now)
        live = {v: s for v, s in live.items() if last.get(v, -1) > place}
    return most


def _macs(node: ir.Node) -> int | None:
    if node.domain:  # its multiplications are in its definition
        return None if can_expand(node) else 0
    rule = _RULES.get(node.op_type)
    return 0 if rule is None else rule(node)


def _shape(node: ir.Node, place: int) -> Shape | None:
    return shape_of(optional(node, place))


def _convolution(weights: int) -> Callable[[ir.Node], int | None]:
    def macs(node: ir.Node) -> int | None:
        kernel, result = _shape(node, weights), shape_of(node.outputs[0])
        return (
            None if kernel is None or result is None else math.prod(result) * math.prod(kernel[1:])
        )

    return macs


def _transposed(node: ir.Node) -> int | None:
    data, kernel = _shape(node, 0), _shape(node, 1)
    return None if data is None or kernel is None else math.prod(data) * math.prod(kernel[1:])


def _product(node: ir.Node) -> int | None:
    data, result = _shape(node, 0), shape_of(node.outputs[0])
    if data is None or result is None:
        return None
    transposed = node.op_type == "Gemm" and node.attributes.get("transA") is not None
    summed = data[0] if transposed and node.attributes["transA"].as_int() else data[-1]
    return math.prod(result) * summed


def _recurrent(node: ir.Node) -> int | None:
    data, w, r = (_shape(node, i) for i in range(3))
    if data is None or w is None or r is None:
        return None
    return data[0] * data[1] * (math.prod(w) + math.prod(r))


def _einsum(node: ir.Node) -> int | None:
    terms = node.attributes["equation"].as_string().replace(" ", "").split("->")[0].split(",")
    shapes = [_shape(node, i) for i in range(len(terms))]
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        if shape is None or "." in term:
            return None
        sizes.update(zip(term, shape, strict=True))
    return math.prod(sizes.values()) if len(terms) > 1 else 0


_RULES: dict[str, Callable[[ir.Node], int | None]] = {
    "Conv": _convolution(1),
    "ConvInteger": _convolution(1),
    "DeformConv": _convolution(1),
    "QLinearConv": _convolution(3),
    "ConvTranspose": _transposed,
    "Gemm": _product,
    "MatMul": _product,
    "MatMulInteger": _product,
    "QLinearMatMul": _product,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
    "Einsum": _einsum,
}


def lines(found: Costs) -> Iterator[str]:
    """Yield one line for each layer, the most expensive columns first."""
    from converter.io.files import size_text

    width = min(40, max((len(c.name) for c in found.layers), default=5))
    yield f"  {'layer':{width}} {'MACs':>14} {'parameters':>12} {'weights':>10} {'results':>10}"
    for c in found.layers:
        macs = "?" if c.macs is None else f"{c.macs:,}"
        results = "?" if c.activation_bytes is None else size_text(c.activation_bytes)
        yield (
            f"  {c.name:{width}} {macs:>14} {c.parameters:>12,} {size_text(c.weight_bytes):>10}"
            f" {results:>10}  {'+'.join(c.operators)} {c.result}"
        )


def headline(found: Costs) -> str:
    """Return the total costs in one line."""
    from converter.io.files import size_text

    left = len(found.uncounted)
    more = (
        (f" (without {counted(left, 'layer')} of dynamic shape or without definition)")
        if left
        else ""
    )
    memory = "unknown (dynamic shapes)" if found.peak_bytes is None else size_text(found.peak_bytes)
    return f"{found.macs:,} MACs{more}, peak activation memory: {memory}"
