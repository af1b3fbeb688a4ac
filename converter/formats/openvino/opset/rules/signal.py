"""Fourier transforms. Complex numbers are pairs on the last axis; ONNX's DFT does one axis at a
time.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.openvino.opset.rules.context import LiftContext, LowerContext
from converter.formats.openvino.opset.rules.fields import Axes
from converter.graph.catalogue.spectra import fitted
from converter.graph.demands import axis_of
from converter.graph.infer import known
from converter.mapping.fields import Attr, AttrInput, Field, Guard, RequireAttr, attrs
from converter.mapping.rules import op


def _sizes(r: LiftContext, axes: list[int]) -> list[int | None]:
    """Return the transform's length per axis; -1 and an absent input mean the length of the
    data.
    """
    wanted = [-1] * len(axes) if r.optional(2) is None else r.ints(2, "the signal size")
    if len(wanted) != len(axes):
        raise MappingError(f"{len(wanted)} sizes are given for {len(axes)} axes", "R105")
    return [None if v == -1 else v for v in wanted]


# complex numbers ---------------------------------------------------------------------------------


class Transform(Field):
    """The axes, all but the last of which are written as operators before it, and the lengths. The
    operator has one axis.
    """

    def lift(self, r: LiftContext) -> None:
        x, rank = r.input(0), r.rank()
        axes = [axis_of(a, rank - 1) for a in r.ints(1, "the axes")]
        if not axes:
            raise MappingError("the axes are empty", "R110")
        for i, (axis, size) in enumerate(zip(axes, _sizes(r, axes), strict=True)):
            r.set_inputs(fitted(r.b, x, axis, size), None, axis)
            if i < len(axes) - 1:
                x = r.b.DFT(*r.node.inputs, inverse=r.node.attrs["inverse"])

    def lower(self, w: LowerContext) -> None:
        x, length, axis = w.data, known(w.optional(1)), known(w.optional(2))
        if w.has(1) == (length is None) or (w.optional(2) and axis is None):
            raise MappingError("the axis and the length must be constant")
        size = [] if length is None else [w.const(length.reshape(1).astype(np.int64))]
        place = -2 if axis is None else int(axis.reshape(-1)[0])
        w.set_inputs(self.data(w, x), w.const([place % w.rank()], "axes"), *size)

    def data(self, w: LowerContext, x: ir.Value) -> ir.Value:
        """Add zeros as imaginary parts of real numbers."""
        if not _is_real(w):
            return x
        zeros = w.emit("Multiply", x, w.like(x, 0), auto_broadcast="numpy")
        return w.emit("Concat", x, zeros, axis=w.rank() - 1)


class HalfTransform(Transform):
    """A transform of real numbers, which have no axis for imaginary parts; the result is half of
    the spectrum.
    """

    def data(self, w: LowerContext, x: ir.Value) -> ir.Value:
        return w.emit("Squeeze", x, [w.rank() - 1])


def _is_real(w: LowerContext) -> bool:
    shape = w.data.shape
    return shape is not None and len(shape) > 0 and shape[-1] == 1


# real numbers ------------------------------------------------------------------------------------


class SpectrumAxes(Axes):
    """The axes of a spectrum, whose last axis has the pairs of real and imaginary parts."""

    def spare(self, r: LiftContext) -> int:
        return 1


class SignalSizes(Field):
    """The lengths of the signal, -1 for those of the data; the CPU runtime does not support -1
    together with other lengths.
    """

    names = ("sizes",)

    def lift(self, r: LiftContext) -> None:
        axes = r.node.attrs["axes"]
        r.set(sizes=[-1 if v is None else v for v in _sizes(r, axes)])
        del r.node.inputs[1:]

    def lower(self, w: LowerContext) -> None:
        axes, sizes = w.attr("axes"), w.attr("sizes")
        if any(v != -1 for v in sizes):
            lengths = self.signal_lengths([w.static()[axis] for axis in axes])
            sizes = [n if v == -1 else v for v, n in zip(sizes, lengths, strict=True)]
            w.layer.inputs.append(w.const(sizes, "sizes"))

    def signal_lengths(self, lengths: list[int]) -> list[int]:
        """Return the lengths of the signal for those of the data."""
        return lengths


class SpectrumSizes(SignalSizes):
    """The lengths of the signal whose half spectrum the data are."""

    def lift(self, r: LiftContext) -> None:
        super().lift(r)
        axes, sizes = r.node.attrs["axes"], r.node.attrs["sizes"]
        needed = [*sizes[:-1], sizes[-1] // 2 + 1]
        present = zip(needed, axes, strict=True)
        if any(size > 0 and size > r.static()[axis] for size, axis in present):
            message = (
                "a signal size larger than the data is not supported: engines "
                "contradict the specification"
            )
            raise MappingError(message)

    def signal_lengths(self, lengths: list[int]) -> list[int]:
        return [*lengths[:-1], 2 * (lengths[-1] - 1)]


# rows --------------------------------------------------------------------------------------------

TWO_SIDED = RequireAttr("onesided", 0)
FRAMES = (AttrInput("size", 2), AttrInput("step", 3))
RULES = [
    op("DFT", "DFT", RequireAttr("inverse", 0), TWO_SIDED, Transform()),
    op("DFT", "IDFT", RequireAttr("inverse", 1), TWO_SIDED, Transform()),
    op(
        "DFT",
        "RDFT",
        Guard("onesided=1 of this input is not supported", _is_real),
        RequireAttr("inverse", 0),
        RequireAttr("onesided", 1),
        HalfTransform(),
        since=9,
        lower_only=True,
    ),
    op("netconv::RealDFT", "RDFT", Axes(), SignalSizes(), since=9, example_inputs="4,8"),
    op(
        "netconv::InverseRealDFT",
        "IRDFT",
        SpectrumAxes(),
        SpectrumSizes(),
        since=9,
        example_inputs="4,5,2",
    ),
    op(
        "netconv::FramedDFT",
        "STFT",
        *FRAMES,
        Attr("bins_first", "transpose_frames", bool),
        since=15,
        example_inputs="2,16 =4",
    ),
    op(
        "netconv::InverseFramedDFT",
        "ISTFT",
        *FRAMES,
        AttrInput("length", 4, default=-1, omit=True),
        *attrs(center=bool, normalized=bool),
        since=16,
        example_inputs="2,3,5,2 =4",
    ),
]
