"""The exceptions by which a layer or an operator is refused. Any other exception inside a mapping
is a fault of the program.
"""

from __future__ import annotations

from converter.errors import MappingError
from converter.graph.infer import InferenceError

# weights are views of the file: it is a size that a damaged layer asks for which exhausts the
# memory
CONVERSION_ERRORS = (MappingError, InferenceError, MemoryError)


def code_message_help(e: Exception) -> tuple[str, str, str]:
    """What the diagnostic of a layer says about one of CONVERSION_ERRORS."""
    if isinstance(e, MappingError):
        return e.code, str(e), e.help
    if isinstance(e, InferenceError):
        return "R105", f"inputs do not fit: {e}", ""
    return "R110", "the layer asks for more memory than there is", ""
