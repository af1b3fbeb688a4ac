"""Operators of operand tables and their limits."""

from __future__ import annotations

from converter.formats.nnapi.rules import TABLE
from converter.formats.nnapi.rules.context import Reading, Writing
from converter.mapping.lifting import FormatMapping
from converter.mapping.target import Target

MAPPING = FormatMapping(
    TABLE,
    Target("NNAPI"),
    channels_last=True,
    reading=Reading,
    writing=Writing,
)
