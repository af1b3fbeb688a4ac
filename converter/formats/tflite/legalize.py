"""Legalization of a graph for TensorFlow Lite: operators, types, ranks and layout."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic
from converter.formats.tflite.kernels import kernels
from converter.formats.tflite.mapping import MAPPING
from converter.formats.tflite.rules.context import dims_of
from converter.formats.tflite.rules.recurrent import reason_against_lstm
from converter.graph.build import Builder, attributes, attrs_of, builder_before, same_attrs
from converter.graph.extensions import replace
from converter.graph.infer import constant, evaluate, known, rank_of, schema_of, shape_of
from converter.graph.names import Names, source_location, subject_of
from converter.graph.value import Value, operand, producer_if, producer_of
from converter.graph.walk import all_graphs, subgraphs
from converter.mapping.rules import Custom
from converter.passes.collapse_dims import with_fewer_axes
from converter.passes.decompositions.recurrent import looped
from converter.passes.fold import replace_by_constants
from converter.passes.indices import never_negative, one_hot
from converter.passes.legalize import Rewrite
from converter.passes.lite.functions import FUNCTIONS
from converter.passes.lite.images import grouped_transpose, resize, two_spatial
from converter.passes.lite.integers import product, reduced, relu, remainder, sign
from converter.passes.lite.picking import gather, top_k
from converter.passes.promote_types import parameter, promote_types
from converter.passes.promote_types import parameters as type_parameters
from converter.passes.split_directions import forward_alone
from converter.passes.unroll import LARGEST

D = ir.DataType
FEW = 256  # 4-bit constants, which are smaller than the result of their operator
MOST = 4  # axes that every kernel takes
TABLE = 1 << 20  # elements of the table by which the common decomposition scatters
INTEGERS = (D.INT8, D.UINT8, D.INT16, D.UINT16, D.INT32, D.UINT32, D.INT64, D.UINT64)


def decode_outputs(model: ir.Model) -> None:
    """Store constants that are dequantized into an output as real numbers, in place: LiteRT's
    delegate does not write the result of such a DEQUANTIZE.
    """
    names = Names(model)
    for out in list(model.graph.outputs):
        node = producer_if(out, "DequantizeLinear")
        if node is not None:
            arrays = [constant(v) for v in node.inputs]
            found = evaluate(node, arrays) if all(a is not None for a in arrays) else []
            if found:
                replace_by_constants(node, found, names)


def is_compact(node: ir.Node) -> bool:
    """Return whether 4-bit weights would become larger numbers; they stay packed in the file
    instead.
    """
    x = None if node.op_type != "Cast" or node.inputs[0] is None else node.inputs[0].const_value
    return x is not None and x.dtype in (D.INT4, D.UINT4) and x.size >= FEW


def countable(node: ir.Node) -> bool:
    """Return whether a loop of a known iteration count stacks outputs, which unrolled are a
    concatenation, or the condition of an If is known.
    """
    if node.op_type == "If":
        return known(node.inputs[0]) is not None
    trips = known(node.inputs[0]) if node.op_type == "Loop" else None
    body = next(subgraphs(node))
    stacks = len(node.outputs) > len(node.inputs) - 2
    most = LARGEST // max(1, len(body))
    return trips is not None and stacks and int(trips.reshape(-1)[0]) <= most


# types -------------------------------------------------------------------------------------------


def widen(model: ir.Model, notes: list[Diagnostic]) -> None:
    """Insert casts around operators whose types no kernel supports, in place.

    Returns a warning where 64-bit numbers that may be large are computed in 32 bits. Operators with
    a constant that does not fit into 32 bits are not changed, and are refused later.
    """
    names = Names(model)
    for graph in all_graphs(model.graph):
        for node in list(graph):
            for _ in range(2):  # unsigned numbers of 64 bits are signed ones first
                if (types := _types(node)) and not _too_large(node, types):
                    if not all(is_small(v) for v in node.inputs if v is not None):
                        notes.append(_narrowed(node))
                    promote_types(node, [types], names)


def keep_wide(model: ir.Model) -> None:
    """Rewrite operators of 64-bit integers that only have 32-bit kernels with operators that have
    64-bit kernels, in place, where possible.
    """
    names = Names(model)
    for graph in all_graphs(model.graph):
        for node in list(graph):
            rewrite = None if node.domain else WIDE.get(node.op_type)
            x = node.inputs[0] if rewrite is not None else None
            if rewrite is None or x is None or x.dtype != D.INT64:
                continue
            if all(is_small(v) for v in node.inputs if v is not None):
                continue
            b = builder_before(node, names)
            with b:
                result = rewrite(node, b)
            if isinstance(result, ir.Value):
                replace(node, [result], b)


def first_best_index(node: ir.Node, b: Builder) -> Value | None:
    """Return the index of the first element that equals the largest, or the smallest, of
    its row.
    """
    x, a = operand(node), attributes(node)
    if a["select_last_index"]:
        return None
    reduction = "ReduceMax" if node.op_type == "ArgMax" else "ReduceMin"
    found = b.operator(reduction)(x, [a["axis"]], keepdims=1)
    truths = b.Cast(b.Equal(x, found), to=D.INT32)
    return b.ArgMax(truths, axis=a["axis"], keepdims=a["keepdims"])


def by_divisor_that_fits(node: ir.Node, b: Builder) -> Value | None:
    """Clamp a divisor to 32 bits: one that wraps around to 0 would crash the process."""
    x, y = operand(node), operand(node, 1)
    bounded = producer_of(y)
    if known(y) is not None or is_small(y) or (bounded is not None and bounded.op_type == "Min"):
        return None
    low, high = (b.const(np.asarray(n, np.int64)) for n in (-(1 << 31), (1 << 31) - 1))
    return b.Div(x, b.Min(b.Max(y, low), high))


def truncated_remainder(node: ir.Node, b: Builder) -> Value | None:
    """Compute the remainder with the sign of the dividend from the one with the sign of the
    divisor.
    """
    x, y = operand(node), operand(node, 1)
    if not attributes(node)["fmod"]:
        return None
    rest = b.Mod(x, y)
    moved = ~b.Equal(rest, 0) & ((x < 0) ^ (y < 0))
    return b.Where(moved, rest - y, rest)


WIDE: dict[str, Rewrite] = {
    "Mod": truncated_remainder,
    "Abs": lambda node, b: b.Max(operand(node), b.Neg(operand(node))),
    "Sign": lambda node, b: b.Max(b.Min(operand(node), 1), -1),
    "Relu": lambda node, b: b.Max(operand(node), 0),
    **dict.fromkeys(("ArgMax", "ArgMin"), first_best_index),
    "Div": by_divisor_that_fits,
}


def _types(node: ir.Node) -> dict[str, set[D]]:
    """Return the types to use for the operands of `node`, by the type parameter of its schema;
    empty if the kernels support its own types.
    """
    entries = MAPPING.table.entries_for(node.op_type) if not node.domain else []
    schema = schema_of(node.op_type)
    if not entries or schema is None or node.op_type in ("Cast", *QUANTIZES):
        return {}
    position = DATA.get(node.op_type, 0)
    name = parameter(schema.inputs, position)
    own = type_parameters(node).get(name)
    if own is None or own.is_floating_point():
        return {}
    found: set[D] = set()
    for entry in entries:
        kinds = entry.kinds if isinstance(entry, Custom) else (entry.kind,)
        for kind in kinds:
            if kind in kernels():
                found |= kernels()[kind].types
    if own in found or not found:
        return {}
    whole = found.intersection(INTEGERS)
    if own == D.UINT64:  # a cast without effect
        return {name: {D.INT64}}
    return {name: whole or found}


def _too_large(node: ir.Node, types: dict[str, set[D]]) -> bool:
    """Return whether a constant does not fit into 32 bits, the maximum of all kernels."""
    schema = schema_of(node.op_type)
    return schema is not None and any(
        v is not None and known(v) is not None and not is_small(v)
        for i, v in enumerate(node.inputs)
        if D.INT64 not in types.get(parameter(schema.inputs, i), {D.INT64})
    )


def is_small(value: ir.Value, depth: int = 24) -> bool:
    """Return whether the numbers of a value fit into 32 bits, as far as their producers show:
    sizes, indices, and values computed from them.
    """
    if value.dtype not in (D.INT64, D.UINT64):
        return True
    array = known(value)
    if array is not None:
        return not array.size or -(1 << 31) <= int(array.min()) <= int(array.max()) < 1 << 31
    node = value.producer()
    if node is None or node.domain or depth == 0:
        return False
    if node.op_type in COUNTS:
        return True
    if node.op_type == "Cast" and node.inputs[0] is not None:
        return node.inputs[0].dtype in (D.BOOL, D.INT8, D.UINT8, D.INT16, D.UINT16, D.INT32)
    return all(is_small(v, depth - 1) for v in node.inputs if v is not None)


COUNTS = frozenset({"Shape", "Size", "ArgMax", "ArgMin", "NonZero", "TopK", "NonMaxSuppression"})


def _narrowed(node: ir.Node) -> Diagnostic:
    message = (
        f"{subject_of(node)} of 64-bit integers is computed in 32 bits: TensorFlow Lite "
        "has no wider kernel"
    )
    return Diagnostic("X205", message, "warning", where=source_location(node))


QUANTIZES = ("QuantizeLinear", "DequantizeLinear")
DATA = {"Where": 1, "ConstantOfShape": 9}  # input index of the data of an operator, if not 0


# rewrites ----------------------------------------------------------------------------------------


def on_last_axis(node: ir.Node, b: Builder) -> Value | None:
    """Transpose around Softmax and similar operators, which only support the last axis."""
    x, rank = operand(node), rank_of(operand(node))
    shape = shape_of(x)
    if rank is None or node.op_type not in LAST:
        return None
    attributes = same_attrs(node)
    axis = int(attrs_of(node).get("axis", -1)) % rank
    if axis == rank - 1:
        if rank <= MOST or shape is None or 0 in shape:
            return None
        rows = b.Reshape(x, [-1, shape[-1]])
        return b.Reshape(b.operator(node.op_type)(rows, **attributes), list(shape))
    order = list(range(rank))
    order[axis], order[-1] = order[-1], order[axis]
    transposed = b.Transpose(x, perm=order)
    y = b.operator(node.op_type)(transposed, **{**attributes, "axis": -1})
    return b.Transpose(y, perm=order)


LAST = ("Softmax", "LogSoftmax")


def norm_on_last_axis(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite an L2 normalization over one other axis as one over the last axis and Transposes."""
    x, rank = operand(node), rank_of(operand(node))
    axes = [int(a) for a in attrs_of(node)["axes"]]
    if rank is None or len(axes) != 1 or axes[0] % rank == rank - 1:
        return None
    order = list(range(rank))
    order[axes[0] % rank], order[-1] = order[-1], order[axes[0] % rank]
    y = b.NormalizeL2(b.Transpose(x, perm=order), **{**same_attrs(node), "axes": [-1]})
    return b.Transpose(y, perm=order)


def nonnegative_indices(node: ir.Node, b: Builder) -> Value | None:
    """Replace negative indices by indices that count from the front."""
    x, positions = operand(node), operand(node, 1)
    depth, batch = dims_of(positions)[-1], int(attrs_of(node).get("batch_dims", 0))
    if depth is None or known(positions) is not None or never_negative(positions) or batch:
        return None
    sizes = b.Shape(x)[:depth]
    whole = positions if positions.dtype == D.INT64 else b.Cast(positions, to=D.INT64)
    rows = b.Reshape(whole, [-1, depth])  # a comparison takes few axes
    front = b.Where(rows < 0, rows + sizes, rows)
    front = b.Reshape(front, b.Shape(whole))
    rest = [v for v in node.inputs[2:]]
    y: Value = b.operator(node.op_type)(x, front, *rest, **same_attrs(node))
    return y


def by_bits(node: ir.Node, b: Builder) -> Value | None:
    """Return whether bit k of both is set: the rest modulo 2^(k+1) is at least 2^k."""
    x, y = operand(node), operand(node, 1)
    if x.dtype is None or x.dtype.bitwidth > 32:
        return None
    ends = np.int64(2) ** np.arange(x.dtype.bitwidth)
    sides = []
    for v in (x, y):
        wide = b.Unsqueeze(b.Cast(v, to=D.INT64), [-1])
        sides.append(b.Not(b.Less(b.Mod(wide, 2 * ends), ends)))
    both = b.operator("And" if node.op_type == "BitwiseAnd" else "Or")(*sides)
    total = b.ReduceSum(b.Cast(both, to=D.INT64) * ends, [-1], keepdims=0)
    return b.Cast(total, to=x.dtype)


def all_bits(node: ir.Node, b: Builder) -> Value:
    """Rewrite BitwiseNot as BitwiseXor with ones in all bits."""
    x = operand(node)
    ones = -1 if x.dtype is not None and x.dtype.is_signed() else int((x.dtype or D.UINT8).max)
    return b.BitwiseXor(x, b.like(x, ones))


def elements(node: ir.Node, b: Builder) -> Value | None:
    """Convert indices along one axis of dynamic size to indices along all axes."""
    x, index, rank = operand(node), operand(node, 1), rank_of(operand(node, 1))
    sizes, counts = shape_of(x), shape_of(index)
    static = sizes is not None and counts is not None
    table = math.prod(sizes or ()) * math.prod(counts or ())
    if rank is None or (static and (node.op_type == "GatherElements" or table <= TABLE)):
        return None  # of known sizes the common decomposition is smaller
    axis, shape = int(attrs_of(node).get("axis", 0)) % rank, b.Shape(index)
    whole = index if index.dtype == D.INT64 else b.Cast(index, to=D.INT64)
    size = b.Gather(b.Shape(x), axis, axis=0)
    own = b.Where(b.Less(whole, 0), b.Add(whole, size), whole)
    columns = []
    for i in range(rank):
        if i != axis:
            count = b.Gather(shape, i, axis=0)
            line = [-1 if k == i else 1 for k in range(rank)]
            steps = b.Range(0, count, 1)
            columns.append(b.Unsqueeze(b.Expand(b.Reshape(steps, line), shape), [-1]))
        else:
            columns.append(b.Unsqueeze(own, [-1]))
    positions = columns[0] if rank == 1 else b.Concat(*columns, axis=-1)
    if node.op_type == "GatherElements":
        return b.GatherND(x, positions)
    reduction = attrs_of(node).get("reduction", "none")
    return b.ScatterND(x, positions, operand(node, 2), reduction=reduction)


def unsqueezed(node: ir.Node, b: Builder) -> Value | None:
    """Insert several axes one after the other."""
    axes, rank = known(node.inputs[1]), rank_of(operand(node))
    if axes is None or rank is None or axes.size < 2:
        return None
    x, total = operand(node), rank + axes.size
    for axis in sorted(int(a) % total for a in axes.reshape(-1)):
        x = b.Unsqueeze(x, [axis])
    return x


def lstm(node: ir.Node, b: Builder) -> Sequence[ir.Value] | None:
    """Write each direction as an operator that runs forward, or as a loop."""
    if reason_against_lstm(node):
        return looped(node, b)
    return forward_alone(node, b)


_OWN: dict[str, Rewrite] = {
    **{k: v for k, v in FUNCTIONS.items() if k not in ("Ceil", "Cos")},
    **dict.fromkeys(LAST, on_last_axis),
    **dict.fromkeys(("ReduceSum", "ReduceProd"), reduced),
    **dict.fromkeys(
        ("Conv", "MaxPool", "AveragePool", "InstanceNormalization", "LRN", "GlobalMaxPool"),
        two_spatial,
    ),
    "ConvTranspose": grouped_transpose,
    "Resize": resize,
    "Unsqueeze": unsqueezed,
    "Gather": gather,
    "TopK": top_k,
    "Relu": relu,
    "Sign": sign,
    "MatMul": product,
    "BitwiseAnd": by_bits,
    "BitwiseOr": by_bits,
    "BitwiseNot": all_bits,
    "Mod": remainder,
    "GatherND": nonnegative_indices,
    "ScatterND": nonnegative_indices,
    "OneHot": one_hot,
    "GatherElements": elements,
    "ScatterElements": elements,
    "LSTM": lstm,
    **dict.fromkeys(("GRU", "RNN"), looped),
}
REWRITES: dict[tuple[str, str], Rewrite] = {
    **with_fewer_axes({("", op): rewrite for op, rewrite in _OWN.items()}, MOST),
    ("netconv", "NormalizeL2"): norm_on_last_axis,
}
