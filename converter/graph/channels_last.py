"""The channels-last dialect: ONNX operators whose data inputs and outputs are stored as N,
spatial..., C.

`LAYOUT_SENSITIVE` lists the operators with such a variant, and which of their inputs and outputs
carry data in that layout. Weights and other operands keep ONNX's own layout in the graph (a writer
permutes them when it writes them).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import onnx_ir as ir

from converter.graph import CHANNELS_LAST_DOMAIN, EXTENSION_DOMAIN
from converter.graph.known import InferenceError, known, set_known, set_type

# (domain, operator) -> (inputs that carry data, outputs that carry data)
LAYOUT_SENSITIVE: dict[tuple[str, str], tuple[tuple[int, ...], tuple[int, ...]]] = {
    **{
        ("", op): ((0,), (0,))
        for op in (
            "Conv",
            "ConvTranspose",
            "AveragePool",
            "LpPool",
            "GlobalAveragePool",
            "GlobalMaxPool",
            "GlobalLpPool",
            "LRN",
            "BatchNormalization",
            "InstanceNormalization",
            "GroupNormalization",
            "DepthToSpace",
            "SpaceToDepth",
            "GridSample",
            "Resize",
            "MaxRoiPool",
            "RoiAlign",
            "ConvInteger",
            "QLinearConv",
        )
    },
    ("", "MaxPool"): ((0,), (0, 1)),
    **{
        (EXTENSION_DOMAIN, op): ((0,), (0,))
        for op in (
            "ShuffleChannels",
            "BatchToSpace",
            "SpaceToBatch",
            "RegionAlign",
            "RegionPool",
            "Dilation2D",
            "Erosion2D",
            "CropAndResize",
            "L2Pool",
        )
    },
    ("", "MaxUnpool"): ((0, 1), (0,)),
    ("", "DeformConv"): ((0, 2, 4), (0,)),
}
BASE = "base_domain"  # attribute on the variant of an extension operator
FILE_AXES = "netconv.file_axes"  # of a value that was read: its axis i is axis perm[i] in the file

T = TypeVar("T")


def to_nhwc(rank: int) -> list[int]:
    """Return the permutation N, C, spatial -> N, spatial, C: `stored[i] = canonical[perm[i]]`."""
    return [0, *range(2, rank), 1]


def to_nchw(rank: int) -> list[int]:
    """Return the permutation N, spatial, C -> N, C, spatial."""
    return [0, rank - 1, *range(1, rank - 1)]


def as_in_file(value: ir.Value, axes: Sequence[T]) -> list[T]:
    """Return sizes or an index of a value in the order of axes that it has in the file."""
    perm = value.meta.get(FILE_AXES)
    if perm is None or len(perm) != len(axes):
        return list(axes)
    found = dict(zip(perm, axes, strict=True))
    return [found[i] for i in range(len(found))]


def is_channels_last(node: ir.Node) -> bool:
    """Return whether a node is the channels-last variant of an operator."""
    return node.domain == CHANNELS_LAST_DOMAIN


def base_domain(node: ir.Node) -> str:
    """Return the domain of the node's operator or, for a channels-last variant, of the original
    operator.
    """
    return (
        node.attributes[BASE].as_string()
        if is_channels_last(node) and BASE in node.attributes
        else ""
        if is_channels_last(node)
        else node.domain
    )


def ports(node: ir.Node) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the inputs and outputs of the node that carry layout; None for an operator without a
    channels-last variant.
    """
    return LAYOUT_SENSITIVE.get((base_domain(node), node.op_type))


def plain_node(node: ir.Node) -> ir.Node:
    """Return the operator of a channels-last variant on data in ONNX's order, of which only types
    and shapes are known.
    """
    data_in, _ = _ports(node)
    for i in data_in:
        v = node.inputs[i] if i < len(node.inputs) else None
        if v is not None and rank(v) < 2:
            raise InferenceError(f"{node.op_type}: input {i} needs a channel axis")
    inputs = [
        None if v is None else _stand_in(v, to_nchw if i in data_in else None)
        for i, v in enumerate(node.inputs)
    ]
    attributes = [a for a in node.attributes.values() if a.name != BASE]
    count = len(node.outputs)
    return ir.Node(base_domain(node), node.op_type, inputs, attributes, num_outputs=count)


def take_types(node: ir.Node, plain: ir.Node) -> None:
    """Give the outputs of a channels-last variant the types and shapes of those of its operator.

    They are those of the variant's definition, which need not be created.
    """
    _, data_out = _ports(node)
    for i, (out, result) in enumerate(zip(node.outputs, plain.outputs, strict=True)):
        set_type(out, result.dtype, _ordered(result, to_nhwc) if i in data_out else result.shape)


def _ports(node: ir.Node) -> tuple[tuple[int, ...], tuple[int, ...]]:
    found = ports(node)
    assert found is not None, node.op_type
    return found


def _stand_in(value: ir.Value, order: Callable[[int], list[int]] | None) -> ir.Value:
    """Return a value of the same type with permuted axes; if `order` is the identity, with the same
    known elements.
    """
    if order is not None:
        return ir.Value(type=value.type, shape=_ordered(value, order))
    inner = ir.Value(type=value.type, shape=value.shape)
    if (numbers := known(value)) is not None:
        set_known(inner, numbers)
    return inner


def _ordered(value: ir.Value, order: Callable[[int], list[int]]) -> ir.Shape | None:
    return (
        None if value.shape is None else ir.Shape([value.shape[i] for i in order(len(value.shape))])
    )


def rank(value: ir.Value) -> int:
    """Return the rank of a value, 4 (an image) if it is unknown."""
    return value.shape.rank() if value.shape is not None else 4
