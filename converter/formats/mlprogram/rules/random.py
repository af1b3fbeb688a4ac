"""Random numbers, which are others in each engine."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.mlprogram.rules.context import Reading, Writing
from converter.graph.value import Value
from converter.mapping.codecs import Codec
from converter.mapping.fields import Attr, Field, Only
from converter.mapping.rules import Custom, Rule, custom, op


def blank(r: Reading, number: float = 0.0) -> Value:
    """A number in the shape that is asked for."""
    return r.b.Expand(r.b.const(np.float32(number)), r.whole("shape"))


def seed(r: Reading) -> float | None:
    found = r.attr("seed", int, -1)
    return None if found < 0 else float(found)


def normal(r: Reading) -> Value:
    mean, scale = r.attr("mean", float, 0.0), r.attr("stddev", float, 1.0)
    return r.b.RandomNormalLike(blank(r), mean=mean, scale=scale, seed=seed(r))


def uniform(r: Reading) -> Value:
    low, high = r.attr("low", float, 0.0), r.attr("high", float, 1.0)
    return r.b.RandomUniformLike(blank(r), low=low, high=high, seed=seed(r))


def bernoulli(r: Reading) -> Value:
    return r.b.Bernoulli(blank(r, r.attr("prob", float, 0.5)), seed=seed(r))


def categorical(r: Reading) -> Value:
    """Classes drawn by logarithms of probabilities, or by these."""
    x = r.x
    logits = x if r.attr("mode", str, "logits") == "logits" else r.b.Log(x)
    return r.b.Multinomial(
        logits, sample_size=r.attr("size", int, 1), dtype=int(ir.DataType.INT32), seed=seed(r)
    )


class Seed(Field):
    """ONNX's seed, a number or none at all; the operation's is a whole number, -1 for none."""

    names = ("seed",)
    keys = ("seed",)

    def lower(self, w: Writing) -> None:
        w.set(seed=int(w.attr("seed", -1)))


def drawn(name: str, kind: str, *fields: Field) -> Rule:
    shape, float32 = Attr("shape", kind=list), Only("dtype", int(ir.DataType.FLOAT))
    return op(name, kind, shape, *fields, float32, Seed(), lower_only=True)


FLOAT = Codec(float, np.float32)
MEAN, SCALE = Attr("mean", kind=FLOAT), Attr("scale", "stddev", FLOAT)
LOW, HIGH = Attr("low", kind=FLOAT), Attr("high", kind=FLOAT)
RULES: list[Rule | Custom] = [
    drawn("RandomNormal", "random_normal", MEAN, SCALE),
    drawn("RandomUniform", "random_uniform", LOW, HIGH),
    custom("", "random_normal", normal),
    custom("", "random_uniform", uniform),
    custom("", "random_bernoulli", bernoulli),
    custom("", "random_categorical", categorical),
]
