"""Variables of a file as states of the network: an input that may be left out and then has the value
at the start, and an output that is what the variable holds afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, MappingError, UsageError, Where
from converter.graph.build import Builder
from converter.graph.infer import Array, shape_of
from converter.graph.names import fresh_public_name, public_name, set_public_name
from converter.graph.network import Network


def join_states(network: Network, pairs: Iterable[tuple[str, str]]) -> None:
    """Makes states of inputs and the outputs that are their next values, by names; they begin with
    zeros. UsageError U501 for names that the network does not have, and for pairs that are not of
    one type and one size that is known.
    """
    graph = network.ir.graph
    inputs = {public_name(v): v for v in graph.inputs}
    outputs = {public_name(v): v for v in graph.outputs}
    states, starts = {}, {}
    for past, present in pairs:
        for name, known, what in ((past, inputs, "input"), (present, outputs, "output")):
            if name not in known:
                message = f"--state names an {what} that the model does not have: {name}"
                raise UsageError(Diagnostic("U501", message, help=f"it has: {', '.join(known)}"))
        states[past], starts[past] = present, _zeros(inputs[past], outputs[present])
    if len(set(states.values())) < len(states):
        raise UsageError(Diagnostic("U501", "--state names one output as the next of two states"))
    network.interface["states"] = {**network.interface.get("states", {}), **states}
    network.interface["defaults"] = {**network.interface.get("defaults", {}), **starts}


def _zeros(past: ir.Value, present: ir.Value) -> Array:
    """What a state is at the start."""
    sizes, after, dtype = shape_of(past), shape_of(present), past.dtype
    name, help = public_name(past), ""
    if dtype is None or dtype == ir.DataType.STRING or dtype != present.dtype:
        reason = f"{name} is {_word(past)}, {public_name(present)} {_word(present)}"
    elif sizes is None or after is None:
        open_ = past if sizes is None else present
        reason = f"the size of {public_name(open_)} is not known"
        help = "--inputs fixes the sizes of inputs"
    elif sizes != after:
        reason = f"{name} is {list(sizes)}, {public_name(present)} {list(after)}"
        help = "a state keeps its size; what it grows by has to be written into it"
    else:
        return np.zeros(sizes, dtype.numpy())
    message = f"--state {name}={public_name(present)}: {reason}"
    raise UsageError(Diagnostic("U501", message, where=Where(layer=name), help=help))


def _word(value: ir.Value) -> str:
    return "of no known type" if value.dtype is None else value.dtype.name


@dataclass
class State:
    """What a variable holds: `value` now, None before it is assigned; `initial` at the start.

    `source` is the graph's input that stands for it, once it was read.
    """

    name: str
    initial: Array | None = None
    value: ir.Value | None = None
    source: ir.Value | None = None


@dataclass
class Hashtable:
    """Keys and as many values, None before they are set; they never change afterwards."""

    keys: Array | None = None
    values: Array | None = None


@dataclass
class Variables:
    """States of the network, each an input that may be left out and an output `NAME_out`.

    `b` writes into the main graph, whose inputs they are. `tables` are by their numbers in the
    file.
    """

    b: Builder
    states: dict[str, State] = field(default_factory=dict)
    tables: dict[int, Hashtable] = field(default_factory=dict)

    def read(self, state: State) -> ir.Value:
        """The value of a state; the first time that at the start."""
        if state.value is None:
            if state.initial is None:
                raise MappingError(f"the variable {state.name!r} is read before it is assigned")
            dtype, name = (
                ir.DataType.from_numpy(state.initial.dtype),
                fresh_public_name(self.b.graph, state.name),
            )
            source = self.b.input(name, dtype, list(state.initial.shape))
            set_public_name(source, name)
            state.source = state.value = source
        return state.value

    def deliver(self, names: Mapping[str, str] | None = None) -> dict[str, str]:
        """Outputs of all states that the network reads and changes, by the names of inputs; one
        that nothing needs is no input, either. `names`: what outputs of states are called, where
        a file says so.
        """
        found = {}
        for state in self.states.values():
            if state.source is not None and state.value is state.source and not state.source.uses():
                self.b.graph.inputs.remove(state.source)
                state.source = None
            if state.source is None or state.value is state.source or state.value is None:
                continue
            told = (names or {}).get(state.name, f"{public_name(state.source)}_out")
            name = fresh_public_name(self.b.graph, told)
            self.b.output(state.value)
            set_public_name(self.b.graph.outputs[-1], name)
            found[public_name(state.source)] = name
        return found

    def defaults(self) -> dict[str, Array]:
        """The values at the start, by the names of inputs."""
        return {
            public_name(s.source): s.initial
            for s in self.states.values()
            if s.source is not None and s.initial is not None
        }
