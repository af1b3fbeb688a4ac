"""Computing what is constant although it is written as nodes: compact weights that some layer needs
as plain numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from converter.graph import EXTENSION_DOMAIN
from converter.graph.build import attrs_of, builder_before
from converter.graph.infer import RANDOM, Array, constant, evaluate
from converter.graph.names import Names
from converter.graph.walk import all_graphs, all_nodes, subgraphs
from converter.passes.dead_code import remove_dead_code
from converter.passes.legalise import legalise

_DEEPEST = 8
_FOLDABLE = {
    "Cast",
    "DequantizeLinear",
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Neg",
    "Gather",
    "Transpose",
    "Reshape",
    "Squeeze",
    "Unsqueeze",
    "Identity",
    "Concat",
    "UnpackBits",
}


def _foldable(value: ir.Value, depth: int) -> ir.Node | None:
    """The node that makes a value, where it is one that is computed here."""
    node = value.producer()
    known = node is not None and depth <= _DEEPEST and node.op_type in _FOLDABLE
    return node if known else None


def is_constant(value: ir.Value | None, depth: int = 0) -> bool:
    """Whether `evaluate_constant` would give an array, told without computing anything."""
    if value is None or value.const_value is not None or constant(value) is not None:
        return value is not None
    node = _foldable(value, depth)
    if node is None:
        return False
    return bool(node.inputs) and all(v is None or is_constant(v, depth + 1) for v in node.inputs)


def evaluate_constant(value: ir.Value | None, depth: int = 0) -> Array | None:
    """The array of a value that depends on constants only; None for activations."""
    found = constant(value)
    if found is not None or value is None:
        return found
    node = _foldable(value, depth)
    if node is None:
        return None
    inputs = [evaluate_constant(v, depth + 1) if v is not None else None for v in node.inputs]
    if any(v is not None and a is None for v, a in zip(node.inputs, inputs, strict=True)):
        return None
    results = _results(node, inputs)
    return results[0] if results else None


def holds_numbers(node: ir.Node) -> bool:
    """Whether a node computes numbers or codes and not shapes: compact weights stay as they are,
    shape arithmetic is folded.
    """
    return any(o.dtype not in (ir.DataType.INT64, ir.DataType.BOOL) for o in node.outputs)


def unpack(packed: Array, bits: int, order: str = "msb") -> Array:
    """uint8 numbers of `bits` bits each, the first in the most significant bits of the first byte,
    or ("lsb") in the least significant ones.
    """
    stream = np.unpackbits(
        np.ascontiguousarray(packed), bitorder="big" if order == "msb" else "little"
    )
    whole = stream[: stream.size // bits * bits].reshape(-1, bits)
    places = np.arange(bits - 1, -1, -1) if order == "msb" else np.arange(bits)
    return whole @ (1 << places).astype(np.uint8)


def unpack_bits(model: ir.Model) -> None:
    """Constants that are stored as a stream of numbers of a few bits as such of eight, in place:
    for a target that has no such streams and would take them apart whenever it runs.
    """
    names = Names(model)
    for node in list(all_nodes(model.graph)):
        array = evaluate_constant(node.outputs[0]) if node.op_type == "UnpackBits" else None
        if array is not None:
            value = builder_before(node, names).const(array, str(node.outputs[0].name))
            node.outputs[0].replace_all_uses_with(value)


def plain_weights(model: ir.Model, wanted: Callable[[ir.Value], bool] = lambda value: True) -> None:
    """Replaces what is computed from constants alone by its values, in place: a target without
    compact weights stores plain numbers.

    Only results that something else reads are kept, not the steps in between; of those, the
    `wanted` ones.
    """
    fixed = _fixed(model)
    legalise(
        model,
        lambda n: (
            n.domain == EXTENSION_DOMAIN
            and n.op_type != "UnpackBits"
            and all(o in fixed for o in n.outputs)
        ),
        {},
    )
    fixed, names = _fixed(model), Names(model)
    for graph in all_graphs(model.graph):
        for node in list(graph):
            out = node.outputs[0]
            if (
                len(node.outputs) != 1
                or out not in fixed
                or not any(o not in fixed for user, _ in out.uses() for o in user.outputs)
            ):
                continue
            array = _computed(out, {}) if wanted(out) else None
            if array is not None and not out.is_graph_output():
                out.replace_all_uses_with(builder_before(node, names).const(array, str(out.name)))
    remove_dead_code(model)


def _fixed(model: ir.Model) -> set[ir.Value]:
    """The values that depend on constants alone."""
    found: set[ir.Value] = set()
    for node in all_nodes(model.graph):
        pure = node.op_type not in RANDOM and node.inputs and not any(subgraphs(node))
        if pure and all(v is None or v in found or v.const_value is not None for v in node.inputs):
            found.update(node.outputs)
    return found


def _computed(value: ir.Value, known: dict[ir.Value, Array | None]) -> Array | None:
    """The array of a fixed value; each step is computed once."""
    if value.const_value is not None:
        return value.const_value.numpy()
    if value not in known:
        node = value.producer()
        assert node is not None
        inputs = [None if v is None else _computed(v, known) for v in node.inputs]
        known[value] = None
        if all(v is None or a is not None for v, a in zip(node.inputs, inputs, strict=True)):
            results = _results(node, inputs)
            known.update(zip(node.outputs, results, strict=False))
    return known[value]


def _results(node: ir.Node, inputs: list[Array | None]) -> list[Array]:
    if node.op_type != "UnpackBits":
        return [] if node.domain else evaluate(node, inputs)
    assert inputs[0] is not None
    a = attrs_of(node)
    return [
        unpack(inputs[0], int(a["bits"]), str(a.get("order", "msb")))[
            : int(np.prod(a["shape"]))
        ].reshape(a["shape"])
    ]
