"""Weights that a model computes from compressed ones: half-precision floats followed by a Cast, or
integers followed by a DequantizeLinear or by arithmetic with their scales. Their numbers are
compared, not their form.
"""

from __future__ import annotations

import onnx_ir as ir

from converter.graph.build import attributes
from converter.graph.infer import RANDOM, Array, constant, evaluate
from converter.graph.walk import subgraphs

DEEPEST = 32  # operators between the stored weight and its consumer


def is_computed(value: ir.Value | None) -> bool:
    """Return whether a value is not a constant itself, but computed from constants alone."""
    return value is not None and constant(value) is None and _fixed(value, DEEPEST)


def _fixed(value: ir.Value, depth: int) -> bool:
    node = value.producer()
    if value.const_value is not None:
        return True
    if node is None or not depth or node.op_type in RANDOM or any(subgraphs(node)):
        return False
    return all(v is None or _fixed(v, depth - 1) for v in node.inputs)


def computed(value: ir.Value) -> Array | None:
    """Return a value that is computed from constants; None if it cannot be determined."""
    found = constant(value)
    node = value.producer()
    if found is not None or node is None:
        return found
    arrays = [None if v is None else computed(v) for v in node.inputs]
    if any(a is None and v is not None for a, v in zip(arrays, node.inputs, strict=True)):
        return None
    results = evaluate(node, arrays)
    return results[value.index() or 0] if results else None


def same_form(a: ir.Value | None, b: ir.Value | None) -> bool:
    """Return whether two values are computed in the same way from the same constants, which makes
    computing them unnecessary.
    """
    if a is None or b is None:
        return a is b
    x, y = a.const_value, b.const_value
    if x is not None and y is not None:
        same = x.dtype == y.dtype and tuple(x.shape.numpy()) == tuple(y.shape.numpy())
        return same and x.tobytes() == y.tobytes()
    n, m = a.producer(), b.producer()
    if n is None or m is None or (n.domain, n.op_type) != (m.domain, m.op_type):
        return False
    return (
        len(n.inputs) == len(m.inputs)
        and str(sorted(attributes(n).items())) == str(sorted(attributes(m).items()))
        and all(map(same_form, n.inputs, m.inputs))
    )
