"""Resizing. NNAPI has three coordinate rules; another rule is written as one of them if both select
the same elements.
"""

from __future__ import annotations

from typing import Any

from converter.formats.nnapi.rules.context import LiftContext, LowerContext
from converter.mapping.concepts import resize
from converter.mapping.concepts.resize import Rule, Sampling
from converter.mapping.fields import RequireAttr
from converter.mapping.rules import op
from converter.passes.lite.resizing import FLAGS, rule_of


class Resize(resize.Resize):
    """The size, given or by factors that are rounded down, and the rule for coordinates."""

    keys = (
        *("width", "height", "width_scale", "height_scale"),
        *("align_corners", "half_pixel_centers"),
    )
    rules = tuple(FLAGS)

    def read(self, r: LiftContext) -> tuple[Any, Rule]:
        if "width" in r.layer.attrs:
            target = [r.attr("height", int), r.attr("width", int)]
        else:
            scales = (r.attr("height_scale", float), r.attr("width_scale", float))
            target = [int(n * s) for n, s in zip(r.spatial(), scales, strict=True)]
        corners, half = (bool(r.attr(k, bool, False)) for k in self.keys[4:])
        sizes = r.b.const([r.shape()[0], r.channels(), *target], "sizes")
        return sizes, rule_of(r.node.attrs["mode"], corners, half)

    def write(self, w: LowerContext, wanted: Sampling, rule: Rule) -> None:
        w.set(width=wanted.after[1], height=wanted.after[0])
        corners, half = FLAGS[rule]
        if corners or half:
            w.set(align_corners=corners, half_pixel_centers=half)


RULES = [
    op(
        "Resize",
        kind,
        RequireAttr("mode", mode),
        Resize(),
        example_inputs="1,2,3,4 ? =[1,1,2,2]",
    )
    for mode, kind in (("linear", "RESIZE_BILINEAR"), ("nearest", "RESIZE_NEAREST_NEIGHBOR"))
]
