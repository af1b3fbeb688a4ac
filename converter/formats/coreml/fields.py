"""Fields of rows that several dialects share."""

from __future__ import annotations

from typing import Any

from converter.errors import no_match
from converter.graph.value import producer_if
from converter.mapping.fields import Field
from converter.record import record


@record
class Gate(Field):
    """A factor of a product that is the Sigmoid of the other one, times `slope`."""

    slope: float = 1.0
    inputs = (1,)

    def lift(self, r: Any) -> None:
        x = r.data
        r.set_input(1, r.b.Sigmoid(x if self.slope == 1 else x * self.slope))

    def lower(self, w: Any) -> None:
        x, y = w.data, w.input(1)
        for one, other in ((x, y), (y, x)):
            gate = producer_if(other, "Sigmoid")
            if gate is not None and gate.inputs[0] is one:
                w.set_operand(0, one)
                return
        raise no_match("only x * Sigmoid(x) is supported")
