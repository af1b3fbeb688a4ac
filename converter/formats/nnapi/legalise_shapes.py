"""Ranks that NNAPI does not have: one spatial dimension becomes two, more than four dimensions are merged, loops of known length are unrolled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.nnapi.unroll import copied, unroll
from converter.graph.build import Builder, attrs_of, builder_before
from converter.graph.extensions import replace
from converter.graph.infer import constant, known, rank_of, shape_of
from converter.graph.names import Names
from converter.graph.walk import all_graphs
from converter.passes.fold import fold
from converter.passes.layout.rules import UNARY
from converter.passes.legalise import Rewrite
from converter.passes.tidy import tidy

MOST = 4


def prepare(model: ir.Model) -> None:
    """What is done once, whatever the level: loops unrolled, Transposes of high rank merged, chains of Reshapes shortened."""
    unroll(model)
    fold(model)
    names = Names(model)
    for graph in all_graphs(model.graph):
        for node in list(graph):
            if node.op_type == "Transpose" and node.domain == "" and (rank_of(node.outputs[0]) or 0) > MOST:
                merge_transpose(node, names)
    shorten_all(model)


def shorten_all(model: ir.Model) -> None:
    """Reshapes of Reshapes become one, so that a high rank between them goes."""
    names = Names(model)
    for graph in all_graphs(model.graph):
        for node in list(graph) * 2:
            if node.graph is not None and node.op_type in UNARY and node.domain == "" and (rank_of(node.outputs[0]) or 0) > MOST:
                before_reshape(node, names)
        for node in list(graph):
            if node.op_type in ("Reshape", "Flatten", "Squeeze", "Unsqueeze") and node.domain == "":
                shorten(node, names)
    tidy(model)


def merge_transpose(node: ir.Node, names: Names) -> None:
    """Axes that stay neighbours are one axis; those of length 1 are none."""
    x = node.inputs[0]
    shape = None if x is None else shape_of(x)
    if x is None or shape is None:
        return
    perm = [int(i) for i in attrs_of(node).get("perm", range(len(shape))[::-1]) if shape[i] != 1]
    runs: list[list[int]] = []
    kept = [i for i in range(len(shape)) if shape[i] != 1]
    for axis in perm:
        if runs and kept.index(axis) == kept.index(runs[-1][-1]) + 1:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    if not 0 < len(runs) <= MOST:
        return
    b = builder_before(node, names)
    order = sorted(runs)
    flat = b.op("Reshape", x, [int(np.prod([shape[i] for i in run])) for run in order])
    turned = b.op("Transpose", flat, perm=[order.index(run) for run in runs])
    replace(node, [b.op("Reshape", turned, list(shape_of(node.outputs[0]) or ()))], b)


def before_reshape(node: ir.Node, names: Names) -> None:
    """What works element by element works on the shape before a Reshape as well."""
    x, shape = node.inputs[0], shape_of(node.outputs[0])
    producer = None if x is None else x.producer()
    source = producer.inputs[0] if producer is not None and producer.op_type == "Reshape" and producer.domain == "" else None
    if source is not None and shape is not None and 0 < (rank_of(source) or 0) <= MOST and source.graph is node.graph:
        b = builder_before(node, names)
        y = b.op(node.op_type, source, *node.inputs[1:], **copied(node))
        replace(node, [b.op("Reshape", y, list(shape))], b)


def shorten(node: ir.Node, names: Names) -> None:
    """A reshape of a reshape is one."""
    x, shape = node.inputs[0], shape_of(node.outputs[0])
    producer = None if x is None else x.producer()
    if producer is None or shape is None or producer.domain or producer.op_type not in ("Reshape", "Flatten", "Squeeze", "Unsqueeze"):
        return
    if producer.graph is node.graph and producer.inputs[0] is not None:
        b = builder_before(node, names)
        replace(node, [b.op("Reshape", producer.inputs[0], list(shape))], b)


def two_spatial(node: ir.Node, b: Builder) -> ir.Value | None:
    """A window over one spatial dimension works on images of height 1."""
    x, target = node.inputs[0], shape_of(node.outputs[0])
    shape = None if x is None else shape_of(x)
    if x is None or shape is None or len(shape) != 3 or target is None or (len(node.outputs) > 1 and node.outputs[1].uses()):
        return None
    attributes: dict[str, Any] = {k: list(v) if isinstance(v, list | tuple) else v for k, v in attrs_of(node).items()}
    for name, one in (("kernel_shape", 1), ("strides", 1), ("dilations", 1), ("output_padding", 0)):
        if name in attributes:
            attributes[name] = [one, *attributes[name]]
    if "pads" in attributes:
        before, after = attributes["pads"]
        attributes["pads"] = [0, before, 0, after]
    if "output_shape" in attributes:
        attributes["output_shape"] = [1, *attributes["output_shape"]]
    image = b.op("Reshape", x, [shape[0], shape[1], 1, shape[2]])
    rest = [*node.inputs[1:]]
    if node.op_type in ("Conv", "ConvTranspose") and rest[0] is not None:
        rest[0] = with_height(b, rest[0])
    y = b.op(node.op_type, image, *rest, **attributes)
    return b.op("Reshape", y, list(target))


def with_height(b: Builder, w: ir.Value) -> ir.Value:
    array = constant(w)
    return b.const(array[:, :, None, :], str(w.name)) if array is not None else b.op("Unsqueeze", w, [2])


def resize(node: ir.Node, b: Builder) -> ir.Value | None:
    """One spatial dimension becomes two."""
    x, target = node.inputs[0], shape_of(node.outputs[0])
    shape = None if x is None else shape_of(x)
    a = attrs_of(node)
    if x is None or shape is None or target is None or len(shape) != 3 or a.get("axes") or a.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return None
    scales = node.inputs[2] if len(node.inputs) > 2 and node.inputs[2] is not None and shape_of(node.inputs[2]) != (0,) else None
    factors = None if scales is None else known(scales)
    if scales is not None and factors is None:
        return None
    image = b.op("Reshape", x, [shape[0], shape[1], 1, shape[2]])
    if factors is not None:
        y = b.op("Resize", image, None, np.array([*factors[:2], 1, factors[2]], np.float32), **copied(node))
    else:
        y = b.op("Resize", image, None, None, [target[0], target[1], 1, target[2]], **copied(node))
    return b.op("Reshape", y, list(target))


def matmul(node: ir.Node, b: Builder) -> ir.Value | None:
    """Vectors become matrices, operands get the same rank."""
    a, w = node.inputs
    shapes = [None if v is None else shape_of(v) for v in (a, w)]
    target = shape_of(node.outputs[0])
    if a is None or w is None or shapes[0] is None or shapes[1] is None or target is None:
        return None
    left = (1, *shapes[0]) if len(shapes[0]) == 1 else shapes[0]
    right = (*shapes[1], 1) if len(shapes[1]) == 1 else shapes[1]
    rank = max(len(left), len(right))
    if len(right) > 2:
        left, right = (1,) * (rank - len(left)) + left, (1,) * (rank - len(right)) + right
    if (left, right) == (shapes[0], shapes[1]):
        return None
    return b.op("Reshape", b.op("MatMul", reshaped(b, a, left), reshaped(b, w, right)), list(target))


def merged(node: ir.Node, b: Builder) -> ir.Value | None:
    """Elementwise operators and reductions of more than four dimensions: neighbours that are treated alike become one dimension."""
    out, values = shape_of(node.outputs[0]), list(node.inputs)
    reduction = node.op_type.startswith("Reduce")
    data = values[:1] if reduction else values
    shapes = [None if v is None else shape_of(v) for v in data]
    if out is None or any(s is None and v is not None for s, v in zip(shapes, data, strict=True)) or max(len(s or ()) for s in shapes) <= MOST:
        return None
    rank = max(len(s or ()) for s in shapes)
    full = [(1,) * (rank - len(s or ())) + tuple(s or ()) for s in shapes]
    axes = constant(values[1]) if reduction and len(values) > 1 and values[1] is not None else np.arange(rank) if reduction else np.array([], np.int64)
    if axes is None:
        return None
    gone = {int(a) % rank for a in axes.reshape(-1)}
    runs = alike([(*(s[i] == 1 for s in full), i in gone) for i in range(rank)], [max(s[i] for s in full) for i in range(rank)])
    if len(runs) > MOST:
        return one_by_one(node, b, sorted(gone)) if reduction else as_one_shape(node, b, out)
    if reduction and not any(run[0] in gone for run in runs):  # only axes of length 1: nothing to add up
        return None if data[0] is None else b.op("Reshape", data[0], list(out))
    sizes = [[int(np.prod([s[i] for i in run])) for run in runs] or [1] for s in full]
    flat = [None if v is None else v if shape_of(v) == () else reshaped(b, v, size) for v, size in zip(data, sizes, strict=True)]
    more: list[Any] = [[k for k, run in enumerate(runs) if run[0] in gone]] if reduction else []
    attributes: dict[str, Any] = {k: v for k, v in copied(node).items() if k not in ("keepdims", "noop_with_empty_axes")}
    if reduction:
        attributes["keepdims"] = 0
    y = b.op(node.op_type, *flat, *more, **attributes)
    return b.op("Reshape", y, list(out))


def one_by_one(node: ir.Node, b: Builder, axes: Sequence[int]) -> ir.Value | None:
    """One axis after the other, which gives the same for sums, means, products and extremes."""
    x, out = node.inputs[0], shape_of(node.outputs[0])
    if out is None:
        return None
    for axis in axes:
        x = b.op(node.op_type, x, [axis], keepdims=1)
    return None if x is None else b.op("Reshape", x, list(out))


def as_one_shape(node: ir.Node, b: Builder, out: Sequence[int]) -> ir.Value:
    """Operands that broadcast along too many axes are repeated first."""
    whole = [v if v is None or shape_of(v) == tuple(out) else b.op("Expand", v, list(out)) for v in node.inputs]
    return b.op(node.op_type, *whole, **copied(node))


def alike(kinds: list[tuple[bool, ...]], sizes: list[int]) -> list[list[int]]:
    """Neighbouring axes of one kind, axes of length 1 left out."""
    runs: list[list[int]] = []
    for i, kind in enumerate(kinds):
        if sizes[i] == 1:
            continue
        if runs and kinds[runs[-1][-1]] == kind:
            runs[-1].append(i)
        else:
            runs.append([i])
    return runs


def dilated_groups(node: ir.Node, b: Builder) -> ir.Value | None:
    """Dilations that an operation does not take, GROUPED_CONV_2D's and those of level 1 and 2, are zeros in the filter."""
    w, a = constant(node.inputs[1]), attrs_of(node)
    dilations = [int(d) for d in a.get("dilations", ())]
    if w is None or w.ndim != 4 or int(a.get("group", 1)) == 1 or all(d == 1 for d in dilations):
        return two_spatial(node, b)
    attributes = {k: v for k, v in a.items() if k not in ("dilations", "kernel_shape")}
    full = spread(w, dilations)
    return b.op("Conv", node.inputs[0], full, *node.inputs[2:], kernel_shape=list(full.shape[2:]), **attributes)


def spread(w: np.ndarray[Any, Any], dilations: Sequence[int]) -> np.ndarray[Any, Any]:
    """A filter [.., .., kh, kw] with dilations - 1 zeros between its elements."""
    (kh, kw), (dh, dw) = w.shape[2:], dilations
    full = np.zeros((*w.shape[:2], (kh - 1) * dh + 1, (kw - 1) * dw + 1), w.dtype)
    full[:, :, ::dh, ::dw] = w
    return full


def reshaped(b: Builder, value: ir.Value, shape: Sequence[int]) -> ir.Value:
    array = constant(value)
    if array is not None:
        return b.const(array.reshape(shape), str(value.name))
    return value if shape_of(value) == tuple(shape) else b.op("Reshape", value, list(shape))


def grouped_transpose(node: ir.Node, b: Builder) -> ir.Value | None:
    """Groups and dilations of a transposed convolution are zeros in its filter."""
    w = constant(node.inputs[1])
    a = attrs_of(node)
    group, dilations = int(a.get("group", 1)), [int(d) for d in a.get("dilations", ())]
    if w is None or w.ndim != 4 or (group == 1 and all(d == 1 for d in dilations)):
        return two_spatial(node, b)
    depth, per_group, kh, kw = w.shape
    dense = np.zeros((depth, group * per_group, kh, kw), w.dtype)
    for g in range(group):
        rows = slice(g * depth // group, (g + 1) * depth // group)
        dense[rows, g * per_group : (g + 1) * per_group] = w[rows]
    full = spread(dense, dilations or (1, 1))
    attributes = {k: v for k, v in a.items() if k not in ("group", "dilations", "kernel_shape")}
    return b.op("ConvTranspose", node.inputs[0], full, *node.inputs[2:], kernel_shape=list(full.shape[2:]), **attributes)


RANK_FREE = (
    "Add", "Sub", "Mul", "Div", "Relu", "Clip", "Sigmoid", "Tanh", "Floor", "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd",
    "Max", "Min", "Pow", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "And", "Or", "PRelu",
)  # fmt: skip
SHAPES: dict[tuple[str, str], Rewrite] = {
    **{("", op): merged for op in RANK_FREE},
    ("", "Conv"): dilated_groups,
    **{("", op): two_spatial for op in ("MaxPool", "AveragePool", "InstanceNormalization", "LRN", "GlobalAveragePool", "GlobalMaxPool")},
    ("", "Resize"): resize, ("", "MatMul"): matmul, ("", "ConvTranspose"): grouped_transpose,
}  # fmt: skip
