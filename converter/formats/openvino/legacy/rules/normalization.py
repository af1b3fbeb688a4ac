"""Normalizations and quantization."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from converter.errors import MappingError
from converter.formats.openvino.fields import ODD_SIZE, odd_window
from converter.formats.openvino.legacy.rules.context import MOST_AXES, LiftContext, LowerContext
from converter.formats.openvino.legacy.rules.fields import MARK_LAYER, channels
from converter.graph.infer import known
from converter.mapping.concepts.axes import Axis
from converter.mapping.fields import Attr, Detail, Field, Guard, RequireAttr, RequireKey, ignore
from converter.mapping.rules import FOREVER, op, ops
from converter.record import record


def read_statistics(r: LiftContext) -> None:
    """Read the blob `weights` as the variance, `biases` as the mean; scale and shift are separate
    layers.
    """
    size = r.static()[1:2]
    one, zero = np.ones(size, np.float32), np.zeros(size, np.float32)
    variance, mean = (r.blob(name, size) for name in ("weights", "biases"))
    r.set_inputs(r.data, one, zero, mean, variance)


def write_statistics(w: LowerContext) -> None:
    """Write mean and variance as blobs; scale and bias must be 1 and 0."""
    scale, bias, mean, variance = (w.constant(i, "the statistics") for i in range(1, 5))
    if not np.all(scale == 1) or bias.any():
        raise MappingError("ScaleShift needs both a scale and a shift")
    w.layer.blobs |= {"weights": variance, "biases": mean}


STATISTICS = Detail(
    read=read_statistics,
    write=write_statistics,
    names=("momentum",),
    inputs=(1, 2, 3, 4),
    blobs=("weights", "biases"),
)


def fold_statistics(w: LowerContext) -> None:
    """Fold the statistics: with scale and shift it becomes one ScaleShift."""
    scale, bias, mean, variance = (w.constant(i, "the statistics") for i in range(1, 5))
    wide = variance.astype(np.float64) + w.attr("epsilon")
    with np.errstate(divide="ignore", invalid="ignore"):  # a variance below 0 gives a NaN here too
        factor = scale.astype(np.float64) / np.sqrt(wide)
    shift = bias - mean * factor
    for blob, array in (("weights", factor), ("biases", shift)):
        w.layer.blobs[blob] = array.astype(scale.dtype)


ON_IMAGES = Guard(
    "only inference on images is supported",
    lower_if=lambda w: len(w.shape()) >= 4,
)


# The engine rounds channels up to 8 or 16 and divides the added zeros, too: 0 / 0 reaches the next
# convolution.
SOME_EPSILON = Guard(
    "epsilon must be above 0",
    lower_if=lambda w: float(np.float32(w.attr("epsilon"))) > 0,
)


# local response ----------------------------------------------------------------------------------


@record
class Response(Field):
    """The attributes alpha, beta and `local-size`, and k, which is always 1 in the engine. The
    window covers channels, or pixels with `over_pixels`. An even size leaves out one neighbor, but
    divides by the size.
    """

    over_pixels: bool = False
    names = ("alpha", "beta", "bias", "size")
    keys = ("alpha", "beta", "k", "bias", "local-size", "local_size", "size")

    def lift(self, r: LiftContext) -> None:
        sizes = (r.attr(k, int) for k in ("local-size", "local_size", "size") if k in r.layer.attrs)
        bias = r.attr("k", float, r.attr("bias", float, 1.0))
        r.node.attrs |= {"beta": r.attr("beta", float), "bias": bias}
        r.node.attrs["alpha"], r.node.attrs["size"] = odd_window(
            r.attr("alpha", float),
            next(sizes, 1),
            r.rank() - 2 if self.over_pixels else 1,
        )

    def lower(self, w: LowerContext) -> None:
        """Write another k as a factor of the power."""
        shape, k = w.shape(), w.attr("bias")
        if k <= 0:
            raise MappingError(f"bias={k} is not supported")
        w.set(alpha=w.attr("alpha") / k, beta=float(w.attr("beta")), k=1)
        w.layer.attrs["local-size"] = str(w.attr("size"))
        image = shape if len(shape) == 4 else [shape[0], shape[1], 1, math.prod(shape[2:])]
        w.set_inputs(w.reshaped(w.data, image))
        if k == 1:
            w.gives(image)
        else:
            w.gives_through("Power", image, power=1.0, scale=k ** -w.attr("beta"), shift=0.0)


def over_pixels(r: LiftContext) -> None:
    """Normalize over a window of as many pixels in each spatial axis: x / (k + alpha * mean of x^2)
    ^ beta.
    """
    b, x, a = r.b, r.input(0), r.node.attrs
    n, size = r.rank() - 2, a.pop("size")
    window: dict[str, Any] = {"kernel_shape": [size] * n, "strides": [1] * n}
    window["pads"] = [size // 2] * 2 * n
    mean = b.op("AveragePool", x * x, **window, count_include_pad=1)
    base = mean * a.pop("alpha")
    base = base + a.pop("bias")
    r.set_inputs(x, base ** a.pop("beta"))


# over axes ---------------------------------------------------------------------------------------


@record
class AcrossAxes(Field):
    """A flag is set if the axes are all from 1 on; otherwise they are `other`, or all after it."""

    flag: str
    ranks: tuple[int, ...]
    message: str
    spatial: bool = False
    names = ("axes",)

    def __post_init__(self) -> None:
        self.keys = (self.flag,)

    def axes(self, rank: int, whole: bool) -> list[int]:
        """Return the normalized axes: the channels, the spatial axes, or both."""
        every = list(range(1, rank))
        return every if whole else every[1:] if self.spatial else [1]

    def lift(self, r: LiftContext) -> None:
        rank = r.rank()
        whole = r.attr(self.flag, bool, 0) or (self.spatial and rank < 3)
        r.set(axes=self.axes(rank, bool(whole)))

    def lower(self, w: LowerContext) -> None:
        rank = len(w.shape())
        axes = sorted(a % rank for a in w.attr("axes"))
        known_ = [self.axes(rank, whole) for whole in (False, True)]
        if rank not in self.ranks or axes not in known_:
            raise MappingError(self.message)
        w.layer.attrs[self.flag] = str(int(axes != known_[0]))


def read_scale(r: LiftContext) -> None:
    """Read the factors of the result's channels; they are written as ones."""
    if "weights" in r.layer.blobs:
        scale = channels(r, "weights")
        r.after_first(lambda y: y * scale)


def write_scale(w: LowerContext) -> None:
    """Write a scale of 1 for each channel."""
    w.set(channel_shared=0)
    w.layer.blobs["weights"] = np.ones(w.shape()[1], np.float32)


SCALE = Detail(read=read_scale, write=write_scale, keys=("channel_shared",), blobs=("weights",))


class SoftmaxAsMatrix(Axis):
    """The axis of a softmax; data of more than five axes are reshaped to rows, axis, columns."""

    def lower(self, w: LowerContext) -> None:
        shape = w.shape()
        axis = w.attr("axis") % len(shape)
        if len(shape) > MOST_AXES:
            shape = [math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])]
            w.layer.inputs, axis = [w.reshaped(w.data, shape)], 1
        w.set(axis=axis)
        w.gives(shape)


# quantization ------------------------------------------------------------------------------------


def read_levels(r: LiftContext) -> None:
    """Bounds in the rank of the data; the operator is the whole of the layer.

    With bounds for each channel an identity layer is inserted before it: fused with the preceding
    layer, the engine reads memory after the bounds. Networks of the engine's own tools are
    unchanged.
    """
    r.node.inputs = [r.floats(r.input(i)) for i in range(5)]


def write_levels(w: LowerContext) -> None:
    """Write a FakeQuantize with constant bounds; with bounds for each channel an identity layer
    precedes it, unless it was read from a legacy layer.
    """
    x = w.data
    if any(known(w.input(i)) is None for i in range(1, 5)):
        raise MappingError("the bounds must be constant")
    bounds = [w.widened(w.input(i), len(w.shape())) for i in range(1, 5)]
    if not w.before() and any(math.prod(w.shape(v)) > 1 for v in bounds):
        x = w.emit("Power", x, shape=w.shape(), power="1", scale="1", shift="0")
    w.set_inputs(x, *bounds)


LEVELS = Detail(read=read_levels, write=write_levels)


TWO_AXES = "MVN is only supported over the spatial axes of images, with or without the channels"
CHANNELS = "Normalize is only supported over the channels, with or without the spatial axes"

RULES = [
    op(
        "BatchNormalization",
        "BatchNormalization",
        ON_IMAGES,
        RequireAttr("training_mode", 0),
        SOME_EPSILON,
        STATISTICS,
        Attr("epsilon", kind=float, default=1e-3),
        ignore("eps"),
        example_inputs="1,4,8,8 =[1,1,1,1] =[0,0,0,0] =4 =4",
    ),
    op(
        "BatchNormalization",
        "ScaleShift",
        ON_IMAGES,
        RequireAttr("training_mode", 0),
        Detail(
            write=fold_statistics,
            names=("epsilon", "momentum"),
            inputs=(1, 2, 3, 4),
            blobs=("weights", "biases"),
        ),
        lower_only=True,
    ),
    *(
        row
        for kind in ("Norm", "LRN")
        for row in (
            op(
                "Div",
                kind,
                RequireKey("region", "same", kind=str),
                Response(over_pixels=True),
                before_lift=over_pixels,
                lift_only=True,
            ),
            op(
                "LRN",
                kind,
                ODD_SIZE,
                RequireKey("region", "across", True, str),
                Response(),
                lift_only=kind == "LRN",
                example_inputs="1,4,8,8",
            ),
        )
    ),
    op(
        "netconv::NormalizeL2",
        "Normalize",
        RequireAttr("eps_mode", "add"),
        AcrossAxes("across_spatial", (2, 3, 4), CHANNELS),
        Attr("eps", kind=float, default=1e-10),
        SCALE,
        ignore("scale_filler", "value"),
        example_inputs="1,4,8,8",
    ),
    op(
        "netconv::MVN",
        "MVN",
        RequireAttr("eps_mode", "inside_sqrt"),
        AcrossAxes("across_channels", (4, 5), TWO_AXES, True),
        Attr("normalize_variance", kind=bool, default=1),
        Attr("eps", kind=float, default=1e-9),
        example_inputs="1,4,8,8",
    ),
    op("netconv::GRN", "GRN", Attr("bias", kind=float, default=1e-6)),
    *ops("Softmax=SoftMax LogSoftmax", SoftmaxAsMatrix(default=1)),
    *(
        op(
            "netconv::FakeQuantize",
            kind,
            LEVELS,
            MARK_LAYER,
            Attr("levels", kind=int),
            since=since,
            until=until,
            lift_only=lift_only,
            example_inputs="1,4,8,8 =1 =1 =1 =1",
        )
        for kind, since, until, lift_only in (
            ("FakeQuantize", 6, FOREVER, False),
            ("Quantize", 0, 5, False),
            ("FakeQuantize", 0, 5, True),
            ("Quantize", 6, FOREVER, True),
        )
    ),
]
