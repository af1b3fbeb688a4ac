"""Inference over a whole graph: after reading, and again when input shapes are fixed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from converter.errors import Diagnostic, UsageError
from converter.graph.infer import InferenceError, forget_known, infer, known, shape_of
from converter.graph.names import public_name
from converter.graph.walk import all_graphs, all_nodes, subgraphs


def infer_all(model: ir.Model) -> None:
    """Types and shapes of all values, sub-graphs before their owners. Declared shapes stay where
    inference knows less.
    """
    infer_graph(model.graph)


def infer_graph(graph: ir.Graph) -> None:
    for node in graph:
        if node.op_type == "Loop" and not node.domain:
            _infer_loop_body(node)
        else:
            for inner in subgraphs(node):
                try:
                    infer_graph(inner)
                except InferenceError:
                    if not _passed_over(node, inner):
                        raise
        declared = [(o.type, o.shape) for o in node.outputs]
        infer(node)
        for out, (type_, shape) in zip(node.outputs, declared, strict=True):
            _keep_better(out, type_, shape)


def _passed_over(node: ir.Node, branch: ir.Graph) -> bool:
    """Whether a choice whose condition is known never takes a branch: what is in there need not
    fit.
    """
    condition = known(node.inputs[0]) if node.op_type == "If" and not node.domain else None
    return (
        condition is not None
        and node.attributes["else_branch" if bool(condition.all()) else "then_branch"].as_graph()
        is branch
    )


def _infer_loop_body(node: ir.Node) -> None:
    """What is carried has the type of its initial value, and those of its dimensions that the body
    gives back.
    """
    body = next(subgraphs(node))
    assumed: list[tuple[ir.Value, ir.Value]] = []
    for formal, actual, after in zip(
        body.inputs[2:], node.inputs[2:], body.outputs[1:], strict=False
    ):
        if actual is None:
            continue
        if formal.type is None:
            formal.type = actual.type
        if shape_of(formal) is None and actual.shape is not None:
            formal.shape = ir.Shape(list(actual.shape))
            assumed.append((formal, after))
    declared = {o: o.shape for n in all_nodes(body) for o in n.outputs}
    infer_graph(body)
    while any(
        [_give_up(formal, after) for formal, after in assumed]
    ):  # all of them: a list; every round gives up a dimension
        for out, shape in declared.items():
            forget_known(out)
            out.shape = shape
        infer_graph(body)


def _give_up(formal: ir.Value, after: ir.Value) -> bool:
    """Whether dimensions of `formal` had to be forgotten because the body does not give them
    back.
    """
    if formal.shape is None:
        return False
    if after.shape is None or len(after.shape) != len(formal.shape):
        formal.shape = None
        return True
    kept = [
        d if not isinstance(d, int) or d == e else None
        for d, e in zip(formal.shape, after.shape, strict=True)
    ]
    changed = any(k is None and isinstance(d, int) for k, d in zip(kept, formal.shape, strict=True))
    formal.shape = ir.Shape(kept)
    return changed


def forget(graph: ir.Graph) -> None:
    """Drops inferred shapes and known values of all nodes' outputs."""
    for node in all_nodes(graph):
        for out in node.outputs:
            forget_known(out)
            out.shape = None


def _keep_better(out: ir.Value, type_: ir.TypeProtocol | None, shape: ir.Shape | None) -> None:
    if out.type is None:
        out.type = type_
    if shape is not None and (
        out.shape is None or (shape_of(out) is None and len(out.shape) == len(shape))
    ):
        known = list(out.shape) if out.shape is not None else [None] * len(shape)
        out.shape = ir.Shape(
            [k if isinstance(k, int) else s for k, s in zip(known, shape, strict=True)]
        )


def fix_inputs(model: ir.Model, shapes: Mapping[str, Sequence[int]]) -> list[str]:
    """Sets input shapes by public name and infers again; returns the names that no input has.

    A symbolic dimension gets its number everywhere it is named, in other inputs too. UsageError
    U501 when a shape contradicts the declared rank, a fixed dimension, another input, or the
    operators.
    """
    by_name = {public_name(v): v for v in model.graph.inputs}
    numbers: dict[str, int] = {}
    for name, shape in shapes.items():
        if name in by_name:
            _bind(by_name[name], name, shape, numbers)
    declared: dict[ir.Value, ir.Shape] = {}
    for graph in all_graphs(model.graph):
        for value in [*graph.inputs, *(o for n in graph for o in n.outputs)]:
            if value.shape is not None:
                value.shape = declared[value] = ir.Shape(
                    [
                        numbers.get(d.value or "", d) if isinstance(d, ir.SymbolicDim) else d
                        for d in value.shape
                    ]
                )
    forget(model.graph)
    try:
        infer_all(model)
    except InferenceError as e:
        raise _refused(f"the network does not take these shapes: {e}") from None
    for value, old in declared.items():
        if value.producer() is not None:
            _keep_better(value, value.type, old)
    return [n for n in shapes if n not in by_name]


def _bind(value: ir.Value, name: str, shape: Sequence[int], numbers: dict[str, int]) -> None:
    if value.shape is not None and len(value.shape) != len(shape):
        raise _refused(f"input {name!r} has {len(value.shape)} dimensions, {len(shape)} are given")
    for declared, given in zip(value.shape or (), shape, strict=False):
        if isinstance(declared, int) and declared != given:
            raise _refused(f"input {name!r} has a fixed dimension of {declared}, {given} is given")
        if (
            isinstance(declared, ir.SymbolicDim)
            and declared.value
            and numbers.setdefault(declared.value, given) != given
        ):
            raise _refused(
                f"dimension {declared.value!r} of input {name!r} is {given} here and "
                f"{numbers[declared.value]} elsewhere"
            )
    value.shape = ir.Shape(shape)


def _refused(message: str) -> UsageError:
    return UsageError(Diagnostic("U501", message))
