"""The feeds of the recorder: small shapes, and numbers for which the results are well defined."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from converter.mapping.rules import Rule
from layers.cases import Case, Tensor

_SMALLER = (
    ("1,4,8,8 =6,4,3,3 =6", "1,2,4,5 =3,2,3,3 =3"),
    ("1,4,8,8 =6,4,3,3", "1,2,4,5 =3,2,3,3"),
    ("1,4,8,8 =4,1,3,3 =4", "1,2,4,5 =4,1,3,3 =4"),
    ("1,4,8 =6,4,3 =6", "1,2,5 =3,2,3 =3"),
    ("1,4,4,4,4 =6,4,3,3,3", "1,2,3,4,3 =2,2,3,3,3"),
    ("1,4,8,8 =4,6,3,3", "1,2,3,4 =2,2,3,3"),
    ("1,4,8 =4,6,3", "1,2,4 =2,2,3"),
    ("1,4,4,4,4 =4,6,3,3,3", "1,2,2,2,2 =2,2,3,3,3"),
    ("1,4,8,8", "1,4,4,5"),
    ("1,4,4,4,4", "1,2,3,4,3"),
)


# contexts instead of those that rows have
CONTEXTS: dict[str, tuple[str, ...]] = {
    "Proposal": ("1,2,3,3 1,4,3,3 =[[64,48,1]]",),
    "Einsum": ("2,3 3,2",),
    "FakeQuantize": ("2,3 =(-2) =(2) =(-1) =(3)",),
    "DeformableConvolution": ("1,2,5,5 1,18,3,4 =2,2,3,3",),
    "Col2Im": ("1,8,12 =[4,5] =[2,2]",),
    "DetectronPriorGridGenerator": ("3,4 1,2,2,3 1,3,8,8",),
    "GatherElements": ("4,3 =i64:[[1,0,3],[2,1,0]]", "4,3 i64:2,3"),
    "ReverseSequence": ("4,3,2 i64:3", "3,4,2 i64:3"),
}


def smaller(rule: Rule, given: Iterable[str]) -> Iterator[str]:
    """The contexts of a row with smaller images first, for short files."""
    given = [*CONTEXTS.get(rule.op, ()), *given]
    found = list(given)
    for large, small in _SMALLER:
        found = [c.replace(large, small) for c in found]
    yield from dict.fromkeys([*found, *given])


def floats(rng: np.random.Generator, shape: tuple[int, ...], low: float, high: float) -> Any:
    """Numbers that differ from each other, none of them nought, with few digits."""
    n = int(np.prod(shape))
    step = (high - low) / max(n, 1)
    return np.round(low + (rng.permutation(n) + 0.37) * step, 3).reshape(shape)


# operator -> lowest and highest number of each input; the last holds for all that follow
RANGES: dict[str, tuple[tuple[float, float], ...]] = {
    "Acos": ((-0.9, 0.9),),
    "Asin": ((-0.9, 0.9),),
    "Atanh": ((-0.9, 0.9),),
    "Acosh": ((1.1, 4),),
    "Log": ((0.1, 4),),
    "Sqrt": ((0.1, 4),),
    "Reciprocal": ((0.5, 4),),
    "Rsqrt": ((0.1, 4),),
    "Pow": ((0.5, 3), (-2, 2)),
    "Div": ((-3, 3), (0.5, 3)),
    "Mod": ((-3, 3), (0.5, 3)),
    "FloorMod": ((-3, 3), (0.5, 3)),
    "ReduceLogSum": ((0.1, 4),),
    "ErfInv": ((-0.9, 0.9),),
    "Proposal": ((0.1, 0.9), (-0.2, 0.2)),
    "BatchNormalization": ((-3, 3), (0.5, 2), (-1, 1), (-1, 1), (0.5, 2)),
}


# operator -> input -> its numbers, repeated until it is full
NUMBERS: dict[str, dict[int, list[float]]] = {
    "BinaryConvolution": {0: [1, 0, 0, 1, 1, 0, 1]},
    "CTCLoss": {1: [3, 3], 2: [0, 1, 2], 3: [1, 2], 4: [3]},
    "PSROIPooling": {1: [0, 1, 1, 4, 5, 0, 0, 2, 5, 4]},
    "DeformablePSROIPooling": {1: [0, 1, 1, 4, 5, 0, 0, 2, 5, 4]},
    "MaxRoiPool": {1: [0, 1, 1, 4, 5, 0, 0, 2, 5, 4]},
    "ROIPooling": {1: [0, 0.1, 0.1, 0.7, 0.9, 0, 0, 0.2, 0.6, 0.5]},
    "RoiAlign": {1: [1, 1, 4, 5, 0, 2, 5, 4, 2, 0, 6, 3], 2: [0]},
    "ROIAlignMax": {1: [1, 1, 4, 5, 0, 2, 5, 4, 2, 0, 6, 3], 2: [0]},
    "ROIAlignRotated": {1: [3, 4, 2, 3, 0.3, 4, 3, 4, 2, -0.5, 2, 2, 3, 3, 1], 2: [0]},
    "EmbeddingBagOffsets": {1: [1, 3, 2], 2: [0, 2]},
    "GatherTree": {0: [2, 3, 4, 1, 5, 6, 7, 3, 2], 1: [0, 1, 2, 2, 0, 1, 1, 1, 0], 2: [4, 3]},
    "SparseFillEmptyRows": {1: [4, 3], 2: [0, 0, 0, 2, 3, 1]},
    "StringPack": {0: [0, 2], 1: [2, 5], 2: [97, 98, 99, 100, 101]},
    "ScatterElements": {1: [0, 1, 1, 0, 1, 0]},
    "ReverseSequence": {1: [2, 1, 3]},
    "GatherElements": {1: [0, 1, 1, 0, 1, 0]},
    "InTopK": {1: [0, 2]},
    "CropResize": {2: [0]},
    "EmbeddingLookupSparse": {1: [0, 0, 1], 2: [0, 2, 1]},
    "Proposal": {2: [64, 64, 1]},
}


def fill(rule: Rule, case: Case) -> None:
    """Numbers for the inputs of the network."""
    rng = np.random.default_rng(5)
    ranges = RANGES.get(rule.op, ((-3.0, 3.0),))
    for i, t in enumerate(case.inputs):
        if t.values is not None or t.absent:
            continue
        t.values = numbers(rng, t, *ranges[min(i, len(ranges) - 1)])
        if given := NUMBERS.get(rule.op, {}).get(i):
            t.values = np.resize(np.array(given, t.dtype), t.shape)


def numbers(rng: np.random.Generator, t: Tensor, low: float, high: float) -> Any:
    shape = tuple(d if d >= 0 else 2 for d in t.shape)
    t.shape = shape
    kind = t.dtype.kind
    if kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if kind in "iu":  # divisors, and places of small tensors
        return rng.integers(1, 4, shape).astype(t.dtype)
    if kind == "O":
        return np.array(["b", "a", "c", "ab"] * 9, object)[: int(np.prod(shape))].reshape(shape)
    return floats(rng, shape, low, high).astype(t.dtype)
