"""An operand table as a TensorFlow Lite file; the rows are in `rules.py`.

Operations 0..28 have TensorFlow Lite's numbers and nearly its meaning; scalars become options,
explicit padding becomes SAME or VALID where it is one of the two and a PAD in front of a VALID
operator otherwise. What TensorFlow Lite would compute differently is refused by name.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from converter.engines import litert
from converter.errors import ConverterError, Diagnostic, UnsupportedError, UsageError, Where
from converter.formats.nnapi.operations import NoMatch, bind
from converter.formats.nnapi.table import (
    Array,
    Lifetime,
    Operand,
    OperandType,
    Operation,
    Subgraph,
    Table,
)
from converter.formats.tflite.buffers import separate
from converter.formats.tflite.flatbuffer import (
    LiteGraph,
    LiteModel,
    LiteOperator,
    LiteTensor,
    numbers,
    write_flat,
)
from converter.formats.tflite.schema import schema
from converter.io.files import Output
from lite_tables.arguments import Arguments
from lite_tables.rules import (
    BY_OPERATION,
    HALF,
    LAST,
    LITE_TYPES,
    MOST_TURNED,
    QUANTISED,
    REASONS,
    TURNED,
    Refused,
    Row,
)


def write_tflite(table: Table, out: Output, halves: bool = False) -> list[Diagnostic]:
    """Write a table as a TensorFlow Lite model; the warnings say what the format has no place for.

    Inputs and outputs that the table notes to have more axes have them. Half-precision activations,
    for which there are no kernels, are float32, inputs and outputs too unless `halves`. The table
    must be valid (`validate`). Raises UnsupportedError with every operation that cannot be
    expressed (X202), X204 above 2 GiB.
    """
    model, warnings = lower_model(table, halves)
    write_flat(model, out)
    return warnings


def lower_model(table: Table, halves: bool = False) -> tuple[LiteModel, list[Diagnostic]]:
    problems: list[Diagnostic] = []
    model = LiteModel()
    for i, (prefix, subgraph) in enumerate(table.subgraphs()):
        lowering = Lowering(subgraph, f"body{i - 1}" if i else "main", halves=halves and not i)
        model.graphs.append(lowering.run(prefix, problems))
    if problems:
        raise UnsupportedError(problems)
    for graph in model.graphs:
        separate(graph)
    warnings = (
        [
            Diagnostic(
                "X207",
                "TensorFlow Lite models do not say that float32 may be computed as float16",
                "warning",
            )
        ]
        if table.relaxed
        else []
    )
    for side, indexes in (("input", table.inputs), ("output", table.outputs)):
        for operand in (table.operands[i] for i in indexes):
            if operand.type in HALF and not halves:
                message = (
                    f"the {side} {operand.name} is float16 in the source and float32 in the file: "
                    "TensorFlow Lite has no kernels for it"
                )
                warnings.append(Diagnostic("X211", message, "warning"))
    return model, warnings


class Lowering:
    """One subgraph on its way into a file; tensors are made when something uses them.

    `halves`: its inputs and outputs may be float16.
    """

    def __init__(
        self,
        subgraph: Subgraph,
        name: str,
        lifetimes: list[Lifetime] | None = None,
        halves: bool = False,
    ) -> None:
        self.subgraph, self.halves = subgraph, halves
        self.graph = LiteGraph(name)
        self._lifetimes = subgraph.lifetimes() if lifetimes is None else lifetimes
        self._tensors: dict[int, int] = {}

    def run(self, prefix: str, problems: list[Diagnostic]) -> LiteGraph:
        self.graph.inputs = self._ends(
            self.subgraph.inputs, f"{prefix}inputIndexes", problems, self._input
        )
        for i, operation in enumerate(self.subgraph.operations):
            try:
                self.operation(operation)
            except Refused as e:
                name = (
                    self.subgraph.operands[operation.outputs[0]].name if operation.outputs else ""
                )
                where = Where(path=f"{prefix}operations[{i}]", layer=name, kind=operation.type)
                problems.append(
                    Diagnostic(
                        "X202", f"TensorFlow Lite cannot express {operation.type}: {e}", where=where
                    )
                )
        self.graph.outputs = self._ends(
            self.subgraph.outputs, f"{prefix}outputIndexes", problems, self._output
        )
        return self.graph

    def _ends(
        self, indexes: list[int], place: str, problems: list[Diagnostic], end: Callable[[int], int]
    ) -> list[int]:
        tensors = []
        for k, index in enumerate(indexes):
            try:
                tensors.append(end(index))
            except Refused as e:
                problems.append(
                    Diagnostic(
                        "X202",
                        f"TensorFlow Lite has no such type: {e}",
                        where=Where(path=f"{place}[{k}]"),
                    )
                )
        return tensors

    def operation(self, operation: Operation) -> None:
        from lite_tables.converters import LOWER

        row = BY_OPERATION.get(operation.type)
        if row is None:
            raise Refused(REASONS.get(operation.type, "it has no such operator"))
        try:
            x = Arguments(bind(operation, self.subgraph), self.subgraph, self._lifetimes)
        except NoMatch as e:
            raise Refused(e.message) from None
        check_only(row, x)
        lite = LiteOperator(row.builtin, self._inputs(row, x), [], row.options, _options(row, x))
        lite.outputs = [self.tensor(i) for i in operation.outputs]
        for special in LOWER.get(operation.type, ()):
            special(self, x, lite)
        self.graph.operators.append(lite)

    def _inputs(self, row: Row, x: Arguments) -> list[int]:
        inputs: list[int] = []
        for name in row.tensors:
            bound = x.binding.inputs[name]
            if isinstance(bound, list):
                inputs += [self.tensor(i) for i in bound]
            else:
                inputs.append(self.tensor(bound) if bound is not None and x.given(name) else -1)
        return inputs

    def _outside(self, index: int, inside: LiteTensor) -> LiteTensor:
        """The tensor of an input or output as those have it who run the file."""
        operand = self.subgraph.operands[index]
        return replace(
            inside,
            type=LITE_TYPES[operand.type] if self.halves else inside.type,
            shape=[n or -1 for n in operand.outside]
            if inside.data is None
            else list(operand.outside),
        )

    def _input(self, index: int) -> int:
        inside = self.computed(self.like(self.subgraph.operands[index]))
        outside = self._outside(index, inside)
        given = self._tensors[index] = self.add(outside)
        if outside.type != inside.type:
            self._tensors[index] = self.insert(
                "CAST", [given], outside.shape, f"{outside.name}_float", inside.type
            )
        if outside.shape != inside.shape:
            self._tensors[index] = self.reshaped(
                self._tensors[index], inside.shape, f"{outside.name}_inside"
            )
        return given

    def _output(self, index: int) -> int:
        found = self.tensor(index)
        inside = self.graph.tensors[found]
        outside = self._outside(index, inside)
        if outside.shape != inside.shape:
            found = self.reshaped(found, outside.shape, f"{outside.name}_outside")
        if outside.type != inside.type:
            found = self.insert("CAST", [found], outside.shape, outside.name, outside.type)
        inside.name, self.graph.tensors[found].name = f"{outside.name}_inside", outside.name
        return found

    def reshaped(self, tensor: int, shape: list[int], name: str) -> int:
        return self.insert(
            "RESHAPE", [tensor, self.constant(f"{name}_shape", numbers(shape))], list(shape), name
        )

    def tensor(self, index: int) -> int:
        """The tensor of an operand.

        Half-precision floats are stored but not computed: an activation is float32, a constant
        stands in front of a DEQUANTIZE.
        """
        if index not in self._tensors:
            operand = self.subgraph.operands[index]
            tensor = self.like(operand)
            if operand.type in HALF and operand.value is not None and operand.dimensions:
                half = self.add(replace(tensor, name=f"{tensor.name}_half"))
                self._tensors[index] = self.insert(
                    "DEQUANTIZE", [half], tensor.shape, tensor.name, schema.TensorType.FLOAT32
                )
            else:
                self._tensors[index] = self.add(self.computed(tensor))
        return self._tensors[index]

    def computed(self, tensor: LiteTensor) -> LiteTensor:
        """The tensor in a type that kernels compute."""
        if tensor.type != schema.TensorType.FLOAT16:
            return tensor
        return replace(
            tensor,
            type=schema.TensorType.FLOAT32,
            data=None if tensor.data is None else np.asarray(tensor.data, np.float32),
        )

    def like(self, operand: Operand) -> LiteTensor:
        """A tensor of an operand's type, shape, value and quantisation."""
        if operand.type not in LITE_TYPES:
            raise Refused(f"operand {operand.name!r} is {operand.type.name}")
        dims = [n or -1 for n in operand.dimensions]
        if operand.value is not None:
            dims = list(operand.dimensions)
        tensor = LiteTensor(operand.name, LITE_TYPES[operand.type], dims, operand.value)
        if operand.type in QUANTISED or (
            operand.type is OperandType.TENSOR_INT32 and operand.scale
        ):
            tensor.scales, tensor.zero_points = [operand.scale], [operand.zero_point]
        elif operand.channel_quant is not None:
            tensor.scales, tensor.axis = (
                list(operand.channel_quant.scales),
                operand.channel_quant.dim,
            )
            tensor.zero_points = [0] * len(tensor.scales)
        return tensor

    def add(self, tensor: LiteTensor) -> int:
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def constant(self, name: str, values: Array, like: LiteTensor | None = None) -> int:
        """A constant of int32, or of another tensor's type and quantisation."""
        kind = schema.TensorType.INT32 if like is None else like.type
        quant = ([], []) if like is None else (list(like.scales), list(like.zero_points))
        return self.add(LiteTensor(name, kind, list(values.shape), values, *quant))

    def insert(
        self,
        builtin: str,
        inputs: list[int],
        shape: list[int],
        name: str,
        kind: int | None = None,
        options: str = "",
        **given: Any,
    ) -> int:
        """An operator in front of the one that is being lowered; returns its output.

        The output is like the first input, in another shape or of another type (`kind`).
        """
        source = self.graph.tensors[inputs[0]]
        quant = (list(source.scales), list(source.zero_points)) if kind is None else ([], [])
        output = self.add(
            LiteTensor(name, source.type if kind is None else kind, list(shape), None, *quant)
        )
        self.graph.operators.append(LiteOperator(builtin, inputs, [output], options, given))
        return output


def check_only(row: Row, x: Arguments) -> None:
    """Arguments that TensorFlow Lite does not have must have the value that it means."""
    for name, wanted in row.only.items():
        value = x.scalar(name)
        if value is None:
            raise Refused(f"{name} is not a constant")
        if wanted == LAST:
            rank = x.rank("input")
            if rank is None or (
                value % rank != rank - 1 and (row.operation not in TURNED or rank > MOST_TURNED)
            ):
                raise Refused(f"{name} is {value}, only the last axis is possible")
        elif value != wanted:
            raise Refused(f"{name} is {str(value).lower()}, only {str(wanted).lower()} is possible")


def _options(row: Row, x: Arguments) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, f in row.fields.items():
        if f.argument == "padding" and "padding" not in x.binding.inputs:
            continue  # explicit padding: converters.py decides
        if (
            f.argument in x.binding.inputs
            and x.operand(f.argument) is not None
            and not x.given(f.argument)
        ):
            continue  # an optional scalar without value: the default
        value = x.scalar(f.argument)
        if value is None and x.operand(f.argument) is not None:
            raise Refused(f"{f.argument} is not a constant")
        if value is not None:
            options[name] = value > 0 if f.flag else value + f.shift
    return options


def run(table: Table, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs of a valid table by operand name, for inputs by operand name in the operands' own
    types and layout.

    Raises UsageError U502 when LiteRT is not installed, UnsupportedError X202 for what a `.tflite`
    cannot hold, ConverterError N403 when the feeds do not fit or LiteRT refuses the model.
    """
    if not litert.available():
        raise UsageError(
            Diagnostic("U502", "LiteRT is not installed", help="pip install 'netconv[litert]'")
        )
    inputs = _inputs(table, feeds)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        with Output(path) as out:
            write_tflite(table, out)
        outputs = litert.invoke(path, inputs)
    operands = [table.operands[i] for i in table.outputs]
    return {
        o.name: value.reshape(o.dimensions if o.source_shape else value.shape).astype(o.type.dtype)
        for o, value in zip(operands, outputs, strict=True)
    }


def _inputs(table: Table, feeds: Mapping[str, Array]) -> list[Array]:
    values = []
    for i in table.inputs:
        operand = table.operands[i]
        if operand.name not in feeds:
            raise ConverterError(Diagnostic("N403", f"no value for the input {operand.name!r}"))
        value = np.asarray(feeds[operand.name])
        stated = operand.dimensions
        if value.ndim != len(stated) or any(
            n and n != m for n, m in zip(stated, value.shape, strict=True)
        ):
            raise ConverterError(
                Diagnostic(
                    "N403",
                    f"the input {operand.name!r} has shape {list(value.shape)}, the operand "
                    f"has {stated}",
                )
            )
        assert operand.type.dtype is not None
        values.append(
            value.astype(operand.type.dtype).reshape(
                operand.outside if operand.source_shape else value.shape
            )
        )
    return values
