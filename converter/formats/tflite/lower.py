"""The shared graph -> a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, MappingError, Where
from converter.formats.format import Flavor
from converter.formats.integers import NOTE
from converter.formats.tflite.associated import METADATA, label_files
from converter.formats.tflite.buffers import separate
from converter.formats.tflite.codec import (
    BUILTINS,
    LiteGraph,
    LiteModel,
    LiteOperator,
    LiteSignature,
    LiteTensor,
    write_flat,
)
from converter.formats.tflite.collector import LiteLowering
from converter.formats.tflite.custom import content_of
from converter.formats.tflite.mapping import MAPPING
from converter.formats.tflite.options import table_of
from converter.formats.tflite.pipeline import PIPELINE
from converter.formats.tflite.rules.context import NARROW
from converter.formats.tflite.rules.control_flow import SubgraphBody
from converter.formats.tflite.schema import schema
from converter.formats.tflite.tensors import NUMBERS, TYPES, few_bits
from converter.formats.tflite.versions import version_of
from converter.graph.infer import shape_of
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.names import public_name
from converter.graph.network import Network
from converter.graph.value import type_name
from converter.io.files import Output
from converter.mapping.lifting import refuse
from converter.mapping.lowering import layer_refusal
from converter.mapping.narrow import Narrowing
from converter.mapping.node import Layer
from converter.passes.labels import LABELS
from converter.passes.pipeline import Context, run_passes
from converter.passes.round_halves import half_is_enough
from converter.passes.stored_halves import is_weight, stored_half, survives

D = ir.DataType
HALF, FLOAT = NUMBERS[D.FLOAT16], NUMBERS[D.FLOAT]
RESOURCE = schema.TensorType.RESOURCE
SIGNATURE = "serving_default"


def write_model(model: Network, path: Path, flavor: Flavor) -> list[Diagnostic]:
    """Write `model`; return warnings. Raises UnsupportedError with everything that cannot be
    expressed; then nothing is written.
    """
    notes: list[Diagnostic] = []
    lite = lower(model, flavor, notes)
    with Output(path) as out:
        write_flat(lite, out)
    return notes


def lower(model: Network, flavor: Flavor, notes: list[Diagnostic]) -> LiteModel:
    """Return the file of a graph."""
    graph = model.ir.clone()
    graph.graph.meta["states"] = zero_states(model)
    run_passes(PIPELINE, graph, Context(model, flavor.io_layout, notes))
    file = FileWriter("fp16" in flavor.options, model.format == "tflite", notes)
    file.stored_half = stored_half(model.ir) == D.FLOAT16
    lite = file.model(graph.graph, States(model, graph.graph))
    refuse(file.problems)
    if LABELS in model.ir.metadata_props:
        text = model.ir.metadata_props[LABELS]
        lite.metadata[LABELS] = text.encode()
        lite.files = label_files(text)
    if NOTE in model.ir.metadata_props:
        lite.metadata[NOTE] = model.ir.metadata_props[NOTE].encode()
    if "associated" in model.interface:
        lite.metadata[METADATA], lite.files = model.interface["associated"]
    for part in lite.graphs:
        separate(part)
        few_bits(part)
        for operator in part.operators:
            operator.version = version_of(operator, part.tensors)
    return lite


def zero_states(model: Network) -> dict[str, str]:
    """Return the states that are initially zero: names of inputs and of the outputs that are their
    next values.
    """
    defaults = model.interface.get("defaults", {})
    return {k: v for k, v in model.variables.items() if k in defaults and not np.any(defaults[k])}


class States:
    """The states of the network: inputs whose next values are outputs. `inputs` and `outputs` are
    their values, those of the outputs by the names of the inputs.
    """

    def __init__(self, model: Network, graph: ir.Graph) -> None:
        found = model.variables
        self.defaults: dict[str, Any] = dict(model.interface.get("defaults", {}))
        written = {public_name(v): v for v in graph.outputs}
        # variables that are never assigned are those of a file; LiteRT's variables have one size
        known = self.defaults if model.format == "tflite" else self.defaults.keys() & found
        self.inputs = {
            v: n for v in graph.inputs if (n := public_name(v)) in known and shape_of(v) is not None
        }
        self.outputs = {
            written[found[n]]: n for n in self.inputs.values() if found.get(n) in written
        }
        self.begun = False
        self.initialize: GraphWriter | None = None


class FileWriter:
    """Graphs become subgraphs: the network first, then bodies in the order in which they are met.

    `half`: weights are stored in half precision; `stored_half`: where the source stores them so and
    no number changes. `halves`: inputs and outputs may be of half precision.
    """

    def __init__(self, half: bool, halves: bool, notes: list[Diagnostic]) -> None:
        self.half, self.halves, self.notes = half, halves, notes
        self.stored_half = False
        self.problems: list[Diagnostic] = []
        self.narrowing = Narrowing({D.DOUBLE: D.FLOAT, D.UINT64: D.INT64}, notes)
        self.file = LiteModel()

    def model(self, graph: ir.Graph, states: States) -> LiteModel:
        """Return the file of a graph, with one signature."""
        main = LiteGraph("main")
        self.file.graphs.append(main)
        GraphWriter(self, main).network(graph, states)
        inputs = [public_name(v) for v in graph.inputs if v not in states.inputs]
        outputs = [public_name(v) for v in graph.outputs if v not in states.outputs]
        ends = (
            dict(zip(inputs, main.inputs, strict=False)),
            dict(zip(outputs, main.outputs, strict=False)),
        )
        self.file.signatures.append(LiteSignature(SIGNATURE, 0, *ends))
        return self.file

    def body(self, body: SubgraphBody) -> int:
        """Return the number of the subgraph of a body."""
        number = len(self.file.graphs)
        lite = LiteGraph(f"body{number}")
        self.file.graphs.append(lite)
        GraphWriter(self, lite).body(body)
        return number


class GraphWriter:
    """Write one graph as a subgraph; tensors are created when they are first used."""

    def __init__(self, file: FileWriter, lite: LiteGraph) -> None:
        self.file, self.lite = file, lite
        self.low = LiteLowering(MAPPING)
        self.tensors: dict[ir.Value, int] = {}

    def network(self, graph: ir.Graph, states: States) -> None:
        """Write the network: inputs and outputs have their names, and each output a separate
        tensor.
        """
        outputs = list(graph.outputs)
        layers = self._lowered(graph, [], outputs)
        for value in graph.inputs:
            if value in self.low.variables:
                self.tensors[value] = self._variable(value)
            elif value in states.inputs:
                self._state(value, states)
            else:
                self._end(value, "input", lambda value: self.lite.inputs.append(self._input(value)))
        self._operators(layers)
        taken = set(self.lite.inputs)
        for value in outputs:
            if value in self.low.persistent_outputs:
                continue
            if value in states.outputs:
                self._end(value, "state", lambda value: self._assign(value, states))
            else:
                self._end(value, "output", lambda value: self._output(value, taken))

    def body(self, body: SubgraphBody) -> None:
        """Write the operators, inputs and outputs of a body."""
        layers = self._lowered(body.nodes, body.layers, body.outputs)
        for value in body.inputs:
            self._end(value, "input", lambda value: self.lite.inputs.append(self._new(value)))
        self._operators(layers)
        for value in body.outputs:
            self._end(value, "output", lambda value: self.lite.outputs.append(self.tensor(value)))

    def _end(self, value: ir.Value, side: str, write: Any) -> None:
        try:
            if not self.file.problems:
                write(value)
        except MappingError as e:
            where = Where(layer=public_name(value), kind=side)
            message = f"{side} {public_name(value)}: {e}"
            self.file.problems.append(Diagnostic(e.code, message, where=where))

    def _lowered(
        self, nodes: Iterable[ir.Node], more: Iterable[Layer], outputs: Sequence[ir.Value]
    ) -> list[Layer]:
        for node in nodes:
            self.low.node(node)
        self.low.layers += more
        self.file.problems += self.low.problems
        self.file.notes += self.low.notes
        self.low.spread_scales()
        return self.low.used([v for v in outputs if v not in self.low.persistent_outputs])

    def _operators(self, layers: Iterable[Layer]) -> None:
        for layer in layers:
            if self.file.problems:
                return
            try:
                self._operator(layer)
            except MappingError as e:
                self.file.problems.append(layer_refusal(layer, e))

    def _operator(self, layer: Layer) -> None:
        inputs = [-1 if v is None else self.tensor(v) for v in layer.inputs]
        outputs = [self._new(v) for v in layer.outputs]
        options = {
            k: self.file.body(v) if isinstance(v, SubgraphBody) else v
            for k, v in layer.attrs.items()
        }
        if layer.kind in BUILTINS:
            self._add(LiteOperator(layer.kind, inputs, outputs, table_of(layer.kind), options))
        else:
            own = content_of(layer.attrs)
            self._add(LiteOperator("CUSTOM", inputs, outputs, custom=layer.kind, content=own))

    def _add(self, operator: LiteOperator) -> None:
        if operator.builtin == "RESHAPE":  # LiteRT takes the operand, others the option as well
            shape = self.lite.tensors[operator.inputs[1]].data
            operator.options["new_shape"] = [] if shape is None else np.asarray(shape).tolist()
        self.lite.operators.append(operator)

    # states --------------------------------------------------------------------------------------

    def _state(self, value: ir.Value, states: States) -> None:
        """Write a state as a variable, whose initial value is assigned once by a separate
        subgraph.
        """
        name = public_name(value)
        if not states.begun:
            states.begun = True
            self.file.file.graphs.append(LiteGraph("initialise"))
            options = {"init_subgraph_index": len(self.file.file.graphs) - 1}
            self._add(LiteOperator("CALL_ONCE", [], [], "CallOnceOptions", options))
            states.initialize = GraphWriter(self.file, self.file.file.graphs[-1])
        first = states.initialize
        assert first is not None
        initial = self.low.constant(np.asarray(states.defaults[name]), f"{name}_initial")
        first._assigned(name, first.tensor(initial))
        self.tensors[value] = self._append(self._tensor(value))
        handle = [self._handle(name)]
        reading = (handle, [self.tensors[value]], "ReadVariableOptions")
        self._add(LiteOperator("READ_VARIABLE", *reading))

    def _assign(self, value: ir.Value, states: States) -> None:
        self._assigned(states.outputs[value], self.tensor(value))

    def _handle(self, name: str) -> int:
        index = self._append(LiteTensor(f"{name}_handle", RESOURCE, []))
        options = {"shared_name": name, "container": ""}
        self._add(LiteOperator("VAR_HANDLE", [], [index], "VarHandleOptions", options))
        return index

    def _assigned(self, name: str, tensor: int) -> None:
        operands = [self._handle(name), tensor]
        self._add(LiteOperator("ASSIGN_VARIABLE", operands, [], "AssignVariableOptions"))

    # inputs and outputs --------------------------------------------------------------------------

    def _input(self, value: ir.Value) -> int:
        """Cast a half-precision input, unless inputs are float32, too."""
        if value.dtype == D.FLOAT16 and self.file.halves:
            given = self._tensor(value, public_name(value))
            given.type = HALF
            index = self._append(given)
            self.tensors[value] = self._cast(index, FLOAT, f"{given.name}_float")
            return index
        self._warn(value, "input")
        index = self._new(value)
        self.lite.tensors[index].name = public_name(value)
        return index

    def _output(self, value: ir.Value, taken: set[int]) -> None:
        index = self._full_precision(value)
        if value.dtype == D.FLOAT16 and self.file.halves:
            index = self._cast(index, HALF, public_name(value))
        else:
            self._warn(value, "output")
            if index in taken or self.lite.tensors[index].data is not None:
                index = self._copy(index)
        self.lite.tensors[index].name = public_name(value)
        taken.add(index)
        self.lite.outputs.append(index)

    def _full_precision(self, value: ir.Value) -> int:
        """Return the tensor of an output; a half-precision constant is converted by an operator."""
        source = self.low.source(value)
        if source.const_value is None or source.dtype != D.FLOAT16:
            return self.tensor(value)
        made = self._tensor(source)
        made.data = source.const_value.numpy().astype(np.float32)
        return self._append(made)

    def _warn(self, value: ir.Value, side: str) -> None:
        if value.dtype in (D.FLOAT16, D.BFLOAT16):
            message = (
                f"{side} {public_name(value)} is {type_name(value.dtype)}; it "
                "is stored as float32 (TensorFlow Lite has no "
                f"{type_name(value.dtype)} kernels)"
            )
            self.file.notes.append(Diagnostic("X211", message, "warning"))
        else:
            self.file.narrowing.dtype(value)

    def _cast(self, index: int, kind: int, name: str) -> int:
        source = self.lite.tensors[index]
        made = self._append(LiteTensor(name, kind, list(source.shape)))
        self._add(LiteOperator("CAST", [index], [made], "CastOptions"))
        return made

    def _copy(self, index: int) -> int:
        """Copy a value to a separate tensor."""
        source = self.lite.tensors[index]
        if source.shape.count(-1) > 1:
            raise MappingError(
                "the output is an input, a constant or another output, and its shape is dynamic"
            )
        shape = LiteTensor("shape", NUMBERS[D.INT32], [len(source.shape)])
        shape.data = np.asarray(source.shape, np.int32)
        kept = (source.name, source.type, list(source.shape), None, source.scales)
        made = self._append(LiteTensor(*kept, source.zero_points))
        if source.data is not None and 0 in source.shape:  # no buffer, so no constant for LiteRT
            zero = LiteTensor("zero", source.type, [], None, source.scales, source.zero_points)
            zero.data = np.zeros((), TYPES[source.type].numpy())
            inputs = [self._append(shape), self._append(zero)]
            self._add(LiteOperator("FILL", inputs, [made], "FillOptions"))
            return made
        inputs = [index, self._append(shape)]
        self._add(LiteOperator("RESHAPE", inputs, [made], "ReshapeOptions"))
        return made

    # tensors -------------------------------------------------------------------------------------

    def _append(self, tensor: LiteTensor) -> int:
        self.lite.tensors.append(tensor)
        return len(self.lite.tensors) - 1

    def _tensor(self, value: ir.Value, name: str = "") -> LiteTensor:
        """Return a tensor of the type, the shape and the scale of a value, without its numbers."""
        own = value.dtype or D.FLOAT
        dtype = own if value in self.low.exact else NARROW.get(own, own)
        if dtype not in NUMBERS:
            raise MappingError(f"{value.name} is {type_name(own)}, which no kernel supports")
        shape = [] if value.shape is None else list(value.shape)
        sizes = [d if isinstance(d, int) else -1 for d in shape]
        tensor = LiteTensor(name or public_name(value), NUMBERS[dtype], sizes)
        if found := self.low.scales.get(value):
            tensor.scales, tensor.zero_points = list(found.scales), list(found.zeros)
            tensor.axis = found.axis or 0
        return tensor

    def _variable(self, value: ir.Value) -> int:
        made = self._tensor(value)
        made.variable = True
        return self._append(made)

    def _new(self, value: ir.Value) -> int:
        self.tensors[value] = self._append(self._tensor(value))
        return self.tensors[value]

    def tensor(self, value: ir.Value) -> int:
        """Return the tensor of a value that is read."""
        value = self.low.source(value)
        if value not in self.tensors:
            if value in self.low.variables:
                self.tensors[value] = self._variable(value)
                return self.tensors[value]
            if value.const_value is None:
                raise MappingError(f"no operator produces {value.name}")
            self.tensors[value] = self._constant(value, value.const_value)
        return self.tensors[value]

    def _constant(self, value: ir.Value, tensor: ir.TensorProtocol) -> int:
        """Add a constant; a half-precision constant is followed by a DEQUANTIZE."""
        made, half = self._tensor(value), tensor.dtype == D.FLOAT16
        made.shape = [int(n) for n in tensor.shape.numpy()]
        if tensor.dtype == D.STRING:
            raise MappingError(f"{value.name} is a string tensor, which no kernel supports")
        if not half and not self._compressed(value, tensor):
            wide = tensor.dtype in NARROW
            made.data = self._wide(tensor) if wide else LazyTensor.of(tensor).decoded()
            return self._append(made)
        stored = LiteTensor(f"{made.name}_half", HALF, list(made.shape))
        stored.data = LazyTensor.of(tensor).decoded() if half else tensor.numpy().astype(np.float16)
        inputs, index = [self._append(stored)], self._append(made)
        self._add(LiteOperator("DEQUANTIZE", inputs, [index], "DequantizeOptions"))
        return index

    def _wide(self, tensor: ir.TensorProtocol) -> Any:
        if tensor.dtype == D.BFLOAT16:
            return tensor.numpy().astype(np.float32)
        return self.file.narrowing.array(tensor)

    def _compressed(self, value: ir.Value, tensor: ir.TensorProtocol) -> bool:
        if not is_weight(tensor):
            return False
        if self.file.half:
            return half_is_enough(tensor.numpy())
        return self.file.stored_half and survives(tensor, D.FLOAT16)
