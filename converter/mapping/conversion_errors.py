"""The exceptions that refuse a layer or an operator.

Any other exception inside a mapping is a bug in netconv.
"""

from __future__ import annotations

from converter.errors import MappingError
from converter.graph.infer import InferenceError

# weights are views of the file, so memory is only exhausted by a size in a damaged layer
CONVERSION_ERRORS = (MappingError, InferenceError, MemoryError)


def code_message_help(e: Exception) -> tuple[str, str, str]:
    """Return the code, message and help of the diagnostic for one of CONVERSION_ERRORS."""
    if isinstance(e, MappingError):
        return e.code, str(e), e.help
    if isinstance(e, InferenceError):
        return "R105", f"inputs are invalid: {e}", ""
    return "R110", "the layer needs more memory than is available", ""
