"""Sliding windows: what their numbers may be, and the padding that is said by name, SAME_UPPER and
SAME_LOWER of ONNX.

What each format calls them is its own; how much it is, is here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from converter.errors import MappingError
from converter.graph.demands import at_least, of_length

LARGEST = 1 << 31  # of one attribute that counts
FIX = "fix the inputs with --inputs"
SAME = ("SAME_UPPER", "SAME_LOWER")
WIDEST = 1 << 24  # of the padding under a window: engines walk through it


def window_fault(
    kernel: Sequence[int | None],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
) -> str | None:
    """Why there is no such window, or None; all of its numbers count elements, None in the kernel
    is one that is not known.
    """
    n = len(kernel)
    if len(strides) != n or len(dilations) != n or len(pads) != 2 * n:
        return (
            f"a window of {n} axes has {len(strides)} strides, {len(dilations)} dilations, "
            f"{len(pads)} pads"
        )
    limits = (
        ("kernel", kernel, 1, LARGEST),
        ("stride", strides, 1, LARGEST),
        ("dilation", dilations, 1, LARGEST),
        ("pad", pads, -LARGEST, WIDEST),
    )
    for name, values, least, most in limits:
        for v in values:
            if v is not None and not least <= v < most:
                return f"the {name} {v} is impossible"
    return None


def overhang(size: int, kernel: int, stride: int, dilation: int, windows: int) -> int:
    """By how many elements `windows` windows reach beyond an axis of `size`; negative where they
    leave some over.

    Of a transposed convolution, whose windows lie on the result (`size`) and are as many as the
    data: what of the whole result is cut off.
    """
    return (windows - 1) * stride + (kernel - 1) * dilation + 1 - size


def of_all_axes(pads: Sequence[int]) -> list[int]:
    """Padding of the spatial axes as that of all: none of the batch and the channels."""
    n = len(pads) // 2
    return [0, 0, *pads[:n], 0, 0, *pads[n:]]


def same_pads(
    sizes: Sequence[int | None],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int] | None = None,
    windows: Sequence[int] | None = None,
    *,
    upper: bool = True,
) -> list[int]:
    """The padding in front of all axes, then that behind, with which there are ceil(size / stride)
    windows, or as many as `windows` says; the odd element is behind if `upper`.

    MappingError X203 where a size (None) is not known that matters: with a stride of 1 it does not.
    """
    of_length(len(sizes), kernel=kernel, strides=strides)
    of_length(len(sizes), dilations=dilations or strides, windows=windows or strides)
    at_least(1, strides=strides)
    totals = []
    for i, (size, k, s) in enumerate(zip(sizes, kernel, strides, strict=True)):
        if size is None and (s != 1 or windows is not None):
            message = "auto_pad needs known sizes of the input"
            raise MappingError(message, "X203", FIX)
        n = size or 0
        count = -(-n // s) if windows is None else windows[i]
        totals.append(overhang(n, k, s, 1 if dilations is None else dilations[i], count))
    return halves(totals, upper)


def transposed_pads(
    attrs: Mapping[str, Any], sizes: Sequence[int | None], kernel: Sequence[int]
) -> tuple[list[int], list[int]]:
    """The pads and the output_padding of a ConvTranspose whose attributes may have auto_pad and
    output_shape instead.

    The odd element is cut off at the end with SAME_UPPER, else at the begin. MappingError X203
    where an output_shape is given and a size (None) is not known.
    """
    n = len(kernel)
    scheme, wanted = attrs.get("auto_pad") or "NOTSET", attrs.get("output_shape")
    strides, dilations = ([*(attrs.get(k) or [1] * n)] for k in ("strides", "dilations"))
    extra = [*(attrs.get("output_padding") or [0] * n)]
    if scheme in ("NOTSET", "VALID") and not wanted:
        given = attrs.get("pads") if scheme == "NOTSET" else None
        return [*(given or [0] * (2 * n))], extra
    if wanted and None in sizes:
        raise MappingError("an output_shape needs known sizes of the input", "X203", FIX)
    # without an output_shape the result has `size * s` elements, whatever the size is
    axes = zip(sizes, kernel, strides, dilations, wanted[-n:] if wanted else strides, strict=True)
    totals = [overhang(t, k, s, d, (size or 0) if wanted else 1) for size, k, s, d, t in axes]
    totals = [t + e for t, e in zip(totals, extra, strict=True)]
    return split_cut(halves(totals, scheme == "SAME_UPPER")[:n], totals, extra)


def split_cut(
    begins: Sequence[int], totals: Sequence[int], extra: Sequence[int] = ()
) -> tuple[list[int], list[int]]:
    """The pads and the output_padding of a ConvTranspose of which `totals` elements are cut off,
    `begins` of them before each axis; where fewer than none are left for the end, output_padding
    grows.
    """
    ends = [t - b for t, b in zip(totals, begins, strict=True)]
    more = [e + max(0, -n) for e, n in zip(extra or [0] * len(ends), ends, strict=True)]
    return [*begins, *(max(0, n) for n in ends)], more


def halves(totals: Sequence[int], upper: bool = True) -> list[int]:
    """The padding in front of all axes, then that behind; the odd one behind if `upper`. Totals
    below 0 are no padding.
    """
    totals = [max(0, t) for t in totals]
    small, big = [t // 2 for t in totals], [t - t // 2 for t in totals]
    return [*small, *big] if upper else [*big, *small]


def rounded_up(
    pads: Sequence[int],
    sizes: Sequence[int | None],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int] | None,
    windows: Sequence[int | None],
) -> list[int]:
    """Pads with which windows that round down are as many as with `ceil_mode` and `pads`: as much
    more behind as the last window reaches over, or less where one more would fit.

    MappingError where a window begins in the padding behind, which ONNX leaves out, and X203 where
    a size (None) is not known.
    """
    found, n = list(pads), len(sizes)
    for i, (size, k, s, count) in enumerate(zip(sizes, kernel, strides, windows, strict=True)):
        if size is None or count is None:
            raise MappingError("ceil_mode=1 needs known sizes", "X203", FIX)
        if (count - 1) * s >= size + pads[i]:
            raise MappingError("a window begins in the padding at the end, where ONNX has none")
        over = overhang(size + pads[i], k, s, 1 if dilations is None else dilations[i], count)
        found[n + i] = max(over, min(pads[n + i], over + s - 1))
    return found
