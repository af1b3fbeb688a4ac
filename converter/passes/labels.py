"""Remove text that only names classes from the network.

before:  label = Gather(["cat", "dog"], ArgMax(p)); return p, label        after:  return p
"""

from __future__ import annotations

import json

import onnx_ir as ir

from converter.errors import Diagnostic, Where
from converter.graph import SAME_ELEMENTS
from converter.graph.names import public_name
from converter.passes.dead_code import remove_dead_code
from converter.passes.legalize import rewrite_illegal
from converter.passes.pipeline import Context, Pass

LABELS = "netconv.labels"  # metadata of the model: output -> its table of labels, as JSON
_SHOWN = 12  # labels in a message


def take_out_labels(model: ir.Model) -> list[Diagnostic]:
    """Remove text outputs that are looked up in a table, in place, and store the tables as metadata
    of the model. Return notes.

    If it would leave no output, the index of the label replaces the text.
    """
    graph, notes, tables = model.graph, [], {}
    # operators of ai.onnx.ml contain their own labels
    rewrite_illegal(model, lambda n: any(o.dtype == ir.DataType.STRING for o in n.outputs), {})
    for out in list(graph.outputs):
        found = _lookup(out) if out.dtype == ir.DataType.STRING else None
        if found is None:
            continue
        labels, index = found
        name = public_name(out)
        tables[name] = labels
        said = "is removed" if len(graph.outputs) > 1 else "is the index of the label"
        at = graph.outputs.index(out)
        del graph.outputs[at]
        if not graph.outputs:
            same = ir.Node("", "Identity", [index])
            same.outputs[0].type, same.outputs[0].shape = index.type, index.shape
            same.outputs[0].name, out.name = out.name, None
            same.outputs[0].metadata_props.update(out.metadata_props)
            graph.append(same)
            graph.outputs.append(same.outputs[0])
        notes.append(_note(name, labels, said))
    if tables:
        model.metadata_props[LABELS] = json.dumps(tables, ensure_ascii=False)
        remove_dead_code(model)
    return notes


def _note(name: str, labels: list[str], said: str) -> Diagnostic:
    shown = ", ".join(f"{i} {label!r}" for i, label in enumerate(labels[:_SHOWN]))
    more = f", ... ({len(labels)})" if len(labels) > _SHOWN else ""
    return Diagnostic(
        "X207",
        f"output {name!r} is a string tensor, which the target does not "
        f"support, and {said}: {shown}{more}",
        "note",
        Where(layer=name, kind="output"),
        help="use the index of the largest score",
    )


def _lookup(out: ir.Value) -> tuple[list[str], ir.Value] | None:
    """Return the table and the index of Gather(table, index)."""
    node = out.producer()
    while node is not None and node.op_type in SAME_ELEMENTS and not node.domain and node.inputs[0]:
        node = node.inputs[0].producer()
    if node is None or node.op_type != "Gather" or node.domain:
        return None
    table, index = node.inputs
    if (
        table is None
        or index is None
        or table.const_value is None
        or len(table.const_value.shape) != 1
    ):
        return None
    words = table.const_value.numpy().tolist()
    return [w.decode() if isinstance(w, bytes) else str(w) for w in words], index


def take_out_class_names() -> Pass[Context]:
    """Return the pass of a pipeline; see `take_out_labels`."""
    return Pass(
        "take-out-labels",
        "Remove string outputs that only name classes",
        lambda model, context: context.notes.extend(take_out_labels(model)),
    )
