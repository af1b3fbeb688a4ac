"""The allowed content of a layer of each type, from `schemas/zhouyi/operators.json`."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

from converter.io.resources import schema_path
from converter.record import record

Part = Literal["both", "float", "int"]


@record
class Attribute:
    """One key. `type` is a union such as `int|ints`; `part` restricts it to float or to integer
    IRs.
    """

    name: str
    type: str
    required: bool = False
    default: Any = None
    values: Sequence[Any] = ()
    aliases: Sequence[str] = ()
    value_aliases: Mapping[str, str] = field(default_factory=dict)
    part: Part = "both"


@record
class Group:
    """One constant group."""

    name: str
    required: bool = False
    part: Part = "both"


@record
class Operator:
    """One layer type; `methods` adds attributes and groups for a value of `method`, `open` means
    that further keys may exist.
    """

    name: str
    attributes: Mapping[str, Attribute]
    groups: Mapping[str, Group]
    methods: Mapping[str, Operator]
    doc: str = ""
    theme: str = ""
    documented: bool = True
    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    aliases: Sequence[str] = ()
    open: bool = False

    @property
    def fewest_inputs(self) -> int:
        """Return the smallest permitted number of inputs."""
        # `X*` alone means one or more; if the keys are not known, the inputs are neither
        only_any = len(self.inputs) == 1 and self.inputs[0].endswith("*") and not self.open
        return 1 if only_any else sum(not i.endswith(("?", "*")) for i in self.inputs)

    @property
    def most_inputs(self) -> float:
        return float("inf") if any(i.endswith("*") for i in self.inputs) else len(self.inputs)


@functools.cache
def _data() -> dict[str, Any]:
    text = schema_path("zhouyi", "operators.json").read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text)
    return data


@functools.cache
def operators() -> Mapping[str, Operator]:
    """Return all layer types under the names that the vendor's tools write."""
    return {name: _operator(name, entry) for name, entry in _data()["layers"].items()}


@functools.cache
def type_aliases() -> Mapping[str, str]:
    """Return the layer types by other spellings, which examples of the document use."""
    return {a: o.name for o in operators().values() for a in o.aliases}


@functools.cache
def common() -> Operator:
    """Return the keys that a layer of any type may have."""
    return _operator("", _data()["common"])


def key_aliases() -> Mapping[str, str]:
    """Return the keys by their older spellings."""
    return dict(_data()["key_aliases"])


def key_patterns() -> tuple[str, ...]:
    """Return the shell patterns of keys that any layer may have."""
    return tuple(_data()["patterns"])


def find_operator(layer_type: str) -> Operator | None:
    """Return the operator of a layer type or of an alias of one, or None."""
    return operators().get(type_aliases().get(layer_type, layer_type))


def _operator(name: str, entry: dict[str, Any]) -> Operator:
    attributes: dict[str, Attribute] = {}
    groups: dict[str, Group] = {}
    for source in (*(_data()["mixins"][m] for m in entry.get("use", ())), entry):
        given, constants = source.get("attributes", {}), source.get("constants", {})
        attributes |= {k: Attribute(k, **a) for k, a in given.items()}
        groups |= {k: Group(k, **g) for k, g in constants.items()}
    methods = {m: _operator(name, part) for m, part in entry.get("methods", {}).items()}
    parts = ("use", "attributes", "constants", "methods")
    declared = {k: v for k, v in entry.items() if k not in parts}
    return Operator(name, attributes, groups, methods, **declared)
