"""If, Loop and Scan: their bodies are lifted in the scope of the node that owns them. Scan becomes
Loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.onnx import canonical
from converter.formats.onnx.op import Op
from converter.formats.onnx.scope import Scope
from converter.formats.onnx.types import merge_type
from converter.graph.build import Builder
from converter.graph.infer import InferenceError
from converter.graph.shapes import infer_all
from converter.graph.walk import all_nodes, subgraphs

Graph = Callable[[onnx.GraphProto, Scope, Sequence[ir.Value]], list[ir.Value]]
Hint = Callable[[str, str], str]


def control_flow(
    graph: Graph, hint: Hint, op: Op, scope: Scope, path: str
) -> Sequence[ir.Value | None]:
    """Return the results of an operator with bodies; `graph` reads a body, `hint` is the prefix of
    its inputs' names.
    """
    b = scope.b

    def write(proto: onnx.GraphProto, inner: Builder, inputs: Sequence[ir.Value]) -> list[ir.Value]:
        return graph(proto, scope.inner(inner, f"{path}.{op.kind}"), inputs)

    if op.kind == "Scan":
        return canonical.scan(op, b, write)
    if op.kind == "If" and op.input(0) is None:
        raise MappingError("If lacks its condition", "R105")
    bodies: dict[str, Any] = {}
    for name, proto in op.attrs.items():
        inner = b.body(proto.name or name)
        outputs = write(proto, inner, _formal(hint, proto, inner, op))
        inner.output(*outputs)
        bodies[name] = inner.graph
    if (op.kind == "If" and set(bodies) != {"then_branch", "else_branch"}) or (
        op.kind == "Loop" and set(bodies) != {"body"}
    ):
        raise MappingError(f"{op.kind} lacks its body", "R105")
    if op.kind == "Loop":
        _check_loop(op, bodies["body"])
        if (
            op.input(1) is None and len(op.inputs) < 3
        ):  # a node ends with its last operand, and Loop has at least two
            op.set_input(1, b.const(True, "condition"))
    return b.ops(op.kind, *op.inputs, outputs=len(op.outputs), names=op.outputs, **bodies)


def _formal(hint: Hint, proto: onnx.GraphProto, inner: Builder, op: Op) -> list[ir.Value]:
    """Return the inputs of a Loop's body: typed as declared, else as their initial values."""
    given: list[Any] = [None, None, *op.inputs[2:]] if op.kind == "Loop" else []
    made = []
    for i, info in enumerate(proto.input):
        value = ir.Value(name=inner.names.fresh(hint(info.name, op.kind)))
        merge_type(value, info.type)
        actual = given[i] if i < len(given) else None
        if i < 2 and op.kind == "Loop":
            value.type, value.shape = (
                ir.TensorType(ir.DataType.INT64 if i == 0 else ir.DataType.BOOL),
                value.shape or ir.Shape([]),
            )
        if value.type is None and actual is not None:
            value.type = actual.type
        inner.graph.inputs.append(value)
        made.append(value)
    return made


def _check_loop(op: Op, body: ir.Graph) -> None:
    carried = max(len(op.inputs) - 2, 0)
    if (
        len(body.inputs) != carried + 2
        or len(body.outputs) < carried + 1
        or len(op.outputs) > len(body.outputs) - 1
    ):
        raise MappingError("Loop and its body have different numbers of inputs or outputs", "R105")


def with_sizes(model: ir.Model) -> ir.Model:
    """Give loop states whose bodies declare no shape that of their initial value, if the body
    returns the same shape.
    """
    loops = [n for n in all_nodes(model.graph) if n.op_type == "Loop" and not n.domain]
    if all(v.shape is not None for n in loops for body in subgraphs(n) for v in body.inputs[2:]):
        return model
    sized = model.clone()
    try:
        infer_all(sized)
    except InferenceError:  # of the assumed shapes
        return model
    return sized
