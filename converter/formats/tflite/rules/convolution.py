"""Convolutions and matrix products. Filters of three axes are stored D H W I O."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.lite.quantization import real_numbers
from converter.formats.lite.weights import Bias, Dense, Filter, Multiplier
from converter.formats.tflite.rules.context import Reading, Writing, dims_of
from converter.formats.tflite.rules.fields import SAME, VALID, Depth, FusedActivation, Window
from converter.graph.infer import constant, known
from converter.graph.windows import halves, overhang
from converter.mapping.concepts.matmul import Transposes
from converter.mapping.fields import Field, Fixed, Guard, Implied, Only
from converter.mapping.rules import op


class WantedSize(Field):
    """The padding of a transposed convolution, which the size of the result at input 0 leaves.

    Inputs are [size, filter, image, bias]. Where sizes are known only at run time, they are those
    that the scheme of padding gives.
    """

    names = ("strides", "pads", "kernel_shape", "output_padding", "dilations")
    inputs = (0,)

    def __init__(self, axes: str = "hw") -> None:
        self.axes = axes
        dilations = [f"dilation_{x}_factor" for x in axes] if len(axes) == 3 else []
        self.keys = ("padding", *(f"stride_{x}" for x in axes), *dilations)

    def lift(self, r: Reading) -> None:
        a, axes = r.node.attrs, len(self.axes) + 2
        kernel = r.static(r.node.inputs[1], "the filter", axes=axes)[2:]  # type: ignore[arg-type]
        strides = [r.attr(f"stride_{x}", int) for x in self.axes]
        if any(r.attr(k, int) != 1 for k in self.keys if k.startswith("dilation")):
            raise MappingError("a dilated transposed convolution")
        scheme, wanted, size = r.attr("padding", int), self._wanted(r), dims_of(r.input(2))[1:-1]
        if len(size) != len(kernel):
            raise MappingError(f"an image of {len(size) + 2} axes, {axes} are needed", "R105")
        totals = []
        for n, target, k, s in zip(size, wanted, kernel, strides, strict=True):
            if n is None or target is None:
                totals.append(k - s if scheme == SAME else min(0, k - s))
            else:
                totals.append(overhang(target, k, s, 1, n))
        a |= {"strides": strides, "kernel_shape": list(kernel)}
        a["pads"] = halves(totals)
        a["output_padding"] = [max(0, -n) for n in totals]
        r.data = r.input(2)
        del r.node.inputs[3:]

    def lower(self, w: Writing) -> None:
        """Padding that no scheme gives is cut off from the whole result of VALID."""
        a = w.layer.attrs
        n = len(self.axes)
        w.image_rank(n + 2)
        kernel = [int(k) for k in w.static(1)[2:]]
        strides = [int(k) for k in w.attr("strides", None) or [1] * n]
        a |= {f"stride_{x}": k for x, k in zip(self.axes, strides, strict=True)}
        if n == 3:
            a |= {f"dilation_{x}_factor": 1 for x in self.axes}
        size, out = w.image(w.data), w.image(w.out)
        if None in (*size[1:-1], *out[1:-1]):
            raise MappingError("the sizes of the image must be known", "X203")
        cut = Cut(w, kernel, strides, size[1:-1], out[1:-1])
        a["padding"] = SAME if cut.same else VALID
        whole = out if cut.same else [out[0], *cut.whole, out[-1]]
        w.layer.inputs = [w.shape(whole, w.data), w.layer.inputs[1], w.real(w.data)]
        if whole != out:
            result = w.result("whole")
            result.shape = ir.Shape(whole)
            begin = np.array([0, *cut.before, 0], np.int32)
            sizes = np.array([-1, *(out[1:-1]), -1], np.int32)
            w.then(lambda: w.put("SLICE", result, begin, sizes))

    def _wanted(self, r: Reading) -> list[int | None]:
        """The spatial sizes that are asked for, as far as they are known."""
        asked, stated = known(r.input(0)), r.result().shape
        if asked is not None and asked.size == len(self.axes) + 2:
            return [int(n) for n in asked[1:-1]]
        if len(stated) != len(self.axes) + 2:
            return [None] * len(self.axes)
        return [n if n > 0 else None for n in stated[1:-1]]


class Cut:
    """What of the whole result of a transposed convolution is left out in front of it, and the
    size of the whole, which is at least what is asked for. `same`: as the scheme SAME does.
    """

    def __init__(
        self, w: Writing, kernel: list[int], strides: list[int], sizes: Any, wanted: Any
    ) -> None:
        n = len(kernel)
        axes = zip(wanted, kernel, strides, [1] * n, sizes, strict=True)
        totals = [overhang(*axis) for axis in axes]
        before = [int(p) for p in w.attr("pads", None) or [0] * (2 * n)][:n]
        auto = w.attr("auto_pad", "NOTSET")
        if auto in ("SAME_UPPER", "SAME_LOWER") or w.attr("output_shape", None):
            before = halves(totals, upper=auto != "SAME_LOWER")[:n]
        self.before = before
        full = [(size - 1) * s + k for size, k, s in zip(sizes, kernel, strides, strict=True)]
        ends = [want + b for want, b in zip(wanted, before, strict=True)]
        self.whole = [max(pair) for pair in zip(full, ends, strict=True)]
        windows = zip(self.whole, kernel, strides, sizes, strict=True)
        if any((m - k) // s + 1 != size for m, k, s, size in windows):
            raise MappingError("more rows behind the image than one step of the filter")
        pairs = zip(wanted, strides, sizes, strict=True)
        fits = all(-(-want // s) == size for want, s, size in pairs)
        self.same = fits and before == halves(totals)[:n]


def is_dense(w: Writing) -> bool:
    """Whether weights are a constant matrix, beside rows of data."""
    value = w.input(1)
    node = value.producer()
    stored = value if node is None or node.op_type not in _STORED else node.inputs[0]
    return constant(stored) is not None and w.rank(1) == 2 and w.rank() > 1


def is_vector(w: Writing) -> bool:
    """Whether a Gemm adds one number for each column, or nothing."""
    bias = w.optional(2)
    return bias is None or (
        real_numbers(bias) is not None and all(n == 1 for n in w.static(2)[:-1])
    )


_STORED = ("DequantizeLinear", "Cast")


def widened(r: Reading) -> None:
    """Integers of 8 bits are multiplied as they are into 32."""
    for i, v in enumerate(r.node.inputs):
        if v is not None and v.dtype in (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16):
            r.node.inputs[i] = r.cast(v, ir.DataType.INT32)


BIAS = Bias(2, 1, 0, drops_zeros=True)
DENSE = Dense(0, 1, 2, "keep_num_dims")
DEPTHWISE = Guard(
    "not a depthwise convolution",
    lower_if=lambda w: w.attr("group", 1) > 1 and w.static(1, "the filter")[1] == 1,
)
MATRICES = Guard("a vector is no matrix", lower_if=lambda w: min(w.rank(0), w.rank(1)) > 1)
PLAIN = (
    Only("group", 1),
    Guard("it has no dilations", lower_if=lambda w: set(w.attr("dilations", None) or [1]) == {1}),
    Implied(("output_shape", "auto_pad")),
)
RULES = [
    op(
        "Conv",
        "DEPTHWISE_CONV_2D",
        DEPTHWISE,
        Filter((1, 2, 3, 0), 1),
        Multiplier("depth_multiplier"),
        BIAS,
        Window(),
        FusedActivation(),
    ),
    op("Conv", "CONV_2D", Depth(), Filter((0, 2, 3, 1), 1), BIAS, Window(), FusedActivation()),
    op(
        "Conv",
        "CONV_3D",
        Only("group", 1),
        Filter((2, 3, 4, 1, 0), 1),
        BIAS,
        Window("dhw"),
        FusedActivation(),
    ),
    op(
        "ConvTranspose",
        "TRANSPOSE_CONV",
        *PLAIN,
        Filter((1, 2, 3, 0), 1, 1),
        WantedSize(),
        Bias(3, 1, 2, drops_zeros=True),
        FusedActivation(),
    ),
    op(
        "ConvTranspose",
        "CONV_3D_TRANSPOSE",
        *PLAIN,
        Filter((2, 3, 4, 1, 0), 1, 1),
        WantedSize("dhw"),
        Bias(3, 1, 2, drops_zeros=True),
        FusedActivation(),
    ),
    op(
        "MatMul",
        "FULLY_CONNECTED",
        Guard("the weights are no constant matrix", lower_if=is_dense),
        Fixed("weights_format", 0),
        DENSE,
        FusedActivation(),
        given="2,3 =3,4",
    ),
    op(
        "Gemm",
        "FULLY_CONNECTED",
        Guard("the weights are no constant matrix", lower_if=is_dense),
        Guard("the addend is no vector", lower_if=is_vector),
        Only("alpha", 1.0),
        Only("beta", 1.0),
        Only("transA", 0),
        Fixed("weights_format", 0),
        DENSE,
        FusedActivation(),
        lower_only=True,
        given="2,3 =3,4 =4",
    ),
    op("MatMul", "BATCH_MATMUL", MATRICES, Transposes("adj_x", "adj_y"), before_lift=widened),
]
