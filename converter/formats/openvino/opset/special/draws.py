"""Random numbers, and strings taken apart and put together."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from converter.formats.openvino.opset.constants import computed
from converter.formats.openvino.opset.fields import element_type
from converter.formats.openvino.opset.special.base import Emit, attributes, cast, filled, given, lifts, lowers, needs, operand
from converter.graph.build import Builder
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node

T = ir.DataType
ALIGNMENTS = ("tensorflow", "pytorch")


@lifts("RandomUniform")
def lift_uniform(layer: Layer, b: Builder) -> ir.Value:
    a = attributes(layer, output_type=str, global_seed=0, op_seed=0, alignment="tensorflow")
    if a.alignment not in ALIGNMENTS:
        raise MappingError(f"alignment={a.alignment!r} is not known", "R110")
    to = int(element_type.lift(a.output_type))
    operands = (operand(layer, i) for i in range(3))
    return b.ext("UniformNumbers", *operands, dtype=to, global_seed=a.global_seed, op_seed=a.op_seed, alignment=a.alignment)


@lowers("UniformNumbers", domain="netconv")
def lower_uniform(node: Node, low: Lowering) -> None:
    needs(low, "RandomUniform", 8)
    a, e = filled(node), Emit(node, low)
    name = element_type.lower(a["dtype"])
    bounds = [v if v.dtype == T(a["dtype"]) else e.op("Convert", v, dtype=T(a["dtype"]), destination_type=name) for v in (given(node, 1), given(node, 2))]
    attrs: dict[str, Any] = {"output_type": name, "global_seed": a["global_seed"], "op_seed": a["op_seed"]}
    if low.version > 8:
        attrs["alignment"] = a["alignment"]
    if computed(T(a["dtype"])) == T(a["dtype"]):
        e.out("RandomUniform", given(node, 0), *bounds, **attrs)
    else:
        e.out("Convert", e.op("RandomUniform", given(node, 0), *bounds, dtype=T(a["dtype"]), **attrs), destination_type="f32")


@lifts("Multinomial")
def lift_multinomial(layer: Layer, b: Builder) -> ir.Value:
    a = attributes(layer, convert_type=str, with_replacement=bool, log_probs=bool, global_seed=0, op_seed=0)
    index = int(T(element_type.lift(a.convert_type)))
    x, count = operand(layer, 0), operand(layer, 1)
    flags = (int(a.with_replacement), int(a.log_probs))
    return b.ext("ClassDraws", x, count, index=index, replacement=flags[0], log=flags[1], global_seed=a.global_seed, op_seed=a.op_seed)


@lowers("ClassDraws", domain="netconv")
def lower_multinomial(node: Node, low: Lowering) -> None:
    needs(low, "Multinomial", 13)
    a = filled(node)
    attrs: dict[str, Any] = {"with_replacement": bool(a["replacement"]), "log_probs": bool(a["log"]), "global_seed": a["global_seed"], "op_seed": a["op_seed"]}
    Emit(node, low).out("Multinomial", *node.inputs, convert_type=element_type.lower(a["index"]), **attrs)


@lifts("StringTensorPack")
def lift_pack(layer: Layer, b: Builder) -> ir.Value:
    attributes(layer)
    return b.ext("StringPack", operand(layer, 0), operand(layer, 1), cast(b, operand(layer, 2), T.UINT8))


@lifts("StringTensorUnpack")
def lift_unpack(layer: Layer, b: Builder) -> list[ir.Value]:
    attributes(layer)
    return list(b.exts("StringUnpack", operand(layer, 0), outputs=3))


@lowers("StringPack StringUnpack", domain="netconv")
def lower_strings(node: Node, low: Lowering) -> None:
    kind = f"StringTensor{node.op.removeprefix('String')}"
    needs(low, kind, 15)
    types = (T.INT32, T.INT32, T.UINT8) if node.op == "StringUnpack" else (T.STRING,)
    more = [low.value("strings", t, None) for t in types][len(node.outputs) :]
    Emit(node, low).out(kind, *node.inputs, outputs=[*node.outputs, *more])
