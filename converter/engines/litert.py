"""Running an operand table, or a model that can be written as one, on LiteRT, an engine that shares no code with ours."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from converter.diagnostics import Diagnostic
from converter.engines import file
from converter.errors import ConverterError, UsageError
from converter.files import Output

if TYPE_CHECKING:
    from converter.formats.nnapi.table import Array, Table
    from converter.model import Model


def available() -> bool:
    """Whether ai-edge-litert is installed; nothing is imported."""
    return file.available("litert")


def run(table: Table, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs of a valid table by operand name, for inputs by operand name in the operands' own types and layout.

    Raises UsageError U502 when LiteRT is not installed, UnsupportedError X202 for what a `.tflite` cannot hold, ConverterError N403 when the
    feeds do not fit or LiteRT refuses the model.
    """
    if not available():
        raise UsageError(Diagnostic("U502", "LiteRT is not installed", help="pip install 'netconv[litert]'"))
    from converter.formats.nnapi.tflite import write_tflite

    inputs = _inputs(table, feeds)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        with Output(path) as out:
            write_tflite(table, out)
        outputs = _invoke(path, inputs)
    return {table.operands[i].name: value for i, value in zip(table.outputs, outputs, strict=True)}


class Prepared:
    """A model as the table that it is written as; feeds and results are in the model's own types and layout."""

    def __init__(self, model: Model) -> None:
        from converter.formats.nnapi.lower import lower

        self.table = lower(model, lite=True)
        self.outputs = model.outputs

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        given = {}
        for i in self.table.inputs:
            operand = self.table.operands[i]
            value, perm = np.asarray(feeds[operand.name]), operand.permutation
            if operand.source_shape is not None:
                value = value.reshape(operand.dimensions if perm is None else [operand.dimensions[perm.index(i)] for i in range(len(perm))])
            given[operand.name] = (value if perm is None else value.transpose(perm)).reshape(operand.dimensions)
        found = run(self.table, given)
        results: dict[str, Array] = {}
        for i, info in zip(self.table.outputs, self.outputs, strict=True):
            operand = self.table.operands[i]
            value, perm = found[operand.name], operand.permutation
            value = value if perm is None else value.transpose(np.argsort(perm))
            shape = info.shape if info.shape is not None and all(isinstance(d, int) for d in info.shape) else value.shape
            results[info.name] = value.reshape(shape).astype(info.dtype, copy=False)  # type: ignore[arg-type]
        return results


def prepare(model: Model) -> Prepared:
    """The model as LiteRT runs it: written as an operand table. Raises UnsupportedError for what that cannot express."""
    if not available():
        raise UsageError(Diagnostic("U502", "LiteRT is not installed", help="pip install 'netconv[litert]'"))
    return Prepared(model)


def _inputs(table: Table, feeds: Mapping[str, Array]) -> list[Array]:
    values = []
    for i in table.inputs:
        operand = table.operands[i]
        if operand.name not in feeds:
            raise ConverterError(Diagnostic("N403", f"no value for the input {operand.name!r}"))
        value = np.asarray(feeds[operand.name])
        stated = operand.dimensions
        if value.ndim != len(stated) or any(n and n != m for n, m in zip(stated, value.shape, strict=True)):
            raise ConverterError(Diagnostic("N403", f"the input {operand.name!r} has shape {list(value.shape)}, the operand has {stated}"))
        assert operand.type.dtype is not None
        values.append(value.astype(operand.type.dtype))
    return values


def _invoke(model: Path, inputs: list[Array]) -> list[Array]:
    found = file.run("litert", model, (), [inputs])
    if found.stage != "done":
        raise ConverterError(Diagnostic("N403", f"LiteRT refuses the model: {found.error or 'Python has no arrays of the types of its inputs'}"))
    return [found.results[0][i] for i in range(len(found.outputs))]
