"""Fourier transforms. Complex numbers are pairs on the last axis; ONNX's DFT does one axis at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.opset.special.base import (
    Emit,
    attributes,
    filled,
    given,
    ints,
    lifts,
    lowers,
    near_axis,
    needs,
    operand,
    optional,
    rank,
    static,
)
from converter.graph.build import Builder
from converter.graph.catalogue.spectra import fitted
from converter.graph.infer import known, rank_of
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node


def _sizes(layer: Layer, axes: list[int]) -> list[int | None]:
    """The transform's length per axis; -1 and an absent input mean the length of the data."""
    found = optional(layer, 2)
    wanted = ints(found, "the signal size") if found is not None else [-1] * len(axes)
    if len(wanted) != len(axes):
        raise MappingError(f"{len(wanted)} sizes for {len(axes)} axes", "R105")
    return [None if v == -1 else v for v in wanted]


@lifts("DFT", "IDFT")
def lift_dft(layer: Layer, b: Builder) -> ir.Value:
    attributes(layer)
    x = operand(layer, 0)
    axes = [near_axis(a, rank(x) - 1) for a in ints(operand(layer, 1), "the axes")]
    for axis, size in zip(axes, _sizes(layer, axes), strict=True):
        x = b.op("DFT", fitted(b, x, axis, size), None, b.const(np.int64(axis)), inverse=int(layer.kind == "IDFT"))
    return x


@lifts("RDFT", "IRDFT")
def lift_real(layer: Layer, b: Builder) -> ir.Value:
    attributes(layer)
    x, inverse = operand(layer, 0), layer.kind == "IRDFT"
    axes = [near_axis(a, rank(x) - inverse) for a in ints(operand(layer, 1), "the axes")]
    sizes = _sizes(layer, axes)
    wanted = [*sizes[:-1], None if sizes[-1] is None else sizes[-1] // 2 + 1]
    if inverse and any(w is not None and w > static(x)[axis] for axis, w in zip(axes, wanted, strict=True)):
        raise MappingError("a signal size beyond the data: engines do not agree with the specification here")
    return b.ext("InverseRealDFT" if inverse else "RealDFT", x, axes=axes, sizes=[-1 if v is None else v for v in sizes])


@lowers("RealDFT InverseRealDFT", domain="netconv")
def lower_real(node: Node, low: Lowering) -> None:
    kind = "RDFT" if node.op == "RealDFT" else "IRDFT"
    needs(low, kind, 9)
    x, axes, sizes = given(node, 0), list(node.attrs["axes"]), list(node.attrs["sizes"])
    if all(v == -1 for v in sizes):
        Emit(node, low).out(kind, x, axes)
        return
    whole = [static(x)[a] for a in axes]  # the CPU runtime does not take -1 beside other sizes
    if kind == "IRDFT":
        whole[-1] = 2 * (whole[-1] - 1)
    Emit(node, low).out(kind, x, axes, [w if v == -1 else v for v, w in zip(sizes, whole, strict=True)])


@lowers("DFT")
def lower_dft(node: Node, low: Lowering) -> None:
    """Complex input: DFT and IDFT. Real input: RDFT when half of the spectrum is asked for, else with zeros as imaginary part."""
    a, x, e = filled(node), given(node, 0), Emit(node, low)
    n = rank_of(x)
    if n is None or x.shape is None:
        raise MappingError("the rank of the input is unknown", "X203")
    axis_at, length = node.input(2), node.input(1)
    found = known(axis_at) if axis_at is not None else np.array(-2)
    if found is None or (length is not None and known(length) is None):
        raise MappingError("the axis and the length must be constant")
    axis = int(found.reshape(-1)[0])
    axis += n if axis < 0 else 0
    size = [] if length is None else [np.array(known(length)).reshape(1).astype(np.int64)]
    real = x.shape[-1] == 1
    if a["onesided"]:
        if not real or a["inverse"] or low.version < 9:
            raise MappingError("half a spectrum of this input cannot be expressed")
        e.out("RDFT", e.op("Squeeze", x, [n - 1]), [axis], *size)
        return
    if real:
        x = e.op("Concat", x, e.op("Multiply", x, np.zeros((), (x.dtype or ir.DataType.FLOAT).numpy()), auto_broadcast="numpy"), axis=n - 1)
    e.out("IDFT" if a["inverse"] else "DFT", x, [axis], *size)


def _frames(layer: Layer) -> dict[str, Any]:
    size, step = (ints(operand(layer, i), what)[0] for i, what in ((2, "the frame size"), (3, "the frame step")))
    return {"size": size, "step": step}


@lifts("STFT")
def lift_stft(layer: Layer, b: Builder) -> ir.Value:
    """(signal, window, frame size, frame step); `transpose_frames` puts the bins in front of the frames."""
    a = attributes(layer, transpose_frames=bool)
    return b.ext("FramedDFT", operand(layer, 0), operand(layer, 1), **_frames(layer), bins_first=int(a.transpose_frames))


@lowers("FramedDFT", domain="netconv")
def lower_stft(node: Node, low: Lowering) -> None:
    needs(low, "STFT", 15)
    a = filled(node)
    frames = [np.array(a[k], np.int64) for k in ("size", "step")]
    Emit(node, low).out("STFT", *node.inputs, *frames, transpose_frames=bool(a["bins_first"]))


@lifts("ISTFT")
def lift_istft(layer: Layer, b: Builder) -> ir.Value:
    """(spectra, window, frame size, frame step[, length])."""
    a, length = attributes(layer, center=bool, normalized=bool), optional(layer, 4)
    size = -1 if length is None else ints(length, "the length")[0]
    flags: dict[str, Any] = {"center": int(a.center), "normalized": int(a.normalized)}
    return b.ext("InverseFramedDFT", operand(layer, 0), operand(layer, 1), **_frames(layer), length=size, **flags)


@lowers("InverseFramedDFT", domain="netconv")
def lower_istft(node: Node, low: Lowering) -> None:
    needs(low, "ISTFT", 16)
    a = filled(node)
    numbers = [np.array(a[k], np.int64) for k in ("size", "step", "length")]
    Emit(node, low).out("ISTFT", *node.inputs, *numbers[: 3 if a["length"] >= 0 else 2], center=bool(a["center"]), normalized=bool(a["normalized"]))
