"""The `netconv` domain: operators that ONNX cannot express in one node.

An extension operator *is* a Python function that writes its definition in standard operators:

    @extension
    def NormalizeL2(b, x, *, axes: list[int], eps: float):
        '''x divided by its Euclidean norm over `axes`, the norm being at least sqrt(eps).'''
        return x / b.Sqrt(b.Max(b.ReduceSum(x * x, axes), b.like(x, eps)))

Positional parameters are inputs (default None: optional; *xs: variadic), keyword-only ones
attributes with their defaults. The body may inspect the types and shapes of its inputs; the
decorator declares the ranks that it requires: `@extension(x=4, rois=2)`. This definition is used
for shape inference, for the model-local function that makes an ONNX file self-contained (overload =
hash of the body, so that bodies for other attributes or ranks do not clash), and for the expansion
for targets that lack the operator.

An operator without a definition (random numbers, custom layers) is `@opaque`: its function returns
only output types.

The channels-last dialect (`netconv.channels_last`) holds the same operator names as ONNX with data
inputs and outputs stored as N..C; its definition is Transpose, the operator, Transpose.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, overload

import onnx_ir as ir

from converter.graph import CHANNELS_LAST_DOMAIN, EXTENSION_DOMAIN, IR_VERSION, OPSET
from converter.graph.build import Builder, attrs_of, builder_before
from converter.graph.catalogue import (
    CATALOGUE,
    Body,
    Extension,
    catalogue,
    enter,
    lookup,
    write_body,
)
from converter.graph.channels_last import BASE, base_domain, ports, rank, to_nchw, to_nhwc
from converter.graph.infer import Array, known, set_known, set_type, shape_of, static_question
from converter.graph.infer import infer as infer_node
from converter.graph.names import Names
from converter.graph.value import Value, with_operators
from converter.graph.walk import (
    all_graphs,
    all_nodes,
    discard,
    replace_outputs,
    replace_uses,
    subgraphs,
)
from converter.io.digest import sha256
from converter.io.limits import MOST_AXES

Spelling = Callable[[ir.Graph, Names], None]


# type, shape and known elements of each result of an operator with these inputs and attributes
Answer = tuple[ir.DataType | None, ir.Shape | None, Array | None]
_ANSWERS: dict[Any, list[Answer]] = {}
_MOST_ANSWERS = 4096


class Defined(Extension):
    """An operator whose body writes it in standard operators."""

    def infer(self, node: ir.Node) -> None:
        """Infer the outputs from the definition. Its answers are kept, because networks repeat
        them, and are inferred again after each pass.
        """
        key = static_question(node)
        found = None if key is None else _ANSWERS.get((self.body, key))
        if found is None:
            b, formal = _scratch(node)
            results = self.write(b, formal, attrs_of(node))
            found = [(r.dtype, r.shape, known(r)) for r in results]
            if key is not None and all(shape_of(r) is not None for r in results):
                if len(_ANSWERS) >= _MOST_ANSWERS:
                    _ANSWERS.clear()
                _ANSWERS[self.body, key] = found
        _take_types(node, found)

    def write(
        self, b: Builder, inputs: Sequence[ir.Value | None], attributes: dict[str, Any]
    ) -> tuple[Value, ...]:
        given = {k: v for k, v in attributes.items() if v is not None}
        with b:
            results = self.body(b, *(with_operators(v) for v in inputs), **given)
        return tuple(results) if isinstance(results, tuple | list) else (results,)


class Opaque(Extension):
    """An operator that cannot be computed: its body returns the types of its outputs."""

    opaque = True

    def infer(self, node: ir.Node) -> None:
        types = self.body(None, *node.inputs, **attrs_of(node))
        for out, (dtype, shape) in zip(node.outputs, types, strict=False):
            set_type(out, dtype, shape)

    def write(
        self, b: Builder, inputs: Sequence[ir.Value | None], attributes: dict[str, Any]
    ) -> tuple[Value, ...]:
        raise KeyError(self.name)


SOME = range(1, MOST_AXES + 1)  # ranks of an input that is no scalar


@overload
def extension(body: Body, /) -> Body: ...
@overload
def extension(**ranks: int | range) -> Callable[[Body], Body]: ...
def extension(body: Body | None = None, /, **ranks: int | range) -> Any:
    """Register `body` in the catalogue under its own name; `ranks` are the ranks that it requires
    of its inputs.
    """
    if body is None:
        return partial(_enter, made=Defined, ranks=ranks)
    return _enter(body, Defined)


def opaque(types: Body) -> Body:
    """Register an operator that cannot be computed; `types(*inputs, **attributes)` returns [(dtype,
    shape), ...].
    """
    return _enter(types, Opaque)


def _enter(
    body: Body, made: type[Extension], ranks: Mapping[str, int | range] | None = None
) -> Body:
    parameters = list(inspect.signature(body).parameters.values())[1:]
    inputs = tuple(p.name for p in parameters if p.kind is not p.KEYWORD_ONLY)
    name = body.__name__
    needed = {k: range(n, n + 1) if isinstance(n, int) else n for k, n in (ranks or {}).items()}
    assert needed.keys() <= set(inputs), f"ranks are declared for {name}, which is not an input"
    positional = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    enter(
        made(
            name=name,
            body=body,
            inputs=inputs,
            variadic=any(p.kind is p.VAR_POSITIONAL for p in parameters),
            attributes={p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY},
            doc=inspect.cleandoc(body.__doc__ or ""),
            required=sum(p.default is p.empty for p in positional),
            present=frozenset(p.name for p in parameters if "None" not in str(p.annotation)),
            ranks=needed,
        )
    )
    return body


def can_expand(node: ir.Node) -> bool:
    """Return whether a node has a definition in ONNX operators that may replace it."""
    if node.domain == CHANNELS_LAST_DOMAIN:
        return True
    entry = lookup(node.op_type) if node.domain == EXTENSION_DOMAIN else None
    return entry is not None and not entry.opaque


def expand(node: ir.Node, names: Names) -> None:
    """Replace an extension node by its definition, in place."""
    b = builder_before(node, names)
    results = write_definition(b, node, list(node.inputs))
    replace(node, results, b)


def replace(node: ir.Node, results: Sequence[ir.Value | None], b: Builder) -> None:
    """Replace the node's outputs by `results`, which take their names and uses, and remove the
    node.
    """
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    taken: set[ir.Value] = set()
    pairs: list[tuple[ir.Value, ir.Value]] = []
    for old, new in zip(node.outputs, results, strict=False):
        if new is None or (old.is_graph_output() is False and not old.uses()):
            continue
        if old.is_graph_output() and (
            new.producer() is None
            or new.graph is not graph
            or new.is_graph_output()
            or new in taken
        ):
            new = b.op("Identity", new)
        taken.add(new)
        keeps_name = (
            new.producer() is not None
            and not new.is_graph_output()
            and (old.is_graph_output() or new.producer().graph is graph)  # type: ignore[union-attr]
        )
        public = dict(old.metadata_props)
        name = old.name
        if new.shape is None and old.shape is not None:
            new.shape = old.shape
        if new.type is None:
            new.type = old.type
        replace_outputs(old, new)
        pairs.append((old, new))
        if keeps_name and (new.is_graph_output() or not new.metadata_props):
            old.name = None
            new.name = name
            new.metadata_props.update(public)
    replace_uses(pairs)
    discard(node)


def write_definition(
    b: Builder, node: ir.Node, inputs: Sequence[ir.Value | None]
) -> tuple[ir.Value, ...]:
    """Write the definition of a node of an extension operator, or of a channels-last variant."""
    if node.domain == CHANNELS_LAST_DOMAIN:
        return _write_channels_last(b, node, inputs)
    return write_body(b, node.op_type, inputs, attrs_of(node))


def _write_channels_last(
    b: Builder, node: ir.Node, inputs: Sequence[ir.Value | None]
) -> tuple[ir.Value, ...]:
    """Write the definition of a channels-last variant: Transpose, the operator, Transpose."""
    found = ports(node)
    assert found is not None, node.op_type
    data_in, data_out = found
    operands = list(inputs)
    for i in data_in:
        if i < len(operands) and (v := operands[i]) is not None:
            operands[i] = b.op("Transpose", v, perm=to_nchw(rank(v)))
    attributes = {k: v for k, v in attrs_of(node).items() if k != BASE}
    domain = base_domain(node)
    make = b.exts if domain == EXTENSION_DOMAIN else b.ops
    results = list(make(node.op_type, *operands, outputs=len(node.outputs), **attributes))
    for i in data_out:
        if i < len(results):
            results[i] = b.op("Transpose", results[i], perm=to_nhwc(rank(results[i])))
    return tuple(results)


def _scratch(node: ir.Node) -> tuple[Builder, list[ir.Value | None]]:
    """Return a temporary function graph with one typed input for each distinct input of the node,
    with its known values.
    """
    graph = ir.Graph([], [], nodes=[], opset_imports={"": OPSET}, name=node.op_type)
    b = Builder(graph, Names(), in_function=True)
    formal: list[ir.Value | None] = []
    for i, v in enumerate(node.inputs):
        if v is None:
            formal.append(None)
            continue
        inner = Value(name=b.names.fresh(f"in{i}"), type=v.type, shape=v.shape)
        if (k := known(v)) is not None:
            set_known(inner, k)
        graph.inputs.append(inner)
        formal.append(inner)
    return b, formal


def _take_types(node: ir.Node, results: Sequence[Answer]) -> None:
    """Give the outputs of `node` the types, shapes and known elements of the results of its
    definition.
    """
    for out, (dtype, shape, array) in zip(node.outputs, results, strict=False):
        set_type(out, dtype, None if shape is None else ir.Shape(list(shape)))
        if array is not None:
            set_known(out, array)


def definition_of(node: ir.Node) -> ir.Graph:
    """Return the graph that defines this node, for inputs of these types and known values."""
    return _definition(node)[0].graph


def _definition(node: ir.Node) -> tuple[Builder, list[ir.Value | None]]:
    b, formal = _scratch(node)
    results = write_definition(b, node, formal)
    b.output(*(r for r in results[: len(node.outputs)]))
    return b, formal


def function_for(node: ir.Node, spell: Spelling | None = None) -> ir.Function:
    """Return the model-local function that defines this node, named by the hash of its body.

    The name begins with a letter, because numbers do not parse.
    """
    b, formal = _definition(node)
    if len(node.inputs) != len(
        b.graph.inputs
    ):  # an optional input that is left out in the middle still needs its position
        b.graph.inputs.clear()
        b.graph.inputs.extend(
            v if v is not None else ir.Value(name=b.names.fresh("unused")) for v in formal
        )
    if spell is not None:
        spell(b.graph, b.names)
    _name_inner_values(b.graph, node.op_type)
    for v in b.graph.all_nodes():
        v.metadata_props.clear()
    text = sha256()
    for n in all_nodes(b.graph):
        text.update(ir.serde.serialize_node(n).SerializeToString(deterministic=True))
    text.update("|".join(str(v.name) for v in [*b.graph.inputs, *b.graph.outputs]).encode())
    return ir.Function(
        node.domain, node.op_type, "b" + text.hexdigest()[:12], graph=b.graph, attributes=[]
    )


def _name_inner_values(graph: ir.Graph, kind: str) -> None:
    """Give the values of If and Loop bodies names that are unlikely to occur in the model.

    Inlining a function renames its own values, but a value of a body would hide one of the same
    name that is passed to the function.
    """
    for node in graph:
        for body in subgraphs(node):
            for inner in all_graphs(body):
                for value in [*inner.inputs, *(o for n in inner for o in n.outputs)]:
                    value.name = f"{value.name}_of_{kind}"


def bind(model: ir.Model, spell: Spelling | None = None) -> None:
    """Attach the function of every extension node to the model, and refer to it in the node (before
    saving or running).

    `spell` rewrites each body, in place, for the runtime.
    """
    for key in [k for k in model.functions if k[0] in (EXTENSION_DOMAIN, CHANNELS_LAST_DOMAIN)]:
        del model.functions[key]
    for node in all_nodes(model.graph):
        if can_expand(node):
            function = function_for(node, spell)
            node.overload = function.overload
            model.functions.setdefault(function.identifier(), function)
            model.graph.opset_imports.setdefault(node.domain, 1)


def unbind(model: ir.Model) -> None:
    """Undo `bind`: catalogue operators lose function and overload (the catalogue defines them)."""
    for key in [
        k
        for k in model.functions
        if k[0] in (EXTENSION_DOMAIN, CHANNELS_LAST_DOMAIN)
        and (k[0] != EXTENSION_DOMAIN or lookup(k[1]))
    ]:
        del model.functions[key]
    for node in all_nodes(model.graph):
        if can_expand(node):
            node.overload = ""


def expand_all(
    model: ir.Model, names: Names, keep: Callable[[ir.Node], bool] = lambda n: False
) -> None:
    """Expand every extension operator that has a definition, except those for which `keep` is
    true.
    """
    while found := [
        n for n in all_nodes(model.graph) if can_expand(n) and not keep(n)
    ]:  # definitions may use other extension operators
        for node in found:
            expand(node, names)


__all__ = [
    "CATALOGUE",
    "IR_VERSION",
    "Extension",
    "bind",
    "catalogue",
    "expand",
    "extension",
    "infer_node",
    "lookup",
    "opaque",
    "unbind",
    "write_body",
]
