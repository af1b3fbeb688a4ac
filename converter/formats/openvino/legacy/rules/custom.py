"""Layers of extensions, of which only the name is known."""

from __future__ import annotations

from converter.formats.openvino.legacy.rules.context import LowerContext
from converter.graph.custom import carried_layer
from converter.mapping.rules import custom


def lower_custom(w: LowerContext) -> None:
    """Write a carried operator as a layer with its own name and attributes."""
    name, attributes = carried_layer(w)
    spelled = {k: w.spell(v, type(v)) for k, v in attributes.items()}
    w.low.add(name, w.node.inputs, w.node.outputs, spelled)


RULES = [custom("netconv::CustomLayer", "", lower=lower_custom)]
