"""Net (v10, v11) -> the shared graph."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import onnx_ir as ir

from converter.diagnostics import Diagnostic, Where
from converter.formats.openvino.ir import Body, Net
from converter.formats.openvino.ir import Layer as IrLayer
from converter.formats.openvino.opset import ops, special
from converter.formats.openvino.opset.codes import CODES
from converter.formats.openvino.opset.constants import DATA_TYPES, HALF, HALVES, NAMES, STORED, computed, read_const
from converter.formats.openvino.opset.names import output_name
from converter.formats.openvino.opset.revisions import canonical_spelling
from converter.formats.openvino.opset.widening import narrowed, widened
from converter.formats.openvino.xml import shown
from converter.graph.build import Builder, new_model
from converter.graph.infer import KNOWN_LIMIT, constant, rank_of, set_type
from converter.graph.laws import broken
from converter.graph.names import public_name, set_public_name
from converter.limits import MOST_AXES
from converter.mapping.drive import FormatMapping, Lifting, refuse
from converter.mapping.node import Layer, MappingError
from converter.mapping.trouble import TROUBLE, told
from converter.model import Model
from converter.passes.fold import fold

# attributes that the documents and the runtime take for different values when they are absent, up to an operation set
_DISPUTED = {
    "ExperimentalDetectronPriorGridGenerator": ("flatten", 99),
    "SoftMax": ("axis", 7),
}
_EXPERIMENTS = ("GRUCell", "RNNCell", "Proposal")
Env = dict[tuple[int, int], ir.Value]


@cache
def mapping() -> FormatMapping:
    return FormatMapping(ops.TABLE, special.LIFT, special.LOWER)


def quantises(node: ir.Node) -> bool:
    """Whether a node makes quantised weights, or moves them: their integers are to be found again."""
    if node.op_type == "FakeQuantize":
        return True
    maker = node.inputs[0].producer() if node.inputs and node.inputs[0] is not None else None
    return node.op_type in ("Reshape", "Transpose", "Cast") and maker is not None and quantises(maker)


def lift(net: Net) -> Model:
    """Lifts every layer; UnsupportedError with all refusals. Boundary names: the first tensor name of v11, else the layer's."""
    model, b = new_model(net.name)
    body = BodyLift(net, b, Lifting(mapping(), b, "openvino"), nested=False)
    body.run(net)
    refuse(body.lifting.problems)
    body.sinks()
    fold(model, KNOWN_LIMIT, keep=quantises)
    if halves := stored_as_halves(net):
        model.metadata_props[STORED] = halves
    return Model(model, "openvino", body.notes, interface={"defaults": body.defaults} if body.defaults else {})


def stored_as_halves(net: Net) -> str:
    """The half-precision type of the constants; "" when there are none."""
    found = {layer.data.get("element_type") for layer in net.layers if layer.type == "Const"}
    return next((name for name in ("f16", "bf16") if name in found), "")


class BodyLift:
    """Lifts the layers of one body. `env` maps (layer id, output port id) to values; `inputs`/`outputs` are by Parameter/Result id."""

    def __init__(self, net: Net, builder: Builder, lifting: Lifting, nested: bool = True) -> None:
        self.net, self.builder, self.lifting, self.nested = net, builder, lifting, nested
        self.env: Env = {}
        self.names: dict[tuple[int, int], str] = {}
        self.outputs: dict[int, ir.Value] = {}
        self.given: dict[int, ir.Value] = {}  # Parameter id -> value, for bodies of If, Loop and TensorIterator
        self._read: set[tuple[int, int]] = set()
        self.variables: dict[str, ir.Value] = {}  # name -> what ReadValue gives
        self.assigned: dict[str, ir.Value] = {}
        self.defaults: dict[str, Any] = {}
        self.notes: list[Diagnostic] = []

    def used(self, layer: IrLayer, index: int) -> bool:
        """Whether anybody reads an output of a layer."""
        return index < len(layer.outputs) and (layer.id, layer.outputs[index].id) in self._read

    def run(self, body: Body) -> None:
        producers = body.producers()
        self._read = set(producers.values())
        for layer in body.ordered():
            feeds = [producers.get((layer.id, p.id)) for p in layer.inputs]
            operands = [self.env.get(f) if f is not None else None for f in feeds]
            if any(f is not None and v is None for f, v in zip(feeds, operands, strict=True)):
                continue  # behind a refused layer
            self._layer(layer, operands, feeds)

    def _layer(self, layer: IrLayer, operands: list[ir.Value | None], feeds: list[tuple[int, int] | None]) -> None:
        try:
            if layer.type == "Parameter":
                self._bind(layer, [self.given.get(layer.id) or self._parameter(layer)])
            elif layer.type == "Const":
                self._bind(layer, [self.builder.const(read_const(layer), layer.name)])
            elif layer.type == "Result":
                assert operands[0] is not None
                self.outputs[layer.id] = operands[0]
                self._result(layer, operands[0], feeds[0])
            else:
                self._operation(layer, operands)
        except TROUBLE as e:
            code, message, help = told(e)
            self.lifting.problems.append(Diagnostic(code, message, where=self.net.where(layer), help=help))

    def _operation(self, layer: IrLayer, operands: list[ir.Value | None]) -> None:
        declared = [ir.Value(name=p.names[0] if p.names else layer.name) for p in layer.outputs]
        kind = canonical_spelling(layer.type)
        broadcast = layer.data.get("auto_broadcast", "numpy").lower()
        if broadcast not in ("numpy", "pdpd", "none", "explicit"):
            raise MappingError(f"auto_broadcast is {shown(broadcast)}", "R110")
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
        self.lifting.version = opset_number(layer.version, layer.type)
        key, last = _DISPUTED.get(kind, ("", 0))
        if self.lifting.version <= last and key not in far.attrs:
            raise MappingError(f"{kind} has no attribute {key!r}, for which the documents and the runtime have different defaults", "R110")
        results = self.lifting.layer(far)
        if results is not None:
            self._bind(layer, results if own is None else narrowed(self.builder, kind, results, own))

    def _bind(self, layer: IrLayer, values: list[ir.Value]) -> None:
        for index, (port, value) in enumerate(zip(layer.outputs, values, strict=False)):
            if value.shape is None and port.dims and (node := value.producer()) is not None:  # what the file says, where inference knows nothing
                value.shape = ir.Shape([d if d >= 0 else None for d in port.dims])
                if (reason := broken(node)) is not None:
                    raise MappingError(f"the ports do not fit: {reason}", "R105")
            self.env[layer.id, port.id] = value
            if half := HALF_PORTS.get(port.precision.upper()):
                value.meta[HALF] = half
            name = port.names[0] if port.names and self.net.version >= 11 else output_name(layer.name, index, len(layer.outputs))
            self.names[layer.id, port.id] = name
            if value.producer() is not None and "openvino.name" not in value.metadata_props:
                value.metadata_props["openvino.name"] = name

    def _parameter(self, layer: IrLayer) -> ir.Value:
        """A graph input, brought to the type of computation. An FP16 input of v10 is presented as FP32."""
        element = layer.data.get("element_type", "f32")
        dtype = CODES[element][0] if element in CODES else DATA_TYPES.get(element)
        if element in CODES and dtype is not None:
            message = f"the input's element type {element} is presented as {NAMES[dtype]}"
            self.notes.append(Diagnostic("X205", message, level="warning", where=self.net.where(layer)))
        if dtype is None:
            raise MappingError(f"inputs of element type {layer.data.get('element_type')!r} have no counterpart", "X201")
        names = layer.outputs[0].names if layer.outputs and self.net.version >= 11 else ()
        value = ir.Value(name=self.builder.names.fresh(names[0] if names else layer.name))
        wide = self.net.version < 11 and dtype == ir.DataType.FLOAT16
        set_type(value, ir.DataType.FLOAT if wide else dtype, parse_shape(layer.data.get("shape", "")))
        set_public_name(value, names[0] if names else layer.name)
        self.builder.graph.inputs.append(value)
        return self.builder.op("Cast", value, to=int(computed(dtype))) if value.dtype in HALVES else value

    def _result(self, layer: IrLayer, value: ir.Value, feed: tuple[int, int] | None) -> None:
        """A graph output in the type of its port. v10 presents I64, U64 and U32 as I32, and what is none of these nor I32 as FP32."""
        if self.nested:
            return
        name = (self.names.get(feed) if feed is not None else None) or self._boundary_name(value) or layer.name
        port = layer.inputs[0].precision.upper()
        shown = (
            V10_OUTPUTS.get(value.dtype or ir.DataType.FLOAT) if self.net.version < 11 else HALF_PORTS.get(port) if value.dtype == ir.DataType.FLOAT else None
        )
        if shown is not None:
            value = self.builder.op("Cast", value, to=int(shown))
        self.builder.output(value)
        set_public_name(self.builder.graph.outputs[-1], name)

    def _boundary_name(self, value: ir.Value) -> str:
        return public_name(value) if value in self.builder.graph.inputs else value.name or ""

    def state(self, name: str, initial: ir.Value) -> ir.Value:
        """What ReadValue gives: an input more, whose default is the initial value."""
        if self.nested:
            raise MappingError("a state inside a body")
        if name not in self.variables:
            known_ = constant(initial)
            if known_ is None:
                raise MappingError("the initial value of the state is computed; it must be constant", "X202")
            value = self.builder.input(name or "state", initial.dtype or ir.DataType.FLOAT, None if initial.shape is None else list(initial.shape))
            set_public_name(value, name)
            self.variables[name] = value
            self.defaults[name] = known_
        return self.variables[name]

    def assign(self, name: str, value: ir.Value) -> None:
        self.assigned[name] = value

    def sinks(self) -> None:
        """States become extra inputs and outputs: Assign writes the output of its variable."""
        for name, written in self.assigned.items():
            self.builder.output(written)
            set_public_name(self.builder.graph.outputs[-1], name)


HALF_PORTS = {"FP16": ir.DataType.FLOAT16, "BF16": ir.DataType.BFLOAT16}
V10_OUTPUTS = {
    **dict.fromkeys((ir.DataType.INT64, ir.DataType.UINT64, ir.DataType.UINT32), ir.DataType.INT32),
    **dict.fromkeys(
        (
            ir.DataType.FLOAT16,
            ir.DataType.BFLOAT16,
            ir.DataType.DOUBLE,
            ir.DataType.UINT8,
            ir.DataType.INT8,
            ir.DataType.UINT16,
            ir.DataType.INT16,
            ir.DataType.BOOL,
        ),
        ir.DataType.FLOAT,
    ),
}


def aligned(b: Builder, kind: str, operands: list[ir.Value | None], data: dict[str, str]) -> list[ir.Value | None]:
    """pdpd broadcasting: the smaller operands begin at an axis of the first (of Select: of the second), and end before its last."""
    lead = operands[1 if kind == "Select" else 0]
    n = rank_of(lead) if lead is not None else None
    given = data.get("auto_broadcast.auto_broadcast_axis", "-1")
    if n is None:
        raise MappingError("pdpd broadcasting needs a known rank", "X203")
    if given not in map(str, range(-1, max(n, 1))):
        raise MappingError(f"auto_broadcast_axis is {shown(given)}, the first operand has {n} axes", "R110")
    axis = int(given)

    def one(v: ir.Value | None) -> ir.Value | None:
        if v is None or v is lead or (own := rank_of(v)) is None or own == 0:
            return v
        behind = n - own - (n - own if axis == -1 else axis)
        return b.op("Unsqueeze", v, list(range(own, own + behind))) if behind > 0 else v

    return [one(v) for v in operands]


def own_data(layer: IrLayer) -> dict[str, str]:
    return {k: v for k, v in layer.data.items() if not k.startswith("auto_broadcast.")}


def opset_number(version: str, kind: str) -> int:
    """The operations that were experiments once are those of opset 6; others with such a version are somebody's own."""
    if version in ("experimental", "extension"):
        if kind not in _EXPERIMENTS and not kind.startswith("ExperimentalDetectron"):
            raise MappingError(f"{kind} of the operation set {version} is not one of OpenVINO's", "X201")
        return 6
    if not (match := re.fullmatch(r"opset([1-9][0-9]?)", version, re.ASCII)):
        raise MappingError(f"{shown(version)} is not an operation set", "R110")
    return int(match[1])


def parse_shape(text: str) -> list[Any] | None:
    """`1,3,?,1..4` -> [1, 3, None, None]; `...` (dynamic rank) -> None."""
    if "..." in text:
        return None
    parts = [p.strip() for p in text.split(",") if p.strip()]
    if wrong := [p for p in parts if not _DIMENSION.fullmatch(p)]:
        raise MappingError(f"{shown(wrong[0])} is not a dimension", "R110")
    if len(parts) > MOST_AXES:
        raise MappingError(f"{len(parts)} dimensions are beyond the {MOST_AXES} that are read", "R110")
    return [int(p) if p[0] in _DIGITS and ".." not in p else None for p in parts]


_DIGITS = "0123456789"
_DIMENSION = re.compile(r"\?|-1|[0-9]{1,19}|[0-9]{0,19}\.\.[0-9]{0,19}")


__all__ = ["BodyLift", "Where", "lift", "mapping"]
