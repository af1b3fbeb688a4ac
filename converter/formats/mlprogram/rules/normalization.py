"""Normalisations and softmax."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.mlprogram.rules.context import Reading, Writing
from converter.formats.mlprogram.rules.fields import axes_of, first_axis, mil
from converter.graph.demands import at_least
from converter.graph.value import Value
from converter.mapping.fields import Attr, Field, FirstResult, Guard, Implied, Only
from converter.mapping.rules import Custom, Rule, custom


class Filled(Field):
    """Factors and addends of the channels: ones and zeros where they are left out."""

    keys = ("gamma", "beta")
    inputs = (1, 2)

    def lower(self, w: Writing) -> None:
        for i, key in enumerate(self.keys):
            w.layer.attrs[key] = w.weight(i + 1, key)

    def lift(self, r: Reading) -> None:
        x = r.data
        channels = (x.shape or [None, None])[1]
        for i, (key, number) in enumerate(zip(self.keys, (1.0, 0.0), strict=True)):
            value = r.given(key)
            if value is None:
                count = channels if isinstance(channels, int) else r.static(x)[1]
                kind = (x.dtype or ir.DataType.FLOAT).numpy()
                value = r.b.const(np.full(count, number, kind), key)
            r.node.set_input(i + 1, r.cast(value, x.dtype or ir.DataType.FLOAT))


class Statistics(Field):
    keys = ("mean", "variance")
    inputs = (3, 4)

    def lower(self, w: Writing) -> None:
        for i, key in enumerate(self.keys):
            w.layer.attrs[key] = w.weight(i + 3, key)

    def lift(self, r: Reading) -> None:
        dtype = r.data.dtype or ir.DataType.FLOAT
        for i, key in enumerate(self.keys):
            r.node.set_input(i + 3, r.cast(r.value(key), dtype))


class Neighbours(Field):
    """x / (k + alpha / size * sum over the window of x^2) ^ beta."""

    names = ("size", "alpha", "beta", "bias")
    keys = ("size", "alpha", "beta", "k")

    def lift(self, r: Reading) -> None:
        if r.attr("size", int) % 2 == 0:  # the longer half is in front, in ONNX behind
            self.turn(r)
        defaults = (1e-4, 0.75, 1.0)
        numbers = [r.attr(k, float, d) for k, d in zip(self.keys[1:], defaults, strict=True)]
        r.node.attrs |= dict(zip(self.names, [r.attr("size", int), *numbers], strict=True))

    def lower(self, w: Writing) -> None:
        if w.rank() != 4 or w.attr("size") % 2 == 0:
            raise MappingError("neighbours in other than four axes, or an even number of them")
        numbers = {k: float(w.attr(n)) for k, n in zip(self.keys[1:], self.names[1:], strict=True)}
        w.set(size=int(w.attr("size")), **numbers)

    def turn(self, r: Reading) -> None:
        """The channels in the other order, in front and behind."""
        last = np.iinfo(np.int64).min + 1
        r.data = r.b.Slice(r.data, [-1], [last], [1], [-1])
        r.then(lambda results: [r.b.Slice(results[0], [-1], [last], [1], [-1])])


def layer_norm(r: Reading) -> Value:
    """Over any axes: ONNX's own where they are the last ones."""
    b = r.b
    x, epsilon = r.x, r.attr("epsilon", float, 1e-5)
    axes, rank = axes_of(r, x), r.rank(x)
    at_least(1, axes=len(axes))
    gamma, beta = (r.given(k) for k in ("gamma", "beta"))
    dtype = x.dtype or ir.DataType.FLOAT
    gamma, beta = (None if v is None else r.cast(v, dtype) for v in (gamma, beta))
    if axes == list(range(rank - len(axes), rank)) and gamma is not None:
        more = () if beta is None else (beta,)
        return b.LayerNormalization(x, gamma, *more, axis=axes[0], epsilon=epsilon)
    centred = x - b.ReduceMean(x, axes, keepdims=1)
    variance = b.ReduceMean(centred * centred, axes, keepdims=1)
    y = centred / b.Sqrt(variance + epsilon)
    if axes != list(range(rank - len(axes), rank)):
        shape = [-1] if len(axes) == 1 else list(r.static(gamma)) if gamma is not None else [-1]
        sizes = iter(shape)
        line = [next(sizes, -1) if i in axes else 1 for i in range(rank)]
        gamma, beta = (None if v is None else r.reshape(v, line) for v in (gamma, beta))
    y = y if gamma is None else y * gamma
    return y if beta is None else y + beta


def write_layer_norm(w: Writing) -> None:
    """Over the last axes, of which gamma and beta have the shape."""
    shape = tuple(w.data.shape or ())
    axis = first_axis(w, w.attr("axis", -1))
    if not all(isinstance(n, int) for n in shape[axis:]):
        raise MappingError("the sizes of the axes are not known", "X203")
    if any(map(w.used, range(1, len(w.node.outputs)))):
        raise MappingError("statistics are not told")
    factors = []
    for i, what in ((1, "gamma"), (2, "beta")):
        value = w.optional(i)
        if value is not None and tuple(value.shape or ()) != shape[axis:]:
            array = np.broadcast_to(w.constant(i, what), shape[axis:]).copy()  # type: ignore[arg-type]
            value = w.const(array, what)
        factors.append(None if value is None else value)
        if value is not None and value.const_value is None:
            raise MappingError(f"{what} must be constant")
    axes, epsilon = list(range(axis, len(shape))), float(w.attr("epsilon"))
    x, y = w.data, w.node.outputs[:1]
    w.operation("layer_norm", y, x=x, axes=axes, gamma=factors[0], beta=factors[1], epsilon=epsilon)


def l2_norm(r: Reading) -> Value:
    """Over the last three axes."""
    x = r.x
    rank = r.rank(x)
    axes = list(range(max(0, rank - 3), rank))
    total = r.b.ReduceSum(x * x, axes, keepdims=1)
    return x / r.b.Sqrt(total + r.attr("epsilon", float, 1e-6))


EPSILON = Attr("epsilon", kind=float, default=1e-5)
RULES: list[Rule | Custom] = [
    mil(
        "BatchNormalization",
        "batch_norm",
        "x",
        Guard("of three to five axes only", lambda w: 3 <= w.rank() <= 5),
        Filled(),
        Statistics(),
        FirstResult("statistics are not computed"),
        EPSILON,
        Only("training_mode", 0),
        Implied(("momentum",)),
        given="1,4,8,8 =4 =4 =4 =4",
    ),
    mil(
        "InstanceNormalization",
        "instance_norm",
        "x",
        Guard("of three or four axes only", lambda w: 3 <= w.rank() <= 4),
        Filled(),
        EPSILON,
        given="1,4,8,8 =4 =4",
    ),
    mil("LRN", "local_response_norm", "x", Neighbours(), given="1,8,4,4"),
    mil("Softmax", "softmax", "x", Attr("axis", kind=int, default=-1)),
    custom("LayerNormalization", "layer_norm", layer_norm, write_layer_norm),
    custom("", "l2_norm", l2_norm),
]
