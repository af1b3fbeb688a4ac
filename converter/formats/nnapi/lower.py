"""The shared graph -> Table, at the lowest feature level that expresses it, and the table into its
file.
"""

from __future__ import annotations

from dataclasses import field
from pathlib import Path

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, MappingError, UnsupportedError
from converter.formats.format import Flavour
from converter.formats.nnapi.blob import reason_against, write_blob
from converter.formats.nnapi.boundary import Shapes, Stored, narrow_boundary, note_shapes
from converter.formats.nnapi.collector import BYTES, Objection, Ref, Writer
from converter.formats.nnapi.findings import Findings
from converter.formats.nnapi.legalise import MOST, prepare, rewrites
from converter.formats.nnapi.levels import feature_level
from converter.formats.nnapi.mapping import MAPPING
from converter.formats.nnapi.table import Operand, OperandType, Table
from converter.formats.nnapi.validate import validate
from converter.formats.nnapi.validate_shapes import check_shapes
from converter.graph.infer import known, rank_of
from converter.graph.names import public_name
from converter.graph.network import Network
from converter.graph.record import record
from converter.graph.value import optional, producer_of
from converter.graph.walk import all_nodes
from converter.io.files import Output
from converter.mapping.lifting import refuse
from converter.mapping.target import dynamic_values
from converter.passes.channels_last import boundary_permutation, to_nhwc
from converter.passes.collapse_dims import RESHAPES, highest_rank, join_reshapes
from converter.passes.collapse_dims_rules import HANDLERS
from converter.passes.common_subexpressions import eliminate_common_subexpressions
from converter.passes.decompositions.quantization import whole_floats
from converter.passes.fold import fold
from converter.passes.fuse_constants import fuse_biases
from converter.passes.legalise import legalise

LEVELS = (1, 2, 3, 4, 6, 7)  # level 5 has no operation of its own
Written = tuple[Table, list[Diagnostic]]  # and warnings


def write_model(model: Network, path: Path, flavour: Flavour) -> list[Diagnostic]:
    """Writes `.nnapi.json`, `.nnapi` (+blob) or `.nnapi.c` (+c); returns warnings.

    UnsupportedError lists everything that cannot be expressed up to the level asked for; nothing is
    written then.
    """
    refuse(MAPPING.target.refusals(model.ir))
    notes: list[Diagnostic] = []
    plain = not {"blob", "c"} & flavour.options.keys()  # then the suffix names the form
    records = plain and not path.name.endswith((".nnapi", ".nnapi.c"))
    limit = int(flavour.options.get("level", LEVELS[-1]))
    flat = "blob" in flavour.options or (plain and path.suffix == ".nnapi")
    objects = reason_against if flat else None
    table = lower(model, limit, flavour.io_layout, notes, records, objects)
    with Output(path) as out:
        if flat:
            notes += write_blob(table, out)
        elif "c" in flavour.options or (plain and path.name.endswith(".nnapi.c")):
            from converter.formats.nnapi.csource import write_c

            notes += write_c(table, out)
        else:
            from converter.formats.nnapi.codec import write_table

            write_table(table, out)
    return notes


def lower(
    model: Network,
    limit: int = 7,
    io_layout: str = "",
    notes: list[Diagnostic] | None = None,
    records: bool = True,
    objects: Objection | None = None,
) -> Table:
    """A valid Table of the lowest feature level that has everything, at most `limit`;
    UnsupportedError with all that has no counterpart.

    `records`: the file has a place for notes that inputs and outputs are stored otherwise than in
    the source. `io_layout` "" is "native" then, or as the table stored them from which the model
    was read; without a place for notes it is "keep". `objects` says which operations the form in
    which the table is written cannot have.
    """
    search = Search(model, Ends.of(model, io_layout, records), objects)
    table, warnings, shapes = search.lowest(limit)
    found = Findings(table)
    check_shapes(table, range(len(table.operations)), found)
    refuse_invalid(found)
    if not records and any(table.operands[i].boundary for i in (*table.inputs, *table.outputs)):
        raise UnsupportedError(
            Diagnostic(
                "X202",
                "this form of a table has no place to say that images are channels-last",
                help="--io-layout keep",
            )
        )
    narrowed = note_shapes(table, *shapes)
    search.ends.stored.note(table)
    if notes is not None:
        notes += warnings if search.ends.as_stored else [*warnings, *narrowed]
    return table


@record
class Ends:
    """How inputs and outputs are stored: "keep", "native", or `as_stored` by the table that was
    read; `narrow`: with at most four dimensions.

    `high` are the names of those that have more in the source: they are no images.
    """

    io_layout: str
    narrow: bool
    high: frozenset[str] = frozenset()
    stored: Stored = field(default_factory=Stored)
    as_stored: bool = False

    @classmethod
    def of(cls, model: Network, io_layout: str, records: bool) -> Ends:
        if records and not io_layout and "nnapi" in model.interface:
            return cls("keep", True, stored=model.interface["nnapi"], as_stored=True)
        high = frozenset(
            i.name
            for i in (*model.inputs, *model.outputs)
            if i.shape is not None and len(i.shape) > MOST
        )
        return cls(io_layout or ("native" if records else "keep"), records, high)


@record
class Search:
    """The way to the lowest feature level of a model.

    What a level expresses, every newer level does.
    """

    model: Network
    ends: Ends
    objects: Objection | None

    def lowest(self, limit: int) -> tuple[Table, list[Diagnostic], tuple[Shapes, Shapes]]:
        """The table of the lowest level up to `limit` that is no worse than the newest one,
        warnings, and shapes as `prepared` gives them.
        """
        graph, shapes = prepared(self.model, self.ends)
        cells = any(n.op_type == "LSTM" for n in all_nodes(graph.graph))  # which a newer level has
        oldest = None if cells else self.attempt(graph.clone(), LEVELS[0])
        if oldest is not None and not count(oldest[0], "TRANSPOSE"):  # many networks need no more
            return *oldest, shapes
        newest = self.written(graph.clone(), max(level for level in LEVELS if level <= limit))
        if oldest is not None and no_worse(oldest[0], newest[0]):
            return *oldest, shapes
        return *self._between(graph, newest), shapes

    def _between(self, graph: ir.Model, newest: Written) -> Written:
        """By halves; the first level has been tried."""
        best, needed = newest, feature_level(newest[0])[0]
        levels = [level for level in LEVELS[1:] if level < needed]
        while levels:
            middle = len(levels) // 2
            found = self.attempt(graph.clone(), levels[middle])
            if found is not None and no_worse(found[0], newest[0]):
                best, levels = found, levels[:middle]
            else:
                levels = levels[middle + 1 :]
        return best

    def attempt(self, graph: ir.Model, level: int) -> Written | None:
        """`written`, or None as soon as something needs a newer level."""
        try:
            return self.written(graph, level, hurry=True)
        except UnsupportedError:
            return None

    def written(self, graph: ir.Model, level: int, hurry: bool = False) -> Written:
        return at_level(graph, Writer(level, objects=self.objects), self.ends, hurry)


def prepared(model: Network, ends: Ends) -> tuple[ir.Model, tuple[Shapes, Shapes]]:
    """A copy with everything done that does not depend on the level, and the shapes of the inputs
    and outputs that are stored with others.
    """
    graph = model.ir.clone()
    fold(graph)
    fuse_biases(graph)
    prepare(graph)  # before the shapes are judged: an unrolled loop has static ones
    legalise(graph, lambda n: n.op_type == "GRU" and not n.domain, {})  # which no level has
    refuse(dynamic_values(graph))
    shapes = narrow_boundary(graph, ends.stored) if ends.narrow else ({}, {})
    join_reshapes(graph, MOST)
    return graph, shapes


def no_worse(older: Table, newest: Table) -> bool:
    """An older level is not worth moving data to and fro, nor writing out the steps of a cell that
    a newer one has.
    """
    moved, cells = (
        [count(t, kind) for t in (older, newest)]
        for kind in ("TRANSPOSE", "UNIDIRECTIONAL_SEQUENCE_LSTM")
    )
    return moved[0] <= moved[1] and cells[0] >= cells[1]


def count(table: Table, kind: str) -> int:
    return sum(o.type == kind for o in table.operations)


def at_level(graph: ir.Model, writer: Writer, ends: Ends, hurry: bool = False) -> Written:
    """The table with operations of the writer's level, and warnings; UnsupportedError when
    something needs more, in a hurry at the first of it.

    The graph is used up.
    """
    dry, ways = writer.fresh(), rewrites(writer.level)
    legalise(graph, lambda n: refused(n, dry), ways, give_up if hurry else None)
    join_reshapes(graph)
    ends.stored.turn(graph)
    turned = to_nhwc(graph, ends.io_layout, kept=ends.high)
    legalise(graph, lambda n: out_of_order(n) and refused(n, dry), ways, give_up if hurry else None)
    fold(graph)
    eliminate_common_subexpressions(graph)
    join_reshapes(graph)
    table = writer.subgraph = Table()
    write_graph(graph.graph, writer)
    refuse(writer.problems)
    refuse_invalid(validate(table, shapes=False))
    return table, [*turned, *writer.narrowing.notes]


def refuse_invalid(findings: list[Diagnostic]) -> None:
    message = "the table is not valid: "
    errors = [d for d in findings if d.level == "error"]
    refuse([Diagnostic("X202", message + d.message, where=d.where) for d in errors])


def out_of_order(node: ir.Node) -> bool:
    """Whether the order of axes may have made a node of a kind that is not there.

    Whole numbers and truth values have no Transpose, and a TopK looks along the last axis.
    """
    whole = (ir.DataType.INT32, ir.DataType.INT64, ir.DataType.BOOL)
    turned = node.op_type == "Transpose" and node.outputs[0].dtype in whole
    return not node.domain and (turned or node.op_type == "TopK")


def give_up(node: ir.Node) -> None:
    """Raises for a node that nothing rewrites; Reshapes may still be joined, and constants
    computed.
    """
    if (
        node.op_type not in RESHAPES
        and any(o.uses() or o.is_graph_output() for o in node.outputs)
        and any(known(o) is None for o in node.outputs)
    ):
        raise UnsupportedError(Diagnostic("X206", f"{node.op_type} needs a newer feature level"))


def refused(node: ir.Node, dry: Writer) -> bool:
    """Whether the node by itself cannot be written at the level of `dry`.

    A dry run of the same code that writes.
    """
    if node.op_type in HANDLERS and not node.domain and highest_rank(node) > MOST:
        return True
    kind, x = "" if node.domain else node.op_type, optional(node, 0)
    if kind == "DequantizeLinear" and x is not None and whole_floats(x) is not None:
        return True  # its integers have no type here, or were not to be had
    if kind == "QuantizeLinear" and part_of(x, dry):
        return False
    if kind == "MaxPool" and x is not None and x.dtype in BYTES and rank_of(x) == MOST:
        # the scale, which the operation keeps, is known when what comes before is written
        return False
    mark = dry.mark()
    try:
        dry.lower(node)
    except MappingError:
        return True
    finally:
        dry.undo(mark)
    return False


def part_of(value: ir.Value | None, like: Writer) -> bool:
    """Whether what makes `value` gives integers itself, so that their QuantizeLinear needs no
    operation.
    """
    producer = producer_of(value)
    return (
        producer is not None
        and not producer.op_type.endswith("Linear")
        and like.fresh().takes_integers(producer)
    )


def write_graph(graph: ir.Graph, writer: Writer) -> None:
    """All operands and operations of the main graph."""
    subgraph = writer.subgraph
    for value in graph.inputs:
        try:
            subgraph.inputs.append(writer.new(value).index)
        except MappingError as e:
            writer.problems.append(Diagnostic(e.code, f"input {public_name(value)}: {e}"))
    for node in graph:
        writer.node(node)
    for value in graph.outputs:
        try:
            index = output(writer, value)
        except MappingError as e:
            writer.problems.append(Diagnostic(e.code, f"output {public_name(value)}: {e}"))
            continue
        subgraph.operands[index].name = public_name(value)
        subgraph.outputs.append(index)
    for value in [*graph.inputs, *graph.outputs]:
        perm = boundary_permutation(value)
        if perm is not None and value in writer.operands:
            subgraph.operands[writer.operands[value]].boundary = {"permutation": list(perm)}


def output(writer: Writer, value: ir.Value) -> int:
    """The operand of a graph output: written by an operation, and neither an input nor another
    output.
    """
    ref = writer.operand(value)
    subgraph = writer.subgraph
    operand = subgraph.operands[ref.index]
    if operand.value is None and ref.index not in (*subgraph.inputs, *subgraph.outputs):
        return ref.index
    dims, name = list(operand.dimensions), public_name(value)
    copy = writer.add(Operand(operand.type, dims, name, operand.scale, operand.zero_point))
    copied(writer, ref, copy, operand)
    writer.operands[value] = copy.index
    return copy.index


def copied(writer: Writer, source: Ref, target: Ref, operand: Operand) -> None:
    """An operation that changes nothing, of the lowest level that the type has."""
    integer = operand.type is OperandType.TENSOR_INT32
    if operand.type is OperandType.TENSOR_BOOL8:
        writer.operation("LOGICAL_AND", [source.index, source.index], [target.index])
    elif integer or len(operand.dimensions) > 4:
        writer.operation("CAST", [source.index], [target.index])
    else:
        shape = writer.tensor(np.array(operand.dimensions, np.int32), OperandType.TENSOR_INT32)
        writer.operation("RESHAPE", [source.index, shape.index], [target.index])
