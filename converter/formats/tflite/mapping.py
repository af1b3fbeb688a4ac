"""What TensorFlow Lite knows about operators."""

from __future__ import annotations

from converter.formats.tflite.rules import TABLE
from converter.formats.tflite.rules.context import LiteReading
from converter.mapping.lifting import FormatMapping
from converter.mapping.target import Target

MAPPING = FormatMapping(TABLE, Target("TensorFlow Lite"), channels_last=True, reading=LiteReading)
