"""Passes for operators that few networks have. The module of such a pass is imported when a network
has one of its operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import onnx_ir as ir

from converter.graph.walk import all_nodes
from converter.passes.pipeline import Context, Pass

C = TypeVar("C", bound=Context)


def _for_operators(
    call: Callable[[ir.Model, C], object], *operators: str
) -> Callable[[ir.Model, C], object]:
    """Call only for networks that have one of the operators."""

    def if_present(model: ir.Model, context: C) -> None:
        if any(n.op_type in operators for n in all_nodes(model.graph)):
            call(model, context)

    return if_present


def _fix_rows(model: ir.Model, context: Context) -> None:
    from converter.passes.fixed_rows import fix_rows

    fix_rows(model, context)


def _stack_sequences(model: ir.Model, context: Context) -> None:
    from converter.passes.stack_sequences import stack_sequences, unwrap_optional

    unwrap_optional(model)
    stack_sequences(model)


def _compute_both(model: ir.Model, context: Context) -> None:
    from converter.passes.both_branches import compute_both

    compute_both(model)


def implied_shapes(squeezes: bool = True) -> Pass[Context]:
    """Return the pass of a pipeline; `squeezes`: the layers of the target list squeezed axes."""

    def imply(model: ir.Model, context: Context) -> None:
        from converter.passes.implied_shapes import imply_shapes

        imply_shapes(model, context, squeezes)

    return Pass(
        "imply-shapes",
        "Choose branches and sizes if operators accept no others",
        _for_operators(imply, "If", "GRU", "LSTM", "RNN", "Squeeze"),
    )


# for targets with static shapes
FIXED_ROWS: Pass[Context] = Pass(
    "fixed-rows",
    "Give results of dynamic length as many rows as there may be, and declare their number",
    _for_operators(_fix_rows, "NonMaxSuppression", "NonZero"),
)
# sequences that cannot be stacked are left, and refused
STACK_SEQUENCES: Pass[Context] = Pass(
    "stack-sequences",
    "Write sequences as stacked tensors, and optional values as their elements",
    _for_operators(_stack_sequences, "Loop", "If", "OptionalGetElement", "OptionalHasElement"),
)
BOTH_BRANCHES: Pass[Context] = Pass(
    "compute-both-branches",
    "Compute both branches of an If and select a result",
    _for_operators(_compute_both, "If"),
)
