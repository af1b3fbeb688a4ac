"""Operators that only move elements."""

from __future__ import annotations

from converter.formats.lite.context import LiteLiftContext
from converter.mapping.fields import Attr
from converter.mapping.rules import op


def with_joined_axis(r: LiteLiftContext) -> None:
    """Give each input the axis along which they are stacked."""
    axis = r.node.attrs["axis"]
    r.node.inputs = [r.b.Unsqueeze(v, [axis]) for v in r.node.inputs]


PACK = op("Concat", "PACK", Attr("axis", kind=int), before_lift=with_joined_axis, lift_only=True)
RANK = op("Size", "RANK", before_lift=lambda r: r.b.Shape(r.data), lift_only=True)
