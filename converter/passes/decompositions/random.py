"""Random numbers by simpler operators, ultimately RandomUniform and RandomNormal of float32."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from converter.graph.build import Builder, Value, attributes, attrs_of
from converter.graph.infer import known, shape_of
from converter.graph.value import FLOAT
from converter.passes.decompositions.activations import x_of
from converter.passes.decompositions.table import Table


def in_floats(node: ir.Node, b: Builder) -> Value | None:
    """Draw numbers of another type as float32."""
    attrs = attrs_of(node)
    dtype = int(attrs.pop("dtype", FLOAT))
    return None if dtype == FLOAT else b.Cast(b.operator(node.op_type)(**attrs), to=dtype)


def normal(node: ir.Node, b: Builder) -> Value | None:
    """Use the Box-Muller transform: sqrt(-2 log(u)) * cos(2 pi v), for u in (0, 1] and v in [0,
    1).
    """
    if (found := in_floats(node, b)) is not None:
        return found
    attrs = attributes(node)
    seed = attrs.get("seed")
    u, v = (
        b.RandomUniform(shape=attrs["shape"], seed=None if seed is None else seed + i)
        for i in range(2)
    )
    size = b.Sqrt(b.Log(1.0 - u) * -2.0) * float(attrs["scale"])
    return size * b.Cos(v * (2 * math.pi)) + float(attrs["mean"])


def like(node: ir.Node, b: Builder) -> Value | None:
    """Use the shape, and by default the type, of an operand of known shape."""
    x, shape = x_of(node), shape_of(node.outputs[0])
    attrs: dict[str, Any] = {"dtype": int(x.dtype or FLOAT), **attrs_of(node)}
    kind = node.op_type.removesuffix("Like")
    return None if shape is None else b.operator(kind)(shape=list(shape), **attrs)


def of_shape(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite the extension operators, whose shape is an operand and which have no seed if it is
    negative.
    """
    shape, attrs = known(node.inputs[0]), attrs_of(node)
    seed = attrs.pop("seed", -1)
    if shape is None:
        return None
    sizes, given = shape.reshape(-1).tolist(), None if seed < 0 else float(seed)
    return b.op(node.op_type, shape=sizes, seed=given, **attrs)


# operators that remain, which the target supports or refuses
ENDS: Mapping[tuple[str, str], tuple[str, str]] = {
    ("", "RandomUniform"): ("", "RandomUniform"),
    ("", "RandomNormal"): ("", "RandomUniform"),
    ("", "RandomUniformLike"): ("", "RandomUniform"),
    ("", "RandomNormalLike"): ("", "RandomNormal"),
    ("netconv", "RandomUniform"): ("", "RandomUniform"),
    ("netconv", "RandomNormal"): ("", "RandomNormal"),
}
TABLE: Table = {
    ("", "RandomNormal"): normal,
    ("", "RandomUniform"): in_floats,
    ("", "RandomNormalLike"): like,
    ("", "RandomUniformLike"): like,
    ("netconv", "RandomNormal"): of_shape,
    ("netconv", "RandomUniform"): of_shape,
}
