"""Give results whose number of rows depends on the data as many rows as there may be, for targets
with static shapes, and declare the number of valid rows as one more output.

before:  picked[K, 3] = NonMaxSuppression(boxes[1, 20, 4], scores[1, 2, 20], 5, 0.5, 0.2)
         y[K, 4] = Gather(boxes, picked[:, 2])
after:   rows[10, 3] = FixedNonMaxSuppression(..)  ;  y_count[1] = the number of rows that are >= 0
         y[10, 4] = Gather(boxes, Max(rows, 0)[:, 2])  ;  -1 in the rows from y_count on

The first walk names the dynamic dimension and follows it through the graph; it changes only shapes.
If every operator computes each row by itself, the second walk writes the rows. Operators that order
or cut rows see those that are not valid as the last ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, MappingError, UnsupportedError, Where
from converter.graph import BROADCAST, UNARY
from converter.graph.build import Builder, attributes, builder_before
from converter.graph.extensions import replace
from converter.graph.infer import forget_known, infer, known, rank_of, shape_of
from converter.graph.names import Names, public_name
from converter.graph.size_expressions import total
from converter.graph.sizes import arange
from converter.graph.symbolic import dimensions, elements
from converter.graph.value import BOOL, INT64, LOWEST, Value, operand, optional, with_operators
from converter.graph.walk import subgraphs
from converter.mapping.lowering import refusal
from converter.passes.dead_code import remove_dead_code
from converter.passes.fold import fold
from converter.passes.pipeline import Context
from converter.record import record

_PREFIX = "netconv_rows_"
_MOVED = frozenset(
    (
        "Transpose",
        "Squeeze",
        "Unsqueeze",
        "Reshape",
        "Flatten",
        "Expand",
        "Split",
        "Slice",
        "Concat",
    )
)
_REDUCED = frozenset(
    (
        "ReduceMax",
        "ReduceMin",
        "ReduceSum",
        "ReduceMean",
        "ReduceProd",
        "ReduceL1",
        "ReduceL2",
        "ArgMax",
        "ArgMin",
    )
)
_PICKED = frozenset(("Gather", "GatherND", "GatherElements"))
# operators that compute each row by itself, if the dimension is found again in their results
_ROW_BY_ROW = UNARY | BROADCAST | _MOVED | _REDUCED | _PICKED | {"MatMul"}
# operators that compute sizes of sizes, and the operands that are sizes of others
_OF_SIZES = frozenset(
    (
        "Gather",
        "Slice",
        "Concat",
        "Squeeze",
        "Unsqueeze",
        "Reshape",
        "Cast",
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Min",
        "Max",
        "Identity",
    )
)
_SIZES = {
    **{"Reshape": {1}, "Expand": {1}, "TopK": {1}, "ConstantOfShape": {0}, "Range": {0, 1, 2}},
    **{"Slice": {1, 2}},
}


def fix_rows(model: ir.Model, context: Context) -> None:
    """Rewrite in place; networks in which the rows depend on each other are left, and refused."""
    found = {node: rows for node in model.graph if (rows := _largest_count(node)) is not None}
    if not found:
        return
    plan = _Plan(list(found))
    for node in model.graph:
        plan.visit(node)
    writing = _Writing(model, plan, found, context.notes)
    if not context.padded:
        writing.demand_static()
    writing.write()


def _largest_count(node: ir.Node) -> int | None:
    """Return how many rows the result of an operator may have; None if the operator is another, or
    the number is not known.
    """
    if node.domain or node.op_type not in ("NonMaxSuppression", "NonZero"):
        return None
    shape = shape_of(operand(node, 1 if node.op_type == "NonMaxSuppression" else 0))
    if shape is None or shape_of(node.outputs[0]) is not None:
        return None
    if node.op_type == "NonZero":
        count = math.prod(shape)
        return count if shape and count else None
    boxes, limit = shape_of(operand(node)), optional(node, 2)
    if limit is None or boxes is None or len(shape) != 3:
        return None
    number = known(limit)  # computed: as many as there are boxes
    most = shape[2] if number is None else min(int(number.reshape(-1)[0]), shape[2])
    return shape[0] * shape[1] * most if most > 0 else None


class _Plan:
    """The named dimensions of each value, and the sizes that are computed from them."""

    def __init__(self, roots: list[ir.Node]) -> None:
        self.roots = set(roots)
        self.names: set[str] = set()
        self.sizes: set[ir.Value] = set()
        # operators with a number of rows of their own: its name
        self.counted: dict[ir.Node, str] = {}
        # those that take some of the rows: the name of their number, and its axis
        self.taken: dict[ir.Node, tuple[str, int]] = {}

    def axes(self, value: ir.Value | None) -> dict[int, str]:
        """Return the named dimensions of a value by axis."""
        found = enumerate(() if value is None or value.shape is None else value.shape)
        names = ((i, d.value) for i, d in found if isinstance(d, ir.SymbolicDim))
        return {i: name for i, name in names if name in self.names}

    def visit(self, node: ir.Node) -> None:
        if node in self.roots:
            sizes = [self._count(node)]
            first = node.op_type == "NonMaxSuppression"
            rest: int | None = 3 if first else rank_of(operand(node))
            node.outputs[0].shape = ir.Shape([*sizes, rest] if first else [rest, *sizes])
            return
        inner = {v for body in subgraphs(node) for n in body for v in n.inputs if v is not None}
        if any(self.axes(v) or v in self.sizes for v in inner):
            raise _refusal(node, "reads them in a body")
        if any(self.axes(v) or v in self.sizes for v in node.inputs):
            self._follow(node)

    def _count(self, node: ir.Node) -> ir.SymbolicDim:
        name = f"{_PREFIX}{len(self.names)}"
        self.names.add(name)
        self.counted[node] = name
        return ir.SymbolicDim(name)

    def _follow(self, node: ir.Node) -> None:
        for out in node.outputs:
            forget_known(out)
            out.shape = None
        infer(node)
        if node.op_type in ("Shape", "Size") and not node.domain:
            self.sizes.update(node.outputs)
            return
        given = {i for i, v in enumerate(node.inputs) if v in self.sizes}
        if given and not given <= _SIZES.get(node.op_type, set()):
            if node.domain or node.op_type not in _OF_SIZES or any(map(self.axes, node.inputs)):
                raise _refusal(node, "computes with their number")
            self.sizes.update(node.outputs)
            return
        if node.op_type == "TopK" and not node.domain:
            self._best(node)
        elif node.op_type == "Slice" and not node.domain and self._cuts(node):
            pass
        elif given and not any(self.axes(v) for v in node.inputs if v not in self.sizes):
            self._demand_named(node)
        else:
            self._row_by_row(node)

    def _best(self, node: ir.Node) -> None:
        """Handle a TopK along the rows, whose result has a separate number of rows."""
        axes, axis = self.axes(operand(node)), attributes(node)["axis"]
        axis %= rank_of(operand(node)) or 1
        if axis not in axes:
            self._row_by_row(node)
            return
        self._take(node, axis)

    def _take(self, node: ir.Node, axis: int) -> None:
        """Name the number of rows that a node selects."""
        dims = list(operand(node).shape or ())
        self.taken[node] = self.axes(operand(node))[axis], axis
        dims[axis] = self._count(node)
        for out in node.outputs:
            out.shape = ir.Shape(dims)

    def _cuts(self, node: ir.Node) -> bool:
        """Return whether a Slice takes the first rows; if so, name their number."""
        axes, starts = self.axes(operand(node)), known(optional(node, 1))
        count = 0 if starts is None else starts.size
        given, steps = (known(optional(node, i)) for i in (3, 4))
        where = range(count) if given is None else given.reshape(-1).tolist()
        cut = [i for i, axis in enumerate(where) if axis % (rank_of(operand(node)) or 1) in axes]
        if not cut or self._has_all_axes(node, axes):
            return False
        ends = known(optional(node, 2))
        if starts is None or starts.reshape(-1)[cut].any() or len(where) > 1:
            raise _refusal(node, "takes others than the first of them")
        positive = ends is None or (ends.reshape(-1)[cut] > 0).all()
        if not positive or (steps is not None and (steps.reshape(-1)[cut] != 1).any()):
            raise _refusal(node, "takes others than the first of them")
        self._take(node, where[0] % (rank_of(operand(node)) or 1))
        return True

    def _has_all_axes(self, node: ir.Node, axes: dict[int, str]) -> bool:
        return self.axes(node.outputs[0]) == axes

    def _row_by_row(self, node: ir.Node) -> None:
        if node.domain or node.op_type not in _ROW_BY_ROW:
            raise _refusal(node, "does not compute each of them by itself")
        inputs = [self.axes(v) for v in node.inputs]
        if node.op_type in _PICKED:
            if inputs[0] and not inputs[1]:
                self._demand_kept(node, inputs[0].values())
            self._demand_kept(node, inputs[1].values())
        else:
            self._demand_kept(node, (name for axes in inputs for name in axes.values()))
        if node.op_type in ("Reshape", "Flatten"):
            self._demand_same_rows(node)
        self._demand_named(node)

    def _demand_kept(self, node: ir.Node, names: Iterable[str]) -> None:
        wanted = set(names)
        for out in node.outputs:
            if not wanted <= set(self.axes(out).values()):
                raise _refusal(node, "does not compute each of them by itself")

    def _demand_same_rows(self, node: ir.Node) -> None:
        """Demand that a Reshape has as many elements before the rows as its operand."""
        for value in (operand(node), node.outputs[0]):
            if len(self.axes(value)) != 1:
                raise _refusal(node, "mixes them")
        before, after = (
            total((dimensions(v) or [])[: next(iter(self.axes(v)))])
            for v in (operand(node), node.outputs[0])
        )
        if before != after:
            raise _refusal(node, "mixes them")

    def _demand_named(self, node: ir.Node) -> None:
        for out in node.outputs:
            sizes = dimensions(out)
            named = self.axes(out)
            if sizes is None or any(
                s.integer is None for i, s in enumerate(sizes) if i not in named
            ):
                raise _refusal(node, "makes another number of them")


def _refusal(node: ir.Node, what: str) -> UnsupportedError:
    """Return the refusal of a network whose rows depend on each other."""
    reason = MappingError(
        f"the number of rows depends on the data, and {node.op_type} {what}; the target needs "
        "static shapes",
        "X203",
        "end the network before it with --outputs, and compute the rest in the program",
    )
    return UnsupportedError(refusal(node, reason))


@record
class _Count:
    """The number of valid rows of a dimension, and how many it may have."""

    number: Value  # int64 [1]
    most: int

    def mask(self, b: Builder, axis: int, rank: int) -> Value:
        """Return which rows are valid, to broadcast to a value."""
        shape = [self.most if i == axis else 1 for i in range(rank)]
        return b.Less(arange(self.most).reshape(shape), self.number)


class _Writing:
    """The second walk, which replaces the nodes by ones with a fixed number of rows."""

    def __init__(
        self, model: ir.Model, plan: _Plan, roots: dict[ir.Node, int], notes: list[Diagnostic]
    ) -> None:
        self.model, self.plan, self.roots, self.notes = model, plan, roots, notes
        self.names, self.counts = Names(model), dict[str, _Count]()
        outputs = model.graph.outputs
        self.axes = [plan.axes(v) for v in outputs]
        self.sizes = [elements(v) if v in plan.sizes else None for v in outputs]

    def demand_static(self) -> None:
        """Raise UnsupportedError if outputs would have rows that are not valid."""
        found = [
            Diagnostic(
                "X203",
                f"the number of rows of output {public_name(v)} is known only when the model runs, "
                "but the target needs static shapes",
                where=Where(layer=public_name(v)),
                help="add +padded to the target: the output then has as many rows as there may be, "
                f"and {public_name(v)}_count is the number of valid ones",
            )
            for v, axes in zip(self.model.graph.outputs, self.axes, strict=True)
            if axes
        ]
        if found:
            raise UnsupportedError(found)

    def write(self) -> None:
        for node in list(self.model.graph):
            if node in self.roots:
                self._root(node)
            elif node.graph is not None and self._is_changed(node):
                self._again(node)
        self._declare()
        fold(self.model)
        remove_dead_code(self.model)

    def _is_changed(self, node: ir.Node) -> bool:
        sizes = self.plan.sizes
        return any(self.plan.axes(o) or o in sizes for o in node.outputs) or any(
            v in sizes for v in node.inputs
        )

    def _root(self, node: ir.Node) -> None:
        b, rows = builder_before(node, self.names), self.roots[node]
        with b:
            write = _boxes if node.op_type == "NonMaxSuppression" else _positions
            result, number = write(node, b, rows)
            self.counts[self.plan.counted[node]] = _Count(number, rows)
            replace(node, [result], b)

    def _again(self, node: ir.Node) -> None:
        """Infer a node whose operands have static shapes now."""
        taken = self.plan.taken.get(node)
        b = builder_before(node, self.names)
        if taken is not None and node.op_type == "TopK":
            with b:
                node.replace_input_with(0, self._last(b, node, *taken))
        for out in node.outputs:
            forget_known(out)
            out.shape = None
        infer(node)
        if taken is not None:
            most = (shape_of(node.outputs[0]) or ())[taken[1]]
            with b:
                number = b.Min(self.counts[taken[0]].number, most)
            self.counts[self.plan.counted[node]] = _Count(number, most)

    def _last(self, b: Builder, node: ir.Node, name: str, axis: int) -> Value:
        """Return the operand of a TopK with its invalid rows moved to the end."""
        x = operand(node)
        bounds = np.finfo if x.dtype is not None and x.dtype.is_floating_point() else np.iinfo
        limits = bounds(x.dtype.numpy() if x.dtype is not None else np.float32)
        end = limits.min if attributes(node)["largest"] else limits.max
        return b.Where(self.counts[name].mask(b, axis, rank_of(x) or 1), x, b.like(x, end))

    def _declare(self) -> None:
        """Mark the rows that are not valid in the outputs, and append their numbers."""
        graph, said = self.model.graph, dict[str, str]()
        for i, old in enumerate(list(graph.outputs)):
            if not self.axes[i] and self.sizes[i] is None:
                continue
            b = Builder(graph, self.names)
            with b:
                sizes = self.sizes[i]
                y = (
                    self._marked(b, old, self.axes[i])
                    if sizes is None
                    else self._size(b, old, sizes)
                )
            y.name, old.name = old.name, self.names.fresh(f"{old.name}_rows")
            y.metadata_props.update(old.metadata_props)
            graph.outputs[i] = y
            for name in self.axes[i].values():
                said.setdefault(name, public_name(y))
        for name, output in said.items():
            self._count(name, output)

    def _marked(self, b: Builder, y: ir.Value, axes: dict[int, str]) -> Value:
        """Return an output with -1, 0 if it has no sign, in the rows that are not valid."""
        found = with_operators(y)
        is_signed = y.dtype is not None and y.dtype != BOOL and y.dtype.is_signed()
        for axis, name in axes.items():
            mask = self.counts[name].mask(b, axis, rank_of(y) or 1)
            found = (
                found & mask if y.dtype == BOOL else b.Where(mask, found, -1 if is_signed else 0)
            )
        return found

    def _size(self, b: Builder, old: ir.Value, sizes: np.ndarray) -> Value:
        """Return an output that is a number of rows."""
        parts = []
        for size in sizes.reshape(-1):
            name = str(size)
            parts.append(self.counts[name].number if name in self.counts else b.const([int(name)]))
        joined = b.Concat(*parts, axis=0) if len(parts) > 1 else parts[0]
        return b.Cast(b.Reshape(joined, list(sizes.shape)), to=old.dtype)

    def _count(self, name: str, output: str) -> None:
        graph, count = self.model.graph, self.counts[name]
        b = Builder(graph, self.names)
        with b:
            number = b.op("Identity", count.number, name=f"{output}_count")
        graph.outputs.append(number)
        self.notes.append(
            Diagnostic(
                "X216",
                f"output {output} has {count.most} rows, of which the first {number.name} are "
                "valid; the others hold -1",
                "warning",
                Where(layer=output),
                help="read the number of valid rows from this output",
            )
        )


def _boxes(node: ir.Node, b: Builder, rows: int) -> tuple[Value, Value]:
    """Return indices of boxes, 0 in rows that are not valid, and the number of those that are."""
    boxes, scores = operand(node), operand(node, 1)
    iou, least = optional(node, 3), optional(node, 4)
    found = b.FixedNonMaxSuppression(
        boxes,
        scores,
        optional(node, 2),
        np.zeros(1, np.float32) if iou is None else iou,
        np.array([LOWEST], np.float32) if least is None else least,
        rows=rows,
        center_point_box=attributes(node)["center_point_box"],
        sort_result_descending=0,
    )
    valid = b.Cast(found[:, 0] >= 0, to=INT64)
    return b.Max(found, 0), b.ReduceSum(valid, [0], keepdims=1)


def _positions(node: ir.Node, b: Builder, rows: int) -> tuple[Value, Value]:
    """Return the positions of elements that are not 0, those of the first element in columns that
    are not valid, and the number of those that are.
    """
    from converter.graph.catalogue.compact import first_true_indices
    from converter.graph.catalogue.compact import total as count_true
    from converter.passes.decompositions.indexing import strides_of

    x = operand(node)
    shape = shape_of(x) or ()
    mask = x if x.dtype == BOOL else ~b.Equal(x, 0)
    flat = b.Reshape(mask, [1, rows])
    positions, _ = first_true_indices(b, flat, rows)
    number = b.Reshape(count_true(b, flat, rows), [1])
    columns: list[Value] = []
    strides = strides_of(shape)
    for size, stride in zip(shape, strides, strict=True):
        column = positions / stride if stride > 1 else positions
        columns.append(column % size if columns else column)
    return b.Concat(*columns, axis=0), number
