"""Names of layers, inputs and outputs. v11 declares the names of inputs and outputs at their ports;
in v10 they are those of the layers that produce them.

The output of a layer NAME is called NAME, one of several is NAME.INDEX: its position, independent
of its port number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import onnx_ir as ir

from converter.errors import Diagnostic, Where
from converter.graph.names import public_name


def output_name(layer: str, index: int, count: int) -> str:
    """Return the name of the `index`th of `count` outputs of a layer that has no tensor name."""
    return layer if count == 1 else f"{layer}.{index}"


def all_names(layer: str, count: int) -> set[str]:
    """Return the name of a layer, and those of its outputs."""
    return {layer, *(output_name(layer, i, count) for i in range(count))}


class BoundaryNames:
    """The names of a network's inputs and outputs, which are unique: otherwise the runtime does not
    load the file (v10), or renames one (v11).
    """

    def __init__(
        self, graph: ir.Graph, states: Sequence[str], converted: Callable[[ir.Value], bool]
    ) -> None:
        """`converted` determines whether readers present an input or output in another type: then
        they add a Convert to it, which has a separate name.
        """
        self.names: dict[ir.Value, str] = {}
        self.again: dict[ir.Value, ir.Value] = {}  # output -> the input that it is, under one name
        self.notes: list[Diagnostic] = []
        self.taken: set[str] = set()
        for value in graph.inputs:
            self._enter(value, "input")
        given = {public_name(v): v for v in graph.inputs}
        for value in graph.outputs:
            name, node = public_name(value), value.producer()
            same = given.get(name)
            if (
                same is not None
                and not converted(same)
                and not converted(value)
                and node is not None
                and node.op_type == "Identity"
                and not node.domain
                and node.inputs[0] is same
            ):
                self.again[value] = same
                self.names[value] = self.names[same]
            elif name not in states:
                self._enter(value, "output")

    def _enter(self, value: ir.Value, kind: str) -> None:
        wanted = name = public_name(value)
        count = 0
        while name in self.taken:
            count += 1
            name = f"{wanted}_{count}"
        if count:
            message = (
                f"{kind} {wanted!r} is renamed to {name!r}, because another "
                "input or output has that name"
            )
            self.notes.append(
                Diagnostic("X210", message, level="warning", where=Where(layer=wanted, kind=kind))
            )
        self.taken.add(name)
        self.names[value] = name

    def layer(self, outputs: Sequence[ir.Value]) -> str:
        """Return the name that a layer must have, so that its outputs have those of the network's;
        "" when it is free, or no name will do.
        """
        wanted = {i: self.names[v] for i, v in enumerate(outputs) if v in self.names}
        if len(outputs) == 1 or not wanted:
            return wanted.get(0, "")
        ends = {
            name.removesuffix(f".{i}") if name.endswith(f".{i}") else ""
            for i, name in wanted.items()
        }
        (name,) = ends if len(ends) == 1 else ("",)
        return name if name not in self.taken else ""


class Names:
    """Names of the layers of one body; `taken` are names that `free` does not return."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self.taken = set(reserved)
        self._used: set[str] = set()
        self._count: dict[str, int] = {}

    def free(self, hint: str, outputs: int = 1) -> str:
        """Return `hint` if it and the names of the layer's outputs are not taken, else `hint_1`,
        `hint_2`, ...
        """
        name, count = hint, self._count.get(hint, 0)
        while not self.taken.isdisjoint(names := all_names(name, outputs)):
            count += 1
            name = f"{hint}_{count}"
        self._count[hint] = count
        self.taken.update(names)
        return self.own(name)

    def own(self, name: str) -> str:
        """Return a name for one layer; "" if another layer has it already."""
        if not name or name in self._used:
            return ""
        self.taken.add(name)
        self._used.add(name)
        return name
