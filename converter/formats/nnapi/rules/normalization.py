"""Softmax, and normalisations over channels and along axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.nnapi.rules.context import Reading, Writing
from converter.formats.nnapi.rules.fields import ChannelAxis
from converter.graph.infer import known
from converter.mapping.fields import Attr, Field, attrs
from converter.mapping.fusing import only_user
from converter.mapping.rules import op, ops
from converter.passes.lite.fields import Neighbours

SMALLEST_NORM = 1e-6  # AOSP divides by the larger of this and the norm


def scales_a_softmax(node: ir.Node) -> bool:
    """Whether a Mul is the factor of a Softmax, which has one of its own."""
    user = only_user(node.outputs[0])
    softmax = user is not None and user.op_type in ("Softmax", "LogSoftmax") and not user.domain
    return softmax and factor_of(node) is not None


def factor_of(node: ir.Node | None) -> tuple[ir.Value, float] | None:
    """x and c of x * c with a positive scalar constant c."""
    if node is None or node.op_type != "Mul" or node.domain:
        return None
    x, c = node.inputs
    array = known(c)
    if x is None or array is None or array.size != 1:
        return None
    factor = float(array.reshape(-1)[0])
    return (x, factor) if factor > 0 else None


class Beta(Field):
    """`beta` <-> a factor in front of the operator."""

    keys = ("beta",)

    def lift(self, r: Reading) -> None:
        beta = r.attr("beta", float)
        if beta != 1.0:
            r.data = r.data * r.b.like(r.data, beta)

    def lower(self, w: Writing) -> None:
        producer = w.data.producer()
        scaled = producer is not None and scales_a_softmax(producer)
        x, w.layer.attrs["beta"] = (factor_of(producer) if scaled else None) or (w.data, 1.0)
        w.operands[0] = w.real(x)


class SoftmaxAxis(Field):
    """`axis`, which is left out for the last one of two or four axes.

    Of other ranks the last axis is written as that of a matrix.

    `LOG_SOFTMAX` always has it.
    """

    names = ("axis",)
    keys = ("axis",)

    def lift(self, r: Reading) -> None:
        r.set(axis=r.attr("axis", int, -1) % max(1, r.rank(r.data)))

    def lower(self, w: Writing) -> None:
        dims = w.static()
        if w.layer.kind == "LOG_SOFTMAX" or w.axis() != len(dims) - 1:
            w.set(axis=w.axis())
        elif len(dims) not in (2, 4):
            rows = [int(np.prod(dims[:-1])), dims[-1]]
            w.operands[0] = w.reshaped(w.ref(0), rows)
            w.behind(rows, w.reshape)


class Norm(Field):
    """One axis, whose norm is at least 1e-6; without `axis`, the last of four."""

    names = ("axes", "eps", "eps_mode")
    keys = ("axis",)

    def lift(self, r: Reading) -> None:
        x = r.data
        axis = r.attr("axis", int, -1) % max(1, r.rank(x))
        r.set(axes=[axis], eps=SMALLEST_NORM**2, eps_mode="max")
        if x.dtype == ir.DataType.FLOAT16:  # its own square would vanish there
            r.data = r.cast(x, ir.DataType.FLOAT)
            r.behind(lambda y: r.cast(y, ir.DataType.FLOAT16))

    def lower(self, w: Writing) -> None:
        rank, eps, limit = len(w.static()), w.attr("eps"), SMALLEST_NORM**2
        axes = [int(i) % rank for i in w.attr("axes")]
        smaller = eps <= limit and w.attr("eps_mode") == "add"
        if len(axes) != 1 or not (smaller or np.isclose(eps, limit, rtol=1e-3, atol=0)):
            raise MappingError("the smallest norm is 1e-6 there, and one axis is normalised")
        if (rank, axes[0]) != (4, 3):
            w.set(axis=axes[0])


class Uniform(Field):
    """One factor and one addend for all channels there.

    Others follow as operations of their own.
    """

    inputs = (1, 2)
    keys = ("gamma", "beta")

    def lift(self, r: Reading) -> None:
        dtype = r.data.dtype.numpy() if r.data.dtype is not None else np.dtype(np.float32)
        numbers = (r.attr(key, float) for key in self.keys)
        r.set_inputs(r.data, *(np.full(r.channels(), n, dtype) for n in numbers))

    def lower(self, w: Writing) -> None:
        gamma, beta = w.constant(1, "the factor"), w.constant(2, "the addend")
        if (gamma == gamma[0]).all() and (beta == beta[0]).all():
            w.set(gamma=float(gamma[0]), beta=float(beta[0]))
            return
        w.set(gamma=1.0, beta=0.0)
        w.fuse, dims = True, w.about(w.ref(0)).dimensions

        def step(kind: str, array: Any, last: bool) -> None:
            w.behind(
                dims,
                lambda x, y: w.operation(
                    kind, y, a=x, b=w.number(array, x), activation=w.activation if last else 0
                ),
            )

        step("MUL", gamma, False)
        step("ADD", beta, True)


RULES = [
    *ops("Softmax=SOFTMAX LogSoftmax=LOG_SOFTMAX", Beta(), SoftmaxAxis()),
    op(
        "LRN",
        "LOCAL_RESPONSE_NORMALIZATION",
        ChannelAxis(),
        Neighbours(),
        *attrs(beta=float, bias=float),
    ),
    op("netconv::NormalizeL2", "L2_NORMALIZATION", Norm(), given="2,3,4,5"),
    op(
        "InstanceNormalization",
        "INSTANCE_NORMALIZATION",
        Uniform(),
        Attr("epsilon", kind=float),
    ),
]
