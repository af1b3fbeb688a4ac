"""Fuse constants into the preceding operator, and rewrite normalizations so that they need no
Reshapes.

before:  Conv -> Add(c[1,C,1,1])
after:   Conv(bias c)
before:  Reshape -> InstanceNormalization(1, 0) -> Mul(g[K]) -> Add(b[K]) -> Reshape
after:   LayerNormalization(g, b) over the last axis
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from converter.graph import EXTENSION_DOMAIN
from converter.graph.build import Builder, attributes, attrs_of, builder_before
from converter.graph.extensions import replace
from converter.graph.infer import Array, constant, shape_of
from converter.graph.names import Names
from converter.graph.value import optional, producer_if, producer_of
from converter.graph.walk import all_graphs
from converter.passes.dead_code import remove_dead_code
from converter.passes.pipeline import Context, Pass, change

_SUMS = {"Conv", "ConvTranspose", "MatMul", "Gemm"}
_NORMS = {"LayerNormalization", "InstanceNormalization"}


def fuse_constants(model: ir.Model) -> None:
    """Fuse in place; results may differ by less than one unit in the last place of a sum."""
    _merge(model, _merged)


def fuse_biases(model: ir.Model) -> None:
    """Fuse, in place, only constants added to the result of a Conv, ConvTranspose, MatMul or
    Gemm.
    """
    _merge(
        model,
        lambda node, b: (
            _fused_after(node, b, _SUMS) if node.op_type == "Add" and not node.domain else None
        ),
    )


def fuse_factors(model: ir.Model) -> None:
    """Fuse, in place, a constant factor for each channel and a term added to it into the weights
    and the bias of the layer before.

    before:  Conv -> Mul(f[1,C,1,1]) -> Add(c[1,C,1,1])     after:  Conv(weights f, bias f + c)
    """
    kinds = _SUMS - {"MatMul"}
    _merge(
        model,
        lambda node, b: (
            _fused_after(node, b, kinds)
            if node.op_type in ("Add", "Mul") and not node.domain
            else None
        ),
    )


def _merge(model: ir.Model, rewrite: Callable[[ir.Node, Builder], ir.Value | None]) -> None:
    names = Names(model)
    for graph in all_graphs(model.graph):
        for node in list(graph):
            if node.graph is None:
                continue
            found = rewrite(node, builder_before(node, names))
            if found is not None:
                replace(node, [found], builder_before(node, names))
    remove_dead_code(model)


def _merged(node: ir.Node, b: Builder) -> ir.Value | None:
    if node.domain == EXTENSION_DOMAIN and node.op_type == "MVN":
        return _normalized(node, b)
    if node.domain:
        return None
    if node.op_type == "InstanceNormalization":
        return _as_layer(node, b)
    if node.op_type in ("Add", "Mul"):
        return _fused_after(node, b, _SUMS | _NORMS if node.op_type == "Add" else _NORMS)
    return (_shuffled(node, b) or _unfolded(node, b)) if node.op_type == "Reshape" else None


def _fused_after(node: ir.Node, b: Builder, kinds: set[str]) -> ir.Value | None:
    """Return the fused form of an Add or Mul of a constant after one of these operators, of which
    it must be the single consumer.
    """
    for x, other in (node.inputs, node.inputs[::-1]):
        c, before = constant(other), producer_of(x)
        if (
            c is None
            or x is None
            or before is None
            or before.domain
            or before.op_type not in kinds
            or not _only(x)
            or shape_of(x) != shape_of(node.outputs[0])
        ):
            continue
        if node.op_type == "Add" and before.op_type in _SUMS:
            return _biased(before, c, b)
        if before.op_type in _SUMS:
            return _factored(before, c, b)
        if before.op_type in _NORMS and len(before.outputs) == 1:
            return _scaled(before, node.op_type, c, b)
    return None


def _only(value: ir.Value) -> bool:
    return len(list(value.uses())) == 1 and not value.is_graph_output()


def along(c: Array, shape: Sequence[int], axis: int) -> Array | None:
    """Return `c` as a vector along one axis of data of `shape`; None if it varies along other
    axes.
    """
    if not axis < len(shape) or c.ndim > len(shape):
        return None
    full = c.reshape((1,) * (len(shape) - c.ndim) + c.shape)
    if full.ndim != len(shape) or any(n != 1 for i, n in enumerate(full.shape) if i != axis):
        return None
    return np.broadcast_to(full.reshape(-1), (shape[axis],))


def _biased(before: ir.Node, c: Array, b: Builder) -> ir.Value | None:
    shape, weights = shape_of(before.outputs[0]), constant(before.inputs[1])
    if shape is None or weights is None:
        return None
    product = before.op_type in ("MatMul", "Gemm")
    bias = along(c, shape, 1)
    old = optional(before, 2)
    if (
        bias is None
        or (product and (len(shape) != 2 or weights.ndim != 2))
        or (old is not None and constant(old) is None)
    ):
        return None
    attrs = attrs_of(before)
    if old is not None:
        if product and (attributes(before)["beta"] != 1.0 or constant(old).ndim != 1):  # type: ignore[union-attr]
            return None
        bias = bias + constant(old)
    value = b.const(
        np.ascontiguousarray(bias.astype(weights.dtype)), f"{before.outputs[0].name}.bias"
    )
    return b.op(
        "Gemm" if product else before.op_type, before.inputs[0], before.inputs[1], value, **attrs
    )


def _factored(before: ir.Node, c: Array, b: Builder) -> ir.Value | None:
    """Multiply weights and bias by a number for each channel."""
    shape, weights, attrs = (
        shape_of(before.outputs[0]),
        constant(before.inputs[1]),
        attrs_of(before),
    )
    old, by = constant(optional(before, 2)), along(c, shape or (), 1)
    if by is None or weights is None or (old is None) != (optional(before, 2) is None):
        return None
    if before.op_type == "ConvTranspose" and attrs.get("group", 1) != 1:
        return None
    line = [-1 if i == channel_axis(before) else 1 for i in range(weights.ndim)]
    operands = [weights * by.reshape(line), *([] if old is None else [old * by])]
    return b.op(before.op_type, before.inputs[0], *operands, **attrs)


def channel_axis(node: ir.Node) -> int:
    """Return the axis of the constant weights of a layer that counts the channels of its result."""
    if node.op_type == "Gemm":
        return 0 if attributes(node)["transB"] else 1
    rank = len(shape_of(node.inputs[1]) or ())
    return rank - 1 if node.op_type == "MatMul" else int(node.op_type == "ConvTranspose")


def _scaled(before: ir.Node, op: str, c: Array, b: Builder) -> ir.Value | None:
    """Fuse scale and shift into a normalization, along its channels or along its single normalized
    axis.
    """
    shape, scale, shift = (
        shape_of(before.outputs[0]),
        constant(before.inputs[1]),
        constant(optional(before, 2)),
    )
    if shape is None or scale is None or (shift is None and optional(before, 2) is not None):
        return None
    axis = 1 if before.op_type == "InstanceNormalization" else len(shape) - 1
    if before.op_type == "LayerNormalization" and attributes(before)["axis"] % len(shape) != axis:
        return None
    by = along(c, shape, axis)
    if by is None:
        return None
    scale = np.broadcast_to(scale, (shape[axis],))
    shift = np.zeros_like(scale) if shift is None else np.broadcast_to(shift, (shape[axis],))
    scale, shift = (scale * by, shift * by) if op == "Mul" else (scale, shift + by)
    operands = [
        b.const(np.ascontiguousarray(v), f"{before.outputs[0].name}.{w}")
        for v, w in ((scale, "scale"), (shift, "shift"))
    ]
    return b.op(before.op_type, before.inputs[0], *operands, **attrs_of(before))


def _as_layer(node: ir.Node, b: Builder) -> ir.Value | None:
    """Rewrite as LayerNormalization if only the last of the axes after the channels is longer than
    1.
    """
    shape, scale, shift = (
        shape_of(node.outputs[0]),
        constant(node.inputs[1]),
        constant(node.inputs[2]),
    )
    if (
        shape is None
        or scale is None
        or shift is None
        or any(n != 1 for n in shape[2:-1])
        or (scale != 1).any()
        or shift.any()
    ):
        return None
    one, nought = (b.const(np.full(shape[-1:], v, scale.dtype)) for v in (1, 0))
    return b.LayerNormalization(
        node.inputs[0],
        one,
        nought,
        axis=-1,
        epsilon=attributes(node)["epsilon"],
    )


def _normalized(node: ir.Node, b: Builder) -> ir.Value | None:
    """Fuse a normalization with mean and variance over the last axis, or over all axes after the
    channels.
    """
    x, a = node.inputs[0], attributes(node)
    shape = shape_of(x)
    if (
        shape is None
        or x is None
        or x.dtype is None
        or not a["normalize_variance"]
        or a["eps_mode"] != "inside_sqrt"
    ):
        return None
    axes, rank = sorted({int(v) % len(shape) for v in a["axes"]}), len(shape)
    dtype = x.dtype.numpy()
    if axes == [rank - 1]:
        return b.LayerNormalization(
            x,
            *(b.const(np.full(shape[-1:], v, dtype)) for v in (1, 0)),
            axis=-1,
            epsilon=a["eps"],
        )
    if rank >= 4 and axes == list(range(2, rank)):
        return b.InstanceNormalization(
            x,
            *(b.const(np.full(shape[1], v, dtype)) for v in (1, 0)),
            epsilon=a["eps"],
        )
    return None


def _shuffled(node: ir.Node, b: Builder) -> ir.Value | None:
    """Fuse a split of the channels into groups, a swap of the two axes, and a merge into one
    operator.
    """
    turn = producer_if(node.inputs[0], "Transpose")
    split = None if turn is None else producer_if(turn.inputs[0], "Reshape")
    if turn is None or split is None:
        return None
    own, apart, back = (shape_of(v) for v in (split.inputs[0], split.outputs[0], node.outputs[0]))
    if (
        own is None
        or apart is None
        or own != back
        or len(own) != 4
        or len(apart) not in (4, 5)
        or not (_only(turn.outputs[0]) and _only(split.outputs[0]))
    ):
        return None
    rest = (own[2] * own[3],) if len(apart) == 4 else own[2:]
    if (
        apart[0] != own[0]
        or apart[1] * apart[2] != own[1]
        or apart[3:] != rest
        or list(attrs_of(turn)["perm"]) != [0, 2, 1, *range(3, len(apart))]
    ):
        return None
    return b.ShuffleChannels(split.inputs[0], group=apart[1])


def _unfolded(node: ir.Node, b: Builder) -> ir.Value | None:
    """Remove Reshapes that only add and remove leading axes of size 1 around a normalization of the
    last axis.
    """
    inner = producer_if(node.inputs[0], "LayerNormalization")
    if inner is None or len(inner.outputs) > 1 or not _only(inner.outputs[0]):
        return None
    outer = producer_of(inner.inputs[0])
    source = (
        outer.inputs[0] if outer is not None and outer.op_type in ("Reshape", "Unsqueeze") else None
    )
    axis, shape = attributes(inner)["axis"], shape_of(inner.outputs[0])
    own = shape_of(source)
    if (
        source is None
        or shape is None
        or not own
        or own != shape_of(node.outputs[0])
        or own[-1] != shape[-1]
        or axis % len(shape) != len(shape) - 1
    ):
        return None
    return b.op("LayerNormalization", source, *inner.inputs[1:], **{**attrs_of(inner), "axis": -1})


def merge_constants() -> Pass[Context]:
    """Return the pass of a pipeline; see `fuse_constants`."""
    return change(
        "merge-constants",
        "Merge constant factors and sums into the layers before them",
        fuse_constants,
    )


def merge_biases() -> Pass[Context]:
    """Return the pass of a pipeline; see `fuse_biases`."""
    return change(
        "merge-biases",
        "Merge constants that are added after a layer into its bias",
        fuse_biases,
    )
