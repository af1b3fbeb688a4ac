"""Graphs that Apple's tools declare as one operation; their bodies compute the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, not_meant
from converter.formats.coreml.coreai.barriers import keep_apart
from converter.formats.coreml.coreai.collector import Composite
from converter.formats.coreml.coreai.rules.context import Reading, Writing
from converter.graph.build import Builder, new_model
from converter.graph.value import Value
from converter.mapping.rules import Custom, Rule, custom
from converter.passes.legalise import legalise

PREFIX = "composite:"


def layer_norm(r: Reading) -> Value:
    """LayerNorm over the last axes, with factor and bias."""
    x, rank = r.input(0), r.rank()
    axes = sorted(a % rank for a in r.attr("axes", list))
    if not axes or axes != list(range(axes[0], rank)):
        raise MappingError("axes must be the last ones")
    rest = [v for v in r.layer.inputs[1:3] if v is not None]
    sizes = list(r.static(x)[axes[0] :]) if rest else []
    if any(v.shape is None or list(v.shape) != sizes for v in rest):
        raise MappingError("scale and bias must have the shape of the normalized axes")
    if not rest:
        raise MappingError("a normalization without a scale is not supported")
    return r.b.LayerNormalization(x, *rest, axis=axes[0], epsilon=r.attr("eps", float))


def of_channels(r: Reading, *indices: int) -> list[Value]:
    """Factors, biases or statistics as vectors of the type of the data, one number a channel."""
    x = r.input(0)
    count, values = list(x.shape or (0, 0))[1], [r.input(i) for i in indices]
    if any(v.dtype != x.dtype or r.static(v) != (count, *[1] * (r.rank(v) - 1)) for v in values):
        raise MappingError("scale and bias must have one number for each channel")
    return [r.b.Reshape(v, [-1]) if r.rank(v) > 1 else v for v in values]


def instance_norm(r: Reading) -> Value:
    """Statistics of each channel of each image."""
    epsilon = r.attr("eps", float)
    return r.b.InstanceNormalization(r.input(0), *of_channels(r, 1, 2), epsilon=epsilon)


def group_norm(r: Reading) -> Value:
    """Statistics of groups of channels."""
    groups, epsilon = r.attr("num_groups", int), r.attr("eps", float)
    operands = of_channels(r, 1, 2)
    return r.b.GroupNormalization(r.input(0), *operands, num_groups=groups, epsilon=epsilon)


def batch_norm(r: Reading) -> Value:
    """Statistics that are operands."""
    operands = of_channels(r, 1, 2, 3, 4)
    return r.b.BatchNormalization(r.input(0), *operands, epsilon=r.attr("eps", float))


def pixel_shuffle(r: Reading) -> Value:
    """Channels as blocks of an image."""
    if r.rank() != 4:
        raise MappingError("only images are supported")
    factor = r.attr("upscale_factor", int)
    return r.b.DepthToSpace(r.input(0), blocksize=factor, mode="CRD")


# written ------------------------------------------------------------------------------------------


def write_composite(
    w: Writing,
    kind: str,
    attributes: str,
    operands: Mapping[str, ir.Value],
    body: Callable[..., ir.Value],
) -> None:
    """Write a call of a graph with the operations that `body` creates from operands of these
    types.
    """
    if w.low.in_composite:
        raise not_meant("a graph of its own has no other graphs in it")
    model, b = new_model(kind)
    low = w.low.inner()
    low.in_composite = True
    for name, value in operands.items():
        inner = b.input(name, value.dtype or ir.DataType.FLOAT, list(value.shape or ()))
        if value in low.exact:
            low.exact.add(inner)
    inputs = list(model.graph.inputs)
    with b:
        b.output(body(b, *inputs))
    legalise(model, low.refuses, {})
    for node in model.graph:
        low.node(node)
    if low.problems:
        raise not_meant(
            f"the operator cannot be written as a graph of its own: {low.problems[0].message}"
        )
    keep_apart(low)
    for layer in low.layers:
        layer.name = ""  # of the body; the call has the name of the operator
    graph = Composite(kind, attributes, list(operands), inputs, low, list(model.graph.outputs))
    layer = w.put("invoke", *operands.values(), outputs=w.node.outputs[:1])
    layer.blobs["graph"] = graph


def write_layer_norm(w: Writing) -> None:
    """Write a LayerNorm with factor and bias, as Apple's tools do."""
    rank = w.rank()
    axis = int(w.attr("axis")) % max(1, rank)
    sizes = list(w.data.shape or ())[axis:]
    if not w.has(1) or not w.has(2) or any(w.used(i) for i in range(1, len(w.node.outputs))):
        raise not_meant(
            "only normalizations with scale and bias, and without statistics outputs, are supported"
        )
    if any(list(w.input(i).shape or ()) != sizes for i in (1, 2)):
        raise not_meant("scale and bias must have the shape of the normalized axes")
    if not sizes or any(not isinstance(n, int) or not n for n in sizes):
        raise not_meant("only data with static shape are supported")
    listed = ", ".join(f"{a} : si64" for a in range(axis, rank))
    write_same(
        w, "layer_norm", f"axes = [{listed}], eps = {real(w.attr('epsilon'))}, ", "gamma", "beta"
    )


def real(number: float) -> str:
    """A number of a declaration."""
    text = np.format_float_scientific(np.float32(number))
    return f"{text if '.' in text else text.replace('e', '.0e')} : f32"


def write_same(w: Writing, kind: str, attributes: str, *names: str, shape: bool = False) -> None:
    """Write a graph whose body is the common decomposition of the operator. With `shape` operands
    but the first are [channels, 1, ...], as tall as the data have axes after the channels.
    """
    operands = [w.input(i) for i in range(1 + len(names))]
    types = {v.dtype for v in operands}
    if len(types) > 1 or not types <= FLOATS or w.data.shape is None:
        raise not_meant("only floating-point data of one type and known rank are supported")
    ones = [1] * (w.rank() - 2)
    if shape:
        operands[1:] = [
            w.emit("reshape", v, w.numbers([-1, *ones]), shape=[*(v.shape or ()), *ones])
            for v in operands[1:]
        ]

    def body(b: Builder, x: Value, *rest: Value) -> ir.Value:
        vectors = [b.Reshape(v, [-1]) if shape else v for v in rest]
        made: ir.Value = b.op(w.node.op, x, *vectors, **w.node.attrs)
        return made

    given = dict(zip(("input", *names), operands, strict=True))
    write_composite(w, kind, f"{attributes}version = 1 : si64", given, body)


def write_group_norm(w: Writing) -> None:
    """Factors and biases are vectors."""
    channels = list(w.data.shape or (0, None))[1]
    if not isinstance(channels, int):
        raise not_meant("only a known number of channels is supported")
    epsilon, groups = real(w.attr("epsilon")), w.attr("num_groups")
    attributes = (
        f"eps = {epsilon}, num_channels = {channels} : si64, num_groups = {groups} : si64, "
    )
    write_same(w, "group_norm", attributes, "weight", "bias")


def write_hard_sigmoid(w: Writing) -> None:
    """The slope is fixed."""
    if abs(w.attr("alpha") - 1 / 6) > 1e-6 or w.attr("beta") != 0.5:
        raise not_meant("only alpha=1/6 and beta=0.5 are supported")
    write_same(w, "hard_sigmoid", "")


def write_pixel_shuffle(w: Writing) -> None:
    """Blocks are within channels."""
    if w.attr("mode") != "CRD":
        raise not_meant("only mode=CRD is supported")
    write_same(w, "pixel_shuffle", f"upscale_factor = {w.attr('blocksize')} : si64, ")


def write_average(w: Writing) -> None:
    """Write an average of windows of an image, with padding that counts, as Apple's tools do."""
    a, axes = w.node.attrs, w.rank() - 2
    pads, plain = list(a.get("pads") or [0] * (2 * axes)), a.get("auto_pad", "NOTSET") == "NOTSET"
    if not plain or a.get("ceil_mode") or any(n != 1 for n in a.get("dilations") or ()):
        raise not_meant("only explicit pads, without dilations and ceil_mode, are supported")
    if pads[:axes] != pads[axes:] or (any(pads) and not a.get("count_include_pad")):
        raise not_meant("only equal padding at both ends, which counts, is supported")
    if axes not in (2, 3) or w.data.dtype not in FLOATS:
        raise not_meant("only floating-point images are supported")
    kernel, strides = list(a["kernel_shape"]), list(a.get("strides") or [1] * axes)
    numbers = zip(("kernel_size", "stride", "padding"), (kernel, strides, pads[:axes]), strict=True)
    given = {"input": w.data, **{k: w.numbers(line) for k, line in numbers}}
    given |= {"ceil_mode": w.const(np.array(False)), "count_include_pad": w.const(np.array(True))}
    given["divisor_override"] = w.numbers(0)

    def body(b: Builder, x: Value, *_: Value) -> ir.Value:
        x = b.Pad(x, [0, 0, *pads[:axes], 0, 0, *pads[axes:]], b.like(x, 0)) if any(pads) else x
        return b.AveragePool(x, kernel_shape=kernel, strides=strides)

    write_composite(w, f"avg_pool_{axes}d", "version = 1 : si64", given, body)


def write_attention(w: Writing) -> None:
    """Write attention with four axes, as Apple's tools do. The scale is the default for the size;
    any other is multiplied into the query.
    """
    q, k, v = (w.input(i) for i in range(3))
    mask, shapes = w.optional(3), [list(x.shape or ()) for x in (q, k, v)]
    size = shapes[0][-1] if shapes[0] else None
    if any(len(s) != 4 or s[:2] != shapes[0][:2] for s in shapes) or not isinstance(size, int):
        raise not_meant("query, key and value must have rank 4 and the same batch sizes")
    floats = {x.dtype for x in (q, k, v, mask) if x is not None}
    if len(floats) > 1 or not floats <= FLOATS or (mask is not None and not mask.shape):
        raise not_meant("query, key, value and mask must have the same floating-point type")
    factor = float(w.attr("scale")) * size**0.5
    if abs(factor - 1) > 1e-6:
        q = w.emit("broadcasting_mul", q, w.like(q, factor), shape=q.shape)
    given = {"query": q, "key": k, "value": v, **({} if mask is None else {"attn_mask": mask})}

    def body(b: Builder, q: Value, k: Value, v: Value, mask: Value | None = None) -> ir.Value:
        scores = (q * float(size**-0.5)) @ b.Transpose(k, perm=[0, 1, 3, 2])
        scores = scores if mask is None else scores + mask
        return b.Softmax(scores, axis=-1) @ v

    attributes = "is_causal = false, version = 1 : si64, window_size = 0 : si64"
    write_composite(w, "scaled_dot_product_attention", attributes, given, body)


FLOATS = {ir.DataType.FLOAT, ir.DataType.FLOAT16}
RULES: list[Rule | Custom] = [
    custom("LayerNormalization", f"{PREFIX}layer_norm", layer_norm, write_layer_norm),
    custom(
        "InstanceNormalization",
        f"{PREFIX}instance_norm",
        instance_norm,
        lambda w: write_same(
            w, "instance_norm", f"eps = {real(w.attr('epsilon'))}, ", "gamma", "beta", shape=True
        ),
    ),
    custom("GroupNormalization", f"{PREFIX}group_norm", group_norm, write_group_norm),
    custom("", f"{PREFIX}batch_norm", batch_norm),
    custom(
        "LogSoftmax",
        f"{PREFIX}log_softmax",
        lambda r: r.b.LogSoftmax(r.input(0), axis=r.attr("axis", int)),
        lambda w: write_same(w, "log_softmax", f"axis = {w.attr('axis') % w.rank()} : si64, "),
    ),
    custom(
        "HardSigmoid",
        f"{PREFIX}hard_sigmoid",
        lambda r: r.b.HardSigmoid(r.input(0), alpha=1 / 6, beta=0.5),
        write_hard_sigmoid,
    ),
    custom("DepthToSpace", f"{PREFIX}pixel_shuffle", pixel_shuffle, write_pixel_shuffle),
    custom("AveragePool", "", None, write_average),
    custom("netconv::ScaledDotProductAttention", "", None, write_attention),
]
