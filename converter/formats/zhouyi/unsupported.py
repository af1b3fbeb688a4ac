"""Layer types that are refused because nobody says what they mean: the question that stays open,
for each.

Neither the document nor the files and the executor of the vendor answer it; a guess would be a
wrong number.
"""

from __future__ import annotations

QUESTIONS = {
    "FakeQuantWithMinMaxVars": "what becomes of numbers below 0: the vendor's executor cuts "
    "them off, the operator of that name does not?",
    "FractionalPool": "which random numbers draw the windows: the generator behind `seed` is "
    "not described, and seed 0 means others each time?",
    "GenerateProposals": "which anchors, thresholds and sizes of its lists apply: keys and "
    "order of its inputs are not described?",
    "Preprocess": "what happens to its inputs: the parser declares copies of them, no "
    "executor computes it?",
    "Proposal": "which anchors apply: the executor has fixed ones of its own, whatever the "
    "file says?",
    "PyramidROIAlign": "which level does a box belong to: the vendor's executors disagree "
    "about normalised boxes?",
    "RefineDetDetection": "what is computed: neither the document nor the vendor's executor "
    "knows it?",
    "Unique": "how many results are there: the number depends on the data, but shapes must "
    "be declared?",
}


def question(layer_type: str) -> str:
    """The reason for a refusal, or an empty text for a type whose meaning is known."""
    found = QUESTIONS.get(layer_type)
    return f"{layer_type} is too vague to convert: {found}" if found else ""
