"""All errors in a document: of its text, and of layers whose results differ from their
declaration.
"""

from __future__ import annotations

from converter.errors import ConverterError, Diagnostic
from converter.formats.zhouyi.ir import Document
from converter.formats.zhouyi.lift_document import lift
from converter.formats.zhouyi.validate import validate


def lint(document: Document) -> list[Diagnostic]:
    """Return the findings of `validate`; if there are no errors among them, also contradictions
    between the shapes, types and sizes of a layer and its operator.

    A missing counterpart in other formats (codes X...) is not an error of the file.
    """
    found = validate(document)
    if any(d.level == "error" for d in found):
        return found
    try:
        lift(document)
    except ConverterError as e:
        found += [d for d in e.diagnostics if d.code.startswith("R")]
    return found
