"""The boundary of a written program: names, types of the interface, and the casts behind them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from converter.errors import Diagnostic, Where
from converter.formats.mlprogram.names import NAMES, SCALARS
from converter.formats.mlprogram.program import ProgramWriter
from converter.graph.names import public_name
from converter.graph.network import Network
from converter.mapping.node import Layer

D = ir.DataType
ARRAYS = {D.FLOAT: 65568, D.INT32: 131104, D.FLOAT16: 65552}
WORDS = {D.FLOAT: "fp32", D.INT32: "int32", D.FLOAT16: "fp16", D.BOOL: "bool"}
HALF_INTERFACE = 7  # the specification version from which on arrays of fp16 go in and out


@dataclass
class Boundary:
    """Inputs by name, type and value, and the operations behind them and in front of outputs."""

    inputs: list[tuple[str, ir.DataType, ir.Value]] = field(default_factory=list)
    before: list[Layer] = field(default_factory=list)
    behind: list[Layer] = field(default_factory=list)
    outputs: list[ir.Value] = field(default_factory=list)


def describe(
    network: Network,
    graph: ir.Graph,
    writer: ProgramWriter,
    description: Any,
    notes: list[Diagnostic],
) -> Boundary:
    """Fills in the description; values of the graph get the names of the program."""
    boundary, renamed = Boundary(), {}
    scalars = []
    for value in graph.inputs:
        name = writer.names.fresh(public_name(value))
        renamed[name] = public_name(value)
        own = writer.low.carried(value)
        dtype = interface_type(value, own, writer.low.version, notes)
        steps: list[tuple[str, dict[str, Any]]] = []
        if value.shape is not None and not len(value.shape):  # inputs have an axis
            steps.append(("squeeze", {}))
            scalars.append(name)
        if dtype != own:
            steps.append(("cast", {"dtype": WORDS[own]}))
        outer = value
        if steps:
            shape = list(value.shape or ()) or [1]
            outer = ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))
        writer.named[outer] = name
        boundary.before += _chain(name, outer, value, steps)
        boundary.inputs.append((name, dtype, outer))
        feature = description.input.add(name=name)
        _declare(feature, value, dtype, [1])
    made = {out for layer in writer.low.layers for out in layer.outputs}
    for value in graph.outputs:
        name = writer.names.fresh(public_name(value))
        renamed[name] = public_name(value)
        own = writer.low.carried(value)
        dtype = interface_type(value, own, writer.low.version, notes)
        if dtype == own and value in made and value not in writer.named:
            writer.named[value] = name
            boundary.outputs.append(value)
        else:
            outer = ir.Value(name=name, type=ir.TensorType(dtype), shape=value.shape)
            writer.named[outer] = name
            given = {"x": value} if dtype == own else {"x": value, "dtype": WORDS[dtype]}
            kind = "identity" if dtype == own else "cast"
            boundary.behind.append(Layer(kind, name, given, outputs=[outer]))
            boundary.outputs.append(outer)
        _declare(description.output.add(name=name), value, dtype, [])
    if scalars:
        description.metadata.userDefined[SCALARS] = json.dumps(scalars)
    changed = {k: v for k, v in renamed.items() if k != v}
    if changed:
        description.metadata.userDefined[NAMES] = json.dumps(changed, sort_keys=True)
    return boundary


def _chain(
    name: str, outer: ir.Value, value: ir.Value, steps: list[tuple[str, dict[str, Any]]]
) -> list[Layer]:
    """Operations one behind the other, from an input to the value of the graph."""
    layers: list[Layer] = []
    for i, (kind, given) in enumerate(steps):
        last = i == len(steps) - 1
        made = value if last else ir.Value(name=name, type=outer.type, shape=ir.Shape([]))
        layers.append(Layer(kind, name, {"x": outer, **given}, outputs=[made]))
        outer = made
    return layers


def interface_type(
    value: ir.Value, own: ir.DataType, version: int, notes: list[Diagnostic]
) -> ir.DataType:
    """The type of an input or output: arrays there are of fp32 and int32, since iOS16 of fp16."""
    dtype = D.INT32 if own in (D.BOOL, D.INT32) else D.FLOAT
    if value.dtype == D.FLOAT16 and version >= HALF_INTERFACE:
        dtype = D.FLOAT16
    if value.dtype not in (dtype, D.BOOL) and value.dtype is not None:
        name = public_name(value)
        text = f"{name} is {value.dtype.name}, written as {dtype.name}"
        notes.append(Diagnostic("X205", text, level="warning", where=Where(layer=name)))
    return dtype


def _declare(feature: Any, value: ir.Value, dtype: ir.DataType, scalar: list[int]) -> None:
    array = feature.type.multiArrayType
    array.dataType = ARRAYS[dtype]
    shape = list(value.shape or ())
    open_ = [not isinstance(n, int) for n in shape]
    if scalar and any(open_):  # an input
        array.shape.extend(n if isinstance(n, int) else 1 for n in shape)
        for n in shape:
            ends = (n, n) if isinstance(n, int) else (1, -1)
            array.shapeRange.sizeRanges.add(lowerBound=ends[0], upperBound=ends[1])
    elif not any(open_):
        array.shape.extend([n for n in shape if isinstance(n, int)] or scalar)
