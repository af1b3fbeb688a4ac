"""The boundary of a written program: names, types of the interface, and the casts for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, Where
from converter.formats.coreml.description import Declared, declared_features
from converter.formats.coreml.mlprogram.collector import MilLowering
from converter.formats.coreml.mlprogram.names import NAMES, SCALARS, STATES
from converter.formats.coreml.mlprogram.program import ProgramWriter
from converter.formats.integers import NOTE
from converter.graph.infer import shape_of
from converter.graph.names import public_name
from converter.graph.network import Network
from converter.graph.value import type_name
from converter.mapping.node import Layer

D = ir.DataType
ARRAYS = {D.FLOAT: 65568, D.INT32: 131104, D.FLOAT16: 65552}
WORDS = {D.FLOAT: "fp32", D.INT32: "int32", D.FLOAT16: "fp16", D.BOOL: "bool"}
GRAYSCALE16 = 40  # the color space whose pixels are of fp16
STATES_SINCE = 9  # the specification version
HALF_INTERFACE = 7  # the specification version from which on arrays of fp16 go in and out


@dataclass
class Boundary:
    """The inputs by name, with type and value, and the operations that are added after inputs and
    before outputs.
    """

    inputs: list[tuple[str, ir.DataType, ir.Value]] = field(default_factory=list)
    states: list[tuple[str, ir.Value]] = field(default_factory=list)
    before: list[Layer] = field(default_factory=list)
    after: list[Layer] = field(default_factory=list)
    outputs: list[ir.Value] = field(default_factory=list)


def describe(
    network: Network,
    model: ir.Model,
    writer: ProgramWriter,
    description: Any,
    notes: list[Diagnostic],
    hidden: Sequence[ir.Value] = (),
) -> Boundary:
    """Fill in the description; values of the graph get the names of the program. `hidden` are
    outputs of the graph that the program does not have.
    """
    said, images = declared_features(network, model)
    declared = Declared(said, images, notes, version=writer.low.version)
    side = Describing(network, writer, description, declared)
    graph = model.graph
    pairs = pairs_of(network, graph)
    kept = {k: v for k, v in pairs.items() if is_state(network, k, writer.low)}
    states = {}
    for value in graph.inputs:
        if value in kept:
            states[kept[value]] = side.state(value)
        else:
            side.input(value)
    made = {out for layer in writer.low.layers for out in layer.outputs}
    for value in graph.outputs:
        if value in states:
            given: dict[str, Any] = {"input": states[value], "data": value}
            side.boundary.after.append(Layer("write_state", "write_state", given))
        elif value not in hidden:
            side.output(value, made)
    declared.metadata(description.metadata)
    if network.variables:
        notes += [_as_input(public_name(k)) for k in pairs if k not in kept]
    named = {public_name(k): public_name(v) for k, v in pairs.items()}
    own = {public_name(k) for k in kept}
    renamed = {k: v for k, v in named.items() if k not in own or v != f"{k}_out"}
    changed = {k: v for k, v in side.renamed.items() if k != v}
    for key, found in ((STATES, renamed), (SCALARS, side.scalars), (NAMES, changed)):
        if found:
            description.metadata.userDefined[key] = json.dumps(found, sort_keys=True)
    if NOTE in network.ir.metadata_props:
        description.metadata.userDefined[NOTE] = network.ir.metadata_props[NOTE]
    return side.boundary


class Describing:
    """A description that is being filled in.


    `renamed` maps names of the program to those of the source; `scalars` are inputs that have an
    axis only in the program.
    """

    def __init__(
        self, network: Network, writer: ProgramWriter, description: Any, declared: Declared
    ) -> None:
        self.network, self.writer = network, writer
        self.description, self.declared = description, declared
        self.boundary = Boundary()
        self.renamed: dict[str, str] = {}
        self.scalars: list[str] = []

    def _name(self, value: ir.Value) -> str:
        name = self.writer.names.fresh(public_name(value))
        self.renamed[name] = public_name(value)
        return name

    def _outer(self, value: ir.Value, name: str, dtype: ir.DataType, shape: Any) -> ir.Value:
        """Return a value of the interface, whose type or shape may differ from that in
        the graph.
        """
        found = ir.Value(name=name, type=ir.TensorType(dtype), shape=shape)
        self.writer.low.exact.add(found)
        self.writer.named[found] = name
        return found

    def input(self, value: ir.Value) -> None:
        """Declare an input of the network, and cast or squeeze it where the program needs it."""
        name, own = self._name(value), self.writer.low.carried(value)
        feature = self.description.input.add(name=name)
        image = self.declared.image(feature.type, value, ranks=(4,))
        dtype = self._type(feature, value, own, image)
        steps: list[tuple[str, dict[str, Any]]] = []
        shape = list(value.shape or ())
        if value.shape is not None and not shape:  # inputs have an axis
            steps.append(("squeeze", {}))
            self.scalars.append(name)
        if dtype != own:
            steps.append(("cast", {"dtype": WORDS[own]}))
        self.writer.named[value] = name
        outer = value
        if steps:
            del self.writer.named[value]
            outer = self._outer(value, name, dtype, ir.Shape(shape or [1]))
        self.boundary.before += self._chain(name, outer, value, steps)
        self.boundary.inputs.append((name, dtype, outer))
        defaults = {} if image else self.network.interface.get("defaults", {})
        self.declared.default(feature, defaults.get(public_name(value)))

    def _chain(
        self, name: str, outer: ir.Value, value: ir.Value, steps: list[tuple[str, dict[str, Any]]]
    ) -> list[Layer]:
        """Append a chain of operations, from an input to the value of the graph."""
        layers: list[Layer] = []
        for i, (kind, given) in enumerate(steps):
            made = value
            if i < len(steps) - 1:
                made = ir.Value(name=name, type=outer.type, shape=ir.Shape([]))
                self.writer.low.exact.add(made)
            layers.append(Layer(kind, name, {"x": outer, **given}, outputs=[made]))
            outer = made
        return layers

    def _type(self, feature: Any, value: ir.Value, own: ir.DataType, image: bool) -> ir.DataType:
        """Return the type in the interface, which for arrays is declared with their sizes."""
        if image:
            return D.FLOAT16 if feature.type.imageType.colorSpace == GRAYSCALE16 else D.FLOAT
        dtype = interface_type(value, own, self.writer.low.version, self.declared.notes)
        feature.type.multiArrayType.dataType = ARRAYS[dtype]
        self.declared.shape(feature.type.multiArrayType, value)
        return dtype

    def state(self, value: ir.Value) -> ir.Value:
        """Declare a state that is read at the start; return its value."""
        name = self._name(value)
        state = self._outer(value, name, D.FLOAT16, value.shape)
        self.boundary.states.append((name, state))
        read = Layer("read_state", name, {"input": state}, outputs=[value])
        self.boundary.before.append(read)
        array = self.description.state.add(name=name).type.stateType.arrayType
        array.dataType = ARRAYS[D.FLOAT16]
        array.shape.extend(shape_of(value) or ())
        return state

    def output(self, value: ir.Value, made: set[ir.Value]) -> None:
        """Return the value itself if it is the result of an operation without another public name,
        else a copy.
        """
        name, own = self._name(value), self.writer.low.carried(value)
        feature = self.description.output.add(name=name)
        image = self.declared.picture(feature, value, fixed=True)
        dtype = self._type(feature, value, own, image)
        outer = value
        if dtype == own and value in made and value not in self.writer.named:
            self.writer.named[value] = name
        else:
            outer = self._outer(value, name, dtype, value.shape)
            kind = "identity" if dtype == own else "cast"
            given: dict[str, Any] = {"x": value}
            given |= {} if dtype == own else {"dtype": WORDS[dtype]}
            self.boundary.after.append(Layer(kind, name, given, outputs=[outer]))
        self.boundary.outputs.append(self._with_batch(outer, name) if image else outer)

    def _with_batch(self, value: ir.Value, name: str) -> ir.Value:
        """Return an image [C,H,W] as [1,C,H,W], as programs have them."""
        shape = list(value.shape or ())
        if len(shape) == 4:
            return value
        dtype = self.writer.low.carried(value)
        self.writer.named[value] = self.writer.names.fresh(f"{name}_planes")
        found = self._outer(value, name, dtype, ir.Shape([1, *shape]))
        given = {"x": value, "axes": np.array([0], np.int32)}
        self.boundary.after.append(Layer("expand_dims", name, given, outputs=[found]))
        return found


def pairs_of(network: Network, graph: ir.Graph) -> dict[ir.Value, ir.Value]:
    """Return the inputs that are states, with the outputs that are their next values."""
    inputs = {public_name(v): v for v in graph.inputs}
    outputs = {public_name(v): v for v in graph.outputs}
    renamed = network.interface.get("states", {})
    return {inputs[k]: outputs[v] for k, v in renamed.items() if k in inputs and v in outputs}


def is_state(network: Network, value: ir.Value, low: MilLowering) -> bool:
    """Return whether an input is written as a state, which since iOS18 are of half precision, of a
    size that is known and of zeros at the start.
    """
    start = network.interface.get("defaults", {}).get(public_name(value))
    zeros = start is not None and not np.any(start)
    half = low.carried(value) == D.FLOAT16
    if public_name(value) not in network.variables:
        return False
    return low.version >= STATES_SINCE and zeros and half and bool(shape_of(value))


def _as_input(name: str) -> Diagnostic:
    text = f"state {name} is written as an input and an output"
    help = "write mlprogram+ios=18+fp16: states of a program must be float16 and begin with zeros"
    return Diagnostic("X205", text, level="warning", where=Where(layer=name), help=help)


def interface_type(
    value: ir.Value, own: ir.DataType, version: int, notes: list[Diagnostic]
) -> ir.DataType:
    """Return the type of an input or output: arrays there are of fp32 and int32, since
    iOS16 of fp16.
    """
    dtype = D.INT32 if own in (D.BOOL, D.INT32) else D.FLOAT
    if value.dtype == D.FLOAT16 and version >= HALF_INTERFACE:
        dtype = D.FLOAT16
    if value.dtype not in (dtype, D.BOOL) and value.dtype is not None:
        name = public_name(value)
        text = f"{name} is {type_name(value.dtype)}; it is stored as {type_name(dtype)}"
        notes.append(Diagnostic("X205", text, level="warning", where=Where(layer=name)))
    return dtype
