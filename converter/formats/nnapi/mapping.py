"""Operators of operand tables and their limits."""

from __future__ import annotations

from dataclasses import field

from converter.formats.nnapi.collector import OnDemand
from converter.formats.nnapi.rules import ON_DEMAND, TABLE
from converter.formats.nnapi.rules.context import LiftContext, LowerContext
from converter.mapping.lifting import FormatMapping
from converter.mapping.target import Target
from converter.record import record


@record
class TableMapping(FormatMapping):
    """The mapping of the format. `on_demand`: operators such as activations that are fused into
    most of their consumers; they are written only for consumers that do not fuse them.
    """

    on_demand: OnDemand = field(default_factory=dict)


MAPPING = TableMapping(
    TABLE,
    Target("NNAPI"),
    channels_last=True,
    reading=LiftContext,
    writing=LowerContext,
    on_demand=ON_DEMAND,
)
