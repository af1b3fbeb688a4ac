"""Validation of an NNAPI table: the checks of Android's validator, and more.

Android does not check the dimensions of results, required operands without value, most relations
between shapes, or the values of scalars; a driver then fails or computes something else. All
findings of a table are returned, in the order of its subgraphs.
"""

from __future__ import annotations

from collections.abc import Iterable

from converter.errors import Diagnostic, ReadError, Where
from converter.formats.nnapi.findings import Findings
from converter.formats.nnapi.levels import feature_level
from converter.formats.nnapi.table import Table
from converter.formats.nnapi.validate_operands import check_operands
from converter.formats.nnapi.validate_operations import check_operations
from converter.formats.nnapi.validate_shapes import check_shapes
from converter.formats.nnapi.validate_structure import (
    check_indexes,
    check_order,
    check_recursion,
    check_roles,
)


def validate(
    table: Table, file: str = "", strict: bool = True, shapes: bool = True
) -> list[Diagnostic]:
    """Return all findings about a table; an empty list means that it is valid.

    Codes are R105 for the structure of the graph and R110 for values; locations are JSON paths in
    `file` such as `operations[3].inputs[1]`. Works on tables that were read and on new ones. Unless
    `strict`, only the errors of Android's own validator are reported. `shapes`: whether to check
    the dimensions of results too, which takes as long as reading the table.
    """
    findings: list[Diagnostic] = []
    for prefix, subgraph in table.subgraphs():
        found = Findings(subgraph, file, prefix, strict)
        if check_indexes(subgraph, found):
            lifetimes = subgraph.lifetimes()
            check_roles(subgraph, lifetimes, found)
            check_order(subgraph, lifetimes, found)
            check_operands(table, subgraph, lifetimes, found)
            sound = not found.errors
            operations = check_operations(table, subgraph, lifetimes, found)
            if strict and shapes and sound:
                check_shapes(subgraph, operations, found)
        findings += found
    if strict and not any(d.level == "error" for d in findings):
        findings += _check_level(table, file)
    findings += check_recursion(table, file)
    return findings


def demand_valid(table: Table, file: str = "") -> None:
    """Raise ReadError with all that Android's own validator refuses."""
    if errors := [d for d in validate(table, file, strict=False) if d.level == "error"]:
        raise ReadError(errors)


def _check_level(table: Table, file: str) -> Iterable[Diagnostic]:
    if table.feature_level is None:
        return
    needed, reason = feature_level(table)
    if table.feature_level < needed:
        message = f"feature level {table.feature_level} is declared, but {reason} needs {needed}"
        yield Diagnostic("R110", message, where=Where(file, path="featureLevel"))
