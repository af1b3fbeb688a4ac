"""The passes that legalize a graph for NNAPI: those that run once, and those that run for a feature
level, on a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

import onnx_ir as ir

from converter.errors import Diagnostic, MappingError, UnsupportedError
from converter.formats.nnapi.boundary import Shapes, StoredEnds, narrow_boundary
from converter.formats.nnapi.collector import BYTES, Writer
from converter.formats.nnapi.legalize import MOST, rewrites
from converter.formats.nnapi.mapping import MAPPING
from converter.graph import RESHAPES, SAME_ELEMENTS
from converter.graph.infer import known, rank_of
from converter.graph.network import Network
from converter.graph.value import optional, producer_of
from converter.graph.walk import subgraphs
from converter.passes.channels_last import to_nhwc
from converter.passes.collapse_dims import (
    highest_rank,
    join_reshape_chains,
    lower_ranks,
)
from converter.passes.collapse_dims_rules import HANDLERS
from converter.passes.common_subexpressions import share_common
from converter.passes.constants import decode_weights
from converter.passes.decompositions.quantization import whole_floats
from converter.passes.finite_masks import FINITE_MASKS
from converter.passes.fold import fold_constants
from converter.passes.fold_empty import fold_empty_values
from converter.passes.fuse_constants import merge_biases
from converter.passes.legalize import legalize, rewrite_illegal
from converter.passes.pipeline import Context, Pass, check_static_shapes, check_target
from converter.passes.rare import FIXED_ROWS, STACK_SEQUENCES
from converter.passes.small_types import SMALL, widen_small_types
from converter.passes.unroll import LARGEST, unroll_loops
from converter.record import record

_MOVING = SAME_ELEMENTS | {"DequantizeLinear", "QuantizeLinear", "Transpose"}
_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})
_WHOLE = (ir.DataType.INT32, ir.DataType.INT64, ir.DataType.BOOL)


@record
class Ends:
    """The storage of inputs and outputs: "keep", "native", or `as_stored` by the table that was
    read; `narrow`: with at most four dimensions.

    `high` are the names of those that have more in the source: they are no images.
    """

    io_layout: str
    narrow: bool
    high: frozenset[str] = frozenset()
    stored: StoredEnds = field(default_factory=StoredEnds)
    as_stored: bool = False

    @classmethod
    def of(cls, model: Network, io_layout: str, records: bool) -> Ends:
        """Return the storage of a model's inputs and outputs, for a table (`records`) or another
        file.
        """
        if records and not io_layout and "nnapi" in model.interface:
            return cls("keep", True, stored=model.interface["nnapi"], as_stored=True)
        high = frozenset(
            i.name
            for i in (*model.inputs, *model.outputs)
            if i.shape is not None and len(i.shape) > MOST
        )
        return cls(io_layout or ("native" if records else "keep"), records, high)


@record
class AllLevels(Context):
    """The passes that do not depend on the level. `shapes` are those of inputs and outputs that are
    stored with other shapes, once they are known.
    """

    ends: Ends = field(default_factory=lambda: Ends("keep", False))
    shapes: list[tuple[Shapes, Shapes]] = field(default_factory=list)


@record
class Level(AllLevels):
    """One attempt: a writer of the level that writes nothing, and `on_failure` for nodes without a
    rewrite.
    """

    dry: Writer = field(default_factory=lambda: Writer(MAPPING, 1))
    on_failure: Callable[[ir.Node], None] | None = None

    @property
    def attempt(self) -> str:
        return f"level {self.dry.level}"


def _plain(weight: ir.Value) -> bool:
    """Return whether a computed constant is stored as real numbers. Quantized weights that are only
    moved may stay quantized, except for recurrent layers.
    """
    producer = weight.producer()
    return (producer is not None and producer.op_type not in _MOVING) or any(
        user.op_type in _RECURRENT for user, _ in weight.uses()
    )


def _countable(node: ir.Node) -> bool:
    """Return whether a loop has a known iteration count within the limit, or a Loop has no count at
    all, or a branch has a known condition.
    """
    if node.op_type == "If" or node.inputs[0] is None:
        return node.op_type == "Loop" or known(node.inputs[0]) is not None
    trips = known(node.inputs[0]) if node.op_type == "Loop" else None
    most = LARGEST // max(1, len(next(subgraphs(node))))
    return trips is not None and 0 < int(trips.reshape(-1)[0]) <= most


def out_of_order(node: ir.Node) -> bool:
    """Return whether a change of axis order may have created a node of a type without operation.

    Integers and booleans have no Transpose, booleans no Reshape, and TopK uses the last axis.
    """
    lacking = {"Transpose": _WHOLE, "Reshape": (ir.DataType.BOOL,)}
    transposed = node.outputs[0].dtype in lacking.get(node.op_type, ())
    return not node.domain and (transposed or node.op_type == "TopK")


def give_up(node: ir.Node) -> None:
    """Raise for a node without a rewrite; Reshapes may still be merged, and constants folded."""
    if (
        node.op_type not in RESHAPES
        and any(o.uses() or o.is_graph_output() for o in node.outputs)
        and any(known(o) is None for o in node.outputs)
    ):
        raise UnsupportedError(Diagnostic("X206", f"{node.op_type} needs a newer feature level"))


def refused(node: ir.Node, dry: Writer) -> bool:
    """Return whether the node cannot be written at the level of `dry`, by a dry run of the code
    that writes it.
    """
    if node.op_type in HANDLERS and not node.domain and highest_rank(node) > MOST:
        return True
    kind, x = "" if node.domain else node.op_type, optional(node, 0)
    if kind == "DequantizeLinear" and x is not None and whole_floats(x) is not None:
        return True  # its integers have no type here, or were not to be had
    if kind == "QuantizeLinear" and part_of(x, dry):
        return False
    if kind == "MaxPool" and x is not None and x.dtype in BYTES and rank_of(x) == MOST:
        # the scale, which the operation keeps, is known when the operators before it are written
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
    """Return whether the producer of `value` computes integers itself, so that the QuantizeLinear
    after it needs no operation.
    """
    producer = producer_of(value)
    return (
        producer is not None
        and not producer.op_type.endswith("Linear")
        and like.fresh().takes_integers(producer)
    )


def _narrow(model: ir.Model, context: AllLevels) -> None:
    ends = context.ends
    context.shapes.append(narrow_boundary(model, ends.stored) if ends.narrow else ({}, {}))


def _legalize(model: ir.Model, context: Level, wanted: Callable[[ir.Node], bool]) -> None:
    rewrite_illegal(
        model,
        lambda n: wanted(n) and refused(n, context.dry),
        rewrites(context.dry.level),
        context.on_failure,
    )


def _channels_last(model: ir.Model, context: Level) -> None:
    ends = context.ends
    ends.stored.transpose_boundary(model)
    context.notes.extend(to_nhwc(model, ends.io_layout, kept=ends.high))


PREPARE: list[Pass[AllLevels]] = [
    widen_small_types(SMALL),
    check_target(MAPPING.target),
    STACK_SEQUENCES,
    fold_constants(),
    FINITE_MASKS,
    FIXED_ROWS,
    merge_biases(),
    fold_empty_values(),
    unroll_loops(_countable, LARGEST),
    fold_constants(),
    decode_weights(_plain),
    lower_ranks(MOST),
    # before the shapes are judged: a GRU that is written out has static ones; no level has it
    legalize(lambda node, _: node.op_type == "GRU" and not node.domain, {}),
    check_static_shapes(),
    Pass("narrow-boundary", "Reduce inputs and outputs to at most four axes", _narrow),
    join_reshape_chains(MOST),
]
AT_LEVEL: list[Pass[Level]] = [
    Pass(
        "legalize",
        "Rewrite operators that the feature level lacks",
        lambda model, context: _legalize(model, context, lambda node: True),
    ),
    join_reshape_chains(),
    Pass(
        "channels-last", "Store images channels-last; Transposes remain at the ends", _channels_last
    ),
    Pass(
        "legalize-transposed",
        "Rewrite operators that the change of layout has created",
        lambda model, context: _legalize(model, context, out_of_order),
    ),
    fold_constants(),
    share_common(),
    join_reshape_chains(),
]
PIPELINE: list[Pass[Any]] = [*PREPARE, *AT_LEVEL]
