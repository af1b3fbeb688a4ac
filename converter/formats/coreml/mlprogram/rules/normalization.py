"""Normalizations and softmax."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.mlprogram.rules.context import LiftContext, LowerContext
from converter.formats.coreml.mlprogram.rules.fields import axes_of, first_axis, mil
from converter.graph.demands import at_least, broadcast
from converter.graph.value import Value, known_sizes
from converter.mapping.fields import (
    Attr,
    Field,
    FirstResult,
    Guard,
    ImpliedAttrs,
    RequireAttr,
    ignore,
)


class Filled(Field):
    """Factors and addends of the channels; omitted ones are ones and zeros."""

    keys = ("gamma", "beta")
    inputs = (1, 2)

    def lower(self, w: LowerContext) -> None:
        for i, key in zip(self.inputs, self.keys, strict=True):
            w.layer.attrs[key] = w.weight(i, key)

    def lift(self, r: LiftContext) -> None:
        x = r.data
        sizes = known_sizes(x)
        if sizes is not None and len(sizes) < 2:
            raise MappingError("the data need an axis of channels", "R110")
        channels = None if sizes is None else sizes[1]
        for i, (key, number) in enumerate(zip(self.keys, (1.0, 0.0), strict=True)):
            value = r.given(key)
            if value is None:
                count = channels if isinstance(channels, int) else r.static(x)[1]
                kind = (x.dtype or ir.DataType.FLOAT).numpy()
                value = r.b.const(np.full(count, number, kind), key)
            r.node.set_input(i + 1, r.cast(value, x.dtype or ir.DataType.FLOAT))


class Statistics(Filled):
    """Means and variances of the channels, which are required."""

    keys, inputs = ("mean", "variance"), (3, 4)

    def lift(self, r: LiftContext) -> None:
        for i, key in zip(self.inputs, self.keys, strict=True):
            r.node.set_input(i, r.cast(r.value(key), r.data.dtype or ir.DataType.FLOAT))


class Neighbors(Field):
    """Local response normalization: x / (k + alpha / size * sum over the window of x^2) ^ beta."""

    names = ("size", "alpha", "beta", "bias")
    keys = ("size", "alpha", "beta", "k")

    def lift(self, r: LiftContext) -> None:
        if r.attr("size", int) % 2 == 0:  # the longer half is before the channel, in ONNX after it
            self.reverse_channels(r)
        defaults = (1e-4, 0.75, 1.0)
        numbers = [r.attr(k, float, d) for k, d in zip(self.keys[1:], defaults, strict=True)]
        r.node.attrs |= dict(zip(self.names, [r.attr("size", int), *numbers], strict=True))

    def lower(self, w: LowerContext) -> None:
        if w.rank() != 4 or w.attr("size") % 2 == 0:
            raise MappingError("only data of rank 4 and an odd size are supported")
        numbers = {k: float(w.attr(n)) for k, n in zip(self.keys[1:], self.names[1:], strict=True)}
        w.set(size=int(w.attr("size")), **numbers)

    def reverse_channels(self, r: LiftContext) -> None:
        """Reverse the channels before and after the operator."""
        last = np.iinfo(np.int64).min + 1
        r.data = r.b.Slice(r.data, [-1], [last], [1], [-1])
        r.after_emit(lambda results: [r.b.Slice(results[0], [-1], [last], [1], [-1])])


class LastAxes(Field):
    """The last axes, which have the shape of gamma and beta."""

    keys = ("axes", "gamma", "beta")
    names = ("axis",)
    inputs = (1, 2)

    def lift(self, r: LiftContext) -> None:
        r.set(axis=axes_of(r, r.data)[0])
        factors = [r.given(k) for k in ("gamma", "beta")]
        given = [r.cast(v, r.data.dtype or ir.DataType.FLOAT) for v in factors if v is not None]
        r.set_inputs(r.data, *given)

    def lower(self, w: LowerContext) -> None:
        shape = tuple(w.data.shape or ())
        axis = first_axis(w, w.attr("axis", -1))
        sizes = [n for n in shape[axis:] if isinstance(n, int)]
        if sizes != list(shape[axis:]):
            raise MappingError("the sizes of the axes are not known", "X203")
        w.set(axes=list(range(axis, len(shape))))
        for i, key in enumerate(("gamma", "beta"), 1):
            if w.has(i):
                array = w.constant(i, key)
                whole = broadcast(array, sizes, key).copy()
                same = w.input(i).const_value is not None and array.shape == whole.shape
                w.layer.attrs[key] = w.input(i) if same else w.const(whole, key)


def _last_axes(r: LiftContext) -> bool:
    """Return whether ONNX has the operator: over the last axes, and with a factor."""
    rank, axes = r.rank(r.x), axes_of(r, r.x)
    return axes != [] and axes == list(range(rank - len(axes), rank)) and r.has("gamma")


class AnyAxes(Field):
    """Normalization over any axes, with gamma and beta in the shape of these axes as operators
    after the quotient.
    """

    keys = ("axes", "epsilon", "gamma", "beta")

    def lift(self, r: LiftContext) -> None:
        x, axes, rank = r.data, axes_of(r, r.data), r.rank(r.data)
        at_least(1, axes=len(axes))
        centered = x - r.b.ReduceMean(x, axes, keepdims=1)
        variance = r.b.ReduceMean(centered * centered, axes, keepdims=1)
        r.set_inputs(centered, r.b.Sqrt(variance + r.attr("epsilon", float, 1e-5)))
        gamma, beta = (self.factor(r, k, axes, rank) for k in self.keys[2:])
        r.after_first(lambda y: y if gamma is None else y * gamma)
        r.after_first(lambda y: y if beta is None else y + beta)

    def factor(self, r: LiftContext, key: str, axes: list[int], rank: int) -> Value | None:
        """Return a parameter in a shape that broadcasts over the other axes."""
        value = r.given(key)
        if value is None:
            return None
        value = r.cast(value, r.data.dtype or ir.DataType.FLOAT)
        sizes = iter([-1] if len(axes) == 1 else r.static(value))
        return r.reshape(value, [next(sizes, -1) if i in axes else 1 for i in range(rank)])


def length(r: LiftContext) -> None:
    """Compute the root of the sum of squares over the last three axes."""
    x, rank = r.data, r.rank(r.data)
    total = r.b.ReduceSum(x * x, list(range(max(0, rank - 3), rank)), keepdims=1)
    r.set_input(1, r.b.Sqrt(total + r.attr("epsilon", float, 1e-6)))


EPSILON = Attr("epsilon", kind=float, default=1e-5)
RULES = [
    mil(
        "BatchNormalization",
        "batch_norm",
        "x",
        Guard("only data of rank 3 to 5 are supported", lambda w: 3 <= w.rank() <= 5),
        Filled(),
        Statistics(),
        FirstResult("the statistics outputs are not supported"),
        EPSILON,
        RequireAttr("training_mode", 0),
        ImpliedAttrs(("momentum",)),
        example_inputs="1,4,8,8 =4 =4 =4 =4",
    ),
    mil(
        "InstanceNormalization",
        "instance_norm",
        "x",
        Guard("only data of rank 3 or 4 are supported", lambda w: 3 <= w.rank() <= 4),
        Filled(),
        EPSILON,
        example_inputs="1,4,8,8 =4 =4",
    ),
    mil("LRN", "local_response_norm", "x", Neighbors(), example_inputs="1,8,4,4"),
    mil("Softmax", "softmax", "x", Attr("axis", kind=int, default=-1)),
    mil(
        "LayerNormalization",
        "layer_norm",
        "x",
        Guard("the axes must be the last ones and the scale must be given", None, _last_axes),
        LastAxes(),
        FirstResult("the statistics outputs are not supported"),
        EPSILON,
        ImpliedAttrs(("stash_type",)),
        example_inputs="2,3 =3 =3",
    ),
    mil("Div", "layer_norm", "x", AnyAxes(), lift_only=True),
    mil("Div", "l2_norm", "x", ignore("epsilon"), before_lift=length, lift_only=True),
]
