"""Replace values that are known without running the network by constants.

before:  s = Shape(x[1,3,8,8]); n = Gather(s, 0); y = Reshape(x, Concat(n, -1))
after:   y = Reshape(x, [1, -1])
before:  n = Gather(Shape(NonZero(x[8])), 1)
after:   n = ReduceSum(x != 0)

Shape arithmetic is known from inference. Other nodes with constant inputs are computed up to
`limit` output elements, or at any size if the result is a view of the constant. Weights after a
DequantizeLinear stay compact even if they are reshaped or transposed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from converter.graph import SAME_ELEMENTS
from converter.graph.build import attributes, attrs_of, builder_before
from converter.graph.extensions import replace
from converter.graph.infer import RANDOM, constant, evaluate, known, rank_of, shape_of
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.names import Names
from converter.graph.value import operand, optional, producer_if
from converter.graph.walk import all_graphs, is_needed, set_inputs, subgraphs, take_over
from converter.passes.dead_code import remove_dead_code
from converter.passes.pipeline import Context, Pass

_KEEP = {"DequantizeLinear", "QuantizeLinear", *RANDOM}

_BOOL, _LONG = ir.DataType.BOOL, ir.DataType.INT64
_MEASURES = {"Shape", "Size"}
_SCATTERS = {"ScatterND", "ScatterElements"}
_LAYOUTS = SAME_ELEMENTS | {"Transpose"}


def fold(
    model: ir.Model, limit: int = 1 << 20, keep: Callable[[ir.Node], bool] = lambda node: False
) -> None:
    """Fold in place, except nodes for which `keep` is true (compact weights, for example)."""
    names = Names(model)
    compact: set[ir.Value] = set()
    for graph in all_graphs(model.graph):
        for node in list(graph):
            op_type = "" if node.domain else node.op_type
            if op_type == "Concat":
                _leave_out_empty(node)
            if op_type == "Shape" and _count(node, names):
                continue
            if op_type == "Reshape" and "allowzero" in node.attributes:
                sizes = known(optional(node, 1))
                if sizes is not None and sizes.all():  # targets may interpret a 0 differently
                    node.attributes.pop("allowzero")
            if _changes_nothing(node, op_type) and not keep(node):
                replace(node, [operand(node)], builder_before(node, names))
                continue
            if (
                node.op_type == "DequantizeLinear"
                or (node.op_type == "Cast" and keep(node))
                or (node.op_type not in _MEASURES and any(v in compact for v in node.inputs))
            ):
                compact.update(node.outputs)
                continue
            if (
                op_type in _SCATTERS
                and _empty(node.inputs[1])
                and not node.outputs[0].is_graph_output()
            ):
                node.outputs[0].replace_all_uses_with(node.inputs[0])  # type: ignore[arg-type]
            if (
                node.op_type in _KEEP
                or keep(node)
                or any(subgraphs(node))
                or not any(is_needed(o) for o in node.outputs)
            ):
                continue
            arrays = _values(node, limit)
            if arrays is not None:
                replace_by_constants(node, arrays, names)
    remove_dead_code(model)


def _empty(value: ir.Value | None) -> bool:
    return value is not None and value.shape is not None and 0 in list(value.shape)


def _changes_nothing(node: ir.Node, op_type: str) -> bool:
    """Return whether a node transposes fewer than two axes or inserts none, which some engines
    reject.
    """
    if op_type == "Unsqueeze":
        return shape_of(node.inputs[1]) == (0,)
    return op_type == "Transpose" and rank_of(node.inputs[0]) in (0, 1)


def _leave_out_empty(node: ir.Node) -> None:
    """Remove operands without elements, which exporters create (x[:0]) and few targets support."""
    kept = [v for v in node.inputs if not _empty(v)]
    if 0 < len(kept) < len(node.inputs):
        set_inputs(node, kept)


def _count(node: ir.Node, names: Names) -> bool:
    """Replace Shape(NonZero(x)), which is [rank, count], by a sum: static targets have no
    NonZero.
    """
    made = producer_if(node.inputs[0], "NonZero")
    x = None if made is None else operand(made)
    if x is None or x.shape is None:
        return False
    b = builder_before(node, names)
    a = attributes(node)
    with b:
        ones = b.Cast(x if x.dtype == _BOOL else b.Cast(x, to=_BOOL), to=_LONG)
        shape = b.Concat([len(x.shape)], b.Reshape(b.ReduceSum(ones, keepdims=0), [1]), axis=0)
        replace(node, [shape[a["start"] : a.get("end", 2)]], b)
    return True


def _stored(node: ir.Node) -> ir.TensorProtocol | None:
    """Return the first operand if it is a constant."""
    first = optional(node, 0)
    return None if first is None else first.const_value


def _moved(node: ir.Node) -> LazyTensor | None:
    """Return a lazy constant in another shape or order, which is still computed on use."""
    x = _stored(node)
    if node.op_type not in _LAYOUTS or node.domain or not isinstance(x, LazyTensor):
        return None
    if not callable(x.source) or x.dtype.bitwidth < 8:
        return None
    shape = shape_of(node.outputs[0])
    if node.op_type == "Transpose":
        return x.transposed(attrs_of(node).get("perm"))
    return None if shape is None else x.reshaped(shape)


def _values(node: ir.Node, limit: int) -> Sequence[np.ndarray | LazyTensor] | None:
    if (moved := _moved(node)) is not None:
        return [moved]
    found = [known(o) for o in node.outputs]
    if all(f is not None for f in found):
        return [f for f in found if f is not None]
    if node.domain or (node.op_type == "Constant" and not node.attributes):
        return None
    if not node.inputs or any(
        v is not None and v.const_value is None and known(v) is None for v in node.inputs
    ):
        return None
    if not _is_view(node) and any(
        (s := shape_of(o)) is None or math.prod(s) > limit for o in node.outputs
    ):
        return None
    inputs = [constant(v) for v in node.inputs]
    # exporters write the axis as a one-element list, which kernels accept and the reference does
    # not
    if node.op_type == "CumSum" and inputs[1] is not None:
        inputs[1] = inputs[1].reshape(())
    if node.op_type == "Identity" and inputs[0] is not None:
        return [inputs[0]]  # evaluating it would copy it
    return evaluate(node, inputs) or None


def _is_view(node: ir.Node) -> bool:
    """Return whether the result is a view of a constant in another shape or order, which takes no
    memory at any size.
    """
    x = _stored(node)
    if node.op_type not in _LAYOUTS or not isinstance(x, LazyTensor) or x.dtype.bitwidth < 8:
        return False
    if x.decode is not None or not x.is_view():
        return False
    array, shape = x.stored(), shape_of(node.outputs[0])
    return node.op_type == "Transpose" or (
        shape is not None and np.may_share_memory(array.reshape(shape), array)
    )


def replace_by_constants(
    node: ir.Node, arrays: Sequence[np.ndarray | LazyTensor], names: Names
) -> None:
    """Replace the outputs of a node by constants; an output of the graph by an Identity of one."""
    b = builder_before(node, names)
    for out, array in zip(node.outputs, arrays, strict=False):
        if out.is_graph_output():
            if node.op_type == "Identity" and _stored(node) is not None:
                continue
            value, name = b.Identity(b.const(array, str(out.name))), out.name
            value.metadata_props.update(out.metadata_props)
            out.name = names.fresh(f"{name}_folded")
            value.name = name
        else:
            value = b.const(array, str(out.name))
        take_over(out, value)


def _none(node: ir.Node) -> bool:
    return False


def fold_constants(keep: Callable[[ir.Node], bool] = _none, limit: int = 1 << 20) -> Pass[Context]:
    """Return the pass of a pipeline; see `fold`."""
    return Pass(
        "fold-constants",
        "Fold constants and known shapes",
        lambda model, _: fold(model, limit, keep),
    )
