"""The content of a model, as plain data, as a table, as text and as a drawing."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from converter.commands.costs import costs, describe, headline, shape
from converter.errors import ConverterError, counted
from converter.graph.walk import all_graphs, all_nodes
from converter.io.files import size_text
from converter.io.strict_json import Json
from converter.passes.stored_halves import LEAST, NOTE, stored_bytes, stored_half

if TYPE_CHECKING:
    from converter.graph.network import Network, TensorInfo


def summary(model: Network) -> Json:
    """Return format, inputs and outputs, operators with counts, weights in elements and in bytes as
    the file stores them, and warnings of reading.
    """
    tensors = [
        v.const_value
        for g in all_graphs(model.ir.graph)
        for v in g.initializers.values()
        if v.const_value is not None
    ]
    half = stored_half(model.ir)
    nodes = list(all_nodes(model.ir.graph))
    operators = Counter(_operator(n) for n in nodes)
    layers = Counter(
        n.metadata_props["netconv.type"]
        for n in {n.metadata_props["netconv.layer"]: n for n in nodes if _from_layer(n)}.values()
    )
    return {
        "format": model.format,
        "inputs": [_tensor(i) for i in model.inputs],
        "outputs": [_tensor(o) for o in model.outputs],
        "layers": dict(sorted(layers.items())),
        "nodes": len(nodes),
        "operators": dict(sorted(operators.items())),
        "weights": {
            "tensors": len(tensors),
            "elements": int(sum(t.size for t in tensors)),
            "bytes": int(sum(stored_bytes(t, half) for t in tensors)),
            "types": dict(sorted(Counter(str(t.dtype).lower() for t in tensors).items())),
        },
        "notes": [d.as_json() for d in model.notes],
    }


def full(model: Network) -> Json:
    """Return the summary with the metadata of the file, and the costs of the network and each of
    its layers.
    """
    return {**summary(model), "about": about(model), "costs": asdict(costs(model.ir))}


def about(model: Network) -> dict[str, Any]:
    """Return the metadata of a model: version, producer, author, images, labels, states, dynamic
    dimensions.
    """
    from converter import formats
    from converter.commands.labels import labels_of

    found: dict[str, Any] = {}
    if model.source is not None and model.format in formats.FORMATS:
        # a file that is gone, or has changed, since it was read, says nothing
        with contextlib.suppress(OSError, ConverterError):
            found |= formats.get(model.format).about(model.source)
    own = model.interface.get("coreml", {})
    images = {**model.interface.get("images", {}), **own.get("pictures", {})}
    found["images"] = {name: _image(said) for name, said in images.items()}
    found["labels"] = own.get("classifier", {}).get("labels") or next(iter(labels_of(model)), [])
    found["states"] = [*model.variables]
    found["dynamic"] = _dynamic(model)
    return {k: v for k, v in found.items() if v}


def _image(said: Any) -> str:
    """Return color order, size, scale and bias of an image."""
    if not isinstance(said, Mapping):
        return str(said)
    parts = [str(said.get("colour", ""))]
    if size := said.get("size"):
        parts.append("x".join(map(str, size)))
    parts += [f"{k} {said[k]}" for k in ("scale", "bias") if k in said]
    return " ".join(p for p in parts if p)


def _dynamic(model: Network) -> dict[str, list[str]]:
    """Return the names of dynamic dimensions of inputs, with the axes that have them."""
    found: dict[str, list[str]] = {}
    for i in model.inputs:
        for axis, d in enumerate(i.shape or ()):
            if not isinstance(d, int):
                found.setdefault(d or "?", []).append(f"{i.name} axis {axis}")
    return found


_NAMES = {"FLOAT": "float32", "DOUBLE": "float64", "f16": "float16", "bf16": "bfloat16"}


def precision(model: Network) -> str:
    """Return the types of weights in the file, without those of small constants; the largest share
    first.
    """
    if noted := model.ir.metadata_props.get(NOTE):
        return _NAMES.get(noted, noted)
    sizes: Counter[str] = Counter()
    for graph in all_graphs(model.ir.graph):
        for v in graph.initializers.values():
            if v.const_value is not None and v.const_value.size >= LEAST:
                name = v.const_value.dtype.name
                sizes[_NAMES.get(name, name.lower())] += v.const_value.nbytes
    return ", ".join(name for name, _ in sizes.most_common())


_TEXTS = ("producer", "author", "license", "version", "precision", "domain", "functions")
_LONGEST = 200  # characters of a text that is shown
_LABELS = 5  # that are shown


def facts(said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the facts of `about` as titles and texts."""
    yield from ((name, _short(said[name])) for name in _TEXTS if name in said)
    yield from (("image", f"{n}: {text}") for n, text in said.get("images", {}).items())
    if labels := said.get("labels"):
        more = ", ..." if len(labels) > _LABELS else ""
        yield "labels", f"{len(labels)}: {_short(', '.join(map(str, labels[:_LABELS])))}{more}"
    if "states" in said:
        yield "states", ", ".join(said["states"])
    yield from (("dynamic", f"{n}: {', '.join(a)}") for n, a in said.get("dynamic", {}).items())
    if "description" in said:
        yield "about", _short(said["description"])


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def _from_layer(node: ir.Node) -> bool:
    return bool(node.metadata_props.get("netconv.layer")) and "netconv.type" in node.metadata_props


def _operator(node: ir.Node) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def _tensor(info: TensorInfo) -> Json:
    kind = "string" if info.dtype == np.dtype(object) else str(info.dtype)
    return {
        "name": info.name,
        "type": kind,
        "shape": None if info.shape is None else list(info.shape),
    }


def table(model: Network, name: str) -> Iterator[str]:
    """Yield the summary as lines."""
    s = summary(model)
    weights = s["weights"]
    count = (
        f"{counted(sum(s['layers'].values()), 'layer')}, {counted(s['nodes'], 'node')}"
        if s["layers"]
        else counted(s["nodes"], "node")
    )
    said = about(model)
    of = f"{model.format} ({said['format']})" if "format" in said else model.format
    stored = precision(model)
    yield (
        f"{name}  {of}, {count}, {weights['elements']:,} weights in "
        f"{size_text(weights['bytes'])}{f' ({stored})' if stored else ''}"
    )
    yield from (f"  {title:9} {text}" for title, text in facts(said))
    yield f"  costs   {headline(costs(model.ir))}"
    for side in ("inputs", "outputs"):
        for t in s[side]:
            yield f"  {side[:-1]:7} {t['name']}  {t['type']}{shape(t['shape'])}"
    for kind in ("layers", "operators"):
        if s[kind]:
            yield f"  {kind}"
            yield from _columns(s[kind])


def _columns(counts: dict[str, int]) -> Iterator[str]:
    items = sorted(counts.items(), key=lambda i: (-i[1], i[0]))
    width = max(len(k) for k, _ in items)
    for i in range(0, len(items), 3):
        yield "   " + "".join(f" {n:5} {k:{width}}" for k, n in items[i : i + 3]).rstrip()


def nodes(model: Network) -> Iterator[str]:
    """Yield one line for each node: layer, operator, results with types and shapes, location in the
    file.
    """
    for i, node in enumerate(all_nodes(model.ir.graph)):
        results = ", ".join(f"{o.name} {describe(o)}" for o in node.outputs if o.name)
        layer, where = (
            node.metadata_props.get("netconv.layer", ""),
            node.metadata_props.get("netconv.where", ""),
        )
        yield (
            f"{i:5}  {_operator(node):24} {results}"
            + (f'  layer "{layer}"' if layer else "")
            + (f"  {where}" if where else "")
        )


def text(model: Network) -> str:
    """Return the shared graph in ONNX's own textual syntax, large weights by reference."""
    from converter.graph.text import print_text

    return print_text(model.ir).rstrip()


def dot(model: Network) -> Iterator[str]:
    """Yield the graph in Graphviz's language."""
    yield "digraph {"
    yield '  node [shape=box, fontname="sans-serif"];'
    for value in model.ir.graph.inputs:
        yield (
            f"  {_quote(str(value.name))} [shape=ellipse, "
            f"label={_label(str(value.name), describe(value))}];"
        )
    for i, node in enumerate(model.ir.graph):
        layer = node.metadata_props.get("netconv.layer", "")
        yield f"  n{i} [label={_label(node.op_type, layer)}];"
    owner = {o: f"n{i}" for i, n in enumerate(model.ir.graph) for o in n.outputs}
    owner.update((v, _quote(str(v.name))) for v in model.ir.graph.inputs)
    for i, node in enumerate(model.ir.graph):
        for v in node.inputs:
            if v in owner:
                yield f"  {owner[v]} -> n{i} [label={_quote(describe(v))}];"
    for i, value in enumerate(model.ir.graph.outputs):
        yield f"  out{i} [shape=ellipse, label={_label(str(value.name), describe(value))}];"
        if value in owner:
            yield f"  {owner[value]} -> out{i};"
    yield "}"


def _label(*lines: str) -> str:
    return _quote("\n".join(line for line in lines if line))


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
