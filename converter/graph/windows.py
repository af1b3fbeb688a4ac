"""Sliding windows: what their numbers may be, and the padding that is said by name, SAME_UPPER and
SAME_LOWER of ONNX.

What each format calls them is its own; how much it is, is here.
"""

from __future__ import annotations

from collections.abc import Sequence

LARGEST = 1 << 31  # of one attribute that counts
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


def same_padding(
    size: int, kernel: int, stride: int, dilation: int = 1, windows: int | None = None
) -> int:
    """The padding of an axis on both sides together: enough for ceil(size / stride) windows.

    `windows`: for as many as that.
    """
    count = -(-size // stride) if windows is None else windows
    return max(0, (count - 1) * stride + (kernel - 1) * dilation + 1 - size)


def halves(totals: Sequence[int], upper: bool = True) -> list[int]:
    """The padding in front of all axes, then that behind; the odd one behind if `upper`."""
    small, big = [t // 2 for t in totals], [t - t // 2 for t in totals]
    return [*small, *big] if upper else [*big, *small]
