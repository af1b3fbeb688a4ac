"""A Core ML model -> a Network: networks, classifiers, regressors, and pipelines of them as one
graph.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, Where, unreadable
from converter.formats.coreml.features import metadata_of, remember
from converter.formats.coreml.neuralnetwork.boundary import (
    graph_input,
    input_value,
    output_value,
    preprocess,
)
from converter.formats.coreml.neuralnetwork.lift_bodies import Flow
from converter.formats.coreml.neuralnetwork.mapping import MAPPING
from converter.formats.coreml.neuralnetwork.model import NETWORKS, PIPELINES, MLModel
from converter.formats.coreml.neuralnetwork.network import (
    STATEFUL,
    Env,
    NetworkLift,
    RankPolicy,
    all_layers,
    kind_of,
)
from converter.formats.coreml.neuralnetwork.operands import floats, ints
from converter.graph.build import Builder, new_model
from converter.graph.names import public_name, set_public_name
from converter.graph.network import Network
from converter.mapping.lifting import Lifting, refuse
from converter.passes.constants import holds_numbers
from converter.passes.dead_code import remove_dead_code
from converter.passes.fold import fold

SCALARS = {"doubleType": ir.DataType.DOUBLE, "int64Type": ir.DataType.INT64}


def lift(source: MLModel) -> Network:
    """Return the model as one graph; raise UnsupportedError with every layer that is not
    supported.
    """
    model, b = new_model("main")
    reading = ModelReading(source, b)
    env = reading.inputs(source.proto)
    reading.member(source.proto, source.kind, env)
    reading.outputs(source.proto, env)
    refuse(reading.lifting.problems)
    remove_dead_code(model)
    fold(model, limit=4096, keep=holds_numbers)
    remember(model, reading.interface)
    return Network(model, "coreml", reading.notes, reading.interface)


class ModelReading:
    """The state of reading a model and its members."""

    def __init__(self, source: MLModel, b: Builder) -> None:
        self.source, self.b = source, b
        self.lifting = Lifting(MAPPING, b, "coreml")
        self.notes: list[Diagnostic] = []
        self.interface: dict[str, Any] = {"coreml": {}}
        self.regimes: dict[str, RankPolicy] = {}

    def where(self, path: str = "", name: str = "") -> Where:
        """Return a location inside the file."""
        return Where(self.source.path, path=path, layer=name)

    def inputs(self, proto: Any) -> Env:
        """Return the blobs of the model's inputs by feature name."""
        env: Env = {}
        regime = self._regime_of_inputs(proto)
        for index, feature in enumerate(proto.description.input):
            place, kind = f"description.input[{index}]", feature.type.WhichOneof("Type")
            with self.lifting.noting(self.where(place, feature.name)):
                if kind in SCALARS:
                    number = graph_input(self.b, feature.name, SCALARS[kind], [1])
                    env[feature.name] = floats(self.b, number)
                else:
                    env[feature.name] = input_value(self.b, feature, regime, self.interface)[1]
        self.interface["coreml"]["metadata"] = metadata_of(proto.description)
        return env

    def _regime_of_inputs(self, proto: Any) -> RankPolicy:
        while (members := _members(proto)) is not None:
            if not members:
                raise unreadable("R103", "a pipeline has no models", self.where())
            proto = members[0]
        kind = proto.WhichOneof("Type")
        return RankPolicy.of(getattr(proto, kind)) if kind in NETWORKS else RankPolicy(0, False, 1)

    def member(self, proto: Any, kind: str, env: Env, path: str = "") -> None:
        """Lift one model; its output features are added to `env`."""
        if (members := _members(proto)) is not None:
            for i, inner in enumerate(members):
                place = f"{path}{kind}.models[{i}]."
                self.member(inner, inner.WhichOneof("Type") or "", env, place)
        elif kind in NETWORKS:
            self._network(proto, kind, env, f"{path}{kind}")
        elif kind == "nonMaximumSuppression":
            from converter.formats.coreml.suppression import lift_suppression_model

            lift_suppression_model(self.b, proto.nonMaximumSuppression, env)
        else:
            raise unreadable(
                "R106",
                f"a pipeline contains a model of kind {kind or '(none)'}, which is not supported",
                self.where(path.rstrip(".")),
            )

    def _network(self, proto: Any, kind: str, env: Env, path: str) -> None:
        network = getattr(proto, kind)
        regime = RankPolicy.of(network)
        if network.HasField("updateParams") or proto.isUpdatable:
            text = "parameters for on-device training are dropped"
            where = self.where(f"{path}.updateParams")
            self.notes.append(Diagnostic("X207", text, level="warning", where=where))
        net = NetworkLift(self.source, self.lifting, regime)
        blobs = {f.name: env[f.name] for f in proto.description.input if f.name in env}
        net.refused.update(f.name for f in proto.description.input if f.name not in env)
        self._preprocess(network, proto, blobs, path)
        wanted = {f.name for f in proto.description.output}
        if kind == "neuralNetworkClassifier":
            wanted.add(self._score_name(network))
        Flow(net).run(list(network.layers), blobs, path, wanted)
        self._optional_states(proto, network)
        refuse(self.lifting.problems)
        if kind == "neuralNetworkClassifier":
            self._classify(proto, network, blobs, path)
        for index, feature in enumerate(proto.description.output):
            if feature.name not in blobs:
                raise unreadable(
                    "R105",
                    f"no layer writes the output {feature.name!r}",
                    self.where(f"description.output[{index}]"),
                )
            env[feature.name] = blobs[feature.name]
            self.regimes[feature.name] = regime

    def _optional_states(self, proto: Any, network: Any) -> None:
        """Return the optional states of recurrent layers, which are zeros by default."""
        values = {public_name(v): v for v in self.b.graph.inputs}
        for feature in proto.description.input:
            name, given = feature.name, self.interface.get("defaults", {})
            if not feature.type.isOptional or name in given or name not in values:
                continue
            readers = [layer for layer in all_layers(network) if name in layer.input]
            if readers and all(
                kind_of(layer) in STATEFUL and layer.input[0] != name for layer in readers
            ):
                value = values[name]
                sizes = [d if isinstance(d, int) else 1 for d in value.shape or ()]
                zeros = np.zeros(sizes, (value.dtype or ir.DataType.FLOAT).numpy())
                self.interface.setdefault("defaults", {})[name] = zeros

    def _preprocess(self, network: Any, proto: Any, blobs: Env, path: str) -> None:
        for i, entry in enumerate(network.preprocessing):
            name = entry.featureName or (
                proto.description.input[0].name if proto.description.input else ""
            )
            if name not in blobs:
                continue
            color = self.interface.get("images", {}).get(name, {}).get("colour", "RGB")
            source = {"type": "preprocessing", "where": f"{path}.preprocessing[{i}]"}
            noting = self.lifting.noting(self.where(source["where"], name))
            with noting, self.b.provenance(format="coreml", **source):
                blobs[name] = preprocess(self.b, entry, blobs[name], color)

    def _score_name(self, network: Any) -> str:
        return network.labelProbabilityLayerName or (
            network.layers[-1].output[0] if network.layers and network.layers[-1].output else ""
        )

    def _classify(self, proto: Any, network: Any, blobs: Env, path: str) -> None:
        """Return the best label from a table, and the scores as a vector in the order of the
        labels.
        """
        b, description = self.b, proto.description
        name = self._score_name(network)
        if name not in blobs:
            raise unreadable(
                "R105",
                f"no layer writes the scores {name!r}",
                self.where(f"{path}.labelProbabilityLayerName"),
            )
        labels = labels_of(network)
        scores = b.Reshape(floats(b, blobs[name]), [-1])
        if labels:
            table = (
                b.const(ir.StringTensor(np.array([s.encode() for s in labels], object)))
                if isinstance(labels[0], str)
                else b.const(labels)
            )
            best: ir.Value = b.Gather(table, b.ArgMax(scores, axis=0, keepdims=1), axis=0)
        else:
            best = ints(b, b.ArgMax(scores, axis=0, keepdims=1))
        blobs[description.predictedFeatureName or "classLabel"] = best
        if description.predictedProbabilitiesName:
            blobs[description.predictedProbabilitiesName] = scores
        self.interface["coreml"]["classifier"] = {
            "labels": labels, "label": description.predictedFeatureName,
            "probabilities": description.predictedProbabilitiesName,
        }  # fmt: skip

    def outputs(self, proto: Any, env: Env) -> None:
        """Add the outputs of the description to the graph. Raises ReadError R105 for one without a
        producer.
        """
        for index, feature in enumerate(proto.description.output):
            if feature.name not in env:
                raise unreadable(
                    "R105",
                    f"nothing writes the output {feature.name!r}",
                    self.where(f"description.output[{index}]"),
                )
            kind, value = feature.type.WhichOneof("Type"), env[feature.name]
            if kind in ("multiArrayType", "imageType"):
                value = output_value(
                    self.b,
                    feature,
                    value,
                    self.regimes.get(feature.name, RankPolicy(0, False, 1)),
                    self.interface,
                )
            self.b.output(value)
            set_public_name(self.b.graph.outputs[-1], feature.name)


def _members(proto: Any) -> Any:
    """Return the models of a pipeline; None for any other model."""
    kind = proto.WhichOneof("Type")
    if kind not in PIPELINES:
        return None
    holder = getattr(proto, kind)
    return holder.models if kind == "pipeline" else holder.pipeline.models


def labels_of(network: Any) -> list[Any]:
    """Return the labels of a classifier, texts or integers; none for other networks."""
    chosen = network.WhichOneof("ClassLabels")
    return list(getattr(network, chosen).vector) if chosen else []
