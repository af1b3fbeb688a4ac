"""Random numbers.

Operators whose parameters are attributes have no definition: they are preserved but not executed.
Those with computed parameters are defined by their distribution and, with a seed, by the generator
that engines agree on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, Value
from converter.graph.catalogue.overlaps import as_int64
from converter.graph.extensions import extension, opaque
from converter.graph.generators import mersenne, philox
from converter.graph.infer import Array, known, rank_of
from converter.graph.value import FLOAT, INT64

Types = list[tuple[ir.DataType, list[Any] | None]]
HALF_BITS = {ir.DataType.FLOAT16: 10, ir.DataType.BFLOAT16: 7}  # bits of the mantissa
MOST = 1 << 16  # numbers that are written as constants


def _like(shape: ir.Value) -> Types:
    array = known(shape)
    if array is not None:
        return [(FLOAT, [int(d) for d in array.reshape(-1)])]
    count = shape.shape[0] if shape.shape is not None and len(shape.shape) == 1 else None
    return [(FLOAT, [None] * count if isinstance(count, int) else None)]


@opaque
def RandomNormal(
    b: Any, shape: ir.Value, *, seed: int = -1, mean: float = 0.0, scale: float = 1.0
) -> Types:
    """Normally distributed float32 numbers of `shape` (int64[rank]); `scale` is the standard
    deviation, a negative seed means none.

    Source: Core ML, RandomNormalDynamicLayerParams.
    """
    return _like(shape)


@opaque
def RandomUniform(
    b: Any, shape: ir.Value, *, seed: int = -1, low: float = 0.0, high: float = 1.0
) -> Types:
    """Uniformly distributed float32 numbers of `shape` in [low, high).

    Source: Core ML, RandomUniformDynamicLayerParams.
    """
    return _like(shape)


@opaque
def RandomBernoulli(b: Any, shape: ir.Value, *, seed: int = -1, prob: float = 0.5) -> Types:
    """float32 ones with probability `prob`, else zeros, of `shape`.

    Source: Core ML, RandomBernoulliDynamicLayerParams.
    """
    return _like(shape)


@opaque
def RandomCategorical(
    b: Any,
    x: ir.Value,
    *,
    seed: int = -1,
    samples: int = 1,
    logits: int = 1,
    eps: float = 1e-10,
    temperature: float = 1.0,
) -> Types:
    """`samples` draws (float32 class numbers) per row of logits or probabilities: [.., classes] ->
    [.., samples].

    `logits` 0: x are probabilities, of which the logarithm of x + eps is taken. Source: Core ML,
    CategoricalDistributionLayerParams.
    """
    return [(FLOAT, [*list(x.shape)[:-1], samples] if x.shape is not None else None)]


def _uniform(b: Builder, shape: Value, dtype: ir.DataType, seed: int) -> Value:
    """Return numbers in [0, 1); a seed of 0 means none."""
    like = b.Expand(np.zeros((), dtype.numpy()), shape)
    return b.RandomUniformLike(like, dtype=int(dtype), seed=float(seed) if seed else None)


@extension
def UniformNumbers(
    b: Builder,
    shape: Value,
    low: Value,
    high: Value,
    *,
    dtype: int,
    global_seed: int = 0,
    op_seed: int = 0,
    alignment: str = "tensorflow",
) -> Value:
    """Numbers of `shape` in [low, high), uniformly distributed; integers for an integer `dtype`.

    Half types are returned as float32. With seeds, and as long as shape and size allow it, these
    are the first numbers that OpenVINO generates: `alignment` is the framework whose generator it
    follows. Without seeds they are arbitrary. shape int64[rank], low and high scalars; `dtype` is a
    number of ONNX's DataType. Source: OpenVINO, RandomUniform-8.
    """
    to = ir.DataType(dtype)
    result = FLOAT if to in HALF_BITS else to
    size = known(shape)
    seeded = (global_seed or op_seed) and size is not None and int(np.prod(size)) <= MOST
    work = (
        result
        if seeded or result == ir.DataType.DOUBLE
        else FLOAT
        if result.is_floating_point()
        else ir.DataType.DOUBLE
    )
    floor, ceiling = (b.Cast(b.Reshape(v, np.zeros(0, np.int64)), to=work) for v in (low, high))
    span = ceiling - floor
    if seeded and size is not None:
        numbers = _numbers(
            to, [int(v) for v in size.reshape(-1)], (global_seed, op_seed), alignment
        )
        if result.is_floating_point():
            return b.const(numbers) * span + floor
        rest = b.const(numbers) % b.Cast(span, to=ir.DataType.UINT64)
        return b.Cast(rest, to=dtype) + floor
    y = _uniform(b, b.Cast(shape, to=INT64), work, op_seed or global_seed) * span + floor
    return (
        y if result == work else b.Cast(y if result.is_floating_point() else b.Floor(y), to=result)
    )


def _numbers(to: ir.DataType, shape: list[int], seeds: tuple[int, int], alignment: str) -> Array:
    """Return numbers in [0, 1) from the low bits of each random word, or for integers the words
    themselves (uint64).
    """
    count, long, torch = int(np.prod(shape)), to.bitwidth == 64, alignment == "pytorch"
    both = long and not (torch and to == INT64)  # two words per number
    words = (
        mersenne(seeds[0], count * (1 + both)) if torch else philox(*seeds, count * (1 + both))
    ).astype(np.uint64)
    if both:
        first, second = words[::2], words[1::2]
        order = (first, second) if torch or to.is_floating_point() else (second, first)
        words = (order[0] << np.uint64(32)) + order[1]
    if not to.is_floating_point():
        return words.reshape(shape)
    bits = np.uint64({**HALF_BITS, FLOAT: 23, ir.DataType.DOUBLE: 52}[to] + torch)
    wide = np.float64 if to == ir.DataType.DOUBLE else np.float32
    fraction = (words & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.float64) * 2.0 ** -float(
        bits
    )
    return np.asarray(fraction, wide).reshape(shape)


@extension
def ClassDraws(
    b: Builder,
    probabilities: Value,
    count: Value,
    *,
    index: int,
    replacement: int = 1,
    log: int = 0,
    global_seed: int = 0,
    op_seed: int = 0,
) -> Value:
    """`count` classes drawn by their probabilities [C] or [N, C], which need not sum to 1 and with
    `log` are logarithms: [count] or [N, count].

    Without `replacement` no class is drawn twice. Result int64. Source: OpenVINO, Multinomial-13.
    """
    alone = rank_of(probabilities) == 1
    given = b.Cast(probabilities, to=FLOAT)
    given = given[None] if alone else given
    chances = b.Exp(given) if log else given
    size = as_int64(b, count)
    batch, classes = b.Shape(given, start=0, end=1), b.Shape(given, start=1, end=2)
    if replacement:
        u = _uniform(b, b.Concat(batch, size, axis=0), FLOAT, op_seed or global_seed)
        passed = u * b.ReduceSum(chances, [1], keepdims=1)
        total = b.CumSum(chances, 1)
        below = total[:, None] <= passed[:, :, None]
        found = b.Min(b.ReduceSum(b.Cast(below, to=INT64), [2], keepdims=0), classes - 1)
    else:  # the largest of the logarithms plus Gumbel noise
        u = _uniform(b, b.Concat(batch, classes, axis=0), FLOAT, op_seed or global_seed)
        noise = -b.Log(-b.Log(b.Max(u, 1e-30)))
        found = b.TopK(b.Log(chances) + noise, size, axis=1, outputs=2)[1]
    found = b.Cast(found, to=index)
    return b.Squeeze(found, [0]) if alone else found
