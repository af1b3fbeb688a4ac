"""The shared graph -> Table, at the lowest feature level that expresses it, and the table into its
file.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, MappingError, UnsupportedError
from converter.formats.format import PADDED, Flavor
from converter.formats.integers import NOTE, quantization_of
from converter.formats.nnapi.blob import reason_against, write_blob
from converter.formats.nnapi.boundary import Shapes, note_shapes
from converter.formats.nnapi.collector import Objection, Ref, Writer
from converter.formats.nnapi.findings import Findings
from converter.formats.nnapi.levels import feature_level
from converter.formats.nnapi.mapping import MAPPING
from converter.formats.nnapi.operations import operations
from converter.formats.nnapi.pipeline import AT_LEVEL, PREPARE, AllLevels, Ends, Level, give_up
from converter.formats.nnapi.table import Operand, OperandType, Table
from converter.formats.nnapi.validate import validate
from converter.formats.nnapi.validate_shapes import check_shapes
from converter.graph.names import public_name
from converter.graph.network import Network
from converter.graph.walk import all_nodes
from converter.io.files import Output
from converter.mapping.lifting import refuse
from converter.passes.channels_last import boundary_permutation
from converter.passes.pipeline import run_passes
from converter.record import record

LEVELS = (1, 2, 3, 4, 6, 7)  # level 5 added no operation
CELL = "UNIDIRECTIONAL_SEQUENCE_LSTM"
Written = tuple[Table, list[Diagnostic]]  # and warnings


def write_model(model: Network, path: Path, flavor: Flavor) -> list[Diagnostic]:
    """Write `.nnapi.json`, `.nnapi` (+blob) or `.nnapi.c` (+c); return warnings. Raises
    UnsupportedError with everything that cannot be expressed up to the requested level; then
    nothing is written.
    """
    notes: list[Diagnostic] = []
    plain = not {"blob", "c"} & flavor.options.keys()  # then the suffix names the form
    records = plain and not path.name.endswith((".nnapi", ".nnapi.c"))
    limit = int(flavor.options.get("level", LEVELS[-1]))
    flat = "blob" in flavor.options or (plain and path.suffix == ".nnapi")
    objects = reason_against if flat else None
    padded = PADDED in flavor.options
    table = lower(model, limit, flavor.io_layout, notes, records, objects, padded)
    with Output(path) as out:
        if flat:
            notes += write_blob(table, out)
        elif "c" in flavor.options or (plain and path.name.endswith(".nnapi.c")):
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
    padded: bool = False,
) -> Table:
    """Return a valid Table of the lowest possible feature level, at most `limit`; raises
    UnsupportedError with all nodes that cannot be written.

    `records`: the file can store notes on inputs and outputs whose layout differs from the source.
    `io_layout` "" then means "native", or the layout of the table from which the model was read;
    without such notes it means "keep". `objects` determines which operations the written form does
    not support. `padded`: outputs of dynamic length have as many rows as there may be.
    """
    search = Search(model, Ends.of(model, io_layout, records), objects, [], padded)
    table, warnings, shapes = search.lowest(limit)
    found = Findings(table)
    check_shapes(table, range(len(table.operations)), found)
    refuse_invalid(found)
    if not records and any(table.operands[i].boundary for i in (*table.inputs, *table.outputs)):
        raise UnsupportedError(
            Diagnostic(
                "X202",
                "this form of a table cannot declare that images are channels-last",
                help="use --io-layout keep",
            )
        )
    narrowed = note_shapes(table, *shapes)
    search.ends.stored.note(table)
    if notes is not None:
        notes += search.notes
        notes += warnings if search.ends.as_stored else [*warnings, *narrowed]
    return table


@record
class Search:
    """The search for the lowest feature level of a model.

    A newer level supports everything that an older one does.
    """

    model: Network
    ends: Ends
    objects: Objection | None
    notes: list[Diagnostic]  # warnings that do not depend on the level
    padded: bool = False

    def lowest(self, limit: int) -> tuple[Table, list[Diagnostic], tuple[Shapes, Shapes]]:
        """Return the table of the lowest level up to `limit` that is no worse than the newest one,
        warnings, and shapes as `prepared` gives them.
        """
        graph, shapes = prepared(self.model, self.ends, self.notes, self.padded)
        cells = any(n.op_type == "LSTM" for n in all_nodes(graph.graph))  # which a newer level has
        levels = [level for level in LEVELS if level <= limit]
        tried: dict[int, Written | None] = {}
        for level in levels[: 0 if cells else 2]:
            oldest = tried[level] = self.attempt(graph.clone(), level)
            if oldest is not None:
                if not count(oldest[0], "TRANSPOSE"):  # many networks need no more
                    return *oldest, shapes
                break
        newest = self._newest(graph, levels[-1])
        for found in tried.values():
            if found is not None and no_worse(found[0], newest[0]):
                return *found, shapes
        needed = feature_level(newest[0])[0]
        # an older level writes out the steps of a cell that the newest one keeps
        kept = operations()[CELL].level if count(newest[0], CELL) else 2
        left = [n for n in levels if kept <= n < needed and n not in tried]
        return *self._between(graph, newest, left), shapes

    def _newest(self, graph: ir.Model, limit: int) -> Written:
        """Return the table at the limit; a refusal names the level that supports the network."""
        try:
            return self.written(graph.clone(), limit)
        except UnsupportedError as e:
            newer = (self.attempt(graph.clone(), n) for n in LEVELS if n > limit)
            found = next(filter(None, newer), None)
            if found is None:
                raise
            needed = feature_level(found[0])[0]
            problems = [of_level(d, needed, limit) for d in e.diagnostics]
            raise UnsupportedError(dict.fromkeys(problems)) from None

    def _between(self, graph: ir.Model, newest: Written, levels: list[int]) -> Written:
        """Search the lowest sufficient level by bisection among those that have not been tried."""
        best = newest
        while levels:
            middle = len(levels) // 2
            found = self.attempt(graph.clone(), levels[middle])
            if found is not None and no_worse(found[0], newest[0]):
                best, levels = found, levels[:middle]
            else:
                levels = levels[middle + 1 :]
        return best

    def attempt(self, graph: ir.Model, level: int) -> Written | None:
        """Return `written`, or None as soon as something needs a newer level."""
        try:
            return self.written(graph, level, hurry=True)
        except UnsupportedError:
            return None

    def written(self, graph: ir.Model, level: int, hurry: bool = False) -> Written:
        """Return the table of a graph at a feature level."""
        return at_level(
            self.model, graph, Writer(MAPPING, level, objects=self.objects), self.ends, hurry
        )


def prepared(
    model: Network, ends: Ends, notes: list[Diagnostic], padded: bool = False
) -> tuple[ir.Model, tuple[Shapes, Shapes]]:
    """Return a copy on which all passes that do not depend on the level have run, and the shapes of
    the inputs and outputs that are stored with others. Warnings are appended to `notes`.
    """
    graph, context = model.ir.clone(), AllLevels(model, notes=notes, padded=padded, ends=ends)
    run_passes(PREPARE, graph, context)
    return graph, context.shapes[-1]


def no_worse(older: Table, newest: Table) -> bool:
    """Return whether an older level avoids additional transpositions and unrolled cells."""
    moved, cells = ([count(t, kind) for t in (older, newest)] for kind in ("TRANSPOSE", CELL))
    return moved[0] <= moved[1] and cells[0] >= cells[1]


def count(table: Table, kind: str) -> int:
    """Return the number of operations of a kind."""
    return sum(o.type == kind for o in table.operations)


def of_level(problem: Diagnostic, needed: int, limit: int) -> Diagnostic:
    """Return the refusal of an operator that another feature level supports."""
    what = problem.where.kind or "the network"
    message = f"{what} needs NNAPI feature level {needed}, the limit is {limit}"
    help = f"write it for that level: nnapi+level={needed}"
    return Diagnostic("X206", message, where=problem.where, help=help)


def at_level(
    model: Network, graph: ir.Model, writer: Writer, ends: Ends, hurry: bool = False
) -> Written:
    """Return the table with operations of the writer's level, and warnings; raise UnsupportedError
    if a node needs a higher level, when in a hurry at the first such node.

    The graph is consumed.
    """
    context = Level(model, ends=ends, dry=writer.fresh(), on_failure=give_up if hurry else None)
    run_passes(AT_LEVEL, graph, context)
    table = writer.subgraph = Table()
    write_graph(graph.graph, writer)
    if quantized := quantization_of(model.ir.metadata_props):
        table.extra[NOTE] = quantized
    refuse(writer.problems)
    refuse_invalid(validate(table, shapes=False))
    return table, [*context.notes, *writer.narrowing.notes]


def refuse_invalid(findings: list[Diagnostic]) -> None:
    """Refuse a table that the validation found errors in (X202)."""
    message = "the table is not valid: "
    errors = [d for d in findings if d.level == "error"]
    refuse([Diagnostic("X202", message + d.message, where=d.where) for d in errors])


def write_graph(graph: ir.Graph, writer: Writer) -> None:
    """Write all operands and operations of the main graph."""
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
    """Return the operand of a graph output: written by an operation, and neither an input nor
    another output.
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
    """Write an operation that copies a value, of the lowest level that supports the type."""
    integer = operand.type is OperandType.TENSOR_INT32
    if operand.type is OperandType.TENSOR_BOOL8:
        writer.operation("LOGICAL_AND", [source.index, source.index], [target.index])
    elif integer or len(operand.dimensions) > 4:
        writer.operation("CAST", [source.index], [target.index])
    else:
        shape = writer.tensor(np.array(operand.dimensions, np.int32), OperandType.TENSOR_INT32)
        writer.operation("RESHAPE", [source.index, shape.index], [target.index])
