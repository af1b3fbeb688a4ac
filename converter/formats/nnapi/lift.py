"""Table -> the shared graph."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from converter.diagnostics import Diagnostic, Where
from converter.formats.nnapi.boundary import Stored, widen_boundary
from converter.formats.nnapi.control import lift_control
from converter.formats.nnapi.operations import NoMatch, bind
from converter.formats.nnapi.ops.args import DATA_TYPES, LIFT, RAW, Args, quantise
from converter.formats.nnapi.ops.themes import THEMES
from converter.formats.nnapi.table import Operand, Operation, Subgraph, Table
from converter.formats.nnapi.validate import check_structure
from converter.graph.build import Builder, new_model
from converter.graph.infer import known, set_type, shape_of
from converter.graph.names import public_name, set_public_name
from converter.mapping.drive import refuse
from converter.mapping.node import MappingError
from converter.mapping.trouble import TROUBLE, told
from converter.model import Model
from converter.passes.channels_last import restore_boundary, to_first
from converter.passes.fold import fold
from converter.passes.tidy import tidy

assert THEMES  # imported for what they enter into LIFT


def lift(table: Table, file: str = "") -> Model:
    """A Model of the main subgraph; UnsupportedError with all refusals. Recorded permutations and shapes of the boundary are undone."""
    check_structure(table, file)
    model, b = new_model("main")
    lifting = SubgraphLift(table, b, file, table.referenced)
    lifting.run()
    refuse(lifting.problems)
    for i in table.outputs:
        b.output(lifting.values[i])
        set_public_name(b.graph.outputs[-1], lifting.name(i))
    tidy(model)
    permutations = [{lifting.name(i): p for i in side if (p := table.operands[i].permutation)} for side in (table.inputs, table.outputs)]
    restore_boundary(model, permutations[0], permutations[1])
    recorded = [{lifting.name(i): tuple(s) for i in side if (s := table.operands[i].source_shape)} for side in (table.inputs, table.outputs)]
    widen_boundary(model, recorded[0], recorded[1])
    to_first(model)
    fold(model, limit=0)
    ends = [{lifting.name(i): table.operands[i] for i in side} for side in (table.inputs, table.outputs)]
    return Model(model, "nnapi", interface={"nnapi": Stored(ends[0], ends[1])})


# Operations whose results are as long as the data make them; the table may state how long they are.
DATA_DEPENDENT = ("BOX_WITH_NMS_LIMIT", "GENERATE_PROPOSALS", "SLICE")


def _reason(e: Exception) -> tuple[str, str, str]:
    """Code, message and help of what went wrong in one operation."""
    return ("R105", str(e), "") if isinstance(e, NoMatch) else told(e)


class SubgraphLift:
    """Operands become values, operations nodes, in the order of execution."""

    def __init__(self, subgraph: Subgraph, b: Builder, file: str, referenced: Sequence[Subgraph] = (), path: tuple[int, ...] = ()) -> None:
        self.subgraph, self.b, self.file = subgraph, b, file
        self.referenced, self.path = referenced, path  # `path`: the subgraphs around this one
        self.values: dict[int, ir.Value] = {}
        self.reals: dict[int, ir.Value] = {}
        self.refused: set[int] = set()
        self.problems: list[Diagnostic] = []

    def name(self, index: int) -> str:
        return self.subgraph.operands[index].name or f"operand{index}"

    def run(self) -> None:
        for i, operand in enumerate(self.subgraph.operands):
            if operand.value is not None:
                self.values[i] = self.b.const(operand.array(), self.name(i))
        for i in self.subgraph.inputs:
            if i not in self.values:
                self._input(i, self.subgraph.operands[i])
        for position, operation in enumerate(self.subgraph.operations):
            self._operation(position, operation)

    def _input(self, index: int, operand: Operand) -> None:
        dims = [d or None for d in operand.dimensions]
        self.values[index] = self.b.input(self.name(index), DATA_TYPES[operand.type], dims)
        if self.name(index) not in {public_name(v) for v in self.b.graph.inputs[:-1]}:  # a repeated name would name two inputs
            set_public_name(self.values[index], self.name(index))

    def _operation(self, position: int, operation: Operation) -> None:
        layer = self.name(operation.outputs[0]) if operation.outputs else ""
        where = Where(self.file, path=f"operations[{position}]", layer=layer, kind=operation.type)
        if self.refused.intersection(operation.inputs):
            self.refused.update(operation.outputs)  # behind a refused operation
            return
        try:
            with self.b.provenance(format="nnapi", layer=where.layer, type=operation.type, where=where.path):
                results = self._results(operation)
        except (NoMatch, *TROUBLE) as e:
            code, message, help = _reason(e)
            self.problems.append(Diagnostic(code, message, where=where, help=help))
            self.refused.update(operation.outputs)
            return
        for index, value in zip(operation.outputs, results, strict=False):
            self.values[index] = value
            if value.producer() is not None and known(value) is None:
                value.name = self.b.names.fresh(self.name(index))

    def _vector(self, value: ir.Value, index: int) -> ir.Value:
        """NNAPI has no tensors without axes: one number has the shape [1], and an operation that reads it may name that axis."""
        operand = self.subgraph.operands[index]
        inner = operand.type.is_tensor and index not in self.subgraph.outputs
        return self.b.op("Reshape", value, [1]) if inner and shape_of(value) == () and list(operand.dimensions) == [1] else value

    def _results(self, operation: Operation) -> list[ir.Value]:
        if operation.type in ("IF", "WHILE"):
            return lift_control(self, operation)
        function = LIFT.get(operation.type)
        if function is None:
            raise MappingError(f"{operation.type} has no counterpart", "X201")
        args = Args(operation.type, self.b, bind(operation, self.subgraph), self.subgraph.operands, self.values, self.reals)
        found = function(args)
        results = [found] if isinstance(found, ir.Value) else list(found)
        operands = [self.subgraph.operands[i] for i in operation.outputs]
        for value, operand in zip(results, operands, strict=False):
            if shape_of(value) is None and operand.dimensions and all(operand.dimensions) and operation.type in DATA_DEPENDENT:
                set_type(value, None, operand.dimensions)
        if operation.type not in RAW:
            results = [quantise(self.b, v, o) for v, o in zip(results, operands, strict=False)]
        results = [self._vector(v, i) for v, i in zip(results, operation.outputs, strict=False)]
        for value, operand in zip(results, operands, strict=False):
            if value.shape is None and operand.dimensions and all(operand.dimensions):
                set_type(value, None, operand.dimensions)
        return results
