"""The layers of one Core ML network as nodes, and the ranks of its blobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import onnx_ir as ir

from converter.errors import MappingError, Where
from converter.formats.coreml.neuralnetwork.model import MLModel
from converter.formats.coreml.neuralnetwork.params import read_params
from converter.formats.coreml.neuralnetwork.weight_encoding import LayerWeights
from converter.graph.build import Builder
from converter.graph.infer import set_type
from converter.mapping.conversion_errors import CONVERSION_ERRORS, code_message_help
from converter.mapping.lifting import Lifting
from converter.mapping.node import Layer
from converter.record import comparable

T = TypeVar("T")
Env = dict[str, ir.Value]
CONTROL = ("branch", "loop", "loopBreak", "loopContinue")
# layers that see, move or fill the sequence axis of [Seq,Batch,C,H,W]; without them it is 1
# throughout and is not carried
_SEQUENCE = {
    "simpleRecurrent",
    "gru",
    "uniDirectionalLSTM",
    "biDirectionalLSTM",
    "sequenceRepeat",
    "embedding",
    "cropResize",
    "custom",
}
STATEFUL = {"simpleRecurrent", "gru", "uniDirectionalLSTM", "biDirectionalLSTM"}
RECURRENT = {*STATEFUL, "embedding"}
FIRST_ND = 600  # field number of the first layer that supports N dimensions


def kind_of(layer: Any) -> str:
    """Return the kind of a layer message, "" for one without a kind."""
    return layer.WhichOneof("layer") or ""


def with_bodies(layers: Iterable[Any]) -> Iterator[Any]:
    """Yield the layers and those of all bodies of their control flow."""
    for layer in layers:
        yield layer
        for body in bodies(layer):
            yield from with_bodies(body.layers)


def all_layers(network: Any) -> list[Any]:
    """Return the layers of a network and of all bodies."""
    return list(with_bodies(network.layers))


def writes(layers: Iterable[Any]) -> set[str]:
    """Return all names that the layers (and bodies in them) write."""
    return {name for layer in with_bodies(layers) for name in layer.output}


def bodies(layer: Any) -> list[Any]:
    """Return the networks inside of a branch or a loop."""
    if kind_of(layer) == "branch":
        return [layer.branch.ifBranch, layer.branch.elseBranch]
    if kind_of(layer) == "loop":
        return [layer.loop.conditionNetwork, layer.loop.bodyNetwork]
    return []


@comparable
class RankPolicy:
    """The ranks of blobs. `lead`: leading axes before [C,H,W] of the blobs of an old network, 2
    (Seq, Batch) or 1; 0: N dimensions.
    """

    lead: int
    recurrent: bool
    image_lead: int

    @classmethod
    def of(cls, network: Any) -> RankPolicy:
        """Return the ranks that a network's layers and declarations lead to."""
        layers = all_layers(network)
        new = any(
            layer.DESCRIPTOR.fields_by_name[kind_of(layer)].number >= FIRST_ND
            for layer in layers
            if kind_of(layer)
        )
        exact = network.arrayInputShapeMapping == 1
        lead = 2 if new or any(_moves_sequence(layer) for layer in layers) else 1
        recurrent = not new and any(kind_of(layer) in RECURRENT for layer in layers)
        image = 1 if network.imageInputShapeMapping == 1 else 2 if exact else lead
        return cls(0 if exact else lead, recurrent and not exact, image)


def _moves_sequence(layer: Any) -> bool:
    kind = kind_of(layer)
    return (
        kind in _SEQUENCE
        or (kind == "permute" and list(layer.permute.axis[:1]) != [0])
        or (kind == "reshape" and len(layer.reshape.targetShape) == 4)
        or (kind == "concat" and layer.concat.sequenceConcat)
    )


class NetworkLift:
    """Lift the layers of one network. `env` maps blob names to values; a name may be written again
    (copy).
    """

    def __init__(self, model: MLModel, lifting: Lifting, regime: RankPolicy) -> None:
        self.model, self.lifting, self.regime = model, lifting, regime
        self.lead = regime.lead or 2
        self.refused: set[str] = set()  # names that a refused layer would have written

    @property
    def builder(self) -> Builder:
        return self.lifting.builder

    def layer(self, message: Any, env: Env, path: str) -> None:
        """Lift one layer (not control flow) and bind its outputs."""

        def step(layer: Layer) -> None:
            if not layer.kind:
                raise MappingError("the layer type is not known to netconv", "X201")
            layer.attrs, weights = read_params(getattr(message, layer.kind))
            for key, params in weights.items():
                read = partial(self.model.weights, params)
                layer.blobs[key] = LayerWeights(read, f"{message.name}.{key}")
            layer.outputs = [ir.Value(name=n) for n in message.output]
            results = self.lifting.mapping.table.lift(self.lifting.reading(layer))
            if len(results) < len(message.output):
                counts = f"the layer has {len(results)} outputs, {len(message.output)} are named"
                raise MappingError(counts, "R105")
            if layer.kind == "custom":
                self._give_ranks(message, layer, results)
            for name, value in zip(message.output, results, strict=False):
                env[name] = self.named(value, name)

        self.noting(message, env, path, step)

    def _give_ranks(self, message: Any, layer: Layer, results: Sequence[ir.Value]) -> None:
        """Give the results of a class that is not in the file the rank that the layer states, or
        that all blobs of the network have, or that of its first input; their sizes stay dynamic.
        """
        stated = [tensor.rank for tensor in message.outputTensor]
        source = layer.inputs[0] if layer.inputs else None
        before = list(source.shape) if source is not None and source.shape is not None else []
        for i, value in enumerate(results):
            if self.regime.lead:
                rank, lead = self.regime.lead + 3, before[: self.regime.lead]
            else:
                rank, lead = stated[i] if i < len(stated) and stated[i] else len(before), []
            if rank:
                set_type(value, None, [*lead, *[None] * (rank - len(lead))])

    def noting(self, message: Any, env: Env, path: str, step: Callable[[Layer], T]) -> T | None:
        """Return the result of `step` for a layer; None if it refuses the layer, which is noted, or
        if an input is missing.
        """
        kind = kind_of(message)
        where = Where(self.model.path, path=path, layer=message.name, kind=kind)
        inputs = [env.get(name) for name in message.input]
        layer = Layer(kind, message.name, inputs=inputs, where=where, extra=self)
        missing = [name for name in message.input if name not in env]
        try:
            if not missing:
                source = {"layer": message.name, "type": kind, "where": path}
                with self.builder.provenance(format="coreml", **source):
                    return step(layer)
            if missing[0] not in self.refused:
                raise MappingError(f"{missing[0]!r} is read before any layer writes it", "R105")
        except CONVERSION_ERRORS as e:
            code, text, help = code_message_help(e)
            self.lifting.refuse(layer, text, code, help)
        self.refused |= writes([message])
        for name in message.output:
            env.pop(name, None)
        return None

    def named(self, value: ir.Value, name: str) -> ir.Value:
        """Give a new value the blob's name."""
        if (
            value.producer() is not None
            and value.graph is self.builder.graph
            and "coreml.blob" not in value.meta
        ):
            value.meta["coreml.blob"] = name
            value.name = self.builder.names.fresh(name)
        return value
