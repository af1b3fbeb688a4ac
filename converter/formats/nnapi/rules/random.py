"""Random numbers."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.nnapi.rules.context import LiftContext, LowerContext, Stored
from converter.mapping.fields import Attr, Group, Guard, ImpliedAttrs, RequireAttr
from converter.mapping.fusing import only_user
from converter.mapping.rules import op


def seed_of(r: LiftContext) -> dict[str, Any]:
    """Return the seed of 64 bits that two integers of 32 bits make up, the lower one first."""
    low, high = r.attr("seeds", list)
    return {"seed": (low & 0xFFFFFFFF) | high << 32}


def seeds_of(w: LowerContext) -> dict[str, Any]:
    """Return the two halves of a seed."""
    seed = int(w.attr("seed"))
    low = seed & 0xFFFFFFFF
    return {"seeds": [low - (low >> 31 << 32), seed >> 32]}


def integer_classes(w: LowerContext) -> None:
    """Fuse the Cast after the operator, since classes are integers in NNAPI."""
    user = only_user(w.out)
    whole = (ir.DataType.INT32, ir.DataType.INT64)
    if user is None or user.op_type != "Cast" or user.outputs[0].dtype not in whole:
        raise MappingError("the sampled classes must be cast to int32")
    w.layer.outputs = [w.absorb(user)]


RULES = [
    op(
        "netconv::RandomCategorical",
        "RANDOM_MULTINOMIAL",
        Guard("the data must have two axes", lambda w: len(w.static()) == 2),
        Stored(),
        Attr("samples", kind=int),
        Group(("seed",), ("seeds",), seed_of, seeds_of),
        RequireAttr("logits", 1),
        RequireAttr("temperature", 1.0),
        ImpliedAttrs(("eps",)),  # of probabilities
        before_lower=integer_classes,
    ),
]
