"""All operations, and the signature that a given operation uses: `schemas/nnapi/operations.json` as
values.

`bind` gives every operand of an operation the name that its signature has for it, so that no code
depends on positions:

    binding = bind(operation, subgraph)
    binding.inputs["filter"], binding.inputs["stride_width"]      operand indexes, None where
                                                                  omitted, a list where repeated
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from converter.errors import MappingError, closest
from converter.formats.nnapi.table import OperandType, Operation, Subgraph
from converter.io.resources import schema_path
from converter.record import record

OEM_OPERATION = "OEM_OPERATION"
OEM_CODE = 10000
Bound = int | list[int] | None


@record
class Argument:
    """One input or output of a signature; `type` is an operand type, a type variable of the
    operation, or "any".
    """

    name: str
    type: str
    rank: tuple[int, int | None] | None = None
    optional: bool = False
    since: int | None = None
    default: int | bool | None = None
    repeat: bool = False
    minimum: int = 1
    domain: str = ""
    quantization: str | Mapping[str, Sequence[float]] = ""
    unless: str = ""


@record
class Signature:
    """One way of calling an operation; `counts` lists the numbers of inputs that are allowed
    (empty: all that `since` permits).
    """

    name: str
    inputs: tuple[Argument, ...]
    level: int = 1
    counts: tuple[int, ...] = ()

    @functools.cached_property
    def names(self) -> frozenset[str]:
        return frozenset(a.name for a in self.inputs)


@record
class OperationSpec:
    """An operation; each row of `types` is the operand types of `variables` in order, and the
    feature level of the combination.
    """

    name: str
    code: int
    level: int
    summary: str
    variables: tuple[str, ...]
    types: tuple[tuple[tuple[OperandType, ...], int], ...]
    signatures: tuple[Signature, ...]
    outputs: tuple[Argument, ...]
    output_counts: tuple[int, ...] = ()
    layout: str = ""
    channel_dim: int | None = None

    @functools.cached_property
    def rows(self) -> list[dict[str, OperandType]]:
        """Return each row of `types` as a dictionary by variable."""
        return [dict(zip(self.variables, row, strict=True)) for row, _ in self.types]


@record
class Binding:
    """The assignment of an operation's operands to its signature; `level` is the feature level that
    signature, types and argument count need.
    """

    spec: OperationSpec
    signature: Signature
    level: int
    types: Mapping[str, OperandType] = field(default_factory=dict)
    inputs: Mapping[str, Bound] = field(default_factory=dict)
    outputs: Mapping[str, Bound] = field(default_factory=dict)


class NoMatch(MappingError):
    """The reason why no signature matches, for the closest one, and its path ("inputs[3]") within
    the operation.
    """

    def __init__(self, message: str, location: str = "", allowed: Sequence[int] = ()) -> None:
        super().__init__(message, "R105")
        self.location, self.allowed = location, allowed


@functools.cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(
        schema_path("nnapi", "operations.json").read_text("utf-8")
    )
    return document


@functools.cache
def operations() -> dict[str, OperationSpec]:
    """Return all operations by name, in the order of their codes, except OEM_OPERATION, which has
    no signature.
    """
    return {name: _spec(name, item) for name, item in _document()["operations"].items()}


@functools.cache
def names_by_code() -> dict[int, str]:
    """Return the operations' names by their codes."""
    return {**{spec.code: name for name, spec in operations().items()}, OEM_CODE: OEM_OPERATION}


def code_of(name: str) -> int:
    """Return the code of an operation. Raises KeyError for unknown names."""
    return OEM_CODE if name == OEM_OPERATION else operations()[name].code


def domain_values(name: str) -> list[int] | None:
    """Return the values of a named domain such as "activation"; None for a comparison such
    as ">=1".
    """
    values: list[int] | None = _document()["domains"].get(name)
    return values


def is_operation(name: str) -> bool:
    """Return whether this is the name of an operation."""
    return name in operations() or name == OEM_OPERATION


def nearest(name: str) -> str:
    """Return a hint at the nearest known operation, to be appended to a message; empty if there is
    none.
    """
    close = closest(name.upper()[:64], operations())
    return f"; perhaps you meant {close}" if close else ""


def _spec(name: str, item: dict[str, Any]) -> OperationSpec:
    return OperationSpec(
        name,
        item["code"],
        item["level"],
        item["summary"],
        tuple(item["variables"]),
        tuple((tuple(OperandType[t] for t in row[:-1]), row[-1]) for row in item["types"]),
        tuple(
            Signature(
                s["name"], _arguments(s["inputs"]), s.get("level", 1), tuple(s.get("counts", ()))
            )
            for s in item["signatures"]
        ),
        _arguments(item["outputs"]),
        tuple(item.get("output_counts", ())),
        item.get("layout", ""),
        item.get("channel_dim"),
    )


def _arguments(items: list[dict[str, Any]]) -> tuple[Argument, ...]:
    def one(rank: Any = None, **item: Any) -> Argument:
        both = (rank, rank) if isinstance(rank, int) else rank and tuple(rank)
        return Argument(rank=both, **item)

    return tuple(one(**item) for item in items)


def bind(operation: Operation, subgraph: Subgraph) -> Binding:
    """Return the signature and type combination that an operation uses: the one of the lowest
    feature level that fits; raise NoMatch if none does.

    Only counts and operand types decide. Indexes must lie within the subgraph's operands.
    """
    operands = subgraph.operands
    found = _bind(
        operation.type,
        tuple(operands[i].type for i in operation.inputs),
        tuple(operands[i].type for i in operation.outputs),
    )
    inputs = _with_indexes(found.inputs, operation.inputs)
    return replace(found, inputs=inputs, outputs=_with_indexes(found.outputs, operation.outputs))


def _with_indexes(positions: Mapping[str, Bound], indexes: list[int]) -> dict[str, Bound]:
    def index_of(at: Bound) -> Bound:
        if isinstance(at, list):
            return [indexes[i] for i in at]
        return None if at is None else indexes[at]

    return {name: index_of(at) for name, at in positions.items()}


Types = tuple[OperandType, ...]


@functools.lru_cache(4096)
def _bind(name: str, inputs_have: Types, outputs_have: Types) -> Binding:
    """Return the binding of an operation with operands of these types: their positions."""
    spec = operations().get(name)
    if spec is None:
        raise NoMatch(f"the signature of {name} is not known to netconv")
    best: Binding | None = None
    failures: list[NoMatch] = []
    outputs = _fit(spec.outputs, outputs_have, spec.output_counts, spec.name, "outputs")
    for signature in spec.signatures:
        try:
            inputs = _fit(signature.inputs, inputs_have, signature.counts, spec.name, "inputs")
            found = _row(spec, signature, inputs, outputs)
        except NoMatch as e:
            failures.append(e)
            continue
        if best is None or found.level < best.level:
            best = found
    if best is None:
        raise _closest(failures)
    return best


def _closest(failures: list[NoMatch]) -> NoMatch:
    """Return the failure of the signature that matched the most operands; if none matched any, the
    wrong counts of all signatures.
    """
    best = max(failures, key=lambda e: _progress(e.location))
    if best.location or not best.allowed:
        return best
    allowed = sorted({n for e in failures for n in e.allowed})
    return NoMatch(str(best).replace(_either(best.allowed), _either(allowed)))


def _either(counts: Sequence[int]) -> str:
    return " or ".join(map(str, counts))


def _progress(location: str) -> int:
    side, _, number = location.rstrip("]").partition("[")
    return -1 if not number else int(number) + (1000 if side == "outputs" else 0)


Pairs = list[tuple[Argument, int, OperandType]]


def _fit(
    arguments: tuple[Argument, ...], have: Types, counts: tuple[int, ...], name: str, side: str
) -> Pairs:
    """Pair each operand with its argument: (argument, position, operand type)."""
    n, repeated = len(have), next((i for i, a in enumerate(arguments) if a.repeat), None)
    if repeated is not None:
        times = n - (len(arguments) - 1)
        if times < arguments[repeated].minimum:
            raise NoMatch(
                f"{name} takes at least "
                f"{len(arguments) - 1 + arguments[repeated].minimum} {side}, "
                f"got {n}"
            )
        again = (arguments[repeated],) * times
        arguments = (*arguments[:repeated], *again, *arguments[repeated + 1 :])
    else:
        allowed = counts or tuple(
            k for k in range(len(arguments) + 1) if all(a.since is not None for a in arguments[k:])
        )
        if n not in allowed:
            raise NoMatch(f"{name} takes {_either(allowed)} {side}, got {n}", allowed=allowed)
        if side == "outputs" and any(a.unless for a in arguments) and n % 2:
            arguments = tuple(a for a in arguments if not a.unless)
    return [(a, i, kind) for i, (a, kind) in enumerate(zip(arguments, have, strict=False))]


def _row(spec: OperationSpec, signature: Signature, inputs: Pairs, outputs: Pairs) -> Binding:
    rows = list(spec.types)
    level = max([spec.level, signature.level, *(a.since or 1 for a, _, _ in inputs + outputs)])
    for side, pairs in (("inputs", inputs), ("outputs", outputs)):
        for argument, position, actual in pairs:
            rows = _narrow(rows, spec.variables, argument, actual, f"{side}[{position}]")
    types, row_level = min(rows, key=lambda row: row[1])
    return Binding(
        spec,
        signature,
        max(level, row_level),
        dict(zip(spec.variables, types, strict=True)),
        _named(signature.inputs, inputs),
        _named(spec.outputs, outputs),
    )


def _narrow(
    rows: list[tuple[tuple[OperandType, ...], int]],
    variables: tuple[str, ...],
    argument: Argument,
    actual: OperandType,
    location: str,
) -> list[tuple[tuple[OperandType, ...], int]]:
    if argument.type == "any":
        return rows
    if argument.type in variables:
        at = variables.index(argument.type)
        left = [row for row in rows if row[0][at] is actual]
        allowed = sorted({row[0][at].name for row in rows})
    else:
        left, allowed = (rows if actual.name == argument.type else []), [argument.type]
    if not left:
        raise NoMatch(
            f"{argument.name} must be {' or '.join(allowed)}, got {actual.name}", location
        )
    return left


def _named(arguments: tuple[Argument, ...], pairs: Pairs) -> dict[str, Bound]:
    bound: dict[str, Bound] = {a.name: [] if a.repeat else None for a in arguments}
    for argument, position, _ in pairs:
        values = bound[argument.name]
        if isinstance(values, list):
            values.append(position)
        else:
            bound[argument.name] = position
    return bound


def arguments_of(binding: Binding) -> Iterator[tuple[str, Argument, int]]:
    """Yield, for every operand of a bound operation, its path ("inputs[2]"), its argument, its
    operand index.
    """
    for side, arguments, bound in (
        ("inputs", binding.signature.inputs, binding.inputs),
        ("outputs", binding.spec.outputs, binding.outputs),
    ):
        position = 0
        for argument in arguments:
            value = bound[argument.name]
            for index in value if isinstance(value, list) else [] if value is None else [value]:
                yield f"{side}[{position}]", argument, index
                position += 1
