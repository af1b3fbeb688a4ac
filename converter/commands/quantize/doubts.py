"""Warnings of data that say little about those of later use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from converter.commands.quantize.scales import Observer
from converter.commands.verify.program import Program
from converter.errors import Diagnostic
from converter.graph.infer import Arrays, constant
from converter.graph.network import Network
from converter.graph.value import operand

FAR = 4.0  # deviations of the data from the mean that a normalization expects


def doubts(
    observed: Observer, model: Network, samples: int, feeds: Sequence[Arrays]
) -> Iterator[Diagnostic]:
    """Yield warnings of data that say little about those of later use; `feeds` are some of them."""
    if samples < 2:
        yield _doubt("one sample does not show the ranges", "use at least ten different samples")
    inputs = [str(v.name) for v in model.ir.graph.inputs]
    for name, (low, high, odd) in observed.seen.items():
        if odd:
            why = f"{odd} values of {name!r} are NaN or infinite and were left out of the ranges"
            yield _doubt(why, "run netconv run to find the input")
        if name in inputs and low == high:
            yield _doubt(f"input {name!r} is {low:g} in all samples", "use real inputs")
    yield from _unexpected(model, feeds)


def _doubt(message: str, help: str) -> Diagnostic:
    return Diagnostic("N411", message, "warning", help=help)


def _unexpected(model: Network, feeds: Sequence[Arrays]) -> Iterator[Diagnostic]:
    """Yield a warning if the first normalization sees other numbers than in training: its mean and
    variance are those of the training data.
    """
    kinds = (n for n in model.ir.graph if (n.domain, n.op_type) == ("", "BatchNormalization"))
    norm = next(kinds, None)
    name = "" if norm is None else str(operand(norm).name)
    mean, variance = (None if norm is None else constant(norm.inputs[i]) for i in (3, 4))
    if mean is None or variance is None:
        return
    values = Program(model).tensors([name], feeds)
    rows = [np.moveaxis(v[name], 1, 0).reshape(mean.size, -1) for v in values]
    numbers, spread = np.concatenate(rows, axis=1), np.sqrt(variance + 1e-12)
    away = float(np.median(np.abs(numbers.mean(axis=1) - mean) / spread))
    wider = float(np.median(numbers.std(axis=1) / spread))
    if away > FAR or not 1 / FAR < wider < FAR:
        why = (
            f"the data differ from the training data: at {name!r} the mean is {away:.1f} "
            f"deviations away, and the deviation is {wider:.2g} times as large"
        )
        yield _doubt(why, "check --mean, --std and --layout of images, or the scale of the arrays")
