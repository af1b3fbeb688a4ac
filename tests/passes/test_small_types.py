"""Values of 4 and 8 bits as wider ones, against ml_dtypes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from converter.graph.build import new_model
from converter.passes.small_types import in_float8

Array = np.ndarray[Any, Any]
D = ir.DataType
FLOATS = {
    D.FLOAT8E4M3FN: (ml_dtypes.float8_e4m3fn, 448),
    D.FLOAT8E4M3FNUZ: (ml_dtypes.float8_e4m3fnuz, 240),
    D.FLOAT8E5M2: (ml_dtypes.float8_e5m2, 57344),
    D.FLOAT8E5M2FNUZ: (ml_dtypes.float8_e5m2fnuz, 57344),
}


def interesting(dtype: Any) -> Array:
    """All numbers of the type, the middles between them, their neighbors, and random bits."""
    own = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
    own = np.unique(own[np.isfinite(own)])
    middles = (own[:-1] + own[1:]) / 2
    ends = np.array([np.inf, np.nan, 3e38, 1e-45, own[-1] * 1.03, own[-1] * 1.07], np.float32)
    bits = np.random.default_rng(0).integers(0, 1 << 32, 1 << 14, dtype=np.uint64)
    values = np.concatenate([own, middles, ends, -ends, bits.astype(np.uint32).view(np.float32)])
    with np.errstate(all="ignore"):
        near = [np.nextafter(values, np.float32(e)) for e in (-np.inf, np.inf)]
    return np.concatenate([values, *near]).astype(np.float32)


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("to", FLOATS)
def test_floats_are_rounded_as_by_ml_dtypes(to: D, saturate: bool) -> None:
    dtype, greatest = FLOATS[to]
    x = interesting(dtype)
    with np.errstate(all="ignore"):
        expected = x.astype(dtype).astype(np.float32)
        if saturate:
            clipped = np.clip(x, -greatest, greatest)
            expected = clipped.astype(dtype).astype(np.float32)
    model, b = new_model("main")
    value = b.input("x", D.FLOAT, [len(x)])
    with b:
        b.output(in_float8(b, value, to, saturate))
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected)
