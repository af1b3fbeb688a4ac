"""Pooling. Rounding up has two meanings: `ceil` lets a window begin in the padding at the end,
`ceil_torch` (and ONNX) does not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.openvino.fields import WidePadding, excluded
from converter.formats.openvino.opset.rules.context import Reading, Writing, element_type
from converter.formats.openvino.opset.rules.fields import (
    IMPLICIT,
    Window,
    image_size,
)
from converter.graph.infer import Array
from converter.graph.windows import of_all_axes
from converter.mapping.context import Results, static
from converter.mapping.fields import Attr, AttrInput, Field, Guard, Only
from converter.mapping.node import Node
from converter.mapping.rules import op

T = ir.DataType
ROUNDING = ("floor", "ceil", "ceil_torch")


class PoolWindow(Window):
    """The window of a pool with its own `kernel`, and `rounding_type` <-> ceil_mode."""

    names = (*Window.names, "ceil_mode")
    keys = (*Window.keys, "kernel", "rounding_type")

    def kernel(self, node: Node) -> list[int]:
        return [int(k) for k in node.attrs["kernel_shape"]]

    def lift(self, r: Reading) -> None:
        a, rounding = r.node.attrs, r.attr("rounding_type", str, "floor")
        if rounding not in ROUNDING:
            raise MappingError(f"rounding_type={rounding!r} is not known", "R110")
        a["kernel_shape"] = r.attr("kernel", list)
        super().lift(r)
        a["ceil_mode"] = int(rounding != "floor")
        if rounding == "ceil":
            self._round_up(r)

    def _round_up(self, r: Reading) -> None:
        """Where a last window begins in the padding at the end: more padding there instead of
        ceil_mode.
        """
        a = r.node.attrs
        n, pads, strides = len(a["kernel_shape"]), np.array(a["pads"]), np.array(a["strides"])
        reach = (np.array(a["kernel_shape"]) - 1) * np.array(a["dilations"]) + 1
        if np.all(pads[n:] + strides <= reach):
            return
        size = np.array(image_size(r, "ceil"))
        last = -(-(size + pads[:n] + pads[n:] - reach) // strides) * strides
        if np.any(last >= size + pads[:n]):
            pads[n:] = np.maximum(pads[n:], last + reach - size - pads[:n])
            a["pads"], a["ceil_mode"] = pads.tolist(), 0

    def lower(self, w: Writing) -> None:
        super().lower(w)
        a, n = w.node.attrs, len(w.attr("kernel_shape"))
        w.set(kernel=a["kernel_shape"], rounding_type="floor")
        if not a.get("ceil_mode"):
            return
        pads = np.array(a["pads"])
        reach = (np.array(a["kernel_shape"]) - 1) * np.array(a["dilations"]) + 1
        if w.version < 14 and np.any(pads[n:] + np.array(a["strides"]) > reach):
            message = "ceil_mode with windows that would begin in the padding needs opset14"
            raise MappingError(message, "X206")
        ends = pads[n:] + self._over(w, pads, reach)
        w.set(rounding_type="ceil_torch" if w.version >= 14 else "ceil", pads_end=ends.tolist())

    def _over(self, w: Writing, pads: Array, reach: Array) -> Array:
        """What a window is larger than its padded axis, which runtimes refuse; padding there is not
        counted.
        """
        x, n = w.data, len(reach)
        dims = [None] * n if x.shape is None else list(x.shape)[2:]
        known = [d if isinstance(d, int) else 1 << 60 for d in dims]
        over = np.maximum(0, reach - (np.array(known) + pads[:n] + pads[n:]))
        if over.any() and w.attr("count_include_pad", 0):
            raise MappingError("a window that is larger than its axis with the counted padding")
        return np.asarray(over)


class CountedPadding(Field):
    """What counts in an average, where rounding up means something else in ONNX: a factor behind
    the pool.

    Rounding up, ONNX does not count what lies behind the padding. OpenVINO counts it with
    `exclude-pad=false`; without any padding nothing but data counts, and windows behind the data
    are zeros (`ceil_torch` has no such windows).
    """

    def lift(self, r: Reading) -> None:
        rounding, a = r.attr("rounding_type", str, "floor"), r.node.attrs
        declared = Window.pads(PoolWindow(), r, a["kernel_shape"])
        counts = a["count_include_pad"] and any(declared)
        if rounding == "floor" or (a["ceil_mode"] and not counts):
            return
        size, n = image_size(r, "ceil"), len(declared) // 2
        begin, end, ends = declared[:n], declared[n:], declared[n:]
        share, empty = np.ones([1] * (n + 2)), [0] * n
        windows = zip(size, a["kernel_shape"], a["strides"], a["dilations"], strict=True)
        for i, (d, k, s, dilation) in enumerate(windows):
            reach = (k - 1) * dilation + 1
            first = np.arange(-(-(d + begin[i] + end[i] - reach) // s) + 1) * s - begin[i]
            some = first[first < d]
            empty[i] = len(first) - len(some)
            ends[i] = max(0, int(some[-1]) + reach - d)
            places = some[:, None] + np.arange(k) * dilation
            counted = np.sum((places >= 0) & (places < d), axis=1)
            share = share * _along(k / counted, i, n)
        if any(p >= k for p, k in zip([*begin, *ends], a["kernel_shape"] * 2, strict=True)):
            raise MappingError("a dilated window that reaches behind the padding")
        excluding = not a["count_include_pad"]
        a |= {"pads": [*begin, *ends], "ceil_mode": 0, "count_include_pad": 1}
        if excluding or not any(declared):
            factor = r.b.const(share.astype(_dtype(r.input(0))), "share")
            r.behind(lambda y: y * factor)
        if any(empty) and rounding == "ceil":
            r.behind(lambda y: r.b.Pad(y, of_all_axes([0] * n + empty)))

    def lower(self, w: Writing) -> None:
        a = w.node.attrs
        if not a["count_include_pad"] or not a["ceil_mode"] or not any(a["pads"]):
            return
        n = len(a["kernel_shape"])
        size, out = w.static()[2:], static(w.out)[2:]
        share, ends = np.ones([1] * (n + 2)), []
        windows = zip(size, a["kernel_shape"], a["strides"], a["dilations"], out, strict=True)
        for i, (d, k, s, dilation, count) in enumerate(windows):
            begin, end = a["pads"][i], a["pads"][n + i]
            places = np.arange(count)[:, None] * s - begin + np.arange(k) * dilation
            share = share * _along(k / np.sum(places < d + end, axis=1), i, n)
            ends.append(max(0, int(places[-1, -1]) + 1 - d))
        if np.all(share == 1):
            return
        w.set(rounding_type="floor", pads_end=ends)
        average, factor = w.result("average"), share.astype(_dtype(w.data))
        w.then(lambda: w.put("Multiply", average, factor, auto_broadcast="numpy"))


def _along(factors: Array, axis: int, n: int) -> Array:
    return factors.reshape([-1 if j == axis + 2 else 1 for j in range(n + 2)])


def _dtype(x: ir.Value) -> Any:
    return x.dtype.numpy() if x.dtype else np.float32


class Indices(Field):
    """From opset8 on also the index of each maximum, in the elements from `axis` on; ONNX counts
    all elements: axis 0.
    """

    keys = ("index_element_type", "axis")

    def lift(self, r: Reading) -> None:
        assert isinstance(r, Reading)
        to, axis = r.attr("index_element_type", element_type, int(T.INT64)), r.attr("axis", int, 0)
        rank = r.rank()
        if to not in (int(T.INT64), int(T.INT32)) or not -rank <= axis < rank:
            name = r.layer.attrs.get("index_element_type", "i64")
            raise MappingError(f"indices of the type {name!r} from axis {axis} on", "R110")
        r.outputs = 2 if r.version >= 8 and len(r.layer.outputs) > 1 and r.used(1) else 1

        def behind(results: Results) -> Results:
            for i, index in enumerate(results[1:], 1):
                if axis:
                    sizes = r.b.Shape(r.input(0), start=axis)
                    index = r.b.Mod(index, r.b.ReduceProd(sizes, [0], keepdims=0))
                results[i] = r.cast(index, T(to))
            return results

        r.then(behind)

    def lower(self, w: Writing) -> None:
        w.set(index_element_type="i64", axis=0)
        if len(w.layer.outputs) < 2:
            shape = w.layer.outputs[0].shape
            w.layer.outputs.append(w.temporary("indices", T.INT64, shape))


class SmallIndices(Field):
    """The CPU runtime gives the indices of AdaptiveMaxPool as i32 only."""

    keys = ("index_element_type",)

    def lift(self, r: Reading) -> None:
        to = r.attr("index_element_type", element_type, int(T.INT64))
        r.then(lambda y: [*y[:1], *(r.cast(index, T(to)) for index in y[1:])])

    def lower(self, w: Writing) -> None:
        w.set(index_element_type="i32")
        shape = w.layer.outputs[0].shape
        index = w.temporary("indices", T.INT32, shape)
        if len(w.layer.outputs) > 1:
            own = w.layer.outputs[1]
            w.then(lambda: w.put("Convert", index, outputs=[own], destination_type="i64"))
        w.layer.outputs[1:] = [index]


ROUNDED_DOWN = Guard(
    "implicit padding of a size that is rounded up",
    lambda w: w.attr("auto_pad", "NOTSET") not in IMPLICIT or not w.attr("ceil_mode", 0),
)


def without_dilations(w: Writing) -> None:
    """AvgPool has none before opset16."""
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
        CountedPadding(),
        before_lower=without_dilations,
        given="1,4,8,8",
    ),
    op(
        "MaxPool",
        "MaxPool",
        ROUNDED_DOWN,
        PoolWindow(),
        Indices(),
        WidePadding(),
        Only("storage_order", 0),
        given="1,4,8,8",
    ),
    op("netconv::AdaptiveAveragePool", "AdaptiveAvgPool", SIZE, since=8, given="1,4,8,8"),
    op(
        "netconv::AdaptiveMaxPool",
        "AdaptiveMaxPool",
        SIZE,
        SmallIndices(),
        since=8,
        given="1,4,8,8",
    ),
]
