"""Products of two activations."""

from __future__ import annotations

import numpy as np

from converter.formats.zhouyi.quantization.context import (
    IntegerLiftContext,
    IntegerLowerContext,
    Written,
)
from converter.formats.zhouyi.quantization.requantize import double, scalar_keys
from converter.formats.zhouyi.unsupported import undocumented
from converter.graph.value import Value


def _product(r: IntegerLiftContext) -> Value:
    """Return the product of two operands, transposed as the layer declares, in 32-bit floats: the
    executor loses the same precision in sums of 16-bit integers.
    """
    x, y = (r.real(i, narrow=True) for i in (0, 1))
    keys = ("trans_", "tans_", "adj_")
    transposed = {k: v for k, v in r.layer.attrs.items() if k.startswith(keys)}
    return double(r.as_numbers(x, y, kind="MatMul", attrs=transposed))


def lift_matmul(r: IntegerLiftContext) -> Value:
    """Lift MatMul. Raises MappingError for a multiplier and an activation, which the executor
    ignores.
    """
    if r.attr("fused_multiplier", float, 1.0) != 1.0:
        raise undocumented("whether fused_multiplier is part of the scale, as in the executor")
    if r.attr("with_activation", str, "NONE") != "NONE":
        raise undocumented("whether a MatMul applies with_activation, which the executor ignores")
    return r.activated(*r.early_shift(_product(r), np.zeros(1), np.zeros(1)))


def lift_gemm(r: IntegerLiftContext) -> Value:
    """Lift Gemm. With a third operand both parts are rescaled to a common scale first; alpha and
    beta are in the scales, except for their signs.
    """
    count = len(r.layer.inputs)
    signs = [float(np.sign(r.attr(k, float, 1.0))) for k in ("alpha", "beta")]
    product = _product(r)
    if count == 2:
        y = r.rescaled(product, r.factor)
        return r.stored(y if signs[0] > 0 else -y)
    first, second = (
        r.b.Round(part * (scale * sign))
        for part, scale, sign in zip((product, r.double(2)), r.operand_scales(), signs, strict=True)
    )
    return r.requantized(first + second, r.first_factor)


def lower_matmul(w: IntegerLowerContext) -> Written:
    """Write MatMul with one scale."""
    factor = w.sources[0].scale * w.sources[1].scale / w.result.scale
    return w.with_activation(scalar_keys(factor, w.bits))
