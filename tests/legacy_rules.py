"""Requirements of the inference engine of 2020 for a legacy IR, beyond the format: found by files
made by hand that it refuses or computes wrongly.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
ONE_BY_ONE = ("Activation", "ReLU", "Clamp", "PReLU", "SoftMax", "Tile")
FLOATS_ONLY = ("Abs", "Neg", "Sign", "Floor", "Ceil", "Log", "Erf", "Resample", "ShuffleChannels")
CARRIERS = ("Reshape", "Squeeze", "Unsqueeze", "Tile", "Crop")


@dataclass
class Layer:
    id: str
    name: str
    type: str
    data: dict[str, str]
    ins: list[tuple[int, ...]]
    outs: list[tuple[str, tuple[int, ...]]]
    sources: list[Layer] = field(default_factory=list)
    given: list[str] = field(default_factory=list)  # precision of each input
    read: set[int] = field(default_factory=set)  # indices of the output ports with a consumer


def layers_of(path: Path) -> list[Layer]:
    net = ET.parse(path).getroot()
    layers: dict[str, Layer] = {}
    ports: dict[tuple[str, str], tuple[int, str]] = {}
    for e in net.findall("layers/layer"):
        sides = [e.findall(f"{side}/port") for side in ("input", "output")]
        ins, outs = (
            [tuple(int(d.text or 0) for d in p.findall("dim")) for p in side] for side in sides
        )
        kinds = [p.get("precision", e.get("precision", "FP32")) for p in sides[1]]
        data = e.find("data")
        layers[e.get("id", "")] = Layer(
            e.get("id", ""),
            e.get("name", ""),
            e.get("type", ""),
            dict(data.attrib) if data is not None else {},
            ins,
            list(zip(kinds, outs, strict=True)),
        )
        ports.update(
            {(e.get("id", ""), p.get("id", "")): (i, kinds[i]) for i, p in enumerate(sides[1])}
        )
    for e in sorted(net.findall("edges/edge"), key=lambda e: int(e.get("to-port", "0"))):
        source, target = layers[e.get("from-layer", "")], layers[e.get("to-layer", "")]
        place, kind = ports[source.id, e.get("from-port", "")]
        source.read.add(place)
        target.sources.append(source)
        target.given.append(kind)
    return list(layers.values())


def types_of(path: Path) -> Counter[str]:
    """The number of layers of each type, without constants."""
    return Counter(layer.type.lower() for layer in layers_of(path) if layer.type != "Const")


def troubles(path: Path) -> list[str]:
    """Every rule of the engine that a file breaks."""
    layers = layers_of(path)
    found = [
        f"{layer.name} ({layer.type}): {text}"
        for layer in layers
        for text in (*_ranks(layer), *_types(layer))
    ]
    names = Counter(
        f"{layer.name}.{i}" if len(layer.outs) > 1 else layer.name
        for layer in layers
        for i in range(len(layer.outs))
    )
    found += [f"two layers write {name}" for name, count in names.items() if count > 1]
    return found + _whole(layers)


def _ranks(layer: Layer) -> list[str]:
    rank = max((len(s) for s in (*layer.ins, *(o for _, o in layer.outs))), default=0)
    spread = layer.type == "Eltwise" and any(s != layer.outs[0][1] for s in layer.ins)
    limits = [
        (layer.type == "Crop" and rank not in (2, 4, 5), "knows 2, 4 and 5 axes"),
        (layer.type == "Permute" and rank < 2, "leaves one axis unwritten"),
        (layer.type == "Select" and not 1 <= rank <= 4, "knows 4 axes"),
        (layer.type.upper() == "GEMM" and rank > 4, "knows 4 axes"),
        ((layer.type in ONE_BY_ONE or spread) and rank > 5, "knows 5 axes"),
    ]
    return [text for broken, text in limits if broken]


def _types(layer: Layer) -> list[str]:
    outs = {kind for kind, _ in layer.outs}
    given = set(layer.given)
    behind = layer.sources[0].type if layer.sources else ""
    rules = [
        (
            layer.type not in ("Input", "Memory") and not outs <= {"FP32", "I32", "FP16"},
            f"writes {outs}",
        ),
        (
            layer.type == "Eltwise"
            and layer.data.get("operation") in COMPARISONS
            and given != outs,
            f"compares {given} and answers in {outs}",
        ),
        (
            layer.type == "Eltwise"
            and layer.data.get("operation") == "floor_mod"
            and given != {"I32"},
            "knows integers only",
        ),
        (layer.type == "Select" and layer.given[:1] != ["I32"], "asks an integer"),
        (layer.type == "OneHot" and outs != {"FP32"}, "writes floats"),
        (
            layer.type in (*FLOATS_ONLY, "TopK", "GEMM") and layer.given[:1] != ["FP32"],
            "takes floats",
        ),
        (layer.type == "SparseToDense" and layer.given[2:3] != ["I32"], "takes integers"),
        (
            layer.type == "Permute" and behind in CARRIERS and outs == {"I32"},
            f"integers behind {behind}",
        ),
    ]
    return [text for broken, text in rules if broken]


def _whole(layers: list[Layer]) -> list[str]:
    """One network, from the inputs to the outputs."""
    inputs = [layer for layer in layers if layer.type == "Input"]
    found = [] if inputs else ["there is no input"]
    found += [
        f"the input {layer.name} is not read"
        for layer in layers
        if layer.type in ("Input", "Memory") and layer.outs and not layer.read
    ]
    part: dict[str, str] = {
        layer.id: layer.id for layer in layers if layer.type in ("Input", "Memory") and layer.outs
    }

    def top(id: str) -> str:
        while part[id] != id:
            id = part[id]
        return id

    for layer in layers:
        moving = [s.id for s in layer.sources if s.id in part]
        if moving:
            part[layer.id] = top(moving[0])
            for other in moving[1:]:
                part[top(other)] = top(layer.id)
        elif layer.outs and not layer.read and layer.type not in ("Input", "Memory"):
            found.append(f"the output {layer.name} depends on no input")
    parts = {top(id) for id in part}
    return found + ([f"{len(parts)} networks in one file"] if len(parts) > 1 else [])
