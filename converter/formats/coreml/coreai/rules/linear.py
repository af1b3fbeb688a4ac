"""Convolutions, windows and matrix products."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.coreai.rules.context import SIZE, Reading, Writing
from converter.formats.coreml.coreai.rules.elementwise import REALS
from converter.formats.coreml.coreai.rules.fields import demand_wide
from converter.graph.record import record
from converter.graph.value import Value
from converter.mapping.fields import AttrInput, Detail, Field, FirstResult, Guard
from converter.mapping.rules import Rule, op

D = ir.DataType
U32 = np.uint32


@record
class Images(Guard):
    """Operands of so many axes."""

    def __init__(self, axes: int) -> None:
        super().__init__(
            f"the input must have {axes} axes",
            lambda w: w.data.shape is not None and len(w.data.shape) == axes,
        )


class NoPads(Field):
    """No elements around the image; other windows are rewritten with a Pad before."""

    names = ("pads", "auto_pad", "kernel_shape")

    def lift(self, r: Reading) -> None:
        r.set(kernel_shape=list(r.static(1)[2:]))

    def lower(self, w: Writing) -> None:
        demand_no_pads(w)


def demand_no_pads(w: Writing) -> None:
    if any(w.attr("pads", [])) or w.attr("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise MappingError("an operation has no padding of its own")


@record
class Every(AttrInput):
    """A list with an entry for each axis of the image, 1 where the operator has none."""

    axes: int = 2

    def lower(self, w: Writing) -> None:
        w.node.attrs[self.name] = list(w.attr(self.name, None) or [1] * self.axes)
        super().lower(w)


class Padding(Field):
    """Elements left out at both ends of each axis, as many before as after; input 3."""

    names = ("pads", "auto_pad", "kernel_shape", "output_shape")

    def lift(self, r: Reading) -> None:
        r.set(pads=[*r.ints(3, "padding")] * 2)
        r.node.inputs[3] = None

    def lower(self, w: Writing) -> None:
        axes = w.rank() - 2
        pads = list(w.attr("pads", None) or [0] * 2 * axes)
        if w.attr("auto_pad", "NOTSET") != "NOTSET" or w.attr("output_shape", None):
            raise MappingError("the padding must be given in numbers")
        if pads[:axes] != pads[axes:]:
            raise MappingError("the padding must be the same at both ends")
        w.layer.inputs.append(w.numbers(pads[:axes], SIZE))


def convolution(axes: int) -> list[Rule]:
    image = Images(axes + 2)
    group: Any = {"kind": int, "dtype": U32}
    lines: Any = {"kind": list, "dtype": U32, "axes": axes}
    given = "1,4," + ",".join(["5"] * axes) + " =4,2," + ",".join(["2"] * axes)
    no_bias = Guard("the bias is added after the operation", lambda w: not w.has(2))
    return [
        op(
            "Conv",
            f"conv{axes}d",
            *(image, REALS, no_bias, NoPads()),
            Every("strides", 2, **lines),
            Every("dilations", 3, **lines),
            AttrInput("group", 4, **group),
            given=given.replace("=4,2", "=4,4"),
        ),
        op(
            "ConvTranspose",
            f"conv_transpose{axes}d",
            *(image, REALS, no_bias),
            Every("strides", 2, **lines),
            Padding(),
            Every("dilations", 4, **lines),
            Zeros("output_padding", 5, **lines),
            AttrInput("group", 6, **group),
            given=given,
        ),
    ]


class Zeros(Every):
    """The same, 0 where the operator has none."""

    def lower(self, w: Writing) -> None:
        w.node.attrs[self.name] = list(w.attr(self.name, None) or [0] * self.axes)
        super().lower(w)


class Windows(Field):
    """Kernel, strides and dilations, ui32, and for a maximum whether windows at the end may be cut
    off; only windows that lie inside are written.
    """

    names = (
        *("kernel_shape", "strides", "dilations", "ceil_mode"),
        *("pads", "auto_pad", "count_include_pad", "storage_order"),
    )

    def __init__(self, axes: int, largest: bool) -> None:
        self.axes, self.largest = axes, largest

    def lift(self, r: Reading) -> None:
        kernel, strides, dilations = (r.ints(i, "a window") for i in (1, 2, 3))
        r.set(kernel_shape=kernel, strides=strides, dilations=dilations)
        ceil = self.largest and bool(np.asarray(r.known(r.input(4), "ceil_mode")).reshape(()))
        x = r.input(0)
        if ceil:
            x = self._rounded_up(r, x, kernel, strides, dilations)
        r.set_inputs(x)

    def _rounded_up(
        self, r: Reading, x: Value, kernel: list[int], strides: list[int], dilations: list[int]
    ) -> Value:
        """The image with the elements that windows at the end hang over: nothing is larger than
        these, and a window of them alone gives them.
        """
        sizes, more = r.static(x), []
        for n, k, s, d in zip(sizes[2:], kernel, strides, dilations, strict=True):
            count = -(-(n - d * (k - 1) - 1) // s) + 1
            more.append(max(0, (count - 1) * s + d * (k - 1) + 1 - n))
        dtype = (x.dtype or D.FLOAT).numpy()
        least = -np.inf if dtype.kind not in "iu" else np.iinfo(dtype).min
        pads = [0] * (self.axes + 4) + more
        return r.b.Pad(x, np.array(pads, np.int64), r.b.const(np.array(least, dtype)))

    def lower(self, w: Writing) -> None:
        demand_no_pads(w)
        kernel = list(w.attr("kernel_shape"))
        lines = [list(w.attr(k, None) or [1] * self.axes) for k in ("strides", "dilations")]
        if w.attr("ceil_mode", 0):
            raise MappingError("ceil_mode=1 is written with a Pad before")
        for n, k, d in zip((w.data.shape or ())[2:], kernel, lines[1], strict=False):
            if isinstance(n, int) and n < d * (k - 1) + 1:
                raise MappingError("a window is larger than the image")
        w.layer.inputs += [w.numbers(n, SIZE) for n in (kernel, *lines)]
        if self.largest:
            w.layer.inputs.append(w.const(np.array(False)))


def read_mean(r: Reading) -> None:
    """The sum of a window is its mean times the number of its elements."""
    count = math.prod(r.node.attrs["kernel_shape"])
    x, b = r.data, r.b
    if x.dtype is not None and x.dtype.is_floating_point():
        r.behind(lambda y: y * b.like(y, count))
        return
    kind = x.dtype or D.FLOAT  # the sum of integers, exact in doubles
    r.data = b.Cast(x, to=D.DOUBLE)
    r.behind(lambda y: b.Cast(b.Round(y * float(count)), to=kind))


def write_mean(w: Writing) -> None:
    own, count = w.layer.outputs[0], math.prod(w.attr("kernel_shape"))
    total = w.result("total")
    w.then(lambda: w.put("broadcasting_divide", total, w.like(own, count), outputs=[own]))


MEAN = Detail(read=read_mean, write=write_mean)


def demand_matrices(w: Writing) -> None:
    """Operands of at least two axes."""
    if min(w.rank(0), w.rank(1)) < 2:
        raise MappingError("vectors are multiplied as matrices")
    demand_wide(w)


DEMAND_MATRICES = Detail(write=demand_matrices)


def pools(axes: int) -> list[Rule]:
    image, given = Images(axes + 2), "1,4," + ",".join(["6"] * axes)
    return [
        op(
            "MaxPool",
            f"max_pool_{axes}d",
            *(image, FirstResult("the positions of the largest elements are not available")),
            Windows(axes, True),
            given=given,
        ),
        op("AveragePool", f"sum_pool_{axes}d", *(image, Windows(axes, False), MEAN), given=given),
    ]


RULES = [
    *(rule for axes in (2, 3) for rule in (*convolution(axes), *pools(axes))),
    op("MatMul", "broadcasting_batch_matmul", DEMAND_MATRICES, given="2,3 3,4"),
    op("MatMul", "batch_matmul", DEMAND_MATRICES, lift_only=True),
]
