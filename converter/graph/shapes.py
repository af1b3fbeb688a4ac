"""Inference over a whole graph: after reading, and again after input shapes have been fixed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import onnx_ir as ir

from converter.graph.infer import InferenceError, forget_known, infer, known, shape_of
from converter.graph.names import layer_name, public_name
from converter.graph.verify.shapes_of import BODY
from converter.graph.walk import all_nodes, subgraphs

# types of inputs that are switches or counts rather than data
_DECIDING = {ir.DataType.BOOL, ir.DataType.INT32, ir.DataType.INT64}
_FEW = 8  # elements
_FURTHEST = 2000  # values that are searched for inputs that determine others


def infer_all(model: ir.Model) -> None:
    """Infer types and shapes of all values, sub-graphs before their owners.

    Declared shapes are kept where inference knows less.
    """
    infer_graph(model.graph)


def infer_graph(graph: ir.Graph) -> None:
    """Infer the types and shapes of all nodes anew, in order."""
    for node in graph:
        infer_again(node)


def infer_again(node: ir.Node, branch: Callable[[ir.Graph], None] = infer_graph) -> None:
    """Infer a node with its bodies, using `branch` for bodies other than those of loops.

    Declared shapes are kept where inference knows less.
    """
    if node.op_type == "Loop" and not node.domain:
        _infer_loop_body(node)
    else:
        _infer_branches(node, branch)
    declared = [(o.type, o.shape) for o in node.outputs]
    infer(node)
    for out, (type_, shape) in zip(node.outputs, declared, strict=True):
        keep_better(out, type_, shape)


def _infer_branches(node: ir.Node, branch: Callable[[ir.Graph], None]) -> None:
    """Infer the bodies of an If.

    A branch that is never taken, because the condition is known, need not be valid.
    """
    choice = node.op_type == "If" and not node.domain
    condition = known(node.inputs[0]) if choice else None
    for body in subgraphs(node):
        try:
            branch(body)
        except InferenceError as e:
            if condition is None:
                layer = layer_name(node)
                place = (
                    f" (in a branch of {layer!r}, whose condition is computed)" if choice else ""
                )
                raise InferenceError(f"{e}{place}") from None
            if body is taken_branch(node, bool(condition.all())):
                raise


def taken_branch(node: ir.Node, condition: bool) -> ir.Graph:
    """Return the branch of an If that is taken for a condition."""
    return node.attributes["then_branch" if condition else "else_branch"].as_graph()


def freezing(values: Iterable[ir.Value | None]) -> str:
    """Return the command-line options that fix inputs which may determine `values`; "" if there are
    none.
    """
    return " ".join(f"--freeze {name}=VALUE" for name in deciding_inputs(values))


def deciding_inputs(values: Iterable[ir.Value | None]) -> list[str]:
    """Return the public names of inputs whose elements, not only their sizes, may determine
    `values`: small integer or boolean inputs on which these depend other than by sizes.
    """
    queue = [v for v in values if v is not None]
    seen: set[ir.Value] = set()
    inner: set[ir.Value] = set()  # inputs of bodies
    found: dict[str, None] = {}
    while queue and len(seen) < _FURTHEST:
        value = queue.pop()
        if value in seen:
            continue
        seen.add(value)
        node = value.producer()
        if node is None:
            shape = shape_of(value)
            few = shape is not None and math.prod(shape) <= _FEW
            given = value.is_graph_input() and value not in inner and not _is_of_body(value)
            if given and value.dtype in _DECIDING and few:
                found[public_name(value)] = None
        elif node.op_type not in ("Shape", "Size"):
            queue.extend(v for v in node.inputs if v is not None)
            if node.op_type in ("If", "Loop"):
                queue.extend(o for body in subgraphs(node) for o in body.outputs)
                inner.update(v for body in subgraphs(node) for v in body.inputs)
    return list(found)


def _is_of_body(value: ir.Value) -> bool:
    """Return whether a value is an input of a body, which the feeds do not contain."""
    return value.graph is not None and BODY in value.graph.meta


def _infer_loop_body(node: ir.Node) -> None:
    """Give each loop state the type of its initial value, and those of its dimensions that the body
    preserves.

    Sizes that a file declares are kept, names of dimensions only if the body preserves them.
    """
    body = next(subgraphs(node))
    assumed: list[tuple[ir.Value, ir.Value, bool]] = []
    for formal, actual, after in zip(
        body.inputs[2:], node.inputs[2:], body.outputs[1:], strict=False
    ):
        if actual is None:
            continue
        if formal.type is None:
            formal.type = actual.type
        declared = shape_of(formal) is not None or actual.shape is None
        if not declared:
            formal.shape = ir.Shape(list(actual.shape or ()))
        if formal.shape is not None and (not declared or formal.shape.has_unknown_dim()):
            assumed.append((formal, after, declared))
    shapes = {o: o.shape for n in all_nodes(body) for o in n.outputs}
    infer_graph(body)
    while any(
        [_give_up(*state) for state in assumed]
    ):  # a list, so that all are evaluated; every round drops a dimension
        for out, shape in shapes.items():
            forget_known(out)
            out.shape = shape
        infer_graph(body)


def _give_up(formal: ir.Value, after: ir.Value, declared: bool) -> bool:
    """Drop the dimensions of `formal` that the body does not preserve, only names if they are
    `declared`; return whether there were any.
    """
    if formal.shape is None:
        return False
    if after.shape is None or len(after.shape) != len(formal.shape):
        formal.shape = None
        return True
    dims = list(formal.shape)
    kept = [
        d if d == e or (declared and isinstance(d, int)) else ir.SymbolicDim(None)
        for d, e in zip(dims, after.shape, strict=True)
    ]
    formal.shape = ir.Shape(kept)
    return kept != dims


def forget(graph: ir.Graph) -> None:
    """Drop inferred shapes and known values of all nodes' outputs."""
    for node in all_nodes(graph):
        for out in node.outputs:
            forget_known(out)
            out.shape = None


def keep_better(out: ir.Value, type_: ir.TypeProtocol | None, shape: ir.Shape | None) -> None:
    """Restore a declared type and shape where inference knows less.

    Names of dimensions that inference knows are better than declared ones, because equal sizes have
    equal names; outputs of the network keep the names by which the file declares them.
    """
    if out.type is None:
        out.type = type_
    if shape is not None and (
        out.shape is None or (shape_of(out) is None and len(out.shape) == len(shape))
    ):
        inferred = list(out.shape) if out.shape is not None else [None] * len(shape)
        final = out.is_graph_output()
        out.shape = ir.Shape(
            [
                k if isinstance(k, int) or (not final and _has_name(k)) else s
                for k, s in zip(inferred, shape, strict=True)
            ]
        )


def _has_name(dimension: ir.SymbolicDim | None) -> bool:
    """Return whether a dimension is dynamic, but named."""
    return dimension is not None and dimension.value is not None
