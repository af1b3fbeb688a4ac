"""The sliding windows of convolutions and poolings, and around them one spatial axis as two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.openvino.legacy.rules.context import LiftContext, LowerContext
from converter.graph.infer import shape_of
from converter.graph.windows import overhang, same_pads, window_fault
from converter.mapping.concepts import window
from converter.mapping.concepts.window import Geometry, weights_kernel
from converter.mapping.node import Node

KEYS = (
    "kernel strides pads_begin pads_end dilations auto_pad kernel-x kernel-y stride-x stride-y "
    "stride pad-x pad-y pad-r pad-b dilation-x dilation-y kernel_x kernel_y stride_x stride_y "
    "pad_x pad_y pad_r pad_b dilation_x dilation_y pad dilation"
)


def window_of(r: LiftContext, rank: int) -> Geometry:
    """Return the window as the engine reads it:
    lists when there is `kernel`, else by axis; an end pad defaults to the begin.
    """
    if "kernel" in r.layer.attrs and ("," in r.attr("kernel", str) or rank == 1):
        begin, ones = r.attr("pads_begin", list, [0] * rank), [1] * rank
        strides, dilations = (r.attr(k, list, ones) for k in ("strides", "dilations"))
        pads = [*begin, *r.attr("pads_end", list, begin)]
        found = Geometry(r.attr("kernel", list), strides, dilations, pads)
    else:
        found = _by_axis(r)
    fault = window_fault(*found.steps, found.pads)
    if len(found.kernel) != rank:
        fault = f"a window of {len(found.kernel)} axes does not fit {rank} spatial axes"
    if fault:
        raise MappingError(fault, "R110")
    return found


def _by_axis(r: LiftContext) -> Geometry:
    """Read the spellings of v2: kernel-x and kernel-y, also with underscores; `stride` alone
    applies to both axes.
    """

    def pair(what: str, default: int | None, axes: str = "yx") -> list[int]:
        common = default
        if what in r.layer.attrs and "," not in r.attr(what, str):
            common = r.attr(what, int)
        found: list[int] = []
        for a in axes:
            keys = [k for k in (f"{what}-{a}", f"{what}_{a}") if k in r.layer.attrs]
            if not keys and common is None:
                raise MappingError(f"required attribute {what!r} is absent", "R110")
            found.append(int(r.attr(keys[0], int) if keys else common or 0))
        return found

    begin = pair("pad", 0)
    end = [
        next((r.attr(k, int) for k in (f"pad-{a}", f"pad_{a}") if k in r.layer.attrs), default)
        for a, default in zip("br", begin, strict=True)
    ]
    return Geometry(pair("kernel", None), pair("stride", 1), pair("dilation", 1), [*begin, *end])


def padded_for(
    r: LiftContext, window: Geometry, size: Sequence[int], out: Sequence[int]
) -> Geometry:
    """Return the pads of same_upper, same_lower or valid that give the declared size."""
    auto = r.attr("auto_pad", str, "")
    if auto in ("same_upper", "same_lower"):
        return replace(window, pads=same_pads(size, *window.steps, out, upper=auto == "same_upper"))
    if auto == "valid":
        return replace(window, pads=[0] * (2 * len(size)))
    if auto not in ("", "explicit", "notset"):
        raise MappingError(f"auto_pad={auto!r} is not known", "R110")
    return window


def along(r: LiftContext) -> tuple[list[int], list[int]]:
    """Return the spatial sizes of the input, and of the output as its port declares them."""
    size, out = list(r.static()[2:]), list(r.dims()[2:])
    if len(size) != len(out):
        message = f"{len(size)} spatial axes enter the layer, but {len(out)} leave it"
        raise MappingError(message, "R105")
    return size, out


def end_pads(window: Geometry, size: Sequence[int], out: Sequence[int]) -> list[int]:
    """Return end pads with which rounding down gives `out`; the declared ones if they already
    do.
    """
    result, n = [], len(size)
    pairs = zip(window.pads[:n], window.pads[n:], strict=True)
    for m, o, k, s, d, (before, after) in zip(size, out, *window.steps, pairs, strict=True):
        over = overhang(m + before, k, s, d, o)
        result.append(after if over <= after < over + s else over)
    return result


def cropped(r: LiftContext, x: ir.Value, pads: list[int]) -> tuple[ir.Value, list[int]]:
    """Convert negative pads, which ONNX does not support, to a Slice."""
    if min(pads, default=0) >= 0:
        return x, pads
    rank, size = len(pads) // 2, r.static(x)[2:]
    starts = [max(0, -p) for p in pads[:rank]]
    ends = [n - max(0, -p) for n, p in zip(size, pads[rank:], strict=True)]
    axes = list(range(2, rank + 2))
    return r.b.Slice(x, starts, ends, axes), [max(0, p) for p in pads]


class Window(window.Window):
    """kernel, strides, dilations and pads, in the lists of v3 and later or by axis.

    The port says how many windows there are. One spatial axis is written as two, of which the
    first has length 1. `weights`: the input whose shape has that of the kernel.
    """

    names: tuple[str, ...] = ("strides", "dilations", "kernel_shape", "pads", "auto_pad")
    keys = tuple(KEYS.split())

    def __init__(self, weights: int = 1) -> None:
        self.weights = weights

    def kernel(self, node: Node) -> list[int]:
        return weights_kernel(node, self.weights)

    def read(self, r: LiftContext) -> Geometry:
        size, out = along(r)
        window = padded_for(r, window_of(r, len(out)), size, out)
        return self.with_output_padding(r, window, size, out)

    def with_output_padding(
        self, r: LiftContext, window: Geometry, size: Sequence[int], out: Sequence[int]
    ) -> Geometry:
        """Pad for the number of windows in the port's shape."""
        ends = end_pads(window, size, out)
        r.data, pads = cropped(r, r.data, [*window.pads[: len(size)], *ends])
        return replace(window, pads=pads)

    def write(self, w: LowerContext, window: Geometry) -> None:
        rank = len(window.kernel)
        spatial = [*window.steps, window.pads[:rank], window.pads[rank:]]
        if rank == 1:
            spatial = [[first, *v] for first, v in zip((1, 1, 1, 0, 0), spatial, strict=True)]
        names = ("kernel", "strides", "dilations", "pads_begin", "pads_end")
        w.set(**{k: list(v) for k, v in zip(names, spatial, strict=True)})
        if rank == 1:
            self._between_reshapes(w)

    def _between_reshapes(self, w: LowerContext) -> None:
        layer = w.layer
        for i, v in enumerate(layer.inputs):
            if v is not None and len(shape_of(v) or ()) == 3:
                n, c, length = w.shape(v)
                layer.inputs[i] = w.reshaped(v, [n, c, 1, length])
        n, c, length = w.shape(w.out)
        w.gives([n, c, 1, length])
