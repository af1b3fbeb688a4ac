"""Which operators a target has no way to write, whatever their types and attributes are."""

from __future__ import annotations

from typing import Any

import onnx

from converter.graph import EXTENSION_DOMAIN, OPSET
from converter.graph.extensions import catalogue
from converter.mapping.rules import Table
from converter.passes.decompositions import DECOMPOSITIONS
from converter.passes.legalise import Rewrites

# what reading leaves in no graph, or a pass takes out of every graph with the sequence it makes
NEVER_WRITTEN = {
    "Constant",
    "Scan",
    "Scatter",
    "Upsample",
    "SequenceConstruct",
    "SequenceEmpty",
    "SequenceErase",
    "SequenceInsert",
    "SplitToSequence",
}


def absent_operators(table: Table, rewrites: Rewrites) -> list[str]:
    """The operators of ONNX and of the catalogue that no entry of `table` writes, and for which
    there is neither a rewrite of the target nor a common decomposition nor a definition in other
    operators.
    """
    candidates = {(EXTENSION_DOMAIN, name) for name in catalogue()}
    defined = {(EXTENSION_DOMAIN, name) for name, e in catalogue().items() if not e.opaque}
    schemas: Any = onnx.defs.get_all_schemas_with_history()  # whose stubs lack the functions
    for schema in schemas:
        if schema.domain or schema.since_version > OPSET or schema.deprecated:
            continue
        if schema.name not in NEVER_WRITTEN:
            candidates.add(("", schema.name))
        if schema.has_function or schema.has_context_dependent_function:
            defined.add(("", schema.name))
    ways = defined | rewrites.keys() | DECOMPOSITIONS.keys()
    found = candidates - ways - table.ops()
    return sorted(f"{domain}::{name}" if domain else name for domain, name in found)
