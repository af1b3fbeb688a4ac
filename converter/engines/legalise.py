"""Casts around operators that onnxruntime has no kernel for in the graph's own types. The canonical graph is never touched."""

from __future__ import annotations

import onnx_ir as ir

from converter.graph.build import Builder, builder_before
from converter.graph.names import Names
from converter.graph.walk import all_graphs

T = ir.DataType
# operator -> {type without a CPU kernel: type to compute in}; measured on onnxruntime 1.31
_NARROW = {T.INT8: T.INT32, T.INT16: T.INT32, T.UINT8: T.INT32, T.UINT16: T.INT32, T.UINT32: T.INT64, T.UINT64: T.INT64}
NO_KERNEL: dict[str, dict[ir.DataType, ir.DataType]] = {
    "*": {T.BFLOAT16: T.FLOAT, T.FLOAT8E4M3FN: T.FLOAT, T.FLOAT8E5M2: T.FLOAT},
}
_ANY_TYPE = {"Cast", "Identity", "Constant", "DequantizeLinear", "QuantizeLinear", "If", "Loop", "Shape", "Reshape", "Squeeze", "Unsqueeze", "Flatten"}


def legalise_for_onnxruntime(model: ir.Model) -> None:
    """Wraps each unsupported (operator, type) in Casts, in place; function bodies included."""
    names = Names(model)
    for graph in all_graphs(model.graph):
        for node in list(graph):
            table = {**NO_KERNEL["*"], **NO_KERNEL.get(node.op_type, {})}
            if node.domain == "" and node.op_type not in _ANY_TYPE and any(v is not None and v.dtype in table for v in node.inputs):
                _wrap(node, table, builder_before(node, names))


def _wrap(node: ir.Node, table: dict[ir.DataType, ir.DataType], b: Builder) -> None:
    for i, v in enumerate(node.inputs):
        if v is not None and v.dtype in table:
            node.replace_input_with(i, b.op("Cast", v, to=int(table[v.dtype])))
    for out in node.outputs:
        if out.dtype in table:
            narrow, wide = out.dtype, table[out.dtype]
            assert isinstance(node.graph, ir.Graph)
            after = Builder(node.graph, b.names)
            out.type = ir.TensorType(wide)
            cast = ir.Node("", "Cast", [out], [ir.AttrInt64("to", int(narrow))], num_outputs=1)
            cast.outputs[0].name, cast.outputs[0].type, cast.outputs[0].shape = after.names.fresh(f"{out.name}_cast"), ir.TensorType(narrow), out.shape
            out.replace_all_uses_with(cast.outputs[0], replace_graph_outputs=True)
            cast.replace_input_with(0, out)
            node.graph.insert_after(node, cast)
