"""Operators of TensorFlow Lite and its capabilities."""

from __future__ import annotations

from converter.formats.tflite.collector import LiteLowering
from converter.formats.tflite.rules import TABLE
from converter.formats.tflite.rules.context import LiftContext, LowerContext
from converter.formats.tflite.tensors import NUMBERS
from converter.mapping.lifting import FormatMapping
from converter.mapping.target import Target

MAPPING = FormatMapping(
    TABLE,
    Target("TensorFlow Lite", types=NUMBERS),
    channels_last=True,
    reading=LiftContext,
    writing=LowerContext,
    lowering=LiteLowering,
    custom="org.tensorflow.lite",
)
