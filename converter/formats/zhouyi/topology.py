"""The graph of a document: the producer of each tensor, and checks that every operand is produced,
that shapes agree, and that there are no cycles.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping

from converter.errors import Diagnostic, Level, Where, closest
from converter.formats.zhouyi.ir import Document, Graph, Layer, Tensor

Producers = dict[str, tuple[Layer, Tensor]]


def check_graphs(document: Document) -> list[Diagnostic]:
    """Report R105 for each fault. Bodies of If and Loop may read tensors of the main graph."""
    found: list[Diagnostic] = []
    outer = _producers(document, found)
    for graph in document.graphs:
        own = outer if graph is document else _producers(graph, found)
        seen: Mapping[str, tuple[Layer, Tensor]] = own if graph is document else {**outer, **own}
        found += _check_header(graph, seen)
        for layer in graph.layers:
            found += _check_inputs(layer, seen)
        found += _check_names(graph)
        found += _check_cycles(graph)
    return found


def _finding(where: Where, message: str, help: str = "", level: Level = "error") -> Diagnostic:
    return Diagnostic("R105", message, level, where, help=help)


def _producers(graph: Graph, found: list[Diagnostic]) -> Producers:
    producers: Producers = {}
    for layer in graph.layers:
        for tensor in layer.outputs:
            if tensor.name in producers:
                first = producers[tensor.name][0].name
                message = f'tensor {tensor.name} is written twice, first by "{first}"'
                found.append(_finding(layer.where("layer_top"), message))
            producers.setdefault(tensor.name, (layer, tensor))
            if tensor.shape and min(tensor.shape) < 0:
                message = (
                    f"the shape {list(tensor.shape)} of {tensor.name} has a negative dimension"
                )
                found.append(_finding(layer.where("layer_top_shape"), message))
    return producers


def _check_header(graph: Graph, producers: Mapping[str, object]) -> Iterator[Diagnostic]:
    for key in ("input_tensors", "output_tensors"):
        listed = graph.header.get(key)
        for name in listed if isinstance(listed, list) else []:
            if name not in producers:
                message = f"{key} names {name}, which no layer writes"
                yield _finding(graph.where(key), message, _near(str(name), producers))
    number, count = graph.header.get("layer_number"), len(graph.layers)
    if number is not None and number != count:
        message = f"layer_number is {number}, but there are {count} layers"
        yield _finding(graph.where("layer_number"), message, level="warning")


def _check_inputs(
    layer: Layer, producers: Mapping[str, tuple[Layer, Tensor]]
) -> Iterator[Diagnostic]:
    for tensor in layer.inputs:
        if tensor.name not in producers:
            message = f"{tensor.name} is read, but no layer writes it"
            yield _finding(layer.where("layer_bottom"), message, _near(tensor.name, producers))
            continue
        source, top = producers[tensor.name]
        pairs = (("shape", tensor.shape, top.shape), ("type", tensor.dtype, top.dtype))
        for what, here, there in pairs:
            if here is not None and there is not None and here != there:
                read = f"{tensor.name} is read with {what} {_text(here)}"
                message = f'{read} but written with {_text(there)} by "{source.name}"'
                yield _finding(layer.where(f"layer_bottom_{what}"), message)


def _text(value: object) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)


def _near(name: str, names: Mapping[str, object]) -> str:
    # comparing with every name of a big graph for every fault would be quadratic
    near = closest(name, names, 0.75) if len(names) <= 2000 else None
    return f"perhaps {near} is meant" if near else ""


def _check_names(graph: Graph) -> Iterator[Diagnostic]:
    """Warn about layer names or ids that occur twice, which the vendor's reader ignores."""
    keys: tuple[tuple[str, Callable[[Layer], object]], ...] = (
        ("layer_name", lambda layer: layer.name),
        ("layer_id", lambda layer: layer.id),
    )
    for key, of in keys:
        first: dict[object, Layer] = {}
        for layer in graph.layers:
            earlier = first.setdefault(of(layer), layer)
            if of(layer) is not None and earlier is not layer:
                line = earlier.where(key).line
                message = f"{key} {of(layer)} occurs twice, first in line {line}"
                yield _finding(layer.where(key), message, level="warning")


def _check_cycles(graph: Graph) -> list[Diagnostic]:
    placed = set(ordered(graph))
    stuck = [x for x in graph.layers if x not in placed]
    if not stuck:
        return []
    names = ", ".join(f'"{x.name}"' for x in stuck[:5])
    names += f" and {len(stuck) - 5} more" if len(stuck) > 5 else ""
    message = f"layers form a cycle: {names}"
    return [_finding(stuck[0].where("layer_bottom"), message)]


def ordered(graph: Graph) -> list[Layer]:
    """Return the layers in topological order, otherwise in the order of the file.

    Layers on or after a cycle are omitted.
    """
    layers = list(enumerate(graph.layers))
    place = {t.name: i for i, layer in reversed(layers) for t in layer.outputs}
    waiting = [{place[t.name] for t in layer.inputs if t.name in place} for layer in graph.layers]
    readers: dict[int, list[int]] = {}
    for i, sources in enumerate(waiting):
        for s in sources:
            readers.setdefault(s, []).append(i)
    ready = [i for i, sources in enumerate(waiting) if not sources]
    result = []
    while ready:
        i = heapq.heappop(ready)
        result.append(graph.layers[i])
        for r in readers.get(i, []):
            waiting[r].discard(i)
            if not waiting[r]:
                heapq.heappush(ready, r)
    return result
