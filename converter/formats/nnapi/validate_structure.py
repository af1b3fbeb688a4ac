"""Checks of the structure of a table: indexes, roles, order of execution, references."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from converter.errors import Diagnostic, ReadError, Where
from converter.formats.nnapi.findings import Findings
from converter.formats.nnapi.table import Lifetime, Subgraph, Table


def check_structure(table: Table, file: str = "") -> None:
    """Raise ReadError if an index is out of range or an output has no producer. Such a table has no
    meaning.
    """
    findings: list[Diagnostic] = []
    for prefix, subgraph in table.subgraphs():
        found = Findings(subgraph, file, prefix, strict=False)
        if check_indexes(subgraph, found):
            written = {i for o in subgraph.operations for i in o.outputs} | {*subgraph.inputs}
            for k, index in enumerate(subgraph.outputs):
                if index not in written and subgraph.operands[index].value is None:
                    message = f"operand {index} is an output, but no operation writes it"
                    found.add(f"outputIndexes[{k}]", message, index)
        findings += found
    if findings:
        raise ReadError(findings)


def check_indexes(subgraph: Subgraph, found: Findings) -> bool:
    """Check that every list has entries, and that every index has an operand. Return False if an
    index has none: then nothing else can be checked.
    """
    n, before = len(subgraph.operands), len(found)
    for location, indexes in _lists(subgraph):
        for k, index in enumerate(indexes):
            if not 0 <= index < n:
                found.add(f"{location}[{k}]", f"operand {index} does not exist, there are {n}")
    ok = len(found) == before
    for location, entries in (
        ("operations", subgraph.operations),
        ("inputIndexes", subgraph.inputs),
        ("outputIndexes", subgraph.outputs),
    ):
        if not entries:
            found.add(location, "a model must have at least one entry here", ours=True)
    return ok


def _lists(subgraph: Subgraph) -> Iterator[tuple[str, list[int]]]:
    """Yield all lists of operand indexes with their paths."""
    yield "inputIndexes", subgraph.inputs
    yield "outputIndexes", subgraph.outputs
    for i, operation in enumerate(subgraph.operations):
        yield f"operations[{i}].inputs", operation.inputs
        yield f"operations[{i}].outputs", operation.outputs


def check_roles(subgraph: Subgraph, lifetimes: list[Lifetime], found: Findings) -> None:
    """Check that inputIndexes and outputIndexes list exactly the operands of that lifetime, each
    once.
    """
    for location, indexes, role in (
        ("inputIndexes", subgraph.inputs, Lifetime.MODEL_INPUT),
        ("outputIndexes", subgraph.outputs, Lifetime.MODEL_OUTPUT),
    ):
        seen: set[int] = set()
        for k, index in enumerate(indexes):
            has = lifetimes[index]
            if index in seen:
                found.add(f"{location}[{k}]", f"operand {index} is listed twice", index)
            elif has is not role:
                message = f"operand {index} must have the lifetime {role.name}, got {has.name}"
                found.add(f"{location}[{k}]", message, index)
            seen.add(index)
        for i, lifetime in enumerate(lifetimes):
            if lifetime is role and i not in seen:
                message = f"the lifetime is {role.name}, but {location} does not list the operand"
                found.add(f"operands[{i}].lifetime", message, i)


def check_order(subgraph: Subgraph, lifetimes: list[Lifetime], found: Findings) -> None:
    """Check that temporaries and outputs are written once, before they are read, that nothing else
    is written, and that the numbers of consumers are right.
    """
    writable = [one in (Lifetime.TEMPORARY_VARIABLE, Lifetime.MODEL_OUTPUT) for one in lifetimes]
    written = [not w for w in writable]
    for i, operation in enumerate(subgraph.operations):
        for k, index in enumerate(operation.inputs):
            if not written[index]:
                message = f"operand {index} is read before an operation writes it"
                found.add(f"operations[{i}].inputs[{k}]", message, index, kind=operation.type)
        for k, index in enumerate(operation.outputs):
            location, message = f"operations[{i}].outputs[{k}]", ""
            if not writable[index]:
                message = f"operand {index} is {lifetimes[index].name} and cannot be written"
            elif written[index]:
                message = f"operand {index} is written a second time"
            if message:
                found.add(location, message, index, kind=operation.type)
            written[index] = True
    counts = subgraph.consumers()
    for i, operand in enumerate(subgraph.operands):
        if not written[i]:
            message = f"the lifetime is {lifetimes[i].name}, but no operation writes the operand"
            found.add(f"operands[{i}]", message, i)
        if operand.consumers not in (None, counts[i]):
            message = (
                f"consumers is {operand.consumers}, but operations read the operand "
                f"{counts[i]} times"
            )
            found.add(f"operands[{i}].numberOfConsumers", message, i, ours=True)


def check_recursion(table: Table, file: str) -> Iterable[Diagnostic]:
    """Check that subgraphs do not refer to each other in a circle."""
    count = len(table.referenced)
    references = [
        sorted({o.subgraph for o in s.operands if o.subgraph is not None and o.subgraph < count})
        for _, s in table.subgraphs()
    ]
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
            where = Where(file, path=f"referenced[{target - 1}]")
            yield Diagnostic("R105", "the subgraph contains itself", where=where)
        elif state[target] == 0:
            stack.append((target, 0))
