"""Convolutions. Filters are O H W I, those of a depthwise one 1 H W O."""

from __future__ import annotations

from typing import Any

from converter.formats.lite.weights import Filter, Multiplier
from converter.formats.nnapi.rules.context import Reading, Writing
from converter.formats.nnapi.rules.fields import (
    BIAS,
    PADS,
    STRIDES,
    FusedActivation,
    Window,
    numbers,
    set_window,
    sizes,
)
from converter.formats.nnapi.rules.weights import longer
from converter.graph.windows import halves, overhang
from converter.mapping.fields import Attr, Field, Guard, Only
from converter.mapping.rules import op


def depth(w: Writing) -> int:
    """How many channels of the input each output channel of a convolution reads."""
    found: Any = w.static(1)[1]
    return int(found)


class TransposedWindow(Field):
    """Strides, and padding as it is or as the size asked for leaves it <-> those of ONNX.

    When writing, what is missing behind (output_padding) is padding less, or rows of zeros more in
    the filter.
    """

    names = ("strides", "pads", "auto_pad", "kernel_shape", "output_padding", "output_shape")
    keys: tuple[str, ...] = (*PADS, *STRIDES, "padding", "output_shape")

    def lift(self, r: Reading) -> None:
        a = r.node.attrs
        a["kernel_shape"], a["strides"] = list(r.shape("filter", axes=4)[1:3]), sizes(r, STRIDES)
        a["output_padding"] = [0, 0]
        if "pad_left" in r.layer.attrs:
            a["pads"] = numbers(r, PADS)
            return
        asked = r.layer.attrs.get("output_shape") or list(r.output().dimensions)
        target = asked[2:4] if r.nchw else asked[1:3]
        axes = zip(target, a["kernel_shape"], a["strides"], (1, 1), r.spatial(), strict=True)
        totals = [overhang(*axis) for axis in axes]
        a["pads"] = halves(totals)
        a["output_padding"] = [max(0, -n) for n in totals]

    def lower(self, w: Writing) -> None:
        a = w.node.attrs
        size, target = (w.image(v)[1:3] for v in (w.data, w.out))
        axes = zip(target, w.static(1)[2:], a.get("strides") or (1, 1), (1, 1), size, strict=True)
        totals = [int(overhang(*axis)) for axis in axes]
        before = list(a.get("pads") or (0, 0, 0, 0))[:2]
        auto = a.get("auto_pad", "NOTSET")
        if auto in ("SAME_UPPER", "SAME_LOWER") or a.get("output_shape"):
            before = halves(totals, upper=auto != "SAME_LOWER")[:2]
        behind = [n - f for n, f in zip(totals, before, strict=True)]
        if min(behind) < 0:
            rows = [max(0, -n) for n in behind]
            w.layer.attrs["filter"] = longer(w, w.layer.attrs["filter"], rows)
        set_window(w, [*before, *(max(0, n) for n in behind)])


UNDILATED = Guard(
    "a grouped convolution has no dilation there",
    lambda w: all(d == 1 for d in w.attr("dilations", None) or ()),
)
DEPTHWISE = Guard("not a depthwise convolution", lambda w: w.attr("group") > 1 and depth(w) == 1)
RULES = [
    op(
        "Conv",
        "CONV_2D",
        Filter((0, 2, 3, 1), "filter"),
        BIAS,
        Window(),
        Only("group", 1),
        FusedActivation(),
    ),
    op(
        "Conv",
        "DEPTHWISE_CONV_2D",
        DEPTHWISE,
        Filter((1, 2, 3, 0), "filter"),
        BIAS,
        Window(),
        Multiplier("multiplier"),
        FusedActivation(),
        given="1,4,8,8 =4,1,3,3 =4",
    ),
    op(
        "Conv",
        "GROUPED_CONV_2D",
        UNDILATED,
        Filter((0, 2, 3, 1), "filter"),
        BIAS,
        Window(),
        Attr("group", "groups", int),
        FusedActivation(),
        given="1,4,8,8 =4,2,3,3 =4",
    ),
    op(
        "ConvTranspose",
        "TRANSPOSE_CONV_2D",
        Only("group", 1),
        Only("dilations", [1, 1]),
        Filter((1, 2, 3, 0), "filter", 1),
        TransposedWindow(),
        BIAS,
        FusedActivation(),
    ),
]
