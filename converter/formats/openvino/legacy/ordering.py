"""Which far layers are needed, and in which order they are written."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from converter.formats.openvino.legacy.rules.control_flow import LoopPlan
from converter.mapping.node import Layer


def alive(layers: list[Layer], wanted: Iterable[ir.Value]) -> list[Layer]:
    """The layers on which the wanted values depend: what nobody reads would be an output of the
    net.
    """
    needed, kept = set(wanted), list[Layer]()
    for layer in reversed(layers):
        if needed & set(layer.outputs):
            kept.append(layer)
            needed.update(reads(layer))
    return kept[::-1]


def in_order(layers: list[Layer], last: list[Layer]) -> None:
    """Brings the layers that nobody reads to the end, in the order of the outputs, which is the
    order in which they are found.
    """
    place = {layer: i for i, layer in enumerate(last)}
    layers.sort(key=lambda layer: place.get(layer, -1))


def reads(layer: Layer) -> Iterable[ir.Value]:
    yield from (v for v in layer.inputs if v is not None)
    if isinstance(layer.extra, LoopPlan):
        yield from layer.extra.node.inputs  # type: ignore[misc]
        inside = {o for n in layer.extra.body for o in n.outputs} | set(layer.extra.body.inputs)
        yield from (
            v
            for n in layer.extra.body.all_nodes()
            for v in n.inputs
            if v is not None and v not in inside
        )
