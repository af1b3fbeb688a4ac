"""Convolutions and matrix products. Filters of three axes are stored D H W I O."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.lite.quantization import real_numbers
from converter.formats.lite.weights import Bias, Dense, Filter, Multiplier
from converter.formats.tflite.rules.context import Dims, LiftContext, LowerContext, dims_of
from converter.formats.tflite.rules.fields import SAME, VALID, Depth, FusedActivation, Window
from converter.graph.infer import has_constant, known
from converter.graph.open_sizes import is_open, sizes_in_file
from converter.graph.windows import FIX, same_pads
from converter.mapping.concepts import transposed_window
from converter.mapping.concepts.matmul import Transposes
from converter.mapping.concepts.window import Geometry
from converter.mapping.fields import Guard, RequireAttr, RequireKey
from converter.mapping.rules import op

MANY = 1 << 12  # rows of an image of a dynamic size, whose padding does not depend on it


class TransposedWindow(Window, transposed_window.TransposedWindow):
    """The size of the result at input 0 decides where it ends; padding before it is that of the
    convolution that is transposed. Where sizes are known only at run time, they are those that the
    scheme of padding gives.

    Inputs are [size, filter, image, bias].
    """

    names = (
        *("strides", "kernel_shape", "pads", "output_padding"),
        *("dilations", "auto_pad", "output_shape"),
    )
    inputs = (0,)
    dilated, beyond = False, True

    def __init__(self, letters: str = "hw") -> None:
        super().__init__(letters)
        if len(letters) == 2:
            self.keys = ("padding", *self.strides)

    def read(self, r: LiftContext) -> Geometry:
        r.data = r.input(2)
        del r.node.inputs[3:]
        found = super().read(r)
        if found.dilations:
            raise MappingError("dilations of a transposed convolution are not supported")
        sizes, target = dims_of(r.data)[1:-1], self._wanted(r)
        if None in sizes and is_open():  # all sizes are cropped alike
            sizes = list(sizes_in_file(r.data))[1:-1]
        if not len(sizes) == len(target) == len(found.kernel):
            needed = len(found.kernel) + 2
            raise MappingError(f"the image must have {needed} axes, got {len(sizes) + 2}", "R105")
        for i, (k, s) in enumerate(zip(found.kernel, found.strides, strict=True)):
            if sizes[i] is None or target[i] is None:
                sizes[i], target[i] = 1, s if found.scheme else max(k, s)
        n = len(sizes)
        begins = same_pads(target, found.kernel, found.strides)[:n] if found.scheme else [0] * n
        pads, wanted, own = [*begins, *[0] * n], [t or 0 for t in target], [m or 0 for m in sizes]
        return replace(found, scheme="", pads=pads, extra=[0] * n, target=wanted, sizes=own)

    def write(self, w: LowerContext, window: Geometry) -> None:
        """Write padding without a scheme by cropping the full result of VALID."""
        n = len(window.kernel)
        w.image_rank(n + 2)
        self.options(w, window)
        before, more = window.pads[:n], [max(0, -p) for p in window.pads[n:]]
        if any(m >= s for m, s in zip(more, window.strides, strict=True)):
            raise MappingError("output padding must be less than the stride")
        # of m rows, the full result has m * stride + beyond, of which m * stride + kept are kept
        axes = zip(window.kernel, more, window.strides, strict=True)
        beyond = [k + e - s for k, e, s in axes]
        ends = zip(beyond, before, window.pads[n:], strict=True)
        kept = [f - first - max(0, last) for f, first, last in ends]
        rows = [MANY if m is None else m for m in w.image(w.data)[1:-1]]
        wanted = [m * s + k for m, s, k in zip(rows, window.strides, kept, strict=True)]
        pairs = zip(wanted, window.strides, rows, strict=True)
        fits = all(-(-t // s) == m for t, s, m in pairs)
        same = fits and before == same_pads(wanted, window.kernel, window.strides)[:n]
        w.layer.attrs["padding"] = SAME if same else VALID
        sizes = self._sizes(w, window.strides, kept if same else beyond)
        w.layer.inputs = [sizes, w.layer.inputs[1], w.real(w.data)]
        if not same and beyond != kept:
            result = w.result("whole")
            result.shape = ir.Shape(self._dims(w, window.strides, beyond))
            begin = np.array([0, *before, 0], np.int32)
            if None in w.image(w.data)[1:-1]:
                w.after_emit(
                    lambda: w.put("SLICE", result, begin, self._sizes(w, window.strides, kept))
                )
            else:
                ends_ = np.array([-1, *wanted, -1], np.int32)
                w.after_emit(lambda: w.put("SLICE", result, begin, ends_))

    def _dims(self, w: LowerContext, strides: list[int], added: list[int]) -> Dims:
        """Return the dimensions of a result with `stride` elements for each of the image, plus a
        number.
        """
        batch, *rows, _ = w.image(w.data)
        axes = zip(rows, strides, added, strict=True)
        return [batch, *(None if m is None else m * s + a for m, s, a in axes), w.image(w.out)[-1]]

    def _sizes(self, w: LowerContext, strides: list[int], added: list[int]) -> ir.Value:
        """Return the same dimensions as an operand."""
        dims = self._dims(w, strides, added)
        if None not in dims[1:-1]:
            return w.shape(dims, w.data)
        if dims[-1] is None:
            raise MappingError("the number of filters is unknown", "X203", FIX)
        return w.scaled_shape(w.data, [1, *strides, 0], [0, *added, dims[-1]])

    def _wanted(self, r: LiftContext) -> list[int | None]:
        """Return the requested spatial sizes, as far as they are known."""
        asked, stated = known(r.input(0)), r.result().shape
        if asked is not None and asked.size == len(self.letters) + 2:
            return [int(n) for n in asked[1:-1]]
        if len(stated) != len(self.letters) + 2:
            return [None] * len(self.letters)
        return [n if n > 0 else None for n in stated[1:-1]]


def is_dense(w: LowerContext) -> bool:
    """Return whether weights are a constant matrix, and the data rows."""
    value = w.input(1)
    node = value.producer()
    stored = value if node is None or node.op_type not in _STORED else node.inputs[0]
    return has_constant(stored) and w.rank(1) == 2 and w.rank() > 1


def is_vector(w: LowerContext) -> bool:
    """Return whether a Gemm adds one number for each column, or none."""
    bias = w.optional(2)
    return bias is None or (
        real_numbers(bias) is not None and all(n == 1 for n in w.static(2)[:-1])
    )


_STORED = ("DequantizeLinear", "Cast")


def widened(r: LiftContext) -> None:
    """Multiply 8-bit integers directly, with a 32-bit result."""
    for i, v in enumerate(r.node.inputs):
        if v is not None and v.dtype in (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16):
            r.node.inputs[i] = r.cast(v, ir.DataType.INT32)


BIAS = Bias(2, 1, 0, drops_zeros=True)
DENSE = Dense(0, 1, 2, "keep_num_dims")
DEPTHWISE = Guard(
    "only depthwise convolutions are supported by this operator",
    lower_if=lambda w: w.attr("group", 1) > 1 and w.static(1, "the filter")[1] == 1,
)
MATRICES = Guard(
    "vector operands are not supported", lower_if=lambda w: min(w.rank(0), w.rank(1)) > 1
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
        RequireAttr("group", 1),
        Filter((2, 3, 4, 1, 0), 1),
        BIAS,
        Window("dhw"),
        FusedActivation(),
    ),
    op(
        "ConvTranspose",
        "TRANSPOSE_CONV",
        RequireAttr("group", 1),
        Filter((1, 2, 3, 0), 1, 1),
        TransposedWindow(),
        Bias(3, 1, 2, drops_zeros=True),
        FusedActivation(),
    ),
    op(
        "ConvTranspose",
        "CONV_3D_TRANSPOSE",
        RequireAttr("group", 1),
        Filter((2, 3, 4, 1, 0), 1, 1),
        TransposedWindow("dhw"),
        Bias(3, 1, 2, drops_zeros=True),
        FusedActivation(),
    ),
    op(
        "MatMul",
        "FULLY_CONNECTED",
        Guard("the weights must be a constant matrix", lower_if=is_dense),
        RequireKey("weights_format", 0),
        DENSE,
        FusedActivation(),
        example_inputs="2,3 =3,4",
    ),
    op(
        "Gemm",
        "FULLY_CONNECTED",
        Guard("the weights must be a constant matrix", lower_if=is_dense),
        Guard("the bias must be a vector", lower_if=is_vector),
        RequireAttr("alpha", 1.0),
        RequireAttr("beta", 1.0),
        RequireAttr("transA", 0),
        RequireKey("weights_format", 0),
        DENSE,
        FusedActivation(),
        lower_only=True,
        example_inputs="2,3 =3,4 =4",
    ),
    op("MatMul", "BATCH_MATMUL", MATRICES, Transposes("adj_x", "adj_y"), before_lift=widened),
]
