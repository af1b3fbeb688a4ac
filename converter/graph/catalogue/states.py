"""Values that a network keeps from one run to the next."""

from __future__ import annotations

from converter.graph.build import Builder, Value
from converter.graph.extensions import extension


@extension
def State(b: Builder, state: Value, initial: Value) -> Value:
    """Return the value of a state.

    `state` is an input of the network that may be left out in the first run, which then uses
    `initial`.
    """
    return b.Identity(state)
