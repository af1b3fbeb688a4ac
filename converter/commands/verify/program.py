"""A model cut into pieces that run one at a time in onnxruntime.

A piece computes some tensors of the graph from others: the nodes between them, found by walking
back from the targets. The whole network is the piece from its inputs to its outputs. Large weights
are passed to the engine by reference, not copied.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from google.protobuf.message import Message
from onnx import helper, numpy_helper
from onnx.helper import make_node

from converter.commands.verify.noise import Precision, jitter
from converter.engines import first_line
from converter.engines.file_child import import_onnxruntime
from converter.engines.onnxruntime import Runner, exact_options, has_loop, refuse_opaque
from converter.engines.session_weights import LARGE, Weights
from converter.errors import Diagnostic, UnsupportedError, Where
from converter.formats.onnx.legalize import legalize_for_onnxruntime
from converter.graph.extensions import bind
from converter.graph.infer import Array, Arrays, shape_of
from converter.graph.names import Names
from converter.graph.network import Network
from converter.graph.walk import all_nodes, reads, subgraphs
from converter.passes.decompositions import DECOMPOSITIONS
from converter.passes.legalize import Rewrite, onnx_function, rewritten
from converter.passes.lite.functions import cos

PART = 1 << 20  # elements of a weight that are moved at once
LEND = (
    1 << 14
)  # size in bytes from which a weight is passed by reference instead of inside the piece
# operators whose constant operands are weights that are subject to rounding; others (Resize scales,
# Pow exponents, Pad values) stay exact
_WEIGHTED = {
    *(
        "Conv",
        "ConvTranspose",
        "Gemm",
        "MatMul",
        "BatchNormalization",
        "InstanceNormalization",
        "LayerNormalization",
        "GroupNormalization",
    ),
    *("LSTM", "GRU", "RNN", "Add", "Sub", "Mul", "Div", "PRelu", "Einsum"),
}


ROUNDING = {"QuantizeLinear", "Round"}
_QUANTIZED = {
    *(ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.UINT16),
}
# functions whose formulas subtract nearly equal terms: a small result has the rounding error of the
# terms, which a kernel may avoid and a target's formula may not
_FORMULAS: dict[str, Rewrite] = {
    **{
        name: DECOMPOSITIONS["", name]
        for name in (
            *("Elu", "Selu", "Celu", "Softplus", "Tanh", "Sinh", "Asinh", "Acosh", "Atanh"),
            *("LayerNormalization", "InstanceNormalization", "GroupNormalization"),
            *("DFT", "STFT", "Resize"),
        )
    },
    **dict.fromkeys(("Gelu", "Mish"), onnx_function),
    "Cos": cos,
}
# operators that round although jitter of their operands does not show it, and whose results are
# subtracted from nearly equal ones: means of equal numbers, exponentials near zero
_NEAR_OTHERS = {"ReduceMean", "GlobalAveragePool", "Exp"}


@dataclass(frozen=True)
class Jitter:
    """Seeded random changes of a piece, to measure rounding noise.


    With `precision`, weights change by one rounding step of the layers that use them, and results
    of low-precision layers by one of their own steps. `ties`: values change by this fraction before
    they are quantized; with a seed, each element by a random fraction up to it. `flips`: this
    fraction of the quantized elements changes by one quantized value.
    """

    seed: int = 0
    precision: Precision | None = None
    ties: float = 0.0
    flips: float = 0.0


@dataclass(frozen=True)
class Piece:
    """The `nodes`, in execution order, that compute `targets` from `inputs` (value names)."""

    nodes: tuple[ir.Node, ...]
    inputs: tuple[str, ...]
    targets: tuple[str, ...]


class CannotRun(Exception):
    """The engine rejected a piece, or failed while running it; the message is the engine's first
    line.
    """


class Cutter:
    """A graph's values by name, the index of each of its nodes, and a method to cut pieces
    from it.
    """

    def __init__(self, graph: ir.Graph) -> None:
        self.order = {n: i for i, n in enumerate(graph)}
        self.values: dict[str, ir.Value] = {str(v.name): v for v in [*graph.inputs, *graph.outputs]}
        self.values.update((str(o.name), o) for n in graph for o in n.outputs)
        self.inputs = [str(v.name) for v in graph.inputs]
        self.outputs = [str(v.name) for v in graph.outputs]

    def piece(self, targets: Sequence[str], stops: Collection[str]) -> Piece:
        """Return the nodes that compute `targets` from values among `stops` (and constants)."""
        nodes: set[ir.Node] = set()
        inputs: dict[str, None] = {}
        pending = [self.values[t] for t in targets]
        first = set(targets) - set(self.inputs)
        while pending:
            value = pending.pop()
            node, name = value.producer(), str(value.name)
            if value.const_value is not None or (node is None and not value.is_graph_input()):
                continue
            if node is None or (name in stops and name not in first):
                inputs[name] = None
            elif node not in nodes:
                nodes.add(node)
                pending.extend(reads(node))
        return Piece(
            tuple(sorted(nodes, key=self.order.__getitem__)), tuple(inputs), tuple(targets)
        )

    def node(self, name: str) -> ir.Node | None:
        """Return the node that computes a value."""
        return self.values[name].producer()


class Program(Cutter):
    """A private copy of a model, ready to run in pieces. It is rewritten where the engine needs it,
    so its nodes may differ from the model's.

    Value names are those of the model; `source` cuts the original model, which is the one that
    reports describe.
    """

    def __init__(self, model: Network) -> None:
        refuse_opaque(model.ir)
        clone = model.ir.clone()
        bind(clone)
        legalize_for_onnxruntime(clone)
        super().__init__(clone.graph)
        self.ir = clone
        self.source = Cutter(model.ir.graph)
        self._functions = {
            f.identifier(): ir.serde.serialize_function(f) for f in clone.functions.values()
        }
        self.rounds = any(n.op_type in ROUNDING for n in all_nodes(clone.graph))
        self.quantized = self.rounds and any(
            n.op_type == "QuantizeLinear"
            or (n.op_type == "Cast" and n.outputs[0].dtype in _QUANTIZED)
            for n in all_nodes(clone.graph)
        )
        self.halves = any(
            v.dtype == ir.DataType.FLOAT16
            for n in all_nodes(clone.graph)
            for v in (*n.inputs, *n.outputs)
            if v is not None
        )

    @functools.cached_property
    def formulas(self) -> Program | None:
        """The same program with functions that cancel replaced by their formulas; None if there are
        none.
        """
        clone = self.ir.clone()
        names = Names(clone)
        if not [n for n in list(clone.graph) if _written_out(n, names)]:
            return None
        made = copy.copy(self)
        Cutter.__init__(made, clone.graph)
        made.ir = clone
        return made

    def cancels(self, piece: Piece) -> bool:
        """Return whether a piece has operators that subtract nearly equal numbers."""
        return any(n.op_type in _FORMULAS for n in piece.nodes)

    def functions_of(self, nodes: Sequence[ir.Node]) -> list[onnx.FunctionProto]:
        """Return the functions that some nodes, and their bodies, call."""
        inner = [x for n in nodes for g in subgraphs(n) for x in all_nodes(g)]
        called = dict.fromkeys(n.op_identifier() for n in (*inner, *nodes))
        return [f for i in called if (f := self._functions.get(i)) is not None]

    def complete(self) -> Piece:
        """Return the piece from all inputs to all outputs."""
        return self.piece(self.outputs, set(self.inputs))

    def tensors(self, names: Iterable[str], feeds: Iterable[Mapping[str, Array]]) -> list[Arrays]:
        """Compute the tensors `names` of the model for each feed."""
        return list(self.stream(names, feeds))

    def stream(
        self, names: Iterable[str], feeds: Iterable[Mapping[str, Array]]
    ) -> Iterator[Arrays]:
        """Compute the same one feed at a time, for many feeds or large tensors."""
        wanted = list(dict.fromkeys(names))
        session = self.compile(self.piece(wanted, set(self.inputs)))
        for feed in feeds:
            yield dict(zip(wanted, session.run(feed), strict=True))

    def compile(
        self,
        piece: Piece,
        jitter: Jitter | None = None,
        optimize: bool = True,
        floats: bool = False,
    ) -> Session:
        """Compile a piece for the engine. `floats`: float16 is computed as float32, and results are
        rounded to float16.
        """
        return Session(self, piece, jitter, optimize, floats)


def _written_out(node: ir.Node, names: Names) -> bool:
    """Replace a function that cancels by its formula; return whether it was one."""
    formula = None if node.domain else _FORMULAS.get(node.op_type)
    made = rewritten(node, names, formula) if formula is not None else []
    for inner in made:
        _written_out(inner, names)
    return bool(made)


class Session:
    """A compiled piece. `run` takes arrays by value name and returns the targets in order."""

    def __init__(
        self, program: Program, piece: Piece, moved: Jitter | None, optimize: bool, floats: bool
    ) -> None:
        self.piece = piece
        self._types = {n: _dtype(program.values[n]) for n in piece.inputs}
        self._declared = {n: _dtype(program.values[n]) if floats else None for n in piece.targets}
        self._passed = [t for t in piece.targets if t in piece.inputs]
        self._fixed = {
            t: c.numpy() for t in piece.targets if (c := program.values[t].const_value) is not None
        }
        self._runner: Runner | None = None
        if piece.nodes:
            proto, weights = _proto(program, piece, moved, floats)
            if floats:
                in_floats(proto, weights.lent)
                self._types = {
                    n: np.float32 if t == np.float16 else t for n, t in self._types.items()
                }
            options = exact_options()
            options.intra_op_num_threads = 1
            if not optimize:
                level = import_onnxruntime().GraphOptimizationLevel.ORT_DISABLE_ALL
                options.graph_optimization_level = level
            loops = has_loop(piece.nodes)
            try:
                self._runner = Runner(proto, weights, options, frugal=weights.large, loops=loops)
            except Exception as e:  # onnxruntime raises its own exception types
                raise CannotRun(first_line(e)) from None

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Return the targets of the piece for feeds. Raises CannotRun with the engine's reason."""
        computed: Arrays = {**self._fixed, **{n: feeds[n] for n in self._passed}}
        if self._runner is not None:
            wanted = [t for t in dict.fromkeys(self.piece.targets) if t not in computed]
            given = {n: _fit(feeds[n], self._types[n]) for n in self._runner.inputs}
            try:
                results = self._runner.run(wanted, given)
            except Exception as e:  # onnxruntime raises its own exception types
                raise CannotRun(first_line(e)) from None
            with np.errstate(over="ignore"):
                computed.update(
                    (n, np.asarray(r, self._declared[n]))
                    for n, r in zip(wanted, results, strict=True)
                )
        return [computed[t] for t in self.piece.targets]


def refuse(e: CannotRun, what: str) -> UnsupportedError:
    """Return the error N403 for a network that onnxruntime cannot run; `what` names its side."""
    return UnsupportedError(
        Diagnostic("N403", f"onnxruntime cannot run the {what}: {e}", where=Where())
    )


def _dtype(value: ir.Value) -> Any:
    return None if value.dtype is None or value.dtype == ir.DataType.STRING else value.dtype.numpy()


def _fit(array: Array, dtype: Any) -> Array:
    """Convert an array to the form that a session accepts; np.ascontiguousarray would reshape a
    scalar to a vector.
    """
    if dtype is None or array.dtype.kind in "OUS":
        return array
    with np.errstate(over="ignore"):  # a number beyond half precision is infinite
        return np.require(array, dtype, "C")


def _proto(
    program: Program, piece: Piece, moved: Jitter | None, floats: bool
) -> tuple[onnx.ModelProto, Weights]:
    """Return a piece as a model, and its large weights."""
    proto = onnx.ModelProto(ir_version=program.ir.ir_version)
    for domain, version in program.ir.graph.opset_imports.items():
        proto.opset_import.add(domain=domain, version=version or 1)
    graph = proto.graph
    graph.name = "piece"
    for name in piece.inputs:
        graph.input.append(_typed(program.values[name]))
    for name in dict.fromkeys(piece.targets):
        if name not in piece.inputs and program.values[name].const_value is None:
            graph.output.append(_typed(program.values[name]))
    graph.node.extend(node_protos(piece))
    proto.functions.extend(program.functions_of(piece.nodes))
    steps = _weights(piece.nodes, moved)
    large = sum(v.const_value.nbytes for v in steps if v.const_value is not None) >= LARGE
    weights = Weights(large and not (floats and program.halves), spool=moved is not None)
    sizes = _sizes(piece.nodes) if moved and moved.precision else set[str]()
    for i, (value, step) in enumerate(steps.items()):
        change = None
        if moved is not None and step and str(value.name) not in sizes:
            change = moved.seed * 1009 + i, step
        _weight(graph, value, change, weights)
    if moved and moved.precision:
        _move_coarse(graph, program, moved.precision, moved.seed, sizes)
    if moved and (moved.ties or moved.flips):
        _move_rounded(graph, piece.nodes, moved)
    return proto, weights


def node_protos(piece: Piece) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a piece. A node with several results may compute one that is given: its
    result gets another name there, so that the given one is read.
    """
    given = set(piece.inputs)
    for order, node in enumerate(piece.nodes):
        proto = ir.serde.serialize_node(node)
        for i, name in enumerate(proto.output):
            if name in given:
                proto.output[i] = f"netconv_given_{order}_{i}"
        yield proto


def _weights(nodes: Sequence[ir.Node], moved: Jitter | None) -> dict[ir.Value, float]:
    """Return the constants that nodes read, each with the step by which it moves: that of the
    coarsest layer that reads it, 0.0 if one of its consumers uses it as something other than a
    weight.
    """
    steps: dict[ir.Value, float] = {}
    fixed: set[ir.Value] = set()
    for node in nodes:
        step = _step(node, moved)
        for i, v in enumerate(reads(node)):
            if v.const_value is not None and v.producer() is None:
                steps[v] = max(steps.get(v, 0.0), step)
                if node.op_type not in _WEIGHTED or (node.op_type in ("Gemm", "MatMul") and i > 2):
                    fixed.add(v)
    return {v: 0.0 if v in fixed else step for v, step in steps.items()}


def _step(node: ir.Node, moved: Jitter | None) -> float:
    if moved is None or moved.precision is None:
        return 0.0
    return max((moved.precision[str(o.name)] for o in node.outputs), default=0.0)


def _move_coarse(
    graph: onnx.GraphProto,
    program: Program,
    precision: Precision,
    seed: int,
    sizes: Collection[str],
) -> None:
    """Multiply results that are rounded to a coarser step than float32 by random numbers near one:
    a layer without weights has nothing else that moves. Do the same to means and exponentials,
    which may be subtracted from nearly equal numbers. `sizes` stay: a Range to 42.001 has an
    element more than one to 42.
    """
    nodes = list(graph.node)
    del graph.node[:]
    for order, node in enumerate(nodes):
        graph.node.append(node)
        placed = graph.node[-1]
        for i, name in enumerate(node.output):
            value = program.values.get(name)
            if (
                value is None
                or name in sizes
                or not (precision.coarse(name) or node.op_type in _NEAR_OTHERS)
                or value.dtype not in (ir.DataType.FLOAT, ir.DataType.DOUBLE)
            ):
                continue
            moved = max(precision[name], float(np.finfo(value.dtype.numpy()).eps))
            inner = f"netconv_coarse_{order}_{i}"
            placed.output[i] = inner
            step, one = (np.array(x, value.dtype.numpy()) for x in (moved, 1))
            for text, number in (("step", step), ("one", one)):
                graph.initializer.append(numpy_helper.from_array(number, f"{inner}_{text}"))
            drawn, small, factor = (f"{inner}_{what}" for what in ("drawn", "small", "factor"))
            own = _drawn(seed, order)
            graph.node.extend(
                [
                    make_node("RandomUniformLike", [inner], [drawn], low=-1.0, high=1.0, seed=own),
                    make_node("Mul", [drawn, f"{inner}_step"], [small]),
                    make_node("Add", [small, f"{inner}_one"], [factor]),
                    make_node("Mul", [inner, factor], [name]),
                ]
            )


def _sizes(nodes: Sequence[ir.Node]) -> set[str]:
    """Return the names of results that depend on shapes and constants alone, and of the numbers
    that operands of a Range are computed from.
    """
    sizes: set[ir.Value] = set()
    for node in nodes:
        read = {v for v in reads(node) if v.const_value is None}
        if node.op_type in ("Shape", "Size") or (
            node.op_type != "Range" and read and sizes.issuperset(read)
        ):
            sizes.update(node.outputs)
    for node in reversed(nodes):
        if node.op_type == "Range":
            sizes.update(reads(node))
        elif not sizes.isdisjoint(node.outputs):
            sizes.update(v for v in reads(node) if shape_of(v) in ((), (1,)))
    return {str(v.name) for v in sizes}


def _drawn(seed: int, order: int) -> float:
    """Return a seed for onnxruntime that a float holds. Similar seeds would give nearly the same
    first numbers, so it is drawn at random.
    """
    return float(np.random.default_rng((seed, order)).integers(1 << 24))


def _move_rounded(graph: onnx.GraphProto, made: Sequence[ir.Node], moved: Jitter) -> None:
    """Multiply values by numbers near one before they are quantized, so that ties are rounded the
    other way, or move some elements by a step.
    """
    nodes = list(graph.node)
    values = {str(v.name): v for n in made if n.op_type in ROUNDING for v in n.inputs if v}
    del graph.node[:]
    for order, node in enumerate(nodes):
        value = values.get(node.input[0]) if node.op_type in ROUNDING else None
        if value is not None and value.dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE):
            name = f"netconv_moved_{order}"
            seed = _drawn(moved.seed, order)
            if not moved.flips:
                _factors(graph, node.input[0], name, value.dtype.numpy(), moved, seed)
            elif not _step_moved(graph, node, name, moved.flips, seed, values):
                name = node.input[0]
            node.input[0] = name
        graph.node.append(node)


def _factors(
    graph: onnx.GraphProto, given: str, result: str, dtype: Any, moved: Jitter, seed: float
) -> None:
    factor = f"{result}_factor"
    if moved.seed:
        low, high = 1 - moved.ties, 1 + moved.ties
        drawn = make_node("RandomUniformLike", [given], [factor], low=low, high=high, seed=seed)
        graph.node.append(drawn)
    else:
        one = np.array(1 + moved.ties, dtype)
        graph.initializer.append(numpy_helper.from_array(one, factor))
    graph.node.append(make_node("Mul", [given, factor], [result]))


def _step_moved(
    graph: onnx.GraphProto,
    node: onnx.NodeProto,
    result: str,
    share: float,
    seed: float,
    values: Mapping[str, ir.Value],
) -> bool:
    """Add or subtract a step in a share of the elements; return False if there is more than one
    step size.
    """
    given = node.input[0]
    if node.op_type == "QuantizeLinear" and shape_of(values[node.input[1]]) not in ((), (1,)):
        return False
    size = math.prod(shape_of(values[given]) or ())
    most = 0.5 / (1 - max(share, min(0.5, 1 / max(size, 1))))  # one element of a small tensor
    drawn, steps, amount = (f"{result}_{what}" for what in ("drawn", "steps", "amount"))
    graph.node.append(
        make_node("RandomUniformLike", [given], [drawn], low=-most, high=most, seed=seed)
    )
    graph.node.append(make_node("Round", [drawn], [steps]))
    if node.op_type == "QuantizeLinear":
        graph.node.append(make_node("Mul", [steps, node.input[1]], [amount]))
    else:
        amount = steps
    graph.node.append(make_node("Add", [given, amount], [result]))
    return True


def _typed(value: ir.Value) -> onnx.ValueInfoProto:
    """Return the type without the shape: a piece accepts any shape that its producers compute."""
    info = onnx.ValueInfoProto(name=value.name)
    info.type.tensor_type.elem_type = (
        int(value.dtype) if value.dtype is not None else onnx.TensorProto.FLOAT
    )
    return info


def _weight(
    graph: onnx.GraphProto, value: ir.Value, moved: tuple[int, float] | None, weights: Weights
) -> None:
    """Add a weight to the graph; `moved`: seed and relative step of a jitter."""
    tensor = value.const_value
    assert tensor is not None
    if (
        tensor.dtype == ir.DataType.STRING
        or tensor.dtype.bitwidth < 8
        or tensor.dtype.numpy().kind not in "fiub"
    ):
        proto = ir.serde.serialize_tensor(tensor)
        proto.name = str(value.name)
        graph.initializer.append(proto)
        return
    array = tensor.numpy()
    parts = _moved(array, *moved) if moved else [array]
    if array.nbytes >= LEND:
        graph.initializer.append(weights.proto(str(value.name), int(tensor.dtype), array, parts))
        return
    graph.initializer.append(
        onnx.TensorProto(
            name=value.name,
            data_type=int(tensor.dtype),
            dims=array.shape,
            raw_data=b"".join(p.tobytes() for p in parts),
        )
    )


def _moved(array: Array, seed: int, step: float) -> Iterator[Array]:
    """Yield a weight with jitter, flat, part by part, so that large weights are never
    duplicated.
    """
    rng, flat = np.random.default_rng(seed), array.reshape(-1)
    for start in range(0, flat.size, PART):
        yield jitter(flat[start : start + PART], rng, step)


# For a float16 network computed in float32: the difference between the two is rounding, and float16
# results that overflow are no evidence. onnxruntime computes float16 in float32 and rounds where it
# chooses: after every iteration of a loop, but not between the same layers unrolled.
_HALF, _FLOAT = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
_NAMING_A_TYPE = ("to", "dtype", "output_dtype")


def in_floats(proto: onnx.ModelProto, lent: list[tuple[str, Array]]) -> None:
    """Change every float16 of the model to float32, in place; `lent` are the weights (name, array)
    that are outside the model.
    """
    lent[:] = [
        (name, array.astype(np.float32) if array.dtype == np.float16 else array)
        for name, array in lent
    ]
    to_type(proto, _HALF, _FLOAT)


def to_type(message: Any, old: int, new: int) -> None:
    """Change one floating-point type in a model to another, in place. Depth-first through the whole
    message, including subgraphs and functions.
    """
    if isinstance(message, onnx.TensorProto):
        _tensor(message, old, new)
    elif isinstance(message, onnx.TypeProto.Tensor) and message.elem_type == old:
        message.elem_type = new
    elif (
        isinstance(message, onnx.AttributeProto)
        and message.name in _NAMING_A_TYPE
        and message.i == old
    ):
        message.i = new
    for _, value in message.ListFields():
        if isinstance(value, Message):
            to_type(value, old, new)
        elif (
            not isinstance(value, str | bytes | int | float)
            and len(value)
            and isinstance(value[0], Message)
        ):
            for item in value:
                to_type(item, old, new)


def _tensor(tensor: onnx.TensorProto, old: int, new: int) -> None:
    if tensor.data_type != old:
        return
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        tensor.data_type = new
    else:
        dtype = helper.tensor_dtype_to_np_dtype(new)
        array = numpy_helper.to_array(tensor).astype(dtype)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
