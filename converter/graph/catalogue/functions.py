"""Functions of one number that are no standard operators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, Value
from converter.graph.extensions import extension
from converter.graph.value import FLOAT

# M. Giles, Approximating the erfinv function: polynomials in w - 2.5 (w < 5) and sqrt(w) - 3, the
# highest power first
NEAR = (
    2.81022636e-08,
    3.43273939e-07,
    -3.5233877e-06,
    -4.39150654e-06,
    0.00021858087,
    -0.00125372503,
    -0.00417768164,
    0.246640727,
    1.50140941,
)
FAR = (
    -0.000200214257,
    0.000100950558,
    0.00134934322,
    -0.00367342844,
    0.00573950773,
    -0.0076224613,
    0.00943887047,
    1.00167406,
    2.83297682,
)


@extension
def ErfInv(b: Builder, x: Value) -> Value:
    """Return the inverse of the error function: infinite at -1 and 1, NaN beyond.

    x: floats; result: the shape and type of x. Source: M. Giles, Approximating the erfinv function.
    """
    wide = b.Cast(x, to=ir.DataType.DOUBLE)
    one, zero = b.like(wide, 1), b.like(wide, 0)
    size = b.Abs(wide)
    inside = b.Where(size < one, wide, zero)
    w = -b.Log((one - inside) * (one + inside))
    near, far = (_polynomial(b, NEAR, w - 2.5), _polynomial(b, FAR, b.Sqrt(w) - 3))
    found = b.Where(w < 5, near, far) * inside
    edge = b.Where(b.Equal(size, one), wide * np.inf, np.nan)
    y = b.Where(size < one, found, edge)
    return y if x.dtype == ir.DataType.DOUBLE else b.Cast(y, to=x.dtype or FLOAT)


def _polynomial(b: Builder, factors: Sequence[float], s: Value) -> Value:
    total = b.like(s, factors[0])
    for factor in factors[1:]:
        total = total * s + factor
    return total
