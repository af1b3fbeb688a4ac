"""The capabilities of the format and its table of operators, in one value."""

from __future__ import annotations

from converter.formats.coreml.neuralnetwork.collector import CoreLowering
from converter.formats.coreml.neuralnetwork.rules import TABLE
from converter.formats.coreml.neuralnetwork.rules.context import SPELLING, LiftContext, LowerContext
from converter.mapping.lifting import FormatMapping
from converter.mapping.target import Target

MAPPING = FormatMapping(
    TABLE,
    Target("Core ML", floats_only="Core ML", fed="a Core ML neural network"),
    spelling=SPELLING,
    reading=LiftContext,
    writing=LowerContext,
    lowering=CoreLowering,
)
