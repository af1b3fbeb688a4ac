"""The channels-last dialect: ONNX operators whose data inputs and outputs are stored as N,
spatial..., C.

`LAYOUT_SENSITIVE` lists the operators with such a variant, and which of their inputs and outputs
carry data in that layout. Weights and other operands keep ONNX's own layout in the graph (a writer
permutes them when it writes them).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from converter.graph import CHANNELS_LAST_DOMAIN, EXTENSION_DOMAIN
from converter.graph.build import Builder, attrs_of
from converter.graph.infer import InferenceError, infer, known, set_known, set_type

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
_BASE = "base_domain"  # attribute on the variant of an extension operator


def to_nhwc(rank: int) -> list[int]:
    """Return the permutation N, C, spatial -> N, spatial, C: `stored[i] = canonical[perm[i]]`."""
    return [0, *range(2, rank), 1]


def to_nchw(rank: int) -> list[int]:
    """Return the permutation N, spatial, C -> N, C, spatial."""
    return [0, rank - 1, *range(1, rank - 1)]


def is_channels_last(node: ir.Node) -> bool:
    return node.domain == CHANNELS_LAST_DOMAIN


def base_domain(node: ir.Node) -> str:
    """Return the domain of the node's operator or, for a channels-last variant, of the original
    operator.
    """
    return (
        node.attributes[_BASE].as_string()
        if is_channels_last(node) and _BASE in node.attributes
        else ""
        if is_channels_last(node)
        else node.domain
    )


def ports(node: ir.Node) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the inputs and outputs of the node that carry layout; None for an operator without a
    channels-last variant.
    """
    return LAYOUT_SENSITIVE.get((base_domain(node), node.op_type))


def write_body(
    b: Builder, node: ir.Node, inputs: Sequence[ir.Value | None]
) -> tuple[ir.Value, ...]:
    """Write the definition of a channels-last variant: Transpose, the operator, Transpose."""
    found = ports(node)
    assert found is not None, node.op_type
    data_in, data_out = found
    operands = list(inputs)
    for i in data_in:
        if i < len(operands) and (v := operands[i]) is not None:
            operands[i] = b.op("Transpose", v, perm=to_nchw(_rank(v)))
    attributes = {k: v for k, v in attrs_of(node).items() if k != _BASE}
    domain = base_domain(node)
    make = b.exts if domain == EXTENSION_DOMAIN else b.ops
    results = list(make(node.op_type, *operands, outputs=len(node.outputs), **attributes))
    for i in data_out:
        if i < len(results):
            results[i] = b.op("Transpose", results[i], perm=to_nhwc(_rank(results[i])))
    return tuple(results)


def infer_channels_last(node: ir.Node) -> None:
    """Infer the output types of a channels-last variant from its operator on data in ONNX's order.

    The result is the same as inference on the variant's definition, which is not created.
    """
    found = ports(node)
    assert found is not None, node.op_type
    data_in, data_out = found
    for i in data_in:
        v = node.inputs[i] if i < len(node.inputs) else None
        if v is not None and _rank(v) < 2:
            raise InferenceError(f"{node.op_type}: input {i} needs a channel axis")
    inputs = [
        None if v is None else _stand_in(v, to_nchw if i in data_in else None)
        for i, v in enumerate(node.inputs)
    ]
    attributes = [a for a in node.attributes.values() if a.name != _BASE]
    plain = ir.Node(
        base_domain(node), node.op_type, inputs, attributes, num_outputs=len(node.outputs)
    )
    infer(plain)
    for i, (out, result) in enumerate(zip(node.outputs, plain.outputs, strict=True)):
        set_type(out, result.dtype, _ordered(result, to_nhwc) if i in data_out else result.shape)


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


def _rank(value: ir.Value) -> int:
    return value.shape.rank() if value.shape is not None else 4
