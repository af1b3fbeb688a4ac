"""Element types of legacy IR files, and the two in which the engine computes: FP32 and I32. All
other types are converted to one of them before layers are written.

Integers of 8 and 16 bits occur at inputs only. The result of a comparison has the type of its
operands, so a boolean is a number of either type; a consumer that needs the other one converts it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, attrs_of, builder_before
from converter.graph.extensions import replace
from converter.graph.infer import constant
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.names import Names
from converter.graph.walk import all_graphs, subgraphs

D = ir.DataType
NARROW = {
    D.INT64: D.INT32, D.UINT64: D.INT32, D.UINT32: D.INT32, D.INT16: D.INT32, D.UINT16: D.INT32,
    D.INT8: D.INT32, D.UINT8: D.INT32, D.DOUBLE: D.FLOAT, D.FLOAT16: D.FLOAT, D.BFLOAT16: D.FLOAT,
    D.BOOL: D.FLOAT,
}  # fmt: skip
# precision -> type of the data; Q78 are 16-bit integers
PRECISIONS = {
    "FP32": D.FLOAT, "FP16": D.FLOAT16, "I64": D.INT64, "I32": D.INT32, "I16": D.INT16,
    "U16": D.UINT16, "I8": D.INT8, "U8": D.UINT8, "BOOL": D.BOOL, "Q78": D.INT16,
    "MIXED": D.FLOAT, "UNSPECIFIED": D.FLOAT, "": D.FLOAT,
}  # fmt: skip
# of the types that are written
PRECISION = {PRECISIONS[name]: name for name in ("FP32", "FP16", "I32", "I16", "U16", "I8", "U8")}
SMALL = {D.INT8: 8, D.UINT8: 8, D.INT16: 16, D.UINT16: 16}  # type -> bits
OVERFLOWING = ("Add", "Sub", "Mul", "Neg", "Abs", "Pow", "Cast")
COMPARISONS = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal")
LOGIC = ("And", "Or", "Xor", "Not")


# on nodes read from a layer: the type of that layer. Its limits do not apply to them
LEGACY = "openvino.legacy"


def kind_before(value: ir.Value) -> str:
    """Return the type of the legacy layer from which the producer of `value` was read; empty if
    none.
    """
    producer = value.producer()
    return producer.metadata_props.get(LEGACY, "") if producer is not None else ""


def written(dtype: ir.DataType | None) -> ir.DataType:
    """Return the type in which values of a type are written."""
    return NARROW.get(dtype or D.FLOAT, dtype or D.FLOAT)


def keeps_type(value: ir.Value) -> bool:
    """Return whether a value is an input of the network that is written in its own type of 8 or 16
    bits.
    """
    return value.is_graph_input() and value.dtype in SMALL


def wrap_small_integers(model: ir.Model) -> None:
    """Integers of 8 and 16 bits are computed in 32: where a result may be too large for them it is
    brought back into their range.

    before:  c = Add(a, b), all UINT8
    after:   s = Add(a, b) in INT32; c = Mod(Mod(s, 256) + 256, 256)
    """
    names = Names(model)
    for graph in all_graphs(model.graph):
        for node in list(graph):
            out = node.outputs[0] if node.outputs else None
            if (
                out is None
                or node.domain
                or out.dtype not in SMALL
                or node.op_type not in OVERFLOWING
                or not _may_overflow(node)
            ):
                continue
            b = builder_before(node, names)
            operands = [
                b.Cast(v, to=D.INT32) if v is not None and v.dtype != D.INT32 else v
                for v in node.inputs
            ]
            wide = (
                operands[0]
                if node.op_type == "Cast"
                else b.op(node.op_type, *operands, **attrs_of(node))
            )
            assert wide is not None
            replace(node, [b.Cast(_wrapped(b, wide, out.dtype), to=out.dtype)], b)


def _may_overflow(node: ir.Node) -> bool:
    """Return whether a cast may overflow. Casts from floats are undefined outside the range; casts
    from integers overflow if the source's range exceeds the result's.
    """
    source, target = (v.dtype for v in (node.inputs[0], node.outputs[0]) if v is not None)
    if node.op_type != "Cast":
        return node.op_type != "Abs" or target in (D.INT8, D.INT16)
    if (
        source is None
        or target is None
        or source.is_floating_point()
        or source == D.BOOL
        or constant(node.inputs[0]) is not None
    ):
        return False
    signs, bits = (source.is_signed(), target.is_signed()), (source.bitwidth, target.bitwidth)
    return bits[0] > bits[1] if signs[0] == signs[1] else bool(signs[0]) or bits[0] >= bits[1]


def _wrapped(b: Builder, value: ir.Value, dtype: ir.DataType) -> ir.Value:
    """Wrap integers around to the range of `dtype`: the result differs from `value` by a multiple
    of 2^bits. The engine's remainder has the sign of the number.
    """
    size, lowest = np.int32(1 << SMALL[dtype]), np.int32(np.iinfo(dtype.numpy()).min)
    shifted = b.Sub(value, lowest) if lowest else value
    rest = b.Mod(b.Add(b.Mod(shifted, size, fmod=1), size), size, fmod=1)
    return b.Add(rest, lowest) if lowest else rest


def widen_inputs(model: ir.Model) -> None:
    """Convert an input of 8 or 16 bits once, for all consumers that do not convert it themselves;
    inputs of loops have 32 bits.
    """
    names = Names(model)
    for value in (
        v for graph in all_graphs(model.graph) if graph is not model.graph for v in graph.inputs
    ):
        if value.dtype in SMALL:
            value.type = ir.TensorType(D.INT32)
    first = next(iter(model.graph), None)
    for value in model.graph.inputs:
        users = [
            (n, i)
            for n, i in value.uses()
            if n.op_type != "Cast"
            or n.attributes["to"].as_int() == D.BOOL
            or n.graph is not model.graph
        ]
        if first is None or not keeps_type(value) or not users:
            continue
        wide = Builder(model.graph, names, before=first).Cast(value, to=int(D.INT32))
        for user, place in users:
            user.replace_input_with(place, wide)


def booleans_as_numbers(model: ir.Model) -> None:
    """Give every boolean the type FLOAT or INT32; afterwards the types of the graph are those in
    which it is written.
    """
    truth = _BooleanTypes(Names(model))
    for graph in all_graphs(model.graph):
        for node in list(graph):
            if not (node.op_type == "Cast" and truth.same(node)):
                truth.decide(node)
        truth.outputs(graph)
    for graph in all_graphs(model.graph):
        truth.retype(graph)


class _BooleanTypes:
    """Decides the numeric type of each boolean, in the order of the nodes, and inserts conversions
    where operands have to agree.

    Inputs and outputs of a graph are floats; so is any value without a constraint.
    """

    def __init__(self, names: Names) -> None:
        self.names = names
        self.kinds: dict[ir.Value, ir.DataType] = {}
        self.converted: dict[tuple[ir.Value, ir.DataType, ir.Graph], ir.Value] = {}

    def kind(self, value: ir.Value) -> ir.DataType:
        return self.kinds.get(value, D.FLOAT) if value.dtype == D.BOOL else written(value.dtype)

    def same(self, node: ir.Node) -> bool:
        """Remove a cast from booleans to booleans."""
        value = node.inputs[0]
        if value is None or value.dtype != D.BOOL or node.outputs[0].dtype != D.BOOL:
            return False
        replace(node, [value], builder_before(node, self.names))
        return True

    def decide(self, node: ir.Node) -> None:
        kind = self._operands(node)
        self.kinds.update((o, kind) for o in node.outputs if o.dtype == D.BOOL)

    def _operands(self, node: ir.Node) -> ir.DataType:
        """Let the operands of `node` agree; the type of its booleans."""
        truths = [i for i, v in enumerate(node.inputs) if v is not None and v.dtype == D.BOOL]
        if any(subgraphs(node)):
            return self._agree(node, truths, D.FLOAT)
        if node.domain or node.op_type not in (*LOGIC, *COMPARISONS, "Cast", "Where"):
            return self._agree(node, truths)
        if node.op_type == "Cast":
            return self.kind(_present(node.inputs[0]))
        if node.op_type == "Where":
            self._ask(node, 0, (D.INT32,))
            self._agree(node, [0], D.INT32)  # the only condition that Select takes
            return self._agree(node, [i for i in truths if i > 0])
        for i in range(len(node.inputs)) if node.op_type in LOGIC else ():
            self._ask(node, i, (D.FLOAT, D.INT32))
        return self._agree(node, range(len(node.inputs)))

    def _ask(self, node: ir.Node, place: int, types: Iterable[ir.DataType]) -> None:
        """Use a number directly as a condition if only its being 0 matters: the layer tests for the
        same.
        """
        cast = _present(node.inputs[place]).producer()
        number = (
            cast.inputs[0]
            if cast is not None and cast.op_type == "Cast" and not cast.domain
            else None
        )
        if number is not None and self.kind(number) in types and number.dtype != D.BOOL:
            node.replace_input_with(place, number)

    def _agree(
        self, node: ir.Node, places: Iterable[int], kind: ir.DataType | None = None
    ) -> ir.DataType:
        """Convert the operands at the indices `places` to `kind`, or to integers if all of them are
        and to floats otherwise.
        """
        operands = {i: _present(node.inputs[i]) for i in places}
        if kind is None:
            free = {i for i, v in operands.items() if v.dtype == D.BOOL and constant(v) is not None}
            kinds = {self.kind(v) for i, v in operands.items() if i not in free}
            kind = D.INT32 if kinds == {D.INT32} else D.FLOAT
        for i, value in operands.items():
            if self.kind(value) != kind:
                node.replace_input_with(i, self._converted(node, value, kind))
        return kind

    def _converted(self, node: ir.Node, value: ir.Value, kind: ir.DataType) -> ir.Value:
        assert isinstance(node.graph, ir.Graph)
        key = (value, kind, node.graph)
        if key not in self.converted:
            array, b = constant(value), builder_before(node, self.names)
            self.converted[key] = (
                b.Cast(value, to=kind)
                if array is None
                else b.const(array.astype(kind.numpy()), value.name or "const")
            )
        return self.converted[key]

    def outputs(self, graph: ir.Graph) -> None:
        """Cast booleans that are outputs of the graph to floats."""
        for i, value in enumerate(graph.outputs):
            if value.dtype != D.BOOL or self.kind(value) == D.FLOAT:
                continue
            shown = Builder(graph, self.names).Cast(value, to=int(D.FLOAT))
            shown.name, value.name = value.name, shown.name
            shown.metadata_props.update(value.metadata_props)
            value.metadata_props.clear()
            graph.outputs[i] = shown

    def retype(self, graph: ir.Graph) -> None:
        for value in (
            *graph.inputs,
            *graph.initializers.values(),
            *(o for n in graph for o in n.outputs),
        ):
            if value.dtype != D.BOOL:
                continue
            kind = self.kind(value)
            value.type = ir.TensorType(kind)
            if value.const_value is not None:
                value.const_value = LazyTensor(
                    value.const_value.numpy().astype(kind.numpy()), name=value.name
                )


def _present(value: ir.Value | None) -> ir.Value:
    assert value is not None
    return value
