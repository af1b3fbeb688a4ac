"""Graphs that Apple's tools declare as one operation; their bodies compute the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, not_meant
from converter.formats.coreml.coreai.barriers import keep_apart
from converter.formats.coreml.coreai.collector import Composite
from converter.formats.coreml.coreai.rules.context import Reading, Writing
from converter.graph.build import Builder, new_model
from converter.graph.value import Value
from converter.mapping.rules import Custom, Rule, custom

PREFIX = "composite:"


def layer_norm(r: Reading) -> Value:
    """LayerNorm over the last axes, with factor and bias."""
    x, rank = r.input(0), r.rank()
    axes = sorted(a % rank for a in r.attr("axes", list))
    if not axes or axes != list(range(axes[0], rank)):
        raise MappingError("axes must be the last ones")
    rest = [v for v in r.layer.inputs[1:3] if v is not None]
    sizes = list(r.static(x)[axes[0] :]) if rest else []
    if any(v.shape is None or list(v.shape) != sizes for v in rest):
        raise MappingError("scale and bias must have the shape of the normalized axes")
    if not rest:
        raise MappingError("a normalization without a scale is not supported")
    return r.b.LayerNormalization(x, *rest, axis=axes[0], epsilon=r.attr("eps", float))


# written ------------------------------------------------------------------------------------------


def write_composite(
    w: Writing,
    kind: str,
    attributes: str,
    operands: Mapping[str, ir.Value],
    body: Callable[..., ir.Value],
) -> None:
    """Write a call of a graph with the operations that `body` creates from operands of these
    types.
    """
    model, b = new_model(kind)
    low = w.low.inner()
    for name, value in operands.items():
        inner = b.input(name, value.dtype or ir.DataType.FLOAT, list(value.shape or ()))
        if value in low.exact:
            low.exact.add(inner)
    inputs = list(model.graph.inputs)
    with b:
        b.output(body(b, *inputs))
    for node in model.graph:
        low.node(node)
    if low.problems:
        raise not_meant(
            f"the operator cannot be written as a graph of its own: {low.problems[0].message}"
        )
    keep_apart(low)
    for layer in low.layers:
        layer.name = ""  # of the body; the call has the name of the operator
    graph = Composite(kind, attributes, list(operands), inputs, low, list(model.graph.outputs))
    layer = w.put("invoke", *operands.values(), outputs=w.node.outputs[:1])
    layer.blobs["graph"] = graph


def write_layer_norm(w: Writing) -> None:
    """Write a LayerNorm with factor and bias, as Apple's tools do."""
    x, rank, epsilon = w.data, w.rank(), float(w.attr("epsilon"))
    axis = int(w.attr("axis")) % max(1, rank)
    operands = dict(zip(("input", "gamma", "beta"), map(w.optional, range(3)), strict=True))
    sizes = list(x.shape or ())[axis:]
    given = {k: v for k, v in operands.items() if v is not None}
    if len(given) < 3 or any(w.used(i) for i in range(1, len(w.node.outputs))):
        raise not_meant(
            "only normalizations with scale and bias, and without statistics outputs, are supported"
        )
    if any(v.dtype != x.dtype or list(v.shape or ()) != sizes for v in [*given.values()][1:]):
        raise not_meant(
            "scale and bias must have the type of the input and the shape of the normalized axes"
        )
    if x.dtype not in FLOATS or not sizes or any(not isinstance(n, int) or not n for n in sizes):
        raise not_meant("only floating-point data with static shape are supported")
    axes = list(range(axis, rank))

    def body(b: Builder, x: Value, gamma: Value, beta: Value) -> ir.Value:
        centered = x - b.ReduceMean(x, axes, keepdims=1)
        variance = b.ReduceMean(centered * centered, axes, keepdims=1)
        return centered * b.Reciprocal(b.Sqrt(variance + epsilon)) * gamma + beta

    listed = ", ".join(f"{a} : si64" for a in axes)
    number = np.format_float_scientific(np.float32(epsilon))
    number = number if "." in number else number.replace("e", ".0e")
    attributes = f"axes = [{listed}], eps = {number} : f32, version = 1 : si64"
    write_composite(w, "layer_norm", attributes, given, body)


def write_attention(w: Writing) -> None:
    """Write attention with four axes, as Apple's tools do. The scale is the default for the size;
    any other is multiplied into the query.
    """
    q, k, v = (w.input(i) for i in range(3))
    mask, shapes = w.optional(3), [list(x.shape or ()) for x in (q, k, v)]
    size = shapes[0][-1] if shapes[0] else None
    if any(len(s) != 4 or s[:2] != shapes[0][:2] for s in shapes) or not isinstance(size, int):
        raise not_meant("query, key and value must have rank 4 and the same batch sizes")
    floats = {x.dtype for x in (q, k, v, mask) if x is not None}
    if len(floats) > 1 or not floats <= FLOATS or (mask is not None and not mask.shape):
        raise not_meant("query, key, value and mask must have the same floating-point type")
    factor = float(w.attr("scale")) * size**0.5
    if abs(factor - 1) > 1e-6:
        q = w.emit("broadcasting_mul", q, w.like(q, factor), shape=q.shape)
    given = {"query": q, "key": k, "value": v, **({} if mask is None else {"attn_mask": mask})}

    def body(b: Builder, q: Value, k: Value, v: Value, mask: Value | None = None) -> ir.Value:
        scores = (q * float(size**-0.5)) @ b.Transpose(k, perm=[0, 1, 3, 2])
        scores = scores if mask is None else scores + mask
        return b.Softmax(scores, axis=-1) @ v

    attributes = "is_causal = false, version = 1 : si64, window_size = 0 : si64"
    write_composite(w, "scaled_dot_product_attention", attributes, given, body)


FLOATS = {ir.DataType.FLOAT, ir.DataType.FLOAT16}
RULES: list[Rule | Custom] = [
    custom("LayerNormalization", f"{PREFIX}layer_norm", layer_norm, write_layer_norm),
    custom("netconv::ScaledDotProductAttention", "", None, write_attention),
]
