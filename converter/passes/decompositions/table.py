"""The type of a table of decompositions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from converter.graph.build import Builder

# A function of a node and a builder that inserts before it. It returns the value or values that
# replace the node's results, or None if it does not apply.
Decomposition = Callable[[ir.Node, Builder], "ir.Value | Sequence[ir.Value | None] | None"]
Table = Mapping[tuple[str, str], Decomposition]  # by domain and operator


def merged(*tables: Table) -> Table:
    """Return all entries of tables that have no keys in common."""
    found: dict[tuple[str, str], Decomposition] = {}
    for table in tables:
        twice = found.keys() & table.keys()
        assert not twice, f"these operators are decomposed twice: {sorted(twice)}"
        found.update(table)
    return found
