"""onnx's reference evaluator as a second opinion: slow, written independently of onnxruntime, and
wrong in known cases.

Operators that it computes wrongly (measured with the operator tests of the onnx package, and on our
own cases) are decomposed into other operators where possible, and refused otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from converter.engines import Prepared, prepared, refusing
from converter.engines.onnxruntime import refuse_opaque
from converter.errors import Diagnostic, UnsupportedError
from converter.graph.build import Builder, attrs_of
from converter.graph.extensions import can_expand, expand
from converter.graph.infer import known, shape_of
from converter.graph.names import Names, source_location
from converter.graph.value import optional
from converter.graph.walk import all_nodes
from converter.passes.legalize import rewrite_illegal

if TYPE_CHECKING:
    from converter.graph.network import Network


def prepare(model: Network) -> Prepared:
    """Prepare the model. Raises UnsupportedError N403 that names every operator that the evaluator
    is known to compute wrongly.
    """
    from onnx.reference import ReferenceEvaluator

    refuse_opaque(model.ir)
    clone = model.ir.clone()
    names = Names(clone)
    while pending := [n for n in all_nodes(clone.graph) if can_expand(n)]:
        for node in pending:
            expand(node, names)
    rewrite_illegal(clone, lambda n: known_error(n) != "", {})
    problems = [
        Diagnostic(
            "N403",
            f"onnx.reference computes {n.op_type} incorrectly: {why}",
            where=source_location(n),
        )
        for n in all_nodes(clone.graph)
        if (why := known_error(n))
    ]
    if problems:
        raise UnsupportedError(problems)
    _stack_results(clone, Names(clone))
    with refusing(UnsupportedError, "onnx.reference cannot run this model"):
        evaluator = ReferenceEvaluator(ir.to_proto(clone))
    inputs = [str(v.name) for v in model.ir.graph.inputs]

    def compute(arrays: list[Any]) -> list[Any]:
        with np.errstate(all="ignore"):
            results = evaluator.run(None, dict(zip(inputs, arrays, strict=True)))
        return [r if r is None or isinstance(r, list) else np.asarray(r) for r in results]

    return prepared(model, "onnx.reference", compute, evaluator)


def known_error(node: ir.Node) -> str:
    """Return why the evaluator's result for this node is wrong; "" if it is right."""
    rule = KNOWN.get(node.op_type) if node.domain == "" else None
    return "" if rule is None else rule(attrs_of(node), node)


def _recurrent(attrs: dict[str, Any], node: ir.Node) -> str:
    x, lengths = node.inputs[0], optional(node, 4)
    full = lengths is None or (
        (k := known(lengths)) is not None
        and x is not None
        and x.shape is not None
        and bool(np.all(k == x.shape[0]))
    )
    if not full:
        return "sequence_lens is ignored"
    ignored = [k for k in ("clip", "activations", "input_forget") if attrs.get(k)]
    return f"{ignored[0]} is ignored" if ignored else ""


def _max_pool(attrs: dict[str, Any], node: ir.Node) -> str:
    pads = list(attrs.get("pads") or [])
    if len(node.outputs) > 1:
        return "the indices of the maxima are counted differently"
    return (
        "unequal padding with ceil_mode=1 is computed differently"
        if attrs.get("ceil_mode", 0) or pads[: len(pads) // 2] != pads[len(pads) // 2 :]
        else ""
    )


def _resize(attrs: dict[str, Any], node: ir.Node) -> str:
    if attrs.get("coordinate_transformation_mode") != "align_corners" or node.inputs[0] is None:
        return ""
    before, after = shape_of(node.inputs[0]), shape_of(node.outputs[0])
    shrinks = (
        before is None or after is None or any(a < o for o, a in zip(before, after, strict=True))
    )
    return "align_corners on a shrinking axis is computed differently" if shrinks else ""


def _loop(attrs: dict[str, Any], node: ir.Node) -> str:
    stacked = node.attributes["body"].as_graph().outputs[max(len(node.inputs) - 2, 0) + 1 :]
    return (
        "stacked results of unknown rank are not supported"
        if any(v.shape is None for v in stacked)
        else ""
    )


def _grid_sample(attrs: dict[str, Any], node: ir.Node) -> str:
    return (
        "cubic interpolation with padding is computed differently"
        if attrs.get("mode") == "cubic" and attrs.get("padding_mode", "zeros") != "zeros"
        else ""
    )


KNOWN: dict[str, Callable[[dict[str, Any], ir.Node], str]] = {
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent),
    "ConvTranspose": lambda a, n: "groups" if a.get("group", 1) != 1 else "",
    "GlobalLpPool": lambda a, n: "there is no implementation",
    "GridSample": _grid_sample,
    "LRN": lambda a, n: "the window is computed differently",
    "LpNormalization": lambda a, n: "p = 1" if a.get("p", 2) == 1 else "",
    "MaxPool": _max_pool,
    "Loop": _loop,
    "Optional": lambda a, n: "an optional sequence is returned in another form",
    "Resize": _resize,
}


def _stack_results(model: ir.Model, names: Names) -> None:
    """Adapt loops to the reference evaluator, which concatenates scan outputs along an existing
    axis: unsqueeze the results in the body, or squeeze the column of scalars afterwards.
    """
    for node in [n for n in all_nodes(model.graph) if n.op_type == "Loop" and n.domain == ""]:
        body, carried = node.attributes["body"].as_graph(), max(len(node.inputs) - 2, 0)
        for i in range(carried, len(node.outputs)):
            value, out = body.outputs[i + 1], node.outputs[i]
            if value.shape is None or not isinstance(node.graph, ir.Graph):
                continue
            if value.shape.rank():
                b = Builder(body, names)
                body.outputs[i + 1] = b.Unsqueeze(value, [0])
                continue
            column = ir.Node(
                "", "Squeeze", [out, Builder(node.graph, names).const(np.array([1]))], num_outputs=1
            )
            column.outputs[0].type, column.outputs[0].shape = out.type, out.shape
            name = out.name
            out.replace_all_uses_with(column.outputs[0], replace_graph_outputs=True)
            column.replace_input_with(0, out)
            out.name, column.outputs[0].name, out.shape = names.fresh(f"{name}_column"), name, None
            node.graph.insert_after(node, column)
