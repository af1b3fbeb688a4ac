"""Round to half precision in floats, for targets without half types that would keep the unrounded
value.

before:  y = Cast(x, FLOAT16)
after:   y = Cast(the number of half precision that is nearest to x, as a float, FLOAT16)

All operations are exact in float32 except the one subtraction that rounds, to nearest with ties to
even, at the last bit of the half type: with t = 2^k * x, the difference t - x keeps the bits that x
loses when k bits are dropped, and t - (t - x) is x without them. Below the least normal number t is
a constant, so that the bit positions do not move.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, builder_before
from converter.graph.names import Names
from converter.graph.walk import all_graphs
from converter.passes.constants import is_constant
from converter.passes.pipeline import Context, Pass, change

_T = ir.DataType
# type -> bits that its significand lacks, exponent of its least normal number, least number that
# becomes infinite
_HALVES = {_T.FLOAT16: (13, -14, 65520.0), _T.BFLOAT16: (16, -126, float.fromhex("0x1.ffp127"))}
_BYTES = (_T.BOOL, _T.INT8, _T.UINT8, _T.INT4, _T.UINT4)  # all values are exact in half precision
_FLOAT8 = (_T.FLOAT8E4M3FN, _T.FLOAT8E4M3FNUZ, _T.FLOAT8E5M2, _T.FLOAT8E5M2FNUZ)


def rounds(node: ir.Node) -> bool:
    """Return whether the node is a Cast to half precision that may change a number."""
    return (
        node.op_type == "Cast"
        and not node.domain
        and node.inputs[0] is not None
        and may_round(node.inputs[0].dtype, node.outputs[0].dtype)
    )


def may_round(before: ir.DataType | None, to: ir.DataType | None) -> bool:
    """Return whether conversion from one type to a half type may change numbers."""
    return to in _HALVES and before not in (*_BYTES, *_FLOAT8, _T.STRING, to)


def half_is_enough(weights: np.ndarray) -> bool:
    """Return whether half precision only rounds these numbers: none becomes infinite, and the
    largest is not subnormal.
    """
    if weights.dtype.kind != "f" or not np.isfinite(weights).all():
        return False
    half, largest = np.finfo(np.float16), np.abs(weights).max(initial=0)
    return bool(largest == 0 or half.smallest_normal <= largest <= half.max)


def round_halves(model: ir.Model) -> None:
    """Round activations in place; constants are rounded when they are evaluated."""
    names = Names(model)
    for graph in all_graphs(model.graph):
        for node in list(graph):
            if rounds(node) and not is_constant(node.inputs[0]):
                b = builder_before(node, names)
                node.replace_input_with(
                    0, rounded(b, node.inputs[0], node.outputs[0].dtype or _T.FLOAT16)
                )


def rounded(b: Builder, value: ir.Value | None, to: ir.DataType) -> ir.Value:
    """Return the numbers of half precision nearest to `value`, as float32.

    Ties round to even; numbers beyond the largest become infinite; signed zeros and NaN are
    preserved.
    """
    dropped, least, limit = _HALVES[to]
    x = value if value is not None and value.dtype == _T.FLOAT else b.Cast(value, to=_T.FLOAT)
    size = b.Abs(x)
    y = nearest(b, x, size, dropped, least)
    result: ir.Value = b.Where(b.Less(size, limit), y, b.Mul(x, 2.0**127))  # NaN is not less either
    return result


def nearest(b: Builder, x: ir.Value, size: ir.Value, dropped: int, least: int) -> ir.Value:
    """Return the nearest floats with `dropped` bits less than `x` has, whose absolute value is
    `size`; `least` is the exponent of the least normal one, no exponent is too large.
    """
    spacing = 2.0 ** (least - 23 + dropped)  # of numbers below the least normal one
    far = b.Greater(size, 2.0**64) if least < -100 else None  # 2^k * x would be infinite
    z = x if far is None else b.Where(far, b.Mul(x, 2.0**-64), x)
    t = b.Where(b.Less(size, 2.0**least), 1.5 * 2**23 * spacing, b.Mul(z, 2.0**dropped))
    y = b.Sub(t, b.Sub(t, z))
    y = y if far is None else b.Where(far, b.Mul(y, 2.0**64), y)
    found: ir.Value = b.Where(
        b.Greater(size, spacing / 2), y, b.Mul(x, y)
    )  # if y is 0, the product has the sign of x
    return found


def round_to_halves() -> Pass[Context]:
    """Return the pass of a pipeline; see `round_halves`."""
    return change(
        "round-halves",
        "Compute rounding to half precision with single-precision operators",
        round_halves,
    )
