"""Random numbers and layers of which only the name is known: no definition, so they are carried and not computed."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from converter.graph.extensions import opaque
from converter.graph.infer import known

Types = list[tuple[ir.DataType, list[Any] | None]]


def _like(shape: ir.Value) -> Types:
    array = known(shape)
    if array is not None:
        return [(ir.DataType.FLOAT, [int(d) for d in array.reshape(-1)])]
    count = shape.shape[0] if shape.shape is not None and len(shape.shape) == 1 else None
    return [(ir.DataType.FLOAT, [None] * count if isinstance(count, int) else None)]


@opaque
def RandomNormal(b: Any, shape: ir.Value, *, seed: int = -1, mean: float = 0.0, scale: float = 1.0) -> Types:
    """Normally distributed float32 numbers of `shape` (int64[rank]); `scale` is the standard deviation, a negative seed is none."""
    return _like(shape)


@opaque
def RandomUniform(b: Any, shape: ir.Value, *, seed: int = -1, low: float = 0.0, high: float = 1.0) -> Types:
    """Uniformly distributed float32 numbers of `shape` in [low, high)."""
    return _like(shape)


@opaque
def RandomBernoulli(b: Any, shape: ir.Value, *, seed: int = -1, prob: float = 0.5) -> Types:
    """float32 ones with probability `prob`, else zeros, of `shape`."""
    return _like(shape)


@opaque
def RandomCategorical(b: Any, x: ir.Value, *, seed: int = -1, samples: int = 1, logits: int = 1, eps: float = 1e-10, temperature: float = 1.0) -> Types:
    """`samples` draws (float32 class numbers) per row of logits or probabilities: [.., classes] -> [.., samples]."""
    return [(ir.DataType.FLOAT, [*list(x.shape)[:-1], samples] if x.shape is not None else None)]


@opaque
def CustomLayer(b: Any, *xs: ir.Value, class_name: str, description: str = "", parameters: str = "{}", weights: int = 0) -> Types:
    """A layer that an application implements in a class; the last `weights` inputs are its weights, `parameters` is JSON."""
    return [(ir.DataType.FLOAT, None)] * 64
