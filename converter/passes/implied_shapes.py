"""Determine branches and sizes that the operators of a network imply, for targets that need the
ranks of all values.

before:  y = If(Shape(x)[2] == 1) { Squeeze(x[N,8,T], 2) } { x };  LSTM(Unsqueeze(y, 0), ...)
after:   LSTM(Unsqueeze(Squeeze(x, 2), 0), ...)                      because no LSTM takes 4 axes

before:  GRU(x[T,N,8], initial_h[1,1,4])                             after:   GRU(x[T,1,8], ...)
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic
from converter.graph import BROADCAST, UNARY
from converter.graph.build import builder_before
from converter.graph.infer import InferenceError, known, rank_of
from converter.graph.names import Names, subject_of
from converter.graph.shapes import forget, infer_all
from converter.graph.symbolic_dimensions import RECURRENT, batch_of
from converter.graph.value import known_sizes, optional
from converter.graph.verify.shapes_of import attribute
from converter.graph.walk import all_nodes, operators, replace_inputs, set_inputs, subgraphs
from converter.passes.fix_inputs import replace_dimensions
from converter.passes.pipeline import Context
from converter.passes.unroll import infer_and_choose, unroll

BRANCHES = (("then_branch", True), ("else_branch", False))


def choose_possible_branches(model: ir.Model) -> None:
    """Inline, in place, the only branch of an If whose results have a rank that the later nodes
    accept.
    """
    chosen = False
    for node in list(all_nodes(model.graph)):
        if node.op_type != "If" or node.domain or not _ranks_differ(node):
            continue
        possible = [taken for _, taken in BRANCHES if _is_possible(model, node, taken)]
        if len(possible) == 1:
            _decide(node, possible[0], Names(model))
            chosen = True
    if chosen:
        unroll(model, lambda node: node.op_type == "If")


def _ranks_differ(node: ir.Node) -> bool:
    """Return whether results of the branches have different known ranks."""
    ends = [node.attributes[name].as_graph().outputs for name, _ in BRANCHES]
    return known(node.inputs[0]) is None and any(
        a.shape is not None and b.shape is not None and len(a.shape) != len(b.shape)
        for a, b in zip(*ends, strict=True)
    )


def _decide(node: ir.Node, taken: bool, names: Names) -> None:
    replace_inputs(node, {0: builder_before(node, names).const(np.array(taken), "taken")})


def _is_possible(model: ir.Model, choice: ir.Node, taken: bool) -> bool:
    """Return whether inference finds no error if a branch of an If is taken.

    Only errors of nodes that are executed whenever the If is are a proof: those of its graph, not
    of branches and loops in it. Declared shapes are ignored, because they belong to one branch.
    """
    clone = model.clone()
    node = next(
        copy
        for own, copy in zip(all_nodes(model.graph), all_nodes(clone.graph), strict=True)
        if own is choice
    )
    graph, names = node.graph, Names(clone)
    assert isinstance(graph, ir.Graph)
    _decide(node, taken, names)
    forget(graph)

    def leniently(branch: ir.Graph) -> None:
        with suppress(InferenceError):
            infer_and_choose(branch, names, leniently)

    try:
        infer_and_choose(graph, names, leniently)
    except InferenceError as e:
        return e.node is None or e.node.graph is not graph or any(subgraphs(e.node))
    return True


def implied_sizes(model: ir.Model) -> dict[str, tuple[int, ir.Node]]:
    """Return the named dimensions that have one possible size, with the node that implies it: the
    batch of a recurrent operator, if a state begins with a fixed batch.
    """
    found: dict[str, tuple[int, ir.Node]] = {}
    for node in model.graph:
        if node.op_type not in RECURRENT or node.domain:
            continue
        x, batch = node.inputs[0], batch_of(node)
        size = None if batch is None else batch.integer
        if size is None or x is None or x.shape is None or len(x.shape) != 3:
            continue
        dimension = x.shape[0 if attribute(node, "layout", 0) else 1]
        name = None if isinstance(dimension, int) else dimension.value
        if name is not None and name in _named_inputs(model):
            found.setdefault(name, (size, node))
    return found


def _named_inputs(model: ir.Model) -> set[str | None]:
    """Return the names of dimensions of the inputs."""
    return {
        d.value for v in model.graph.inputs for d in v.shape or () if isinstance(d, ir.SymbolicDim)
    } - {None}


def fix_implied_sizes(model: ir.Model, context: Context) -> None:
    """Give, in place, dimensions of the inputs the only sizes that the operators accept."""
    sizes = implied_sizes(model)
    numbers = {name: size for name, (size, _) in sizes.items()}
    if not numbers:
        return
    try:
        replace_dimensions(model.clone(), numbers)
    except InferenceError:  # the network accepts no size at all, which its engine will say
        return
    replace_dimensions(model, numbers)
    for name, (size, node) in sizes.items():
        message = f"dimension {name!r} is fixed to {size}, because {subject_of(node)} needs this"
        context.notes.append(
            Diagnostic("X211", f"{message} batch size for its initial state", "note")
        )


def name_squeezed_axes(model: ir.Model) -> None:
    """Give, in place, each Squeeze of all axes of size 1 those axes with which its result has the
    declared rank, if its operand has dynamic dimensions.

    before:  y = Squeeze(x[N,1]), where the file declares y as a scalar
    after:   y = Squeeze(x, [0,1])
    """
    named = False
    for node in operators(model.graph, "Squeeze"):
        axes = None if optional(node, 1) is not None else _squeezed_axes(node)
        if axes is not None:
            set_inputs(node, [node.inputs[0], builder_before(node, Names(model)).const(axes)])
            named = True
    if named:
        infer_all(model)


def _squeezed_axes(node: ir.Node) -> list[int] | None:
    sizes, rank = known_sizes(node.inputs[0]), _declared_rank(node.outputs[0])
    if sizes is None or rank is None or None not in sizes:
        return None
    ones, dynamic = ([i for i, n in enumerate(sizes) if n == d] for d in (1, None))
    more = len(sizes) - len(ones) - rank
    axes = ones if more == 0 else sorted([*ones, *dynamic]) if more == len(dynamic) else []
    return axes or None


def _declared_rank(value: ir.Value) -> int | None:
    """Return the rank of a value, or that of its result after scalar arithmetic."""
    following: ir.Value | None = value
    while following is not None and following.shape is None:
        users = (user for user, _ in following.uses())
        following = next((u.outputs[0] for u in users if _keeps_shape(u, following)), None)
    return None if following is None or following.shape is None else len(following.shape)


def _keeps_shape(node: ir.Node, value: ir.Value) -> bool:
    others = [v for v in node.inputs if v is not value]
    return (
        node.op_type in UNARY | BROADCAST
        and not node.domain
        and all(rank_of(v) == 0 for v in others)
    )


def imply_shapes(model: ir.Model, context: Context, squeezes: bool) -> None:
    """Apply `choose_possible_branches`, `fix_implied_sizes` and, for targets whose layers list
    squeezed axes, `name_squeezed_axes`, in place.
    """
    choose_possible_branches(model)
    fix_implied_sizes(model, context)
    if squeezes:
        name_squeezed_axes(model)
