"""Extension operators and control flow -> layers."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from converter.formats.coreml.lowering import CoreLowering, shape_list, x_of
from converter.formats.coreml.special.lower_arithmetic import core, scalar
from converter.formats.coreml.special.registry import lowers
from converter.graph.infer import shape_of
from converter.mapping.drive import Lowering
from converter.mapping.node import MappingError, Node
from converter.notes import note

Value = ir.Value
_PARAMETER = {"doubleValue": float, "stringValue": str, "intValue": int, "longValue": int, "boolValue": bool}
_RANDOM = {"RandomNormal": {"mean": "mean", "scale": "stdDev"}, "RandomUniform": {"low": "minVal", "high": "maxVal"}, "RandomBernoulli": {"prob": "prob"}}
_DEFAULT = {"mean": 0.0, "scale": 1.0, "low": 0.0, "high": 1.0, "prob": 0.5}


def _random(near: Node, low: Lowering, op: str, shape: Value | None, seed: int) -> None:
    attrs: dict[str, Any] = {far: float(near.attrs.get(n, _DEFAULT[n])) for n, far in _RANDOM[op].items()} | {"seed": seed}
    kind, size = op[0].lower() + op[1:], shape_of(near.outputs[0])
    if size is not None:
        low.add(f"{kind}Static", [], near.outputs, {**attrs, "outputShape": list(size) or [1]})
    elif shape is not None:
        low.add(f"{kind}Dynamic", [shape], near.outputs, attrs)
    else:
        low.add(f"{kind}Like", [x_of(near)], near.outputs, attrs)


@lowers("RandomNormal RandomUniform RandomBernoulli", domain="netconv")
def lower_random(near: Node, low: Lowering) -> None:
    _random(near, low, near.op, x_of(near), int(near.attrs.get("seed", -1)))


@lowers("RandomNormal RandomUniform RandomNormalLike RandomUniformLike")
def lower_standard_random(near: Node, low: Lowering) -> None:
    seed = near.attrs.get("seed")
    _random(near, low, near.op.removesuffix("Like"), None, int(seed) if seed is not None else -1)


@lowers("RandomCategorical", domain="netconv")
def lower_categorical(near: Node, low: Lowering) -> None:
    a = near.attrs
    attrs: dict[str, Any] = {"seed": int(a.get("seed", -1)), "numSamples": int(a.get("samples", 1)), "isLogits": bool(a.get("logits", 1))}
    attrs |= {"eps": float(a.get("eps", 1e-10)), "temperature": float(a.get("temperature", 1.0))}
    low.add("categoricalDistribution", [x_of(near)], near.outputs, attrs)


@lowers("CustomLayer", domain="netconv")
def lower_custom(near: Node, low: Lowering) -> None:
    count = int(near.attrs.get("weights", 0))
    split = len(near.inputs) - count
    blobs = {f"weights[{i}]": core(low).weights(v) for i, v in enumerate(near.inputs[split:])}
    parameters = note(near.attrs.get("parameters", "{}"), {str: _PARAMETER})
    if parameters is None or any(len(v) != 1 or not v.keys() <= _PARAMETER.keys() for v in parameters.values()):
        raise MappingError("the parameters are no JSON object of texts, numbers and truth values as Core ML names them", "R110")
    attrs = {"className": near.attrs["class_name"], "description": near.attrs.get("description", ""), "parameters": parameters}
    low.add("custom", near.inputs[:split], near.outputs, attrs, blobs)


@lowers("CropResize", domain="netconv")
def lower_crop_resize(near: Node, low: Lowering) -> None:
    a = near.attrs
    attrs = {
        "targetSize": [int(s) for s in a["size"]],
        "normalizedCoordinates": bool(a.get("normalized", 0)),
        "mode": {"samplingMethod": f"{a.get('sampling', 'strict_align_endpoints').upper()}_MODE"},
        "boxIndicesMode": {"boxMode": a.get("coordinates", "corners_height_first").upper()},
        "spatialScale": float(a.get("spatial_scale", 1.0)),
    }
    low.add("cropResize", [x_of(near), x_of(near, 1)], near.outputs, attrs)


@lowers("SuppressBoxes", domain="netconv")
def lower_suppress(near: Node, low: Lowering) -> None:
    settings = [scalar(near.input(i)) for i in (2, 3, 4)]
    names = ("iouThreshold", "scoreThreshold", "maxBoxes")
    attrs: dict[str, Any] = {"perClassSuppression": bool(near.attrs.get("per_class", 0))}
    attrs |= {n: (int(v) if n == "maxBoxes" else v) for n, v in zip(names, settings, strict=True) if v is not None}
    given = [near.input(i) for i in range(5)]
    while len(given) > 2 and settings[len(given) - 3] is not None:
        given.pop()
    low.add("NonMaximumSuppression", given, near.outputs, attrs)


# -- control flow -------------------------------------------------------------------------------------------------------


def inside(low: CoreLowering, graph: ir.Graph) -> CoreLowering:
    """The layers of a body, collected apart."""
    inner = CoreLowering(low.mapping, low.version, low.half)
    inner.aliases = low.aliases
    for node in graph:
        inner.node(node)
    low.problems += inner.problems
    return inner


@lowers("If")
def lower_if(near: Node, low: Lowering) -> None:
    """Both branches write the results under the same names."""
    bodies = {}
    for far, key in (("ifBranch", "then_branch"), ("elseBranch", "else_branch")):
        graph = near.attrs[key]
        inner = inside(core(low), graph)
        for out, value in zip(near.outputs, graph.outputs, strict=True):
            inner.add("copy", [value], [out])
        bodies[far] = inner.layers
    low.add("branch", [x_of(near)], [], extra=bodies)


@lowers("Loop")
def lower_loop(near: Node, low: Lowering) -> None:
    """Values that are carried become variables: copied before, read in the body, assigned at its end (all at once)."""
    c, body = core(low), near.attrs["body"]
    carried = len(near.inputs) - 2
    trips, cond = near.input(0), near.input(1)
    inner = CoreLowering(c.mapping, c.version, c.half)
    inner.aliases = c.aliases
    finals: list[tuple[Value, Value]] = []
    for i in range(carried):
        formal, start = body.inputs[2 + i], near.inputs[2 + i]
        low.add("copy", [start], [formal])
        finals.append((formal, body.outputs[1 + i]))
        c.alias(near.outputs[i], formal)
    counter = body.inputs[0]
    scans = list(zip(near.outputs[carried:], body.outputs[1 + carried :], strict=True))
    counted = bool(counter.uses()) or bool(scans)
    if counted:
        low.add("copy", [c.const([0.0])], [counter])
    for node in body:
        inner.node(node)
    for out, value in scans:
        _scan(c, inner, near, out, value, counter)
    attrs = _condition(c, inner, near, body, cond)
    _assign(inner, finals)
    if counted:
        inner.add("copy", [inner.one("add", [counter], [1], {"alpha": 1.0})], [counter])
    _close(c, inner, trips, attrs)


def _assign(inner: CoreLowering, finals: list[tuple[Value, Value]]) -> None:
    temporaries = [(formal, inner.one("copy", [value], shape_list(value))) for formal, value in finals]
    for formal, value in temporaries:
        inner.add("copy", [value], [formal])


def unconditional(body: Any) -> bool:
    """Whether the body hands on its condition as it is, or always says yes."""
    source = body.outputs[0]
    while source.producer() is not None and source.producer().op_type == "Identity":
        source = source.producer().inputs[0]
    return source is body.inputs[1] or scalar(source) == 1.0


def _condition(low: CoreLowering, inner: CoreLowering, near: Node, body: Any, cond: Value | None) -> dict[str, Any]:
    """The condition as a variable that a network of one copy reads; nothing when it is always true."""
    end, keep = body.outputs[0], body.inputs[1]
    forever, start = unconditional(body), None if cond is None or scalar(cond) == 1.0 else cond
    if forever and start is None:
        if keep.uses():
            low.add("copy", [low.const([1.0])], [keep])
        return {}
    low.add("copy", [low.const([1.0]) if start is None else start], [keep])
    if not forever:
        inner.add("copy", [end], [keep])
    tested = low.value("condition", ir.DataType.FLOAT, [1])
    network = CoreLowering(low.mapping, low.version, low.half)
    network.add("copy", [keep], [tested])
    return {"conditionVar": tested, "conditionNetwork": network.layers}


def _scan(low: CoreLowering, inner: CoreLowering, near: Node, out: Value, value: Value, counter: Value) -> None:
    """A collected output: a tensor of the full size, into which each trip writes its part."""
    shape, part_shape = shape_of(out), shape_of(value)
    trips = scalar(near.input(0))
    if shape is None and part_shape is not None and trips is not None and _always(near):
        shape = (int(trips), *part_shape)
    if shape is None or not shape or 0 in shape:
        raise MappingError("outputs that a loop collects need a number of trips known beforehand")
    low.add("fillStatic", [], [out], {"value": 0.0, "targetShape": list(shape)})
    part = inner.one("reshapeStatic", [value], [1, *shape[1:]], {"targetShape": [1, *shape[1:]]})
    written = inner.one("scatter", [out, counter, part], list(shape), {"axis": 0, "mode": "SCATTER_UPDATE"})
    inner.add("copy", [written], [out])


def _always(near: Node) -> bool:
    """Whether the loop makes all its trips."""
    start = near.input(1)
    return (start is None or scalar(start) == 1.0) and unconditional(near.attrs["body"])


def _close(low: CoreLowering, inner: CoreLowering, trips: Value | None, attrs: dict[str, Any]) -> None:
    low.problems += inner.problems
    most = scalar(trips) if trips is not None else None
    extra: dict[str, Any] = {"bodyNetwork": inner.layers, **{k: v for k, v in attrs.items() if k == "conditionNetwork"}}
    layer_attrs: dict[str, Any] = {k: v for k, v in attrs.items() if k == "conditionVar"}
    if trips is None and not attrs:
        raise MappingError("a loop without an end")
    if trips is not None and most is None:
        low.add("loop", [trips], [], layer_attrs, extra=extra)
    else:
        if most is not None and not (attrs and most >= 1 << 53):
            layer_attrs["maxLoopIterations"] = int(max(0.0, most))
        low.add("loop", [], [], layer_attrs, extra=extra)
