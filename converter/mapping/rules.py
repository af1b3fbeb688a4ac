"""Declarations of a format's operators: rows, custom converters for operators that rows cannot
express, and the table that looks them up.

RULES = [
    *ops("Abs Ceil=Ceiling Exp"),                                        # pure renames
    op("Elu", "Elu", Attr("alpha", kind=float)),                         # one attribute
    op("ReduceSum", "ReduceSum", Axes(), Keep(), before_lift=widen),     # irregular in one detail
    custom("NonMaxSuppression", "NonMaxSuppression", lift=..., lower=...),
]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from importlib import import_module
from typing import Any

import onnx_ir as ir

from converter.errors import MappingError, did_you_mean
from converter.graph.build import defaults
from converter.graph.value import Value
from converter.mapping.context import LiftContext, LowerContext
from converter.mapping.fields import Field, Guard, Hook, RequireAttr, RequireKey
from converter.mapping.node import Node
from converter.record import record

FOREVER = 1_000_000
_CONDITIONS = (Guard, RequireKey, RequireAttr)
Values = ir.Value | Sequence[ir.Value]


@record
class Rule:
    """A row: one canonical operator <-> one foreign layer.

    `since`/`until`: versions of the foreign format (inclusive) for which the row applies; the
    meaning of the number is the format's (specification version, opset, feature level). `lift_only`
    rows accept spellings that are never written, `lower_only` rows write an operator as a layer
    that is read as another one. `operands` are the names of the layer's operands, in the order of
    the operator's inputs, for formats with named operands: `y?` may be left out, `values*`
    are all inputs that are left. `example_inputs` is a sample context for the laws' test, one entry
    for each canonical input, in the canonical layout: `1,4,8,8` an activation of that shape (`n`:
    an unknown size), `=6,4,3,3` a constant of that shape (`=` alone: a scalar), `=[1,-1]` that
    constant, `=(6)` that scalar, `?` an input left out, `$0` the same as input 0, `#0` the first
    input of the graph, `MatMul(2,3;=3,4)` or `Sigmoid($0)` the result of an operator before it, and
    at the end `-> 2` two results. Types are the most common that the operator allows; another one
    is given as a prefix: `i64:2,3`, `=f16:4`. Without `example_inputs` every required input is
    `2,3`.
    """

    op: str
    kind: str
    fields: tuple[Field, ...] = ()
    domain: str = ""
    since: int = 0
    until: int = FOREVER
    example_inputs: str = ""
    lift_only: bool = False
    lower_only: bool = False
    operands: tuple[str, ...] = ()

    @property
    def has_hook(self) -> bool:
        return any(isinstance(f, Hook) for f in self.fields)

    @cached_property
    def ignored(self) -> set[str]:
        """Return the attributes of the operator that are dropped on purpose."""
        return {name for f in self.fields for name in f.ignored}

    def lift(self, r: LiftContext) -> list[ir.Value]:
        """Return the results of the layer, as nodes of the graph; raise MappingError if the row
        does not apply.
        """
        r.begin(self)
        with r.b:  # fields and hooks may write `x * y`
            for step in self._callbacks(lambda f: f.lift):
                step(r)
            self._all_owned(r.layer.attrs, "keys", "attribute")
            self._all_owned(r.layer.blobs, "blobs", "weights")
            results = r.emit()
        if unread := r.unread():
            raise MappingError(f"{self.kind} does not read input {unread[0]} here", "R105")
        return results

    def lower(self, w: LowerContext) -> None:
        """Append the layers of the operator; raise MappingError if the row does not apply."""
        w.begin(self)
        for step in self._callbacks(lambda f: f.lower):
            step(w)
        self._all_owned(w.node.attrs, "names", "attribute")
        w.emit_layer()
        for name in self.ignored:
            if w.node.attrs.get(name) is not None:
                w.note(
                    f"{name}={w.node.attrs[name]!r} is dropped, because {self.kind} "
                    "does not support it"
                )

    def _callbacks(
        self, of: Callable[[Field], Callable[[Any], None]]
    ) -> Iterator[Callable[[Any], None]]:
        """Yield the callbacks of the fields in one direction: conditions first, so that nothing is
        created for a row that does not apply, then named operands.
        """

        def condition(context: Any) -> None:
            try:
                for f in self._conditions:
                    of(f)(context)
            except MappingError as e:
                e.no_match = True
                raise

        yield condition
        if self.operands:
            yield lambda context: context.bind(self.operands)
        yield from map(of, self._others)

    @cached_property
    def _conditions(self) -> list[Field]:
        return [f for f in self.fields if isinstance(f, _CONDITIONS)]

    @cached_property
    def _others(self) -> list[Field]:
        return [f for f in self.fields if not isinstance(f, _CONDITIONS)]

    def owned(self, side: str) -> frozenset[Any]:
        """Return the parts that the fields cover: their `names`, `keys`, `blobs` or `inputs`; keys
        include the names of operands.
        """
        if side not in self._owned:
            bound = {n.rstrip("?*") for n in self.operands} if side == "keys" else set()
            names = bound.union(k for f in self.fields for k in getattr(f, side))
            self._owned[side] = frozenset(names)
        return self._owned[side]

    @cached_property
    def _owned(self) -> dict[str, frozenset[Any]]:
        return {}

    def _all_owned(self, keys: Iterable[str], side: str, what: str) -> None:
        owned = self.owned(side)
        for key in keys:
            if key not in owned:
                raise MappingError(f"{what} {key!r} is not known", "R111", did_you_mean(key, owned))


@record
class Custom:
    """A custom converter: functions that read layers of `kinds`, and that write operators `ops`
    ((domain, name)).

    `ignored`: attributes of the layers that need not be read, since they repeat other information
    of the layers, or have none in some of them.
    """

    kinds: tuple[str, ...] = ()
    ops: tuple[tuple[str, str], ...] = ()
    lift_: Callable[[Any], Values] | None = None
    lower_: Callable[[Any], None] | None = None
    since: int = 0
    until: int = FOREVER
    ignored: frozenset[str] = frozenset()

    def lift(self, r: LiftContext) -> list[ir.Value]:
        """Return the results of a layer by the converter's function."""
        assert self.lift_ is not None
        with r.b:
            results = self.lift_(r)
        return [results] if isinstance(results, ir.Value) else list(results)

    def lower(self, w: LowerContext) -> None:
        """Write the layers of a node by the converter's function."""
        assert self.lower_ is not None
        self.lower_(w)


def op(
    name: str,
    kind: str,
    *fields: Field,
    before_lift: Callable[[Any], ir.Value | None] | None = None,
    after_lift: Callable[[Any, Value], ir.Value] | None = None,
    before_lower: Callable[[Any], None] | None = None,
    after_lower: Callable[[Any], None] | None = None,
    **options: Any,
) -> Rule:
    """Return a row. `name` may include a domain: "netconv::ShuffleChannels".

    The hooks are those of fields.Hook; they run after all fields.
    """
    domain, _, short = name.rpartition("::")
    hooks = (before_lift, after_lift, before_lower, after_lower)
    if any(hooks):
        fields = (*fields, Hook(*hooks))
    return Rule(short, kind, fields, domain, **options)


def ops(pairs: str, *fields: Field, **options: Any) -> list[Rule]:
    """Return rows that share their fields:  ops("Relu=ReLU Abs Exp")."""
    split = (p.partition("=") for p in pairs.split())
    return [op(a, b or a.rpartition("::")[2], *fields, **options) for a, _, b in split]


def custom(
    names: str,
    kinds: str,
    lift: Callable[[Any], Values] | None = None,
    lower: Callable[[Any], None] | None = None,
    since: int = 0,
    until: int = FOREVER,
    ignored: str = "",
) -> Custom:
    """Return a custom converter; `names`, `kinds` and `ignored` may list several, separated by
    spaces.
    """
    split = (n.rpartition("::") for n in names.split())
    ops = tuple((domain, name) for domain, _, name in split)
    return Custom(tuple(kinds.split()), ops, lift, lower, since, until, frozenset(ignored.split()))


class Table:
    """Rows and custom converters by operator and by layer, in order of priority: the first that
    applies is used.
    """

    def __init__(self, entries: Iterable[Rule | Custom]) -> None:
        self._entries = list(entries)
        self._ops: dict[tuple[str, str], list[Rule | Custom]] = defaultdict(list)
        self._kinds: dict[str, list[Rule | Custom]] = defaultdict(list)
        for e in self._entries:
            self._enter(e)

    def _enter(self, e: Rule | Custom) -> None:
        if isinstance(e, Custom):
            kinds, ops = e.kinds if e.lift_ else (), e.ops if e.lower_ else ()
        else:
            kinds = () if e.lower_only else (e.kind,)
            ops = () if e.lift_only else ((e.domain, e.op),)
        for kind in kinds:
            self._kinds[kind].append(e)
        for name in ops:
            self._ops[name].append(e)

    @property
    def entries(self) -> list[Rule | Custom]:
        return self._entries

    @property
    def rules(self) -> list[Rule]:
        return [e for e in self.entries if isinstance(e, Rule)]

    def ops(self) -> set[tuple[str, str]]:
        """Return the operators that can be written."""
        return set(self._ops)

    def entries_for(self, name: str, domain: str = "") -> Sequence[Rule | Custom]:
        """Return the rows and converters that may write an operator."""
        return self._ops.get((domain, name), ())

    def kinds(self) -> set[str]:
        """Return the layer kinds that can be read."""
        return set(self._kinds)

    def reads(self, kind: str) -> bool:
        """Return whether there is a row for layers of a kind."""
        return kind in self._kinds

    def entries_of(self, kind: str) -> Sequence[Rule | Custom]:
        """Return the rows and converters that may read a layer kind."""
        return self._kinds.get(kind, ())

    def operators(self) -> dict[str, str]:
        """Return a map from each readable layer kind to the operators of its rows, or to
        "(special)".
        """
        found = {}
        for kind in sorted(self.kinds()):
            names = dict.fromkeys(e.op for e in self.entries_of(kind) if isinstance(e, Rule))
            found[kind] = ", ".join(names) or "(special)"
        return found

    def lift(self, r: LiftContext) -> list[ir.Value]:
        """Return the results of a layer.

        Raise MappingError: X201 if there is no row, otherwise the reason of the row that fits best.
        """
        kind = r.layer.kind
        return self._first(self.entries_of(kind), kind, r.version, lambda e: e.lift(r))  # type: ignore[no-any-return]

    def lower(self, w: LowerContext) -> None:
        """Append the layers of an operator, after adding its schema's defaults to its
        attributes.
        """
        node, mark = w.node, w.mark()
        w.node = filled(node)

        def step(e: Rule | Custom) -> None:
            try:
                e.lower(w)
            except MappingError:
                w.undo(mark)
                raise

        self._first(self.entries_for(node.op, node.domain), node.op, w.version, step)

    def _first(
        self, entries: Sequence[Rule | Custom], name: str, version: int, step: Callable[[Any], Any]
    ) -> Any:
        usable = [e for e in entries if not version or e.since <= version <= e.until]
        if not usable:
            if not entries:
                raise MappingError(f"{name} is not supported", "X201")
            raise MappingError(f"{name} needs version {min(e.since for e in entries)}", "X206")
        errors: list[MappingError] = []
        for e in usable:
            try:
                return step(e)
            except MappingError as error:
                errors.append(error)
        specific = [e for e in errors if not e.no_match] or errors
        raise MappingError("; ".join(_reasons(specific)), specific[0].code, specific[0].help)


class FamilyTable(Table):
    """A table whose rows are in the modules of a package, its families, each with a list `RULES`.
    A family is imported when one of its operators or layer kinds is first looked up.

    `index` says which these are: lines of a family, `reads` or `writes`, and names, in the order of
    `families`. It is made of them (`make index`). The first family that has a name comes first.
    """

    def __init__(self, package: str, families: Sequence[str], index: str) -> None:
        self._package, self._families = package, tuple(families)
        self._tables: dict[str, Table] = {}
        self._readers: dict[str, list[str]] = defaultdict(list)
        self._writers: dict[tuple[str, str], list[str]] = defaultdict(list)
        for family, verb, names in index_lines(index):  # in the order of the families
            for name in names:
                if verb == "reads":
                    self._readers[name].append(family)
                else:
                    domain, _, op = name.rpartition("::")
                    self._writers[domain, op].append(family)

    def family(self, name: str) -> Table:
        """Return the rows of one family."""
        if name not in self._tables:
            self._tables[name] = Table(import_module(f"{self._package}.{name}").RULES)
        return self._tables[name]

    @property
    def entries(self) -> list[Rule | Custom]:
        return [e for name in self._families for e in self.family(name).entries]

    def ops(self) -> set[tuple[str, str]]:
        return set(self._writers)

    def entries_for(self, name: str, domain: str = "") -> Sequence[Rule | Custom]:
        families = self._writers.get((domain, name), ())
        return [e for f in families for e in self.family(f).entries_for(name, domain)]

    def kinds(self) -> set[str]:
        return set(self._readers)

    def reads(self, kind: str) -> bool:
        return kind in self._readers

    def entries_of(self, kind: str) -> Sequence[Rule | Custom]:
        return [e for f in self._readers.get(kind, ()) for e in self.family(f).entries_of(kind)]


def index_lines(index: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the module, the verb and the names of each line of an index."""
    for line in filter(None, index.split("\n")):
        module, verb, *names = line.split(" ")
        yield module, verb, names


def _reasons(errors: Sequence[MappingError]) -> Iterable[str]:
    """Yield each reason once, merging reasons of rows that differ in the value of one key into a
    list of the known values.
    """
    known: dict[tuple[str, str], list[str]] = defaultdict(list)
    for e in errors:
        if e.choice is not None:
            known[e.choice[:2]].append(str(e.choice[2]))
    reasons = []
    for e in errors:
        values = list(dict.fromkeys(known[e.choice[:2]])) if e.choice is not None else []
        if e.choice is not None and len(values) > 1:
            key, shown, _ = e.choice
            reasons.append(f"{key}={shown} is not supported (only {', '.join(values)})")
        else:
            reasons.append(str(e))
    return dict.fromkeys(reasons)


def filled(node: Node) -> Node:
    """Return the node with the defaults of its schema added."""
    attrs = {**defaults(node.op, node.domain), **node.attrs}
    return Node(node.op, node.domain, attrs, node.inputs, node.outputs, node.last)
