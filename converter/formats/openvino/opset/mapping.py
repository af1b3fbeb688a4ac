"""The capabilities of the format and its table of operators, in one value."""

from __future__ import annotations

from converter.formats.openvino.opset.constants import NAMES
from converter.formats.openvino.opset.rules import TABLE
from converter.formats.openvino.opset.rules.context import LiftContext, LowerContext
from converter.formats.openvino.opset.rules.fields import SPELLING
from converter.mapping.lifting import FormatMapping
from converter.mapping.target import Target

MAPPING = FormatMapping(
    TABLE,
    Target("OpenVINO", types=NAMES),
    spelling=SPELLING,
    reading=LiftContext,
    writing=LowerContext,
    custom="extension",
)
