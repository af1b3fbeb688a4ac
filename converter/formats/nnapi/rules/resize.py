"""Resizing. NNAPI has three rules for coordinates.

Another rule is written as one of them where both pick the same sources.
"""

from __future__ import annotations

from converter.errors import MappingError
from converter.formats.nnapi.rules.context import Reading, Writing
from converter.mapping.fields import Field, Only
from converter.mapping.rules import op
from converter.passes.lite.resizing import NAMES, flags_of, rule_of


class Coordinates(Field):
    """The size, given or by factors that are rounded down, and the rule for coordinates."""

    names = NAMES
    inputs = (1, 2, 3)
    keys = (
        *("width", "height", "width_scale", "height_scale"),
        *("align_corners", "half_pixel_centers"),
    )

    def lift(self, r: Reading) -> None:
        a = r.node.attrs
        if "width" in r.layer.attrs:
            target = [r.attr("height", int), r.attr("width", int)]
        else:
            scales = (r.attr("height_scale", float), r.attr("width_scale", float))
            target = [int(n * s) for n, s in zip(r.spatial(), scales, strict=True)]
        corners, half = (bool(r.attr(k, bool, False)) for k in self.keys[4:])
        a |= rule_of(corners, half, a["mode"])
        sizes = r.b.const([r.shape()[0], r.channels(), *target], "sizes")
        r.set_inputs(r.data, None, None, sizes)

    def lower(self, w: Writing) -> None:
        mode = w.attr("mode")
        if w.attr("antialias", 0) or len(w.static()) != 4:
            raise MappingError(f"mode {mode!r} is not possible, or not in this rank")
        (n, *size, c), (m, *target, d) = (w.image(v) for v in (w.data, w.out))
        if (n, c) != (m, d):
            raise MappingError("only height and width can be resized")
        corners, half = flags_of(w, size, target)
        w.set(width=target[1], height=target[0])
        if corners or half:
            w.set(align_corners=corners, half_pixel_centers=half)


RULES = [
    op(
        "Resize",
        kind,
        Only("mode", mode),
        Coordinates(),
        given="1,2,3,4 ? =[1,1,2,2]",
    )
    for mode, kind in (("linear", "RESIZE_BILINEAR"), ("nearest", "RESIZE_NEAREST_NEIGHBOR"))
]
