"""Operators of ML Programs and their limits."""

from __future__ import annotations

from converter.formats.coreml.mlprogram.collector import MilLowering
from converter.formats.coreml.mlprogram.rules import TABLE
from converter.formats.coreml.mlprogram.rules.context import LiftContext, LowerContext
from converter.mapping.lifting import FormatMapping
from converter.mapping.target import Target

MAPPING = FormatMapping(
    TABLE,
    Target("ML Program", fed="an ML Program"),
    reading=LiftContext,
    writing=LowerContext,
    lowering=MilLowering,
)
