"""Pooling. Rounding up has two meanings: `ceil` lets a window begin in the padding at the end,
`ceil_torch` (and ONNX) does not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.openvino.fields import WidePadding, excluded
from converter.formats.openvino.opset.rules.context import LiftContext, LowerContext, element_type
from converter.formats.openvino.opset.rules.fields import (
    Window,
)
from converter.graph.infer import Array
from converter.graph.windows import SAME, of_all_axes
from converter.mapping.concepts import window
from converter.mapping.concepts.window import Geometry, spatial
from converter.mapping.context import Results, static
from converter.mapping.fields import Attr, AttrInput, Field, Guard, RequireAttr
from converter.mapping.node import Node
from converter.mapping.rules import op

T = ir.DataType
ROUNDING = ("floor", "ceil", "ceil_torch")


class PoolWindow(Window):
    """The window of a pool with its own `kernel`, and `rounding_type` <-> ceil_mode."""

    names = window.Window.names
    keys = (*Window.keys, "kernel", "rounding_type")
    rounds = True

    def size(self, r: LiftContext) -> list[int]:
        return r.attr("kernel", list)  # type: ignore[no-any-return]

    def kernel(self, node: Node) -> list[int]:
        return [int(k) for k in node.attrs["kernel_shape"]]

    def read(self, r: LiftContext) -> Geometry:
        rounding = r.attr("rounding_type", str, "floor")
        if rounding not in ROUNDING:
            raise MappingError(f"rounding_type={rounding!r} is not known", "R110")
        return replace(super().read(r), ceil=rounding != "floor")

    def set_attributes(self, r: LiftContext, window: Geometry) -> None:
        """Write more padding at the end instead of ceil_mode if a last window begins in the padding
        there.
        """
        if window.ceil and r.attr("rounding_type", str) == "ceil":
            n, pads, strides = len(window.kernel), np.array(window.pads), np.array(window.strides)
            reach = reach_of(window)
            if np.any(pads[n:] + strides > reach):
                size = image_size(r)
                room = size + pads[:n] + pads[n:] - reach
                last = -(-room // strides) * strides
                if np.any(last >= size + pads[:n]):
                    pads[n:] = np.maximum(pads[n:], last + reach - size - pads[:n])
                    window = replace(window, pads=pads.tolist(), ceil=False)
        super().set_attributes(r, window)

    def write(self, w: LowerContext, window: Geometry) -> None:
        super().write(w, window)
        w.set(kernel=window.kernel, rounding_type="floor")
        if not window.ceil:
            return
        n, pads, reach = len(window.kernel), np.array(window.pads), reach_of(window)
        if w.version < 14 and np.any(pads[n:] + np.array(window.strides) > reach):
            message = "ceil_mode=1 with windows that begin in the padding needs opset14"
            raise MappingError(message, "X206")
        ends = pads[n:] + self._over(w, pads, reach)
        w.set(rounding_type="ceil_torch" if w.version >= 14 else "ceil", pads_end=ends.tolist())

    def _over(self, w: LowerContext, pads: Array, reach: Array) -> Array:
        """Return by how much a window exceeds its padded axis, which runtimes reject; such padding
        is not counted.
        """
        n = len(reach)
        known = [1 << 60 if d is None else d for d in spatial(w.node, w.data)]
        over = np.maximum(0, reach - (np.array(known) + pads[:n] + pads[n:]))
        if over.any() and w.attr("count_include_pad", 0):
            raise MappingError(
                "the window must not be larger than its axis with the counted padding"
            )
        return np.asarray(over)


def reach_of(window: Geometry) -> Array:
    """Return the extent of a window along each axis, including its gaps."""
    kernel, _, dilations = window.steps
    found: Array = (np.array(kernel) - 1) * np.array(dilations) + 1
    return found


def image_size(r: LiftContext) -> Array:
    """Return the sizes of the spatial axes, on which the number of rounded-up windows depends."""
    return np.array(r.static()[2:])


class CountWhenRounding(Field):
    """Counting of padding in an average, where rounding up has another meaning in ONNX: corrected
    by a factor after the pool.

    When rounding up, ONNX does not count elements beyond the padding. OpenVINO counts them with
    `exclude-pad=false`; without any padding only data count, and windows beyond the data are zeros
    (`ceil_torch` has no such windows).
    """

    def lift(self, r: LiftContext) -> None:
        rounding, a = r.attr("rounding_type", str, "floor"), r.node.attrs
        declared = PoolWindow().resolve(r).pads
        counts = a["count_include_pad"] and any(declared)
        if rounding == "floor" or "auto_pad" in a or (a["ceil_mode"] and not counts):
            return
        size, n = image_size(r), len(declared) // 2
        begin, end, ends = declared[:n], declared[n:], declared[n:]
        share, empty = np.ones([1] * (n + 2)), [0] * n
        windows = zip(size, a["kernel_shape"], a["strides"], a["dilations"], strict=True)
        for i, (d, k, s, dilation) in enumerate(windows):
            reach = (k - 1) * dilation + 1
            first = np.arange(-(-(d + begin[i] + end[i] - reach) // s) + 1) * s - begin[i]
            some = first[first < d]
            if not some.size:
                raise MappingError(f"no window begins in the {d} elements of an axis", "R105")
            empty[i] = len(first) - len(some)
            ends[i] = max(0, int(some[-1]) + reach - d)
            places = some[:, None] + np.arange(k) * dilation
            counted = np.sum((places >= 0) & (places < d), axis=1)
            share = share * _along(k / counted, i, n)
        if any(p >= k for p, k in zip([*begin, *ends], a["kernel_shape"] * 2, strict=True)):
            raise MappingError("a dilated window must not extend into the end of the padding")
        excluding = not a["count_include_pad"]
        a |= {"pads": [*begin, *ends], "ceil_mode": 0, "count_include_pad": 1}
        if excluding or not any(declared):
            factor = r.b.const(share.astype(_dtype(r.input(0))), "share")
            r.after_first(lambda y: y * factor)
        if any(empty) and rounding == "ceil":
            r.after_first(lambda y: r.b.Pad(y, of_all_axes([0] * n + empty)))

    def lower(self, w: LowerContext) -> None:
        window = Geometry.of(w.node, w.attr("kernel_shape"))
        rounds = w.attr("count_include_pad") and w.attr("ceil_mode")
        if not rounds or not any(window.pads):
            return
        n = len(window.kernel)
        size, out = w.static()[2:], static(w.out)[2:]
        share, ends = np.ones([1] * (n + 2)), []
        pads = zip(window.pads[:n], window.pads[n:], strict=True)
        windows = zip(size, *window.steps, pads, out, strict=True)
        for i, (d, k, s, dilation, (begin, end), count) in enumerate(windows):
            places = np.arange(count)[:, None] * s - begin + np.arange(k) * dilation
            share = share * _along(k / np.sum(places < d + end, axis=1), i, n)
            ends.append(max(0, int(places[-1, -1]) + 1 - d))
        if np.all(share == 1):
            return
        w.set(rounding_type="floor", pads_end=ends)
        average, factor = w.result("average"), share.astype(_dtype(w.data))
        w.after_emit(lambda: w.put("Multiply", average, factor, auto_broadcast="numpy"))


def _along(factors: Array, axis: int, n: int) -> Array:
    return factors.reshape([-1 if j == axis + 2 else 1 for j in range(n + 2)])


def _dtype(x: ir.Value) -> Any:
    return (x.dtype or T.FLOAT).numpy()


class MaxIndices(Field):
    """The index of each maximum, a result from opset8 on, within the axes from `axis` on; ONNX
    counts all elements: axis 0.
    """

    keys = ("index_element_type", "axis")

    def lift(self, r: LiftContext) -> None:
        assert isinstance(r, LiftContext)
        to, axis = r.attr("index_element_type", element_type, int(T.INT64)), r.attr("axis", int, 0)
        rank = r.rank()
        if to not in (int(T.INT64), int(T.INT32)) or not -rank <= axis < rank:
            name = r.layer.attrs.get("index_element_type", "i64")
            raise MappingError(
                f"indices of type {name!r} from axis {axis} on are not supported", "R110"
            )
        r.outputs = 2 if r.version >= 8 and len(r.layer.outputs) > 1 and r.used(1) else 1

        def finish(results: Results) -> Results:
            for i, index in enumerate(results[1:], 1):
                if axis:
                    sizes = r.b.Shape(r.input(0), start=axis)
                    index = r.b.Mod(index, r.b.ReduceProd(sizes, [0], keepdims=0))
                results[i] = r.cast(index, T(to))
            return results

        r.after_emit(finish)

    def lower(self, w: LowerContext) -> None:
        w.set(index_element_type="i64", axis=0)
        if len(w.layer.outputs) < 2:
            shape = w.layer.outputs[0].shape
            w.layer.outputs.append(w.temporary("indices", T.INT64, shape))


class SmallIndices(Field):
    """Indices as i32, the only type that the CPU runtime supports for AdaptiveMaxPool."""

    keys = ("index_element_type",)

    def lift(self, r: LiftContext) -> None:
        to = r.attr("index_element_type", element_type, int(T.INT64))
        r.after_emit(lambda y: [*y[:1], *(r.cast(index, T(to)) for index in y[1:])])

    def lower(self, w: LowerContext) -> None:
        w.set(index_element_type="i32")
        shape = w.layer.outputs[0].shape
        index = w.temporary("indices", T.INT32, shape)
        if len(w.layer.outputs) > 1:
            own = w.layer.outputs[1]
            w.after_emit(lambda: w.put("Convert", index, outputs=[own], destination_type="i64"))
        w.layer.outputs[1:] = [index]


ROUNDED_DOWN = Guard(
    "auto_pad=SAME with ceil_mode=1 is not supported",
    lambda w: w.attr("auto_pad", "NOTSET") not in SAME or not w.attr("ceil_mode", 0),
)


def without_dilations(w: LowerContext) -> None:
    """Write AvgPool without dilations, which it does not have before opset16."""
    if w.version < 16:
        del w.layer.attrs["dilations"]


UNDILATED = Guard(
    "dilations of AvgPool need opset16",
    lower_if=lambda w: w.version >= 16 or all(d == 1 for d in w.attr("dilations", None) or ()),
)
SIZE = AttrInput("output_size", 1, list)

RULES = [
    op(
        "AveragePool",
        "AvgPool",
        ROUNDED_DOWN,
        UNDILATED,
        PoolWindow(),
        Attr("count_include_pad", "exclude-pad", excluded),
        CountWhenRounding(),
        before_lower=without_dilations,
        example_inputs="1,4,8,8",
    ),
    op(
        "MaxPool",
        "MaxPool",
        ROUNDED_DOWN,
        PoolWindow(),
        MaxIndices(),
        WidePadding(),
        RequireAttr("storage_order", 0),
        example_inputs="1,4,8,8",
    ),
    op("netconv::AdaptiveAveragePool", "AdaptiveAvgPool", SIZE, since=8, example_inputs="1,4,8,8"),
    op(
        "netconv::AdaptiveMaxPool",
        "AdaptiveMaxPool",
        SIZE,
        SmallIndices(),
        since=8,
        example_inputs="1,4,8,8",
    ),
]
