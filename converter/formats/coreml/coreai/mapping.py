"""Operators of Core AI and their limits."""

from __future__ import annotations

from converter.formats.coreml.coreai.collector import CoreAILowering
from converter.formats.coreml.coreai.rules import TABLE
from converter.formats.coreml.coreai.rules.context import LiftContext, LowerContext
from converter.mapping.lifting import FormatMapping
from converter.mapping.target import Target

MAPPING = FormatMapping(
    TABLE, Target("Core AI"), reading=LiftContext, writing=LowerContext, lowering=CoreAILowering
)
