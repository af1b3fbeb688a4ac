"""The shared graph -> a Core ML model in N-dimensional form."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from converter.diagnostics import Diagnostic
from converter.errors import UnsupportedError
from converter.format import Flavour
from converter.formats.coreml.declaring import declare
from converter.formats.coreml.legalise import REWRITES
from converter.formats.coreml.lift import mapping
from converter.formats.coreml.lowering import REFUSED, CoreLowering, checked, rank_of_value, spec_of
from converter.formats.coreml.model import MLModel
from converter.formats.coreml.params import message_at, write_params
from converter.formats.coreml.special.lower_others import unconditional
from converter.formats.coreml.stored import alike, of_array
from converter.formats.coreml.weights import WeightData
from converter.graph.names import Names, public_name
from converter.mapping.drive import refuse
from converter.mapping.narrow import other_values
from converter.mapping.node import Layer, MappingError
from converter.model import Model
from converter.passes.constants import holds_numbers
from converter.passes.fold import fold
from converter.passes.halves import round_halves
from converter.passes.legalise import legalise
from converter.passes.ranks import join_reshapes, lower_ranks, with_fewer_axes
from converter.passes.unroll import unroll

Value = ir.Value
MOST_AXES = 5


def lower(model: Model, flavour: Flavour, notes: list[Diagnostic]) -> MLModel:
    """An MLModel of the graph; UnsupportedError with everything that has no counterpart."""
    version, half = int(flavour.options.get("spec", "7")), "fp16" in flavour.options
    refuse(other_values(model.ir, "Core ML"))
    if not model.ir.graph.inputs:
        raise UnsupportedError(Diagnostic("X202", "the network has no inputs; a Core ML neural network has at least one"))
    clone = model.ir.clone()
    fold(clone, limit=4096, keep=holds_numbers)
    unroll(clone, stops_collecting)
    round_halves(clone)
    written = MLModel()
    boundary = declare(model, clone, written, version, notes)
    lower_ranks(clone, MOST_AXES)
    legalise(clone, lambda n: _refused(n, version), with_fewer_axes(REWRITES, MOST_AXES))
    join_reshapes(clone, MOST_AXES)
    if boundary.labels is not None:
        boundary.labels.scores = clone.graph.outputs[-1]
    low = CoreLowering(mapping(), version, half)
    for node in clone.graph:
        low.node(node)
    network = getattr(written.proto, boundary.kind)
    writer = NetworkWriter(written, low, clone)
    writer.boundary(clone.graph, boundary)
    try:
        _all_written(clone.graph, low)
        layers = _needed(low, writer.outputs)
        refuse([*low.problems, *_refusals(layers)])
        writer.network(network, layers)
        writer.results(network)
    except MappingError as e:
        raise UnsupportedError(Diagnostic(e.code, str(e), help=e.help)) from None
    network.arrayInputShapeMapping = 1
    network.imageInputShapeMapping = boundary.image_mapping
    boundary.finish(writer.name, writer.spec)
    return written


def stops_collecting(node: ir.Node) -> bool:
    """Whether a loop gathers results until a condition ends it: only written out their number is known."""
    return node.op_type == "Loop" and len(node.outputs) > len(node.inputs) - 2 and not unconditional(node.attributes["body"].as_graph())


def _refused(node: ir.Node, version: int) -> bool:
    """Whether the layers have no place for `node` as it is. Control flow is looked into by the nodes inside."""
    if node.op_type in ("If", "Loop") and not node.domain:
        return False
    low = CoreLowering(mapping(), version)
    try:
        low.lower(node)
    except MappingError:
        return True
    return False


def _needed(low: CoreLowering, roots: list[Value]) -> list[Layer]:
    """The layers that contribute to `roots`; bodies of control flow are thinned out likewise (in place)."""
    writers: dict[Value, list[Layer]] = {}

    def collect(layers: list[Layer]) -> None:
        for layer in layers:
            for out in [*layer.outputs, *_written_inside(layer)]:
                writers.setdefault(out, []).append(layer)
            for body in _bodies(layer):
                collect(body)

    collect(low.layers)
    live: set[Layer] = set()
    pending = list(roots)
    seen: set[Value] = set()
    while pending:
        value = low.aliases.get(pending[-1])
        if value is not None:
            pending[-1] = value
            continue
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        for layer in writers.get(value, []):
            if layer not in live:
                live.add(layer)
                pending += [v for v in layer.inputs if v is not None]
                pending += [v for v in [layer.attrs.get("conditionVar")] if isinstance(v, Value)]
    return _thinned(low.layers, live)


def _all_written(graph: ir.Graph, low: CoreLowering) -> None:
    """Every output of the graph is the output of a layer, an input, a constant or a variable of a loop."""
    made = {o for layer in low.layers for o in [*layer.outputs, *_written_inside(layer)]}
    for value in graph.outputs:
        source = value
        while source in low.aliases:
            source = low.aliases[source]
        if source not in made and source.const_value is None and not source.is_graph_input():
            raise MappingError(f"no layer writes the output {public_name(value)}")


def _refusals(layers: list[Layer]) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    for layer in layers:
        if layer.kind == REFUSED:
            found += layer.extra["problems"]
        else:
            found += [d for body in (layer.extra or {}).values() for d in _refusals(body)]
    return found


def _bodies(layer: Layer) -> list[list[Layer]]:
    return [] if layer.kind == REFUSED else list((layer.extra or {}).values())


def _written_inside(layer: Layer) -> list[Value]:
    return [o for body in _bodies(layer) for inner in body for o in [*inner.outputs, *_written_inside(inner)]]


def _thinned(layers: list[Layer], live: set[Layer]) -> list[Layer]:
    kept = [layer for layer in layers if layer in live]
    for layer in kept:
        for key, body in (layer.extra or {}).items() if layer.kind != REFUSED else ():
            layer.extra[key] = _thinned(body, live)
    return kept


class NetworkWriter:
    """Names blobs and layers and fills the messages; constants are written in front of their first user in each network."""

    def __init__(self, model: MLModel, low: CoreLowering, graph: ir.Model) -> None:
        self.model, self.low = model, low
        self.names, self.layer_names = Names(), Names()
        self.named: dict[Value, str] = {}
        self.outputs: list[Value] = []
        self.spec = 4  # the lowest version that has all the layers written so far
        self._results: list[tuple[Value, str]] = []

    def boundary(self, graph: ir.Graph, boundary: Any) -> None:
        """Inputs and outputs keep their public names; an output that is already named, or a constant, is a copy."""
        for value in graph.inputs:
            self.named[value] = self.names.fresh(public_name(value))
        for value in graph.outputs:
            source = self.resolve(value)
            self.outputs.append(value)
            name = public_name(value)
            if source in self.named or source.const_value is not None or self._variable(source):
                self._results.append((source, name))
                if name not in self.named.values():
                    self.names.fresh(name)
            elif name in self.named.values():
                self._results.append((source, name))
            else:
                self.named[source] = self.names.fresh(name)

    def _variable(self, value: Value) -> bool:
        return value.producer() is None and value not in self.named

    def resolve(self, value: Value) -> Value:
        while value in self.low.aliases:
            value = self.low.aliases[value]
        return value

    def name(self, value: Value) -> str:
        value = self.resolve(value)
        if value not in self.named:
            self.named[value] = self.names.fresh(value.name or "blob")
        return self.named[value]

    def network(self, network: Any, layers: list[Layer], made: frozenset[Value] = frozenset()) -> None:
        here = set(made)
        for layer in layers:
            for value in layer.inputs:
                source = self.resolve(value) if value is not None else None
                if source is not None and source.const_value is not None and source not in here:
                    self._constant(network, source)
                    here.add(source)
            self._layer(network, layer, frozenset(here))

    def results(self, network: Any) -> None:
        """Outputs that are copies: of inputs, constants, other outputs, or under the name of an input.

        A copy may not have one name on both sides, nor overwrite what another one has yet to read: these go through a blob of their own.
        """
        copies: list[tuple[str, str]] = []
        for value, name in self._results:
            if value.const_value is not None:
                checked(value.const_value.numpy(), value.name or "constant", limits=False)
                self._constant(network, value)
            copies.append((self.name(value), name))
        overwritten = {source for source, _ in copies} & {name for _, name in copies}
        kept = {source: self.names.fresh(f"{source}_kept") for source in sorted(overwritten)}
        for source, name in [*kept.items(), *((kept.get(source, source), name) for source, name in copies)]:
            message = network.layers.add(name=self.layer_names.fresh(name))
            message.input.append(source)
            message.output.append(name)
            message.copy.SetInParent()

    def _constant(self, network: Any, value: Value) -> None:
        assert value.const_value is not None
        array = checked(value.const_value.numpy(), value.name or "constant")
        if array.size == 0:
            raise MappingError(f"the constant {value.name} has no elements; Core ML's tensors have at least one")
        if array.ndim > 5:
            raise MappingError(f"the constant {value.name} has {array.ndim} axes; Core ML's tensors have at most 5")
        # a name per network: a body may not reach what another body has written
        self.named[value] = self.names.fresh(value.name or "const")
        message = network.layers.add(name=self.layer_names.fresh(value.name or "const"))
        message.output.append(self.named[value])
        write_params(message.loadConstantND, {"shape": list(array.shape) or [1]})
        self.model.set_weights(message.loadConstantND.data, of_array(array, self.low.half))

    def _layer(self, network: Any, layer: Layer, made: frozenset[Value]) -> None:
        message = network.layers.add(name=self.layer_names.fresh(layer.name or layer.kind))
        message.input.extend(self.name(v) for v in layer.inputs if v is not None)
        message.output.extend(self.name(v) for v in layer.outputs)
        self.spec = max(self.spec, spec_of(layer.kind, layer.attrs, len(message.input)))
        params = getattr(message, layer.kind)
        if layer.kind == "rankPreservingReshape":  # the one layer whose ranks the specification wants stated
            for ranks, values in ((message.inputTensor, layer.inputs), (message.outputTensor, layer.outputs)):
                for value in filter(None, values):
                    ranks.add(rank=rank_of_value(value))
        try:
            write_params(params, {k: self.name(v) if isinstance(v, Value) else v for k, v in layer.attrs.items()})
        except (ValueError, OverflowError) as e:  # protobuf: a number outside its field's type
            raise MappingError(f"{layer.kind} {layer.name!r}: {e}", "X204") from None
        blobs: dict[str, WeightData] = layer.blobs
        for path, data in (blobs if layer.kind == "custom" else alike(blobs, self.low.half)).items():
            self.model.set_weights(message_at(params, path), data)
        for key, body in (layer.extra or {}).items():
            inner = getattr(params, key)
            inner.SetInParent()
            self.network(inner, body, made)
