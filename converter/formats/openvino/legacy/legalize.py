"""Rewrites of canonical operators for legacy IR that have no row.

Other operators are left to the common decompositions and to the bodies of extension operators; each
rewrite states its advantage over them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.legacy.rules.context import into_convolution
from converter.formats.openvino.legacy.rules.convolution import fit_steps
from converter.formats.openvino.legacy.types import SMALL, kind_before
from converter.graph.build import Builder, Value, attrs_of
from converter.graph.infer import constant, known, shape_of
from converter.graph.sizes import arange, static
from converter.graph.value import array_type, operands
from converter.passes.decompositions.activations import is_float, x_of
from converter.passes.decompositions.bitwise import BITS, by_digits
from converter.passes.indices import one_hot
from converter.passes.legalize import Rewrites
from converter.passes.split_directions import split_directions

T = ir.DataType


def instance_normalization(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite InstanceNormalization with MVN: three layers instead of twelve."""
    x, scale, bias = operands(node, 3)
    shape = shape_of(x)
    if shape is None or len(shape) < 3:
        return None
    axes, epsilon = list(range(2, len(shape))), attrs_of(node).get("epsilon", 1e-5)
    y = b.MVN(x, axes=axes, normalize_variance=1, eps=epsilon, eps_mode="inside_sqrt")
    per_channel = [1, -1, *[1] * (len(shape) - 2)]
    return y * b.Reshape(scale, per_channel) + b.Reshape(bias, per_channel)


def mvn_of_lists(node: ir.Node, b: Builder) -> Value | None:
    """Reshape one spatial axis to an image with one row, which keeps the engine's own layer."""
    x, attrs, shape = x_of(node), attrs_of(node), shape_of(x_of(node))
    if shape is None or len(shape) != 3 or attrs.get("eps_mode", "inside_sqrt") != "inside_sqrt":
        return None
    axes = sorted(a % 3 for a in attrs["axes"])
    if axes not in ([2], [1, 2]):
        return None
    wide = b.Reshape(x, [*shape[:2], 1, shape[2]])
    y = b.MVN(wide, **{**attrs, "axes": [*axes[:-1], 2, 3]})
    return b.Reshape(y, list(shape))


def deconvolution(node: ir.Node, b: Builder) -> Value | None:
    """Add a second element, 0, to a widely dilated kernel of one element along each axis; the end
    of the result is cropped accordingly later.
    """
    weights, a = constant(node.inputs[1]), attrs_of(node)
    if weights is None or fit_steps(a.get("strides", [1]), weights.shape[2:]):
        return None
    axes = weights.ndim - 2
    before, behind = np.split(np.asarray(a.get("pads", [0] * 2 * axes)), 2)
    extra = np.asarray(a.get("output_padding", [0] * axes)) - 1
    a |= {"kernel_shape": [2] * axes, "dilations": [1] * axes}
    a |= {"output_padding": np.maximum(extra, 0).tolist()}
    a |= {"pads": [*before.tolist(), *(behind + np.maximum(-extra, 0)).tolist()]}
    wide = np.pad(weights, [(0, 0), (0, 0), *[(0, 1)] * axes])
    found: Value = b.ConvTranspose(node.inputs[0], wide, *node.inputs[2:], **a)
    return found


def mod_of_integers(node: ir.Node, b: Builder) -> Value | None:
    """The engine's remainder has the sign of x; no common decomposition computes it for integers.
    If the divisor has the other sign, the divisor is added, which cannot overflow.
    """
    x, y = x_of(node), x_of(node, 1)
    if is_float(x) or attrs_of(node).get("fmod"):
        return None
    rest = b.Mod(x, y, fmod=1)
    return b.Where((b.Min(rest, y) < 0) & (b.Max(rest, y) > 0), rest + y, rest)


def count_in_steps(node: ir.Node, b: Builder) -> Value | None:
    """Add an element to a Range, since the engine rounds the number of elements down and
    ONNX up.
    """
    (start, _, step), shape = operands(node, 3), shape_of(node.outputs[0])
    if shape is None:
        return None
    numbers: Value = arange(shape[0]).astype(array_type(start)) * step + start
    return numbers


def recurrent(node: ir.Node, b: Builder) -> Sequence[ir.Value] | None:
    """Rewrite a recurrent operator as a loop over the engine's cells, for any number of time steps;
    each direction separately.
    """
    attrs = attrs_of(node)
    x, w, r, bias, lengths, *states = operands(node, 8)
    shape = shape_of(x)
    if shape is None or attrs.get("layout") or states[2] is not None:
        return None
    if lengths is not None and ((found := known(lengths)) is None or (found != shape[0]).any()):
        return None
    direction = attrs.pop("direction", "forward")
    if direction == "bidirectional":
        return split_directions(node, b)
    backwards = direction == "reverse"
    if shape[0] == 1 and not backwards and lengths is None:
        return None
    count, hidden = (2 if node.op_type == "LSTM" else 1), (shape_of(r) or (0, 0, 0))[2]
    zeros = np.zeros((1, shape[1], hidden), np.float32)
    initial = [b.const(zeros, "state") if s is None else s for s in states[:count]]
    with b.loop(shape[0], *initial) as inner:
        place = shape[0] - 1 - inner.iteration if backwards else inner.iteration
        one = inner.Unsqueeze(inner.Gather(x, place, axis=0), [0])
        step = inner.operator(node.op_type)
        y, *ends = step(one, w, r, bias, None, *inner.states, outputs=1 + count, **attrs)
        *ended, y = inner.end(*ends, inner.Squeeze(y, [0]))
    return [y[::-1] if backwards else y, *ended]


def best_of_integers(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite ArgMax of integers, since the layer only supports floats: the best elements are those
    that equal the maximum.
    """
    x, attrs = x_of(node), attrs_of(node)
    if is_float(x):
        return None
    reduce = b.operator("ReduceMax" if node.op_type == "ArgMax" else "ReduceMin")
    best = b.Equal(x, reduce(x, [attrs.get("axis", 0)]))
    place: Value = b.ArgMax(b.Cast(best, to=T.FLOAT), **attrs)
    return place


def top_k(node: ir.Node, b: Builder) -> Sequence[Value | None] | None:
    """The layer selects the largest of floats; there is no common decomposition for several. The
    smallest are the largest of the negated data; the single best integer is the extreme.
    """
    x, count, attrs = x_of(node), node.inputs[1], attrs_of(node)
    used = [bool(o.uses()) or o.is_graph_output() for o in node.outputs]
    k = known(count)
    if not is_float(x) and not all(used) and k is not None and k.size == 1 and int(k.max()) == 1:
        axis, kind = attrs.get("axis", -1), "Max" if attrs.get("largest", 1) else "Min"
        return [b.operator(f"Reduce{kind}")(x, [axis]), b.operator(f"Arg{kind}")(x, axis=axis)]
    if not is_float(x):
        values, places = b.TopK(b.Cast(x, to=T.FLOAT), count, outputs=2, **attrs)
        return [b.Cast(values, to=x.dtype), places]
    if attrs.get("largest", 1):
        return None
    values, places = b.TopK(-x, count, outputs=2, **{**attrs, "largest": 1})
    return [-values if used[0] else None, places]


def bits(node: ir.Node, b: Builder) -> Value | None:
    """Compute bitwise operators digit by digit, since the engine's sums are exact up to 2^24 only.
    8-bit and 16-bit integers are computed as 32-bit ones, with as many digits as they need.
    """
    x = x_of(node)
    if x.dtype not in SMALL:
        return by_digits(node, b)
    wide = b.operator(node.op_type)(*(b.Cast(v, to=T.INT32) for v in node.inputs)).producer()
    assert wide is not None
    found = by_digits(wide, b, SMALL[x.dtype] // 4 + (not x.dtype.is_signed()))
    return None if found is None else b.Cast(found, to=x.dtype)


def of_integers(node: ir.Node, b: Builder) -> Value | None:
    """Refuse integers: the layers of these names, and their common decompositions, only support
    floats.
    """
    x, kind = x_of(node), node.op_type
    if is_float(x) or x.dtype is None:
        return None
    if kind == "Sign":
        most = b.Min(x, b.like(x, 1))
        return b.Max(most, b.like(x, -1)) if x.dtype.is_signed() else most
    if not x.dtype.is_signed():
        return b.Identity(x) if kind == "Abs" else None
    return 0 - x if kind == "Neg" else b.Max(x, 0 - x)


def unfit(node: ir.Node) -> bool:
    """Return whether the layer of that name is known, but unsuitable: it does not support integers,
    overflows (LogSoftmax is the logarithm of Softmax), or makes the engine compute in 8 bits.
    """
    x = node.inputs[0] if node.inputs else None
    if x is None or x.dtype is None or kind_before(node.outputs[0]):
        return False
    if (node.domain, node.op_type) == ("netconv", "FakeQuantize"):
        return constant(x) is not None
    return not node.domain and (
        node.op_type in ("ReduceLogSumExp", "LogSoftmax")
        or (node.op_type in ("Abs", "Neg", "Sign") and x.dtype.is_integer())
    )


def suppression_mask(node: ir.Node, b: Builder) -> Value:
    """Scatter the rows of indices that the layer returns into the mask."""
    boxes, scores, iou = operands(node, 3)
    batch, classes, count = size = static(scores, "the scores")
    total = math.prod(size)
    centered = attrs_of(node).get("center_point_box", 0)
    limits = [count], iou, np.array([np.finfo(np.float32).min], np.float32)
    rows = b.FixedNonMaxSuppression(
        boxes, scores, *limits, rows=total, center_point_box=centered, sort_result_descending=0
    )
    image, kind, box = (rows[:, i] for i in range(3))
    place = (image * classes + kind) * count + box
    index = b.Where(image < 0, total, place)  # those of no box are cut off
    marked = b.ScatterElements(
        np.zeros(total + 1, np.float32), index, np.ones(total, np.float32), axis=0
    )
    return b.Reshape(marked[:total], [batch, classes, count]) > 0.5


def quotient(node: ir.Node, b: Builder) -> Value | None:
    """Multiply by the reciprocal, whose layer does not compute the channels that the engine adds
    before a convolution.
    """
    x, y = operands(node, 2)
    return x * b.Reciprocal(y) if is_float(x) and into_convolution(node.outputs[0]) else None


REWRITES: Rewrites = {
    ("", "Div"): quotient,
    ("netconv", "SuppressionMask"): suppression_mask,
    ("netconv", "MVN"): mvn_of_lists,
    ("", "OneHot"): one_hot,  # the layer does not count from the end
    ("", "InstanceNormalization"): instance_normalization,
    ("", "Mod"): mod_of_integers,
    ("", "Range"): count_in_steps,
    ("", "TopK"): top_k,
    **{("", name): recurrent for name in ("LSTM", "GRU", "RNN")},
    **{("", name): best_of_integers for name in ("ArgMax", "ArgMin")},
    **{("", name): bits for name in BITS},
    **{("", name): of_integers for name in ("Abs", "Neg", "Sign")},
    ("", "ConvTranspose"): deconvolution,
}
