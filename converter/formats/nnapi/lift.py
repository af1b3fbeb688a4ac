"""Table -> the shared graph."""

from __future__ import annotations

import json
from collections.abc import Sequence

import onnx_ir as ir

from converter.errors import Diagnostic, Where
from converter.formats.integers import NOTE
from converter.formats.nnapi.boundary import StoredEnds
from converter.formats.nnapi.lift_bodies import lift_control
from converter.formats.nnapi.mapping import MAPPING
from converter.formats.nnapi.operations import Binding, bind
from converter.formats.nnapi.quantization import DATA_TYPES, quantize_operand
from converter.formats.nnapi.rules.context import LiftContext
from converter.formats.nnapi.table import Operand, Operation, Subgraph, Table
from converter.formats.nnapi.validate_structure import check_structure
from converter.graph.build import Builder, new_model
from converter.graph.infer import known, set_type, shape_of
from converter.graph.names import public_name, set_public_name
from converter.graph.network import Network
from converter.mapping.conversion_errors import CONVERSION_ERRORS, code_message_help
from converter.mapping.lifting import refuse
from converter.passes.channels_last import to_nchw
from converter.passes.dead_code import remove_dead_code
from converter.passes.fold import fold


def lift(table: Table, file: str = "") -> Network:
    """Return a Network of the main subgraph; raise UnsupportedError with all refusals.

    Recorded permutations and shapes of inputs and outputs are undone.
    """
    check_structure(table, file)
    model, b = new_model("main")
    lifting = SubgraphLift(table, b, file, table.referenced)
    lifting.run()
    refuse(lifting.problems)
    for i in table.outputs:
        b.output(lifting.values[i])
        set_public_name(b.graph.outputs[-1], lifting.name(i))
    remove_dead_code(model)
    ends = StoredEnds(
        *({lifting.name(i): table.operands[i] for i in s} for s in (table.inputs, table.outputs))
    )
    ends.restore(model)
    to_nchw(model)
    fold(model, limit=0)
    if NOTE in table.extra:
        model.metadata_props[NOTE] = json.dumps(table.extra[NOTE], sort_keys=True)
    return Network(model, "nnapi", interface={"nnapi": ends})


# Operations whose results are as long as the data make them; the table may state how long they are.
DATA_DEPENDENT = ("BOX_WITH_NMS_LIMIT", "GENERATE_PROPOSALS", "SLICE")


class SubgraphLift:
    """Lift one subgraph: operands become values, operations nodes, in the order of execution."""

    def __init__(
        self,
        subgraph: Subgraph,
        b: Builder,
        file: str,
        referenced: Sequence[Subgraph] = (),
        path: tuple[int, ...] = (),
    ) -> None:
        self.subgraph, self.b, self.file = subgraph, b, file
        self.referenced, self.path = referenced, path  # `path`: the subgraphs around this one
        self.values: dict[int, ir.Value] = {}
        self.reals: dict[int, ir.Value] = {}
        self.refused: set[int] = set()
        self.problems: list[Diagnostic] = []

    def inner(self, number: int, b: Builder) -> SubgraphLift:
        """Return a subgraph that an operation of this one refers to, to be written with `b`."""
        path = (*self.path, number)
        return SubgraphLift(self.referenced[number], b, self.file, self.referenced, path)

    def name(self, index: int) -> str:
        """Return the name of an operand, or one with its index."""
        return self.subgraph.operands[index].name or f"operand{index}"

    def enter_constants(self) -> None:
        """Add the constant operands to the graph."""
        for i, operand in enumerate(self.subgraph.operands):
            if operand.value is not None:
                self.values[i] = self.b.const(operand.value, self.name(i))

    def run(self) -> None:
        """Lift the subgraph: its constants, inputs and operations."""
        self.enter_constants()
        for i in self.subgraph.inputs:
            if i not in self.values:
                self._input(i, self.subgraph.operands[i])
        for position, operation in enumerate(self.subgraph.operations):
            self._operation(position, operation)

    def _input(self, index: int, operand: Operand) -> None:
        dims = [d or None for d in operand.dimensions]
        name, others = self.name(index), {public_name(v) for v in self.b.graph.inputs}
        self.values[index] = self.b.input(name, DATA_TYPES[operand.type], dims)
        if name not in others:  # a repeated name would name two inputs
            set_public_name(self.values[index], name)

    def _operation(self, position: int, operation: Operation) -> None:
        layer = self.name(operation.outputs[0]) if operation.outputs else ""
        where = Where(self.file, path=f"operations[{position}]", layer=layer, kind=operation.type)
        if self.refused.intersection(operation.inputs):
            self.refused.update(operation.outputs)  # depends on a refused operation
            return
        origin = {"format": "nnapi", "layer": layer, "type": operation.type, "where": where.path}
        try:
            with self.b.provenance(**origin):
                results = self._results(operation)
        except CONVERSION_ERRORS as e:
            code, message, help = code_message_help(e)
            self.problems.append(Diagnostic(code, message, where=where, help=help))
            self.refused.update(operation.outputs)
            return
        for index, value in zip(operation.outputs, results, strict=False):
            self.values[index] = value
            if value.producer() is not None and known(value) is None:
                value.name = self.b.names.fresh(self.name(index))

    def _vector(self, value: ir.Value, index: int) -> ir.Value:
        """Return a scalar as a tensor of shape [1]: NNAPI has no tensors without axes, and an
        operation may name that axis.
        """
        operand = self.subgraph.operands[index]
        inner = operand.type.is_tensor and index not in self.subgraph.outputs
        lacks = inner and shape_of(value) == () and list(operand.dimensions) == [1]
        return self.b.Reshape(value, [1]) if lacks else value

    def _results(self, operation: Operation) -> list[ir.Value]:
        if operation.type in ("IF", "WHILE"):
            return lift_control(self, operation)
        return self.lift(operation, bind(operation, self.subgraph))

    def lift(self, operation: Operation, binding: Binding) -> list[ir.Value]:
        """Return the results of an operation in their storage type."""
        return self.stored(operation, MAPPING.table.lift(self.reading(binding)))

    def reading(self, binding: Binding) -> LiftContext:
        """Return the context in which an operation is lifted."""
        return LiftContext(self.b, binding, self.subgraph.operands, self.values, self.reals)

    def stored(self, operation: Operation, results: Sequence[ir.Value]) -> list[ir.Value]:
        """Return the results of an operation with the types and scales of their operands."""
        operands = self.subgraph.operands
        self.settle(operation, results)
        pairs = list(zip(results, operation.outputs, strict=False))
        stored = [self._vector(quantize_operand(self.b, v, operands[i]), i) for v, i in pairs]
        for value, (_, i) in zip(stored, pairs, strict=True):
            if value.shape is None:
                self._state(value, operands[i])
        return stored

    def settle(self, operation: Operation, results: Sequence[ir.Value]) -> None:
        """Use the dimensions that the table states where the size of a result depends on the
        data.
        """
        if operation.type in DATA_DEPENDENT:
            for value, index in zip(results, operation.outputs, strict=False):
                if shape_of(value) is None:
                    self._state(value, self.subgraph.operands[index])

    def _state(self, value: ir.Value, operand: Operand) -> None:
        if operand.dimensions and all(operand.dimensions):
            set_type(value, None, operand.dimensions)
