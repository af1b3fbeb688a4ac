"""Recurrent operators written out (see `graph/recurrent.py`): unrolled, or as a Loop."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from converter.graph.build import Builder, attributes
from converter.graph.recurrent import Recurrent, in_a_loop, unrolled, written
from converter.graph.value import Value, known_sizes, operand
from converter.passes.decompositions.table import Table
from converter.passes.split_directions import split_directions

MOST_STEPS = 1000
FEW_STEPS = 4


def recurrent(node: ir.Node, b: Builder) -> Sequence[ir.Value] | None:
    """Split a bidirectional layer into its directions, which the target may support; if it does
    not, unroll all time steps.
    """
    if (directions := split_directions(node, b)) is not None:
        return directions
    x = operand(node)
    sizes = known_sizes(x) or [None]
    time = _steps(node)
    if None in sizes[2:] or 0 in sizes or time is None or time > MOST_STEPS or not _is_float(x):
        return None
    return _outputs(node, written(b, layer=Recurrent.of(node), steps=unrolled))


def looped(node: ir.Node, b: Builder) -> Sequence[Value] | None:
    """Use a Loop for many time steps, or an unknown number of them."""
    time = _steps(node)
    if not _is_float(operand(node)) or (time is not None and time <= FEW_STEPS):
        return None
    return _outputs(node, written(b, layer=Recurrent.of(node), steps=in_a_loop))


def _steps(node: ir.Node) -> int | None:
    sizes = known_sizes(operand(node))
    return None if sizes is None else sizes[1 if attributes(node)["layout"] else 0]


def _is_float(x: Value) -> bool:
    return x.dtype is not None and x.dtype.is_floating_point()


def _outputs(node: ir.Node, found: list[Value] | None) -> Sequence[Value] | None:
    return None if found is None else found[: len(node.outputs)]


TABLE: Table = {
    ("", "LSTM"): recurrent,
    ("", "GRU"): recurrent,
    ("", "RNN"): recurrent,
}
