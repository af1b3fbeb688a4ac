"""The table of kernels, with the types that LiteRT supports, and the rows."""

from __future__ import annotations

from converter.formats.tflite.codec import BUILTINS
from converter.formats.tflite.kernels import kernels
from converter.formats.tflite.rules import TABLE
from converter.mapping.rules import Custom

# operators without restricted types: control flow, and those whose types nothing else
# have
UNDECLARED = [
    "HASHTABLE_LOOKUP",
    "LSH_PROJECTION",
    "NON_MAX_SUPPRESSION_V4",
    "TFLite_Detection_PostProcess",
    "WHILE",
]


def test_kernels_are_those_of_builtins() -> None:
    assert kernels().keys() <= BUILTINS.keys()


def test_written_operators_have_a_declared_kernel() -> None:
    written = {r.kind for r in TABLE.rules if not r.lift_only}
    written |= {k for e in TABLE.entries if isinstance(e, Custom) and e.lower_ for k in e.kinds}
    assert sorted(written - kernels().keys()) == UNDECLARED
