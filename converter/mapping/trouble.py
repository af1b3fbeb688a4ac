"""What goes wrong while a layer of a damaged file is read: every rule reads it with plain Python, which complains in its own ways."""

from __future__ import annotations

from converter.graph.infer import InferenceError
from converter.mapping.node import MappingError

MALFORMED = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
TROUBLE = (MappingError, InferenceError, *MALFORMED)


def told(e: Exception) -> tuple[str, str, str]:
    """Code, message and help for one of TROUBLE."""
    if isinstance(e, MappingError):
        return e.code, str(e), e.help
    if isinstance(e, InferenceError):
        return "R105", f"inputs do not fit: {e}", ""
    return "R110", f"the layer does not make sense ({type(e).__name__}: {str(e)[:200]})", ""
