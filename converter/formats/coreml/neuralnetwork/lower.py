"""The shared graph -> a Core ML model in N-dimensional form."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import onnx_ir as ir

from converter.errors import Diagnostic, MappingError, UnsupportedError
from converter.formats.coreml.neuralnetwork.collector import (
    REFUSED,
    CoreLowering,
    checked,
    rank_of_value,
    spec_of,
)
from converter.formats.coreml.neuralnetwork.description import declare
from converter.formats.coreml.neuralnetwork.mapping import MAPPING
from converter.formats.coreml.neuralnetwork.model import MLModel
from converter.formats.coreml.neuralnetwork.params import message_at, write_params
from converter.formats.coreml.neuralnetwork.pipeline import LEGALIZE, MOST_AXES, PREPARE, Spec
from converter.formats.coreml.neuralnetwork.weight_encoding import alike, of_array
from converter.formats.format import Flavor
from converter.graph.names import Names, public_name
from converter.graph.network import Network
from converter.mapping.lifting import refuse
from converter.mapping.lowering import layer_refusal
from converter.mapping.node import Layer
from converter.passes.pipeline import run_passes

Value = ir.Value


def lower(model: Network, flavor: Flavor, notes: list[Diagnostic]) -> MLModel:
    """Return an MLModel for the graph; raise UnsupportedError with everything that is not
    supported.
    """
    version, half = int(flavor.options.get("spec", "7")), "fp16" in flavor.options
    clone, context = model.ir.clone(), Spec(model, notes=notes, version=version)
    run_passes(PREPARE, clone, context)
    written = MLModel()
    boundary = declare(model, clone, written, version, notes)
    run_passes(LEGALIZE, clone, context)
    if boundary.labels is not None:
        boundary.labels.scores = clone.graph.outputs[-1]
    low = CoreLowering(MAPPING, version, half)
    for node in clone.graph:
        low.node(node)
    network = getattr(written.proto, boundary.kind)
    writer = NetworkWriter(written, low, clone)
    writer.boundary(clone.graph, boundary)
    try:
        _all_written(clone.graph, low)
        layers = _needed(low, writer.outputs)
        refuse([*low.problems, *_refusals(layers)])
        notes.extend(low.notes)
        writer.network(network, layers)
        writer.results(network)
    except MappingError as e:
        raise UnsupportedError(Diagnostic(e.code, str(e), help=e.help)) from None
    network.arrayInputShapeMapping = 1
    network.imageInputShapeMapping = boundary.image_mapping
    boundary.finish(writer.name, writer.spec)
    return written


def _needed(low: CoreLowering, roots: list[Value]) -> list[Layer]:
    """Return the layers that contribute to `roots`; unused layers are removed from bodies of
    control flow likewise (in place).
    """
    writers: dict[Value, list[Layer]] = defaultdict(list)
    for layer in _with_bodies(low.layers):
        for out in _written(layer):
            writers[out].append(layer)
    live: set[Layer] = set()
    pending, seen = list(roots), set[Value]()
    while pending:
        value = low.resolve(pending.pop())
        if value in seen:
            continue
        seen.add(value)
        for layer in writers[value]:
            if layer not in live:
                live.add(layer)
                operands = [*layer.inputs, layer.attrs.get("conditionVar")]
                pending += [v for v in operands if isinstance(v, Value)]
    return _thinned(low.layers, live)


def _all_written(graph: ir.Graph, low: CoreLowering) -> None:
    """Insert a copy for each output of the graph that is not the output of a layer, an input, a
    constant or a loop variable.
    """
    made = {out for layer in low.layers for out in _written(layer)}
    for value in graph.outputs:
        source = low.resolve(value)
        if source not in made and source.const_value is None and not source.is_graph_input():
            raise MappingError(f"no layer writes the output {public_name(value)}")


def _refusals(layers: list[Layer]) -> list[Diagnostic]:
    refused = (x for x in _with_bodies(layers) if x.kind == REFUSED)
    return [d for layer in refused for d in layer.extra["problems"]]


def _bodies(layer: Layer) -> dict[str, list[Layer]]:
    return {} if layer.kind == REFUSED else layer.extra or {}


def _with_bodies(layers: list[Layer]) -> Iterator[Layer]:
    """Yield the layers and those of all bodies in them."""
    for layer in layers:
        yield layer
        for body in _bodies(layer).values():
            yield from _with_bodies(body)


def _written(layer: Layer) -> list[Value]:
    """Return the names that a layer and its bodies write."""
    return [out for inner in _with_bodies([layer]) for out in inner.outputs]


def _thinned(layers: list[Layer], live: set[Layer]) -> list[Layer]:
    kept = [layer for layer in layers if layer in live]
    for layer in kept:
        bodies = _bodies(layer)
        bodies |= {key: _thinned(body, live) for key, body in bodies.items()}
    return kept


class NetworkWriter:
    """Write the messages of a network, with names for blobs and layers. Constants are written
    before their first user in each network.
    """

    def __init__(self, model: MLModel, low: CoreLowering, graph: ir.Model) -> None:
        self.model, self.low = model, low
        self.names, self.layer_names = Names(), Names()
        self.named: dict[Value, str] = {}
        self.outputs: list[Value] = []
        self.spec = 4  # the lowest version that has all the layers written so far
        self._results: list[tuple[Value, str]] = []

    def boundary(self, graph: ir.Graph, boundary: Any) -> None:
        """Give inputs and outputs their public names; an output that already has a name, or is a
        constant, is copied.
        """
        for value in graph.inputs:
            self.named[value] = self.names.fresh(public_name(value))
        for value in graph.outputs:
            source = self.low.resolve(value)
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

    def name(self, value: Value) -> str:
        """Return the name of a value in the file."""
        value = self.low.resolve(value)
        if value not in self.named:
            self.named[value] = self.names.fresh(value.name or "blob")
        return self.named[value]

    def network(
        self, network: Any, layers: list[Layer], made: frozenset[Value] = frozenset()
    ) -> None:
        """Fill in a network with its layers and constants; `made` are values that exist outside of
        it.
        """
        here = set(made)
        for layer in layers:
            try:
                for value in layer.inputs:
                    source = self.low.resolve(value) if value is not None else None
                    if source is not None and source.const_value is not None and source not in here:
                        self._constant(network, source)
                        here.add(source)
                self._layer(network, layer, frozenset(here))
            except MappingError as e:
                raise UnsupportedError(layer_refusal(layer, e)) from None

    def results(self, network: Any) -> None:
        """Write the outputs that are copies: of inputs, constants, other outputs, or under the name
        of an input.

        A copy may not have one name on both sides, nor overwrite a blob that another copy reads
        later: these go through a blob of their own.
        """
        copies: list[tuple[str, str]] = []
        for value, name in self._results:
            if value.const_value is not None:
                checked(value.const_value.numpy(), value.name or "constant", limits=False)
                self._constant(network, value)
            copies.append((self.name(value), name))
        overwritten = {source for source, _ in copies} & {name for _, name in copies}
        kept = {source: self.names.fresh(f"{source}_kept") for source in sorted(overwritten)}
        late = ((kept.get(source, source), name) for source, name in copies)
        for source, name in [*kept.items(), *late]:
            message = network.layers.add(name=self.layer_names.fresh(name))
            message.input.append(source)
            message.output.append(name)
            message.copy.SetInParent()

    def _constant(self, network: Any, value: Value) -> None:
        assert value.const_value is not None
        array = checked(value.const_value.numpy(), value.name or "constant")
        if array.size == 0 or array.ndim > MOST_AXES:
            has = "no elements" if array.size == 0 else f"{array.ndim} axes"
            limit = "at least one" if array.size == 0 else "at most 5"
            message = f"constant {value.name} has {has}; Core ML supports {limit}"
            raise MappingError(message)
        # a name per network: a body may not use a constant that another body has written
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
        if layer.kind == "rankPreservingReshape":  # whose ranks the specification wants stated
            for ranks, values in (
                (message.inputTensor, layer.inputs),
                (message.outputTensor, layer.outputs),
            ):
                for value in filter(None, values):
                    ranks.add(rank=rank_of_value(value))
        attrs = {k: self.name(v) if isinstance(v, Value) else v for k, v in layer.attrs.items()}
        try:
            write_params(params, attrs)
        except (ValueError, OverflowError) as e:  # protobuf: a number outside its field's type
            raise MappingError(f"{layer.kind}: {e}", "X204") from None
        custom = layer.kind == "custom"
        blobs = layer.blobs if custom else alike(layer.blobs, self.low.half)
        for path, data in blobs.items():
            self.model.set_weights(message_at(params, path), data)
        for key, body in (layer.extra or {}).items():
            inner = getattr(params, key)
            inner.SetInParent()
            self.network(inner, body, made)
