"""Normalisations."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.opset.special.base import Emit, attributes, filled, given, ints, lifts, lowers, near_axis, operand, opset, rank
from converter.graph.build import Builder
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node

T = ir.DataType


@lifts("BatchNormInference")
def lift_batch_norm(layer: Layer, b: Builder) -> ir.Value:
    """opset1: gamma, beta, data, mean, variance; from opset5 on data comes first."""
    a = attributes(layer, epsilon=float)
    order = (2, 0, 1, 3, 4) if opset(layer) < 5 else (0, 1, 2, 3, 4)
    x, *rest = (operand(layer, i) for i in order)
    if rank(x) >= 2:
        return b.op("BatchNormalization", x, *rest, epsilon=a.epsilon)
    raise MappingError("data of rank 1 has no channel axis")


@lowers("BatchNormalization")
def lower_batch_norm(node: Node, low: Lowering) -> None:
    a = filled(node)
    if a.get("training_mode") or len(node.outputs) > 1:
        raise MappingError("training mode cannot be expressed")
    if len({v.dtype for v in node.inputs if v is not None}) > 1:
        raise MappingError("statistics of another type than the data")
    Emit(node, low).out("BatchNormInference", *node.inputs, epsilon=a["epsilon"])


@lifts("LRN")
def lift_lrn(layer: Layer, b: Builder) -> ir.Value:
    """The sum of squares over `size` neighbours along the axes, divided by size per axis."""
    a, x = attributes(layer, alpha=float, beta=float, bias=float, size=int), operand(layer, 0)
    axes = sorted(near_axis(v, rank(x)) for v in ints(operand(layer, 1), "the axes"))
    if axes == [1] and rank(x) >= 3:
        odd = 2 * ((a.size - 1) // 2) + 1  # an even size takes one neighbour less, and still divides by the size
        return b.op("LRN", x, alpha=a.alpha * odd / a.size, beta=a.beta, bias=a.bias, size=odd)
    squares = b.op("Mul", x, x)
    if not axes:  # every element alone
        base = b.op("Add", b.op("Mul", squares, b.like(x, a.alpha)), b.like(x, a.bias))
        return b.op("Div", x, b.op("Pow", base, b.like(x, a.beta)))
    n = rank(x)
    reach = (a.size - 1) // 2
    total = squares
    for axis in axes:
        pads = [0] * (2 * n)
        pads[axis], pads[n + axis] = reach, reach
        padded = b.op("Pad", total, pads)
        parts = [b.op("Slice", padded, [i], [i - 2 * reach or np.iinfo(np.int64).max], [axis]) for i in range(2 * reach + 1)]
        total = b.op("Sum", *parts) if len(parts) > 1 else parts[0]
    scale = a.alpha / a.size ** len(axes)
    base = b.op("Add", b.op("Mul", total, b.like(x, scale)), b.like(x, a.bias))
    return b.op("Div", x, b.op("Pow", base, b.like(x, a.beta)))


@lowers("LRN")
def lower_lrn(node: Node, low: Lowering) -> None:
    a = filled(node)
    if a["size"] % 2 == 0:
        raise MappingError("an even size is centred differently")
    e, x, bias = Emit(node, low), given(node, 0), a["bias"]
    if bias == 1 or bias <= 0:
        e.out("LRN", x, [1], alpha=a["alpha"], beta=a["beta"], bias=bias, size=a["size"])
        return
    # the CPU runtime takes every bias for 1: (b + s)^p = b^p * (1 + s/b)^p
    y = e.op("LRN", x, [1], alpha=a["alpha"] / bias, beta=a["beta"], bias=1.0, size=a["size"])
    e.out("Multiply", y, np.array(bias ** -a["beta"], (x.dtype or T.FLOAT).numpy()), auto_broadcast="numpy")


@lifts("GroupNormalization")
def lift_group_norm(layer: Layer, b: Builder) -> ir.Value:
    a = attributes(layer, num_groups=int, epsilon=float)
    return b.op("GroupNormalization", *(operand(layer, i) for i in range(3)), num_groups=a.num_groups, epsilon=a.epsilon)


@lowers("GroupNormalization")
def lower_group_norm(node: Node, low: Lowering) -> None:
    if low.version < 12:
        raise MappingError("GroupNormalization needs opset12", "X206")
    a = filled(node)
    if a.get("stash_type", 1) != 1 or given(node, 0).dtype != T.FLOAT:
        raise MappingError("the statistics have another type")
    Emit(node, low).out("GroupNormalization", *node.inputs, num_groups=a["num_groups"], epsilon=a["epsilon"])


@lifts("MVN")
def lift_mvn(layer: Layer, b: Builder) -> ir.Value:
    """The first revision has its axes as attributes, opset6 as a second input and a choice of where epsilon goes."""
    a = attributes(layer, eps=float, normalize_variance=bool, across_channels=False, reduction_axes=[], eps_mode="inside_sqrt")
    x = operand(layer, 0)
    if len(layer.inputs) > 1:
        axes = [near_axis(v, rank(x)) for v in ints(operand(layer, 1), "the axes")]
    elif a.reduction_axes:
        axes = a.reduction_axes
    else:
        axes = list(range(1 if a.across_channels else 2, rank(x)))
    if a.eps_mode not in ("inside_sqrt", "outside_sqrt"):
        raise MappingError(f"eps_mode={a.eps_mode!r} is not known", "R110")
    if not len(axes):
        raise MappingError("the axes are empty", "R110")
    return b.ext("MVN", x, axes=axes, normalize_variance=int(a.normalize_variance), eps=a.eps, eps_mode=a.eps_mode)


@lowers("MVN", domain="netconv")
def lower_mvn(node: Node, low: Lowering) -> None:
    a = filled(node)
    if low.version < 6:
        raise MappingError("MVN over these axes needs opset6", "X206")
    e = Emit(node, low)
    e.out("MVN", node.input(0), a["axes"], eps=a["eps"], normalize_variance=bool(a["normalize_variance"]), eps_mode=a["eps_mode"].upper())


@lifts("NormalizeL2")
def lift_normalize(layer: Layer, b: Builder) -> ir.Value:
    """x / sqrt(sum of squares + eps), or with the larger of the sum and eps. Without axes 1, and 0 for 0, whatever the sign."""
    a, x = attributes(layer, eps=float, eps_mode=str), operand(layer, 0)
    if a.eps_mode not in ("add", "max"):
        raise MappingError(f"eps_mode={a.eps_mode!r} is not known", "R110")
    axes = ints(operand(layer, 1), "the axes")
    if axes:
        return b.ext("NormalizeL2", x, axes=axes, eps=a.eps, eps_mode=a.eps_mode)
    return b.op("CastLike", b.op("Not", b.op("Equal", x, b.like(x, 0))), x)


@lowers("NormalizeL2", domain="netconv")
def lower_normalize(node: Node, low: Lowering) -> None:
    a = filled(node)
    Emit(node, low).out("NormalizeL2", node.input(0), a["axes"], eps=a["eps"], eps_mode=a["eps_mode"])


@lifts("GRN")
def lift_grn(layer: Layer, b: Builder) -> ir.Value:
    return b.ext("GRN", operand(layer, 0), bias=attributes(layer, bias=float).bias)


@lowers("GRN", domain="netconv")
def lower_grn(node: Node, low: Lowering) -> None:
    Emit(node, low).out("GRN", node.input(0), bias=filled(node)["bias"])
