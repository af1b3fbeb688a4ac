"""The passes that turn the canonical graph into a self-contained model of an opset."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import onnx
import onnx.defs
import onnx.helper
import onnx_ir as ir

from converter.errors import Diagnostic, MappingError, UnsupportedError
from converter.formats.onnx.boundary import values_of
from converter.formats.onnx.four_bits import store_four_bits
from converter.formats.onnx.loadable import make_loadable, name_apart, pair_int8
from converter.formats.onnx.opset_converter.decompose_newer import (
    REWRITES,
    bytes_for_nibbles,
    pairs_of_bits,
)
from converter.formats.onnx.opset_converter.downgrade import form, respell
from converter.formats.onnx.types import NAMED
from converter.formats.onnx.unsigned_bytes import unsigned_bytes
from converter.graph import CHANNELS_LAST_DOMAIN, EXTENSION_DOMAIN, IR_VERSION, OPSET
from converter.graph.build import AT, Builder, attrs_of, builder_before
from converter.graph.custom import attributes_of, carried_note, current
from converter.graph.extensions import bind, can_expand, expand, replace
from converter.graph.names import (
    Names,
    make_node_names_unique,
    public_name,
    set_public_name,
    source_location,
)
from converter.graph.walk import all_graphs, all_nodes
from converter.passes.dead_code import remove_unread_initializers, unread_initializers
from converter.passes.legalize import rewrite_illegal
from converter.passes.pipeline import Context, Pass, change
from converter.passes.promote_types import Signature, parameter, parameters, promote_types, takes
from converter.passes.share_weights import share_weights
from converter.passes.stored_halves import store_halves, stored_half
from converter.record import record

CUSTOM = (EXTENSION_DOMAIN, "CustomLayer")
OLDEST = 13
PAIRS_SINCE = 25  # types of two bits
NEWEST = onnx.defs.onnx_opset_version()


@record
class Opset(Context):
    """A conversion for an opset. `unread` are the initializers without consumer in the source."""

    version: int = OPSET
    unread: list[Any] = field(default_factory=list)


def _drop_locations(model: ir.Model) -> None:
    for node in all_nodes(model.graph):
        node.metadata_props.pop(AT, None)


def _make_loadable(model: ir.Model, context: Opset) -> None:
    context.unread.append(unread_initializers(model))
    names = Names(model)
    make_loadable(model.graph, names, context.notes)
    if context.version == OPSET:
        pair_int8(model, names)


def _bind(model: ir.Model) -> None:
    bind(model, make_loadable)
    name_apart(model)


def _without_definition(model: ir.Model, context: Opset) -> None:
    for node in all_nodes(model.graph):
        if node.domain == EXTENSION_DOMAIN and not can_expand(node):
            message = f"{node.op_type} is written without a definition"
            context.notes.append(
                Diagnostic("X208", message, "warning", where=source_location(node))
            )


def _public_names(model: ir.Model) -> None:
    """Give inputs and outputs their public names; other values with these names are renamed."""
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
    rewrite_illegal(model, lambda node: _reason(node, version) != "", REWRITES)
    names = Names(model)
    _widen(model, version, names)
    if version > OPSET:
        pair_int8(model, names)
    problems = [
        Diagnostic(
            "X206",
            reason,
            where=source_location(n),
        )
        for n in all_nodes(model.graph)
        if (reason := _reason(n, version) or _wrong_type(n, version))
    ]
    if problems:
        raise UnsupportedError(problems)
    if version >= PAIRS_SINCE:
        pairs_of_bits(model)
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
    """Return why the opset cannot express the node; "" if it can."""
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
        f"{node.op_type} of opset {version} does not support "
        f"{', '.join(sorted({t.name for t in types.values()})) or others[0]}"
    )


def _text(type_: Any) -> str:
    """Return a type as the schemas spell it."""
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


def _write_custom(model: ir.Model, context: Opset) -> None:
    """Write carried layers as operators of their own domain."""
    names = Names(model)
    for graph in list(all_graphs(model.graph)):
        for node in list(graph):
            own = attrs_of(node) if (node.domain, node.op_type) == CUSTOM else {}
            if not own or not (own.get("domain_name") or current().carry):
                continue
            domain = str(own.get("domain_name") or "com.apple.coreml")
            name = str(own["class_name"])
            given = attributes_of(own.get("parameters", "{}"))
            numbers: dict[str, Any] = {
                k: int(v) if isinstance(v, bool) else v for k, v in given.items()
            }
            b = builder_before(node, names)
            made = b.ops(name, *node.inputs, domain=domain, outputs=len(node.outputs), **numbers)
            context.notes.append(carried_note(name, source_location(node)))
            replace(node, made, b)
            model.graph.opset_imports.setdefault(domain, 1)


PIPELINE: list[Pass[Opset]] = [
    change("drop-places", "Remove notes about where nodes come from", _drop_locations),
    change(
        "share-weights",
        "Store equal weights once",
        share_weights,
        applies=lambda context: context.network.format != "onnx",  # whose own keep their names
    ),
    change(
        "store-halves",
        "Store weights as half precision that the source stores so",
        lambda model: store_halves(model, stored_half(model)),
    ),
    Pass(
        "write-unsigned",
        "Write signed quantized bytes as unsigned ones, which no kernel saturates",
        unsigned_bytes,
        applies=lambda context: context.network.format != "onnx",
    ),
    Pass(
        "make-loadable",
        "Replace operators for which onnxruntime has no kernel",
        _make_loadable,
    ),
    change(
        "store-four-bits", "Store floats of 4 bits as indices into their table", store_four_bits
    ),
    change(
        "bind-definitions",
        "Add the definitions of extension operators as functions of the model",
        _bind,
        applies=lambda context: context.version == OPSET,
    ),
    Pass(
        "respell",
        "Decompose extension operators, and write all others as the opset has them",
        lambda model, context: _respell(model, context.version),
        applies=lambda context: context.version != OPSET,
    ),
    Pass(
        "drop-unread",
        "Remove unused initializers",
        lambda model, context: remove_unread_initializers(model, context.unread[-1]),
    ),
    change("public-names", "Give inputs and outputs the names of the source", _public_names),
    change("name-nodes", "Give each node a unique name", make_node_names_unique),
    Pass("write-custom", "Write preserved operators in their own domain", _write_custom),
    Pass(
        "check-definitions",
        "Warn about extension operators without a definition",
        _without_definition,
    ),
]
