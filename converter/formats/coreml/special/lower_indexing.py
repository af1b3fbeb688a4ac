"""Gathering and scattering -> layers."""

from __future__ import annotations

import onnx_ir as ir

from converter.formats.coreml.lowering import numbers, rank_of_value, shape_list, small, x_of
from converter.formats.coreml.special.lower_arithmetic import core
from converter.formats.coreml.special.lower_matrix import turned
from converter.formats.coreml.special.registry import lowers
from converter.graph.infer import shape_of
from converter.mapping.drive import Lowering
from converter.mapping.node import MappingError, Node
from converter.passes.constants import is_constant
from converter.passes.indices import never_negative

Value = ir.Value


@lowers("Gather")
def lower_gather(near: Node, low: Lowering) -> None:
    """A scalar index takes its axis away. A lookup in a constant table is an embedding."""
    x, indices, out = x_of(near), x_of(near, 1), near.outputs[0]
    axis = int(near.attrs.get("axis", 0))
    if x.dtype == ir.DataType.STRING:
        raise MappingError("texts have no place in Core ML's tensors")
    shape = shape_list(out)
    if axis == 0 and _embedding(near, low, x, indices):
        return
    if rank_of_value(indices) == 0 and rank_of_value(x) > 1:
        inner = list(shape) if shape is not None else None
        if inner is not None:
            inner.insert(axis % rank_of_value(x), 1)
        y = core(low).one("gather", [x, indices], inner, {"axis": axis})
        low.add("squeeze", [y], near.outputs, {"axes": [axis % rank_of_value(x)]})
    else:
        low.add("gather", [x, indices], near.outputs, {"axis": axis})


def _embedding(near: Node, low: Lowering, table: Value, indices: Value) -> bool:
    """A lookup that was an embedding layer is one again. Others may have negative indices, which embeddings do not know."""
    node, size = near.outputs[0].producer(), shape_of(table)
    kind = node.metadata_props.get("netconv.type", "") if node is not None else ""
    rank = rank_of_value(indices)
    if not kind.startswith("embedding") or size is None or len(size) != 2 or not 1 <= rank <= 4 or not is_constant(table):
        return False
    c, shape = core(low), shape_list(indices)
    column = c.one("expandDims", [indices], [*shape, 1] if shape is not None else None, {"axes": [rank]})
    attrs = {"vocabSize": size[0], "embeddingSize": size[1]}
    low.add("embeddingND", [column], near.outputs, attrs, {"weights": turned(c, table)})
    return True


def cut_axes(near_axis: int, data: Value, indices: Value, scatter: bool = False) -> list[int]:
    """The axes beside the one of a GatherElements or ScatterElements along which the indices have fewer places than the data; the layers want as many.

    Where the data is open and the indices are not, a gather may have to be cut; of a scatter nothing is known."""
    sizes, places = shape_list(data) or [], shape_list(indices) or []
    pairs = enumerate(zip(sizes, places, strict=False))
    return [i for i, (n, m) in pairs if i != near_axis % len(sizes) and m is not None and n != m and not (scatter and n is None)]


def _demand_places(near: Node) -> None:
    if cut_axes(int(near.attrs.get("axis", 0)), x_of(near), x_of(near, 1), near.op != "GatherElements"):
        raise MappingError("indices that are smaller than the data along other axes")


@lowers("GatherElements")
def lower_gather_elements(near: Node, low: Lowering) -> None:
    _demand_places(near)
    low.add("gatherAlongAxis", [x_of(near), x_of(near, 1)], near.outputs, {"axis": int(near.attrs.get("axis", 0))})


@lowers("GatherND")
def lower_gather_nd(near: Node, low: Lowering) -> None:
    if near.attrs.get("batch_dims", 0):
        raise MappingError("batch_dims of GatherND")
    low.add("gatherND", [x_of(near), x_of(near, 1)], near.outputs)


_MODES = {"none": "SCATTER_UPDATE", "add": "SCATTER_ADD", "mul": "SCATTER_MUL", "max": "SCATTER_MAX", "min": "SCATTER_MIN"}


@lowers("ScatterND ScatterElements")
def lower_scatter(near: Node, low: Lowering) -> None:
    mode = _MODES[near.attrs.get("reduction", "none")]
    values = [x_of(near, i) for i in range(3)]
    rows = _rows(values[1])
    if near.op == "ScatterND" and rows is not None:
        low.add("scatter", [values[0], rows, values[2]], near.outputs, {"mode": mode, "axis": 0})
    elif near.op == "ScatterND":
        low.add("scatterND", values, near.outputs, {"mode": mode})
    else:
        _demand_places(near)
        low.add("scatterAlongAxis", values, near.outputs, {"mode": mode, "axis": int(near.attrs.get("axis", 0))})


def _rows(indices: Value) -> Value | None:
    """Indices of whole rows, [..,1], without their last axis where a node added it."""
    node = indices.producer()
    if node is None or node.op_type not in ("Unsqueeze", "Reshape") or node.domain or node.inputs[0] is None:
        return None
    before, after = shape_of(node.inputs[0]), shape_of(indices)
    return node.inputs[0] if before and after is not None and after == (*before, 1) else None


@lowers("OneHot")
def lower_one_hot(near: Node, low: Lowering) -> None:
    """The layer does not count from the end, nor does one that comes from Core ML."""
    values, depth = numbers(near.input(2), "the values of OneHot").reshape(-1), small(near.input(1))
    node = near.outputs[0].producer()
    own = node is not None and (node.metadata_props.get("netconv.format"), node.metadata_props.get("netconv.type")) == ("coreml", "oneHot")
    if not own and not never_negative(near.input(0)):
        raise MappingError("indices below zero, which count from the end, have no counterpart")
    attrs = {"axis": int(near.attrs.get("axis", -1)), "offValue": float(values[0]), "onValue": float(values[1])}
    if depth is not None:
        low.add("oneHot", [x_of(near)], near.outputs, {**attrs, "oneHotVectorSize": int(depth[0])})
    else:
        low.add("oneHot", [x_of(near), near.input(1)], near.outputs, attrs)
