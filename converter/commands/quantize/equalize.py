"""Give the channels of data of depthwise convolutions equal ranges, since they share one scale.

before:  y = DepthwiseConv(Relu(Conv(x, w, b)), v)
after:   y = DepthwiseConv(Relu(Conv(x, w * f, b * f)), v / f)      with a factor f for each channel

Weights have a scale for each channel, and lose nothing. An upper bound of the activation clips
numbers above the measured range of a channel, as a scale of this channel alone would do.

Source: Nagel et al., Data-Free Quantization (https://arxiv.org/abs/1906.04721), section 4.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx_ir as ir

from converter.commands.quantize.place import is_depthwise
from converter.commands.quantize.scales import Range, whole
from converter.graph.build import Builder
from converter.graph.infer import Array, constant, has_constant, known
from converter.graph.names import Names
from converter.graph.value import optional, producer_of
from converter.mapping.fusing import only_user

_MOST = 16.0  # factor of a channel that hardly varied in the samples
_ACTIVATIONS = ("Clip", "LeakyRelu", "PRelu", "Relu")


def chains(graph: ir.Graph) -> Iterator[tuple[ir.Node, list[ir.Value], ir.Node]]:
    """Yield convolutions with the values between them and the depthwise convolutions that alone
    read their results.
    """
    for depthwise in filter(is_depthwise, graph):
        node, values = depthwise, list[ir.Value]()
        while (value := node.inputs[0]) is not None and only_user(value) is node:
            made = producer_of(value)
            if made is None or made.op_type not in ("Conv", *_ACTIVATIONS):
                break
            values.append(value)
            if made.op_type == "Conv":
                if _is_plain(made) and _is_plain(depthwise):
                    yield made, values, depthwise
                break
            if made.op_type == "Clip" and not _starts_at_0(made):
                break
            node = made


def _is_plain(node: ir.Node) -> bool:
    return all(v is None or has_constant(v) for v in node.inputs[1:])


def _starts_at_0(clip: ir.Node) -> bool:
    low = known(optional(clip, 1))
    return low is not None and not low.any()


def equalize(model: ir.Model, ranges: Mapping[str, Range]) -> dict[str, Range]:
    """Equalize in place; return the ranges of the values of the new graph, each as a whole."""
    found, b = dict(ranges), Builder(model.graph, Names(model))
    for conv, values, depthwise in list(chains(model.graph)):
        own = [ranges[n] for v in values if (n := str(v.name)) in ranges]
        sizes = [np.maximum(-r.low, r.high).ravel() for r in own]
        if len(own) < len(values) or not all(s.any() for s in sizes):
            continue
        least = np.finfo(np.float32).tiny
        factors = np.min([s.max() / np.maximum(s, s.max() / _MOST + least) for s in sizes], axis=0)
        for value, old in zip(values, own, strict=True):
            value.name = b.names.fresh(f"{value.name}.equalized")  # its numbers are others
            each = factors.reshape(np.shape(old.low))
            found[value.name] = Range(old.low * each, old.high * each)
        _multiply(b, conv, factors)
        _multiply(b, depthwise, 1 / factors, with_bias=False)
    return {name: whole(r) for name, r in found.items()}


def _multiply(b: Builder, node: ir.Node, factors: Array, *, with_bias: bool = True) -> None:
    """Multiply the weights of each channel of a convolution."""
    for i in (1, 2) if with_bias else (1,):
        if (array := constant(optional(node, i))) is not None:
            wide = factors.reshape(-1, *[1] * (array.ndim - 1))
            node.replace_input_with(i, b.const((array * wide).astype(np.float32), "equalized"))
