"""Custom operators, of which only the name is known."""

from __future__ import annotations

from converter.errors import MappingError
from converter.formats.tflite.codec import BUILTINS
from converter.formats.tflite.rules.context import LowerContext
from converter.graph.custom import carried_layer
from converter.mapping.rules import custom


def lower_custom(w: LowerContext) -> None:
    """Write a carried operator. Raises MappingError if its name is that of a builtin one."""
    name, attributes = carried_layer(w)
    if name in BUILTINS:
        raise MappingError(f"{name} is the name of an operator of the format itself")
    w.low.add(name, w.node.inputs, w.node.outputs, attributes)


RULES = [custom("netconv::CustomLayer", "", lower=lower_custom)]
