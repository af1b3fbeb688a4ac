"""The curve of cubic interpolation.

Source: R. Keys, Cubic convolution interpolation for digital image processing (1981); `a` is
cubic_coeff_a of ONNX's Resize.
"""

from __future__ import annotations

import numpy as np

from converter.graph.infer import Array


def cubic_factors(a: float, inner: bool) -> tuple[float, ...]:
    """The polynomial in the distance, the highest power first: of 0..1 (`inner`), or of 1..2."""
    return (a + 2, -(a + 3), 0.0, 1.0) if inner else (a, -5 * a, 8 * a, -4 * a)


def cubic(distance: Array, a: float) -> Array:
    """The weights of neighbours at these distances."""
    d = np.abs(distance)
    near, far = (np.polyval(cubic_factors(a, inner), d) for inner in (True, False))
    return np.where(d <= 1, near, np.where(d < 2, far, 0))
