"""Convolutions. Filters are O H W I, those of a depthwise one 1 H W O."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from converter.formats.lite.weights import Filter, Multiplier
from converter.formats.nnapi.rules.context import LiftContext, LowerContext
from converter.formats.nnapi.rules.fields import (
    BIAS,
    PADS,
    STRIDES,
    FusedActivation,
    Window,
)
from converter.formats.nnapi.rules.weights import longer
from converter.graph.windows import same_pads
from converter.mapping.concepts import transposed_window
from converter.mapping.concepts.window import Geometry
from converter.mapping.fields import Attr, Guard, RequireAttr
from converter.mapping.rules import op


def depth(w: LowerContext) -> int:
    """Return how many channels of the input each output channel of a convolution reads."""
    found: Any = w.static(1)[1]
    return int(found)


class TransposedWindow(Window, transposed_window.TransposedWindow):
    """The window of a transposed convolution: explicit padding, or the padding scheme of the
    convolution that is transposed. The requested size determines the end of the result; rows of
    zeros are added to the filter where the result extends beyond the last window.
    """

    names = (
        *("dilations", "kernel_shape", "strides", "output_padding"),
        *("pads", "auto_pad", "output_shape"),
    )
    keys = (*PADS, *STRIDES, "padding", "output_shape")
    dilated, beyond = False, True

    def read(self, r: LiftContext) -> Geometry:
        found = super().read(r)
        found = replace(found, extra=[0, 0])
        if not found.scheme and "pad_left" in r.layer.attrs:
            return found
        asked = r.layer.attrs.get("output_shape") or list(r.output().dimensions)
        target = asked[2:4] if r.nchw else asked[1:3]
        begins = same_pads(target, found.kernel, found.strides)[:2] if found.scheme else [0, 0]
        return replace(found, scheme="", target=target, pads=[*begins, 0, 0])

    def write(self, w: LowerContext, window: Geometry) -> None:
        rows = [max(0, -n) for n in window.pads[2:]]
        if any(rows):
            w.layer.attrs["filter"] = longer(w, w.layer.attrs["filter"], rows)
        super().write(w, replace(window, pads=[max(0, n) for n in window.pads]))


UNDILATED = Guard(
    "dilations of a grouped convolution are not supported",
    lambda w: all(d == 1 for d in w.attr("dilations", None) or ()),
)
DEPTHWISE = Guard(
    "only depthwise convolutions are supported by this operation",
    lambda w: w.attr("group") > 1 and depth(w) == 1,
)
RULES = [
    op(
        "Conv",
        "CONV_2D",
        Filter((0, 2, 3, 1), "filter"),
        BIAS,
        Window(),
        RequireAttr("group", 1),
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
        example_inputs="1,4,8,8 =4,1,3,3 =4",
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
        example_inputs="1,4,8,8 =4,2,3,3 =4",
    ),
    op(
        "ConvTranspose",
        "TRANSPOSE_CONV_2D",
        RequireAttr("group", 1),
        Filter((1, 2, 3, 0), "filter", 1),
        TransposedWindow(),
        BIAS,
        FusedActivation(),
    ),
]
