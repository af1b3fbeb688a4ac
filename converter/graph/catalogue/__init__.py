"""Extension operators by theme.

Each has a single, executable definition: a function that writes standard operators. `lookup` finds
one by its name; builder and inference use it through the fields of `Extension`.
"""

from __future__ import annotations

import importlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cache
from typing import Any

import onnx_ir as ir

from converter.graph.known import rank_of
from converter.graph.value import Value
from converter.record import record

Body = Callable[..., Any]


@record
class Extension(ABC):
    """An extension operator."""

    name: str
    body: Body
    inputs: tuple[str, ...]
    variadic: bool
    attributes: dict[str, Any]  # name -> default; inspect.Parameter.empty if required
    doc: str
    required: int = 0  # number of inputs without a default
    present: frozenset[str] = frozenset()  # inputs that may not be left out
    ranks: Mapping[str, range] = field(default_factory=dict)  # of the inputs that require them

    opaque = False  # it has no definition, only types

    @abstractmethod
    def infer(self, node: ir.Node) -> None:
        """Infer the types and shapes of the outputs of `node`, whose inputs and attributes the
        operator can have.
        """

    @abstractmethod
    def write(
        self, b: Any, inputs: Sequence[ir.Value | None], attributes: dict[str, Any]
    ) -> tuple[Value, ...]:
        """Write the definition with a builder; raise KeyError for an operator without one."""

    def contradiction(self, node: ir.Node) -> str:
        """Return why the operator cannot have the inputs and attributes of `node`; "" if it can."""
        count, most = len(node.inputs), len(self.inputs)
        if count < self.required or not (self.variadic or count <= most):
            return f"{self.name} takes {self.required} to {most} inputs, got {count}"
        for i, v in enumerate(node.inputs):
            name = self.inputs[min(i, most - 1)]  # a variadic parameter is the last one
            if v is None and name in self.present:
                return f"{self.name} needs {name!r}"
            needed, found = self.ranks.get(name), rank_of(v)
            if needed is not None and found is not None and found not in needed:
                return f"{name!r} of {self.name} must have {_counted(needed)} axes, got {found}"
        for name, default in self.attributes.items():
            if default is inspect.Parameter.empty and name not in node.attributes:
                return f"{self.name} needs {name!r}"
        return ""


CATALOGUE: dict[str, Extension] = {}


def enter(entry: Extension) -> None:
    """Add an extension operator to the catalogue; each name is added once."""
    assert entry.name not in CATALOGUE, f"two extension operators have the name {entry.name}"
    CATALOGUE[entry.name] = entry


def lookup(name: str) -> Extension | None:
    """Return the extension operator of this name, or None."""
    _load()
    return CATALOGUE.get(name)


@cache
def _load() -> None:
    import pkgutil  # a conversion without extension operators does not need it

    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")


def catalogue() -> dict[str, Extension]:
    """Return all extension operators by their names."""
    _load()
    return dict(CATALOGUE)


def write_body(
    b: Any, name: str, inputs: Sequence[ir.Value | None], attributes: dict[str, Any]
) -> tuple[Value, ...]:
    """Write the definition of an extension operator with `b`; raise KeyError for an unknown one, or
    one without a definition.
    """
    entry = lookup(name)
    if entry is None:
        raise KeyError(name)
    return entry.write(b, inputs, attributes)


def _counted(axes: range) -> str:
    return f"{axes[0]}" if len(axes) == 1 else f"{axes[0]} to {axes[-1]}"
