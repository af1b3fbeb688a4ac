"""Everything that is wrong with a document: what its text says, and whether its layers compute what
they declare.
"""

from __future__ import annotations

from converter.errors import ConverterError, Diagnostic
from converter.formats.zhouyi.ir import Document
from converter.formats.zhouyi.lift_document import lift
from converter.formats.zhouyi.validate import validate


def lint(document: Document) -> list[Diagnostic]:
    """The findings of `validate`; without errors among them also where shapes, types and sizes of a
    layer contradict its operator.

    What merely has no counterpart elsewhere (codes X...) is no fault of the file.
    """
    found = validate(document)
    if any(d.level == "error" for d in found):
        return found
    try:
        lift(document)
    except ConverterError as e:
        found += [d for d in e.diagnostics if d.code.startswith("R")]
    return found
