"""Makes a graph executable by onnxruntime's CPU kernels. It works on a copy: the canonical graph is
never touched.

Definitions of extension operators are written out, so every node has types. Where no kernel takes a
node's types, the node computes in wider ones between Casts; inputs and outputs of types that cannot
be fed are fed as wider ones.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.onnx.onnxruntime_kernels import Kernel, kernels
from converter.graph import REDUCTIONS
from converter.graph.build import Builder, attrs_of
from converter.graph.extensions import can_expand, expand
from converter.graph.infer import constant, known, rank_of, schema_of, shape_of
from converter.graph.names import Names, make_node_names_unique
from converter.graph.value import operand, optional, producer_if
from converter.graph.walk import all_graphs, all_nodes
from converter.passes.decompositions import DECOMPOSITIONS
from converter.passes.decompositions.reductions import each_alone, reduces_nothing
from converter.passes.fold import fold
from converter.passes.legalize import onnx_function, rewritten
from converter.passes.promote_types import (
    FLOAT8,
    NARROWER,
    parameters,
    parameters_among,
    promote_types,
    tensor_types,
    wider,
)

_T = ir.DataType
Written = ir.Value | Sequence[ir.Value | None] | None
# types that cannot pass through the Python interface -> types that are fed and returned instead
BOUNDARY = {
    _T.BFLOAT16: _T.FLOAT,
    **dict.fromkeys(FLOAT8, _T.FLOAT),
    _T.INT4: _T.INT8,
    _T.UINT4: _T.UINT8,
}


def legalize_for_onnxruntime(model: ir.Model) -> None:
    """Legalize a model in place; afterwards it has no functions and no extension operator with a
    definition.
    """
    if any(
        n.op_type == "If" for n in all_nodes(model.graph)
    ):  # determining a condition, and inlining the branch, can crash onnxruntime
        from converter.passes.unroll import unroll

        fold(model)
        unroll(model, lambda n: n.op_type == "If")
    names = Names(model)
    while pending := [n for n in all_nodes(model.graph) if can_expand(n)]:
        for node in pending:
            expand(node, names)
    for graph in list(all_graphs(model.graph)):
        for node in list(graph):
            if node.domain == "":
                legalize_node(node, names)
    _boundary(model.graph, names)
    make_node_names_unique(model)


def legalize_node(node: ir.Node, names: Names) -> None:
    """Rewrite one ONNX operator in place, and the resulting operators, until a kernel exists or no
    rewrite is known.
    """
    table = kernels().get(node.op_type)
    rewrite = DEVIATING.get(node.op_type) or (_without_kernel if table is None else None)
    if rewrite is not None and (made := rewritten(node, names, rewrite)):
        for inner in made:
            legalize_node(inner, names)
    elif table is not None and not _has_kernel(*_types(node)):
        promote_types(node, table, names)


def narrowed(node: ir.Node) -> str:
    """Return, as text, the types that onnxruntime computes in narrower ones, since it has no
    kernel; "" if it computes in the node's own types.
    """
    kind, inputs, outputs = _types(node)
    if _has_kernel(kind, inputs, outputs):
        return ""
    types = parameters(node)
    plan = wider(types, kernels()[kind])
    return ", ".join(
        sorted({types[p].name for p, w in (plan or {}).items() if (types[p], w) in NARROWER})
    )


Types = tuple[ir.DataType | None, ...]


def _types(node: ir.Node) -> tuple[str, Types, Types]:
    return node.op_type, tensor_types(node.inputs), tensor_types(node.outputs)


@functools.lru_cache(4096)
def _has_kernel(kind: str, inputs: Types, outputs: Types) -> bool:
    """Return whether a kernel supports these types, or nothing is known of the operator."""
    table = kernels().get(kind)
    if table is None:
        return True
    types = parameters_among(schema_of(kind), inputs, outputs)
    return any(_takes(k, types) for k in table)


@functools.lru_cache(512)
def inlined(kind: str) -> bool:
    """Return whether onnxruntime has no kernel for an operator and inlines the function that its
    schema defines.
    """
    schema: Any = schema_of(kind)
    return (
        kind not in kernels()
        and schema is not None
        and (schema.has_function or schema.has_context_dependent_function)
    )


def _without_kernel(node: ir.Node, b: Builder) -> Written:
    if inlined(node.op_type):
        return onnx_function(node, b)
    decomposition = DECOMPOSITIONS.get(("", node.op_type))
    return None if decomposition is None else decomposition(node, b)


def _takes(kernel: Kernel, types: dict[str, ir.DataType]) -> bool:
    """Return whether a kernel supports the types. float16 counts as supported: onnxruntime computes
    it in float32 itself, with fewer roundings than Casts around each node would cause.
    """
    return all(
        t in kernel[p] or (t == _T.FLOAT16 and _T.FLOAT in kernel[p])
        for p, t in types.items()
        if p in kernel
    )


def _boundary(graph: ir.Graph, names: Names) -> None:
    for value in graph.inputs:
        target = _fed_as(value)
        if target is None or value.dtype is None:
            continue
        cast = ir.Node("", "Cast", [value], [ir.AttrInt64("to", int(value.dtype))], num_outputs=1)
        inner = cast.outputs[0]
        inner.name = names.fresh(f"{value.name}_stored")
        inner.type, inner.shape = value.type, value.shape
        value.replace_all_uses_with(inner, replace_graph_outputs=True)
        cast.replace_input_with(0, value)
        value.type = ir.TensorType(target)
        graph.insert_before(graph[0], cast) if len(graph) else graph.append(cast)
    for i, value in enumerate(list(graph.outputs)):
        if (target := _fed_as(value)) is not None:
            graph.outputs[i] = Builder(graph, names).Cast(value, to=target)


def _fed_as(value: ir.Value) -> ir.DataType | None:
    """Return the type in which a tensor is fed or returned if its own type is not
    supported there.
    """
    return BOUNDARY.get(value.type.dtype) if isinstance(value.type, ir.TensorType) else None


# where a kernel deviates from the operator's specification


def _mod(node: ir.Node, b: Builder) -> ir.Value | None:
    """Compute Mod of floats with fmod=0, which onnxruntime rejects: the remainder with the
    divisor's sign, from fmod=1.
    """
    x, y = operand(node), operand(node, 1)
    real = x.dtype in (_T.FLOAT, _T.DOUBLE, _T.FLOAT16, _T.BFLOAT16)
    if attrs_of(node).get("fmod", 0) or not real:
        return None
    rest = b.Mod(x, y, fmod=1)
    other = ((rest < 0) ^ (y < 0)) & ~b.Equal(rest, b.like(x, 0))
    return b.Where(other, rest + y, rest)


def _pad_every_axis(node: ir.Node, b: Builder) -> ir.Value | None:
    """Pad without `axes`: when moving a Transpose past it, onnxruntime's optimizer treats the
    amounts as those of all axes.
    """
    if len(node.inputs) < 4:
        return None
    amounts, axes, rank = known(node.inputs[1]), known(node.inputs[3]), rank_of(operand(node))
    if amounts is None or axes is None or rank is None:
        return None
    every = np.zeros((2, rank), np.int64)
    every[:, axes.reshape(-1)] = amounts.reshape(2, -1)
    pads = b.const(every.reshape(-1), "pads")
    return b.op("Pad", node.inputs[0], pads, node.inputs[2], **attrs_of(node))


def _decomposed(node: ir.Node, b: Builder) -> Written:
    """Apply the decomposition for all targets."""
    return DECOMPOSITIONS[node.domain, node.op_type](node, b)


def _lrn(node: ir.Node, b: Builder) -> Written:
    """Rewrite LRN, whose kernel only supports odd windows and four axes."""
    if node.attributes["size"].as_int() % 2 == 0:
        return _decomposed(node, b)
    x = operand(node)
    rank = rank_of(x)
    if rank is None or rank == 4:
        return None
    flat = b.Reshape(x, [0, 0, -1, 1] if rank > 2 else [0, 0, 1, 1])
    return b.Reshape(b.op("LRN", flat, **attrs_of(node)), b.Shape(x))


def _mean_variance_normalization(node: ir.Node, b: Builder) -> Written:
    """Rewrite MeanVarianceNormalization, whose kernel omits the 1e-9 of the definition: constant
    data give 0 / 0.
    """
    return _decomposed(node, b)


def _matmul_of_vector(node: ir.Node, b: Builder) -> ir.Value | None:
    """Rewrite a MatMul with a vector: when fusing a Transpose into it, onnxruntime's optimizer
    treats a vector as a matrix.
    """
    x, y = operand(node), operand(node, 1)
    if rank_of(y) != 1 or rank_of(x) in (None, 1):
        return None
    return b.Squeeze(x @ b.Unsqueeze(y, [1]), [-1])


def _string_normalizer(node: ir.Node, b: Builder) -> None:
    """Replace the default locale en_US, which is not on every Linux, by C.UTF-8, which folds the
    same letters.
    """
    if "locale" not in node.attributes and sys.platform == "linux":
        node.attributes["locale"] = ir.AttrString("locale", "C.UTF-8")


# operator -> its two 8-bit operands and their zero points; the types that every release has a
# kernel for (None: that of the first operand)
_PRODUCTS: dict[str, tuple[tuple[int, int], tuple[int, int], ir.DataType | None]] = {
    "ConvInteger": ((0, 2), (1, 3), _T.UINT8),
    "MatMulInteger": ((0, 2), (1, 3), None),
    "QLinearConv": ((0, 2), (3, 5), None),
    "QLinearMatMul": ((0, 2), (3, 5), None),
}


def _of_one_sign(node: ir.Node, b: Builder) -> ir.Value | None:
    """Give both operands of a product of bytes the same sign. Processors without VNNI add products
    of unsigned and signed bytes in pairs, which saturate at 16 bits; bytes of one sign are
    multiplied exactly.
    """
    *operands, wanted = _PRODUCTS[node.op_type]
    first = node.inputs[0]
    target = wanted if wanted is not None or first is None else first.dtype
    inputs, changed = list(node.inputs), False
    for place, zero in operands:
        x = inputs[place]
        if x is None or target not in _MOVED or x.dtype not in _MOVED or x.dtype == target:
            continue
        inputs += [None] * (zero + 1 - len(inputs))
        point = inputs[zero] if inputs[zero] is not None else b.like(x, 0)
        inputs[place], inputs[zero], changed = _moved(b, x, target), _moved(b, point, target), True
    return b.op(node.op_type, *inputs, **attrs_of(node)) if changed else None


_MOVED = {_T.UINT8: 128, _T.INT8: -128}


def _moved(b: Builder, x: ir.Value | None, target: ir.DataType) -> ir.Value:
    """Return bytes in the type of the other sign, with 128 added or subtracted."""
    array = constant(x)
    if array is not None:
        return b.const((array.astype(np.int16) + _MOVED[target]).astype(target.numpy()))
    return b.Cast(b.Cast(x, to=_T.INT32) + _MOVED[target], to=target)


def _conv_integer(node: ir.Node, b: Builder) -> Written:
    """Rewrite ConvInteger, whose kernel only supports one zero point for all filters."""
    zero = optional(node, 3)
    return (
        _decomposed(node, b)
        if zero is not None and rank_of(zero) == 1 and shape_of(zero) != (1,)
        else _of_one_sign(node, b)
    )


def _reduction(node: ir.Node, b: Builder) -> ir.Value | None:
    """Rewrite a reduction over no axes, for which old kernels fail or reduce over all axes."""
    return each_alone(node, b) if reduces_nothing(node) else None


def _pool_of_uneven_margins(node: ir.Node, b: Builder) -> ir.Value | None:
    """Insert an explicit zero Pad before the pool: old kernels that count padding use the pads at
    the start also for the end.
    """
    x, a = operand(node), attrs_of(node)
    pads = np.array(a.pop("pads", [])).reshape(2, -1)
    counted = a.pop("count_include_pad", node.op_type == "LpPool")
    if not counted or a.get("ceil_mode", 0) or (pads[0] == pads[1]).all():
        return None
    return b.op(node.op_type, b.Pad(x, np.pad(pads, ((0, 0), (2, 0))).reshape(-1)), **a)


def _resize_of_last_axes(node: ir.Node, b: Builder) -> ir.Value | None:
    """Make axes that count from the end non-negative, since old kernels do not support them."""
    a, rank = attrs_of(node), rank_of(operand(node))
    axes = a.get("axes") or []
    if rank is None or all(i >= 0 for i in axes):
        return None
    return b.op("Resize", *node.inputs, **{**a, "axes": [i % rank for i in axes]})


def _largest_truth_of_nothing(node: ir.Node, b: Builder) -> ir.Value | None:
    """The kernel rejects an empty set of booleans."""
    x = operand(node)
    if reduces_nothing(node) or x.dtype != _T.BOOL or 0 not in (shape_of(x) or ()):
        return _reduction(node, b)
    small = b.op(node.op_type, b.Cast(x, to=_T.UINT8), *node.inputs[1:], **attrs_of(node))
    return b.Cast(small, to=_T.BOOL)


def _cos_of_doubles(node: ir.Node, b: Builder) -> ir.Value | None:
    """Compute Cos of doubles by Sin, which has a kernel for doubles in every release."""
    x = operand(node)
    return b.Sin(x + (np.pi / 2)) if x.dtype == _T.DOUBLE else None


def _reversed_nothing(node: ir.Node, b: Builder) -> ir.Value | None:
    """Clamp lengths to 1, which does not change the result: old kernels skip sequences of
    length 0.
    """
    lengths = operand(node, 1)
    array = known(lengths)
    if (array is not None and array.all()) or producer_if(lengths, "Max") is not None:
        return None
    return b.op("ReverseSequence", node.inputs[0], b.Max(lengths, 1), **attrs_of(node))


def _choice_of_truths(node: ir.Node, b: Builder) -> ir.Value | None:
    """Rewrite a Where of booleans, which has no kernel, as a logical expression."""
    condition, x, y = (operand(node, i) for i in range(3))
    return (condition & x) | (~condition & y) if x.dtype == _T.BOOL else None


def _unpool_to_a_size(node: ir.Node, b: Builder) -> Written:
    """Rewrite MaxUnpool with a given size, since the kernel interprets the indices as those of the
    larger result.
    """
    return _decomposed(node, b) if len(node.inputs) > 2 else None


def _max_pool_of_wide_margins(node: ir.Node, b: Builder) -> ir.Value | None:
    """Pad before a MaxPool whose padding is as large as the window, which the kernel rejects; a
    dilated window may extend that far.
    """
    x, a = operand(node), attrs_of(node)
    real = x.dtype in (_T.FLOAT, _T.DOUBLE, _T.FLOAT16)
    if not real or len(node.outputs) > 1 or "pads" not in a:
        return None
    window = np.array(a["kernel_shape"] * 2)
    inner = np.minimum(a["pads"], window - 1)
    outer = (np.array(a["pads"]) - inner).reshape(2, -1)
    if not outer.any():
        return None
    wide = b.Pad(x, np.pad(outer, ((0, 0), (2, 0))).reshape(-1), b.like(x, -np.inf))
    return b.op("MaxPool", wide, **{**a, "pads": inner.tolist()})


DEVIATING: dict[str, Callable[[ir.Node, Builder], Written]] = {
    **dict.fromkeys(("AveragePool", "LpPool"), _pool_of_uneven_margins),
    "ConvInteger": _conv_integer,
    "Cos": _cos_of_doubles,
    "LRN": _lrn,
    "MatMul": _matmul_of_vector,
    "MatMulInteger": _of_one_sign,
    "MaxPool": _max_pool_of_wide_margins,
    "MaxUnpool": _unpool_to_a_size,
    "MeanVarianceNormalization": _mean_variance_normalization,
    "Mod": _mod,
    "Pad": _pad_every_axis,
    "QLinearConv": _of_one_sign,
    "QLinearMatMul": _of_one_sign,
    **dict.fromkeys(REDUCTIONS, _reduction),
    "ReduceMax": _largest_truth_of_nothing,
    "Resize": _resize_of_last_axes,
    "ReverseSequence": _reversed_nothing,
    "StringNormalizer": _string_normalizer,
    "Where": _choice_of_truths,
}
