"""The capabilities of the format and its table of operators, in one value."""

from __future__ import annotations

from converter.formats.openvino.legacy.rules import TABLE
from converter.formats.openvino.legacy.rules.context import LiftContext, LowerContext
from converter.formats.openvino.legacy.rules.fields import SPELLING
from converter.mapping.lifting import FormatMapping
from converter.mapping.target import Target

MAPPING = FormatMapping(
    TABLE,
    Target("OpenVINO", floats_only="the legacy engine"),
    spelling=SPELLING,
    reading=LiftContext,
    writing=LowerContext,
    custom="extension",
)
