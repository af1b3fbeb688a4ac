"""Values of 4 and 8 bits in wider types, for targets that lack their types.

before:  y = DequantizeLinear(QuantizeLinear(x, scale, zero: FLOAT8E4M3FN), scale)
after:   y = the number of FLOAT8E4M3FN that is nearest to x / scale, as a float, * scale

Inputs and outputs have the same numbers in the wider type. Constants are left alone where they are
weights: targets store them compactly or decode them.
"""

from __future__ import annotations

from collections.abc import Container

import onnx_ir as ir

from converter.errors import Diagnostic, Where
from converter.graph.build import Builder, attributes, builder_before
from converter.graph.extensions import replace
from converter.graph.names import Names, public_name
from converter.graph.value import Value, type_name, with_operators
from converter.graph.walk import all_graphs
from converter.passes.constants import is_constant
from converter.passes.decompositions.activations import x_of
from converter.passes.decompositions.quantization import broadcastable, dequantize_linear
from converter.passes.pipeline import Context, Pass
from converter.passes.round_halves import nearest

_T = ir.DataType
# type -> bits that the significand of a float has more, exponent of the least normal number, the
# greatest number, and the result for numbers beyond it without saturation
FLOATS = {
    _T.FLOAT8E4M3FN: (20, -6, 448.0, "nan"),
    _T.FLOAT8E4M3FNUZ: (20, -7, 240.0, "nan"),
    _T.FLOAT8E5M2: (21, -14, 57344.0, "inf"),
    _T.FLOAT8E5M2FNUZ: (21, -15, 57344.0, "nan"),
}
INTEGERS = {_T.INT4: (_T.INT8, -8, 7), _T.UINT4: (_T.UINT8, 0, 15)}
SMALL = frozenset({*FLOATS, *INTEGERS})
# of graphics processors of one vendor, whose zeros have no sign; no target has them
UNCOMMON = frozenset({_T.FLOAT8E4M3FNUZ, _T.FLOAT8E5M2FNUZ})


def wider(small: ir.DataType) -> ir.DataType:
    """Return the type that holds the values of a small one."""
    return _T.FLOAT if small in FLOATS else INTEGERS[small][0]


def in_float8(b: Builder, x: Value, to: ir.DataType, saturate: bool = True) -> Value:
    """Return the nearest numbers of a type of 8 bits, ties to even, as floats; greater ones become
    the greatest, or are no numbers of the type.
    """
    dropped, least, greatest, beyond = FLOATS[to]
    x = x if x.dtype == _T.FLOAT else b.Cast(x, to=_T.FLOAT)
    limit, far = b.like(x, greatest), b.like(x, 2 * greatest)
    bounded = b.Max(b.Min(x, far), -far)  # an infinite difference is not a number
    y = with_operators(nearest(b, bounded, b.Abs(bounded), dropped, least))
    if saturate:
        return b.Where(b.IsNaN(x), x, b.Max(b.Min(y, limit), -limit))
    outside = b.like(x, float(beyond))
    outside = outside if beyond == "nan" else b.Where(x < 0, -outside, outside)
    return b.Where(b.IsNaN(x), x, b.Where(b.Abs(y) <= limit, y, outside))


def _cast(node: ir.Node, b: Builder, to: ir.DataType) -> Value:
    """Return rounded floats, or the lower bits of integers."""
    if to in FLOATS:
        return in_float8(b, x_of(node), to, bool(attributes(node)["saturate"]))
    wide, low, high = INTEGERS[to]
    whole, size = b.Cast(x_of(node), to=_T.INT32), high - low + 1
    rest = b.Mod(whole, b.like(whole, size))
    return b.Cast(b.Where(rest > high, rest - size, rest) if low else rest, to=wide)


def _quantize(node: ir.Node, b: Builder, to: ir.DataType) -> Value | None:
    """Return numbers within the bounds of the type; zero points of floats are 0."""
    if to in FLOATS:
        scale = broadcastable(b, node, x_of(node, 1), x_of(node))
        return None if scale is None else in_float8(b, x_of(node) / scale, to)
    wide, low, high = INTEGERS[to]
    inputs, attrs = list(node.inputs[:3]), dict(attributes(node))
    attrs["output_dtype"] = int(wide)
    if len(inputs) > 2:
        inputs[2] = b.Cast(inputs[2], to=wide)
    y = b.op("QuantizeLinear", *inputs, **attrs)
    return b.Max(b.Min(y, b.like(y, high)), b.like(y, low))


def _dequantize(node: ir.Node, b: Builder) -> Value | None:
    """Return scaled numbers, which are in the wider type already."""
    if x_of(node).dtype == _T.FLOAT:
        return dequantize_linear(node, b)
    if len(node.inputs) > 2 and (zero := node.inputs[2]) is not None:
        node.replace_input_with(2, b.Cast(zero, to=x_of(node).dtype))
    return None


class _Widening:
    """The values of one model; `types` are those that the target lacks. `saturating`: its Casts
    give the greatest number for greater ones.
    """

    def __init__(self, model: ir.Model, types: Container[ir.DataType], saturating: bool) -> None:
        self.model, self.types, self.names = model, types, Names(model)
        self.saturating = saturating
        self.small: dict[ir.Value, ir.DataType] = {}
        self.notes: list[Diagnostic] = []

    def run(self) -> list[Diagnostic]:
        graphs = list(all_graphs(self.model.graph))
        values = (v for g in graphs for v in (*g.inputs, *(o for n in g for o in n.outputs)))
        if not any(v.dtype in SMALL for v in values):
            return []
        for value in (*self.model.graph.inputs, *self.model.graph.outputs):
            if value.dtype is not None and value.dtype in self.types and not is_constant(value):
                self.note(value, value.dtype)
        for graph in graphs:
            for value in graph.inputs:
                self.widen(value)
            for node in list(graph):
                self.node(node)
        return self.notes

    def note(self, value: ir.Value, own: ir.DataType) -> None:
        name = public_name(value)
        text = f"{name} is {type_name(own)}; it is stored as {type_name(wider(own))}"
        self.notes.append(Diagnostic("X205", text, level="warning", where=Where(layer=name)))

    def widen(self, value: ir.Value) -> None:
        if value.dtype is not None and value.dtype in self.types:
            self.small[value] = value.dtype
            value.type = ir.TensorType(wider(value.dtype))

    def node(self, node: ir.Node) -> None:
        if not node.outputs or all(is_constant(v) for v in node.outputs):
            return
        to, made = node.outputs[0].dtype or _T.FLOAT, None
        b = builder_before(node, self.names)
        plain = node.op_type if not node.domain else ""
        with b:
            if plain == "Cast" and (to in self.types or self.leaves_bounds(node, to)):
                made = _cast(node, b, to)
            elif plain == "QuantizeLinear" and to in self.types:
                made = _quantize(node, b, to)
            elif plain == "DequantizeLinear" and node.inputs[0] in self.small:
                made = _dequantize(node, b)
            elif plain not in ("DequantizeLinear", "Cast"):
                self.move(node, b)
        if made is not None:
            replace(node, [made], b)

    def leaves_bounds(self, node: ir.Node, to: ir.DataType) -> bool:
        """Return whether numbers beyond the greatest one do not become it, as the target's."""
        return self.saturating and to in FLOATS and not attributes(node)["saturate"]

    def move(self, node: ir.Node, b: Builder) -> None:
        """Give the results of an operator that moves elements the wider type."""
        moved = any(v in self.small for v in node.inputs)
        if not moved and not any(v.is_graph_output() for v in node.outputs):
            return
        for i, value in enumerate(node.inputs):
            if value is not None and value.dtype in self.types and value.dtype in SMALL:
                node.replace_input_with(i, b.Cast(value, to=wider(value.dtype)))
        for value in node.outputs:
            self.widen(value)


def widen_small_types(types: Container[ir.DataType], saturating: bool = True) -> Pass[Context]:
    """Return the pass of a pipeline whose target lacks `types`; `saturating`: its Casts give the
    greatest number of a type for greater ones.
    """
    return Pass(
        "widen-small-types",
        "Store values of 4 and 8 bits in wider types, where the target lacks their types",
        lambda model, context: context.notes.extend(_Widening(model, types, saturating).run()),
    )
