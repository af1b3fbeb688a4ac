"""Reductions, BatchNorm and Softmax."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.quantization.context import IntegerReading, IntegerWriting, Written
from converter.formats.zhouyi.quantization.requantize import beside, real, scalar_keys, zeros_of
from converter.formats.zhouyi.quantization.tables import exponentials
from converter.formats.zhouyi.rules.fields import axes_of, axis_of
from converter.graph.infer import Array
from converter.graph.value import Value
from converter.mapping.context import static


def lift_reduce(r: IntegerReading) -> Value:
    """Sums and means are one sum and one factor; variances first round the mean.

    Conditions are 0 and 1.
    """
    b, method, axes = r.b, r.attr("method", str).upper(), axes_of(r.layer)
    x = r.real()
    if method in ("SUM", "MEAN"):
        return r.requantized(b.ReduceSum(x, axes))
    if method in ("VARIANCE", "UNBIASED_VARIANCE"):
        whole = real(b, r.input(0))
        d = whole - b.Round(b.ReduceMean(whole, axes))
        return r.requantized(b.ReduceSum(d * d, axes))
    if method in ("ANY", "ALL"):
        true = b.Cast(~b.Equal(x, b.like(x, 0)), to=ir.DataType.FLOAT)
        return r.stored(b.operator("ReduceMax" if method == "ANY" else "ReduceMin")(true, axes))
    raise MappingError(f"{method} has no integer form here")


def lower_reduce(w: IntegerWriting) -> Written:
    """One factor for the number of elements and both scales."""
    factor = w.factor
    if w.method == "MEAN":
        factor /= int(np.prod([static(w.inputs[0])[a] for a in axes_of(w.layer)]))
    elif w.method != "SUM":
        raise MappingError(f"{w.method} has no integer form to write")
    return w.written(scalar_keys(factor))


def lift_batch_norm(r: IntegerReading) -> Value:
    """The stored input times the weights of its channel; the input's zero point is in the
    biases.
    """
    x, name = r.input(0), r.layer.name
    rank = len(r.static(x))
    axis = axis_of(r.attr("axis", int, -1), rank)

    def along(array: Array) -> Array:
        flat = np.asarray(array, np.float32).reshape(-1)
        shape = [-1 if i == axis else 1 for i in range(rank)]
        return flat if flat.size == 1 else flat.reshape(shape)

    def shifted(name: str) -> Array:
        return along(r.blob(name).reshape(-1).astype(np.float64) + zeros_of(r.layer, name))

    y = real(r.b, x)
    y = y * beside(r.b, shifted("weights"), y, f"{name}.weights")
    y = y + beside(r.b, shifted("biases"), y, f"{name}.biases")
    return r.activated(y, along(r.factor))


def lift_softmax(r: IntegerReading) -> Value:
    """A table of exponentials, then a quotient with 31 bits; the vendor's two ways, by the size of
    the data.
    """
    b, shape = r.b, r.static(r.input(0))
    axis = axis_of(r.attr("axis", int, -1), len(shape))
    if "lut" not in r.layer.blobs:
        message = "Softmax without a table of exponentials (FAST_EXP) has no integer form here"
        raise MappingError(message)
    lut = r.blob("lut").reshape(-1)
    scale, shift = r.attr("scale_value", int), r.attr("shift_value", int)
    bits, _ = r.width()
    if 1 << bits != lut.size:
        raise MappingError(f"a table of {lut.size} exponentials for {bits} bits has no counterpart")
    wide = b.Cast(r.input(0), to=ir.DataType.INT64)
    below = wide - b.ReduceMax(wide, [axis])
    y = b.Gather(b.const(lut.astype(np.int64), "lut"), below + ((1 << bits) - 1))
    total = b.Max(b.ReduceSum(y, [axis]), b.like(y, 1))
    if shape[axis] < 8 and int(np.prod(shape)) // shape[axis] % 128 == 0:
        extra = 31 - int(np.ceil(np.log2(float(lut.max()))))
        z = (y * (1 << extra) + total / 2) / total
        by = scale * 2.0 ** -(shift + extra)
    else:
        extra = 31 - int(np.ceil(np.log2(float(scale))))
        z = y * (b.like(y, scale << extra) / total)
        by = 2.0 ** -(shift + extra)
    return r.requantized(real(b, z), by)


def lower_softmax(w: IntegerWriting) -> Written:
    keys = {"quantize_method": "LUT", **scalar_keys(1 / w.result.scale)}
    return w.written(keys, lut=exponentials(w.sources[0]))
