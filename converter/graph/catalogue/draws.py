"""Random numbers whose parameters are computed. The definitions give the distribution, and with a seed numbers that engines agree on."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.extensions import extension
from converter.graph.generators import mersenne, philox
from converter.graph.infer import Array, known, rank_of

INT64, FLOAT = int(ir.DataType.INT64), ir.DataType.FLOAT
HALF_BITS = {ir.DataType.FLOAT16: 10, ir.DataType.BFLOAT16: 7}  # bits of the mantissa
MOST = 1 << 16  # numbers that a definition lists


def _uniform(b: Builder, shape: ir.Value, dtype: ir.DataType, seed: int) -> ir.Value:
    """Numbers in [0, 1); a seed of 0 is none."""
    like = b.op("Expand", b.const(np.zeros((), dtype.numpy())), shape)
    return b.op("RandomUniformLike", like, dtype=int(dtype), seed=float(seed) if seed else None)


@extension
def UniformNumbers(
    b: Builder, shape: ir.Value, low: ir.Value, high: ir.Value, *, dtype: int, global_seed: int = 0, op_seed: int = 0, alignment: str = "tensorflow"
) -> ir.Value:
    """Numbers of `shape` in [low, high), evenly distributed; whole ones for an integer `dtype`. Half types are given as float32.

    With seeds, and as long as shape and size allow it, these are the numbers that OpenVINO gives first: `alignment` is the framework whose generator
    it follows. Without seeds any numbers.
    """
    to = ir.DataType(dtype)
    result = FLOAT if to in HALF_BITS else to
    size = known(shape)
    seeded = (global_seed or op_seed) and size is not None and int(np.prod(size)) <= MOST
    work = result if seeded or result == ir.DataType.DOUBLE else FLOAT if result.is_floating_point() else ir.DataType.DOUBLE
    floor, ceiling = (b.op("Cast", b.op("Reshape", v, np.zeros(0, np.int64)), to=int(work)) for v in (low, high))
    span = b.op("Sub", ceiling, floor)
    if seeded and size is not None:
        numbers = _numbers(to, [int(v) for v in size.reshape(-1)], (global_seed, op_seed), alignment)
        if result.is_floating_point():
            return b.op("Add", b.op("Mul", b.const(numbers), span), floor)
        rest = b.op("Mod", b.const(numbers), b.op("Cast", span, to=int(ir.DataType.UINT64)))
        return b.op("Add", b.op("Cast", rest, to=dtype), floor)
    y = b.op("Add", b.op("Mul", _uniform(b, b.op("Cast", shape, to=INT64), work, op_seed or global_seed), span), floor)
    return y if result == work else b.op("Cast", y if result.is_floating_point() else b.op("Floor", y), to=int(result))


def _numbers(to: ir.DataType, shape: list[int], seeds: tuple[int, int], alignment: str) -> Array:
    """In [0, 1) from the low bits of each random word, or for integers the words themselves (uint64)."""
    count, long, torch = int(np.prod(shape)), to.bitwidth == 64, alignment == "pytorch"
    both = long and not (torch and to == ir.DataType.INT64)  # two words for a number
    words = (mersenne(seeds[0], count * (1 + both)) if torch else philox(*seeds, count * (1 + both))).astype(np.uint64)
    if both:
        first, second = words[::2], words[1::2]
        order = (first, second) if torch or to.is_floating_point() else (second, first)
        words = (order[0] << np.uint64(32)) + order[1]
    if not to.is_floating_point():
        return words.reshape(shape)
    bits = np.uint64({**HALF_BITS, FLOAT: 23, ir.DataType.DOUBLE: 52}[to] + torch)
    wide = np.float64 if to == ir.DataType.DOUBLE else np.float32
    fraction = (words & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.float64) * 2.0 ** -float(bits)
    return np.asarray(fraction, wide).reshape(shape)


@extension
def ClassDraws(
    b: Builder, probabilities: ir.Value, count: ir.Value, *, index: int, replacement: int = 1, log: int = 0, global_seed: int = 0, op_seed: int = 0
) -> ir.Value:
    """`count` classes drawn by their probabilities [C] or [N, C], which need not sum to 1 and with `log` are logarithms: [count] or [N, count].

    Without `replacement` no class comes twice.
    """
    alone = rank_of(probabilities) == 1
    given = b.op("Cast", probabilities, to=int(FLOAT))
    given = b.op("Unsqueeze", given, [0]) if alone else given
    chances = b.op("Exp", given) if log else given
    size = b.op("Reshape", b.op("Cast", count, to=INT64), [1])
    batch, classes = b.op("Shape", given, start=0, end=1), b.op("Shape", given, start=1, end=2)
    if replacement:
        u = _uniform(b, b.op("Concat", batch, size, axis=0), FLOAT, op_seed or global_seed)
        passed = b.op("Mul", u, b.op("ReduceSum", chances, [1], keepdims=1))
        total = b.op("CumSum", chances, b.const(np.int64(1)))
        below = b.op("LessOrEqual", b.op("Unsqueeze", total, [1]), b.op("Unsqueeze", passed, [2]))
        found = b.op("Min", b.op("ReduceSum", b.op("Cast", below, to=INT64), [2], keepdims=0), b.op("Sub", classes, [1]))
    else:  # the largest of the logarithms plus Gumbel noise
        u = _uniform(b, b.op("Concat", batch, classes, axis=0), FLOAT, op_seed or global_seed)
        noise = b.op("Neg", b.op("Log", b.op("Neg", b.op("Log", b.op("Max", u, np.float32(1e-30))))))
        found = b.ops("TopK", b.op("Add", b.op("Log", chances), noise), size, axis=1, outputs=2)[1]
    found = b.op("Cast", found, to=index)
    return b.op("Squeeze", found, [0]) if alone else found
