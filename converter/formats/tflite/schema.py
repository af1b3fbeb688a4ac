"""The schema of TensorFlow Lite's files, from the packages `tflite` and `flatbuffers`."""

from __future__ import annotations

import flatbuffers as flatbuffers
import tflite as schema

__all__ = ["flatbuffers", "schema"]
