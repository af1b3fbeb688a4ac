"""Whether a table is a valid NNAPI model: everything Android's own validator checks, and what it lets through.

Android does not look at output dimensions, at operands without value in required places, at most relations between shapes, or at the
values of scalars; a driver then fails or computes something else. All findings of a table are returned, errors first found first.
"""

from __future__ import annotations

from collections.abc import Iterable

from converter.diagnostics import Diagnostic, Level, Where
from converter.errors import ReadError
from converter.formats.nnapi.levels import feature_level
from converter.formats.nnapi.rules_operands import check_operands
from converter.formats.nnapi.rules_operations import check_operations
from converter.formats.nnapi.table import Lifetime, Subgraph, Table

_ROLES = {"inputIndexes": Lifetime.MODEL_INPUT, "outputIndexes": Lifetime.MODEL_OUTPUT}


class Findings(list[Diagnostic]):
    """Diagnostics of one subgraph; `add` names the place relative to it.

    Unless `strict`, only what Android's own validator refuses is kept: what `add` calls `ours` is not.
    """

    def __init__(self, file: str, prefix: str, strict: bool = True) -> None:
        super().__init__()
        self._file = file
        self._prefix = prefix
        self.strict = strict

    def add(self, place: str, message: str, code: str = "R105", level: Level = "error", name: str = "", kind: str = "", ours: bool = False) -> None:
        if ours and not self.strict:
            return
        self.append(Diagnostic(code, message, level, Where(self._file, path=self._prefix + place, layer=name, kind=kind)))


def validate(table: Table, file: str = "", strict: bool = True) -> list[Diagnostic]:
    """Every finding about a table: R105 for the structure of the graph, R110 for values; an empty list means that it is valid.

    Places are JSON paths such as `operations[3].inputs[1]`; `file` goes into each. Works on read and on new tables. Unless `strict`: what
    Android's own validator refuses.
    """
    findings: list[Diagnostic] = []
    for prefix, subgraph in table.subgraphs():
        found = Findings(file, prefix, strict)
        if _check_indexes(subgraph, found):
            lifetimes = subgraph.lifetimes()
            _check_roles(subgraph, lifetimes, found)
            _check_order(subgraph, lifetimes, found)
            check_operands(table, subgraph, lifetimes, found)
            check_operations(table, subgraph, lifetimes, found)
        findings += found
    if strict and not any(d.level == "error" for d in findings):
        findings += _check_level(table, file)
    findings += _check_recursion(table, file)
    return findings


def demand_valid(table: Table, file: str = "") -> None:
    """ReadError with all that Android's own validator refuses."""
    if errors := [d for d in validate(table, file, strict=False) if d.level == "error"]:
        raise ReadError(errors)


def check_structure(table: Table, file: str = "") -> None:
    """ReadError when an index leads nowhere or nothing writes an output: such a table has no meaning at all."""
    findings: list[Diagnostic] = []
    for prefix, subgraph in table.subgraphs():
        found = Findings(file, prefix)
        if _check_indexes(subgraph, found):
            found = Findings(file, prefix)  # an empty list is no obstacle to reading
            written = {i for o in subgraph.operations for i in o.outputs} | {*subgraph.inputs}
            for k, index in enumerate(subgraph.outputs):
                if index not in written and subgraph.operands[index].value is None:
                    found.add(f"outputIndexes[{k}]", f"operand {index} is an output, but no operation writes it", name=subgraph.operands[index].name)
        findings += found
    if findings:
        raise ReadError(findings)


def _check_indexes(subgraph: Subgraph, found: Findings) -> bool:
    """Every list has entries and every index an operand; without that nothing else can be judged."""
    n, ok = len(subgraph.operands), True
    lists: list[tuple[str, list[int]]] = [("inputIndexes", subgraph.inputs), ("outputIndexes", subgraph.outputs)]
    for i, operation in enumerate(subgraph.operations):
        lists += [(f"operations[{i}].inputs", operation.inputs), (f"operations[{i}].outputs", operation.outputs)]
    for place, indexes in lists:
        for k, index in enumerate(indexes):
            if not 0 <= index < n:
                found.add(f"{place}[{k}]", f"operand {index} does not exist, there are {n}")
                ok = False
    for place, entries in (("operations", subgraph.operations), ("inputIndexes", subgraph.inputs), ("outputIndexes", subgraph.outputs)):
        if not entries:
            found.add(place, "a model has at least one entry here", ours=True)
    return ok


def _check_roles(subgraph: Subgraph, lifetimes: list[Lifetime], found: Findings) -> None:
    """inputIndexes and outputIndexes list exactly the operands of that lifetime, each once."""
    for place, role in _ROLES.items():
        indexes = subgraph.inputs if role is Lifetime.MODEL_INPUT else subgraph.outputs
        seen: set[int] = set()
        for k, index in enumerate(indexes):
            if index in seen:
                found.add(f"{place}[{k}]", f"operand {index} is listed twice", name=subgraph.operands[index].name)
            elif lifetimes[index] is not role:
                found.add(f"{place}[{k}]", f"operand {index} has the lifetime {lifetimes[index].name}, not {role.name}", name=subgraph.operands[index].name)
            seen.add(index)
        for i, lifetime in enumerate(lifetimes):
            if lifetime is role and i not in seen:
                found.add(f"operands[{i}].lifetime", f"{role.name}, but {place} does not list it", name=subgraph.operands[i].name)


def _check_order(subgraph: Subgraph, lifetimes: list[Lifetime], found: Findings) -> None:
    """Temporaries and outputs are written once, before they are read; nothing else is written; consumers are counted right."""
    written = [lifetime not in (Lifetime.TEMPORARY_VARIABLE, Lifetime.MODEL_OUTPUT) for lifetime in lifetimes]
    writable = [not w for w in written]
    for i, operation in enumerate(subgraph.operations):
        for k, index in enumerate(operation.inputs):
            if not written[index]:
                place, name = f"operations[{i}].inputs[{k}]", subgraph.operands[index].name
                found.add(place, f"operand {index} is read before an operation writes it", name=name, kind=operation.type)
        for k, index in enumerate(operation.outputs):
            place, name = f"operations[{i}].outputs[{k}]", subgraph.operands[index].name
            if not writable[index]:
                found.add(place, f"operand {index} is {lifetimes[index].name} and cannot be written", name=name, kind=operation.type)
            elif written[index]:
                found.add(place, f"operand {index} is written a second time", name=name, kind=operation.type)
            written[index] = True
    counts = subgraph.consumers()
    for i, operand in enumerate(subgraph.operands):
        if not written[i]:
            found.add(f"operands[{i}]", f"{lifetimes[i].name}, but no operation writes it", name=operand.name)
        if operand.consumers is not None and operand.consumers != counts[i]:
            found.add(
                f"operands[{i}].numberOfConsumers", f"{operand.consumers}, but operations read the operand {counts[i]} times", name=operand.name, ours=True
            )


def _check_level(table: Table, file: str) -> Iterable[Diagnostic]:
    if table.feature_level is None:
        return
    needed, reason = feature_level(table)
    if table.feature_level < needed:
        yield Diagnostic("R110", f"feature level {table.feature_level}, but {reason} needs {needed}", where=Where(file, path="featureLevel"))


def _check_recursion(table: Table, file: str) -> Iterable[Diagnostic]:
    """Subgraphs may refer to each other, but not in a circle."""
    references = [sorted({o.subgraph for o in s.operands if o.subgraph is not None and o.subgraph < len(table.referenced)}) for _, s in table.subgraphs()]
    state = [0] * len(references)  # 0 new, 1 open, 2 done
    stack: list[tuple[int, int]] = [(i, 0) for i in range(len(references))]
    while stack:
        node, child = stack.pop()
        if state[node] == 2 or (child == 0 and state[node] == 1):
            continue
        state[node] = 1
        if child == len(references[node]):
            state[node] = 2
            continue
        stack.append((node, child + 1))
        target = references[node][child] + 1
        if state[target] == 1:
            yield Diagnostic("R105", "the subgraph contains itself", where=Where(file, path=f"referenced[{target - 1}]"))
        elif state[target] == 0:
            stack.append((target, 0))
