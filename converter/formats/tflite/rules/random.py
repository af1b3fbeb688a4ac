"""Random numbers. The generator is the runtime's own, so that the seeds say nothing elsewhere."""

from __future__ import annotations

import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.tflite.rules.context import Reading, Writing
from converter.formats.tflite.rules.fields import data
from converter.formats.tflite.tensors import type_of
from converter.graph.infer import known
from converter.graph.value import Value, with_operators
from converter.mapping.fields import Field
from converter.mapping.rules import Custom, Rule, custom, op

DRAWS = {"RANDOM_UNIFORM": "RandomUniform", "RANDOM_STANDARD_NORMAL": "RandomNormal"}


def drawn(r: Reading) -> Value:
    """Numbers of a shape: from 0 to 1, or around 0 with a deviation of 1, which are ONNX's
    defaults.
    """
    b, kind, dtype = r.b, DRAWS[r.layer.kind], int(type_of(r.result()))
    shape = known(data(r))
    if shape is not None:
        return with_operators(b.op(kind, shape=[int(n) for n in shape.reshape(-1)], dtype=dtype))
    blank = b.Expand(0.0, r.whole(0))
    return with_operators(b.op(f"{kind}Like", blank, dtype=dtype))


def lower_drawn(w: Writing) -> None:
    """From 0 to 1, or around 0 with a deviation of 1."""
    kind = {v: k for k, v in DRAWS.items()}[w.node.op]
    names = ("low", "high") if kind == "RANDOM_UNIFORM" else ("mean", "scale")
    if [w.attr(n) for n in names] != [0.0, 1.0]:
        raise MappingError("numbers of another range")
    w.put(kind, w.int32(list(w.attr("shape")), "shape"))


class Logits(Field):
    """Chances are given as logarithms."""

    names = ("log", "index")
    inputs = (1,)

    def lift(self, r: Reading) -> None:
        r.node.attrs |= {"log": 1, "index": int(type_of(r.result()))}
        r.node.inputs[1] = r.cast(r.input(1), ir.DataType.INT64)


RULES: list[Rule | Custom] = [
    custom(" ".join(DRAWS.values()), " ".join(DRAWS), drawn, lower_drawn),
    op("netconv::ClassDraws", "MULTINOMIAL", Logits(), lift_only=True),
]
