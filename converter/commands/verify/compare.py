"""Compare two arrays: the size and location of the difference in several metrics. NaN equals NaN,
and infinities equal only themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import numpy as np
import numpy.typing as npt
from ml_dtypes import finfo

from converter.graph.infer import Array

Doubles = npt.NDArray[np.float64]
METRICS = {
    "elem": "every element within its own tolerance (atol + rtol * |reference|, or the "
    "measured noise)",
    "max": "largest absolute difference; limit 1e-4 times the largest |reference| unless given",
    "cos": "cosine similarity of the whole tensor; at least 0.9999 unless given",
    "l2": "length of the difference relative to the length of the reference; at most 1e-3 "
    "unless given",
    "psnr": "peak signal-to-noise ratio in dB; at least 60 unless given",
    "ulp": "distance in representable numbers of the coarser of the two types; at most 64 unless "
    "given",
}
LIMITS = {"max": 1e-4, "cos": 0.9999, "l2": 1e-3, "psnr": 60.0, "ulp": 64.0}
AT_LEAST = {"cos", "psnr"}


@dataclass(frozen=True)
class Difference:
    """The difference of a candidate array from a reference array.

    `max_abs`, `max_rel`, `cos`, `l2`, `psnr` and `ulp` are about the whole array; `max_abs` is
    infinite if the shapes differ, a text differs, or only one of two elements is finite.

    `index`, `reference`, `candidate`, `abs_at_index`, `ulp_at_index`, `excess` and `tolerance` are
    about one element: the one that exceeds its tolerance most (without tolerances: the largest
    difference). `excess` is its difference divided by its tolerance (above 1: too large).
    """

    max_abs: float = 0.0
    max_rel: float = 0.0
    cos: float = 1.0
    l2: float = 0.0
    psnr: float = float("inf")
    ulp: float = 0.0
    excess: float = 0.0
    tolerance: float = 0.0
    index: tuple[int, ...] = ()
    reference: Any = None
    candidate: Any = None
    finite: int = 0  # elements whose reference is finite: the ones that carry evidence
    count: int = 0
    note: str = ""
    abs_at_index: float = 0.0
    ulp_at_index: float = 0.0

    @property
    def equal(self) -> bool:
        return self.max_abs == 0.0 and not self.note


# for arrays that cannot be compared element by element
WORST = Difference(
    max_abs=np.inf,
    max_rel=np.inf,
    cos=0.0,
    l2=np.inf,
    psnr=-np.inf,
    ulp=np.inf,
    excess=np.inf,
    abs_at_index=np.inf,
    ulp_at_index=np.inf,
)


def same_shape(a: Array, b: Array) -> Array | None:
    """Return `b` in the shape of `a` if they differ only by axes of size 1; None if they are not
    comparable.
    """
    if a.shape == b.shape:
        return b
    if [d for d in a.shape if d != 1] == [d for d in b.shape if d != 1]:
        return b.reshape(a.shape)
    return None


def transposed(a: Array, b: Array, same: Callable[[Array], bool]) -> tuple[int, ...] | None:
    """Return the permutation that transposes one array to the shape and, by `same`, the content of
    the other.
    """
    for p in permutations(range(a.ndim)) if 2 <= a.ndim == b.ndim <= 5 else ():
        if p != tuple(range(a.ndim)) and a.transpose(p).shape == b.shape and same(a.transpose(p)):
            return p
    return None


def compare(
    reference: Array, candidate: Array, tolerance: Array | float | None = None
) -> Difference:
    """Compare two arrays; `tolerance` is per element (broadcast) or one number; None applies no
    tolerance (excess is then 0 or infinite).
    """
    aligned = same_shape(reference, candidate)
    if aligned is None:
        note = f"shape {list(reference.shape)} became {list(candidate.shape)}"
        return replace(WORST, count=reference.size, finite=reference.size, note=note)
    if reference.size == 0:
        return Difference()
    if reference.dtype.kind in "OUS" or aligned.dtype.kind in "OUS":
        return _texts(reference, aligned)
    return _numbers(reference, aligned, tolerance)


def _texts(a: Array, b: Array) -> Difference:
    wrong = np.flatnonzero(
        np.asarray([str(x) != str(y) for x, y in zip(a.ravel(), b.ravel(), strict=True)])
    )
    if not wrong.size:
        return Difference(count=a.size, finite=a.size)
    at = tuple(int(i) for i in np.unravel_index(int(wrong[0]), a.shape))
    return replace(
        WORST,
        index=at,
        reference=str(a[at]),
        candidate=str(b[at]),
        finite=a.size,
        count=a.size,
        note=f"{wrong.size} strings differ" if wrong.size > 1 else "1 string differs",
    )


def distance(a: Array, b: Array) -> Doubles:
    """Return the absolute difference of each element of two arrays of one shape; 0 for NaN on both
    sides, infinite if only one side is finite.
    """
    x, y = wide(a), wide(b)
    with np.errstate(all="ignore"):
        delta = np.abs(x - y)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    return np.where(same, 0.0, np.where(np.isfinite(delta), delta, np.inf))


def _numbers(a: Array, b: Array, tolerance: Array | float | None) -> Difference:
    x, y, delta = wide(a), wide(b), distance(a, b)
    with np.errstate(all="ignore"):
        limit = np.broadcast_to(
            np.asarray(0.0 if tolerance is None else tolerance, np.float64), x.shape
        )
        ratio = np.where(delta == 0, 0.0, np.where(limit > 0, delta / limit, np.inf))
        # no tolerance makes infinity or NaN equal to a number, except an infinite one
        ratio = np.where(np.isinf(delta), np.inf, np.where(np.isnan(ratio), 0.0, ratio))
        worst = int(
            np.argmax(ratio if np.isfinite(ratio).all() else np.where(np.isinf(ratio), delta, -1.0))
        )
        relative = delta / np.maximum(np.abs(x), np.finfo(np.float64).tiny)
        relative = np.where((delta == 0) | np.isinf(delta), delta, relative)
    at = tuple(int(i) for i in np.unravel_index(worst, x.shape))
    both = np.isfinite(x) & np.isfinite(y)
    one_sided = not np.isfinite(delta).all()
    cos, l2, psnr = (
        (WORST.cos, WORST.l2, WORST.psnr) if one_sided else _array_metrics(x[both], y[both])
    )
    ulps = ulp_distance(a, b) if delta.any() else np.zeros(x.shape)
    return Difference(
        max_abs=float(delta.max()),
        max_rel=float(relative.max()),
        cos=cos,
        l2=l2,
        psnr=psnr,
        ulp=float(ulps.max()),
        excess=float(ratio[at]),
        tolerance=float(limit[at]),
        index=at,
        reference=a[at].item(),
        candidate=b[at].item(),
        finite=int(np.isfinite(x).sum()),
        count=a.size,
        note=""
        if not one_sided
        else f"{int((~np.isfinite(delta)).sum())} elements are finite in one model only",
        abs_at_index=float(delta[at]),
        ulp_at_index=float(ulps[at]),
    )


def merged(differences: Sequence[Difference]) -> Difference:
    """Merge the differences of one output over several feeds: the element that exceeds its
    tolerance most, and the worst of the metrics of whole arrays.
    """
    chosen = max(differences, key=lambda d: (d.excess, d.max_abs), default=Difference())
    return replace(
        chosen,
        **{k: max(getattr(d, k) for d in differences) for k in ("max_abs", "max_rel", "l2", "ulp")},
        **{k: min(getattr(d, k) for d in differences) for k in ("cos", "psnr")},
    )


def wide(a: Array) -> Doubles:
    """Return an array as float64."""
    return np.asarray(a, np.float64)


def _array_metrics(x: Doubles, y: Doubles) -> tuple[float, float, float]:
    """Return cosine similarity, relative L2 norm of the difference, and peak signal-to-noise
    ratio.
    """
    if not x.size or np.array_equal(x, y):
        return 1.0, 0.0, float("inf")
    with np.errstate(all="ignore"):
        largest = max(float(np.abs(x).max()), float(np.abs(y).max()))
        x, y = x / largest, y / largest  # squares of large numbers overflow
        error, length = float(np.linalg.norm(x - y)), float(np.linalg.norm(x))
        other = float(np.linalg.norm(y))
        cos = float(x @ y) / (length * other) if length and other else 0.0
        peak, spread = float(np.abs(x).max()), error / float(np.sqrt(x.size))
        psnr = 20 * float(np.log10(np.float64(peak) / spread)) if spread else float("inf")
        return cos, error / length if length else float("inf"), psnr


_BITS: dict[int, Any] = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


def ulp_distance(a: Array, b: Array) -> Doubles:
    """Return the number of representable numbers of the coarser type between the elements of two
    arrays (the difference, for integers); infinite if only one side is finite, 0 if neither is and
    both are the same.
    """
    delta = distance(a, b)
    floats = [t for t in (a.dtype, b.dtype) if _precision(t)]
    if not floats:
        return delta
    coarsest = max(floats, key=_precision)
    with np.errstate(all="ignore"):
        x, y = (_ordinals(np.asarray(v, np.float64).astype(coarsest)) for v in (a, b))
        # the difference of two 64-bit integers: exact where it can be small
        alike = (x < 0) == (y < 0)
        steps = np.where(
            alike, np.abs(np.where(alike, x - y, 0)), np.abs(x.astype(float)) + np.abs(y)
        )
    return np.where((delta == 0) | np.isinf(delta), delta, steps.astype(np.float64))


def _precision(dtype: Any) -> float:
    """Return the relative step of a floating-point type, 0.0 for any other."""
    try:
        return float(finfo(dtype).eps)  # type: ignore[no-untyped-call]
    except (TypeError, ValueError):
        return 0.0


def _ordinals(v: Array) -> npt.NDArray[np.int64]:
    """Return the rank of each number among all numbers of its type, relative to zero."""
    bits = _BITS[v.dtype.itemsize]
    i = np.ascontiguousarray(v).view(bits).astype(np.int64).reshape(v.shape)
    return np.asarray(np.where(i < 0, np.int64(np.iinfo(bits).min) - i, i), np.int64)


def judge(d: Difference, metrics: dict[str, float]) -> list[str]:
    """Return the metrics (except elem) whose limit `d` exceeds."""
    broken = []
    for name, limit in metrics.items():
        if name == "elem":
            continue
        value = d.max_abs if name == "max" else getattr(d, name)
        if not (value >= limit if name in AT_LEAST else value <= limit):
            broken.append(name)
    return broken
