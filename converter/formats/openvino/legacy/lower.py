"""The shared graph -> Net (v5, v6, v7)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, MappingError, Where
from converter.formats.format import PADDED, Flavor
from converter.formats.openvino.bodies import BodyWriter
from converter.formats.openvino.ir import Body, Net, Port, SubNet
from converter.formats.openvino.ir import Layer as IrLayer
from converter.formats.openvino.legacy.fitting import fitted
from converter.formats.openvino.legacy.lift import STATISTICS, statistics_of
from converter.formats.openvino.legacy.loose_ends import Ties, alive, reads, tie
from converter.formats.openvino.legacy.mapping import MAPPING
from converter.formats.openvino.legacy.pipeline import IN_OWN_TYPES, PREPARE, Version
from converter.formats.openvino.legacy.rules.context import LowerContext
from converter.formats.openvino.legacy.rules.control_flow import LoopPlan, write_loop
from converter.formats.openvino.legacy.rules.fields import listed
from converter.formats.openvino.legacy.types import (
    NARROW,
    PRECISION,
    keeps_type,
)
from converter.formats.openvino.names import Names
from converter.graph.infer import shape_of
from converter.graph.lazy_tensor import Converted, LazyTensor
from converter.graph.names import public_name, set_public_name
from converter.graph.network import Network
from converter.graph.value import type_name
from converter.mapping.lifting import refuse
from converter.mapping.lowering import Lowering, layer_refusal
from converter.mapping.narrow import Narrowing, narrow_array
from converter.mapping.node import Layer
from converter.passes.pipeline import run_passes
from converter.passes.round_halves import half_is_enough

D = ir.DataType


def lower(model: Network, flavor: Flavor, notes: list[Diagnostic]) -> Net:
    """Return a Net of the graph; raise UnsupportedError with everything that has no counterpart,
    X203 where a shape is not static.
    """
    version = int(flavor.options.get("ir", "7"))
    graph = model.ir.clone()
    # before casts are inserted between an input of few bits and the output that it is
    given = {public_name(v): v for v in graph.graph.inputs}
    passed = {n for v in graph.graph.outputs if _itself(v) is given.get(n := public_name(v))}
    padded = PADDED in flavor.options
    context = Version(model, notes=notes, padded=padded, version=version)
    run_passes(PREPARE, graph, context)
    writer = NetWriter(
        Net(name=graph.graph.name or "model", version=version), "fp16" in flavor.options, passed
    )
    for value in (*graph.graph.inputs, *graph.graph.outputs):
        if value.dtype == D.BOOL:  # the original type cannot be seen afterwards
            writer.narrowing.dtype(value)
    run_passes(IN_OWN_TYPES, graph, context)
    writer.graph(graph.graph)
    names = {layer.name for layer in writer.net.layers}
    writer.net.statistics = [
        s for s in statistics_of(graph.metadata_props.get(STATISTICS, "")) if s.name in names
    ]
    notes.extend(writer.narrowing.notes)
    return writer.net


class NetWriter:
    """Write a net: inputs, layers, and a separate layer for each output that another
    layer reads.
    """

    def __init__(self, net: Net, half: bool, passed: set[str]) -> None:
        self.net, self.half = net, half
        self.passed = passed  # outputs that are the inputs of their names
        self.narrowing = Narrowing(NARROW)
        self.names = Names()
        self.named: dict[str, ir.Value] = {}  # outputs by their names
        self.free: dict[ir.Value, Layer] = {}  # the layers of outputs that can have their names
        self.outputs: set[Layer] = set()  # the layers that keep the name they have
        self.problems: list[Diagnostic] = []

    def graph(self, graph: ir.Graph) -> None:
        """Write the layers of a graph, in the order of its outputs. Raises UnsupportedError with
        all refusals.
        """
        body = LayerWriter(self.net, self)
        states = self.states(graph)
        self.names = Names({public_name(v) for v in (*graph.inputs, *graph.outputs)} - states)
        self.named = {public_name(v): v for v in graph.outputs}
        layers = alive(self.layers(graph), graph.outputs)
        self.finish(graph, layers, states)
        refuse(self.problems)
        # the inputs of an output may not be needed where its own layer takes a shortcut
        layers = alive(
            layers,
            [o for la in self.outputs for o in la.outputs]
            + [v for v in graph.outputs if public_name(v) in states],
        )
        # layers without consumer go last: the outputs are in the order of their layers
        place = {public_name(v): i for i, v in enumerate(graph.outputs)}
        layers.sort(key=lambda la: place.get(la.name, -1) if la in self.outputs else -1)
        for value in graph.inputs:
            name = public_name(value)
            layer = Layer("Input", name, outputs=[value])
            if name in states:
                layer = Layer("Memory", f"{name}/read", _end(name, 1), outputs=[value])
            else:
                self.outputs.add(layer)
            body.add(layer)
        for layer in layers:
            body.add(layer)
        for value in graph.outputs:
            name = public_name(value)
            if name in states:
                body.add(Layer("Memory", f"{name}/write", _end(name, 0), inputs=[value]))
        refuse(self.problems)

    def states(self, graph: ir.Graph) -> set[str]:
        """Choose names that stand for both an input and an output: such a pair is a memory, unless
        the output is the input itself or no other input is left.

        Then the output gets another name, since layer names are unique.
        """
        given = {public_name(v): v for v in graph.inputs}
        shared = {name: v for v in graph.outputs if (name := public_name(v)) in given}
        memories = {name for name in shared if name not in self.passed}
        if len(memories) == len(given):
            memories = set()
        names = Names({*given, *(public_name(v) for v in graph.outputs)})
        for name, value in shared.items():
            if name not in memories:
                other = names.free(name)
                set_public_name(value, other)
                text = (
                    f"output {name} is renamed to {other}: an input has the "
                    "same name, and layer names must be unique"
                )
                self.narrowing.notes.append(Diagnostic("X207", text, "warning", Where(layer=name)))
        return memories

    def layers(self, graph: ir.Graph) -> list[Layer]:
        """Return the layers of a graph or body as the rows create them, in order; refusals are
        collected.
        """
        low = Lowering(MAPPING, self.net.version)
        for node in graph:
            low.node(node)
        self.problems.extend(low.problems)
        self.narrowing.notes.extend(low.notes)
        return fitted(low.layers)

    def finish(self, graph: ir.Graph, layers: list[Layer], states: set[str]) -> None:
        """Make every output of the graph the only port of an unused layer of that name."""
        outputs = [v for v in graph.outputs if public_name(v) not in states]
        ties = Ties(graph.inputs, outputs, layers)
        read = {v for layer in layers for v in reads(layer)}
        made = {
            o: layer
            for layer in layers
            for o in layer.outputs
            if o not in read and layer.kind not in ("FakeQuantize", "Quantize")
        }
        times = Counter(graph.outputs)
        self.free = {
            v: made[v] for v in outputs if v in made and times[v] == 1 and not ties.ends[v]
        }
        low = Lowering(MAPPING, self.net.version)
        writer = LowerContext.for_no_operator(low)
        names = [public_name(v) for v in graph.outputs]
        for twice in dict.fromkeys(n for n in names if names.count(n) > 1):
            self.problems.append(
                Diagnostic(
                    "X201",
                    f"two outputs have the name {twice!r}, but layer names must be unique",
                    where=Where(layer=twice),
                )
            )
        for value, name in zip(graph.outputs, names, strict=True):
            if name in states:
                continue
            low.name = name
            start = len(low.layers)
            try:
                if ties.constant(value):
                    raise MappingError(
                        "the output is constant; legacy IR needs outputs that depend on an input"
                    )
                if self.called(value, name):
                    continue
                out = low.value(name, value.dtype, value.shape)
                if ties.ends[value]:
                    tie(writer, value, ties.ends[value], out)
                else:
                    writer.copy(value, out)
            except MappingError as e:
                self.problems.append(
                    Diagnostic(e.code, f"output {name}: {e}", where=Where(layer=name), help=e.help)
                )
                continue
            low.layers[-1].name = name
            self.outputs.add(low.layers[-1])
            layers.extend(low.layers[start:])

    def called(self, value: ir.Value, name: str) -> bool:
        """Give the layer that produces an output the output's name, if no other layer needs it;
        with several ports it is followed by their number.
        """
        producer = self.free.pop(value, None)
        if producer is None:
            return False
        if len(producer.outputs) > 1:
            index = producer.outputs.index(value)
            if not name.endswith(f".{index}"):
                return False
            name = name.removesuffix(f".{index}")
            if producer in self.outputs:
                return producer.name == name
            ports = {f"{name}.{i}": port for i, port in enumerate(producer.outputs)}
            others = {
                n
                for n, port in ports.items()
                if port is not value and not (self.named.get(n) is port and port in self.free)
            }
            if not self.names.taken.isdisjoint({name, *others}):
                return False
            self.names.taken.update((name, *ports))
        producer.name = name
        self.outputs.add(producer)
        return True

    def tensor(self, data: Any, name: str) -> LazyTensor:
        """Return the numbers of a tensor or an array in their storage type: narrowed and, for
        +fp16, halved, with a check that none is lost. Those that stay as they are may be computed
        only while they are written.
        """
        tensor = data if isinstance(data, ir.TensorProtocol) else LazyTensor(np.asarray(data))
        if tensor.dtype in (D.FLOAT, D.FLOAT16) and not self.half:
            own = LazyTensor.of(tensor).decoded()
            wide = tensor.dtype == D.FLOAT
            return own if wide else own.derived(Converted(D.FLOAT), D.FLOAT)
        return LazyTensor(self._halved(self.narrowing.array(tensor, name), name))

    def _halved(self, array: Any, name: str) -> Any:
        if (
            array.dtype.kind == "f"
            and array.dtype != np.float32
            and not (self.half and array.dtype == np.float16)
        ):
            array = narrow_array(array, np.dtype(np.float32), name)
        if self.half and array.dtype == np.float32 and not _subnormal(array):
            return narrow_array(array, np.dtype(np.float16), name)
        return array

    def precision(self, value: ir.Value) -> str:
        """Return the precision of a value. Raises MappingError for types that the format lacks."""
        dtype = (
            value.dtype
            if keeps_type(value) and value.dtype is not None
            else self.narrowing.dtype(value)
        )
        if dtype not in PRECISION:
            raise MappingError(f"type {type_name(dtype)} is not supported")
        tensor = value.const_value
        half = self.half and not (tensor is not None and _subnormal(tensor.numpy()))
        return "FP16" if half and dtype == D.FLOAT else PRECISION[dtype]


def _subnormal(array: Any) -> bool:
    """Return whether numbers lose precision in half precision because they are so small: then they
    are stored as float32.
    """
    return (
        bool(np.isfinite(array).all())
        and np.abs(array).max(initial=0) < 1
        and not half_is_enough(array)
    )


class LayerWriter(BodyWriter):
    """Write layers with their blobs, and constants before their first user."""

    def __init__(self, body: Body, net: NetWriter, inner: bool = False) -> None:
        super().__init__(body)
        self.net, self.inner = net, inner

    def add(self, layer: Layer) -> IrLayer | None:
        """Write a layer; return None if it is refused."""
        try:
            if isinstance(layer.extra, LoopPlan):
                return self._loop(layer, layer.extra)
            return self._layer(layer)
        except MappingError as e:
            self.net.problems.append(layer_refusal(layer, e))
            return None

    def _layer(self, layer: Layer) -> IrLayer:
        inputs, attrs = [v for v in layer.inputs if v is not None], dict(layer.attrs)
        if (
            self.inner and layer.kind == "Reshape"
        ):  # bodies keep the shape as an attribute, as they did before v5
            inputs, attrs = inputs[:1], {"dim": listed(_dims(layer.outputs[0]))}
        for value in inputs:
            if value.const_value is not None and value not in self.made:
                self._const(value)
        name, outputs = layer.name, layer.outputs
        if layer not in self.net.outputs:
            name = self.net.names.free(name or layer.kind, len(outputs))
        # the Model Optimizer counts the blobs as ports, too
        made = self.put(layer.kind, name, inputs, outputs, attrs, apart=len(layer.blobs))
        self._store(made, layer)
        return made

    def _store(self, made: IrLayer, layer: Layer) -> None:
        binary = layer.kind == "BinaryConvolution"
        blobs = {
            name: LazyTensor(data) if binary else self.net.tensor(data, f"{layer.name}.{name}")
            for name, data in layer.blobs.items()
        }
        if self.net.net.version < 7:
            made.precision = (
                made.outputs[0].precision if made.outputs else ("FP16" if self.net.half else "FP32")
            )
            if made.precision == "FP16" and any(t.dtype == D.FLOAT for t in blobs.values()):
                made.precision = "FP32"  # that of the blobs and of the results
                blobs = {
                    name: t if t.dtype == D.FLOAT else LazyTensor(t.numpy().astype(np.float32))
                    for name, t in blobs.items()
                }
                for port in made.outputs:
                    port.precision = port.precision.replace("FP16", "FP32")
            for port in made.outputs:
                port.precision = port.precision if port.precision != made.precision else ""
        for name, stored in blobs.items():
            precision = "BIN" if binary else "FP16" if stored.dtype == D.FLOAT16 else "FP32"
            named = self.net.net.version >= 7 or binary
            made.blobs[name] = stored.called(precision if named else "")

    def _const(self, value: ir.Value) -> None:
        assert value.const_value is not None
        stored = self.net.tensor(value.const_value, value.name or "constant")
        layer = self.put("Const", self.net.names.free(value.name or "const"), [], [value])
        port = layer.outputs[0]
        layer.blobs["custom"] = stored.called(port.precision if self.net.net.version >= 7 else "")
        if self.net.net.version < 7:
            layer.precision, port.precision = port.precision, ""

    def port(self, id: int, value: ir.Value, is_input: bool) -> Port:
        return Port(id, _dims(value), "" if is_input else self.net.precision(value))

    def _loop(self, layer: Layer, plan: LoopPlan) -> IrLayer:
        sub = SubNet()
        inner = LayerWriter(sub, self.net, inner=True)
        layers = self.net.layers(plan.body)
        refuse(self.net.problems)
        needed = alive(layers, plan.body.outputs[1:])  # the condition always holds
        layer.inputs = list(write_loop(inner, sub, plan, needed))
        layer.outputs = [o for o, _ in (*plan.last, *plan.every)]
        made = self._layer(layer)
        made.bodies["body"] = sub
        return made


def _end(name: str, index: int) -> dict[str, str]:
    """Return the attributes of an end of a state: 1 where it is read, 0 where it is written."""
    return {"id": name, "index": str(index), "size": "2"}


def _itself(value: ir.Value | None) -> ir.Value | None:
    """Return the value that `value` is a copy of, through Identity operators."""
    while (
        value is not None
        and (producer := value.producer()) is not None
        and producer.op_type == "Identity"
    ):
        value = producer.inputs[0]
    return value


def _dims(value: ir.Value) -> tuple[int, ...]:
    shape = shape_of(value)
    if shape is None:
        raise MappingError(
            f"{value.name} has the shape {value.shape}, the target needs static shapes",
            "X203",
            "fix the inputs with --inputs NAME:1,3,224,224",
        )
    if 0 in shape:
        raise MappingError(
            f"{value.name} has the shape {list(shape)}; dimensions of size 0 are not supported"
        )
    return shape
