"""The two sides of a row, detached from any file and any graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import onnx_ir as ir

from converter.errors import MappingError, Where


class Operands(list[ir.Value | None]):
    """The inputs of a layer that is read; accessing an absent one refuses the layer.

    `read` are those that were accessed; copies share it.
    """

    def __init__(
        self, values: Iterable[ir.Value | None] = (), read: set[ir.Value] | None = None
    ) -> None:
        super().__init__(values)
        self.read: set[ir.Value] = set() if read is None else read

    def __getitem__(self, index: Any) -> Any:
        try:
            found = super().__getitem__(index)
        except IndexError:
            raise MappingError(f"input {index} is absent", "R105") from None
        self.read.update(
            v for v in (found if isinstance(index, slice) else [found]) if v is not None
        )
        return found

    def __iter__(self) -> Iterator[ir.Value | None]:
        self.read.update(v for v in super().__iter__() if v is not None)
        return super().__iter__()


class Parameters(dict[str, Any]):
    """The attributes or weights of a layer that is read; accessing an absent one refuses the layer.
    `read` are the keys that were accessed.
    """

    def __init__(self, values: Mapping[str, Any] = MappingProxyType({})) -> None:
        super().__init__(values)
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return a parameter, and record that it was read."""
        self.read.add(key)
        return super().get(key, default)

    def __missing__(self, key: str) -> Any:
        raise MappingError(f"required attribute {key!r} is absent", "R110")


@dataclass(eq=False, repr=False)
class Node:
    """A canonical operator.

    Inputs and outputs are values of the shared graph, with types and shapes.
    """

    op: str
    domain: str = ""
    attrs: dict[str, Any] = field(default_factory=dict)
    inputs: list[ir.Value | None] = field(default_factory=list)
    outputs: list[ir.Value] = field(default_factory=list)
    last: bool = False  # the data inputs and outputs are stored channels-last

    def input(self, index: int) -> ir.Value | None:
        """Return an input, None if it is absent."""
        return self.inputs[index] if index < len(self.inputs) else None

    def set_input(self, index: int, value: ir.Value | None) -> None:
        """Set an input; the ones before it that are missing become absent."""
        self.inputs.extend([None] * (index + 1 - len(self.inputs)))
        self.inputs[index] = value


@dataclass(eq=False, repr=False)
class Layer:
    """A layer of a foreign format.

    `attrs` are its parameters as the codec reads them, `blobs` its weights (arrays, never copied),
    inputs and outputs the values of the shared graph for its activations. When lifting, `outputs`
    are the types and shapes that the file declares (may be empty); when lowering, the values that
    the layer writes. Layers compare by identity.
    """

    kind: str
    name: str = ""
    attrs: dict[str, Any] = field(default_factory=dict)
    blobs: dict[str, Any] = field(default_factory=dict)
    inputs: list[ir.Value | None] = field(default_factory=list)
    outputs: list[ir.Value] = field(default_factory=list)
    where: Where = field(default_factory=Where)
    extra: Any = None  # the codec's own node, for special cases
    source: ir.Node | None = None  # when lowering: the node that the layer is written for
