"""Builder: append nodes to a graph, or insert them before a node, with types and shapes inferred at
once.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, Self, TypeVar, overload

import numpy as np
import onnx.defs
import onnx_ir as ir

from converter.graph import EXTENSION_DOMAIN, IR_VERSION, OPSET
from converter.graph.catalogue import lookup, write_body
from converter.graph.demands import representable
from converter.graph.infer import (
    KNOWN_LIMIT,
    Array,
    InferenceError,
    infer,
    known,
    schema_of,
    set_known,
    set_type,
)
from converter.graph.lazy_tensor import LazyTensor, lazy
from converter.graph.names import MADE_FOR, Names, made_for
from converter.graph.open_sizes import opened
from converter.graph.value import (
    Value,
    array_type,
    close_writer,
    open_writer,
    with_operators,
    writer,
)
from converter.graph.verify.node import VARIADIC
from converter.graph.verify.shapes_of import BODY

R = TypeVar("R")
Operand = ir.Value | np.ndarray | float | int | bool | None
Source = dict[str, str]
AT = "netconv.at"  # of a node: its location in the ONNX file that was read; it is never written
_FUNCTION = "netconv.function"  # of a graph: it is the body of a function
# constants that are not tensors yet; checking whether a value follows the tensor protocol takes
# longer than all other checks
_PLAIN = (np.ndarray, np.generic, bool, int, float, list, tuple)


class WriteNode(Protocol):
    """A function that creates a node of one operator. Arguments are the inputs and attributes
    (None: left out); `name` is a hint for the output's name.
    """

    @overload
    def __call__(self, *inputs: Any, outputs: int, **attributes: Any) -> tuple[Value, ...]: ...
    @overload
    def __call__(self, *inputs: Any, name: str = "", **attributes: Any) -> Value: ...


class Builder:
    """Create the nodes of one graph.

    `b.Gather(x, i, axis=1)` creates a node of an operator of ONNX or of the extension catalogue and
    returns its output, `b.Split(x, outputs=2, axis=1)` a tuple of several. Inside `with b:`
    operators between values (`x * y`, see `Value`) are created by `b`, too. `op`, `ops`, `ext` and
    `exts` take the operator's name as a string and, in `ops`, its domain.

    Operands are values, None (an optional input left out), arrays, or Python scalars and lists,
    which become constants (bool, int64, float32). A number takes the type of another operand if the
    operator requires both to have the same type: `b.Max(x, 0)`. `source` is the provenance recorded
    on each new node (see `provenance`). In a function body (`in_function`, which the graph
    remembers) constants are Constant nodes, elsewhere initializers.
    """

    def __init__(
        self,
        graph: ir.Graph,
        names: Names,
        *,
        before: ir.Node | None = None,
        in_function: bool = False,
    ) -> None:
        self.graph = graph
        self.names = names
        self.before = before
        if in_function:
            graph.meta[_FUNCTION] = True
        self.in_function = bool(graph.meta.get(_FUNCTION))
        self.source: Source = {}
        self.made_for = ""  # the operator of the source that new nodes compute, or a part of it

    def __getattr__(self, name: str) -> WriteNode:
        """`b.Gather` for `b.operator("Gather")`."""
        if not name[:1].isupper() or _domain(name) is None:
            raise AttributeError(f"{name!r} is not an operator", name=name, obj=self)
        return self.operator(name)

    def operator(self, op_type: str) -> WriteNode:
        """Return a function that creates nodes of one operator, of ONNX or else of the extension
        catalogue: `b.operator(kind)(x, axis=1)`.
        """
        make: Any = self.exts if _domain(op_type) == EXTENSION_DOMAIN else self.ops

        def write(
            *inputs: Any, outputs: int | None = None, name: str = "", **attributes: Any
        ) -> Any:
            if outputs is not None:
                return make(op_type, *inputs, outputs=outputs, **attributes)
            return make(op_type, *inputs, names=(name,), **attributes)[0]

        return write

    def __enter__(self) -> Self:
        """Create operators between values with this builder until the block ends."""
        open_writer(self)
        return self

    def __exit__(self, *_error: object) -> None:
        close_writer()

    def op(
        self, op_type: str, *inputs: Any, domain: str = "", name: str = "", **attributes: Any
    ) -> Value:
        """Create one node with one output.

        Attributes that are None are left out; `name` is a hint for the output's name.
        """
        return self.ops(op_type, *inputs, domain=domain, names=(name,), **attributes)[0]

    def ops(
        self,
        op_type: str,
        *inputs: Any,
        domain: str = "",
        outputs: int = 1,
        names: Sequence[str] = (),
        **attributes: Any,
    ) -> tuple[Value, ...]:
        """Create one node with `outputs` outputs."""
        count = max(outputs, len(names))
        operands = [self._as_operand(op_type, domain, inputs, i) for i in range(len(inputs))]
        if op_type in VARIADIC and not domain and None in operands:
            raise InferenceError(f"{op_type} lacks an operand")
        while operands and operands[-1] is None:
            operands.pop()
        found = tuple(
            Value(name=self.names.fresh((names[i] if i < len(names) else "") or op_type.lower()))
            for i in range(count)
        )
        node = ir.Node(
            domain,
            op_type,
            operands,
            _attributes(op_type, domain, attributes),
            outputs=found,
            metadata_props=dict(self.source),
        )
        if self.made_for:
            node.meta[MADE_FOR] = self.made_for
        self.insert(node)
        infer(node)
        return found

    def ext(self, op_type: str, *inputs: Any, name: str = "", **attributes: Any) -> Value:
        """Create one operator of the extension catalogue with one output."""
        return self.exts(op_type, *inputs, names=(name,), **attributes)[0]

    def exts(
        self,
        op_type: str,
        *inputs: Any,
        outputs: int = 1,
        names: Sequence[str] = (),
        **attributes: Any,
    ) -> tuple[Value, ...]:
        """Create one operator of the extension catalogue; inside a function body, its definition
        instead.
        """
        if self.in_function:
            return write_body(self, op_type, [self.value(v) for v in inputs], attributes)
        return self.ops(
            op_type, *inputs, domain=EXTENSION_DOMAIN, outputs=outputs, names=names, **attributes
        )

    def const(self, data: Any, name: str = "const", dtype: Any = None) -> Value:
        """Return a constant from an array, a tensor, or Python numbers (int64, float32, bool unless
        `dtype` is given).
        """
        tensor = lazy(as_array(data, dtype) if isinstance(data, _PLAIN) else data)
        if self.in_function:
            value = self.operator("Constant")(value=tensor, name=name)
            if tensor.size <= KNOWN_LIMIT:
                set_known(value, tensor.numpy())
            return value
        value = Value(
            name=self.names.fresh(name),
            type=ir.TensorType(tensor.dtype),
            shape=ir.Shape(list(tensor.shape.numpy())),
            const_value=tensor,
        )
        self.graph.register_initializer(value)
        return value

    def value(self, operand: Any, name: str = "const") -> ir.Value | None:
        """Return a value as it is, and other operands as constants."""
        return (
            operand
            if operand is None or isinstance(operand, ir.Value)
            else self.const(operand, name)
        )

    def reshaped(self, value: ir.Value, shape: Sequence[int]) -> Value:
        """Reshape a value; a constant is reshaped itself (a view, unless its elements are
        computed).
        """
        if value.const_value is not None and value.dtype != ir.DataType.STRING:
            tensor, size = LazyTensor.of(value.const_value), math.prod(shape)
            if size != tensor.size and (size >= 0 or -1 not in shape or tensor.size % size):
                name = value.name or "a constant"
                raise InferenceError(
                    f"{name} has {tensor.size} elements, which do not fit the shape {list(shape)}"
                )
            return self.const(tensor.reshaped(shape), value.name or "const")
        return self.op("Reshape", value, list(shape))

    def like(self, reference: ir.Value, number: float | int, name: str = "const") -> Value:
        """Return a scalar constant of the type of `reference`."""
        dtype = array_type(reference)
        with np.errstate(over="ignore"):  # out of a narrow type: infinite
            return self.const(representable(number, dtype, name), name)

    def operand_like(self, reference: ir.Value, number: float) -> Value:
        """Return `like(reference, number)`, except that a fraction with an integer `reference` is
        not truncated, but keeps a type that the operator refuses.
        """
        whole = reference.dtype is not None and reference.dtype.is_integer()
        if whole and not float(number).is_integer():
            return self.const(np.float32(number))
        return self.like(reference, number)

    def _as_operand(
        self, op_type: str, domain: str, inputs: Sequence[Any], index: int
    ) -> ir.Value | None:
        """Return operand `index` as a value: a Python number takes the type of an operand that the
        operator requires to have the same type.
        """
        number = inputs[index]
        if isinstance(number, int | float) and not isinstance(number, np.generic):
            for i in () if domain else _same_type(op_type, index, len(inputs)):
                peer = inputs[i]
                if isinstance(peer, ir.Value) and peer.dtype is not None:
                    return self.operand_like(peer, number)
        return self.value(number)

    def insert(self, node: ir.Node) -> None:
        """Insert a node before the current one, or append it to the graph."""
        if self.before is None:
            self.graph.append(node)
        else:
            self.graph.insert_before(self.before, node)

    @contextlib.contextmanager
    def provenance(self, **source: str) -> Iterator[None]:
        """Record the source of new nodes: format=, layer=, type=, where=."""
        previous, self.source = self.source, {f"netconv.{k}": v for k, v in source.items() if v}
        try:
            yield
        finally:
            self.source = previous

    def body(self, name: str) -> Builder:
        """Return a builder for a sub-graph (If, Loop): it shares names and provenance, and values
        of the outer graph can be used in it.
        """
        inner = Builder(self.inner_graph(name), self.names, in_function=self.in_function)
        inner.source, inner.made_for = dict(self.source), self.made_for
        return inner

    def inner_graph(self, name: str) -> ir.Graph:
        """Return an empty graph for an attribute of a node."""
        name = self.names.fresh(name)
        graph = ir.Graph([], [], nodes=[], opset_imports={"": OPSET}, name=name)
        graph.meta[BODY] = True
        return graph

    def loop(self, trips: Any, *states: Any) -> LoopBody:
        """Create the body of a Loop over `trips` iterations (None: without end) with the initial
        `states`.

        `LoopBody.end` creates the Loop:

            with b.loop(10, total) as body:
                (before,) = body.states
                after = before * 2.0
            total, all_totals = body.end(after, after)
        """
        return LoopBody(self, trips, states)

    def input(self, name: str, dtype: ir.DataType, shape: Sequence[Any] | None) -> Value:
        """Add a new input to this builder's graph."""
        value = Value(name=self.names.fresh(name))
        set_type(value, dtype, opened(name, shape))
        self.graph.inputs.append(value)
        return value

    def output(self, *values: ir.Value) -> None:
        """Declare outputs of this builder's graph.

        An Identity is inserted for an input, a constant or a repeated value.
        """
        for value in values:
            foreign = (
                value.producer() is None or value.graph is not self.graph or value.is_graph_output()
            )
            self.graph.outputs.append(
                self.op("Identity", value, name=f"{value.name}_out") if foreign else value
            )


class LoopBody(Builder):
    """One iteration of a Loop.

    `iteration` is its number (int64, scalar), `states` are the values after the previous iteration,
    of the types and shapes of the initial ones.
    """

    def __init__(self, outer: Builder, trips: Any, first: Sequence[Any]) -> None:
        super().__init__(outer.inner_graph("body"), outer.names, in_function=outer.in_function)
        self.source, self.made_for = dict(outer.source), outer.made_for
        self.outer, self.trips = outer, trips
        self.start: ir.Value | bool = True  # whether there is a first iteration
        self.first = [outer.const(v) if not isinstance(v, ir.Value) else v for v in first]
        self.iteration = self.input("iteration", ir.DataType.INT64, [])
        self.input("going", ir.DataType.BOOL, [])
        self.states = [
            self.input(
                "state",
                v.dtype or ir.DataType.FLOAT,
                None if v.shape is None else list(v.shape),
            )
            for v in self.first
        ]

    def end(self, *values: ir.Value, going: ir.Value | None = None) -> tuple[Value, ...]:
        """Create the Loop.

        `values` are the states after an iteration, followed by values that are stacked along a new
        first axis over all iterations. `going`: whether there is another iteration. Return the
        final states, then the stacked values.
        """
        self.output(self.const(True, "again") if going is None else going, *values)
        count = len(values)
        return self.outer.ops(
            "Loop", self.trips, self.start, *self.first, outputs=count, body=self.graph
        )


@functools.cache
def _domain(op_type: str) -> str | None:
    """Return the domain of an operator: ONNX's own, else the catalogue's; None if it is unknown."""
    if schema_of(op_type) is not None:
        return ""
    return EXTENSION_DOMAIN if lookup(op_type) is not None else None


@functools.lru_cache(1024)
def _same_type(op_type: str, index: int, count: int) -> tuple[int, ...]:
    """Return which of the `count` operands must have the same type as operand `index`."""
    schema = schema_of(op_type)
    if schema is None or index >= count:
        return ()
    names = [v.type_str if v.is_homogeneous else "" for v in schema.inputs]
    names += names[-1:] * (count - len(names))
    return tuple(i for i in range(count) if i != index and names[i] == names[index] != "")


def as_array(data: Any, dtype: Any = None) -> Array:
    """Return data as an array; Python floats become float32, integers and empty lists int64, unless
    `dtype` is given.
    """
    if isinstance(data, np.ndarray | np.generic):
        return np.asarray(data, dtype)
    array = np.asarray(data, dtype)
    if dtype is None and isinstance(data, list | tuple) and array.size == 0:
        return array.astype(np.int64)
    if dtype is None and array.dtype == np.float64:
        return array.astype(np.float32)
    return array.astype(np.int64) if dtype is None and array.dtype.kind == "i" else array


_AS: dict[Any, tuple[ir.AttributeType, Callable[[Any], Any]]] = {
    onnx.defs.OpSchema.AttrType.FLOAT: (ir.AttributeType.FLOAT, float),
    onnx.defs.OpSchema.AttrType.FLOATS: (ir.AttributeType.FLOATS, lambda v: [float(x) for x in v]),
    onnx.defs.OpSchema.AttrType.INT: (ir.AttributeType.INT, int),
    onnx.defs.OpSchema.AttrType.INTS: (ir.AttributeType.INTS, lambda v: [int(x) for x in v]),
    onnx.defs.OpSchema.AttrType.STRING: (ir.AttributeType.STRING, str),
    onnx.defs.OpSchema.AttrType.STRINGS: (ir.AttributeType.STRINGS, lambda v: [str(x) for x in v]),
}


@functools.lru_cache(1024)
def _kinds(op_type: str) -> dict[str, tuple[ir.AttributeType, Callable[[Any], Any]]]:
    """Return attribute -> its type and a converter from Python values; cached, because schemas are
    slow.
    """
    schema = schema_of(op_type)
    return (
        {}
        if schema is None
        else {name: _AS[a.type] for name, a in schema.attributes.items() if a.type in _AS}
    )


def _attributes(op_type: str, domain: str, attributes: dict[str, Any]) -> list[ir.Attr]:
    """Return attributes in the types that the operator's schema declares: 3 for a float attribute
    becomes 3.0.
    """
    kinds = _kinds(op_type) if domain == "" else {}
    result: list[ir.Attr] = []
    for name, value in attributes.items():
        if isinstance(value, ir.Attr):
            result.append(value)
        elif value is not None:
            kind = kinds.get(name)
            result.append(
                ir.Attr(name, kind[0], kind[1](value)) if kind else attribute(name, value)
            )
    return result


def attribute(name: str, value: Any) -> ir.Attr:
    """Return an attribute typed by its Python value; arrays become tensors, an empty list a list of
    integers.
    """
    if isinstance(value, np.ndarray):
        return ir.AttrTensor(name, lazy(value))
    if isinstance(value, LazyTensor):  # most tensors; the protocols below are slow to check
        return ir.AttrTensor(name, value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        value = int(value)
    if isinstance(value, ir.Graph):
        return ir.AttrGraph(name, value)
    if isinstance(value, list | tuple) and any(isinstance(x, float) for x in value):
        value = [float(x) for x in value]
    return ir.convenience.convert_attribute(
        name, value, _type_of_list(value) if isinstance(value, list | tuple) else None
    )


def _type_of_list(values: Sequence[Any]) -> ir.AttributeType | None:
    """Return the type that onnx_ir would determine, without first checking whether a list follows
    the protocols of graphs, tensors and types, which takes longer than the rest.
    """
    for kind, found in (
        (int, ir.AttributeType.INTS),
        (float, ir.AttributeType.FLOATS),
        (str, ir.AttributeType.STRINGS),
    ):
        if all(isinstance(v, kind) for v in values):
            return found
    return None


def writing(write: Callable[..., R]) -> Callable[..., R]:
    """Decorate a function (b, *values) so that it may be called outside of `with b:`: the block is
    entered, and the values get operators.
    """

    @functools.wraps(write)
    def run(b: Builder, *values: Any, **options: Any) -> R:
        with b:
            return write(b, *map(with_operators, values), **options)

    return run


def new_model(name: str = "main") -> tuple[ir.Model, Builder]:
    """Return an empty canonical model and a builder for it."""
    graph = ir.Graph([], [], nodes=[], opset_imports={"": OPSET, EXTENSION_DOMAIN: 1}, name=name)
    return ir.Model(graph, ir_version=IR_VERSION, producer_name="netconv"), Builder(graph, Names())


def open_builder() -> Builder:
    """Return the builder whose `with` block is open, for functions that create nodes without having
    a builder argument.
    """
    builder = writer()
    assert isinstance(builder, Builder)
    return builder


def builder_before(node: ir.Node, names: Names, source: ir.Node | None = None) -> Builder:
    """Return a builder that inserts before `node`, with its provenance or that of `source`."""
    assert isinstance(node.graph, ir.Graph)
    b = Builder(node.graph, names, before=node)
    b.source, b.made_for = _source_of(source or node), made_for(source or node)
    return b


class RecordingBuilder(Builder):
    """A builder that inserts before a node, with its provenance, and records the nodes that it
    inserted.
    """

    def __init__(self, graph: ir.Graph, names: Names, before: ir.Node) -> None:
        super().__init__(graph, names, before=before)
        self.source, self.made_for = _source_of(before), made_for(before)
        self.made: list[ir.Node] = []

    def insert(self, node: ir.Node) -> None:
        super().insert(node)
        self.made.append(node)


def _source_of(node: ir.Node) -> Source:
    return {k: v for k, v in node.metadata_props.items() if k.startswith("netconv.")}


def same_attrs(node: ir.Node, *without: str) -> dict[str, Any]:
    """Return the attributes unchanged, of any type, for another node."""
    return {k: a for k, a in node.attributes.items() if k not in without}


def attrs_of(node: ir.Node) -> dict[str, Any]:
    """Return attribute values as Python values (ints, floats, str, lists, numpy arrays, graphs)."""
    return {a.name: _plain(a) for a in node.attributes.values()}


def attributes(node: ir.Node) -> dict[str, Any]:
    """Return attribute values as `attrs_of` does, including the defaults of the operator."""
    return {**defaults(node.op_type, node.domain), **attrs_of(node)}


@functools.cache
def defaults(op_type: str, domain: str = "") -> dict[str, Any]:
    """Return the attributes that have a default in ONNX's schema or in the extension catalogue."""
    if schema_of(op_type, domain) is not None:
        return {n: _plain(a) for n, a in declared_defaults(op_type, domain).items()}
    entry = lookup(op_type)
    declared = {} if entry is None else entry.attributes
    return {k: v for k, v in declared.items() if isinstance(v, int | float | str | list | tuple)}


@functools.cache
def declared_defaults(op_type: str, domain: str) -> dict[str, ir.Attr]:
    """Return the attributes that have a default in ONNX's schema."""
    schema = schema_of(op_type, domain)
    return {
        n: ir.serde.deserialize_attribute(a.default_value)
        for n, a in ({} if schema is None else schema.attributes).items()
        if a.default_value.name
    }


def _plain(a: ir.Attr) -> Any:
    if a.type == ir.AttributeType.TENSOR:
        return a.as_tensor().numpy()
    return list(a.value) if isinstance(a.value, tuple | list) else a.value


__all__ = [
    "Builder",
    "Value",
    "as_array",
    "attribute",
    "attributes",
    "attrs_of",
    "builder_before",
    "known",
    "new_model",
]
