"""Convolutions, pools and matrix products."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.mlprogram.rules.context import reading
from converter.formats.mlprogram.rules.fields import Window, data, listed, mil
from converter.graph.value import Value, with_operators
from converter.mapping.context import Reading
from converter.mapping.fields import Attr, Field
from converter.mapping.rules import Custom, Rule, custom

GROUPS = Attr("group", "groups", int, default=1)


class WantedSize(Field):
    """`output_shape`: what is missing behind is output_padding."""

    keys = ("output_shape",)
    names = ("output_padding",)

    def lift(self, r: Reading) -> None:
        wanted, a = listed(r, "output_shape"), r.node.attrs
        shape = list(data(r).shape or ())[2:]
        if wanted is None:
            return
        if not all(isinstance(n, int) for n in shape) or len(wanted) < len(shape):
            raise MappingError("the size of the image must be known", "X203")
        rank, kernel, strides = len(shape), a["kernel_shape"], a["strides"]
        dilations, pads = a.get("dilations") or [1] * rank, a.get("pads") or [0] * (2 * rank)
        sizes = zip(shape, kernel, strides, dilations, strict=True)
        full = [(int(n) - 1) * s + (k - 1) * d + 1 for n, k, s, d in sizes]  # type: ignore[arg-type]
        own = [f - p - q for f, p, q in zip(full, pads[:rank], pads[rank:], strict=True)]
        more = [w - n for w, n in zip(wanted[-rank:], own, strict=True)]
        if min(more) < 0:  # cut off behind
            pads = [*pads[:rank], *(p - min(0, m) for p, m in zip(pads[rank:], more, strict=True))]
            a["pads"] = pads
        a["output_padding"] = [max(0, m) for m in more]


class Cropped(Window):
    """The window of a transposed convolution; of a scheme, the padding leaves stride times size."""

    def pad(
        self,
        r: Reading,
        scheme: str,
        amounts: list[int],
        kernel: list[int],
        strides: list[int],
        dilations: list[int],
    ) -> None:
        if scheme not in ("same", "same_lower"):
            super().pad(r, scheme, amounts, kernel, strides, dilations)
            return
        sizes = zip(kernel, strides, dilations, strict=True)
        totals = [max(0, (k - 1) * d + 1 - s) for k, s, d in sizes]
        small, big = [t // 2 for t in totals], [t - t // 2 for t in totals]
        r.node.attrs["pads"] = [*small, *big] if scheme == "same" else [*big, *small]
        sizes = zip(kernel, strides, dilations, strict=True)
        missing = [max(0, s - (k - 1) * d - 1) for k, s, d in sizes]
        if any(missing):
            r.node.attrs["output_padding"] = missing


class Counted(Field):
    keys = ("exclude_padding_from_average",)
    names = ("count_include_pad",)

    def lift(self, r: Reading) -> None:
        r.node.attrs["count_include_pad"] = int(not r.attr(self.keys[0], bool, False))


def turned(r: Reading, value: ir.Value) -> Value:
    """The last two axes change places."""
    n = r.rank(value)
    return with_operators(r.transpose(value, [*range(n - 2), n - 1, n - 2]))


def linear(r: Reading) -> Value:
    """x @ weight^T + bias; weight [units, input size]."""
    t = reading(r)
    x, weights = t.value("x"), t.value("weight")
    if weights.dtype != x.dtype and x.dtype is not None:
        weights = with_operators(r.cast(weights, x.dtype))
    y = r.b.MatMul(x, turned(r, weights))
    bias = t.given("bias")
    return y if bias is None else y + with_operators(r.cast(bias, y.dtype or ir.DataType.FLOAT))


def product(r: Reading) -> Value:
    t = reading(r)
    x, y = t.value("x"), t.value("y")
    if x.dtype != y.dtype:  # the result is of the type of the side that is computed
        own = (y if x.const_value is not None else x).dtype or ir.DataType.FLOAT
        kind = own if own.is_floating_point() else ir.DataType.FLOAT
        x, y = (with_operators(r.cast(v, kind)) for v in (x, y))
    x = turned(r, x) if r.attr("transpose_x", bool, False) else x
    y = turned(r, y) if r.attr("transpose_y", bool, False) else y
    return r.b.MatMul(x, y)


def einsum(r: Reading) -> Value:
    """Sizes of 1 broadcast."""
    t = reading(r)
    equation = r.attr("equation", str).replace(" ", "")
    return r.b.Einsum(*t.values("values"), equation=equation)


def attention(r: Reading) -> Value:
    """softmax(q k^T / sqrt(size) + mask) v; a mask of truth values says what takes part."""
    t, b = reading(r), r.b
    q, k, v = (t.value(n) for n in ("query", "key", "value"))
    size = None if q.shape is None else q.shape[-1]
    if isinstance(size, int):
        scaled = q * float(size**-0.5)
    else:
        own = b.Gather(b.Shape(q), np.int64(-1), axis=0)
        scaled = q / b.Sqrt(b.Cast(own, to=int(q.dtype or ir.DataType.FLOAT)))
    scores = b.MatMul(scaled, turned(r, k))
    mask = t.given("attn_mask")
    if mask is not None and mask.dtype == ir.DataType.BOOL:
        lowest = float((scores.dtype or ir.DataType.FLOAT).min)
        scores = b.Where(mask, scores, b.like(scores, lowest))
    elif mask is not None:
        scores = scores + mask
    return b.MatMul(b.Softmax(scores, axis=-1), v)


RULES: list[Rule | Custom] = [
    mil("Conv", "conv", "x weight bias?", Window(), GROUPS),
    mil("ConvTranspose", "conv_transpose", "x weight bias?", Cropped(), WantedSize(), GROUPS),
    mil("AveragePool", "avg_pool", "x", Window(True, True), Counted()),
    mil("MaxPool", "max_pool", "x", Window(True, True)),
    mil("LpPool", "l2_pool", "x", Window(True, True)),
    custom("", "linear", linear),
    custom("", "matmul", product),
    custom("", "einsum", einsum),
    custom("", "scaled_dot_product_attention", attention),
]
