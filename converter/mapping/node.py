"""The two sides of a row, detached from any file and any graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from converter.diagnostics import Where


class MappingError(Exception):
    """A row (or a special pair) that cannot carry a layer across, and why. `code` is the diagnostic's."""

    def __init__(self, message: str, code: str = "X202", help: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.help = help


@dataclass
class Node:
    """The near side: a canonical operator. Inputs and outputs are values of the shared graph (they know type and shape)."""

    op: str
    domain: str = ""
    attrs: dict[str, Any] = field(default_factory=dict)
    inputs: list[ir.Value | None] = field(default_factory=list)
    outputs: list[ir.Value] = field(default_factory=list)
    last: bool = False  # the data inputs and outputs are stored channels-last

    def input(self, index: int) -> ir.Value | None:
        return self.inputs[index] if index < len(self.inputs) else None

    def set_input(self, index: int, value: ir.Value | None) -> None:
        self.inputs.extend([None] * (index + 1 - len(self.inputs)))
        self.inputs[index] = value


@dataclass(eq=False)
class Layer:
    """The far side: a layer of a foreign format.

    `attrs` are its parameters as the codec gives them, `blobs` its weights (arrays, never copied), inputs and outputs the
    values of the shared graph that its activations are. On lifting, `outputs` holds what the file declares about them
    (types and shapes; may be empty); on lowering, the values that the layer writes. Two layers that say the same are still two.
    """

    kind: str
    name: str = ""
    attrs: dict[str, Any] = field(default_factory=dict)
    blobs: dict[str, Any] = field(default_factory=dict)
    inputs: list[ir.Value | None] = field(default_factory=list)
    outputs: list[ir.Value] = field(default_factory=list)
    where: Where = field(default_factory=Where)
    extra: Any = None  # the codec's own node, for special pairs
