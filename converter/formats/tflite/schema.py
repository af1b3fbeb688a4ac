"""The schema of TensorFlow Lite's files, from the packages `tflite` and `flatbuffers` of an extra.

Without them importing this is a UsageError U502.
"""

from __future__ import annotations

from converter.errors import Diagnostic, UsageError

try:
    import flatbuffers as flatbuffers
    import tflite as schema
except ImportError as e:
    raise UsageError(
        Diagnostic(
            "U502",
            f"TensorFlow Lite's files need the package {e.name!r}",
            help="pip install 'netconv[tflite]'",
        )
    ) from None

__all__ = ["flatbuffers", "schema"]
