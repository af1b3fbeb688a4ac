"""Attention masks without infinities, for targets whose sums are clamped to finite numbers, or that
select by multiplication.

before:  m = Where(mask, 0, -inf); y = Where(Equal(ReduceMax(m), -inf), 0, Softmax(s + m))
after:   m = Where(mask, 0, -1e30); y = Where(Less(ReduceMax(m), -5e29), 0, Softmax(s + m))

A masked score only has to be so low that its exponential is 0. Masks that are computed from inputs
of floating-point type stay, since their numbers are not known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
import onnx_ir as ir

from converter.graph import MOVES
from converter.graph.build import builder_before
from converter.graph.extensions import replace
from converter.graph.infer import constant
from converter.graph.names import Names
from converter.graph.value import optional
from converter.graph.walk import all_graphs
from converter.passes.pipeline import change

MASKED, HALF = -1e30, -30000.0  # of which the sum of two is finite, too
_TYPES = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16)
# operators that move elements, add masks or take their greatest, and the operands that are masks
_OPERANDS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys((*MOVES, "Trilu", "Cast", "ReduceMax"), (0,)),
    **dict.fromkeys(("Add", "Max", "Min"), (0, 1)),
    "Where": (1, 2),
    "Pad": (0, 2),
}


def replace_infinite_masks(model: ir.Model) -> None:
    """Replace minus infinity in constants that only reach a Softmax and a comparison with it."""
    graphs = list(all_graphs(model.graph))
    limits = {n for graph in graphs for n in graph if _compares(n)}
    if not limits:
        return
    names, known = Names(model), _of_masks(graphs)
    compared = {n for n in limits if n.inputs[0] in known}
    for graph in graphs:
        reached = {v: _reached(v, compared) for v in graph.initializers.values() if _is_mask(v)}
        reached = {v: found for v, found in reached.items() if found}
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
        for node in [n for n in graph if n in compared and n.inputs[0] in masked]:
            b = builder_before(node, names)
            replace(node, [b.Less(node.inputs[0], low / 2)], b)


def _is_mask(value: ir.Value, least: int = 1) -> bool:
    """Return whether a value is a constant of zeros and `least` or more minus infinities."""
    array = constant(value) if value.dtype in _TYPES else None
    if array is None:
        return False
    low = np.isneginf(array)
    return bool((low | (array == 0)).all()) and int(low.sum()) >= least


def _compares(node: ir.Node) -> bool:
    """Return whether a node compares numbers with minus infinity."""
    limit = optional(node, 1) if node.op_type == "Equal" and not node.domain else None
    array = constant(limit) if limit is not None and limit.dtype in _TYPES else None
    return array is not None and array.size > 0 and bool(np.isneginf(array).all())


def _of_masks(graphs: Iterable[ir.Graph]) -> set[ir.Value]:
    """Return the values that are computed from constant masks and conditions alone."""
    found: set[ir.Value] = set()
    for node in (n for graph in graphs for n in graph if not n.domain):
        operands = [optional(node, i) for i in _OPERANDS.get(node.op_type, ())]
        if operands and all(v is None or v in found or _is_mask(v, least=0) for v in operands):
            found.update(node.outputs)
    return found


def _reached(mask: ir.Value, compared: Collection[ir.Node]) -> set[ir.Value]:
    """Return the values that a mask becomes part of if it only reaches a comparison and a Softmax,
    else none.
    """
    found, queue, ends = {mask}, [mask], False
    while queue:
        value = queue.pop()
        if value.is_graph_output():
            return set()
        for node, index in value.uses():
            if node in compared:
                ends = True
            elif not node.domain and index in _OPERANDS.get(node.op_type, ()):
                queue += [v for v in node.outputs if v not in found]
                found.update(node.outputs)
            elif node.domain or node.op_type != "Softmax":
                return set()
    return found if ends else set()


FINITE_MASKS = change(
    "finite-masks", "Replace minus infinity in attention masks", replace_infinite_masks
)
