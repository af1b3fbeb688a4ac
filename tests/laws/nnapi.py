"""One node as operations of an operand table, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from converter.api import Model
from converter.formats.nnapi.collector import Writer
from converter.formats.nnapi.findings import Findings
from converter.formats.nnapi.lift import SubgraphLift
from converter.formats.nnapi.mapping import MAPPING
from converter.formats.nnapi.operations import bind, operations
from converter.formats.nnapi.quantization import DATA_TYPES
from converter.formats.nnapi.rules.context import LiftContext, LowerContext
from converter.formats.nnapi.table import Table as OperandTable
from converter.formats.nnapi.validate import validate
from converter.formats.nnapi.validate_shapes import check_shapes
from converter.graph.build import Builder
from converter.graph.infer import RANDOM, set_type, shape_of
from converter.mapping.node import Layer, Node
from converter.mapping.rules import Rule, Table
from laws.adapters import Adapter, ReadBack, Sample, as_declared
from laws.numbers import feeds_of
from mapping_samples import sample

LEVELS = (7, 5, 2, 1)
# kinds without a form of real numbers; tests/formats/test_nnapi_integers.py has their sample
INTEGERS_ALONE = {"QUANTIZED_16BIT_LSTM"}


class NNAPIAdapter(Adapter):
    """Layers are the operations of a table: scalars are attributes, tensors inputs."""

    rtol, atol = 1e-4, 1e-5
    symmetric = False

    def __init__(self) -> None:
        super().__init__("nnapi", MAPPING)

    def has_sample(self, rule: Rule) -> bool:
        return super().has_sample(rule) and rule.kind not in INTEGERS_ALONE

    def versions(self, rule: Rule) -> Sequence[int]:
        return LEVELS

    def node(self, rule: Rule, context: str, attrs: dict[str, Any]) -> tuple[Node, Builder]:
        """Drawn classes get the Cast that makes them integers, which the operation gives."""
        node, b = sample(rule, context, attrs, last=True, outputs=outputs_of(rule))
        b.graph.outputs.clear()  # a value that is one cannot be absorbed by later operators
        if node.op == "RandomCategorical":
            b.op("Cast", node.outputs[0], to=int(ir.DataType.INT32))
        settle(node, b)
        return node, b

    def write(
        self,
        by: Rule | Table,
        rule: Rule,
        node: Node,
        b: Builder,
        version: int,
        integers: bool = False,
    ) -> Sample:
        table = OperandTable()
        writer = Writer(MAPPING, version, subgraph=table)
        table.inputs = [writer.new(v).index for v in b.graph.inputs]
        producer = node.outputs[0].producer()
        assert producer is not None
        w = LowerContext(producer, writer, integers)
        w.node = node
        by.lower(w)
        table.outputs = [writer.operands[v] for v in results_of(node)]
        return Sample(rule, node, [layer_of(o, table) for o in table.operations], b, version, table)

    def add_operand(self, s: Sample) -> None:
        return None

    def read_back(self, s: Sample) -> ReadBack:
        return TableReadBack(self, s)

    def judge(self, s: Sample, folder: Any) -> None:
        """The table is valid in the eyes of the validator, which knows the specification."""
        found = Findings(s.file)
        check_shapes(s.file, range(len(s.file.operations)), found)
        problems = [*validate(s.file, shapes=False), *found.errors]
        assert [str(d) for d in problems if d.level == "error"] == []


class TableReadBack(ReadBack):
    def __init__(self, adapter: Adapter, s: Sample) -> None:
        super().__init__(adapter, s)
        self.table: OperandTable = s.file
        self.subgraph = SubgraphLift(self.table, s.b, "")
        self.subgraph.enter_constants()
        for index, value in zip(self.table.inputs, s.b.graph.inputs, strict=True):
            self.subgraph.values[index] = self._entered(value, index)

    def _entered(self, value: ir.Value, index: int) -> ir.Value:
        """An input of the graph as the table has it."""
        dtype, dims = DATA_TYPES[self.table.operands[index].type], self.table.operands[index]
        b = self.sample.b
        value = value if value.dtype == dtype else b.op("Cast", value, to=int(dtype))
        return value if shape_of(value) != () else b.op("Reshape", value, list(dims.dimensions))

    def reading(self, index: int) -> LiftContext:
        return self.subgraph.reading(bind(self.table.operations[index], self.table))

    def enter(self, index: int, results: Sequence[ir.Value]) -> None:
        operation = self.table.operations[index]
        stored = self.subgraph.stored(operation, results)
        self.subgraph.values |= dict(zip(operation.outputs, stored, strict=False))

    def results(self) -> list[tuple[ir.Value, ir.Value]]:
        """Scalars of the graph have one axis in a table."""
        found = [self.subgraph.values[i] for i in self.table.outputs]
        pairs = zip(results_of(self.sample.node), found, strict=True)
        return [(v, as_declared(v, y, self.sample.b)) for v, y in pairs]


def layer_of(operation: Any, table: OperandTable) -> Layer:
    """An operation as the laws compare it: operands by their names, constants by elements."""
    attrs: dict[str, Any] = {}
    for name, found in bind(operation, table).inputs.items():
        indexes = found if isinstance(found, list) else [] if found is None else [found]
        attrs[name] = [_operand(table, i) for i in indexes]
    return Layer(operation.type, attrs=attrs)


def _operand(table: OperandTable, index: int) -> Any:
    operand = table.operands[index]
    known = None if operand.value is None else operand.array().tolist()
    name = operand.name if known is None and index in table.inputs else ""
    return operand.type.name, list(operand.dimensions), name, known


def outputs_of(rule: Rule) -> int:
    """As many results as the operation has."""
    spec = operations()[rule.kind].outputs
    several = rule.domain or rule.op == "TopK"
    return 2 if spec[0].name == "outputs" else len(spec) if several else 0


def results_of(node: Node) -> list[ir.Value]:
    """The result of a node, after the Cast or QuantizeLinear that its operation includes."""
    users = [[u.node for u in v.uses() if u.node.op_type in _ABSORBED] for v in node.outputs]
    absorbs = node.op == "RandomCategorical" or any(
        u.op_type == "QuantizeLinear" for found in users for u in found
    )
    pairs = zip(node.outputs, users, strict=True)
    return [u[0].outputs[0] if u and absorbs else v for v, u in pairs]


_ABSORBED = ("Cast", "QuantizeLinear")


def settle(node: Node, b: Builder) -> None:
    """Gives results the sizes that they have for the inputs that the laws feed."""
    if node.op in RANDOM or all(shape_of(v) is not None for v in node.outputs):
        return
    b.output(*node.outputs)
    model = Model(ir.Model(b.graph, ir_version=10), "onnx")
    found = model.run(feeds_of(model, node.op))
    for value, array in zip(node.outputs, found.values(), strict=True):
        set_type(value, None, array.shape)
    b.graph.outputs.clear()
