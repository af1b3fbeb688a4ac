"""The values of names while a graph, a body or a function is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

import onnx_ir as ir

from converter.formats.onnx.attributes import Attributes
from converter.graph.build import Builder
from converter.record import record

Opsets = Mapping[str, int]


@record
class Scope:
    """A graph, a body or a function that is being read, with the builder that writes it.

    `values`  by name, including those of the graphs around it
    `own`     the names that it has defined itself
    `bound`   the attributes of the call, for the nodes of a function
    """

    b: Builder
    opsets: Opsets
    path: str
    values: dict[str, ir.Value | None]
    own: set[str] = field(default_factory=set)
    bound: Attributes = field(default_factory=dict)

    def inner(self, b: Builder, path: str) -> Scope:
        """Return the scope of a body: it sees all outer names, and may redefine them."""
        return replace(self, b=b, path=path, values=dict(self.values), own=set(), bound={})
