"""The sliding windows of convolutions and poolings, and around them one spatial axis as two."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.openvino.fields import whole_window
from converter.formats.openvino.legacy.rules.context import Reading, Writing
from converter.graph.infer import shape_of
from converter.graph.record import record
from converter.graph.windows import overhang, same_pads
from converter.mapping.fields import Field

KEYS = (
    "kernel strides pads_begin pads_end dilations auto_pad kernel-x kernel-y stride-x stride-y "
    "stride pad-x pad-y pad-r pad-b dilation-x dilation-y kernel_x kernel_y stride_x stride_y "
    "pad_x pad_y pad_r pad_b dilation_x dilation_y pad dilation"
)


@record
class Sizes:
    """A window over the spatial axes, in axis order (z, y, x)."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    begin: list[int]
    end: list[int]


def sizes_of(r: Reading, rank: int) -> Sizes:
    """The window as the engine reads it:
    lists when there is `kernel`, else by axis; an end pad defaults to the begin.
    """
    if "kernel" in r.layer.attrs and ("," in r.attr("kernel", str) or rank == 1):
        begin, ones = r.attr("pads_begin", list, [0] * rank), [1] * rank
        strides, dilations = (r.attr(k, list, ones) for k in ("strides", "dilations"))
        found = Sizes(
            r.attr("kernel", list), strides, dilations, begin, r.attr("pads_end", list, begin)
        )
    else:
        found = _by_axis(r)
    if any(len(v) != rank for v in vars(found).values()):
        raise MappingError(f"the window does not have {rank} dimensions", "R110")
    if min([*found.kernel, *found.strides, *found.dilations]) < 1:
        raise MappingError("kernel, strides and dilations must be positive", "R110")
    return found


def _by_axis(r: Reading) -> Sizes:
    """The spellings of v2:
    kernel-x and kernel-y, also with underscores; `stride` alone stands for both axes.
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
    return Sizes(pair("kernel", None), pair("stride", 1), pair("dilation", 1), begin, end)


def padded_for(r: Reading, window: Sizes, size: Sequence[int], out: Sequence[int]) -> None:
    """same_upper, same_lower and valid: pads that give the declared size."""
    auto = r.attr("auto_pad", str, "")
    if auto in ("same_upper", "same_lower"):
        w, upper = window, auto == "same_upper"
        pads = same_pads(size, w.kernel, w.strides, w.dilations, out, upper=upper)
        window.begin, window.end = pads[: len(size)], pads[len(size) :]
    elif auto == "valid":
        window.begin, window.end = [0] * len(size), [0] * len(size)
    elif auto not in ("", "explicit", "notset"):
        raise MappingError(f"auto_pad={auto!r} is not known", "R110")


def along(r: Reading) -> tuple[list[int], list[int]]:
    """The spatial sizes of the input, and of the output as its port declares them."""
    size, out = list(r.static()[2:]), list(r.dims()[2:])
    if len(size) != len(out):
        message = f"{len(size)} axes go into windows, {len(out)} come out"
        raise MappingError(message, "R105")
    return size, out


def end_pads(window: Sizes, size: Sequence[int], out: Sequence[int]) -> list[int]:
    """End pads with which rounding down gives `out`; the declared ones where they already do."""
    result, w = [], window
    for n, o, k, s, d, before, after in zip(
        size, out, w.kernel, w.strides, w.dilations, w.begin, w.end, strict=True
    ):
        over = overhang(n + before, k, s, d, o)
        result.append(after if over <= after < over + s else over)
    return result


def cropped(r: Reading, x: ir.Value, pads: list[int]) -> tuple[ir.Value, list[int]]:
    """Negative pads, which ONNX does not have, as a slice."""
    if min(pads, default=0) >= 0:
        return x, pads
    rank, size = len(pads) // 2, r.static(x)[2:]
    starts = [max(0, -p) for p in pads[:rank]]
    ends = [n - max(0, -p) for n, p in zip(size, pads[rank:], strict=True)]
    axes = list(range(2, rank + 2))
    return r.b.Slice(x, starts, ends, axes), [max(0, p) for p in pads]


@record
class Window(Field):
    """kernel, strides, dilations and pads, in the lists of v3 and later or by axis <-> those of
    the operator.

    The port says how many windows there are. One spatial axis is written as two, of which the
    first has length 1. `weights`: the input whose shape has that of the kernel.
    """

    weights: int = 1
    names = tuple(["strides", "dilations", "pads", "auto_pad", "kernel_shape"])
    keys = tuple(KEYS.split())

    def lift(self, r: Reading) -> None:
        size, out = along(r)
        window = sizes_of(r, len(out))
        padded_for(r, window, size, out)
        self.complete(r, window, size, out)

    def complete(self, r: Reading, w: Sizes, size: Sequence[int], out: Sequence[int]) -> None:
        ends = end_pads(w, size, out)
        r.data, pads = cropped(r, r.data, [*w.begin, *ends])
        r.node.attrs |= {"strides": w.strides, "dilations": w.dilations}
        r.node.attrs |= {"kernel_shape": w.kernel, "pads": pads}

    def kernel(self, w: Writing) -> list[int]:
        return w.shape(self.weights)[2:]

    def lower(self, w: Writing) -> None:
        kernel = self.kernel(w)
        rank, auto = len(kernel), w.attr("auto_pad", "NOTSET")
        if auto not in ("NOTSET", "VALID"):
            raise MappingError(f"auto_pad={auto!r} must be explicit pads")
        a = whole_window(w.node, rank)
        pads = a["pads"] if auto == "NOTSET" else [0] * (2 * rank)
        spatial = [kernel, a["strides"], a["dilations"], pads[:rank], pads[rank:]]
        if rank == 1:
            spatial = [[first, *v] for first, v in zip((1, 1, 1, 0, 0), spatial, strict=True)]
        elif rank not in (2, 3):
            raise MappingError(f"windows over {rank} axes are not known to the target")
        names = ("kernel", "strides", "dilations", "pads_begin", "pads_end")
        w.set(**{k: list(v) for k, v in zip(names, spatial, strict=True)})
        if rank == 1:
            self._between_reshapes(w)

    def _between_reshapes(self, w: Writing) -> None:
        layer = w.layer
        for i, v in enumerate(layer.inputs):
            if v is not None and len(shape_of(v) or ()) == 3:
                n, c, length = w.shape(v)
                layer.inputs[i] = w.reshaped(v, [n, c, 1, length])
        n, c, length = w.shape(w.out)
        w.gives([n, c, 1, length])
