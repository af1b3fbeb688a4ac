"""Quantized values of quantized graphs: DequantizeLinear -> operator -> QuantizeLinear."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from converter.formats.lite.quantization import parameters
from converter.formats.tflite.collector import dequantized
from converter.formats.tflite.rules.context import STORED
from converter.graph import EXTENSION_DOMAIN
from converter.graph.build import Builder, attrs_of, builder_before, same_attrs
from converter.graph.extensions import replace
from converter.graph.infer import Array, constant
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.names import Names
from converter.graph.value import Value
from converter.graph.walk import all_graphs, operators
from converter.passes.dead_code import remove_dead_code

D = ir.DataType
_MOVES = """Concat Expand Flatten Gather GatherND Reshape Slice Split Squeeze Tile Transpose
Unsqueeze"""
MOVES = frozenset(_MOVES.split())


def quantize_fakes(model: ir.Model) -> None:
    """Replace each FakeQuantize that represents zero exactly by QuantizeLinear and
    DequantizeLinear, in place.

    before:  FakeQuantize(x, low, high, low, high, levels=256)      after:  DQ(Q(x, s, z), s, z)
    with s = (high - low) / 255, z = -128 - low / s
    """
    names = Names(model)
    for node in operators(model.graph, "FakeQuantize", EXTENSION_DOMAIN):
        _fake(node, names)
    remove_dead_code(model)


def _fake(node: ir.Node, names: Names) -> None:
    x, bounds = node.inputs[0], [constant(v) for v in node.inputs[1:]]
    if x is None or x.dtype != D.FLOAT or int(attrs_of(node)["levels"]) != 256:
        return
    if len(bounds) != 4 or any(v is None or v.size != 1 for v in bounds):
        return
    low, high, *ends = (float(v.reshape(-1)[0]) for v in bounds if v is not None)
    if not low < high or not np.allclose(ends, [low, high], rtol=1e-5, atol=0):
        return
    scale = (high - low) / 255
    zero = -128 - low / scale
    if not -128 <= round(zero) <= 127 or abs(zero - round(zero)) > NEAR:
        return
    b = builder_before(node, names)
    numbers = b.const(np.float32(scale)), b.const(np.asarray(round(zero), np.int8))
    replace(node, [b.DequantizeLinear(b.QuantizeLinear(x, *numbers), *numbers)], b)


NEAR = 1e-2  # of a quantized step: how far a zero point may be from an integer


def move_integers(model: ir.Model) -> None:
    """Apply operators that only move elements to the quantized values, before DequantizeLinear, in
    place.

    before:  Transpose(DequantizeLinear(x))     after:  DequantizeLinear(Transpose(x))
    """
    names = Names(model)
    for graph in all_graphs(model.graph):
        for node in list(graph):
            if node.op_type in MOVES and not node.domain:
                _moved(node, names)
    remove_dead_code(model)


def _moved(node: ir.Node, names: Names) -> None:
    data = list(node.inputs) if node.op_type == "Concat" else [node.inputs[0]]
    sources = [dequantized(v) for v in data]
    first = sources[0]
    if first is None or any(s is None or _other(s, first) for s in sources):
        return
    found = parameters(first)
    stored = [s.inputs[0] for s in sources if s is not None]
    if (
        found is None
        or found[0].size != 1
        or any(v is None or v.dtype not in STORED for v in stored)
    ):
        return
    if len({v.dtype for v in stored if v is not None}) > 1:
        return
    b = builder_before(node, names)
    rest = [] if node.op_type == "Concat" else list(node.inputs[1:])
    moved = b.ops(node.op_type, *stored, *rest, outputs=len(node.outputs), **same_attrs(node))
    replace(node, [b.DequantizeLinear(v, *first.inputs[1:]) for v in moved], b)


@dataclass(frozen=True)
class _Signed:
    """Subtract 8 from packed 4-bit numbers by inverting the highest bit of both numbers in each
    byte.
    """

    tensor: LazyTensor

    def __call__(self) -> Array:
        return self.tensor.bytes() ^ np.uint8(0x88)


def sign_four_bits(model: ir.Model) -> None:
    """Make unsigned 4-bit constants, which no kernel supports, signed, in place; they stay packed.

    before:  DequantizeLinear(x: uint4, scale, zero)    after:  the same of x - 8 and zero - 8: int4
    before:  Cast(x: uint4, to)                         after:  Cast(x - 8: int4, to) + 8
    """
    names = Names(model)
    for graph in all_graphs(model.graph):
        for node in list(graph):
            reads = node.op_type in ("DequantizeLinear", "Cast") and not node.domain
            if reads and node.inputs[0] is not None and node.inputs[0].dtype == D.UINT4:
                _sign_constant(node, builder_before(node, names))
    remove_dead_code(model)


def _sign_constant(node: ir.Node, b: Builder) -> None:
    x, *rest = (None if v is None else _less_8(v, b) for v in node.inputs)
    if x is None or (len(node.inputs) > 2 and node.inputs[2] is not None and rest[1] is None):
        return
    if node.op_type == "Cast":
        made = b.Cast(x, **same_attrs(node))
        replace(node, [b.Add(made, b.like(made, 8))], b)
        return
    scale = node.inputs[1]
    assert scale is not None
    zero = rest[1] if len(rest) > 1 else None
    if zero is None:
        zero = b.const(np.full(() if scale.shape is None else scale.shape, -8, D.INT4.numpy()))
    replace(node, [b.DequantizeLinear(x, scale, zero, **same_attrs(node))], b)


def _less_8(value: ir.Value, b: Builder) -> Value | None:
    """Return a constant of unsigned 4-bit numbers minus 8; None for anything else."""
    if value.dtype != D.UINT4 or value.const_value is None:
        return None
    tensor = LazyTensor.of(value.const_value)
    signed = LazyTensor(_Signed(tensor), D.INT4, tensor.shape.numpy())
    return b.const(signed, str(value.name))


def has_signed_weights(model: ir.Model) -> bool:
    """Return whether signed integer constants are used together with unsigned activations."""
    readers = [n for g in all_graphs(model.graph) for n in g if n.op_type == "DequantizeLinear"]
    stored = [n.inputs[0] for n in readers if n.inputs[0] is not None]
    return any(v.const_value is not None and v.dtype == D.INT8 for v in stored)


def sign_integers(model: ir.Model) -> None:
    """Make unsigned integers between a QuantizeLinear and its DequantizeLinears signed, in place:
    no kernel supports per-channel scales together with unsigned data.

    before:  Q(x, s, uint8 z) -> DQ         after:  Q(x, s, int8 z - 128) -> DQ
    """
    names = Names(model)
    for graph in all_graphs(model.graph):
        for node in list(graph):
            if node.graph is None:  # replaced together with its QuantizeLinear
                continue
            if node.op_type == "QuantizeLinear" and not node.domain:
                _signed(node, names)
            elif node.op_type == "DequantizeLinear" and not node.domain:
                _requantized(node, names)


def _zero(b: Builder, node: ir.Node) -> Value | None:
    found = parameters(node)
    if found is None or found[0].size != 1:
        return None
    return b.const(np.asarray(int(found[1][0]) - 128, np.int8), "zero_point")


def _signed(node: ir.Node, names: Names) -> None:
    out = node.outputs[0]
    readers = [use.node for use in out.uses()]
    same = all(n.op_type == "DequantizeLinear" and not n.domain for n in readers)
    b = builder_before(node, names)
    if out.dtype != D.UINT8 or not same or not (readers or out.is_graph_output()):
        return
    zero = _zero(b, node)
    if zero is None or any(_other(n, node) for n in readers):
        return
    x, scale = node.inputs[0], node.inputs[1]
    stored = b.QuantizeLinear(x, scale, zero)
    if out.is_graph_output() and x is not None and x.producer() is not None:
        real = b.DequantizeLinear(stored, scale, zero)
        replace(node, [b.QuantizeLinear(real, *node.inputs[1:])], b)
    for reader in readers:
        before = builder_before(reader, names)
        replace(reader, [before.DequantizeLinear(stored, reader.inputs[1], zero)], before)


def _other(reader: ir.Node, writer: ir.Node) -> bool:
    """Return whether quantized values are read with another scale than they were written with."""
    a, b = parameters(reader), parameters(writer)
    return (
        a is None or b is None or any(not np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    )


def _requantized(node: ir.Node, names: Names) -> None:
    """Convert unsigned integers that are an input of the network to signed ones."""
    value = node.inputs[0]
    if value is None or value.dtype != D.UINT8 or not value.is_graph_input():
        return
    b = builder_before(node, names)
    zero = _zero(b, node)
    if zero is None:
        return
    real = b.DequantizeLinear(*node.inputs)
    stored = b.QuantizeLinear(real, node.inputs[1], zero)
    replace(node, [b.DequantizeLinear(stored, node.inputs[1], zero)], b)
