"""Graphs that Apple's tools declare as one operation; their bodies compute the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, no_match
from converter.formats.coreml.coreai.barriers import keep_apart
from converter.formats.coreml.coreai.collector import Composite
from converter.formats.coreml.coreai.rules.context import LiftContext, LowerContext
from converter.graph.build import Builder, new_model
from converter.graph.known import InferenceError
from converter.graph.value import Value
from converter.mapping.concepts.axes import Axis
from converter.mapping.fields import Attr, Detail, FirstResult, Guard, RequireAttr
from converter.mapping.rules import Custom, Rule, custom, op
from converter.passes.legalize import rewrite_illegal

PREFIX = "composite:"


def read_axes(r: LiftContext) -> None:
    """Read the axes: the last ones, as many as scale and bias have."""
    x, rank = r.input(0), r.rank()
    axes = sorted(a % rank for a in r.attr("axes", list))
    if not axes or axes != list(range(axes[0], rank)):
        raise MappingError("axes must be the last ones")
    rest = [r.input(i) for i in range(1, len(r.layer.inputs))]
    sizes = list(r.static(x)[axes[0] :])
    if not rest or any(v.shape is None or list(v.shape) != sizes for v in rest):
        raise MappingError("scale and bias must have the shape of the normalized axes")
    r.set(axis=axes[0])


def write_axes(w: LowerContext) -> None:
    """Write all axes from the first one on."""
    rank = w.rank()
    w.set(axes=list(range(int(w.attr("axis")) % max(1, rank), rank)))


def of_channels(r: LiftContext) -> list[Value]:
    """Return factors, biases and statistics as vectors with one number for each channel, in the
    type of the data.
    """
    x, values = r.input(0), [r.input(i) for i in range(1, len(r.layer.inputs))]
    count = list(x.shape or (0, 0))[1]
    if any(v.dtype != x.dtype or r.static(v) != (count, *[1] * (r.rank(v) - 1)) for v in values):
        raise MappingError("scale and bias must have one number for each channel")
    return [r.b.Reshape(v, [-1]) if r.rank(v) > 1 else v for v in values]


def batch_norm(r: LiftContext) -> Value:
    """Read a BatchNormalization whose statistics are operands."""
    return r.b.BatchNormalization(r.input(0), *of_channels(r), epsilon=r.attr("eps", float))


# written ------------------------------------------------------------------------------------------


def graph_of(
    w: LowerContext,
    kind: str,
    attributes: Mapping[str, Any],
    operands: Mapping[str, ir.Value],
    body: Callable[..., ir.Value],
) -> Composite:
    """Return a graph with the operations that `body` creates from operands of these types."""
    if w.low.in_composite:
        raise no_match("a graph of its own has no other graphs in it")
    model, b = new_model(kind)
    low = w.low.inner()
    low.in_composite = True
    for name, value in operands.items():
        inner = b.input(name, value.dtype or ir.DataType.FLOAT, list(value.shape or ()))
        if value in low.exact:
            low.exact.add(inner)
    try:
        with b:
            b.output(body(b, *model.graph.inputs))
    except InferenceError as e:
        raise no_match(str(e)) from None
    rewrite_illegal(model, low.refuses, {})
    for node in model.graph:
        low.node(node)
    if low.problems:
        raise no_match(
            f"the operator cannot be written as a graph of its own: {low.problems[0].message}"
        )
    keep_apart(low)
    for layer in low.layers:
        layer.name = ""  # of the body; the call has the name of the operator
    said = ", ".join(
        f"{k} = {attribute_text(v)}" for k, v in sorted({**attributes, "version": 1}.items())
    )
    return Composite(
        kind, said, list(operands), list(model.graph.inputs), low, list(model.graph.outputs)
    )


def attribute_text(value: Any) -> str:
    """Return the text of a value in a declaration."""
    if isinstance(value, list):
        return f"[{', '.join(map(attribute_text, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value} : si64"
    text = np.format_float_scientific(np.float32(value))
    return f"{text if '.' in text else text.replace('e', '.0e')} : f32"


def declared(*names: str) -> Detail:
    """Return the graph that a layer calls. Its body is the common decomposition of the operator,
    `names` are those of its operands after the first.
    """

    def write(w: LowerContext) -> None:
        operands = [v for v in w.layer.inputs if v is not None]
        types, own = {v.dtype for v in operands}, w.node
        if len(types) > 1 or not types <= FLOATS or w.data.shape is None:
            raise no_match("only floating-point data of one type and known rank are supported")

        def body(b: Builder, x: Value, *rest: Value) -> Any:
            sizes = [v.shape for v in own.inputs[1:] if v is not None]
            pairs = zip(rest, sizes, strict=True)
            return b.op(
                own.op,
                x,
                *(v if v.shape == s else b.Reshape(v, [-1]) for v, s in pairs),
                **own.attrs,
            )

        given = dict(zip(("input", *names), operands, strict=True))
        layer = w.layer
        layer.blobs["graph"] = graph_of(w, layer.kind[len(PREFIX) :], layer.attrs, given, body)

    return Detail(write=write, keys=("version",), blobs=("graph",))


def write_columns(w: LowerContext) -> None:
    """Reshape factors and biases to [channels, 1, ...], with as many axes of length 1 as the data
    have after the channels.
    """
    ones = [1] * (w.rank() - 2)
    w.layer.inputs[1:] = [
        w.emit("reshape", v, w.numbers([-1, *ones]), shape=[*(v.shape or ()), *ones])
        for v in map(w.input, (1, 2))
    ]


def write_count(w: LowerContext) -> None:
    """Write the number of channels, which the declaration repeats."""
    channels = list(w.data.shape or (0, None))[1]
    if not isinstance(channels, int):
        raise no_match("only a known number of channels is supported")
    w.set(num_channels=channels)


def is_of_known_sizes(w: LowerContext) -> bool:
    """Return whether factor and bias have the sizes of the normalized axes, which are known."""
    sizes = list(w.data.shape or ())[int(w.attr("axis")) % max(1, w.rank()) :]
    operands = [w.optional(i) for i in (1, 2)]
    same = all(v is not None and list(v.shape or ()) == sizes for v in operands)
    return bool(sizes) and same and all(isinstance(n, int) and n for n in sizes)


def write_composite(
    w: LowerContext,
    kind: str,
    attributes: Mapping[str, Any],
    operands: Mapping[str, ir.Value],
    body: Callable[..., ir.Value],
) -> None:
    """Write a call of a graph."""
    layer = w.put("invoke", *operands.values(), outputs=w.node.outputs[:1])
    layer.blobs["graph"] = graph_of(w, kind, attributes, operands, body)


def write_average(w: LowerContext) -> None:
    """Write an average of windows of an image, with padding that counts, as Apple's tools do."""
    a, axes = w.node.attrs, w.rank() - 2
    pads, plain = list(a.get("pads") or [0] * (2 * axes)), a.get("auto_pad", "NOTSET") == "NOTSET"
    if not plain or a.get("ceil_mode") or any(n != 1 for n in a.get("dilations") or ()):
        raise no_match("only explicit pads, without dilations and ceil_mode, are supported")
    if pads[:axes] != pads[axes:] or (any(pads) and not a.get("count_include_pad")):
        raise no_match("only equal padding at both ends, which counts, is supported")
    if axes not in (2, 3) or w.data.dtype not in FLOATS:
        raise no_match("only floating-point images are supported")
    kernel, strides = list(a["kernel_shape"]), list(a.get("strides") or [1] * axes)
    names = "input kernel_size stride padding ceil_mode count_include_pad divisor_override"
    numbers = map(w.numbers, (kernel, strides, pads[:axes]))
    flags = (w.const(np.array(flag)) for flag in (False, True))
    given = dict(zip(names.split(), (w.data, *numbers, *flags, w.numbers(0)), strict=True))

    def body(b: Builder, x: Value, *_: Value) -> ir.Value:
        x = b.Pad(x, [0, 0, *pads[:axes], 0, 0, *pads[axes:]], b.like(x, 0)) if any(pads) else x
        return b.AveragePool(x, kernel_shape=kernel, strides=strides)

    write_composite(w, f"avg_pool_{axes}d", {}, given, body)


def write_attention(w: LowerContext) -> None:
    """Write attention with four axes, as Apple's tools do. The scale is the default for the size;
    any other is multiplied into the query.
    """
    q, k, v = (w.input(i) for i in range(3))
    mask, shapes = w.optional(3), [list(x.shape or ()) for x in (q, k, v)]
    size = shapes[0][-1] if shapes[0] else None
    if any(len(s) != 4 or s[:2] != shapes[0][:2] for s in shapes) or not isinstance(size, int):
        raise no_match("query, key and value must have rank 4 and the same batch sizes")
    floats = {x.dtype for x in (q, k, v, mask) if x is not None}
    if len(floats) > 1 or not floats <= FLOATS or (mask is not None and not mask.shape):
        raise no_match("query, key, value and mask must have the same floating-point type")
    factor = float(w.attr("scale")) * size**0.5
    if abs(factor - 1) > 1e-6:
        q = w.emit("broadcasting_mul", q, w.like(q, factor), shape=q.shape)
    given = {"query": q, "key": k, "value": v, **({} if mask is None else {"attn_mask": mask})}

    def body(b: Builder, q: Value, k: Value, v: Value, mask: Value | None = None) -> ir.Value:
        scores = (q * float(size**-0.5)) @ b.Transpose(k, perm=[0, 1, 3, 2])
        scores = scores if mask is None else scores + mask
        return b.Softmax(scores, axis=-1) @ v

    attributes = {"is_causal": False, "window_size": 0}
    write_composite(w, "scaled_dot_product_attention", attributes, given, body)


FLOATS = {ir.DataType.FLOAT, ir.DataType.FLOAT16}
EPSILON = Attr("epsilon", "eps", float)
VECTORS = Detail(lambda r: r.set_inputs(r.input(0), *of_channels(r)))
COLUMNS = Detail(write=write_columns)
PLAIN = Guard(
    "only alpha=1/6 and beta=0.5 are supported",
    lambda w: abs(w.attr("alpha") - 1 / 6) < 1e-6 and w.attr("beta") == 0.5,
)
STASHED = RequireAttr("stash_type", 1)
RULES: list[Rule | Custom] = [
    op(
        "LayerNormalization",
        f"{PREFIX}layer_norm",
        *(
            Guard(
                "scale and bias must have the known sizes of the normalized axes", is_of_known_sizes
            ),
            FirstResult("the statistics outputs are not supported"),
            Detail(read_axes, write_axes, names=("axis",), keys=("axes",)),
            EPSILON,
            STASHED,
            declared("gamma", "beta"),
        ),
        example_inputs="2,3 =3 =3",
    ),
    op(
        "InstanceNormalization",
        f"{PREFIX}instance_norm",
        *(EPSILON, VECTORS, COLUMNS, declared("gamma", "beta")),
    ),
    op(
        "GroupNormalization",
        f"{PREFIX}group_norm",
        *(
            EPSILON,
            Attr("num_groups", kind=int),
            STASHED,
            Detail(write=write_count, keys=("num_channels",)),
            VECTORS,
        ),
        declared("weight", "bias"),
    ),
    op("LogSoftmax", f"{PREFIX}log_softmax", Axis("axis"), declared()),
    op(
        "HardSigmoid",
        f"{PREFIX}hard_sigmoid",
        PLAIN,
        Detail(lambda r: r.set(alpha=1 / 6, beta=0.5), names=("alpha", "beta")),
        declared(),
    ),
    op(
        "DepthToSpace",
        f"{PREFIX}pixel_shuffle",
        *(
            Guard("only images are supported", None, lambda r: r.rank() == 4),
            Attr("blocksize", "upscale_factor", int),
            RequireAttr("mode", "CRD"),
            declared(),
        ),
    ),
    custom("", f"{PREFIX}batch_norm", batch_norm),
    custom("AveragePool", "", None, write_average),
    custom("netconv::ScaledDotProductAttention", "", None, write_attention),
]
