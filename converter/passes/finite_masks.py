"""Attention masks without infinities, for targets whose sums are clamped to finite numbers, or that
select by multiplication.

before:  m = Where(mask, 0, -inf); y = Where(Equal(ReduceMax(m), -inf), 0, Softmax(s + m))
after:   m = Where(mask, 0, -1e30); y = Where(Less(ReduceMax(m), -5e29), 0, Softmax(s + m))

A masked score only has to be so low that its exponential is 0. Masks that are computed from inputs
of floating-point type stay, since their numbers are not known.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import builder_before
from converter.graph.infer import constant
from converter.graph.names import Names
from converter.graph.value import optional
from converter.graph.walk import all_graphs
from converter.passes.pipeline import change

MASKED, HALF = -1e30, -30000.0  # of which the sum of two is finite, too
_TYPES = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16)
# operators that move elements, add masks or take their greatest, and the operands that are masks
_OPERANDS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Transpose"), (0,)),
    **dict.fromkeys(("Expand", "Tile", "Slice", "Gather", "Trilu", "Cast", "ReduceMax"), (0,)),
    **dict.fromkeys(("Add", "Max", "Min"), (0, 1)),
    "Where": (1, 2),
    "Pad": (0, 2),
}


def replace_infinite_masks(model: ir.Model) -> None:
    """Replace minus infinity in constants that only reach a Softmax and a comparison with it."""
    names = Names(model)
    for graph in all_graphs(model.graph):
        compared = [n for n in graph if _compares(n)]
        masks = [v for v in graph.initializers.values() if compared and _is_mask(v)]
        reached = {v: found for v in masks if (found := _reached(v))}
        half = any(r.dtype == ir.DataType.FLOAT16 for found in reached.values() for r in found)
        low = HALF if half else MASKED
        for value in reached:
            b = builder_before(next(iter(graph)), names)
            array = constant(value)
            assert array is not None
            finite = np.where(np.isneginf(array), low, array).astype(array.dtype)
            value.replace_all_uses_with(b.const(finite, str(value.name)))
            del graph.initializers[str(value.name)]
        masked = set().union(*reached.values())
        for node in (n for n in compared if n.inputs[0] in masked):
            b = builder_before(node, names)
            node.outputs[0].replace_all_uses_with(b.Less(node.inputs[0], low / 2))


def _is_mask(value: ir.Value) -> bool:
    """Return whether a value is a constant of zeros and minus infinities."""
    array = constant(value) if value.dtype in _TYPES else None
    return array is not None and bool(
        np.isneginf(array).any() and (np.isneginf(array) | (array == 0)).all()
    )


def _reached(mask: ir.Value) -> set[ir.Value]:
    """Return the values that a mask becomes part of if it only reaches a comparison and a Softmax,
    else none.
    """
    visited: set[ir.Value] = set()
    fits = _only_masks(mask, visited)
    return visited if fits and any(_compares(u.node) for v in visited for u in v.uses()) else set()


def _only_masks(value: ir.Value, visited: set[ir.Value]) -> bool:
    """Return whether every use of `value` ends in a Softmax or a comparison with infinity."""
    if value in visited:
        return True
    visited.add(value)
    return not value.is_graph_output() and all(
        not use.node.domain
        and (
            use.node.op_type == "Softmax"
            or _compares(use.node)
            or (
                use.idx in _OPERANDS.get(use.node.op_type, ())
                and all(_only_masks(out, visited) for out in use.node.outputs)
            )
        )
        for use in value.uses()
    )


def _compares(node: ir.Node) -> bool:
    """Return whether a node finds minus infinity in numbers of known masks."""
    if node.domain or node.op_type != "Equal":
        return False
    limit = optional(node, 1)
    array = constant(limit) if limit is not None and limit.dtype in _TYPES else None
    found = array is not None and array.size > 0 and bool(np.isneginf(array).all())
    return found and _of_masks(optional(node, 0))


def _of_masks(value: ir.Value | None) -> bool:
    """Return whether a value is computed from constant masks and conditions alone."""
    array = None if value is None else constant(value)
    if value is None or array is not None:
        return array is None or bool((np.isneginf(array) | (array == 0)).all())
    node = value.producer()
    operands = () if node is None or node.domain else _OPERANDS.get(node.op_type, ())
    return bool(operands) and all(_of_masks(optional(node, i)) for i in operands if node)


FINITE_MASKS = change(
    "finite-masks", "Replace minus infinity in attention masks", replace_infinite_masks
)
