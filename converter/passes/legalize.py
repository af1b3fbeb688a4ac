"""Rewrite operators that a target does not support, one node at a time, until all are supported or
no rewrite applies.

For each node that the target refuses, the first rewrite that applies is used, in this order: the
target's own rewrite, the common decomposition, the definition of the extension operator, the
function body in ONNX's schema. New nodes are legalized in turn. A node that stays refused is left
for the lowering to report with the target's own reason.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import onnx
import onnx_ir as ir

from converter.graph import OPSET
from converter.graph.build import Builder, RecordingBuilder, attrs_of, declared_defaults
from converter.graph.extensions import can_expand, replace, write_body
from converter.graph.infer import schema_of, shape_of, type_proto
from converter.graph.names import Names
from converter.graph.value import with_operators
from converter.graph.walk import all_graphs, discard, is_needed, subgraphs
from converter.mapping.conversion_errors import CONVERSION_ERRORS
from converter.passes.dead_code import remove_dead_code
from converter.passes.decompositions import DECOMPOSITIONS
from converter.passes.pipeline import Context, Pass

Rewrite = Callable[[ir.Node, Builder], "ir.Value | Sequence[ir.Value | None] | None"]
Rewrites = Mapping[tuple[str, str], Rewrite]
# elements of a tensor above which nothing is rewritten: per-element constants would exhaust memory
LARGE = 1 << 27
MAX_DEPTH = 12  # rewrites of rewrites: longer chains are assumed to be cycles


def rewrite_illegal(
    model: ir.Model,
    is_illegal: Callable[[ir.Node], bool],
    rewrites: Rewrites,
    on_failure: Callable[[ir.Node], None] | None = None,
) -> None:
    """Rewrite in place.

    `is_illegal(node)` returns whether the target cannot express the node as it is; `on_failure` is
    called for each node that could not be legalized.
    """
    names = Names(model)
    for graph in all_graphs(model.graph):
        queue = deque((n, 0) for n in graph)
        while queue:
            node, depth = queue.popleft()
            if node.graph is None or depth > MAX_DEPTH or not is_illegal(node):
                continue
            made = _rewrite(node, names, rewrites)
            queue.extendleft((n, depth + 1) for n in reversed(made))
            if on_failure is not None and node.graph is not None:
                on_failure(node)
    remove_dead_code(model)


def _rewrite(node: ir.Node, names: Names, rewrites: Rewrites) -> list[ir.Node]:
    """Return the nodes that replace `node`; empty if no rewrite applies."""
    if any(math.prod(shape_of(v) or ()) >= LARGE for v in (*node.inputs, *node.outputs)):
        return []
    name = node.domain, node.op_type
    for step in (rewrites.get(name), DECOMPOSITIONS.get(name), _definition, onnx_function):
        made = None if step is None else _replaced(node, names, step)
        if made is not None:
            return made
    return []


def rewritten(node: ir.Node, names: Names, rewrite: Rewrite) -> list[ir.Node]:
    """Replace a node by the results of one rewrite; return the new nodes, none if it does not
    apply.
    """
    return _replaced(node, names, rewrite) or []


def _replaced(node: ir.Node, names: Names, rewrite: Rewrite) -> list[ir.Node] | None:
    """Replace a node as `rewritten` does, but return None if the rewrite does not apply."""
    assert isinstance(node.graph, ir.Graph)
    b = RecordingBuilder(node.graph, names, node)
    results = _attempt(rewrite, node, b)
    if results is None:
        return None
    replace(node, results, b)
    return [n for n in b.made if n.graph is not None]


def _attempt(step: Rewrite, node: ir.Node, b: RecordingBuilder) -> Sequence[ir.Value | None] | None:
    """Return a rewrite's results for all outputs that are used.

    If it does not apply, return None and leave nothing in the graph.
    """
    for value in node.inputs:
        with_operators(value)
    try:
        with b:
            results = step(node, b)
    except CONVERSION_ERRORS:
        results = None
    found = [results] if isinstance(results, ir.Value) else results
    if found is not None and _is_complete(node, found):
        return found
    for made in reversed(b.made):
        for use in [u for o in made.outputs for u in o.uses()]:
            use.node.replace_input_with(use.idx, None)  # in an unfinished body
        discard(made)
    return None


def either(first: Rewrite, second: Rewrite) -> Rewrite:
    """Return a rewrite that tries `first`, then `second`."""

    def both(node: ir.Node, b: Builder) -> ir.Value | Sequence[ir.Value | None] | None:
        found = first(node, b)
        return second(node, b) if found is None else found

    return both


def _is_complete(node: ir.Node, results: Sequence[ir.Value | None]) -> bool:
    """Return whether every used output has a replacement: a function body may be empty for types
    that it does not support.
    """
    return all(
        new is not None or not is_needed(old)
        for old, new in zip(node.outputs, [*results, *[None] * len(node.outputs)], strict=False)
    )


def _definition(node: ir.Node, b: Builder) -> Sequence[ir.Value] | None:
    return (
        write_body(b, node.op_type, list(node.inputs), attrs_of(node))
        if node.domain == "netconv" and can_expand(node)
        else None
    )


def onnx_function(node: ir.Node, b: Builder) -> Sequence[ir.Value | None] | None:
    """Inline the body in ONNX's schema of operators such as Gelu, Mish or LayerNormalization.

    Return None if there is no body that can be inlined.
    """
    # onnx's type stubs lack the function members
    schema: Any = schema_of(node.op_type, node.domain)
    if schema is None or node.domain or any(subgraphs(node)):
        return None
    body = onnx.FunctionProto()
    if schema.has_function:
        body = schema.function_body
    elif schema.has_context_dependent_function:
        types = [
            p.SerializeToString() if v is not None and (p := type_proto(v)) is not None else b""
            for v in node.inputs
        ]
        proto = ir.serde.serialize_node(node)
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= OPSET]
        body.ParseFromString(
            schema.get_context_dependent_function_with_opset_version(
                max(versions), proto.SerializeToString(), types
            )
        )
    else:
        return None
    if any(
        a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
        for n in body.node
        for a in n.attribute
    ):
        return None  # the body branches on its inputs, which helps no target
    return _inline(body, node, b)


def _constant_of(attributes: Mapping[str, ir.Attr]) -> Any:
    """Return the array of a Constant node's single attribute."""
    (a,) = attributes.values()
    if a.name == "value":
        return a.as_tensor().numpy()
    dtype = {
        "value_float": np.float32,
        "value_floats": np.float32,
        "value_int": np.int64,
        "value_ints": np.int64,
    }.get(a.name)
    return np.array(a.value, dtype)


def _inline(body: onnx.FunctionProto, node: ir.Node, b: Builder) -> list[ir.Value | None]:
    env: dict[str, ir.Value | None] = dict(
        zip(body.input, [*node.inputs, *[None] * len(body.input)], strict=False)
    )
    given = {
        **declared_defaults(node.op_type, node.domain),
        **{a.name: ir.serde.deserialize_attribute(a) for a in body.attribute_proto},
        **{a.name: a for a in node.attributes.values()},
    }
    for proto in body.node:
        attributes: dict[str, Any] = {}
        for a in proto.attribute:
            if a.ref_attr_name:
                source = given.get(a.ref_attr_name)
                if source is not None:
                    attributes[a.name] = ir.Attr(a.name, source.type, source.value)
            else:
                attributes[a.name] = ir.serde.deserialize_attribute(a)
        if proto.op_type == "Constant":
            env[proto.output[0]] = b.const(_constant_of(attributes), proto.output[0])
            continue
        operands = [env[i] if i else None for i in proto.input]
        results = b.ops(
            proto.op_type, *operands, domain=proto.domain, outputs=len(proto.output), **attributes
        )
        env.update(zip(proto.output, results, strict=True))
    return [env.get(o) for o in body.output]


C = TypeVar("C", bound=Context)


def legalize(is_illegal: Callable[[ir.Node, C], bool], rewrites: Rewrites) -> Pass[C]:
    """Return the pass of a pipeline; see `legalize`.

    `is_illegal(node, context)`: whether the format has no layer for the node.
    """
    return Pass(
        "legalize",
        "Rewrite operators that the format lacks",
        lambda model, context: rewrite_illegal(model, lambda n: is_illegal(n, context), rewrites),
    )
