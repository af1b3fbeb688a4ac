"""Conversions of colours."""

from __future__ import annotations

import onnx_ir as ir

from converter.formats.openvino.opset.special.base import Emit, attributes, filled, given, lifts, lowers, needs, operand
from converter.graph.build import Builder
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, Node


@lifts("NV12toRGB", "NV12toBGR", "I420toRGB", "I420toBGR")
def lift_planes(layer: Layer, b: Builder) -> ir.Value:
    """The planes below each other in one input, or one input for each."""
    attributes(layer)
    return b.ext("PlanesToColour", *layer.inputs, pairs=int(layer.kind.startswith("NV12")), order=layer.kind[-3:])


@lowers("PlanesToColour", domain="netconv")
def lower_planes(node: Node, low: Lowering) -> None:
    a = filled(node)
    kind = f"{'NV12' if a['pairs'] else 'I420'}to{a['order']}"
    needs(low, kind, 8)
    Emit(node, low).out(kind, *node.inputs)


@lifts("RGBtoNV12", "BGRtoNV12")
def lift_colour(layer: Layer, b: Builder) -> list[ir.Value]:
    single = attributes(layer, single_plane=True).single_plane
    return list(b.exts("ColourToPlanes", operand(layer, 0), order=layer.kind[:3], single=int(single), outputs=1 if single else 2))


@lowers("ColourToPlanes", domain="netconv")
def lower_colour(node: Node, low: Lowering) -> None:
    a = filled(node)
    kind = f"{a['order']}toNV12"
    needs(low, kind, 17)
    more = [] if a["single"] else [low.value("plane", given(node, 0).dtype, None)][: 2 - len(node.outputs)]
    Emit(node, low).out(kind, *node.inputs, outputs=[*node.outputs, *more], single_plane=bool(a["single"]))
