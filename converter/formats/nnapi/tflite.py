"""The `.tflite` form of a table: what runs on today's phones, and what LiteRT executes here. Rows are in `literows.py`.

Operations 0..28 have TensorFlow Lite's numbers and nearly its meaning; scalars become options, explicit padding becomes SAME or VALID where it is
one of the two and a PAD in front of a VALID operator otherwise. What TensorFlow Lite would compute differently is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from converter.diagnostics import Diagnostic, Where
from converter.errors import ReadError, UnsupportedError
from converter.files import Output
from converter.formats.nnapi.litebuffers import separate
from converter.formats.nnapi.liteflat import LiteGraph, LiteModel, LiteOperator, LiteTensor, read_flat, write_flat
from converter.formats.nnapi.literows import BY_OPERATION, LAST, MOST_TURNED, REASONS, TURNED, Row
from converter.formats.nnapi.liteschema import schema
from converter.formats.nnapi.operations import NoMatch, bind
from converter.formats.nnapi.shapes import Arguments
from converter.formats.nnapi.table import Array, Lifetime, Operand, OperandType, Operation, Subgraph, Table

# Metadata of earlier versions: how inputs and outputs were stored. The file means what LiteRT computes, so that nothing is undone.
FORMER_NOTE = "netconv.boundary"
HALF = (OperandType.TENSOR_FLOAT16, OperandType.FLOAT16)
QUANTISED = {
    OperandType.TENSOR_QUANT8_ASYMM,
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED,
    OperandType.TENSOR_QUANT8_SYMM,
    OperandType.TENSOR_QUANT16_SYMM,
    OperandType.TENSOR_QUANT16_ASYMM,
}
LITE_TYPES: dict[OperandType, int] = {
    OperandType.FLOAT32: schema.TensorType.FLOAT32,
    OperandType.INT32: schema.TensorType.INT32,
    OperandType.UINT32: schema.TensorType.UINT32,
    OperandType.BOOL: schema.TensorType.BOOL,
    OperandType.FLOAT16: schema.TensorType.FLOAT16,
    OperandType.TENSOR_FLOAT32: schema.TensorType.FLOAT32,
    OperandType.TENSOR_FLOAT16: schema.TensorType.FLOAT16,
    OperandType.TENSOR_INT32: schema.TensorType.INT32,
    OperandType.TENSOR_BOOL8: schema.TensorType.BOOL,
    OperandType.TENSOR_QUANT8_ASYMM: schema.TensorType.UINT8,
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED: schema.TensorType.INT8,
    OperandType.TENSOR_QUANT8_SYMM: schema.TensorType.INT8,
    OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL: schema.TensorType.INT8,
    OperandType.TENSOR_QUANT16_SYMM: schema.TensorType.INT16,
    OperandType.TENSOR_QUANT16_ASYMM: schema.TensorType.UINT16,
}


class Refused(Exception):
    """Why one operation has no counterpart over there."""


def read_tflite(path: str | Path, notes: list[Diagnostic] | None = None) -> Table:
    """The table that a TensorFlow Lite model is; scalars of options become operands, a missing bias becomes zeros. `notes` gets warnings.

    Raises ReadError: R103 damaged, R104 schema version; UnsupportedError X201: operators and tensor types that NNAPI does not have.
    """
    from converter.formats.nnapi.litelift import lift_model

    try:
        model = read_flat(path)
        if notes is not None and FORMER_NOTE in model.metadata:
            message = "a note of an earlier netconv about the order of inputs and outputs is passed over: no runtime reads it"
            notes.append(Diagnostic("R108", message, "warning", Where(str(path), path=f"metadata {FORMER_NOTE}"), help="convert the source again"))
        return lift_model(model)
    except UnsupportedError as e:
        raise UnsupportedError(_at_file(d, str(path)) for d in e.diagnostics) from None
    except ReadError as e:
        raise ReadError(_at_file(d, str(path)) for d in e.diagnostics) from None


def _at_file(d: Diagnostic, file: str) -> Diagnostic:
    return Diagnostic(d.code, d.message, d.level, Where(file, d.where.line, d.where.path, d.where.layer, d.where.kind), d.evidence, d.help)


def write_tflite(table: Table, out: Output, halves: bool = False) -> list[Diagnostic]:
    """Write a table as a TensorFlow Lite model; the warnings say what the form has no place for.

    Inputs and outputs that the table notes to have more axes have them. Half-precision activations, for which there are no kernels, are float32,
    those at the ends too unless `halves`. The table must be valid (`validate`).
    Raises UnsupportedError with every operation that cannot be expressed (X202), X204 above 2 GiB.
    """
    model, warnings = lower_model(table, halves)
    write_flat(model, out)
    return warnings


def reason_against(subgraph: Subgraph, operation: Operation, lifetimes: list[Lifetime]) -> str | None:
    """Why TensorFlow Lite cannot express an operation; None when it can."""
    try:
        Lowering(subgraph, "", lifetimes).operation(operation)
    except Refused as e:
        return f"TensorFlow Lite cannot express {operation.type}: {e}"
    return None


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
    warnings = [Diagnostic("X207", "TensorFlow Lite models do not say that float32 may be computed as float16", "warning")] if table.relaxed else []
    for side, indexes in (("input", table.inputs), ("output", table.outputs)):
        for operand in (table.operands[i] for i in indexes):
            if operand.type in HALF and not halves:
                message = f"the {side} {operand.name} is float16 in the source and float32 in the file: TensorFlow Lite has no kernels for it"
                warnings.append(Diagnostic("X211", message, "warning"))
    return model, warnings


class Lowering:
    """One subgraph on its way to TensorFlow Lite; tensors are made when something uses them. `halves`: its ends may be float16."""

    def __init__(self, subgraph: Subgraph, name: str, lifetimes: list[Lifetime] | None = None, halves: bool = False) -> None:
        self.subgraph, self.halves = subgraph, halves
        self.graph = LiteGraph(name)
        self._lifetimes = subgraph.lifetimes() if lifetimes is None else lifetimes
        self._tensors: dict[int, int] = {}

    def run(self, prefix: str, problems: list[Diagnostic]) -> LiteGraph:
        self.graph.inputs = self._ends(self.subgraph.inputs, f"{prefix}inputIndexes", problems, self._input)
        for i, operation in enumerate(self.subgraph.operations):
            try:
                self.operation(operation)
            except Refused as e:
                name = self.subgraph.operands[operation.outputs[0]].name if operation.outputs else ""
                where = Where(path=f"{prefix}operations[{i}]", layer=name, kind=operation.type)
                problems.append(Diagnostic("X202", f"TensorFlow Lite cannot express {operation.type}: {e}", where=where))
        self.graph.outputs = self._ends(self.subgraph.outputs, f"{prefix}outputIndexes", problems, self._output)
        return self.graph

    def _ends(self, indexes: list[int], place: str, problems: list[Diagnostic], end: Callable[[int], int]) -> list[int]:
        tensors = []
        for k, index in enumerate(indexes):
            try:
                tensors.append(end(index))
            except Refused as e:
                problems.append(Diagnostic("X202", f"TensorFlow Lite has no such type: {e}", where=Where(path=f"{place}[{k}]")))
        return tensors

    def operation(self, operation: Operation) -> None:
        from converter.formats.nnapi.litespecial import LOWER

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
        return replace(inside, type=LITE_TYPES[operand.type] if self.halves else inside.type, shape=list(operand.outside))

    def _input(self, index: int) -> int:
        inside = self.computed(self.like(self.subgraph.operands[index]))
        outside = self._outside(index, inside)
        given = self._tensors[index] = self.add(outside)
        if outside.type != inside.type:
            self._tensors[index] = self.insert("CAST", [given], outside.shape, f"{outside.name}_float", inside.type)
        if outside.shape != inside.shape:
            self._tensors[index] = self.reshaped(self._tensors[index], inside.shape, f"{outside.name}_inside")
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
        return self.insert("RESHAPE", [tensor, self.constant(f"{name}_shape", numbers(shape))], list(shape), name)

    def tensor(self, index: int) -> int:
        """The tensor of an operand. One of half-precision floats is float32, a constant behind a DEQUANTIZE: so they are stored but not computed."""
        if index not in self._tensors:
            operand = self.subgraph.operands[index]
            tensor = self.like(operand)
            if operand.type in HALF and operand.value is not None and operand.dimensions:
                half = self.add(replace(tensor, name=f"{tensor.name}_half"))
                self._tensors[index] = self.insert("DEQUANTIZE", [half], tensor.shape, tensor.name, schema.TensorType.FLOAT32)
            else:
                self._tensors[index] = self.add(self.computed(tensor))
        return self._tensors[index]

    def computed(self, tensor: LiteTensor) -> LiteTensor:
        """The tensor in a type that kernels compute."""
        if tensor.type != schema.TensorType.FLOAT16:
            return tensor
        return replace(tensor, type=schema.TensorType.FLOAT32, data=None if tensor.data is None else np.asarray(tensor.data, np.float32))

    def like(self, operand: Operand) -> LiteTensor:
        """A tensor of an operand's type, shape, value and quantisation."""
        if operand.type not in LITE_TYPES:
            raise Refused(f"operand {operand.name!r} is {operand.type.name}")
        tensor = LiteTensor(operand.name, LITE_TYPES[operand.type], list(operand.dimensions), operand.value)
        if operand.type in QUANTISED or (operand.type is OperandType.TENSOR_INT32 and operand.scale):
            tensor.scales, tensor.zero_points = [operand.scale], [operand.zero_point]
        elif operand.channel_quant is not None:
            tensor.scales, tensor.axis = list(operand.channel_quant.scales), operand.channel_quant.dim
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

    def insert(self, builtin: str, inputs: list[int], shape: list[int], name: str, kind: int | None = None, options: str = "", **given: Any) -> int:
        """An operator of ours before the one that is being lowered; its output is like its first input, in another shape or of another type."""
        source = self.graph.tensors[inputs[0]]
        quant = (list(source.scales), list(source.zero_points)) if kind is None else ([], [])
        output = self.add(LiteTensor(name, source.type if kind is None else kind, list(shape), None, *quant))
        self.graph.operators.append(LiteOperator(builtin, inputs, [output], options, given))
        return output


def check_only(row: Row, x: Arguments) -> None:
    """Arguments that have no place over there have the value that is meant there."""
    for name, wanted in row.only.items():
        value = x.scalar(name)
        if value is None:
            raise Refused(f"{name} is not a constant")
        if wanted == LAST:
            rank = x.rank("input")
            if rank is None or (value % rank != rank - 1 and (row.operation not in TURNED or rank > MOST_TURNED)):
                raise Refused(f"{name} is {value}, only the last axis is possible")
        elif value != wanted:
            raise Refused(f"{name} is {str(value).lower()}, only {str(wanted).lower()} is possible")


def _options(row: Row, x: Arguments) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, f in row.fields.items():
        if f.argument == "padding" and "padding" not in x.binding.inputs:
            continue  # explicit padding: litespecial decides
        if f.argument in x.binding.inputs and x.operand(f.argument) is not None and not x.given(f.argument):
            continue  # an optional scalar without value: the default
        value = x.scalar(f.argument)
        if value is None and x.operand(f.argument) is not None:
            raise Refused(f"{f.argument} is not a constant")
        if value is not None:
            options[name] = value > 0 if f.flag else value + f.shift
    return options


def numbers(values: list[int]) -> Array:
    return np.asarray(values, np.int32)
