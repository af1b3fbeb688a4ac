"""Softmax, and normalizations over channels and along axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from converter.formats.lite.fields import CODES
from converter.formats.lite.normalization import Beta, Neighbors, Norm, SoftmaxAxis
from converter.formats.nnapi.collector import Ref
from converter.formats.nnapi.rules.context import LiftContext, LowerContext
from converter.formats.nnapi.rules.fields import CHANNEL_AXIS
from converter.mapping.fields import Attr, Detail, attrs
from converter.mapping.rules import op


def read_uniform(r: LiftContext) -> None:
    """Read one factor and one addend for all channels. Per-channel ones become separate
    operations.
    """
    dtype = r.data.dtype.numpy() if r.data.dtype is not None else np.dtype(np.float32)
    numbers = (r.attr(key, float) for key in UNIFORM.keys)
    r.set_inputs(r.data, *(np.full(r.channels(), n, dtype) for n in numbers))


def write_uniform(w: LowerContext) -> None:
    """Write scale and bias as attributes if they are equal for all channels, else as a MUL and an
    ADD after the operation.
    """
    gamma, beta = w.constant(1, "the factor"), w.constant(2, "the addend")
    if (gamma == gamma[0]).all() and (beta == beta[0]).all():
        w.set(gamma=float(gamma[0]), beta=float(beta[0]))
        return
    w.set(gamma=1.0, beta=0.0)
    code, dims = CODES.lower(w.activation()), w.about(w.ref(0)).dimensions

    def step(kind: str, array: Any, activation: int) -> None:
        def append(x: Ref, y: Ref) -> None:
            w.operation(kind, y, a=x, b=w.number(array, x), activation=activation)

        w.after_first(dims, append)

    step("MUL", gamma, 0)
    step("ADD", beta, code)


UNIFORM = Detail(read=read_uniform, write=write_uniform, inputs=(1, 2), keys=("gamma", "beta"))


RULES = [
    op("Softmax", "SOFTMAX", Beta(takes_factor=True), SoftmaxAxis("axis")),
    op("LogSoftmax", "LOG_SOFTMAX", Beta(takes_factor=True), SoftmaxAxis("axis", always=True)),
    op(
        "LRN",
        "LOCAL_RESPONSE_NORMALIZATION",
        CHANNEL_AXIS,
        Neighbors(),
        *attrs(beta=float, bias=float),
    ),
    op("netconv::NormalizeL2", "L2_NORMALIZATION", Norm("axis"), example_inputs="2,3,4,5"),
    op(
        "InstanceNormalization",
        "INSTANCE_NORMALIZATION",
        UNIFORM,
        Attr("epsilon", kind=float),
    ),
]
