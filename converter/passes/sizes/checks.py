"""Layers whose constants may have come from the old sizes, refused."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from converter.graph import EXTENSION_DOMAIN
from converter.graph.build import attrs_of
from converter.graph.infer import constant, known, shape_of
from converter.graph.value import optional
from converter.graph.verify.shapes_of import attribute, window_of
from converter.passes.sizes.regroup import Pair
from converter.passes.sizes.walk import Refused, Walk, text_of

_WINDOWS = frozenset({"Conv", "MaxPool", "AveragePool", "LpPool"})


_ARITHMETIC = frozenset(
    {"Add", "Sub", "Mul", "Div", "Min", "Max", "Clip", "Mod", "Less", "Greater"}
)


_FEW_NUMBERS = 64  # elements of a constant


def demand_batch(walk: Walk, node: ir.Node, value: ir.Value | None, pair: Pair) -> None:
    """Refuse a constant with one entry along an axis of size 1 that is not the batch: it may be a
    value for one position, or the same for all.
    """
    if pair in walk.single and constant(value) is not None:
        reason = "a constant has one entry for an axis of size 1, and none for the others"
        raise Refused(node, reason)


def demand_no_batches(walk: Walk, node: ir.Node) -> None:
    """Refuse a product of batches of matrices whose numbers no longer agree."""
    shapes = [(walk.pairs(v) or [])[:-2] for v in node.inputs]
    for a, b in (shapes, shapes[::-1]):
        for one, other in zip(reversed(a), reversed(b), strict=False):
            if one.changed and other != one and other.old != 1:
                raise Refused(node, f"one operand has {other.old} matrices, the other {one.new}")
            if one.changed and one.old == 1 and other.new not in (1, one.new):
                raise Refused(node, f"one operand has {other.new} matrices, the other {one.new}")


def demand_no_global_window(walk: Walk, node: ir.Node) -> None:
    """Refuse a window over the whole image of the old size: it may be a global pooling."""
    pairs = walk.pairs(node.inputs[0])
    kernel = attribute(node, "kernel_shape", [])
    if pairs is None:
        return
    spatial = pairs[2:]
    _, _, pads = window_of(node, len(kernel))
    whole = all(k >= p.old for k, p in zip(kernel, spatial, strict=True)) and not any(pads)
    if whole and any(p.changed for p in spatial):
        size = text_of(kernel)
        raise Refused(node, f"its window {size} covers the old image; it may be a global pooling")


def demand_not_all(walk: Walk, node: ir.Node) -> None:
    """Refuse a TopK that returns all elements of an axis that has changed."""
    pairs, k = walk.pairs(node.inputs[0]), walk.fixed(node.inputs[1])
    if pairs is None or k is None:
        return
    pair = pairs[attribute(node, "axis", -1) % len(pairs)]
    if pair.changed and int(k.reshape(-1)[0]) == pair.old:
        raise Refused(node, f"it returns all {pair.old} elements of an axis that has changed")


def demand_scale(walk: Walk, node: ir.Node) -> None:
    """Refuse a sum that is divided by the old number of its elements."""
    if node.op_type != "ReduceSum" or node.domain:
        return
    pairs, axes = walk.pairs(node.inputs[0]), known(optional(node, 1))
    if pairs is None:
        return
    chosen = range(len(pairs)) if axes is None or not axes.size else axes.reshape(-1).tolist()
    reduced = [pairs[int(a) % len(pairs)] for a in chosen]
    count = math.prod(p.old for p in reduced)
    if count == 1 or not any(p.changed for p in reduced):
        return
    for user in (use.node for use in node.outputs[0].uses()):
        factors = [walk.fixed(v) for v in user.inputs if v is not node.outputs[0]]
        for factor in (f for f in factors if f is not None and f.size == 1):
            number = abs(float(factor.reshape(-1)[0]))
            if (
                user.op_type in ("Mul", "Div")
                and number
                and (math.isclose(number * count, 1, rel_tol=1e-3) or number == count)
            ):
                raise Refused(user, f"it divides by {count}, the number of elements before")


def demand_scale_of_axis(walk: Walk, node: ir.Node) -> None:
    """Refuse scales for each element of an axis that has changed."""
    pairs, scale = walk.pairs(node.inputs[0]), shape_of(node.inputs[1])
    if pairs is None or scale is None or math.prod(scale) == 1:
        return
    layers = node.op_type == "LayerNormalization"
    axis = attribute(node, "axis", -1 if layers else 1) % len(pairs)
    if any(p.changed for p in (pairs[axis:] if layers else pairs[axis : axis + 1])):
        raise Refused(node, f"it has a constant for each of {pairs[axis].old} elements")


def demand_no_size_as_number(walk: Walk, node: ir.Node) -> None:
    """Refuse arithmetic with a constant that may be an old size of the input: coordinates are
    divided by the size of the image, or limited to it.
    """
    if node.op_type not in _ARITHMETIC or node.domain:
        return
    for value in node.inputs:
        array = walk.fixed(value)
        if array is None or array.dtype.kind not in "fiu" or array.size > _FEW_NUMBERS:
            continue
        for number in np.abs(array.reshape(-1).astype(float)):
            size = next((n for n in walk.sizes if _is_of_size(number, n)), None)
            if size is not None:
                reason = f"it computes with {number:g}, which may come from the size {size}"
                raise Refused(node, reason)


def _is_of_size(number: float, size: int) -> bool:
    """Return whether a number is a size, its last index, or the reciprocal of either."""
    return number in (size, size - 1) or (
        0 < number < 1 and any(math.isclose(number * n, 1, rel_tol=1e-6) for n in (size, size - 1))
    )


def demand_no_traces(walk: Walk, node: ir.Node) -> None:
    """Refuse operands that may have come from the old sizes."""
    changed = {p.old for v in node.inputs for p in walk.pairs(v) or () if p.changed} - {1}
    for value in node.inputs:
        pairs = walk.pairs(value)
        if value is None or pairs is None or walk.changed(value):
            continue
        numbers = walk.fixed(value)
        small = numbers is not None and numbers.dtype.kind in "iu" and numbers.size <= _FEW_NUMBERS
        traces = [p.old for p in pairs if p.old in changed]
        if numbers is not None and small:
            traces += [int(n) for n in numbers.reshape(-1) if n in changed]
        if traces:
            reason = f"an operand has {traces[0]} elements or this number, as the data had"
            raise Refused(node, reason)
    for name, number in _numbers(node):
        if number in changed:
            raise Refused(node, f"its {name} has the number {number}, as the data had elements")


def _numbers(node: ir.Node) -> Iterator[tuple[str, int]]:
    """Yield the integers of the attributes of a node that may be sizes."""
    for name, value in attrs_of(node).items():
        if name not in ("axis", "axes", "dtype", "to"):
            for number in value if isinstance(value, list | tuple) else [value]:
                if isinstance(number, int) and not isinstance(number, bool):
                    yield name, number


def demand_no_constants(walk: Walk, node: ir.Node) -> None:
    """Refuse constant indices, updates and sizes for data whose sizes have changed."""
    for value in node.inputs[1:]:
        if walk.fixed(value) is not None and (shape_of(value) or ()) != ():
            raise Refused(node, "it has constant operands, and data of another size")


def demand_same_padding(walk: Walk, node: ir.Node) -> None:
    """Refuse windows whose padding was computed from the old size, unless it is the same."""
    if not walk.by_declared or node.op_type not in _WINDOWS or node.domain == "netconv":
        return
    pairs = walk.pairs(node.inputs[0])
    strides = attribute(node, "strides", None)
    if pairs is None or strides is None:
        return
    spatial = pairs[1:-1] if node.domain else pairs[2:]
    for pair, stride in zip(spatial, strides, strict=True):
        if (pair.new - pair.old) % stride:
            reason = f"its padding may depend on the size; use one that is {pair.old} plus a "
            raise Refused(node, f"{reason}multiple of {stride}")


def demand_standard(walk: Walk, node: ir.Node) -> None:
    """Refuse operators of formats that declare all shapes: their attributes may have come from the
    old sizes.
    """
    if walk.by_declared and node.domain == EXTENSION_DOMAIN:
        raise Refused(node, f"the attributes of {node.op_type} may depend on the size")


CHECKS = (demand_scale, demand_no_size_as_number, demand_same_padding, demand_standard)
