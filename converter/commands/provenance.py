"""OUT.map.json: the tensors and layers of the input that those of the output come from."""

from __future__ import annotations

import json
from pathlib import Path

import onnx_ir as ir

from converter.commands.verify.align import align
from converter.errors import wrong_call
from converter.graph.names import public_name
from converter.graph.network import Network
from converter.io.strict_json import Json, has_form, read


def provenance_map(source: Network, target: Network) -> Json:
    """Return tensors by name, layers with their types and locations; `target` is the written file,
    read again.
    """
    found = align(source, target)
    values = {str(o.name): o for n in target.ir.graph for o in n.outputs}
    layers = []
    for node in source.ir.graph:
        pairs = [found.pairs[str(o.name)] for o in node.outputs if str(o.name) in found.pairs]
        other = values[pairs[0]].producer() if pairs and pairs[0] in values else None
        layers.append(
            {
                "source": _layer(node),
                "node": {"operator": node.op_type, "domain": node.domain},
                "target": _layer(other) if other else None,
            }
        )
    boundary = {_public(source, r): _public(target, c) for r, c in [*found.inputs, *found.outputs]}
    return {
        "schema": "netconv/map/1",
        "source": {"format": source.format},
        "target": {"format": target.format},
        "tensors": {**boundary, **found.pairs},
        "layers": layers,
        "unaligned": {"source": found.only_reference, "target": found.only_candidate},
    }


def _layer(node: ir.Node) -> dict[str, str]:
    props = node.metadata_props
    return {
        "layer": props.get("netconv.layer", node.name or ""),
        "type": props.get("netconv.type", node.op_type),
        "where": props.get("netconv.where", ""),
        "tensor": str(node.outputs[0].name) if node.outputs else "",
    }


def _public(model: Network, name: str) -> str:
    return next(
        (
            public_name(v)
            for v in [*model.ir.graph.inputs, *model.ir.graph.outputs]
            if str(v.name) == name
        ),
        name,
    )


def text_of(data: Json) -> str:
    """Return data as the text of a JSON file."""
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def read_map(path: Path) -> dict[str, str]:
    """Return the tensors of a map: names of the source -> names of the target."""
    data = read(path, "a map")
    if not has_form(data, {"tensors": {str: str}}) or "tensors" not in data:
        raise wrong_call('a map must have an object "tensors" of names', where=path)
    tensors: dict[str, str] = data["tensors"]
    return tensors
