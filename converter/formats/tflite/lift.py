"""A file -> the shared graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, MappingError, Where, wrong_call
from converter.formats.integers import NOTE
from converter.formats.tflite.associated import METADATA, files_of, texts_of
from converter.formats.tflite.codec import (
    LiteModel,
    LiteOperator,
    LiteSignature,
    LiteTensor,
    read_flat,
)
from converter.formats.tflite.custom import carried_parameters, parameters_of, reason_against
from converter.formats.tflite.kernels import LIKE_RESULT, is_unscaled
from converter.formats.tflite.mapping import MAPPING
from converter.formats.tflite.rules.context import LiftContext
from converter.formats.tflite.rules.signal import MOVES, PAIRS
from converter.formats.tflite.tensors import (
    COMPLEX,
    STORED_TYPES,
    constant_of,
    dequantize_tensor,
    is_by_axis,
    is_quantized,
    quantize_tensor,
    shape_in_graph,
    tensor_quantization,
    type_of,
    zero_points,
)
from converter.graph import custom
from converter.graph.build import Builder, new_model
from converter.graph.infer import known, set_type
from converter.graph.names import public_name, set_public_name
from converter.graph.network import Network
from converter.graph.open_sizes import is_open
from converter.graph.states import Hashtable, State, Variables
from converter.mapping.lifting import Lifting, refuse
from converter.mapping.node import Layer
from converter.passes.channels_last import to_nchw
from converter.passes.dead_code import remove_dead_code
from converter.passes.fold import fold
from converter.passes.labels import LABELS

LARGEST_STATE = 1 << 32  # elements

# Metadata of earlier versions: the storage types of inputs and outputs. The file is read as LiteRT
# computes it, so these conversions are not undone.
FORMER_NOTE = "netconv.boundary"


def read_model(path: Path, key: str = "") -> Network:
    """Return the network of a file, or of one of its signatures, which then determines the names of
    inputs and outputs; raise UnsupportedError with all refusals.
    """
    lite = read_flat(path)
    signature = _signature(lite, key) if key else LiteSignature("", 0, {}, {})
    model, b = new_model("main")
    variables = Variables(b)
    lifting = GraphLifting(lite, signature.graph, b, str(path), variables)
    lifting.names = {i: name for name, i in signature.inputs.items()}
    lifting.run()
    refuse(lifting.problems)
    names = {i: name for name, i in signature.outputs.items()}
    for i in lifting.subgraph.outputs:
        b.output(lifting.value(i))
        set_public_name(b.graph.outputs[-1], names.get(i, lifting.name(i)))
    states = variables.deliver()
    remove_dead_code(model)
    to_nchw(model)
    fold(model, limit=0)
    notes = lifting.notes
    if FORMER_NOTE in lite.metadata:
        message = (
            "a note of an older netconv version about the order of inputs and "
            "outputs is ignored, because no runtime reads it"
        )
        where = Where(str(path), path=f"metadata {FORMER_NOTE}")
        notes.append(Diagnostic("R108", message, "warning", where, help="convert the source again"))
    interface = {"defaults": variables.defaults(), "states": states}
    if pairs := lifting.complex_names():
        interface["complex"] = pairs
    for name in {LABELS, NOTE} & lite.metadata.keys():
        model.metadata_props[name] = lite.metadata[name].decode("utf-8", "replace")
    if METADATA in lite.metadata:
        files = files_of(path)
        interface["associated"] = (lite.metadata[METADATA], files)
        for name, text in texts_of(files).items():
            model.metadata_props[name] = text
    return Network(model, "tflite", notes, interface)


def _signature(lite: LiteModel, key: str) -> LiteSignature:
    for signature in lite.signatures:
        if signature.key == key:
            return signature
    known = ", ".join(repr(s.key) for s in lite.signatures) or "none"
    raise wrong_call(f"the file has no signature {key!r}; it has {known}")


class GraphLifting(Lifting):
    """Lift one subgraph: tensors become values, operators nodes, in the order of execution.


    `names` are those of inputs whose names differ from their tensors', `path` the subgraphs around
    this one, `handles` the states and `tables` the hash tables that resource tensors refer to,
    which are not values. `initializes`: the subgraph sets the initial values of variables. `notes`
    are warnings about content of the file that no kernel reads.
    """

    def __init__(
        self,
        model: LiteModel,
        number: int,
        b: Builder,
        file: str,
        variables: Variables,
        path: tuple[int, ...] = (),
    ) -> None:
        super().__init__(MAPPING, b, "tflite")
        self.model, self.number, self.file, self.variables = model, number, file, variables
        self.subgraph, self.path = model.graphs[number], (*path, number)
        self.tensors: Sequence[LiteTensor] = self.subgraph.tensors
        self.values: dict[int, ir.Value] = {}
        self.reals: dict[int, ir.Value] = {}
        self.names: dict[int, str] = {}
        self.handles: dict[int, State] = {}
        self.tables: dict[int, Hashtable] = {}
        self.initializes = False
        self.notes: list[Diagnostic] = []
        self.refused: set[int] = set()
        self._made = {i for o in self.subgraph.operators for i in o.outputs}

    def name(self, index: int) -> str:
        """Return the name of a tensor, or one with its index."""
        return self.tensors[index].name or f"tensor{index}"

    def run(self) -> None:
        for i in self.subgraph.inputs:
            if i not in self.values and i not in self.handles:
                with self.noting(Where(self.file, path=self._path("inputs"), layer=self.name(i))):
                    self._input(i)
        for position, operator in enumerate(self.subgraph.operators):
            self._operator(position, operator)
        for i in self.subgraph.outputs:
            if i not in self.refused and not self.problems:
                where = Where(self.file, path=self._path("outputs"), layer=self.name(i))
                with self.noting(where):
                    self.value(i)

    def complex_names(self) -> list[str]:
        """Return the inputs and outputs of the network that are complex numbers."""
        graph, found = self.builder.graph, self.subgraph
        inputs = [i for i in dict.fromkeys(found.inputs) if i in self.values]
        pairs = [*zip(graph.inputs, inputs, strict=False)]
        pairs += zip(graph.outputs, found.outputs, strict=False)
        return [public_name(v) for v, i in pairs if self.tensors[i].type in COMPLEX]

    def _path(self, what: str) -> str:
        return f"subgraphs[{self.number}].{what}"

    # values --------------------------------------------------------------------------------------

    def _input(self, index: int) -> None:
        tensor = self.tensors[index]
        name = self.names.get(index, self.name(index))
        others = {public_name(v) for v in self.builder.graph.inputs}
        value = self.builder.input(name, type_of(tensor), shape_in_graph(tensor))
        self.values[index] = value
        if name not in others:  # a repeated name would name two inputs
            set_public_name(value, name)

    def value(self, index: int) -> ir.Value:
        """Return the value of a tensor in its storage type; constants and variables are created on
        first use.
        """
        if index not in self.values:
            tensor = self.tensors[index]
            constant = tensor.data is not None or 0 in tensor.shape
            if tensor.variable and index not in self._made:
                return self.variables.read(self._state(index))
            if not constant or index in self._made:
                message = f"tensor {self.name(index)!r} is read before it has a value"
                raise MappingError(message, "R105")
            self.values[index] = self.builder.const(constant_of(tensor), self.name(index))
        return self.values[index]

    def real(self, index: int) -> ir.Value:
        """Return the value of a tensor as real numbers; all operators that read it share them."""
        value = self.value(index)
        if not is_quantized(self.tensors[index]):
            return value
        if index not in self.reals or self.tensors[index].variable:
            self.reals[index] = dequantize_tensor(self.builder, value, self.tensors[index])
        return self.reals[index]

    def _state(self, index: int) -> State:
        """Return the state of a variable tensor, initially zeros."""
        tensor, states = self.tensors[index], self.variables.states
        if len(self.path) > 1:
            raise MappingError("variable tensors inside a subgraph are not supported", "X201")
        key = f"tensor {index}"
        if key not in states:
            if min(tensor.shape, default=1) < 0:
                raise MappingError(f"the size of variable {tensor.name!r} is not known", "X203")
            if math.prod(tensor.shape) > LARGEST_STATE:
                message = (
                    f"variable {tensor.name!r} would have "
                    f"{math.prod(tensor.shape)} elements, which is too many"
                )
                raise MappingError(message, "R105")
            fill = zero_points(tensor)[0] if is_quantized(tensor) else 0
            initial = np.full(tensor.shape, fill, type_of(tensor).numpy())
            states[key] = State(self.name(index), initial)
        return states[key]

    def leave(self, index: int, value: ir.Value) -> None:
        """Record the value that a variable tensor has from now on, in real numbers."""
        self._state(index).value = quantize_tensor(self.builder, value, self.tensors[index])

    # operators -----------------------------------------------------------------------------------

    def _operator(self, position: int, operator: LiteOperator) -> None:
        if self.refused.intersection(operator.inputs):
            self.refused.update(operator.outputs)  # depends on a refused operator
            return
        kind = operator.custom if operator.builtin == "CUSTOM" else operator.builtin
        name = self.name(operator.outputs[0]) if operator.outputs else ""
        place = self._path(f"operators[{position}]")
        where = Where(self.file, path=place, layer=name, kind=kind)
        results: list[ir.Value] | None = None
        with self.noting(where):
            results = self.layer(self.layer_of(operator, where))
        if results is None:
            self.refused.update(operator.outputs)
            return
        for index, value in zip(operator.outputs, results, strict=False):
            self.values[index] = value
            if value.producer() is not None and known(value) is None:
                value.name = self.builder.names.fresh(self.name(index))

    def layer_of(self, operator: LiteOperator, where: Where) -> Layer:
        """Return an operator with the values that it reads; `where` has its kind and its name."""
        inputs = self._operands(where.kind, operator)
        attrs = parameters_of(operator) if operator.builtin == "CUSTOM" else operator.options
        outputs = [ir.Value() for _ in operator.outputs]
        return Layer(where.kind, where.layer, dict(attrs), {}, inputs, outputs, where, operator)

    def _operands(self, kind: str, operator: LiteOperator) -> list[ir.Value | None]:
        """Return the inputs of an operator as its kernel reads them: real numbers, or quantized
        values if the kernel ignores their scales.
        """
        like = self._read_like(kind, operator)
        return [self._operand(kind, i, like) for i in operator.inputs]

    def _operand(self, kind: str, index: int, like: LiteTensor | None) -> ir.Value | None:
        if index < 0 or index in self.handles or index in self.tables:
            return None
        tensor = self.tensors[index]
        if is_quantized(tensor) and is_unscaled(kind, type_of(tensor)):
            return self.value(index)
        if like is not None and tensor.type == like.type and not _scaled_alike(tensor, like):
            return dequantize_tensor(self.builder, self.value(index), like)
        return self.real(index)

    def _read_like(self, kind: str, operator: LiteOperator) -> LiteTensor | None:
        """Return the tensor whose scale a kernel assumes for its inputs: its result, or one without
        a scale where results differ and the quantized values are only moved. None where each input
        has its own.
        """
        if kind not in LIKE_RESULT or not operator.outputs:
            return None
        results = [self.tensors[i] for i in operator.outputs]
        data = [self.tensors[i] for i in operator.inputs if i >= 0]
        first = results[0]
        of_type = [t for t in (*data, *results) if t.type == first.type]
        if first.type not in STORED_TYPES or any(is_by_axis(t) for t in of_type):
            return None
        if all(_scaled_alike(t, first) for t in results if t.type == first.type):
            return first
        raise MappingError("the results must have the same scale and zero point", "R110")

    def reading(self, layer: Layer) -> LiftContext:
        return LiftContext(layer, self.builder, layer.extra, self)

    def lift(self, layer: Layer) -> list[ir.Value]:
        """Return the results of an operator in their storage type."""
        operator: LiteOperator = layer.extra
        options = custom.current()
        if (reason := reason_against(layer.kind)) and not (options.carry or options.define):
            raise MappingError(reason, "X201", custom.HELP)
        tensors = [self.tensors[i] for i in (*operator.inputs, *operator.outputs) if i >= 0]
        pairs = layer.kind not in PAIRS and any(t.type in COMPLEX for t in tensors)
        return self.stored(operator, self._by_parts(layer) if pairs else super().lift(layer))

    def unknown(self, layer: Layer) -> list[ir.Value]:
        """Lift a custom operator that is not known: its tensors declare its results."""
        operator: LiteOperator = layer.extra
        if operator.builtin != "CUSTOM":
            return self.mapping.table.lift(self.reading(layer))
        layer.attrs = carried_parameters(operator)
        for value, index in zip(layer.outputs, operator.outputs, strict=True):
            tensor = self.tensors[index]
            real = ir.DataType.FLOAT if is_quantized(tensor) else type_of(tensor)
            set_type(value, real, [d if d >= 0 else None for d in tensor.shape])
        return super().unknown(layer)

    def stored(self, operator: LiteOperator, results: Sequence[ir.Value]) -> list[ir.Value]:
        """Return the results of an operator with the types and scales of their tensors."""
        stored = []
        for value, index in zip(results, operator.outputs, strict=False):
            tensor = self.tensors[index]
            integers = quantize_tensor(self.builder, value, tensor)
            for made in (value, integers):
                _state_sizes(made, tensor)
            stored.append(integers)
        return stored

    def _by_parts(self, layer: Layer) -> list[ir.Value]:
        """Apply an operator that moves complex numbers to their real and imaginary parts."""
        if layer.kind not in MOVES:
            raise MappingError(f"complex data in {layer.kind} are not supported", "X202")
        b, parts = self.builder, []
        for number in (0, 1):
            inputs: list[ir.Value | None] = [
                v
                if v is None or self.tensors[i].type not in COMPLEX
                else b.Gather(v, number, axis=-1)
                for v, i in zip(layer.inputs, layer.extra.inputs, strict=True)
            ]
            parts.append(super().lift(replace(layer, inputs=inputs)))
        return [
            b.Concat(*(b.Unsqueeze(v, [-1]) for v in both), axis=-1)
            for both in zip(*parts, strict=True)
        ]

    # subgraphs -----------------------------------------------------------------------------------

    def child(self, number: int, b: Builder) -> GraphLifting:
        """Return a subgraph that an operator of this one refers to, to be written with `b`."""
        if not 0 <= number < len(self.model.graphs):
            raise MappingError(f"subgraph {number} does not exist", "R105")
        if number in self.path:
            raise MappingError(f"subgraph {number} contains itself", "R105")
        inner = GraphLifting(self.model, number, b, self.file, self.variables, self.path)
        inner.notes = self.notes
        return inner

    def inlined(self, number: int, b: Builder, inputs: Sequence[ir.Value]) -> list[ir.Value]:
        """Return the results of a subgraph, written with `b` on these values, in their storage
        type.
        """
        inner = self.child(number, b)
        wanted = inner.subgraph.inputs
        if len(wanted) != len(inputs):
            message = f"subgraph {number} takes {len(wanted)} tensors, got {len(inputs)}"
            raise MappingError(message, "R105")
        inner.values.update(zip(wanted, inputs, strict=True))
        inner.run()
        self.problems += inner.problems
        if inner.problems:
            raise MappingError("an operator inside a subgraph cannot be converted")
        return [inner.value(i) for i in inner.subgraph.outputs]


def _scaled_alike(a: LiteTensor, b: LiteTensor) -> bool:
    """Return whether quantized values of two tensors of one type represent the same real
    numbers.
    """
    return tensor_quantization(a) == tensor_quantization(b)


def _state_sizes(value: ir.Value, tensor: LiteTensor) -> None:
    """Return sizes that inference cannot determine but the file states; a stated 1 may be a dynamic
    size.
    """
    stated = [n if n is not None and n > 1 else None for n in shape_in_graph(tensor)]
    own = [None] * len(stated) if value.shape is None else list(value.shape)
    if known(value) is None and not is_open() and stated and len(own) == len(stated):
        pairs = zip(own, stated, strict=True)
        set_type(value, None, [d if isinstance(d, int) or n is None else n for d, n in pairs])
