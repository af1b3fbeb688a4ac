"""Normalizations and softmax."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.neuralnetwork import operands as blobs
from converter.formats.coreml.neuralnetwork.rules.context import LiftContext, LowerContext
from converter.formats.coreml.neuralnetwork.rules.fields import (
    FIX,
    NOTHING_MORE,
    RANK_4,
    AsRank,
    Weights,
)
from converter.formats.coreml.neuralnetwork.weight_encoding import of_array
from converter.graph.demands import broadcast
from converter.mapping.codecs import unset
from converter.mapping.concepts.axes import FixedAxis
from converter.mapping.fields import (
    Attr,
    Detail,
    Group,
    Guard,
    ImpliedAttrs,
    RequireKey,
    attrs,
    ignore,
)
from converter.mapping.rules import Rule, op

Value = ir.Value


def of_channels(name: str, index: int) -> Weights:
    """Return the field of weights with one number for each channel."""
    return Weights(name, index, lambda r: [r.attr("channels", int)])


def store_unused_statistics(w: LowerContext) -> None:
    """Write a mean and a variance, which the layer requires although it computes its own."""
    size = w.static(1, "gamma")
    w.layer.blobs |= {"mean": w.plain(np.zeros(size)), "variance": w.plain(np.ones(size))}


STORE_UNUSED_STATISTICS = Detail(write=store_unused_statistics, blobs=("mean", "variance"))


def standardised(r: LiftContext, x: Value, axes: list[int], epsilon: float) -> Value:
    """Compute (x - mean) / sqrt(variance + epsilon) over `axes`; the operator of the row has scale
    and bias.
    """
    b = r.b
    centered = x - b.ReduceMean(x, axes, keepdims=1)
    variance = b.ReduceMean(centered * centered, axes, keepdims=1)
    r.set_inputs(centered, b.Sqrt(variance + epsilon))
    return centered


def normalize_over_batch(r: LiftContext) -> None:
    """Normalize each channel by its statistics over all images of the batch."""
    x, channels = r.input(0), [r.attr("channels", int)]
    rank = blobs.rank(x, 3)
    axes = [i for i in range(rank) if i != rank - 3]
    standardised(r, x, axes, r.attr("epsilon", unset(1e-5)))
    gamma, beta = (r.b.Reshape(r.plain(name, channels), [-1, 1, 1]) for name in ("gamma", "beta"))
    r.after_first(lambda y: y * gamma + beta)


# mvn: over C,H,W, or over H,W of each channel ----------------------------------------------------


def _axes(r: LiftContext) -> list[int]:
    rank = blobs.rank(r, 3)
    return list(range(rank - 3 if r.attr("acrossChannels", bool) else rank - 2, rank))


def centered(r: LiftContext) -> None:
    """Subtract the mean over the axes of the layer."""
    r.set_input(1, r.b.ReduceMean(r.data, _axes(r), keepdims=1))


def by_channel(r: LiftContext) -> None:
    """Add a scale of 1 and a bias of 0 for each channel."""
    channels = blobs.dims(r, 3)[-3]
    ones = np.ones(channels or 0, np.float32)
    r.set_inputs(*r.node.inputs, ones, np.zeros_like(ones))


def by_image(r: LiftContext) -> None:
    """Add a scale of 1 for each element of an image, normalized over axes -3 to -1."""
    size = [int(d or 0) for d in blobs.dims(r, 3)[-3:]]
    r.set_input(1, np.ones(size, np.float32))
    r.set(axis=-3)


def by_parts(r: LiftContext) -> None:
    """Lift a normalization as a difference from the mean, divided by the standard deviation."""
    standardised(r, r.input(0), _axes(r), r.attr("epsilon", unset(1e-6)))


def _known_channels(r: LiftContext) -> bool:
    return not r.attr("acrossChannels", bool) and blobs.dims(r, 3)[-3] is not None


def _small_image(r: LiftContext) -> bool:
    size = blobs.dims(r, 3)[-3:]
    small = None not in size and math.prod(int(d or 0) for d in size) <= 1 << 22
    return r.attr("acrossChannels", bool) and small


def length(r: LiftContext) -> None:
    """Compute sqrt(sum of squares + epsilon) over the last three axes."""
    b, x = r.b, r.input(0)
    rank = blobs.rank(x, 3)
    total = b.ReduceSumSquare(x, [rank - 3, rank - 2, rank - 1], keepdims=1)
    r.set_inputs(x, b.Sqrt(total + r.attr("epsilon", unset(1e-6))))


# layer normalization -----------------------------------------------------------------------------


def read_normalized_shape(r: LiftContext) -> None:
    """Read the last axes, whose sizes the layer lists."""
    shape = r.attr("normalizedShape", list)
    r.set(axis=-len(shape))
    r.node.inputs += [r.weights(name, shape) for name in ("gamma", "beta")]


def write_normalized_shape(w: LowerContext) -> None:
    """Write the static sizes of the normalized axes, with scale and bias broadcast to them."""
    axis, x = int(w.attr("axis")), w.data
    shape = (w.dims(x) or [])[axis:] if axis < 0 or x.shape is not None else []
    if not shape or None in shape:
        message = "LayerNormalization needs static sizes of the normalized axes"
        raise MappingError(message, "X203", FIX)
    w.set(normalizedShape=shape)
    for index, name in ((1, "gamma"), (2, "beta")):
        given = index == 1 or w.has(index)
        array: Any = w.numbers(index, f"the {name}") if given else np.float32(0)
        full = np.asarray(broadcast(array, shape, f"the {name}"), np.float32)
        w.layer.blobs[name] = of_array(full)  # the layer takes no half precision


NORMALIZED_SHAPE = Detail(
    read=read_normalized_shape,
    write=write_normalized_shape,
    names=("axis",),
    keys=("normalizedShape",),
    inputs=(1, 2),
    blobs=("gamma", "beta"),
)


CHANNELS = Group((), ("channels",), lower_=lambda w: {"channels": w.static(1, "gamma")[0]})
STORED = Guard("training_mode=1 is not supported", lambda w: not w.attr("training_mode"))
EPSILON, SMALL_EPSILON = Attr("epsilon", kind=unset(1e-5)), Attr("epsilon", kind=unset(1e-6))
GAMMA, BETA = of_channels("gamma", 1), of_channels("beta", 2)
NORMALIZED, CENTERD = RequireKey("normalizeVariance", True), RequireKey("normalizeVariance", False)
ACROSS = ignore("acrossChannels")
BIASED = Guard("a bias is needed", lambda w: w.has(2))
LAYER = (
    NOTHING_MORE,
    NORMALIZED_SHAPE,
    Attr("epsilon", "eps", float),
    ImpliedAttrs(("stash_type",)),
)
MVN = (NORMALIZED, ACROSS)

RULES: list[Rule] = [
    op(
        "BatchNormalization",
        "batchnorm",
        RequireKey("computeMeanVar", False),
        RANK_4,
        STORED,
        NOTHING_MORE,
        AsRank(4),
        CHANNELS,
        EPSILON,
        GAMMA,
        BETA,
        of_channels("mean", 3),
        of_channels("variance", 4),
        ignore("instanceNormalization"),
        ImpliedAttrs(("momentum", "training_mode")),
        example_inputs="1,4,8,8 =4 =4 =4 =4",
    ),
    op(
        "InstanceNormalization",
        "batchnorm",
        RequireKey("computeMeanVar", True),
        RequireKey("instanceNormalization", True),
        RANK_4,
        AsRank(4),
        CHANNELS,
        EPSILON,
        GAMMA,
        BETA,
        STORE_UNUSED_STATISTICS,
    ),
    op(
        "Div",
        "batchnorm",
        RequireKey("computeMeanVar", True),
        RequireKey("instanceNormalization", False),
        ignore("epsilon", "channels"),
        GAMMA,
        BETA,
        STORE_UNUSED_STATISTICS,
        before_lift=normalize_over_batch,
        lift_only=True,
    ),
    op("Sub", "mvn", CENTERD, ACROSS, ignore("epsilon"), before_lift=centered, lift_only=True),
    op(
        "InstanceNormalization",
        "mvn",
        *MVN,
        Guard(
            "only a normalization across channels is supported by this layer",
            lift_if=_known_channels,
        ),
        AsRank(4),
        SMALL_EPSILON,
        before_lift=by_channel,
        lift_only=True,
    ),
    op(
        "LayerNormalization",
        "mvn",
        *MVN,
        Guard(
            "only a normalization of each channel, or of a large image, is supported by this layer",
            lift_if=_small_image,
        ),
        SMALL_EPSILON,
        before_lift=by_image,
        lift_only=True,
    ),
    op("Div", "mvn", *MVN, ignore("epsilon"), before_lift=by_parts, lift_only=True),
    op("Div", "l2normalize", ignore("epsilon"), before_lift=length, lift_only=True),
    op("Softmax", "softmaxND", Attr("axis", kind=int)),
    op("Softmax", "softmax", FixedAxis(-3), example_inputs="1,4,8,8", lift_only=True),
    op(
        "LRN",
        "lrn",
        RANK_4,
        AsRank(4),
        Attr("size", "localSize", int),
        *attrs(alpha=float, beta=float),
        Attr("bias", "k", unset(1.0)),
        example_inputs="1,4,8,8",
    ),
    op("LayerNormalization", "layerNormalization", BIASED, *LAYER, example_inputs="2,3 =3 =3"),
    op(
        "LayerNormalization", "layerNormalization", *LAYER, example_inputs="2,3 =3", lower_only=True
    ),
]
