"""Convolutions, windows and matrix products."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.coreai.rules.context import SIZE, LiftContext, LowerContext
from converter.formats.coreml.coreai.rules.elementwise import REALS
from converter.formats.coreml.coreai.rules.fields import demand_wide
from converter.graph.value import Value
from converter.graph.windows import overhang
from converter.mapping.concepts import transposed_window, window
from converter.mapping.concepts.window import Geometry, spatial
from converter.mapping.fields import AttrInput, Detail, FirstResult, Guard
from converter.mapping.node import Node
from converter.mapping.rules import Rule, op
from converter.record import record

D = ir.DataType
U32 = np.uint32


@record
class OfRank(Guard):
    """Operands that must have a given number of axes."""

    def __init__(self, axes: int) -> None:
        super().__init__(
            f"the input must have {axes} axes",
            lambda w: w.data.shape is not None and len(w.data.shape) == axes,
        )


class Window(window.Window):
    """Strides and dilations, stored as ui32 operands; padding is rewritten as a Pad before. `first`
    is the operand index of the strides.
    """

    padding, first = "none", 2

    def __init__(self, axes: int) -> None:
        self.axes = (axes,)

    def read(self, r: LiftContext) -> Geometry:
        strides, dilations = (self.take(r, self.first + i) for i in (0, 1))
        return Geometry(self.kernel(r.node), strides, dilations)

    def take(self, r: LiftContext, index: int) -> list[int]:
        """Return the numbers of operand `index`, and remove that operand, which the operator does
        not have.
        """
        r.node.set_input(index, None)
        return r.ints(index, "a window")

    def write(self, w: LowerContext, window: Geometry) -> None:
        put(w, self.first, window.strides, window.dilations)


def put(w: LowerContext, first: int, *lines: list[int]) -> None:
    """Write ui32 operands, the first at index `first`."""
    w.layer.inputs[first:] = [w.numbers(line, SIZE) for line in lines]


class TransposedWindow(Window, transposed_window.TransposedWindow):
    """Strides, padding, dilations and output_padding. The result is cropped by the same amount at
    both ends of each axis.
    """

    names = (
        *("strides", "pads", "dilations", "output_padding"),
        *("kernel_shape", "auto_pad", "output_shape"),
    )
    padding, extends, has_kernel_shape = "symmetric", True, False

    def read(self, r: LiftContext) -> Geometry:
        strides, pads, dilations, extra = (self.take(r, i) for i in range(2, 6))
        return Geometry(self.kernel(r.node), strides, dilations, [*pads, *pads], extra=extra)

    def write(self, w: LowerContext, window: Geometry) -> None:
        n = len(window.kernel)
        put(w, 2, window.strides, window.pads[:n], window.dilations, window.extra)


def convolution(axes: int) -> list[Rule]:
    """Return the rows of convolution and transposed convolution with this many spatial axes."""
    image = OfRank(axes + 2)
    group: Any = {"kind": int, "dtype": U32}
    given = "1,4," + ",".join(["5"] * axes) + " =4,2," + ",".join(["2"] * axes)
    no_bias = Guard("the layer has no bias", lambda w: not w.has(2))
    return [
        op(
            "Conv",
            f"conv{axes}d",
            *(image, REALS, no_bias, Window(axes)),
            AttrInput("group", 4, **group),
            example_inputs=given.replace("=4,2", "=4,4"),
        ),
        op(
            "ConvTranspose",
            f"conv_transpose{axes}d",
            *(image, REALS, no_bias, TransposedWindow(axes)),
            AttrInput("group", 6, **group),
            example_inputs=given,
        ),
    ]


class PoolWindow(Window):
    """Kernel size, strides and dilations of a pool; a maximum also has a flag for partial windows
    at the end. Only windows inside the image are written.
    """

    names = (*Window.names, "count_include_pad", "storage_order")
    first = 1

    def __init__(self, axes: int, largest: bool) -> None:
        super().__init__(axes)
        self.largest = largest

    def kernel(self, node: Node) -> list[int]:
        return list(node.attrs["kernel_shape"])

    def read(self, r: LiftContext) -> Geometry:
        kernel, strides, dilations = (r.ints(i, "a window") for i in (1, 2, 3))
        found, x = Geometry(kernel, strides, dilations), r.input(0)
        if self.largest and np.asarray(r.known(r.input(4), "ceil_mode")).any():
            x = self._rounded_up(r, x, found)
        r.set_inputs(x)
        return found

    def _rounded_up(self, r: LiftContext, x: Value, window: Geometry) -> Value:
        """Return the image padded for windows beyond the end: the padding is the lowest number, and
        a window of padding alone gives that number.
        """
        sizes, more = r.static(x), []
        for n, k, s, d in zip(sizes[2:], *window.steps, strict=True):
            count = -(-(n - d * (k - 1) - 1) // s) + 1
            more.append(max(0, overhang(n, k, s, d, count)))
        dtype = (x.dtype or D.FLOAT).numpy()
        least = -np.inf if dtype.kind not in "iu" else np.iinfo(dtype).min
        pads = [0] * (len(more) + 4) + more
        return r.b.Pad(x, np.array(pads, np.int64), r.b.const(np.array(least, dtype)))

    def write(self, w: LowerContext, window: Geometry) -> None:
        for n, k, d in zip(spatial(w.node, w.data), window.kernel, window.dilations, strict=True):
            if n is not None and n < d * (k - 1) + 1:
                raise MappingError("the window is larger than the image")
        put(w, 1, *window.steps)
        if self.largest:
            w.layer.inputs.append(w.const(np.array(False)))


def read_mean(r: LiftContext) -> None:
    """Read the sum of a window as its mean times the number of its elements."""
    count = math.prod(r.node.attrs["kernel_shape"])
    x, b = r.data, r.b
    if x.dtype is not None and x.dtype.is_floating_point():
        r.after_first(lambda y: y * b.like(y, count))
        return
    kind = x.dtype or D.FLOAT  # the sum of integers, exact in doubles
    r.data = b.Cast(x, to=D.DOUBLE)
    r.after_first(lambda y: b.Cast(b.Round(y * float(count)), to=kind))


def write_mean(w: LowerContext) -> None:
    """Divide the sum of each window by the number of its elements."""
    own, count = w.layer.outputs[0], math.prod(w.attr("kernel_shape"))
    total = w.result("total")
    w.after_emit(lambda: w.put("broadcasting_divide", total, w.like(own, count), outputs=[own]))


MEAN = Detail(read=read_mean, write=write_mean)


def demand_matrices(w: LowerContext) -> None:
    """Require operands of at least two axes."""
    if min(w.rank(0), w.rank(1)) < 2:
        raise MappingError("vectors must be multiplied as matrices")
    demand_wide(w)


DEMAND_MATRICES = Detail(write=demand_matrices)


def pools(axes: int) -> list[Rule]:
    """Return the rows of pooling with this many spatial axes."""
    image, given = OfRank(axes + 2), "1,4," + ",".join(["6"] * axes)
    return [
        op(
            "MaxPool",
            f"max_pool_{axes}d",
            *(image, FirstResult("the indices output is not supported")),
            PoolWindow(axes, True),
            example_inputs=given,
        ),
        op(
            "AveragePool",
            f"sum_pool_{axes}d",
            *(image, PoolWindow(axes, False), MEAN),
            example_inputs=given,
        ),
    ]


RULES = [
    *(rule for axes in (2, 3) for rule in (*convolution(axes), *pools(axes))),
    op("MatMul", "broadcasting_batch_matmul", DEMAND_MATRICES, example_inputs="2,3 3,4"),
    op("MatMul", "batch_matmul", DEMAND_MATRICES, lift_only=True),
]
