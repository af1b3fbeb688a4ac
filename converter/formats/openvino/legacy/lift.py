"""Net (v2 to v9) -> the shared graph."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, MappingError, closest
from converter.formats.openvino.bodies import BodyReader
from converter.formats.openvino.ir import Layer as IrLayer
from converter.formats.openvino.ir import Net, Port, Statistic
from converter.formats.openvino.legacy.mapping import MAPPING
from converter.formats.openvino.legacy.types import PRECISIONS
from converter.formats.openvino.names import output_name
from converter.graph.build import Builder, new_model
from converter.graph.custom import parsed
from converter.graph.infer import Array, constant, set_type, shape_of
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.names import public_name, set_public_name
from converter.graph.network import Network
from converter.mapping.context import static
from converter.mapping.lifting import refuse
from converter.mapping.node import Layer
from converter.passes.dead_code import remove_dead_code
from converter.passes.stored_halves import note_halves

D = ir.DataType
STATISTICS = "openvino.statistics"  # lines of LAYER=min,min,..;max,max,..


@cache
def spellings() -> dict[str, str]:
    """Return the layer types by their lower-case spelling, since types are matched in any case."""
    return {kind.casefold(): kind for kind in sorted(MAPPING.table.kinds())}


@cache
def attributes_of(kind: str) -> frozenset[str]:
    """Return the attributes that affect a layer type, or are known to have no effect."""
    rows = {k for r in MAPPING.table.rules if r.kind == kind for f in r.fields for k in f.keys}
    return frozenset(rows)


def lift(net: Net) -> Network:
    """Lift every layer; raise UnsupportedError with all refusals.

    Inputs are the Input layers, then the states of Memory layers; outputs the data that nothing
    consumes, then the new states.
    """
    model, b = new_model(net.name)
    result = Network(model, "openvino")
    body = BodyLift(net, b, result.notes)
    body.run(net)
    refuse(body.lifting.problems)
    body.outputs()
    if body.states:
        # zeros that take no memory, however large the state
        result.interface["defaults"] = {
            public_name(v): np.broadcast_to(
                np.float32(0), [d for d in v.shape or () if isinstance(d, int)]
            )
            for v in body.states
        }
    if net.statistics:
        lines = [
            f"{s.name}={','.join(map(repr, s.min))};{','.join(map(repr, s.max))}"
            for s in net.statistics
        ]
        model.metadata_props[STATISTICS] = "\n".join(lines)
    if any(
        (blob.element or layer.precision).upper() == "FP16"
        for layer in net.layers
        for blob in layer.blobs.values()
    ):
        note_halves(model, D.FLOAT16)
    remove_dead_code(model)
    return result


class BodyLift(BodyReader):
    """Lift the layers of a net or of a TensorIterator's body."""

    mapping = MAPPING

    def __init__(
        self, net: Net, builder: Builder, notes: list[Diagnostic], nested: bool = False
    ) -> None:
        super().__init__(net, builder, notes, nested)
        self.memory: list[tuple[str, ir.Value]] = []
        self.states: list[ir.Value] = []
        self.means = (
            {net.pre_process.reference_layer_name: net.pre_process} if net.pre_process else {}
        )

    def layer(self, layer: IrLayer, operands: list[ir.Value | None]) -> list[ir.Value] | None:
        kind = layer.type.casefold()
        while operands and operands[-1] is None:
            operands.pop()
        if kind in ("input", "const") and not layer.outputs:
            raise MappingError("the layer has no output port", "R105")
        if kind == "input":
            return [self._input(layer)]
        if kind == "const":
            return [self.builder.const(constant_of(layer), layer.name)]
        if kind == "memory":
            return self._memory(layer, operands)
        return self._operation(layer, operands)

    def _operation(self, layer: IrLayer, operands: list[ir.Value | None]) -> list[ir.Value] | None:
        kind = spellings().get(layer.type.casefold(), layer.type)
        declared = []
        for port in layer.outputs:
            value = ir.Value(name=layer.name)
            set_type(value, type_of(port, layer), port.dims)
            declared.append(value)
        blobs = {name: numbers_of(blob, layer) for name, blob in layer.blobs.items()}
        far = Layer(
            kind,
            layer.name,
            self._known(layer, kind),
            blobs,
            operands,
            declared,
            self.net.where(layer),
            extra=(layer, self),
        )
        if not self.lifting.mapping.table.reads(kind) and not blobs:
            far.attrs = {k: parsed(v) for k, v in far.attrs.items()}
        results = self.lifting.layer(far)
        if results is None:
            return None
        with self.builder.provenance(
            format="openvino", layer=layer.name, type=layer.type, where=str(layer.line)
        ):
            settled = [self._settle(v, d) for v, d in zip(results, declared, strict=False)]
        return settled

    def _settle(self, value: ir.Value, declared: ir.Value) -> ir.Value:
        """Give a value the shape and type that the port declares: another number of elements is a
        contradiction in the file; a number is true if it is not 0.
        """
        b, found, wanted = self.builder, shape_of(value), static(declared)
        if found is not None and math.prod(found) != math.prod(wanted):
            raise MappingError(
                f"the output port declares {'x'.join(map(str, wanted))}, but "
                f"the layer computes {'x'.join(map(str, found))}",
                "R105",
            )
        if found != wanted:
            value = b.Reshape(value, list(wanted))
        to = declared.dtype or D.FLOAT
        if value.dtype not in (to, None):
            array = constant(value) if value.producer() is None and to != D.BOOL else None
            name = str(value.name)
            typed = None if array is None else b.const(array.astype(to.numpy()), name)
            value = typed or b.Cast(value, to=to)
        if shape_of(value) is None:
            value.shape = declared.shape
        return value

    def _known(self, layer: IrLayer, kind: str) -> dict[str, Any]:
        """Return the attributes without those that the engine ignores; a misspelt one is
        refused.
        """
        owned = attributes_of(kind)
        found = {k: v for k, v in layer.data.items() if k in owned}
        if kind not in spellings().values():
            return dict(layer.data)
        lower = {k.casefold(): k for k in owned} if kind == "Activation" else {}
        for key, value in layer.data.items():
            if key in owned:
                continue
            if key.casefold() in lower:
                found[lower[key.casefold()]] = value
                continue
            meant = closest(key, owned, 0.8)
            if meant and meant not in layer.data:
                raise MappingError(
                    f"attribute {key!r} is not known", "R111", f"perhaps you meant {meant!r}"
                )
            self.notes.append(
                Diagnostic(
                    "R111",
                    f"attribute {key!r} is not known; engines ignore it",
                    "warning",
                    self.net.where(layer),
                )
            )
        return found

    def _input(self, layer: IrLayer) -> ir.Value:
        port = layer.outputs[0]
        value = self._parameter(layer.name, port, layer)
        means = self.means.get(layer.name) or self.means.get("")
        if means is None:
            return value
        arrays = [
            _mean(c.mean, port.dims, means.mean_precision)
            for c in sorted(means.channels, key=lambda c: c.id)
        ]
        if not any(a.any() for a in arrays):
            return value
        if len(arrays) != port.dims[1]:
            raise MappingError(
                f"pre-processing has {len(arrays)} channels, the port has {port.dims[1]}", "R105"
            )
        size = np.broadcast_shapes(*(a.shape for a in arrays))
        return self.builder.Sub(
            value, np.stack([np.broadcast_to(a, size) for a in arrays]).astype(np.float32)
        )

    def _parameter(self, name: str, port: Port, layer: IrLayer) -> ir.Value:
        value = self.builder.input(name, type_of(port, layer), port.dims)
        set_public_name(value, name)
        return value

    def _memory(self, layer: IrLayer, operands: list[ir.Value | None]) -> list[ir.Value]:
        """A state is read through an input and written through an output, both called by its id."""
        name = layer.data.get("id")
        if name is None:
            raise MappingError("required attribute 'id' is absent", "R110")
        if layer.outputs:
            self.states.append(self._parameter(name, layer.outputs[0], layer))
            return [self.states[-1]]
        if operands and operands[0] is not None:
            self.memory.append((name, operands[0]))
        return []

    def outputs(self) -> None:
        """Add the outputs: ports without a consumer, and memory."""
        for layer in self.net.layers:
            if layer.type.casefold() in ("const", "memory") or (
                layer.type.casefold() == "input" and len(self.net.layers) > 1
            ):
                continue
            for i, port in enumerate(layer.outputs):
                if (layer.id, port.id) not in self.read:
                    value = self.values[layer.id, port.id]
                    if value.dtype not in (D.FLOAT, D.INT32):
                        value = self.builder.Cast(value, to=D.FLOAT)
                    self._output(value, output_name(layer.name, i, len(layer.outputs)))
        for name, value in self.memory:
            self._output(value, name)

    def _output(self, value: ir.Value, name: str) -> None:
        self.builder.output(value)
        set_public_name(self.builder.graph.outputs[-1], name)


def statistics_of(text: str) -> list[Statistic]:
    """Return the calibration ranges that reading stored with the model."""
    lines = [line.rpartition("=") for line in text.splitlines()]
    try:
        ranges = [
            (name, [tuple(float(v) for v in part.split(",") if v) for part in both.split(";")])
            for name, _, both in lines
        ]
    except ValueError:  # metadata of that name which is not ours
        return []
    return [Statistic(name, *pair) for name, pair in ranges if len(pair) == 2]


def type_of(port: Port, layer: IrLayer) -> ir.DataType:
    """Return the type in which the data of a port are computed; half precision is float in the
    engine.
    """
    precision = port.precision or layer.precision
    found = PRECISIONS.get(precision.upper())
    if found is None:
        raise MappingError(f"precision {precision!r} is not known", "R110")
    return D.FLOAT if found == D.FLOAT16 else found


def numbers_of(blob: LazyTensor, layer: IrLayer, default: str = "") -> Array:
    """Return the numbers of a blob, flat; half precision as float. `BIN` stays bytes."""
    precision = (
        blob.element
        or default
        or (layer.outputs[0].precision if layer.outputs else "")
        or layer.precision
        or "FP32"
    ).upper()
    raw = blob.bytes()
    if precision == "BIN":
        return raw
    if precision not in PRECISIONS:
        raise MappingError(f"precision {precision!r} is not known", "R110")
    dtype = PRECISIONS[precision].numpy()
    if raw.nbytes % dtype.itemsize:
        raise MappingError(f"{raw.nbytes} bytes cannot be split into {precision} elements", "R103")
    array = raw.view(dtype)
    return array.astype(np.float32) if dtype == np.float16 else array


def constant_of(layer: IrLayer) -> Array:
    """Return the array of a Const layer in the shape of its port."""
    port = layer.outputs[0]
    source = layer.blobs.get("custom") or next(iter(layer.blobs.values()), None)
    if source is None:
        raise MappingError("a Const needs a blob", "R110")
    array = numbers_of(source, layer, layer.precision or port.precision)
    if array.size != int(np.prod(port.dims)):
        raise MappingError(
            f"the blob has {array.size} elements, but the port declares "
            f"{'x'.join(map(str, port.dims))}",
            "R103",
        )
    wanted = type_of(port, layer)
    return array.reshape(port.dims).astype(wanted.numpy(), copy=False)


def _mean(mean: float | LazyTensor | None, dims: tuple[int, ...], precision: str) -> Array:
    """Return a channel's mean: a number, or an image of height x width."""
    if mean is None:
        return np.zeros((1, 1), np.float32)
    if not isinstance(mean, LazyTensor):
        return np.full((1, 1), mean, np.float32)
    array = mean.bytes().view(np.float16 if precision.upper() == "FP16" else np.float32)
    if array.size != dims[2] * dims[3]:
        raise MappingError(
            f"a mean image has {array.size} elements for an image of {dims[2]}x{dims[3]}", "R103"
        )
    return array.reshape(dims[2], dims[3]).astype(np.float32)
