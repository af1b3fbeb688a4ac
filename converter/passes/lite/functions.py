"""Functions of real numbers as polynomials with the precision of float32.

Neither TensorFlow Lite nor NNAPI has these operators, and there are no common decompositions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, attributes
from converter.graph.value import Value, operand, producer_if, producer_operand
from converter.passes.legalize import Rewrite

FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE)  # computed as floats
# Cephes, atanf (2e-7) and asinf
_ATAN = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
_ASIN = (4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1)
# Cephes, erff; Abramowitz and Stegun 7.1.26
_ERF_OF_SMALL = (
    *(7.853861353153693e-5, -8.010193625184903e-4, 5.188327685732524e-3, -2.685381193529856e-2),
    *(1.128358514861418e-1, -3.761262582423300e-1, 1.128379165726710),
)
_ERF = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)


def _polynomial(z: Value, coefficients: Sequence[float]) -> Value:
    """Evaluate by Horner's scheme, the highest power first."""
    total = z * coefficients[0]
    for c in coefficients[1:-1]:
        total = (total + c) * z
    return total + coefficients[-1]


def ceil(node: ir.Node, b: Builder) -> Value:
    """Rewrite Ceil as -Floor(-x)."""
    return b.Floor(operand(node) * -1) * -1


def cos(node: ir.Node, b: Builder) -> Value:
    """Rewrite Cos as Sin(x + pi / 2)."""
    return b.Sin(operand(node) + np.pi / 2)


def erf(node: ir.Node, b: Builder) -> Value:
    """x * q(x^2) for |x| < 1, else 1 - t * p(t) * exp(-x^2) with t = 1 / (1 + 0.3275911 |x|); the
    relative error is at most 2e-7.

    Sources: Cephes, erff; Abramowitz and Stegun, 7.1.26.
    """
    x = operand(node)
    size, square = b.Abs(x), x * x
    t = 1 / (size * 0.3275911 + 1)
    large = _polynomial(t, _ERF) * t * b.Exp(square * -1) * -1 + 1
    small = x * _polynomial(b.Min(square, 1), _ERF_OF_SMALL)
    return b.Where(size < 1, small, b.Where(x < 0, large * -1, large))


def atan(node: ir.Node, b: Builder) -> Value | None:
    """Compute from the magnitude: above tan(3/8 pi) as pi/2 - atan(1/x), above tan(pi/8) as pi/4 +
    atan((x-1)/(x+1)), below as a polynomial.
    """
    x = operand(node)
    if x.dtype not in FLOATS:
        return None
    size, one = b.Abs(x), b.like(x, 1)
    large, middle = size > 2.414213562373095, size > 0.4142135623730950
    inverse, bounded = -1 / b.Max(size, one), b.Min(size, 4)
    between, small = (bounded - 1) / (bounded + 1), b.Min(size, one)
    argument = b.Where(large, inverse, b.Where(middle, between, small))
    start = b.Where(middle, b.like(x, np.pi / 4), b.like(x, 0))
    start = b.Where(large, np.pi / 2, start)
    z = argument * argument
    found = _polynomial(z, _ATAN) * z * argument + argument + start
    return b.Where(x < 0, found * -1, found)


def asin(node: ir.Node, b: Builder) -> Value | None:
    """Use a polynomial up to 1/2, above it pi/2 - 2 asin(sqrt((1 - x) / 2)); acos is pi/2 minus
    asin.
    """
    x = operand(node)
    if x.dtype not in FLOATS:
        return None
    size = b.Abs(x)
    upper = size > 0.5
    z = b.Where(upper, (1 - size) * 0.5, x * x)
    root = b.Where(upper, b.Sqrt(z), size)
    inner = _polynomial(z, _ASIN) * z * root + root
    found = b.Where(upper, inner * -2 + np.pi / 2, inner)
    signed = b.Where(x < 0, found * -1, found)
    return signed * -1 + np.pi / 2 if node.op_type == "Acos" else signed


def not_a_number(node: ir.Node, b: Builder) -> Value | None:
    """Find the rows of minus infinities in the operand of a Softmax, as in attention with masked
    rows: the plain kernels return numbers for them, others return NaN, as ONNX does.
    """
    y = operand(node)  # the weights of an attention, or their product with the values
    softmax = producer_if(y, "Softmax") or producer_if(producer_operand(y, "MatMul"), "Softmax")
    if softmax is None or y.dtype not in FLOATS:
        return None
    axis, masks = attributes(softmax)["axis"], _masks(operand(softmax))
    if not masks or axis not in (-1, len(y.shape or ()) - 1):
        return None
    found = b.Not(b.Equal(y, y))
    for mask in masks:
        below = b.Cast(mask < float(np.finfo(np.float32).min), to=ir.DataType.FLOAT)
        found = b.Or(found, b.ReduceMin(below, [-1], keepdims=1) > 0.5)
    return found


_CLAMPING = ("MatMul", "Mul", "Div")  # their kernels return no infinities


def _masks(x: Value) -> list[Value]:
    """Return the terms of a sum that may be minus infinity, which the kernel of Add clamps."""
    node = x.producer()
    if node is None or node.domain or node.op_type not in ("Add", *_CLAMPING):
        return [x]
    if node.op_type in _CLAMPING:
        return []
    return [mask for i in (0, 1) for mask in _masks(operand(node, i))]


FUNCTIONS: dict[str, Rewrite] = {
    "Ceil": ceil,
    "Cos": cos,
    "Erf": erf,
    "Atan": atan,
    "Asin": asin,
    "Acos": asin,
    "IsNaN": not_a_number,
}
