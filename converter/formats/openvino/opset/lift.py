"""Net (v10, v11) -> the shared graph."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, MappingError
from converter.formats.openvino.bodies import BodyReader
from converter.formats.openvino.ir import Layer as IrLayer
from converter.formats.openvino.ir import Net
from converter.formats.openvino.names import output_name
from converter.formats.openvino.opset.codes import CODES, TABLES
from converter.formats.openvino.opset.constants import (
    DATA_TYPES,
    NAMES,
    quantizes,
    read_const,
)
from converter.formats.openvino.opset.mapping import MAPPING
from converter.formats.openvino.opset.revisions import canonical_spelling
from converter.formats.openvino.opset.rules.context import element_type
from converter.formats.openvino.opset.rules.fields import (
    HALF,
    HALVES,
    V10_OUTPUTS,
    computed,
    parse_shape,
)
from converter.formats.openvino.opset.widening import narrowed, widened
from converter.formats.openvino.types import ELEMENT_TYPES as SIZES
from converter.formats.openvino.xml import shown
from converter.graph.build import Builder, new_model
from converter.graph.custom import parsed
from converter.graph.infer import KNOWN_LIMIT, constant, rank_of, set_type, shape_of
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.names import fresh_public_name, public_name, set_public_name
from converter.graph.network import Network
from converter.graph.open_sizes import is_open, open_input
from converter.graph.verify.node import verify_node
from converter.mapping.lifting import refuse
from converter.mapping.node import Layer
from converter.passes.fold import fold
from converter.passes.states import settle
from converter.passes.stored_halves import note_halves

# attributes that the documents and the runtime take for different values when they are absent, up
# to an operation set
_DISPUTED = {
    "ExperimentalDetectronPriorGridGenerator": ("flatten", 99),
    "SoftMax": ("axis", 7),
}
_EXPERIMENTS = ("GRUCell", "RNNCell", "Proposal")
# operations that OpenVINO's own passes fuse, and their operation set
FUSED = ("GatedDeltaNet", "MOE", "RMS", "RoPE")
_FUSED_SETS = ("ie_internal_opset", "experimental", "extension")


def lift(net: Net) -> Network:
    """Lift every layer; raise UnsupportedError with all refusals. Boundary names: the first tensor
    name of v11, else the layer's.
    """
    model, b = new_model(net.name)
    body = BodyLift(net, b, [])
    body.run(net)
    refuse(body.lifting.problems)
    states = body.sinks()
    fold(model, KNOWN_LIMIT, keep=quantizes)
    if halves := stored_as_halves(net):
        note_halves(model, DATA_TYPES[halves])
    interface = {"defaults": body.defaults, "states": states} if body.variables else {}
    network = Network(model, "openvino", body.notes, interface=interface)
    settle(network)
    return network


def stored_as_halves(net: Net) -> str:
    """Return the half-precision type of the constants; "" when there are none."""
    found = {layer.data.get("element_type") for layer in net.layers if layer.type == "Const"}
    return next((name for name in ("f16", "bf16") if name in found), "")


class BodyLift(BodyReader):
    """Lift the operations of a net or of a body, whose Parameters and Results are ports."""

    mapping = MAPPING

    def __init__(
        self, net: Net, builder: Builder, notes: list[Diagnostic], nested: bool = False
    ) -> None:
        super().__init__(net, builder, notes, nested)
        self.names: dict[tuple[int, int], str] = {}
        self.variables: dict[str, ir.Value] = {}  # name -> value of ReadValue
        self.assigned: dict[str, ir.Value] = {}
        self.defaults: dict[str, Any] = {}

    def layer(self, layer: IrLayer, operands: list[ir.Value | None]) -> Sequence[ir.Value]:
        if layer.type == "Parameter":
            return [self.feeds.get((layer.id, None)) or self._parameter(layer)]
        if layer.type == "Const":
            return [self._constant(layer)]
        if layer.type == "Result":
            assert operands[0] is not None
            self.values[layer.id, None] = operands[0]
            self._result(layer, operands[0])
            return []
        return self._operation(layer, operands)

    def _constant(self, layer: IrLayer) -> ir.Value:
        """Lift a constant. Indices into a table are kept and looked up: they take four bits
        each.
        """
        tensor, b = read_const(layer), self.builder
        table = TABLES.get(layer.data.get("element_type", ""))
        if table is None or not isinstance(tensor, LazyTensor):
            return b.const(tensor, layer.name)
        shape = tensor.shape.numpy()
        places = b.const(LazyTensor(tensor.stored(), ir.DataType.UINT4, shape), layer.name)
        return b.Gather(b.const(table, "table"), b.Cast(places, to=ir.DataType.INT32))

    def _operation(self, layer: IrLayer, operands: list[ir.Value | None]) -> Sequence[ir.Value]:
        declared = [ir.Value(name=p.names[0] if p.names else layer.name) for p in layer.outputs]
        kind = canonical_spelling(layer.type)
        broadcast = layer.data.get("auto_broadcast", "numpy").lower()
        if broadcast not in ("numpy", "pdpd", "none", "explicit"):
            raise MappingError(f"auto_broadcast={shown(broadcast)} is not known", "R110")
        if broadcast == "explicit":
            raise MappingError("auto_broadcast='explicit' is not supported here", "X202")
        if broadcast == "none" and len({str(shape_of(v)) for v in operands if v is not None}) > 1:
            raise MappingError("auto_broadcast='none' needs equal shapes", "R105")
        if broadcast == "pdpd":
            operands = aligned(self.builder, kind, operands, layer.data)
        operands, own = widened(self.builder, kind, operands)
        far = Layer(
            kind,
            layer.name,
            own_data(layer),
            {},
            operands,
            declared,
            self.net.where(layer),
            extra=(layer, self),
        )
        self.lifting.foreign = foreign_set(layer.version, layer.type)
        if self.lifting.foreign or not MAPPING.table.reads(kind):
            return self._unknown(layer, far)
        self.lifting.version = opset_number(layer.version, layer.type)
        key, last = _DISPUTED.get(kind, ("", 0))
        if self.lifting.version <= last and key not in far.attrs:
            raise MappingError(
                f"{kind} has no attribute {key!r}, whose default differs "
                "between the specification and the runtime",
                "R110",
            )
        results = self.lifting.layer(far) or []
        return results if own is None else narrowed(self.builder, kind, results, own)

    def _unknown(self, layer: IrLayer, far: Layer) -> Sequence[ir.Value]:
        """Lift a layer that OpenVINO gets from an extension: its ports declare its results."""
        far.attrs = {k: parsed(v) for k, v in far.attrs.items()}
        types = {SIZES[n].precision: d for n, d in DATA_TYPES.items() if n in SIZES}
        for value, port in zip(far.outputs, layer.outputs, strict=False):
            sizes = [d if d >= 0 else None for d in port.dims]
            set_type(value, types.get(port.precision.upper(), ir.DataType.FLOAT), sizes)
        results = self.lifting.layer(far) or []
        self.lifting.foreign = ""
        return results

    def bind(self, layer: IrLayer, values: Sequence[ir.Value]) -> None:
        for index, (port, value) in enumerate(zip(layer.outputs, values, strict=False)):
            if (
                value.shape is None
                and port.dims
                and not is_open()
                and (node := value.producer()) is not None
            ):  # the declared shape, where inference determines none
                value.shape = ir.Shape([d if d >= 0 else None for d in port.dims])
                if (reason := verify_node(node)) is not None:
                    raise MappingError(f"the ports are inconsistent: {reason}", "R105")
            self.values[layer.id, port.id] = value
            if half := HALF_PORTS.get(port.precision.upper()):
                value.meta[HALF] = half
            name = (
                port.names[0]
                if port.names and self.net.version >= 11
                else output_name(layer.name, index, len(layer.outputs))
            )
            self.names[layer.id, port.id] = name
            if value.producer() is not None and "openvino.name" not in value.metadata_props:
                value.metadata_props["openvino.name"] = name

    def _parameter(self, layer: IrLayer) -> ir.Value:
        """Return a graph input, brought to the type of computation. An FP16 input of v10 is
        presented as FP32.
        """
        element = layer.data.get("element_type", "f32")
        dtype = CODES[element][0] if element in CODES else DATA_TYPES.get(element)
        if element in CODES and dtype is not None:
            message = f"input element type {element} is presented as {NAMES[dtype]}"
            self.notes.append(
                Diagnostic("X205", message, level="warning", where=self.net.where(layer))
            )
        if dtype is None:
            raise MappingError(
                f"inputs of element type {layer.data.get('element_type')!r} are not supported",
                "X201",
            )
        names = layer.outputs[0].names if layer.outputs and self.net.version >= 11 else ()
        value = ir.Value(name=self.builder.names.fresh(names[0] if names else layer.name))
        wide = self.net.version < 11 and dtype == ir.DataType.FLOAT16
        set_type(
            value, ir.DataType.FLOAT if wide else dtype, parse_shape(layer.data.get("shape", ""))
        )
        set_public_name(value, names[0] if names else layer.name)
        open_input(value, public_name(value))
        self.builder.graph.inputs.append(value)
        return self.builder.Cast(value, to=computed(dtype)) if value.dtype in HALVES else value

    def _result(self, layer: IrLayer, value: ir.Value) -> None:
        """Return a graph output in the type of its port. v10 presents I64, U64 and U32 as I32, and
        any other type but I32 as FP32.
        """
        if self.nested:
            return
        port = layer.inputs[0]
        name = self.names[self.producers[layer.id, port.id]] or layer.name
        shown = (
            V10_OUTPUTS.get(value.dtype or ir.DataType.FLOAT)
            if self.net.version < 11
            else HALF_PORTS.get(port.precision.upper())
            if value.dtype == ir.DataType.FLOAT
            else None
        )
        if shown is not None:
            value = self.builder.Cast(value, to=shown)
        self.builder.output(value)
        set_public_name(self.builder.graph.outputs[-1], name)

    def state(self, source: IrLayer, initial: ir.Value | None) -> ir.Value:
        """Lift ReadValue as an additional input. Its initial value, if known, is the input's
        default.
        """
        if self.nested:
            raise MappingError("states inside a body are not supported")
        name = source.data.get("variable_id", "")
        if name not in self.variables:
            dtype, sizes = _declared(source, initial)
            value = self.builder.input(name or "state", dtype, sizes)
            set_public_name(value, name)
            known_ = constant(initial)
            if initial is not None and known_ is None:
                self.variables[name] = self.builder.State(value, initial)
            else:
                empty = [0 if n is None else n for n in sizes or ()]
                known_ = np.zeros(empty, dtype.numpy()) if known_ is None else known_
                self.variables[name], self.defaults[name] = value, known_
        return self.variables[name]

    def assign(self, name: str, value: ir.Value) -> None:
        """Set the next value of a variable."""
        self.assigned[name] = value

    def sinks(self) -> dict[str, str]:
        """Turn states into additional inputs and outputs: the value that Assign writes is the
        output NAME_out. Return the names of these outputs by those of the inputs.
        """
        found = {}
        for name, written in self.assigned.items():
            graph = self.builder.graph
            found[name] = fresh_public_name(graph, f"{name}_out")
            self.builder.output(written)
            set_public_name(graph.outputs[-1], found[name])
        return found


def _declared(
    source: IrLayer, initial: ir.Value | None
) -> tuple[ir.DataType, list[int | None] | None]:
    """Return the type and the sizes of a variable: those that ReadValue names (since opset6), else
    those of its port and of its initial value.
    """
    word = source.data.get("variable_type")
    if initial is not None:
        dtype = initial.dtype or ir.DataType.FLOAT
    elif word is None:
        raise MappingError("a state needs an initial value or a type", "R110")
    else:
        dtype = computed(ir.DataType(element_type.lift(word)))
    ports = ",".join(str(d) if d >= 0 else "?" for d in source.outputs[0].dims)
    sizes = parse_shape(source.data.get("variable_shape", ports))
    if sizes is None:
        sizes = parse_shape(ports)
    if sizes is None and initial is None:
        raise MappingError("a state needs an initial value or a rank", "X203")
    return dtype, sizes


HALF_PORTS = {"FP16": ir.DataType.FLOAT16, "BF16": ir.DataType.BFLOAT16}


def aligned(
    b: Builder, kind: str, operands: list[ir.Value | None], data: dict[str, str]
) -> list[ir.Value | None]:
    """Apply PaddlePaddle's broadcasting: the smaller operands are aligned at an axis of the first
    operand (of Select: the second).
    """
    lead = operands[1 if kind == "Select" else 0]
    n = rank_of(lead)
    given = data.get("auto_broadcast.auto_broadcast_axis", "-1")
    if n is None:
        raise MappingError("pdpd broadcasting needs a known rank", "X203")
    if given not in map(str, range(-1, max(n, 1))):
        raise MappingError(
            f"auto_broadcast_axis={shown(given)} is outside the rank {n} of the first operand",
            "R110",
        )
    axis = int(given)

    def one(v: ir.Value | None) -> ir.Value | None:
        if v is None or v is lead or (own := rank_of(v)) is None or own == 0:
            return v
        behind = n - own - (n - own if axis == -1 else axis)
        return b.Unsqueeze(v, list(range(own, own + behind))) if behind > 0 else v

    return [one(v) for v in operands]


def own_data(layer: IrLayer) -> dict[str, str]:
    """Return the attributes of a layer, without those of automatic broadcasting."""
    return {k: v for k, v in layer.data.items() if not k.startswith("auto_broadcast.")}


def foreign_set(version: str, kind: str) -> str:
    """Return the operation set of a layer that is not one of OpenVINO's; "" if it is."""
    if kind in FUSED and version in _FUSED_SETS:
        return ""
    if version == "extension" and not _is_former(kind):
        return version
    return "" if version.startswith(("opset", "experimental", "extension")) else version


def _is_former(kind: str) -> bool:
    """Return whether an operation of opset 6 was experimental before."""
    return kind in _EXPERIMENTS or kind.startswith("ExperimentalDetectron")


def opset_number(version: str, kind: str) -> int:
    """Return the opset number of a layer. Former experimental operations belong to opset 6; others
    with such a version are custom.
    """
    if kind in FUSED and version in _FUSED_SETS:
        return 1
    if version in ("experimental", "extension"):
        if not _is_former(kind):
            raise MappingError(
                f"{kind} of the operation set {version} is not one of OpenVINO's", "X201"
            )
        return 6
    if not (match := re.fullmatch(r"opset([1-9][0-9]?)", version, re.ASCII)):
        raise MappingError(f"{shown(version)} is not an operation set", "R110")
    return int(match[1])
