"""Variables of a file as states of the network: an optional input, which defaults to the initial
value, and an output with the variable's final value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import onnx_ir as ir

from converter.errors import MappingError
from converter.graph import EXTENSION_DOMAIN
from converter.graph.build import Builder
from converter.graph.infer import Array
from converter.graph.names import fresh_public_name, public_name, set_public_name
from converter.record import record


@record
class State:
    """The value of a variable: `value` now, None before it is assigned; `initial` at the start.

    `source` is the graph's input for it, once it has been read.
    """

    name: str
    initial: Array | None = None
    value: ir.Value | None = None
    source: ir.Value | None = None


@record
class Hashtable:
    """The keys and values of a table, None before they are set; they never change afterwards."""

    keys: Array | None = None
    values: Array | None = None


@record
class Variables:
    """The states of the network, each an optional input and an output `NAME_out`.

    `b` writes into the main graph, whose inputs they are. `tables` are indexed by their numbers in
    the file.
    """

    b: Builder
    states: dict[str, State] = field(default_factory=dict)
    tables: dict[int, Hashtable] = field(default_factory=dict)

    def read(self, state: State) -> ir.Value:
        """Return the value of a state; the first read returns its input."""
        if state.value is None:
            if state.initial is None:
                raise MappingError(f"variable {state.name!r} is read before it is assigned")
            dtype, name = (
                ir.DataType.from_numpy(state.initial.dtype),
                fresh_public_name(self.b.graph, state.name),
            )
            source = self.b.input(name, dtype, list(state.initial.shape))
            set_public_name(source, name)
            state.source = state.value = source
        return state.value

    def deliver(self, names: Mapping[str, str] | None = None) -> dict[str, str]:
        """Add outputs for all states that the network reads and changes, and return them by the
        names of inputs.

        Unused inputs are removed. `names`: names of the states' outputs that the file declares.
        """
        found = {}
        for state in self.states.values():
            if state.source is not None and state.value is state.source and not state.source.uses():
                self.b.graph.inputs.remove(state.source)
                state.source = None
            if state.source is None or state.value is state.source or state.value is None:
                continue
            declared = (names or {}).get(state.name, f"{public_name(state.source)}_out")
            name = fresh_public_name(self.b.graph, declared)
            self.b.output(state.value)
            set_public_name(self.b.graph.outputs[-1], name)
            found[public_name(state.source)] = name
        return found

    def defaults(self) -> dict[str, Array]:
        """Return the initial values, by the names of inputs."""
        return {
            public_name(s.source): s.initial
            for s in self.states.values()
            if s.source is not None and s.initial is not None
        }


# states whose initial value is computed ----------------------------------------------------------


def begun_states(graph: ir.Graph) -> dict[str, ir.Node]:
    """Return the State operators of a graph, by the public names of the inputs that they read."""
    return {public_name(v): n for n in graph if is_begun(n) and (v := n.inputs[0]) is not None}


def is_begun(node: ir.Node) -> bool:
    """Return whether a node is a State operator, whose state starts at a computed value."""
    return node.op_type == "State" and node.domain == EXTENSION_DOMAIN
