"""The inputs and outputs of a model: declared types, names as the file spells them, and the model's
own metadata.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import onnx_ir as ir

from converter.errors import Where, unreadable
from converter.formats.onnx.types import merge_type
from converter.graph.build import Builder
from converter.graph.infer import shape_of
from converter.graph.names import set_public_name
from converter.graph.open_sizes import is_open, open_input
from converter.graph.walk import all_graphs
from converter.io.strict_json import note

DEFAULTS = "netconv.defaults"
STATES = "netconv.states"  # names of inputs with defaults -> of the outputs that follow them


def declare_input(b: Builder, info: onnx.ValueInfoProto) -> ir.Value:
    """Declare an input of the graph, typed as far as the file declares it."""
    value = ir.Value(name=b.names.fresh(info.name))
    merge_type(value, info.type)
    open_input(value, info.name)
    value.doc_string = info.doc_string or None
    value.metadata_props.update({p.key: p.value for p in info.metadata_props})
    if value.name != info.name:
        set_public_name(value, info.name)
    b.graph.inputs.append(value)
    return value


def check_constants(
    proto: onnx.GraphProto, own: Mapping[str, ir.Value | None], where: Where
) -> None:
    """Check initializers that are also declared as inputs against the declaration; ReadError
    R105.
    """
    for info in proto.input:
        value = own.get(info.name)
        if value is None:
            continue
        merge_type(value, info.type, where)
        shape, declared = shape_of(value), ir.serde.deserialize_type_proto_for_shape(info.type)
        if shape is None or declared is None:
            continue
        if len(shape) != len(declared) or any(
            isinstance(d, int) and 0 <= d != s for s, d in zip(shape, declared, strict=True)
        ):
            raise unreadable(
                "R105",
                f"initializer {info.name!r} has the shape {list(shape)}, but is "
                f"declared as {list(declared)}",
                where,
            )


def values_of(graph: ir.Graph) -> list[ir.Value]:
    """Return the inputs and initializers of a graph, and the results of its nodes."""
    made = (o for n in graph for o in n.outputs)
    return [*graph.inputs, *graph.initializers.values(), *made]


def declare_outputs(
    graph: ir.Graph, outputs: list[ir.Value], proto: onnx.GraphProto, b: Builder
) -> None:
    """Make values the graph's outputs, under the names that the file gives them."""
    taken = {v.name for v in (*outputs, *values_of(graph))}
    bodies = (g for g in all_graphs(graph) if g is not graph)
    inner = {v.name: v for g in bodies for v in values_of(g)}
    for value, info in zip(outputs, proto.output, strict=True):
        before = len(graph.outputs)
        b.output(value)
        out = graph.outputs[before]
        if not is_open():
            merge_type(out, info.type)
        out.doc_string = info.doc_string or out.doc_string
        out.metadata_props.update({p.key: p.value for p in info.metadata_props})
        if out.name != info.name and "netconv.name" not in out.metadata_props:
            if info.name in taken:
                set_public_name(out, info.name)
            # an Identity, now gone, gave its name to the output; or a value of a body has taken it
            else:
                if (held := inner.get(info.name)) is not None:
                    held.name = b.names.fresh(info.name)
                out.name = info.name
        taken.add(out.name)


def check_version(proto: onnx.ModelProto, where: Where) -> None:
    """Check the IR version: newer files may contain unknown fields; ReadError R104. Some writers
    omit the version.
    """
    if not 0 <= proto.ir_version <= onnx.IR_VERSION:
        raise unreadable(
            "R104",
            f"IR version {proto.ir_version} is not supported; netconv reads 1 to {onnx.IR_VERSION}",
            where,
        )


def default_names(proto: onnx.ModelProto) -> set[str]:
    """Return the inputs whose initializers are values for when they are not fed. Without our own
    note, an initializer is a constant.
    """
    names = note(next((p.value for p in proto.metadata_props if p.key == DEFAULTS), ""), [str])
    return set(names or ()) & {i.name for i in proto.graph.input}


def state_names(proto: onnx.ModelProto) -> dict[str, str]:
    """Return the outputs that are the next values of inputs with defaults, by the inputs' names."""
    found = note(next((p.value for p in proto.metadata_props if p.key == STATES), ""), {str: str})
    return dict(found or {})


def take_metadata(model: ir.Model, proto: onnx.ModelProto) -> None:
    """Copy the producer, versions, documentation and properties of a file to the model."""
    for source in ("producer_name", "producer_version", "domain", "doc_string", "model_version"):
        if getattr(proto, source):
            setattr(model, source, getattr(proto, source))
    model.graph.doc_string = proto.graph.doc_string or None
    model.metadata_props.update({p.key: p.value for p in proto.metadata_props})
    model.graph.metadata_props.update({p.key: p.value for p in proto.graph.metadata_props})
