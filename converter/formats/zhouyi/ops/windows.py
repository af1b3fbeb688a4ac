"""Rows of windows: convolution, pooling, and normalisation over channels. All data are channels-last (twins)."""

from __future__ import annotations

from typing import Any

import numpy as np

from converter.formats.zhouyi.ops.fields import Window, method, number, truth
from converter.graph.infer import constant, shape_of
from converter.mapping.fields import Attr, Emit, Field, Fixed, Group, Guard, Ignore, Only, Weight
from converter.mapping.node import Layer, MappingError, Node
from converter.mapping.table import Rule, op

# ONNX order of weights -> the order of the .bin; the depth of a 3-D kernel stands behind its width, though the data are N D H W C
CONV_2D, CONV_3D = (0, 2, 3, 1), (0, 3, 4, 2, 1)
DECONV_2D, DECONV_3D = (1, 2, 3, 0), (1, 3, 4, 2, 0)


class Biases(Field):
    """`biases`, which every reader wants: zeros where the canonical operator has none."""

    blobs = ("biases",)

    def __init__(self, index: int, weights_axis: int = 0, grouped: bool = False) -> None:
        self.index, self.weights_axis, self.grouped = index, weights_axis, grouped
        self.takes = (index,)

    def lift(self, far: Layer, near: Node, emit: Emit) -> None:
        array = far.blobs.get("biases")
        if array is not None and np.asarray(array).any():
            near.set_input(self.index, emit.const(np.asarray(array).reshape(-1), f"{far.name}.biases"))

    def lower(self, near: Node, far: Layer) -> None:
        source = near.input(self.index)
        array = constant(source)
        if source is not None and array is None:
            raise MappingError("the biases must be constant: the target stores them with the layer")
        if array is None:
            weights = constant(near.input(1))
            if weights is None:
                raise MappingError("the weights must be constant: the target stores them with the layer")
            channels = weights.shape[self.weights_axis] * (near.attrs.get("group", 1) if self.grouped else 1)
            array = np.zeros(channels, weights.dtype)
        far.blobs["biases"] = array


def num_output(weights_axis: int, grouped: bool = False) -> Group:
    """Written for other tools; what counts is the shape of the weights."""

    def lower(near: Node, far: Layer) -> dict[str, Any]:
        weights = near.input(1)
        shape = shape_of(weights) if weights is not None else None
        if shape is None:
            raise MappingError("the weights must be constant")
        return {"num_output": shape[weights_axis] * (near.attrs.get("group", 1) if grouped else 1)}

    return Group((), ("num_output",), lambda far, near: {}, lower)


GROUP = Attr("group", "group", far_default=1)


def convolution(kind: str, rank: int, perm: tuple[int, ...], *more: Field) -> Rule:
    return op("Conv", kind, num_output(0), Window(rank), GROUP, Weight("weights", 1, perm), Biases(2), *more, given="1,4,8,8 =6,4,3,3 =6" if rank == 2 else "")


def transposed(kind: str, rank: int, perm: tuple[int, ...]) -> Rule:
    padding = Ignore(tuple(f"output_padding_{a}" for a in "xyz"[:rank]))
    zero = Guard("output padding is a Pad in front", lift_if=lambda far: not any(v for k, v in far.attrs.items() if k.startswith("output_padding")))
    plain = Guard("output_padding and output_shape are made explicit pads first", lower_if=lambda near: not any(near.attrs.get("output_padding") or [0]))
    shapeless = Group(("output_padding", "output_shape"), (), lambda far, near: {}, lambda near, far: _no_output_shape(near))
    given = "1,4,8,8 =4,6,3,3 =6" if rank == 2 else ""
    return op(
        "ConvTranspose",
        kind,
        num_output(1, True),
        Window(rank),
        GROUP,
        Weight("weights", 1, perm),
        Biases(2, 1, True),
        padding,
        zero,
        plain,
        shapeless,
        given=given,
    )


def _no_output_shape(near: Node) -> dict[str, Any]:
    if near.attrs.get("output_shape") or near.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise MappingError("output_shape must be made explicit pads first")
    return {}


def _depthwise(near: Node) -> bool:
    weights = near.input(1)
    shape = shape_of(weights) if weights is not None else None
    return shape is not None and near.attrs.get("group", 1) == shape[0] > 1 == shape[1]


DEPTHWISE = Guard("not a depthwise convolution", lower_if=_depthwise)
MULTIPLIER = Group((), ("multiplier",), lambda far, near: {}, lambda near, far: {"multiplier": 1})
FLOOR = Fixed("ceil_mode", False, absent=True)


def pooling(kind: str, rank: int) -> list[Rule]:
    shape = "1,4,8,8" if rank == 2 else "1,4,8,8,8"
    average = op(
        "AveragePool", kind, method("AVG"), Window(rank), FLOOR, Only("ceil_mode", 0),
        Attr("count_include_pad", "count_include_pad", truth, far_default=1), given=shape,
    )  # fmt: skip
    maximum = op(
        "MaxPool", kind, method("MAX"), Window(rank), FLOOR, Only("ceil_mode", 0), Only("storage_order", 0), Ignore(("count_include_pad",)),
        Guard("the indices are another layer", lower_if=lambda near: len(near.outputs) == 1), given=shape,
    )  # fmt: skip
    return [average, maximum]


def norm_pool(name: str, p: int) -> Rule:
    return op("LpPool", "Pooling", method(name), Window(2), FLOOR, Only("ceil_mode", 0), Only("p", p), Ignore(("count_include_pad",)), given="1,4,8,8")


class Channels(Field):
    """`axis` of a layer whose data are channels-last: the last axis."""

    far = ("axis",)

    def lift(self, far: Layer, near: Node, emit: Emit) -> None:
        value = far.attrs.get("axis", -1)
        x = near.input(0)
        rank = len(x.shape) if x is not None and x.shape is not None else 4
        if value not in (-1, rank - 1, [rank - 1], [-1]):
            raise MappingError(f"axis={value} is not the last one", "R110")

    def lower(self, near: Node, far: Layer) -> None:
        x = near.input(0)
        if x is None or x.shape is None:
            raise MappingError("the rank of the input is not known")
        far.attrs["axis"] = len(x.shape) - 1


ROWS = [
    convolution("DepthwiseConv", 2, CONV_2D, MULTIPLIER, DEPTHWISE),
    convolution("Convolution", 2, CONV_2D),
    convolution("Convolution3D", 3, CONV_3D),
    transposed("ConvTranspose", 2, DECONV_2D),
    transposed("ConvTranspose3D", 3, DECONV_3D),
    *pooling("Pooling", 2),
    *pooling("Pooling3D", 3),
    norm_pool("L1", 1),
    norm_pool("L2", 2),
    op(
        "InstanceNormalization", "InstanceNorm", Attr("epsilon", "epsilon", number), Weight("weights", 1), Weight("biases", 2), Ignore(("non_channel_axes",)),
        given="1,4,8,8 =4 =4",
    ),
    op(
        "GroupNormalization", "GroupNorm", Channels(), Attr("num_groups", "group", far_default=32), Attr("epsilon", "epsilon", number, far_default=1e-5),
        Weight("weights", 1), Weight("biases", 2), Only("stash_type", 1), given="1,4,8,8 =4 =4",
    ),
    op(
        "LRN", "LRN", method("ACROSS_CHANNELS"), Attr("alpha", "alpha", number, far_default=1.0), Attr("beta", "beta", number, far_default=0.5),
        Attr("bias", "bias", number, far_default=1.0), Attr("size", "size"), given="1,4,8,8",
    ),
]  # fmt: skip
