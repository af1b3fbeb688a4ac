"""The schema of TensorFlow Lite's files, from packages that come with an extra: `schema` and `flatbuffers`. Without them importing this is a refusal."""

from __future__ import annotations

from converter.diagnostics import Diagnostic
from converter.errors import UsageError

try:
    import flatbuffers as flatbuffers
    import tflite as schema
except ImportError as e:
    raise UsageError(Diagnostic("U502", f"TensorFlow Lite's files need the package {e.name!r}", help="pip install 'netconv[tflite]'")) from None

__all__ = ["flatbuffers", "schema"]
