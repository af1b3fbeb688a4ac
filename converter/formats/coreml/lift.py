"""A Core ML network (or a pipeline of networks) -> the shared graph."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import onnx_ir as ir

from converter.diagnostics import Diagnostic, Where
from converter.formats.coreml import ops, special
from converter.formats.coreml.blobs import floats, operands
from converter.formats.coreml.model import MLModel
from converter.formats.coreml.params import read_params
from converter.formats.coreml.stored import Stored
from converter.graph.build import Builder
from converter.graph.infer import InferenceError
from converter.mapping.drive import FormatMapping, Lifting
from converter.mapping.node import Layer, MappingError

Env = dict[str, ir.Value]
CONTROL = ("branch", "loop", "loopBreak", "loopContinue")
# layers that see, move or fill the sequence axis of [Seq,Batch,C,H,W]; without them it is 1 throughout and is not carried
_SEQUENCE = {"simpleRecurrent", "gru", "uniDirectionalLSTM", "biDirectionalLSTM", "sequenceRepeat", "embedding", "cropResize", "custom"}
RECURRENT = {"simpleRecurrent", "gru", "uniDirectionalLSTM", "biDirectionalLSTM", "embedding"}
# what Python and numpy say of parameters that no valid file has (unknown enumeration numbers, missing elements, absurd sizes)
DAMAGE = (ValueError, KeyError, IndexError, TypeError, ZeroDivisionError, OverflowError, MemoryError)
FIRST_ND = 600  # field number of the first layer that knows N dimensions


@cache
def mapping() -> FormatMapping:
    return FormatMapping(ops.TABLE, special.LIFT, special.LOWER)


def kind_of(layer: Any) -> str:
    return layer.WhichOneof("layer") or ""


def all_layers(network: Any) -> list[Any]:
    """The layers of a network and of all bodies of its control flow."""
    found = []
    for layer in network.layers:
        found.append(layer)
        for body in bodies(layer):
            found += all_layers(body)
    return found


def bodies(layer: Any) -> list[Any]:
    if kind_of(layer) == "branch":
        return [layer.branch.ifBranch, layer.branch.elseBranch]
    if kind_of(layer) == "loop":
        return [layer.loop.conditionNetwork, layer.loop.bodyNetwork]
    return []


@dataclass(frozen=True)
class Regime:
    """How blobs are seen. `lead`: axes in front of [C,H,W] that blobs of an old network carry, 2 (Seq, Batch) or 1; 0: N dimensions."""

    lead: int
    recurrent: bool
    image_lead: int

    @classmethod
    def of(cls, network: Any) -> Regime:
        layers = all_layers(network)
        new = any(layer.DESCRIPTOR.fields_by_name[kind_of(layer)].number >= FIRST_ND for layer in layers if kind_of(layer))
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
    """Lifts the layers of one network. `env` maps blob names to values; a name may be written again (copy)."""

    def __init__(self, model: MLModel, lifting: Lifting, regime: Regime, where: str) -> None:
        self.model, self.lifting, self.regime, self.where = model, lifting, regime, where
        self.lead = regime.lead or 2
        self.refused: set[str] = set()  # names that a refused layer would have written

    @property
    def builder(self) -> Builder:
        return self.lifting.builder

    def layer(self, message: Any, env: Env, path: str) -> None:
        """Lifts one layer (no control flow) and binds its outputs."""
        kind = kind_of(message)
        where = Where(self.model.path, path=path, layer=message.name, kind=kind)
        if any(name not in env for name in message.input):
            missing = next(name for name in message.input if name not in env)
            if missing not in self.refused:
                self.lifting.problems.append(Diagnostic("R105", f"{missing!r} is read before any layer writes it", where=where))
            self.refused.update(message.output)
            return
        results = self._lift(message, kind, [env[name] for name in message.input], where)
        if results is None:
            self.refused.update(message.output)
            for name in message.output:
                env.pop(name, None)
            return
        for name, value in zip(message.output, results, strict=False):
            env[name] = self.named(value, name)

    def _lift(self, message: Any, kind: str, inputs: list[ir.Value | None], where: Where) -> list[ir.Value] | None:
        if not kind:
            self.lifting.problems.append(Diagnostic("X201", "the layer is of a kind that netconv does not know", where=where))
            return None
        attrs, weights = read_params(getattr(message, kind))
        blobs = {k: Stored(self.model, v, f"{message.name}.{k}") for k, v in weights.items()}
        layer = Layer(kind, message.name, attrs, blobs, inputs, [ir.Value(name=n) for n in message.output], where, extra=self)
        if kind not in special.LIFT:
            with self.builder.provenance(format="coreml", layer=message.name, type=kind, where=where.path):
                layer.inputs = [floats(self.builder, v) for v in operands(layer)]
        try:
            results = self.lifting.layer(layer)
        except DAMAGE as e:
            self.lifting.refuse(layer, f"the parameters do not fit together: {type(e).__name__} {e}", "R110")
            return None
        if results is not None and len(results) < len(message.output):
            self.lifting.refuse(layer, f"{len(message.output)} outputs, the layer has {len(results)}", "R105")
            return None
        return results

    def named(self, value: ir.Value, name: str) -> ir.Value:
        """Gives a new value the blob's name."""
        if value.producer() is not None and value.graph is self.builder.graph and "coreml.blob" not in value.meta:
            value.meta["coreml.blob"] = name
            value.name = self.builder.names.fresh(name)
        return value


__all__ = ["CONTROL", "Env", "InferenceError", "MappingError", "NetworkLift", "Regime", "all_layers", "bodies", "kind_of", "mapping"]
