"""Rule and Table: which row applies, and proof that nothing was left over."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import onnx_ir as ir

from converter.graph.infer import schema_of
from converter.mapping.fields import Emit, Field, Fixed
from converter.mapping.node import Layer, MappingError, Node


@dataclass(frozen=True)
class Rule:
    """One canonical operator <-> one foreign layer.

    `since`/`until`: versions of the foreign format (inclusive) between which the row holds; the meaning of the number is
    the format's (specification version, opset, feature level). `lift_only` rows accept spellings that are never written.
    `given` is a sample context for the laws' test, one entry for each canonical input, in the canonical layout: `1,4,8,8` an
    activation of that shape, `=6,4,3,3` a constant of that shape (`=` alone: a scalar), `=[1,-1]` that constant, `?` an input
    left out. Types are the most ordinary that the operator allows; another one goes in front: `i64:2,3`, `=f16:4`. Without
    `given` every required input is `2,3`.
    """

    near: str
    far: str
    fields: tuple[Field, ...] = ()
    domain: str = ""
    since: int = 0
    until: int = 1_000_000
    given: str = ""
    lift_only: bool = False

    def lift(self, far: Layer, emit: Emit) -> Node:
        near = Node(self.near, self.domain, inputs=list(far.inputs))
        for f in self.fields:
            f.lift(far, near, emit)
        self._all_owned(far.attrs, "far", "attribute")
        self._all_owned(far.blobs, "blobs", "weights")
        return near

    def lower(self, near: Node) -> Layer:
        taken = {i for f in self.fields for i in f.takes}
        inputs = [v for i, v in enumerate(near.inputs) if i not in taken]
        while inputs and inputs[-1] is None:
            inputs.pop()
        far = Layer(self.far, inputs=inputs, outputs=list(near.outputs))
        for f in self.fields:
            f.lower(near, far)
        self._all_owned(near.attrs, "near", "attribute")
        return far

    def _all_owned(self, keys: Iterable[str], side: str, what: str) -> None:
        owned = {k for f in self.fields for k in getattr(f, side)}
        for key in keys:
            if key not in owned:
                near_miss = difflib.get_close_matches(key, owned, 1)
                raise MappingError(f"{what} {key!r} is not known", "R111", f"did you mean {near_miss[0]!r}?" if near_miss else "")


def op(near: str, far: str, *fields: Field, **options: Any) -> Rule:
    """A row. `near` may carry a domain: "netconv::ShuffleChannels"."""
    domain, _, name = near.rpartition("::")
    return Rule(name, far, fields, domain, **options)


def ops(pairs: str, *fields: Field, **options: Any) -> list[Rule]:
    """Rows that share their fields:  ops('Relu=ReLU Abs Exp')."""
    return [op(a, b or a, *fields, **options) for a, _, b in (p.partition("=") for p in pairs.split())]


class Table:
    """Rows by operator and by layer; the first that fits wins, order is priority."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = list(rules)
        self._near: dict[tuple[str, str], list[Rule]] = defaultdict(list)
        self._far: dict[str, list[Rule]] = defaultdict(list)
        for r in self.rules:
            self._far[r.far].append(r)
            if not r.lift_only:
                self._near[r.domain, r.near].append(r)

    def near_ops(self) -> set[tuple[str, str]]:
        return set(self._near)

    def far_kinds(self) -> set[str]:
        return set(self._far)

    def lift(self, far: Layer, emit: Emit, version: int = 0) -> Node:
        """The canonical node of a layer; MappingError X201 when there is no row, else the best row's reason."""
        return self._first(self._far.get(far.kind, []), far.kind, version, lambda r: r.lift(far, emit))  # type: ignore[no-any-return]

    def lower(self, near: Node, version: int = 0) -> Layer:
        """The layer of a canonical node (schema defaults are filled in first)."""
        filled = Node(near.op, near.domain, {**defaults(near.op, near.domain), **near.attrs}, near.inputs, near.outputs, near.last)
        return self._first(self._near.get((near.domain, near.op), []), near.op, version, lambda r: r.lower(filled))  # type: ignore[no-any-return]

    def _first(self, rules: list[Rule], name: str, version: int, step: Any) -> Any:
        usable = [r for r in rules if not version or r.since <= version <= r.until]
        if not usable:
            raise MappingError(*((f"{name} has no counterpart", "X201") if not rules else (f"{name} needs version {min(r.since for r in rules)}", "X206")))
        errors: list[tuple[Rule, MappingError]] = []
        for r in usable:
            try:
                return step(r)
            except MappingError as e:
                errors.append((r, e))
        # a row whose discriminator does not match says nothing about this layer: prefer the others' reasons
        told = [e for r, e in errors if not (e.code == "R110" and any(isinstance(f, Fixed) and str(e).startswith(f"{f.as_}=") for f in r.fields))] or [
            e for _, e in errors
        ]
        raise MappingError("; ".join(dict.fromkeys(str(e) for e in told)), told[0].code, told[0].help)


@cache
def defaults(op_type: str, domain: str = "") -> dict[str, Any]:
    """The operator's attribute defaults, from ONNX's schema or the extension catalogue."""
    if domain == "":
        schema = schema_of(op_type)
        if schema is None:
            return {}
        declared = {n: ir.serde.deserialize_attribute(a.default_value) for n, a in schema.attributes.items() if a.default_value.name}
        return {n: list(a.value) if isinstance(a.value, tuple | list) else a.value for n, a in declared.items()}
    from converter.graph.extensions import lookup

    entry = lookup(op_type)
    return {} if entry is None else {k: v for k, v in entry.attributes.items() if isinstance(v, int | float | str | list | tuple)}
