"""Layers of extensions, of which only the name is known."""

from __future__ import annotations

from converter.formats.openvino.opset.rules.context import LowerContext
from converter.graph.custom import carried_layer
from converter.mapping.rules import custom


def lower_custom(w: LowerContext) -> None:
    """Write a carried operator in its own opset, or in "extension"."""
    name, attributes = carried_layer(w)
    spelled = {k: w.spell(v, type(v)) for k, v in attributes.items()}
    domain = w.attr("domain_name", "")
    version = domain if domain and "." not in domain else "extension"
    w.low.add(name, w.node.inputs, w.node.outputs, spelled, extra=version)


RULES = [custom("netconv::CustomLayer", "", lower=lower_custom)]
