"""Layer types that are refused because their semantics are undocumented, with the open question for
each.

Neither the document nor the files and the executor of the vendor answer it; a guess could give
wrong numbers.
"""

from __future__ import annotations

from converter.errors import MappingError

QUESTIONS = {
    "Preprocess": (
        "what happens to its inputs: the parser declares copies of them, but no "
        "executor computes it"
    ),
    "RefineDetDetection": (
        "what is computed: neither the document nor the vendor's executor defines it"
    ),
}


def question(layer_type: str) -> str:
    """Return the reason for a refusal, or an empty text for a type whose meaning is known."""
    found = QUESTIONS.get(layer_type)
    return f"{layer_type} is not documented well enough to be converted: {found}" if found else ""


def undocumented(what: str, code: str = "X202") -> MappingError:
    """Return the refusal of a layer whose semantics are undocumented: `undocumented("how sums are
    rounded")`.
    """
    return MappingError(f"it is not documented {what}", code, "please report this model")
