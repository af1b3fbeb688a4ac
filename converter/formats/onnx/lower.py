"""The canonical graph -> an ONNX model that stands by itself: extension operators carry their
definition as functions.
"""

from __future__ import annotations

import json
from typing import Any

import onnx
import onnx.defs
import onnx.helper
import onnx_ir as ir

from converter.errors import (
    Diagnostic,
    MappingError,
    UnsupportedError,
    wrong_call,
)
from converter.formats.format import Flavour
from converter.formats.onnx.boundary import DEFAULTS, STATES, values_of
from converter.formats.onnx.loadable import make_loadable, name_apart, pair_int8
from converter.formats.onnx.opset_converter.decompose_newer import REWRITES, bytes_for_nibbles
from converter.formats.onnx.opset_converter.downgrade import form, respell
from converter.formats.onnx.types import NAMED
from converter.graph import CHANNELS_LAST_DOMAIN, EXTENSION_DOMAIN, IR_VERSION, OPSET
from converter.graph.build import AT, Builder
from converter.graph.extensions import bind, can_expand, expand
from converter.graph.names import Names, place_of, public_name, set_public_name, tell_nodes_apart
from converter.graph.network import Network
from converter.graph.walk import all_graphs, all_nodes
from converter.passes.dead_code import remove_unread_initializers, unread_initializers
from converter.passes.legalise import legalise
from converter.passes.promote_types import Signature, parameter, parameters, promote_types, takes
from converter.passes.share_weights import share_weights
from converter.passes.stored_halves import store_halves, stored_half

OLDEST = 13
NEWEST = onnx.defs.onnx_opset_version()


def lower(model: Network, flavour: Flavour, notes: list[Diagnostic]) -> ir.Model:
    """A model of the wanted opset. UnsupportedError X206 names every operator that it cannot
    express.
    """
    version = _version(flavour)
    clone = model.ir.clone()
    for node in all_nodes(clone.graph):
        node.metadata_props.pop(AT, None)
    if model.format != "onnx":  # whose own initializers keep their names
        share_weights(clone)
    store_halves(clone, stored_half(clone))
    unread = unread_initializers(clone)  # as the source has them
    names = Names(clone)
    make_loadable(clone.graph, names, notes)
    if version == OPSET:
        pair_int8(clone, names)
        bind(clone, make_loadable)
        name_apart(clone)
    else:
        _respell(clone, version)
    remove_unread_initializers(clone, unread)
    _public_names(clone)
    tell_nodes_apart(clone)
    for node in all_nodes(clone.graph):
        if node.domain == EXTENSION_DOMAIN and not can_expand(node):
            where = place_of(node)
            notes.append(
                Diagnostic(
                    "X208",
                    f"{node.op_type} is written without a definition",
                    level="warning",
                    where=where,
                )
            )
    return clone


def default_values(model: Network, lowered: ir.Model) -> dict[str, Any]:
    """Values of inputs that need not be fed, by their names in the file; the metadata tells a
    reader that they are no constants.
    """
    given = {
        str(v.name): model.interface["defaults"][public_name(v)]
        for v in lowered.graph.inputs
        if public_name(v) in model.interface.get("defaults", {})
    }
    lowered.metadata_props.pop(DEFAULTS, None)
    lowered.metadata_props.pop(STATES, None)
    if given:
        lowered.metadata_props[DEFAULTS] = json.dumps(sorted(given))
    if states := model.interface.get("states"):
        names = {
            public_name(v): str(v.name) for v in (*lowered.graph.inputs, *lowered.graph.outputs)
        }
        told = {names[a]: names[b] for a, b in states.items() if a in names and b in names}
        lowered.metadata_props[STATES] = json.dumps(told, sort_keys=True)
    return given


def _version(flavour: Flavour) -> int:
    text = flavour.options.get("opset", str(OPSET))
    if not text.isdecimal() or not OLDEST <= int(text) <= NEWEST:
        raise wrong_call(
            f"opset={text!r} is not an opset that can be written", help=f"{OLDEST} to {NEWEST}"
        )
    return int(text)


def _public_names(model: ir.Model) -> None:
    """Inputs and outputs under their foreign names; other values that have these give way."""
    wanted: dict[str, ir.Value] = {}
    boundary = [*model.graph.inputs, *model.graph.outputs]
    for value in sorted(boundary, key=lambda v: public_name(v) != v.name):
        wanted.setdefault(public_name(value), value)
    names = Names(model)
    for graph in all_graphs(model.graph):
        for value in values_of(graph):
            if value.name and wanted.get(value.name, value) is not value:
                value.name = names.fresh(value.name)
    for name, value in wanted.items():
        if value.name != name:
            value.name = name
            set_public_name(value, name)


def _respell(model: ir.Model, version: int) -> None:
    names = Names(model)
    while pending := [n for n in all_nodes(model.graph) if can_expand(n)]:
        for node in pending:
            expand(node, names)
    make_loadable(model.graph, names)
    if version < OPSET:
        bytes_for_nibbles(model)
    legalise(model, lambda node: _reason(node, version) != "", REWRITES)
    names = Names(model)
    _widen(model, version, names)
    if version > OPSET:
        pair_int8(model, names)
    problems = [
        Diagnostic(
            "X206",
            reason,
            where=place_of(n),
        )
        for n in all_nodes(model.graph)
        if (reason := _reason(n, version) or _wrong_type(n, version))
    ]
    if problems:
        raise UnsupportedError(problems)
    for graph in all_graphs(model.graph):
        b = Builder(graph, names)
        for node in graph:
            if node.domain == "":
                respell(node, form(node, version), b)
        graph.opset_imports[""] = version
        for domain in (EXTENSION_DOMAIN, CHANNELS_LAST_DOMAIN):
            if not any(n.domain == domain for n in graph):
                graph.opset_imports.pop(domain, None)
    model.ir_version = max(
        IR_VERSION, onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", version)])
    )


def _reason(node: ir.Node, version: int) -> str:
    """Why the opset cannot say the node; "" when it can."""
    if node.domain:
        return ""
    try:
        form(node, version)
    except MappingError as e:
        return str(e)
    return ""


def _signature(schema: Any) -> Signature:
    return {
        c.type_param_str: {t for s in c.allowed_type_strs if (t := NAMED.get(s)) is not None}
        for c in schema.type_constraints
    }


def _wrong_type(node: ir.Node, version: int) -> str:
    if node.domain:
        return ""
    schema: Any = onnx.defs.get_schema(node.op_type, version)
    types = parameters(node, schema)
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    allowed |= {
        f.type_str: list(f.types) for f in schema.inputs if "(" in f.type_str
    }  # a type by itself, not a parameter
    others = [
        t
        for i, v in enumerate(node.inputs)
        if v is not None
        and (t := _text(v.type)) not in allowed.get(parameter(schema.inputs, i), [t])
    ]
    if takes(_signature(schema), types) and not others:
        return ""
    return (
        f"{node.op_type} of opset {version} does not take "
        f"{', '.join(sorted({t.name for t in types.values()})) or others[0]}"
    )


def _text(type_: Any) -> str:
    """A type as the schemas spell it."""
    if isinstance(type_, ir.SequenceType | ir.OptionalType):
        kind = "seq" if isinstance(type_, ir.SequenceType) else "optional"
        return f"{kind}({_text(type_.elem_type)})"
    return f"tensor({type_.dtype.name.lower()})" if isinstance(type_, ir.TensorType) else ""


def _widen(model: ir.Model, version: int, names: Names) -> None:
    for graph in list(all_graphs(model.graph)):
        for node in list(graph):
            if (
                node.op_type != "Cast"
                and _reason(node, version) == ""
                and _wrong_type(node, version)
            ):
                schema: Any = onnx.defs.get_schema(node.op_type, version)
                promote_types(node, [_signature(schema)], names, schema)
