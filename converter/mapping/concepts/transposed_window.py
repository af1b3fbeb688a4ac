"""The window of a transposed convolution: the padding that is cropped from its full result, and the
elements that are added at the end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import onnx_ir as ir

from converter.errors import MappingError
from converter.graph.open_sizes import is_open, sizes_in_file
from converter.graph.windows import FIX, SAME, halves, overhang, split_cut, transposed_pads
from converter.mapping.concepts.window import Geometry, Window, spatial


class TransposedWindow(Window):
    """A window <-> that of ONNX's ConvTranspose.

    `pads` elements are cropped from the full result; `extra` elements are kept at its end. A format
    reads pads with `extra`, or the begins of pads with a `target` size, or a scheme that results in
    stride * size elements.

    `extends`  whether the layer has an output_padding; if not, it is subtracted from the `pads`
               that are written, which are negative at the end if the result extends beyond
               the last window
    `beyond`   whether results that extend beyond the last window can be written
    """

    SPELLING = Window.SPELLING | {"extends", "beyond"}
    names = (*Window.names[:-1], "output_padding", "output_shape")
    extends = beyond = False

    def resolve(self, r: Any) -> Geometry:
        window = self.parse(r)
        n, (kernel, strides, dilations) = len(window.kernel), window.steps
        if not window.target and not window.scheme:
            return window
        target, counts, begins = window.target, window.sizes, window.pads[:n]
        if not target:
            target, counts = strides, [1] * n
        elif not counts:
            sizes = spatial(r.node, r.data)
            if None in sizes and is_open():  # all sizes are cropped alike
                sizes = spatial(r.node, ir.Value(shape=ir.Shape(sizes_in_file(r.data))))
            if None in sizes:
                raise MappingError("output_shape needs static sizes", "X203", FIX)
            counts = [int(m or 0) for m in sizes]
        axes = zip(target, kernel, strides, dilations, counts, strict=True)
        totals = [overhang(*axis) for axis in axes]
        if window.scheme:
            begins = halves(totals, window.scheme == SAME[0])[:n]
        totals = [t + e for t, e in zip(totals, window.extra or [0] * n, strict=True)]
        pads, extra = split_cut(begins, totals, window.extra)
        said = window.extra or any(extra)
        return replace(window, pads=pads, scheme="", extra=extra if said else [])

    def make_explicit(self, w: Any, window: Geometry) -> Geometry:
        n = len(window.kernel)
        pads, extra = transposed_pads(w.node.attrs, spatial(w.node, w.data), window.kernel)
        if not self.extends:
            pads = [*pads[:n], *(p - e for p, e in zip(pads[n:], extra, strict=True))]
        return replace(window, pads=[int(p) for p in pads], scheme="", extra=extra)

    def check_padding(self, w: Any, window: Geometry) -> None:
        if self.beyond:
            pads = [max(0, p) for p in window.pads]
        elif min(window.pads) < 0:
            message = f"output_padding must be 0 for {w.layer.kind}, got {window.extra}"
            raise MappingError(message)
        else:
            pads = window.pads
        super().check_padding(w, replace(window, pads=pads))
