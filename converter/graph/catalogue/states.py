"""What a network keeps from one run to the next."""

from __future__ import annotations

from converter.graph.build import Builder, Value
from converter.graph.extensions import extension


@extension
def State(b: Builder, state: Value, initial: Value) -> Value:
    """What a state holds: `state`, an input of the network, for which `initial` stands in the first
    run, where it may be left out.
    """
    return b.Identity(state)
