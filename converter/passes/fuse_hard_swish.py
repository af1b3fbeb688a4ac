"""Find HardSwish in the operators that exporters write it with.

before:  y = x * Clip(x + 3, 0, 6) / 6        y = x * HardSigmoid(x, alpha=1/6, beta=1/2)
after:   y = HardSwish(x)
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import attributes, builder_before
from converter.graph.infer import constant
from converter.graph.names import Names
from converter.graph.value import producer_if
from converter.passes.dead_code import remove_dead_code


def fuse_hard_swish(model: ir.Model) -> None:
    """Fuse in place."""
    names = Names(model)
    for node in list(model.graph):
        value = node.outputs[0]
        if not value.is_graph_output() and (x := _operand(value)) is not None:
            value.replace_all_uses_with(builder_before(node, names).HardSwish(x))
    remove_dead_code(model)


def _operand(value: ir.Value) -> ir.Value | None:
    """Return x, if the value is HardSwish(x)."""
    whole = _with_constant(value, "Div", 6) or _with_constant(value, "Mul", 1 / 6)
    if (product := producer_if(whole or value, "Mul")) is None:
        return None
    a, b = product.inputs
    for x, gate in ((a, b), (b, a)):
        if x is not None and x is (_shifted(gate) if whole else _gated(gate)):
            return x
    return None


def _gated(value: ir.Value | None) -> ir.Value | None:
    """Return x, if the value is HardSigmoid(x) with the constants of HardSwish."""
    if (node := producer_if(value, "HardSigmoid")) is not None:
        attrs = attributes(node)
        return (
            node.inputs[0] if np.allclose((attrs["alpha"], attrs["beta"]), (1 / 6, 0.5)) else None
        )
    return _shifted(_with_constant(value, "Div", 6) or _with_constant(value, "Mul", 1 / 6))


def _shifted(value: ir.Value | None) -> ir.Value | None:
    """Return x, if the value is Clip(x + 3, 0, 6)."""
    clip = producer_if(value, "Clip")
    ends = [] if clip is None else [constant(v) for v in clip.inputs[1:3]]
    if clip is None or [None if e is None else float(e) for e in ends] != [0, 6]:
        return None
    return _with_constant(clip.inputs[0], "Add", 3)


def _with_constant(value: ir.Value | None, kind: str, number: float) -> ir.Value | None:
    """Return x, if the value is x and a constant number, combined by an operator."""
    node = producer_if(value, kind)
    for i, v in enumerate(node.inputs if node is not None else ()):
        array = constant(v)
        if node is not None and array is not None and array.size == 1 and (i or kind != "Div"):
            return node.inputs[1 - i] if np.isclose(float(array.item()), number) else None
    return None
