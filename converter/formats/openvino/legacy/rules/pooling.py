"""Pooling. Only the size of the port determines the rounding, also beyond the padded input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.openvino.fields import WidePadding, excluded
from converter.formats.openvino.legacy.rules.context import LiftContext, LowerContext
from converter.formats.openvino.legacy.rules.fields import FLOATS
from converter.formats.openvino.legacy.rules.windows import (
    Window,
    along,
    cropped,
    end_pads,
    padded_for,
    window_of,
)
from converter.graph.windows import of_all_axes
from converter.mapping.concepts.window import Geometry, global_window
from converter.mapping.fields import Field, RequireKey, ignore
from converter.mapping.node import Node
from converter.mapping.rules import Rule, op

KERNELS = ("kernel", "kernel-x", "kernel_x")


class PoolWindow(Window):
    """The window of a pool with its own kernel; without one it is the whole image."""

    names = (*Window.names, "ceil_mode", "storage_order")
    keys = (*Window.keys, "rounding_type", "rounding-type", "exclude-pad")
    dilated, rounds = False, True

    def read(self, r: LiftContext) -> Geometry:
        size, out = along(r)
        window = Geometry(list(size), [1] * len(size), [], [0] * (2 * len(size)))
        if any(k in r.layer.attrs for k in KERNELS):
            window = window_of(r, len(out))
        window = padded_for(r, window, size, out)
        return replace(self.with_output_padding(r, window, size, out), dilations=[])

    def kernel(self, node: Node) -> list[int]:
        return list(node.attrs.get("kernel_shape") or global_window(node))

    def write(self, w: LowerContext, window: Geometry) -> None:
        if w.used(1) or w.attr("storage_order", 0):
            raise MappingError("the indices output is not supported")
        if any(p >= k for p, k in zip(window.pads, window.kernel * 2, strict=True)):
            raise MappingError("padding must be smaller than the window")
        super().write(w, window)
        del w.layer.attrs["dilations"], w.layer.outputs[1:]
        w.set(rounding_type="ceil" if window.ceil else "floor")
        w.layer.attrs["exclude-pad"] = "true"


class AverageWindow(PoolWindow):
    """An average that includes pads counts the declared ones, not the rest of a last window.

    Windows that extend beyond the padded input are divided by the number of elements inside it.
    """

    names = (*PoolWindow.names, "count_include_pad")

    def with_output_padding(
        self, r: LiftContext, window: Geometry, size: Sequence[int], out: Sequence[int]
    ) -> Geometry:
        n, include = len(size), r.attr("exclude-pad", excluded, 1)
        begin, end = window.pads[:n], window.pads[n:]
        ends = end_pads(window, size, out)
        declared = [min(e, d) for e, d in zip(ends, end, strict=True)] if include else ends
        extra = [max(0, e - d) if include else 0 for e, d in zip(ends, end, strict=True)]
        x, pads = cropped(r, r.input(0), [*begin, *declared])
        if any(extra):
            if any(pads):
                x = r.b.Pad(x, of_all_axes(pads), r.b.like(x, 0))
            pads, include = [0] * n + extra, 0
        r.data = x
        r.set(count_include_pad=include)
        if not any(extra) and any(p >= k for p, k in zip(pads, window.kernel * 2, strict=True)):
            raise MappingError("padding must be smaller than the window", "R110")
        return replace(window, pads=pads)

    def write(self, w: LowerContext, window: Geometry) -> None:
        super().write(w, window)
        include, n = w.attr("count_include_pad", 0), len(window.kernel)
        w.layer.attrs["exclude-pad"] = excluded.lower(include)
        begin, end = window.pads[:n], window.pads[n:]
        if include and any(e > b for b, e in zip(begin, end, strict=True)):
            # the engine counts as many pads at the end as there are at the beginning
            x = w.layer.inputs[0] or w.data
            rank = len(w.shape(x))
            front = [0] * (rank - n)
            w.set_inputs(padded(w, x, front + begin, front + end))
            w.set(pads_begin=[0] * (rank - 2), pads_end=[0] * (rank - 2))


def padded(w: LowerContext, x: ir.Value, begin: list[int], end: list[int]) -> ir.Value:
    """Emit a Pad with zeros."""
    size = w.shape(x)
    shape = [n + b + e for n, b, e in zip(size, begin, end, strict=True)]
    pads: dict[str, Any] = {"pads_begin": begin, "pads_end": end}
    return w.emit("Pad", x, shape=shape, **pads, pad_mode="constant", pad_value="0")


UNUSED = ignore("global-pool", "global_pool", "method", "pool_method", "exclude_pad", "exclude-pad")


def pool(name: str, method: str, *fields: Field, **options: object) -> Rule:
    """Return the row of an operator that is a method of Pooling; "max" is the default."""
    word = RequireKey("pool-method", method, method == "max", str)
    return op(name, "Pooling", FLOATS, word, *fields, UNUSED, example_inputs="1,4,8,8", **options)  # type: ignore[arg-type]


RULES = [
    pool("MaxPool", "max", PoolWindow(), WidePadding()),
    pool("AveragePool", "avg", AverageWindow()),
    pool("AveragePool", "average", AverageWindow(), lift_only=True),
    pool("GlobalMaxPool", "max", PoolWindow(), lower_only=True),
    pool("GlobalAveragePool", "avg", AverageWindow(), lower_only=True),
]
