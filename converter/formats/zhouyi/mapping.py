"""The capabilities of the format and its table of operators, in one value."""

from __future__ import annotations

from converter.formats.zhouyi.rules import TABLE
from converter.formats.zhouyi.rules.context import SPELLING, LiftContext
from converter.mapping.lifting import FormatMapping
from converter.mapping.target import Target

MAPPING = FormatMapping(
    TABLE,
    Target("Zhouyi", floats_only="Zhouyi", fed="a network that Zhouyi's executor runs"),
    channels_last=True,
    spelling=SPELLING,
    reading=LiftContext,
)
