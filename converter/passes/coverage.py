"""Operators that a target cannot write with any types and attributes."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import onnx

from converter.graph import EXTENSION_DOMAIN, OPSET
from converter.graph.extensions import catalogue
from converter.mapping.rules import Table
from converter.passes.decompositions import DECOMPOSITIONS
from converter.passes.decompositions.random import ENDS
from converter.passes.legalize import Rewrites

# operators that readers never create, or that a pass always removes together with their sequence
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


def _end_of(name: tuple[str, str], own: Set[tuple[str, str]]) -> tuple[str, str]:
    """Return the operator at which the decompositions of `name` end, or the first one that the
    target supports.
    """
    while name not in own and ENDS.get(name, name) != name:
        name = ENDS[name]
    return name


def absent_operators(table: Table, rewrites: Rewrites) -> list[str]:
    """Return the operators of ONNX and of the catalogue that no entry of `table` writes, and that
    have neither a rewrite of the target nor a common decomposition nor a definition by other
    operators.
    """
    candidates = {(EXTENSION_DOMAIN, name) for name in catalogue()}
    defined = {(EXTENSION_DOMAIN, name) for name, e in catalogue().items() if not e.opaque}
    schemas: Any = onnx.defs.get_all_schemas_with_history()  # onnx's type stubs lack the functions
    for schema in schemas:
        if schema.domain or schema.since_version > OPSET or schema.deprecated:
            continue
        if schema.name not in NEVER_WRITTEN:
            candidates.add(("", schema.name))
        if schema.has_function or schema.has_context_dependent_function:
            defined.add(("", schema.name))
    own = rewrites.keys() | table.ops()
    found = candidates - defined - own - (DECOMPOSITIONS.keys() - ENDS.keys())
    found -= {name for name in ENDS if _end_of(name, own) in own}
    return sorted(f"{domain}::{name}" if domain else name for domain, name in found)
