"""Sliding windows: valid parameters, and padding that is specified by name, SAME_UPPER and
SAME_LOWER of ONNX.

Each format has its own names for the schemes; the amounts are computed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from converter.errors import MappingError
from converter.graph.demands import at_least, of_length

LARGEST = 1 << 31  # limit of sizes and strides
FIX = "fix the inputs with --inputs"
SAME = ("SAME_UPPER", "SAME_LOWER")
WIDEST = 1 << 24  # limit of the padding of a window, because engines iterate over it


def window_fault(
    kernel: Sequence[int | None],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
) -> str | None:
    """Return why a window is invalid, or None.

    All numbers count elements; None in the kernel is an unknown size.
    """
    n = len(kernel)
    if len(strides) != n or len(dilations) != n or len(pads) != 2 * n:
        return (
            f"a window of {n} axes must have as many strides, dilations and "
            f"pads, got {len(strides)}, {len(dilations)} and {len(pads)}"
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
                return f"{name} has the invalid value {v}"
    return None


def overhang(size: int, kernel: int, stride: int, dilation: int, windows: int) -> int:
    """Return by how many elements `windows` windows extend beyond an axis of `size`; negative if
    elements are left over.

    For a transposed convolution, whose windows lie on the result (`size`) and are as many as the
    data elements: the amount by which the full result is cropped.
    """
    return (windows - 1) * stride + (kernel - 1) * dilation + 1 - size


def of_all_axes(pads: Sequence[int]) -> list[int]:
    """Return padding of the spatial axes as padding of all axes: none for batch and channels."""
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
    """Return the padding before all axes, then that after them, with which there are ceil(size /
    stride) windows, or `windows` if given; the odd element is at the end if `upper`.

    Raise MappingError X203 if a required size is unknown (None); with a stride of 1 and
    without `windows` none is required.
    """
    of_length(len(sizes), kernel=kernel, strides=strides)
    of_length(len(sizes), dilations=dilations or strides, windows=windows or strides)
    at_least(1, strides=strides)
    totals = []
    for i, (size, k, s) in enumerate(zip(sizes, kernel, strides, strict=True)):
        if size is None and (s != 1 or windows is not None):
            message = "auto_pad needs static sizes of the input"
            raise MappingError(message, "X203", FIX)
        n = size or 0
        count = -(-n // s) if windows is None else windows[i]
        totals.append(overhang(n, k, s, 1 if dilations is None else dilations[i], count))
    return halves(totals, upper)


def transposed_pads(
    attrs: Mapping[str, Any], sizes: Sequence[int | None], kernel: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Return the pads and the output_padding of a ConvTranspose, whose attributes may have auto_pad
    and output_shape instead.

    The odd element is cropped at the end with SAME_UPPER, else at the beginning. Raise MappingError
    X203 if an output_shape is given and a size is unknown (None).
    """
    n = len(kernel)
    scheme, wanted = attrs.get("auto_pad") or "NOTSET", attrs.get("output_shape")
    strides, dilations = ([*(attrs.get(k) or [1] * n)] for k in ("strides", "dilations"))
    extra = [*(attrs.get("output_padding") or [0] * n)]
    if scheme in ("NOTSET", "VALID") and not wanted:
        given = attrs.get("pads") if scheme == "NOTSET" else None
        return [*(given or [0] * (2 * n))], extra
    if wanted and None in sizes:
        raise MappingError("output_shape needs static sizes of the input", "X203", FIX)
    # without an output_shape the result has `size * s` elements for every size
    axes = zip(sizes, kernel, strides, dilations, wanted[-n:] if wanted else strides, strict=True)
    totals = [overhang(t, k, s, d, (size or 0) if wanted else 1) for size, k, s, d, t in axes]
    totals = [t + e for t, e in zip(totals, extra, strict=True)]
    return split_cut(halves(totals, scheme == "SAME_UPPER")[:n], totals, extra)


def split_cut(
    begins: Sequence[int], totals: Sequence[int], extra: Sequence[int] = ()
) -> tuple[list[int], list[int]]:
    """Return the pads and the output_padding of a ConvTranspose that crops `totals` elements,
    `begins` of them before each axis.

    If the amount at the end is negative, output_padding grows.
    """
    ends = [t - b for t, b in zip(totals, begins, strict=True)]
    more = [e + max(0, -n) for e, n in zip(extra or [0] * len(ends), ends, strict=True)]
    return [*begins, *(max(0, n) for n in ends)], more


def halves(totals: Sequence[int], upper: bool = True) -> list[int]:
    """Split totals into the padding before all axes, then that after them; the odd element is at
    the end if `upper`. Negative totals count as 0.
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
    """Return pads with which windows that round down are as many as with `ceil_mode` and `pads`:
    the end padding is raised to the overhang of the last window, or lowered if another window
    would fit.

    If a size is unknown (None), the end padding is raised by all that rounding up may need, unless
    a window could begin there (X203). Raise MappingError if a window begins in the end padding,
    which ONNX leaves out.
    """
    found, n = list(pads), len(sizes)
    for i, (size, k, s, count) in enumerate(zip(sizes, kernel, strides, windows, strict=True)):
        d = 1 if dilations is None else dilations[i]
        if size is None or count is None:
            if pads[n + i] + s > (k - 1) * d + 1:
                raise MappingError("ceil_mode=1 needs static sizes", "X203", FIX)
            found[n + i] += s - 1
            continue
        if (count - 1) * s >= size + pads[i]:
            raise MappingError("a window must not begin in the padding at the end")
        over = overhang(size + pads[i], k, s, d, count)
        found[n + i] = max(over, min(pads[n + i], over + s - 1))
    return found
