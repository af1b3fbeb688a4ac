"""Random numbers, which differ between engines."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.coreml.mlprogram.rules.context import LiftContext, LowerContext
from converter.formats.coreml.mlprogram.rules.fields import mil
from converter.mapping.codecs import Codec
from converter.mapping.fields import Attr, Detail, Field, RequireAttr
from converter.mapping.rules import Custom, Rule, op


def read_seed(r: LiftContext) -> None:
    """Convert the seed: an optional number in ONNX, an integer with -1 for none in the
    operation.
    """
    found = r.attr("seed", int, -1)
    r.set(seed=None if found < 0 else float(found))


def write_seed(w: LowerContext) -> None:
    """Write the seed, an integer; -1 if there is none."""
    w.set(seed=int(w.attr("seed", -1)))


SEED = Detail(read=read_seed, write=write_seed, names=("seed",), keys=("seed",))


class Blank(Field):
    """The requested shape, given by an operand of that shape: zeros, or a parameter's number."""

    def __init__(self, *number: str) -> None:
        self.number, self.keys = number, ("shape", *number)

    def lift(self, r: LiftContext) -> None:
        number = r.attr(self.number[0], float, 0.5) if self.number else 0.0
        r.set_inputs(r.b.Expand(np.float32(number), r.whole("shape")))


def take_logits(r: LiftContext) -> None:
    """Read whether the operand contains log-probabilities or probabilities of the classes."""
    if r.attr("mode", str, "logits") != "logits":
        r.data = r.b.Log(r.data)


def drawn(name: str, kind: str, *fields: Field) -> list[Rule]:
    """Write the shape of random numbers, an attribute or the shape of an operand in ONNX."""
    shape, float32 = Attr("shape", kind=list), RequireAttr("dtype", int(ir.DataType.FLOAT))
    return [
        op(f"{name}Like", kind, Blank(), *fields, SEED, lift_only=True),
        op(name, kind, shape, *fields, float32, SEED, lower_only=True),
    ]


FLOAT = Codec(float, np.float32)
RULES: list[Rule | Custom] = [
    *drawn(
        "RandomNormal",
        "random_normal",
        Attr("mean", kind=FLOAT, default=0.0),
        Attr("scale", "stddev", FLOAT, 1.0),
    ),
    *drawn(
        "RandomUniform",
        "random_uniform",
        Attr("low", kind=FLOAT, default=0.0),
        Attr("high", kind=FLOAT, default=1.0),
    ),
    op("Bernoulli", "random_bernoulli", Blank("prob"), SEED, lift_only=True),
    mil(
        "Multinomial",
        "random_categorical",
        "x",
        Detail(read=take_logits, keys=("mode",)),
        Attr("sample_size", "size", int, 1),
        RequireAttr("dtype", int(ir.DataType.INT32)),
        SEED,
        lift_only=True,
    ),
]
