"""Random numbers. The generator is the runtime's own, so that the seeds have no meaning
elsewhere.
"""

from __future__ import annotations

from converter.formats.tflite.rules.context import LiftContext, LowerContext
from converter.formats.tflite.rules.fields import data
from converter.formats.tflite.tensors import type_of
from converter.graph.infer import known
from converter.mapping.fields import Field, RequireAttr
from converter.mapping.rules import op


class DrawnShape(Field):
    """The shape, which is an input; a computed one is that of a tensor of zeros."""

    names = ("shape", "dtype", "seed")
    ignored = ("seed",)

    def lift(self, r: LiftContext) -> None:
        shape = known(data(r))
        r.set(dtype=int(type_of(r.result())))
        if shape is None:
            r.node.op += "Like"
            r.set_inputs(r.b.Expand(0.0, r.whole(0)))
        else:
            r.set(shape=[int(n) for n in shape.reshape(-1)])
            r.set_inputs()

    def lower(self, w: LowerContext) -> None:
        w.place(0, w.int32(list(w.attr("shape")), "shape"))


def of_log_probabilities(r: LiftContext) -> None:
    """Read log-probabilities, and the number of classes to draw."""
    r.set(log=1, index=int(type_of(r.result())))
    r.set_input(1, r.whole(1))


RULES = [
    op(
        "RandomUniform",
        "RANDOM_UNIFORM",
        DrawnShape(),
        RequireAttr("low", 0.0),
        RequireAttr("high", 1.0),
    ),
    op(
        "RandomNormal",
        "RANDOM_STANDARD_NORMAL",
        DrawnShape(),
        RequireAttr("mean", 0.0),
        RequireAttr("scale", 1.0),
    ),
    op("netconv::ClassDraws", "MULTINOMIAL", before_lift=of_log_probabilities, lift_only=True),
]
