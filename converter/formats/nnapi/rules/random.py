"""Random numbers."""

from __future__ import annotations

import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.nnapi.rules.context import Reading, Stored, Writing
from converter.mapping.fields import Attr, Field, Guard, Implied, Only
from converter.mapping.fusing import only_user
from converter.mapping.rules import op


class Seeds(Field):
    """The two seeds are the halves of one."""

    names = ("seed",)
    keys = ("seeds",)

    def lift(self, r: Reading) -> None:
        low, high = r.attr("seeds", list)
        r.set(seed=(low & 0xFFFFFFFF) | high << 32)

    def lower(self, w: Writing) -> None:
        seed = int(w.attr("seed"))
        low = seed & 0xFFFFFFFF
        w.set(seeds=[low - (low >> 31 << 32), seed >> 32])


class WholeClasses(Field):
    """The classes are whole numbers there: the Cast behind the operator becomes a part of it."""

    def lower(self, w: Writing) -> None:
        user = only_user(w.out)
        whole = (ir.DataType.INT32, ir.DataType.INT64)
        if user is None or user.op_type != "Cast" or user.outputs[0].dtype not in whole:
            raise MappingError("the drawn classes are whole numbers there")
        w.layer.outputs = [w.absorb(user)]


RULES = [
    op(
        "netconv::RandomCategorical",
        "RANDOM_MULTINOMIAL",
        Guard("draws are from rows", lambda w: len(w.static()) == 2),
        Stored(),
        Attr("samples", kind=int),
        Seeds(),
        Only("logits", 1),
        Only("temperature", 1.0),
        Implied(("eps",)),  # of probabilities
        WholeClasses(),
    ),
]
