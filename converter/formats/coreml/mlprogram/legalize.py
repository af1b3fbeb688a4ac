"""Rewrites of canonical operators for ML Programs that have no row and no equally good common
decomposition (`converter/passes/decompositions`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, reduce

import numpy as np
import onnx_ir as ir

from converter.formats.coreml.mlprogram.collector import COMPRESSED
from converter.formats.coreml.mlprogram.operations import takes
from converter.formats.coreml.mlprogram.rules import TABLE
from converter.graph.build import Builder, Value, attrs_of
from converter.graph.infer import constant, known, rank_of, schema_of, shape_of
from converter.graph.lazy_tensor import LazyTensor
from converter.mapping.rules import Rule
from converter.passes.computed_sizes import flatten, gathered_slice, shape, size
from converter.passes.constants import evaluate_constant
from converter.passes.decompositions import DECOMPOSITIONS
from converter.passes.decompositions.activations import power_of_one_type, x_of
from converter.passes.decompositions.bitwise import BITS, by_digits
from converter.passes.indices import cut_elements
from converter.passes.legalize import Rewrite, Rewrites
from converter.passes.promote_types import Signature, parameter, parameters, wider
from converter.passes.promote_types import takes as fits
from converter.passes.suppression import non_max_suppression
from converter.passes.transposed_windows import transposed

D = ir.DataType
TYPES = frozenset(
    {
        *(D.BOOL, D.FLOAT, D.FLOAT16, D.DOUBLE, D.BFLOAT16),
        *(D.INT8, D.INT16, D.INT32, D.INT64, D.UINT8, D.UINT16, D.UINT32, D.UINT64),
    }
)
_LAST = np.iinfo(np.int32).max


@cache
def kinds_of(op_type: str) -> list[str]:
    """Return the operations as which an operator of ONNX may be written."""
    found: list[str] = []
    for entry in TABLE.entries_for(op_type):
        found += [entry.kind] if isinstance(entry, Rule) else entry.kinds
    return found


def signature_of(op_type: str) -> Signature:
    """Return the types of the first operand that its operations support."""
    kinds, schema = kinds_of(op_type), schema_of(op_type)
    if schema is None or not kinds or op_type == "Cast":
        return {}
    index = 1 if op_type == "Where" else 0
    plain = [k for k in kinds if not k.startswith(COMPRESSED)]
    usable = {t for t in TYPES if any(takes(k, t) for k in plain)}
    return {parameter(schema.inputs, index): usable}


def in_other_types(node: ir.Node, b: Builder) -> list[ir.Value] | None:
    """Compute in a type that operations have, between Casts."""
    signature, schema = signature_of(node.op_type), schema_of(node.op_type)
    types = parameters(node)
    if schema is None or not signature or fits(signature, types):
        return None
    plan = wider(types, [signature])
    if plan is None:
        return None
    wanted = [plan.get(parameter(schema.inputs, i)) for i in range(len(node.inputs))]
    operands = [
        v if v is None or t is None else b.Cast(v, to=t)
        for v, t in zip(node.inputs, wanted, strict=True)
    ]
    results = b.ops(node.op_type, *operands, outputs=len(node.outputs), **attrs_of(node))
    return [
        b.Cast(y, to=old.dtype) if old.dtype is not None and y.dtype != old.dtype else y
        for y, old in zip(results, node.outputs, strict=True)
    ]


def div(node: ir.Node, b: Builder) -> Value | None:
    """Divide integers as ONNX does: divide the absolute values, round down, and restore the
    sign.
    """
    x, y = x_of(node), x_of(node, 1)
    if x.dtype is None or x.dtype.is_floating_point():
        return None
    if x.dtype not in (D.INT32, D.INT64):
        wide = (b.Cast(v, to=D.INT64) for v in (x, y))
        return b.Cast(b.Div(*wide), to=x.dtype)
    return b.FloorDiv(b.Abs(x), b.Abs(y)) * (b.Sign(x) * b.Sign(y))


def relu(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite Relu of integers as Max(x, 0)."""
    x = x_of(node)
    whole = x.dtype is not None and not x.dtype.is_floating_point()
    return b.Max(x, b.like(x, 0)) if whole else None


def clip(node: ir.Node, b: Builder) -> Value | None:
    """Clip integers by Max and Min."""
    x, rewrite = x_of(node), DECOMPOSITIONS["", "Clip"]
    whole = x.dtype is not None and not x.dtype.is_floating_point()
    return rewrite(node, b) if whole else None  # type: ignore[return-value]


def equal(node: ir.Node, b: Builder) -> Value | None:
    """Compare booleans as Not(Xor(a, b))."""
    x, y = x_of(node), x_of(node, 1)
    return ~(x ^ y) if x.dtype == D.BOOL else None


def remainder(node: ir.Node, b: Builder) -> Value | None:
    """Compute the remainder of integers with the sign of the dividend."""
    x, y = x_of(node), x_of(node, 1)
    if x.dtype is None or x.dtype.is_floating_point() or not attrs_of(node).get("fmod", 0):
        return None
    return x - y * b.Div(x, y)


def where(node: ir.Node, b: Builder) -> Value | None:
    """Expand condition and choices to the size of the result, since the operation does not
    broadcast.
    """
    out, operands = node.outputs[0], [x_of(node, i) for i in range(3)]
    sizes, wanted = [v.shape for v in operands], shape_of(out)
    if out.shape is None or all(n == out.shape for n in sizes):
        return None
    whole = next((v for v, n in zip(operands, sizes, strict=True) if n == out.shape), None)
    target: ir.Value
    if wanted is not None:
        target = b.const(np.array(wanted, np.int64))
    elif whole is not None:
        target = b.Shape(whole)
    elif all(n is not None for n in sizes):
        target = _largest(operands, len(out.shape), b)
    else:
        return None
    pairs = zip(operands, sizes, strict=True)
    return b.Where(*(v if n == out.shape else b.Expand(v, target) for v, n in pairs))


def _largest(operands: Sequence[Value], rank: int, b: Builder) -> Value:
    """Return the broadcast shape of operands of at most `rank` axes, none of which is empty."""
    found = []
    for value in operands:
        missing = rank - len(value.shape or ())
        ones = b.const(np.ones(missing, np.int64))
        own = [b.Shape(value)] if missing < rank else []
        found.append(b.Concat(*([ones] if missing else []), *own, axis=0))
    return reduce(b.Max, found)


def same_axes(node: ir.Node, b: Builder) -> Value | None:
    """Add or remove several axes of dynamic size: by a reshape to the operand's computed shape."""
    x, rank = x_of(node), rank_of(node.outputs[0])
    given, own = known([*node.inputs, None][1]), rank_of(x)
    if given is None or rank is None or own is None or node.op_type == "Flatten":
        return None
    more = node.op_type == "Unsqueeze"
    axes = {int(a) % (rank if more else own) for a in given}
    sizes, one = b.Shape(x), b.const([1])
    pieces = [sizes[i : i + 1] for i in range(own)]
    if more:
        left = iter(pieces)
        kept = [one if i in axes else next(left) for i in range(rank)]
    else:
        kept = [p for i, p in enumerate(pieces) if i not in axes]
    return b.Reshape(x, b.Concat(*kept, axis=0)) if len(kept) > 1 else None


def expand(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite an Expand to computed sizes as a product with ones, or an And with true."""
    x, sizes = x_of(node), node.inputs[1]
    if shape_of(node.outputs[0]) is not None and shape_of(x) is not None:
        return None
    kind = x.dtype or D.FLOAT
    one = ir.tensor(np.ones(1, kind.numpy()))
    ones = b.ConstantOfShape(sizes, value=one)
    return x & ones if kind == D.BOOL else x * ones


def _has_open_sizes(node: ir.Node) -> bool:
    """Return whether several, but not all, sizes of the result are dynamic: slice_by_index with
    computed bounds makes all dynamic, and a Reshape after it can restore all but one.
    """
    shape = node.outputs[0].shape
    count = 0 if shape is None else sum(not isinstance(n, int) for n in shape)
    return shape is not None and 1 < count < len(shape)


def slice_of_all(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite a Slice with computed bounds of some axes as one of all axes."""
    x, rank = x_of(node), rank_of(x_of(node))
    starts, ends, *more = node.inputs[1:]
    axes, steps = (known(v) for v in [*more, None, None][:2])
    if rank is None or starts is None or ends is None or (axes is None and more and more[0]):
        return None
    if constant(starts) is not None and constant(ends) is not None:
        return None
    own = list(range(rank)) if axes is None else [int(a) % rank for a in axes]
    if (more[1:] and more[1] is not None and steps is None) or _has_open_sizes(node):
        return gathered_slice(node, b, own)
    strides = [1] * len(own) if steps is None else [int(n) for n in steps]
    if min(strides) < 1:
        return gathered_slice(node, b, own)
    if own == list(range(rank)):
        return None
    whole = {"s": b.const([0]), "e": b.const([_LAST])}
    found = {}
    for key, value in (("s", starts), ("e", ends)):
        wide = b.Cast(value, to=D.INT64)
        pieces = [
            b.Slice(wide, [own.index(i)], [own.index(i) + 1], [0]) if i in own else whole[key]
            for i in range(rank)
        ]
        found[key] = b.Concat(*pieces, axis=0) if rank > 1 else pieces[0]
    line = [strides[own.index(i)] if i in own else 1 for i in range(rank)]
    return b.Slice(x, found["s"], found["e"], list(range(rank)), line)


def blocks_apart(node: ir.Node, b: Builder) -> Value | None:
    """Dequantize row by row where there is a scale for each block. before: DequantizeLinear of
    constants, with a scale for each block of an axis after: Concat of one DequantizeLinear for each
    row of scales
    """
    data, scale = x_of(node).const_value, evaluate_constant(node.inputs[1])
    zero, block = evaluate_constant([*node.inputs, None][2]), attrs_of(node).get("block_size", 0)
    if data is None or scale is None or not block or scale.ndim != len(data.shape):
        return None
    sizes = [int(n) for n in data.shape.numpy()]
    axis, rank = int(attrs_of(node).get("axis", 1)) % len(sizes), len(sizes)
    if sizes[axis] != scale.shape[axis] * block:
        return None
    apart = [*scale.shape[: axis + 1], block, *scale.shape[axis + 1 :]]
    order = [i for i in range(rank + 1) if i != axis + 1] + [axis + 1]
    lazy, rows = LazyTensor.of(data), [scale.size, block]
    stored = LazyTensor(
        lambda: lazy.numpy().reshape(apart).transpose(order).reshape(rows), data.dtype, rows
    )
    zeros = None if zero is None else zero.reshape(-1)
    y = b.DequantizeLinear(stored, scale.reshape(-1), zeros, axis=0)
    if axis < rank - 1:
        y = b.Reshape(y, [apart[i] for i in order])
        y = b.Transpose(y, perm=[int(i) for i in np.argsort(order)])
    return b.Reshape(y, sizes)


def dense_window(node: ir.Node, b: Builder) -> Value | None:
    """before: Conv(x, w[o, i, 3], dilations=[2]), w computed
    after:  Conv(x, w with zeros between its elements [o, i, 5])
    """
    weights, attrs = x_of(node, 1), attrs_of(node)
    shape, dilations = shape_of(weights), list(attrs.get("dilations") or ())
    if shape is None or weights.dtype is None or all(d == 1 for d in dilations):
        return None
    sizes = list(shape)
    for axis, gap in enumerate(dilations, 2):
        if gap == 1 or sizes[axis] == 1:
            continue
        apart = [*sizes[: axis + 1], gap - 1, *sizes[axis + 1 :]]
        zeros = np.zeros(apart, weights.dtype.numpy())
        spread = b.Concat(b.Unsqueeze(weights, [axis + 1]), zeros, axis=axis + 1)
        sizes[axis] *= gap
        weights = b.Reshape(spread, sizes)
        sizes[axis] -= gap - 1
        weights = b.Slice(weights, [0], [sizes[axis]], [axis])
    attrs |= {"dilations": [1] * len(dilations), "kernel_shape": sizes[2:]}
    y: Value = b.Conv(x_of(node), weights, *node.inputs[2:], **attrs)
    return y


OWN: Rewrites = {
    ("", "Conv"): dense_window,
    ("", "DequantizeLinear"): blocks_apart,
    ("", "Where"): where,
    ("", "Mod"): remainder,
    ("", "Squeeze"): same_axes,
    ("", "Unsqueeze"): same_axes,
    ("", "Flatten"): flatten,
    ("", "Expand"): expand,
    ("", "Shape"): shape,
    ("", "Size"): size,
    ("", "Slice"): slice_of_all,
    ("", "NonMaxSuppression"): non_max_suppression,
    ("", "Div"): div,
    ("", "Pow"): power_of_one_type,
    ("", "Relu"): relu,
    ("", "Clip"): clip,
    ("", "Equal"): equal,
    ("", "ConvTranspose"): transposed,
    ("", "GatherElements"): cut_elements,
    **{("", name): by_digits for name in BITS},
}


def _with_common_rewrites(own: Rewrite | None) -> Rewrite:
    def rewrite(node: ir.Node, b: Builder) -> ir.Value | list[ir.Value | None] | None:
        found = None if own is None else own(node, b)
        return found if found is not None else in_other_types(node, b)  # type: ignore[return-value]

    return rewrite


REWRITES: Rewrites = {
    **OWN,
    **{
        ("", op): _with_common_rewrites(OWN.get(("", op)))
        for domain, op in TABLE.ops()
        if not domain
    },
}
