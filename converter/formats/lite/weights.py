"""Filters, biases and dense layers.

Filters are stored O H W I, those of a depthwise convolution 1 H W O, weights of a dense layer
[units, input size].
"""

from __future__ import annotations

import math

import numpy as np

from converter.errors import MappingError
from converter.formats.lite.context import Key, LiteLiftContext, LiteLowerContext
from converter.graph.infer import known, rank_of, shape_of
from converter.mapping.fields import Field
from converter.record import record


def owned(*keys: Key) -> tuple[str, ...]:
    """Return the keys that are names, which a field owns; numbered operands have no other owner."""
    return tuple(k for k in keys if isinstance(k, str))


@record
class Filter(Field):
    """The weights at input 1, where axis i of the operand `key` is axis `perm[i]` of the operator's
    and `outputs` is the operator's axis that counts the channels of the result.
    """

    perm: tuple[int, ...]
    key: Key
    outputs: int = 0
    inputs = (1,)

    def __post_init__(self) -> None:
        self.keys = owned(self.key)

    def lift(self, r: LiteLiftContext) -> None:
        r.set_input(1, r.permuted(self.key, [int(i) for i in np.argsort(self.perm)]))

    def lower(self, w: LiteLowerContext) -> None:
        rank = w.rank(1, "the filter")
        if rank != len(self.perm):
            raise MappingError(f"the filter must have {len(self.perm)} axes, got {rank}")
        w.place(self.key, w.weights(self.perm, self.perm.index(self.outputs)))


@record
class Bias(Field):
    """The bias at input 2, which both formats always write. `filter` and `data` are the keys of the
    operands whose scales determine the scale of the bias. `drops_zeros`: a bias of zeros is not
    read.
    """

    key: Key
    filter: Key
    data: Key
    drops_zeros: bool = False
    inputs = (2,)

    def __post_init__(self) -> None:
        self.keys = owned(self.key)

    def lift(self, r: LiteLiftContext) -> None:
        bias = r.real_bias(self.key, (self.data, self.filter))
        array = known(r.stored(self.key)) if bias is not None and self.drops_zeros else None
        r.set_input(2, None if array is not None and not array.any() else bias)

    def lower(self, w: LiteLowerContext) -> None:
        count = w.image(w.out)[-1]
        if count is None:
            raise MappingError("the number of filters is unknown", "X203")
        bias = w.optional(2) if w.has(2) else w.added_bias(count)
        w.place(self.key, w.bias(bias, count, w.placed(self.filter)))


@record
class Multiplier(Field):
    """The number of output channels for each channel of the image (depth multiplier); `group` is
    the number of channels. Both follow from the shapes; `key` may be wrong, and is read only if the
    shapes are unknown.
    """

    key: str
    names = ("group",)

    def __post_init__(self) -> None:
        self.keys = (self.key,)

    def lift(self, r: LiteLiftContext) -> None:
        filter_ = r.node.inputs[1]
        units = 0 if filter_ is None else r.static(filter_, "the filter")[0]
        channels = r.channels()
        own = units // r.count(self.key) if channels is None else channels
        if own < 1 or units % own:
            raise MappingError(f"the filter has {units} outputs for {own} channels", "R105")
        r.set(group=own)

    def lower(self, w: LiteLowerContext) -> None:
        w.layer.attrs[self.key] = int(w.static(1)[0]) // int(w.attr("group", 1))


@record
class Dense(Field):
    """Weights and a bias; an input of another rank is flattened to rows of the size of the weights.

    `keep`: the result keeps the leading axes of the input. Without it the layer's input and output
    are matrices, and there always is a bias.
    """

    data: Key
    weights: Key
    bias: Key
    keep: str = ""
    names = ("transB",)
    inputs = (1, 2)

    def __post_init__(self) -> None:
        self.keys = owned(self.weights, self.bias, *filter(None, [self.keep]))

    def lift(self, r: LiteLiftContext) -> None:
        x, size = r.data, r.static(r.stored(self.weights), "the weights", axes=2)[1]
        shape = () if x.shape is None else tuple(x.shape)
        keeps = bool(self.keep) and r.attr(self.keep, bool) and rank_of(x) != 1
        if not keeps and (len(shape) != 2 or shape[1] != size):
            x = r.b.Reshape(x, [-1, size])
        r.set_inputs(x, r.permuted(self.weights, (1, 0)))
        if (bias := r.real_bias(self.bias, (self.data, self.weights))) is not None:
            r.after_first(lambda y: y + bias)

    def lower(self, w: LiteLowerContext) -> None:
        w.read_quantized(w.data)  # no operand is created if the data are not quantized
        perm = (0, 1) if w.attr("transB", 0) else (1, 0)
        units = int(w.static(1, "the weights")[perm[0]])
        weights = w.weights(perm, 0)
        w.place(self.weights, weights)
        bias = w.optional(2) if w.has(2) else w.added_bias(units)
        shape = () if bias is None else shape_of(bias)
        if shape is None or math.prod(shape) not in (1, units):
            raise MappingError(f"the bias must have one element or {units}, got the shape {shape}")
        if self.keep:
            w.layer.attrs[self.keep] = w.rank() > 2
        elif w.rank() != 2:
            w.as_matrix(units)
        none = bool(self.keep) and bias is None and not w.quantized
        w.place(self.bias, None if none else w.bias(bias, units, weights))
