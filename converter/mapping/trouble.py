"""What goes wrong while a layer of a damaged file is read: every rule reads it with plain Python, which complains in its own ways."""

from __future__ import annotations

from converter.graph.infer import InferenceError
from converter.mapping.node import MappingError

MALFORMED = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
TROUBLE = (MappingError, InferenceError, MemoryError, *MALFORMED)  # of a layer: weights are not copied, so it is a size that asks for the memory


def told(e: Exception) -> tuple[str, str, str]:
    """Code, message and help for one of TROUBLE."""
    if isinstance(e, MappingError):
        return e.code, str(e), e.help
    if isinstance(e, InferenceError):
        return "R105", f"inputs do not fit: {e}", ""
    if isinstance(e, MemoryError):
        return "R110", "the layer asks for more memory than there is", ""
    return "R110", f"the layer does not make sense ({type(e).__name__}: {str(e)[:200]})", ""
