"""What a table of decompositions is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from converter.graph.build import Builder

# of a node and a builder before it: the value or values that replace the node's; None where it does
# not apply
Decomposition = Callable[[ir.Node, Builder], "ir.Value | Sequence[ir.Value | None] | None"]
Table = Mapping[tuple[str, str], Decomposition]  # by domain and operator


def merged(*tables: Table) -> Table:
    """All entries of tables that have none in common."""
    found: dict[tuple[str, str], Decomposition] = {}
    for table in tables:
        twice = found.keys() & table.keys()
        assert not twice, f"decomposed twice: {sorted(twice)}"
        found.update(table)
    return found
