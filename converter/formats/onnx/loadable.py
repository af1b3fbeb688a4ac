"""The form of a graph that onnxruntime, the main engine of ONNX files, loads with its default
options. The semantics stay the same.

Operators without a kernel are computed between Casts or by other operators (legalize.py), except
for operators of an ONNX source: these are unchanged. Quantized operators are written in a form that
its optimizer handles correctly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic
from converter.formats.onnx.legalize import inlined, legalize_node, narrowed
from converter.graph import REDUCTIONS
from converter.graph.build import Builder, attrs_of, builder_before
from converter.graph.extensions import can_expand, expand
from converter.graph.infer import constant, has_constant, set_type, shape_of
from converter.graph.names import Names, source_location
from converter.graph.value import operand, optional, producer_if, producer_operand
from converter.graph.walk import all_graphs, all_nodes, take_over
from converter.passes.decompositions import DECOMPOSITIONS
from converter.passes.legalize import rewritten

# other opsets had another Mod and other ways to specify no axis: an operator of the source may be
# loadable where opset 21's is not
_OTHER_OPSETS = frozenset({"Mod", *REDUCTIONS})
APART = "__"  # between an extension operator's name and the hash of its body
# the operators over which onnxruntime's optimizer carries a DequantizeLinear along
_CARRIED_OVER = ("MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")


def make_loadable(graph: ir.Graph, names: Names, notes: list[Diagnostic] | None = None) -> None:
    """Rewrite a graph and its subgraphs in place. Adds to `notes` the operators that are computed
    in a narrower type.
    """
    for inner in list(all_graphs(graph)):
        for node in list(inner):
            if node.domain:
                continue
            if node.op_type in _QUANTIZED:
                _QUANTIZED[node.op_type](node, names)
            if node.graph is not None and not _came_so(node) and not inlined(node.op_type):
                if notes is not None and (types := narrowed(node)):
                    message = f"onnxruntime has no kernel for {node.op_type} of {types}"
                    notes.append(Diagnostic("X205", message, "warning", source_location(node)))
                legalize_node(node, names)


def _came_so(node: ir.Node) -> bool:
    """Return whether an ONNX file was read with this very operator."""
    source = node.metadata_props
    return (
        node.op_type not in _OTHER_OPSETS
        and source.get("netconv.format") == "onnx"
        and source.get("netconv.type") == node.op_type
    )


def _average_pool(node: ir.Node, names: Names) -> None:
    """Remove dilations of 1 from AveragePool: onnxruntime's quantized AveragePool rejects the
    attribute, although it copies it from the operator.
    """
    if "dilations" not in node.attributes:
        return
    if set(node.attributes["dilations"].as_ints()) <= {1}:
        del node.attributes["dilations"]
    elif producer_if(node.inputs[0], "DequantizeLinear"):
        rewritten(node, names, DECOMPOSITIONS["", "AveragePool"])


def _depth_to_space(node: ir.Node, names: Names) -> None:
    """Protect signed bytes: the optimizer of old releases applies DepthToSpace to the bytes
    directly, for which there is only a kernel for unsigned ones.
    """
    if _int8(node.inputs[0]):
        rewritten(node, names, DECOMPOSITIONS["", "DepthToSpace"])


def _float_product(node: ir.Node, names: Names) -> None:
    """Protect products of floats with 8-bit weights: the optimizer of newer releases would quantize
    the floats dynamically, to 8 bits as well.
    """
    if not _came_so(node):
        rewritten(node, names, _product_apart)


def _product_apart(node: ir.Node, b: Builder) -> ir.Value | None:
    """before: MatMul(x, DequantizeLinear(weights))

    after, x of two axes:    Gemm(x, DequantizeLinear(weights transposed), transB=1)
    after, x of others:      MatMul(x, Unsqueeze(DequantizeLinear(weights), 0))
    """
    x, weights = operand(node), operand(node, 1)
    transpose = producer_if(weights, "Transpose")
    if transpose is not None and list(attrs_of(transpose).get("perm", [1, 0])) != [1, 0]:
        return None
    source = producer_if(weights if transpose is None else transpose.inputs[0], "DequantizeLinear")
    if source is None or x.shape is None or _from_bytes(x):
        return None
    stored, a = constant(source.inputs[0]), attrs_of(source)
    if source.graph is not node.graph:  # dequantized once, outside of a loop
        return None
    if stored is None or stored.ndim != 2 or stored.dtype.name not in ("int8", "uint8"):
        return None
    if a.get("block_size"):  # as in language models, whose engine is expected to do that
        return None
    if len(x.shape) != 2:
        y = x @ b.Unsqueeze(weights, [0])
        return b.Squeeze(y, [0]) if len(x.shape) == 1 else y
    if transpose is not None:
        return b.Gemm(x, source.outputs[0], transB=1)
    rows, axis = b.const(np.ascontiguousarray(stored.T)), 1 - int(a.get("axis", 1)) % 2
    return b.Gemm(x, b.DequantizeLinear(rows, *source.inputs[1:], axis=axis), transB=1)


def _from_bytes(value: ir.Value | None) -> bool:
    stored = producer_operand(value, "DequantizeLinear")
    return stored is not None and stored.dtype in (_T.INT8, _T.UINT8)


def _quantize(node: ir.Node, names: Names) -> None:
    """Remove `output_dtype`, which repeats the type of a zero point: the optimizer changes the one
    without the other.
    """
    if optional(node, 2) is not None:
        node.attributes.pop("output_dtype", None)


def _dequantize(node: ir.Node, names: Names) -> None:
    """Add the implied zero point 0: without it, the optimizer quantizes new values to unsigned
    bytes.
    """
    dtype, scale = operand(node).dtype, operand(node, 1)
    if dtype not in _NEED_POINT or optional(node, 2) is not None:
        return
    b, shape = builder_before(node, names), shape_of(scale)
    zero = np.zeros(shape or (), dtype.numpy())
    node.resize_inputs(3)
    point = b.Expand(zero, b.Shape(scale)) if shape is None else b.const(zero)
    node.replace_input_with(2, point)


_T = ir.DataType
_NEED_POINT = (_T.INT8, _T.INT16, _T.UINT16, _T.INT4, _T.UINT4)
_QUANTIZED = {
    "AveragePool": _average_pool,
    "DepthToSpace": _depth_to_space,
    "DequantizeLinear": _dequantize,
    "MatMul": _float_product,
    "QuantizeLinear": _quantize,
}


def pair_int8(model: ir.Model, names: Names) -> None:
    """Insert a pair of QuantizeLinear and DequantizeLinear after operators that move dequantized
    bytes, in place; the pair is exact, since the numbers are quantized already.

    before:  DequantizeLinear (int8) -> Transpose -> Conv
    after:   DequantizeLinear (int8) -> Transpose -> QuantizeLinear -> DequantizeLinear -> Conv

    onnxruntime's optimizer inserts this pair itself, but with an output type that contradicts the
    zero point that it adds later. It turns products of more than two axes and a bias into a Gemm
    between two Reshapes, and then adds such a pair; to prevent this, the bias gets the rank of the
    products.
    """
    nodes = all_nodes(model.graph)
    _expand_all([n for n in nodes if any(_int8(v) for v in n.inputs)], names)
    queue = deque(
        n for n in all_nodes(model.graph) if n.op_type == "DequantizeLinear" and _int8(n.outputs[0])
    )
    while queue:
        source = queue.popleft()
        _expand_all(source.outputs[0].consumers(), names)
        for user in source.outputs[0].consumers():
            if user.op_type == "MatMul" and user.domain == "":
                _widen_bias(user, names)
        movers = {
            u.node: None
            for u in source.outputs[0].uses()
            if u.node.op_type in _CARRIED_OVER and u.node.domain == "" and u.idx == 0
        }
        for mover in movers:
            if mover.graph is source.graph and (made := _pair(mover, source, names)) is not None:
                queue.append(made)


def _expand_all(nodes: Iterable[ir.Node], names: Names) -> None:
    """Replace extension operators by their definitions, which may begin with an operator that moves
    data.
    """
    for node in nodes:
        if can_expand(node):
            expand(node, names)


def name_apart(model: ir.Model) -> None:
    """Rename functions that are overloads of one name, of which old releases of onnxruntime see
    only one: all but the first get separate names, in place.
    """
    first: dict[tuple[str, str], str] = {}
    for domain, name, overload in sorted(model.functions):
        first.setdefault((domain, name), overload)
    for key, function in list(model.functions.items()):
        if first[key[0], key[1]] != key[2]:
            del model.functions[key]
            function.name = f"{key[1]}{APART}{key[2]}"
            model.functions[function.identifier()] = function
    for node in all_nodes(model.graph):
        if node.overload and first.get((node.domain, node.op_type), node.overload) != node.overload:
            node.op_type += f"{APART}{node.overload}"


def _int8(value: ir.Value | None) -> bool:
    """Return whether a value is quantized from signed bytes, other than weights, by one scale and
    zero point.
    """
    node = producer_if(value, "DequantizeLinear")
    if node is None or optional(node, 2) is None:
        return False
    stored, scale = node.inputs[:2]
    signed = operand(node).dtype == _T.INT8
    return signed and not has_constant(stored) and shape_of(scale) in ((), (1,))


def _widen_bias(product: ir.Node, names: Names) -> None:
    """before: MatMul (n, m, k) + bias (k)    after: MatMul (n, m, k) + bias (1, 1, k)"""
    rank = len(shape_of(product.outputs[0]) or ())
    for use in product.outputs[0].uses():
        bias = use.node.inputs[1 - use.idx] if use.node.op_type == "Add" else None
        if rank > 2 and bias is not None and len(shape_of(bias) or ()) == 1:
            wide = _wide(builder_before(use.node, names), bias, rank)
            use.node.replace_input_with(1 - use.idx, wide)


def _wide(b: Builder, bias: ir.Value, rank: int) -> ir.Value:
    """Return a vector as the last axis of `rank` axes. A constant that is dequantized is given that
    shape itself: old releases would move the DequantizeLinear over an Unsqueeze.
    """
    source = producer_if(bias, "DequantizeLinear")
    array = None if source is None else constant(source.inputs[0])
    if source is None or array is None:
        return b.Unsqueeze(bias, list(range(rank - 1)))
    wide = b.const(array.reshape([1] * (rank - 1) + [-1]))
    return b.DequantizeLinear(wide, *source.inputs[1:], axis=rank - 1)


def _pair(mover: ir.Node, source: ir.Node, names: Names) -> ir.Node | None:
    """Return the new DequantizeLinear; None if only a QuantizeLinear reads the result."""
    moved, graph = mover.outputs[0], mover.graph
    assert isinstance(graph, ir.Graph)
    if not moved.is_graph_output() and all(
        u.node.op_type == "QuantizeLinear" and u.idx == 0 for u in moved.uses()
    ):
        return None
    origin = {k: v for k, v in mover.metadata_props.items() if k.startswith("netconv.")}

    def made(kind: str, x: ir.Value | None, dtype: ir.DataType | None) -> ir.Node:
        inputs = [x, *source.inputs[1:3]]
        node = ir.Node("", kind, inputs, num_outputs=1, metadata_props=dict(origin))
        set_type(node.outputs[0], dtype, moved.shape)
        return node

    quantize = made("QuantizeLinear", None, _T.INT8)
    stored = quantize.outputs[0]
    stored.name = names.fresh(f"{moved.name}_stored")
    dequantize = made("DequantizeLinear", stored, moved.dtype)
    real = dequantize.outputs[0]
    take_over(moved, real)
    quantize.replace_input_with(0, moved)
    moved.name, real.name = names.fresh(f"{moved.name}_moved"), moved.name
    real.metadata_props.update(moved.metadata_props)
    graph.insert_after(mover, [quantize, dequantize])
    return dequantize
