"""What rewrites see of a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.rules.fields import kernel_of, pads_of
from converter.graph.build import Builder, attrs_of
from converter.graph.infer import Array
from converter.graph.value import Value, operand
from converter.mapping import context
from converter.mapping.lowering import view_of
from converter.mapping.rules import defaults


def static(value: ir.Value) -> list[int]:
    return list(context.static(value, str(value.name)))


def attributes(node: ir.Node) -> dict[str, Any]:
    """The attributes with the schema's defaults filled in."""
    return {**defaults(node.op_type, node.domain), **attrs_of(node)}


# windows -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Geometry:
    """A window over the spatial axes, a number for each of them.

    `data`, `out`  sizes of operand and result
    `begin`, `end` the padding
    `reach`        the distance between the first and the last element under the window
    """

    data: Array
    out: Array
    kernel: Array
    strides: Array
    dilations: Array
    begin: Array
    end: Array

    @property
    def reach(self) -> Array:
        return (self.kernel - 1) * self.dilations

    @property
    def axes(self) -> list[int]:
        """The places of the spatial axes in the data."""
        return list(range(2, len(self.kernel) + 2))


def geometry(node: ir.Node) -> Geometry:
    """That of a convolution or a pooling."""
    near = view_of(node)
    near.attrs = attributes(node)
    kernel = kernel_of(near)
    ones = [1] * len(kernel)
    strides, dilations = (near.attrs.get(name) or ones for name in ("strides", "dilations"))
    data, out = (static(v)[2:] for v in (operand(node), node.outputs[0]))
    first = (np.array(v, np.int64) for v in (data, out, kernel, strides, dilations))
    return Geometry(*first, *np.split(np.array(pads_of(near, len(kernel)), np.int64), 2))


def padded(b: Builder, x: Value, begin: Array, end: Array) -> Value:
    """Zeros in front of the spatial axes and behind them."""
    return b.Pad(x, [0, 0, *begin, 0, 0, *end]) if begin.any() or end.any() else x
