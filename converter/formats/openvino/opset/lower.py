"""The shared graph -> Net (v10, v11)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic
from converter.formats.format import Flavor
from converter.formats.openvino.bodies import BodyWriter
from converter.formats.openvino.ir import BackEdge, Body, Element, Net, Port, PortMap, SubNet
from converter.formats.openvino.ir import Layer as IrLayer
from converter.formats.openvino.names import BoundaryNames, Names, output_name
from converter.formats.openvino.opset.codes import AS_STORED, code_of
from converter.formats.openvino.opset.constants import (
    DATA_TYPES,
    NAMES,
    precision,
    write_const,
)
from converter.formats.openvino.opset.mapping import MAPPING
from converter.formats.openvino.opset.pipeline import NEWEST, PIPELINE, Version, presented_as
from converter.formats.openvino.opset.revisions import version_to_write
from converter.formats.openvino.opset.rules.context import Inner, OpsetLayer
from converter.graph.equal_weights import EqualWeights
from converter.graph.lazy_tensor import Converted, LazyTensor, lazy
from converter.graph.names import public_name
from converter.graph.network import Network
from converter.graph.states import begun_states, is_begun
from converter.mapping.lifting import refuse
from converter.mapping.lowering import Lowering
from converter.mapping.node import Layer
from converter.passes.pipeline import run_passes
from converter.passes.round_halves import half_is_enough
from converter.passes.stored_halves import is_weight, survives


def lower(model: Network, flavor: Flavor, notes: list[Diagnostic]) -> Net:
    """Return a Net of the graph; raise UnsupportedError with everything that has no counterpart."""
    version = int(flavor.options.get("ir", "11"))
    graph, limit = model.ir.clone(), NEWEST[version]
    context = Version(model, notes=notes, version=version)
    run_passes(PIPELINE, graph, context)
    half = context.stored_halves[-1]
    stored = "" if half is None else NAMES[half]
    writer = NetWriter(
        Net(name=graph.graph.name or "model", version=version),
        limit,
        "f16" if "fp16" in flavor.options else "",
        stored,
    )
    defaults = model.interface.get("defaults", {})
    notes.extend(writer.graph(graph.graph, defaults, model.variables))
    return writer.net


def _variable(value: ir.Value) -> dict[str, str]:
    """Declare a variable by ReadValue."""
    return {
        "variable_id": public_name(value),
        "variable_type": NAMES[value.dtype or ir.DataType.FLOAT],
        "variable_shape": ",".join(_dims(value)),
    }


def _converts_constant(layer: Layer) -> bool:
    """Return whether a layer converts indices into a table, for which the table lookup may have an
    element type of its own.
    """
    source = layer.inputs[0] if layer.kind == "Convert" and layer.inputs else None
    return source is not None and source.const_value is not None


def _dims(value: ir.Value) -> list[str]:
    return (
        ["..."]
        if value.shape is None
        else [str(d) if isinstance(d, int) else "?" for d in value.shape]
    )


class NetWriter(BodyWriter):
    """Write layers, and constants before their first user. There is one writer for each body."""

    opset = "opset1"

    def __init__(
        self, net: Net, limit: int, half: str = "", stored: str = "", body: Body | None = None
    ) -> None:
        super().__init__(net if body is None else body)
        self.net, self.limit, self.half, self.stored = net, limit, half, stored
        self._halves: EqualWeights[LazyTensor] = EqualWeights()
        self._names = Names()
        self._boundary: BoundaryNames | None = None
        self.states: dict[str, ir.Value] = {}

    def graph(
        self, graph: ir.Graph, defaults: Mapping[str, Any], states: Mapping[str, str]
    ) -> list[Diagnostic]:
        """Write the whole network; return it with warnings about its names. `defaults` are values
        of inputs, `states` the outputs that are the next values of such inputs.
        """
        begun = begun_states(graph)
        names = [n for v in graph.inputs if (n := public_name(v)) in defaults or n in begun]
        written = {public_name(v) for v in graph.outputs}
        left = {states[n]: n for n in names if states.get(n) in written}
        self.states = {public_name(v): v for v in graph.inputs if public_name(v) in left.values()}
        self._boundary = BoundaryNames(
            graph,
            list(self.states),
            lambda v: self.net.version < 11 and presented_as(v) is not None,
        )
        # v11 has names of tensors in addition to those of layers
        self._names = Names(
            self._boundary.taken
            if self.net.version < 11
            else {self._boundary.names[v] for v in graph.inputs}
        )
        for value in graph.inputs:
            name = public_name(value)
            if name in self.states and name not in begun:
                self._read_state(value, defaults[name])
            elif name not in self.states:
                self.parameter(value)
        self.nodes(graph)
        for value in graph.outputs:
            if public_name(value) in left:
                self._assign(value, left[public_name(value)])
            else:
                self.result(value)
        return self._boundary.notes

    def nodes(self, graph: ir.Graph) -> None:
        """Write the layers of a graph's nodes. Raises UnsupportedError with all refusals."""
        low = Lowering(MAPPING, self.limit)
        for node in graph:
            if is_begun(node):
                self._begin(low, node)
            elif self._boundary is None or node.outputs[0] not in self._boundary.again:
                low.node(node)
        refuse(low.problems)
        if self._boundary is not None:
            self._boundary.notes.extend(low.notes)
        read = {v for layer in low.layers for v in layer.inputs} | set(graph.outputs)
        for layer in low.layers:
            if not (_converts_constant(layer) and read.isdisjoint(layer.outputs)):
                self._layer(layer)
        assert not self.feeds, "what a body reads of the outer graph are its Parameters"

    def parameter(self, value: ir.Value) -> int:
        """Write a Parameter and return its id."""
        dtype = NAMES[value.dtype or ir.DataType.FLOAT]
        data = {"shape": ",".join(_dims(value)), "element_type": dtype}
        return self.put("Parameter", self._name_of(value), [], [value], data).id

    def _name_of(self, value: ir.Value) -> str:
        """Return the name of a layer with one output."""
        wanted = self._boundary.layer([value]) if self._boundary is not None else ""
        return self._names.own(wanted) or self._name(public_name(value) or "const")

    def result(self, value: ir.Value) -> int:
        """Write a Result and return its id."""
        if self._boundary is not None:
            value = self._presented(value, self._boundary)
        self._constant(value)
        return self.put("Result", self._name(f"{public_name(value)}/result"), [value], []).id

    def _presented(self, value: ir.Value, boundary: BoundaryNames) -> ir.Value:
        """Write an output, in v10 after a layer of its name if its producer has another name
        because it belongs to several outputs.
        """
        if value in boundary.again:
            return boundary.again[value]
        made = self.made.get(value)
        if self.net.version >= 11 or (
            made is not None and self._shown_as(*made) == boundary.names[value]
        ):
            return value
        self._constant(value)
        same = ir.Value(name=public_name(value), type=value.type, shape=value.shape)
        data = {"destination_type": NAMES[value.dtype or ir.DataType.FLOAT]}
        self.put("Convert", self._names.own(boundary.names[value]), [value], [same], data)
        return same

    def _shown_as(self, layer: int, port: int) -> str:
        made = self.body.layers[layer]
        return output_name(made.name, [p.id for p in made.outputs].index(port), len(made.outputs))

    def _begin(self, low: Lowering, node: ir.Node) -> None:
        """A state whose initial value is computed."""
        state, initial = node.inputs
        assert state is not None
        low.name = node.metadata_props.get("netconv.layer") or public_name(state)
        low.add("ReadValue", [initial], node.outputs, _variable(state))

    def _read_state(self, value: ir.Value, initial: Any) -> None:
        """Read a state that begins with a constant. An empty constant is omitted: a variable of
        dynamic shape is empty before it is assigned.
        """
        start: list[ir.Value] = []
        array = np.asarray(initial)
        open_sizes = [
            s
            for d, s in zip(value.shape or (), array.shape, strict=False)
            if not isinstance(d, int)
        ]
        if not open_sizes or any(open_sizes):
            start = [ir.Value(name="init", type=value.type, shape=ir.Shape(array.shape))]
            self._const(self._name(f"{public_name(value)}/init"), lazy(array), start[0])
        name = self._name(public_name(value))
        layer = self.put("ReadValue", name, start, [value], _variable(value), "opset6")
        layer.outputs[0].names = ()

    def _assign(self, value: ir.Value, name: str) -> None:
        self._constant(value)
        out = ir.Value(name="assigned", type=value.type, shape=value.shape)
        data = {"variable_id": name}
        self.put("Assign", self._name(f"{name}/assign"), [value], [out], data, "opset6")

    def _constant(self, value: ir.Value) -> None:
        """Return the Const layer of a constant that has none yet, followed by a Convert if it is
        stored in another type.
        """
        tensor = value.const_value
        if value in self.made or tensor is None:
            return
        if code_of(tensor) and value.meta.get(AS_STORED) is None:
            self._converted(value, tensor, {})
        elif narrow := self._narrow(tensor):
            to = DATA_TYPES[narrow]
            whole = LazyTensor.of(tensor)
            half = self._halves.once(whole, lambda: whole.derived(Converted(to), to))
            half = half.reshaped(tensor.shape.numpy())
            self._converted(value, half, {"name": "decompression", "version": "0"})
        else:
            self._const(self._name_of(value), tensor, value)

    def _const(self, name: str, tensor: ir.TensorProtocol, value: ir.Value) -> IrLayer:
        return self.append_layer(write_const(len(self.body.layers), name, tensor), [], [value])

    def _narrow(self, tensor: ir.TensorProtocol) -> str:
        """Return the half-precision type to store a constant in: as requested, or as in the source
        if it is lossless; else "".
        """
        if not is_weight(tensor):
            return ""
        if self.half and len(tensor.shape) >= 2 and half_is_enough(tensor.numpy()):
            return self.half
        lossless = self.stored and survives(tensor, DATA_TYPES[self.stored])
        return self.stored if lossless else ""

    def _converted(
        self, value: ir.Value, stored: ir.TensorProtocol, rt_info: dict[str, str]
    ) -> None:
        """Return a constant in its storage type, with a Convert to its own type; readers recognize
        `decompression` in rt_info.
        """
        name = value.name or "const"
        inner = ir.Value(name=name)
        const = self._const(self._name(f"{name}_compressed"), stored, inner)
        data = {"destination_type": NAMES[value.dtype or ir.DataType.FLOAT]}
        layer = self.put("Convert", self._name_of(value), [inner], [value], data)
        layer.inputs, layer.outputs[0].names = [replace(const.outputs[0])], ()
        if rt_info:
            layer.rt_info = Element("rt_info", children=[Element("attribute", rt_info)])

    def _layer(self, layer: Layer) -> None:
        inputs = [v for v in layer.inputs if v is not None]
        for v in inputs:
            self._constant(v)
        own = layer if isinstance(layer, OpsetLayer) else OpsetLayer(layer.kind)
        newest = version_to_write(layer.kind, self.limit)
        version = f"opset{own.revision}" if own.revision else newest
        if isinstance(layer.extra, str):  # of an extension
            version = layer.extra
        wanted = (
            self._boundary.layer(layer.outputs)
            if self._boundary is not None and self.net.version < 11
            else ""
        )
        name = self._names.own(wanted) or self._name(layer.name or layer.kind)
        made = self.put(layer.kind, name, inputs, layer.outputs, dict(layer.attrs), version)
        for tag, inner in own.bodies.items():
            made.bodies[tag] = self._inner(inner, len(inputs))

    def _inner(self, inner: Inner, count: int) -> SubNet:
        """Return the body of an If or Loop; external ports are positions, since ports are numbered
        so here.
        """
        sub = SubNet()
        writer = NetWriter(self.net, self.limit, self.half, self.stored, sub)
        parameters = {v: writer.parameter(v) for _, v in inner.inputs}
        sub.inputs = [PortMap(port, parameters[v]) for port, v in inner.inputs]
        if inner.iteration is not None:
            sub.inputs.append(
                PortMap(-1, writer.parameter(inner.iteration), purpose="current_iteration")
            )
        writer.nodes(inner.graph)
        results = {}
        for i, value in enumerate(inner.outputs):
            results[i] = writer.result(writer.lifted(value) if i in inner.stacked else value)
            stacked = PortMap(count + i, results[i], axis=0, start=0, end=-1, stride=1, part_size=1)
            sub.outputs.append(stacked if i in inner.stacked else PortMap(count + i, results[i]))
        if inner.goes_on is not None:
            going = writer.result(inner.goes_on)
            sub.outputs.append(PortMap(-1, going, purpose="execution_condition"))
        for value, source in inner.back.items():
            at = going if source is inner.goes_on else results[inner.outputs.index(source)]
            sub.back_edges.append(BackEdge(at, parameters[value]))
        return sub

    def lifted(self, value: ir.Value) -> ir.Value:
        """Return `value` with a leading axis of size 1, to be collected along it."""
        axis = LazyTensor(np.array([0], np.int64))
        at = ir.Value(
            name="axis", type=ir.TensorType(axis.dtype), shape=axis.shape, const_value=axis
        )
        shape = None if value.shape is None else ir.Shape([1, *value.shape])
        out = ir.Value(name=f"{value.name}/part", type=value.type, shape=shape)
        self._constant(value)
        self._constant(at)
        self.put("Unsqueeze", self._name(f"{value.name}/part"), [value, at], [out])
        return out

    def port(self, id: int, value: ir.Value, is_input: bool) -> Port:
        sizes = [] if value.shape is None else list(value.shape)
        dims = tuple(d if isinstance(d, int) else -1 for d in sizes)
        named = not is_input and self._boundary is not None and self.net.version >= 11
        name = self._boundary.names.get(value) if named and self._boundary is not None else None
        return Port(id, dims, precision(value.dtype), () if name is None else (name,))

    def _name(self, hint: str) -> str:
        return self._names.free(hint)
