"""Evaluation of nodes that only depend on constants: compact weights that a layer needs as plain
numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph import EXTENSION_DOMAIN
from converter.graph.build import attributes, attrs_of, builder_before
from converter.graph.infer import RANDOM, Array, constant, evaluate, shape_of
from converter.graph.lazy_tensor import Converted, LazyTensor
from converter.graph.names import Names
from converter.graph.walk import all_graphs, all_nodes, subgraphs
from converter.passes.dead_code import remove_dead_code
from converter.passes.legalize import rewrite_illegal
from converter.passes.pipeline import Context, Pass, change
from converter.record import comparable

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
    "Slice",
    "Squeeze",
    "Unsqueeze",
    "Identity",
    "Concat",
    "UnpackBits",
}


def _foldable(value: ir.Value, depth: int) -> ir.Node | None:
    """Return the producer of a value if this module can evaluate it."""
    node = value.producer()
    known = node is not None and depth <= _DEEPEST and node.op_type in _FOLDABLE
    return node if known else None


def is_constant(value: ir.Value | None, depth: int = 0) -> bool:
    """Return whether `evaluate_constant` would return an array, without computing anything."""
    if value is None or value.const_value is not None or constant(value) is not None:
        return value is not None
    node = _foldable(value, depth)
    if node is None:
        return False
    return bool(node.inputs) and all(v is None or is_constant(v, depth + 1) for v in node.inputs)


def evaluate_constant(value: ir.Value | None, depth: int = 0) -> Array | None:
    """Return the array of a value that depends only on constants; None for activations."""
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
    """Return whether a node computes numbers or codes rather than shapes: compact weights are
    preserved, shape arithmetic is folded.
    """
    return any(o.dtype not in (ir.DataType.INT64, ir.DataType.BOOL) for o in node.outputs)


def unpack(packed: Array, bits: int, order: str = "msb") -> Array:
    """Unpack uint8 numbers of `bits` bits each.

    The first number is in the most significant bits of the first byte or, with order "lsb", in the
    least significant ones.
    """
    stream = np.unpackbits(
        np.ascontiguousarray(packed), bitorder="big" if order == "msb" else "little"
    )
    whole = stream[: stream.size // bits * bits].reshape(-1, bits)
    positions = np.arange(bits - 1, -1, -1) if order == "msb" else np.arange(bits)
    return whole @ (1 << positions).astype(np.uint8)


def unpack_bits(model: ir.Model) -> None:
    """Unpack, in place, constants that are stored as a stream of numbers of a few bits into 8-bit
    numbers.

    For targets without such streams, which would otherwise unpack them in every run.
    """
    names = Names(model)
    for node in list(all_nodes(model.graph)):
        array = evaluate_constant(node.outputs[0]) if node.op_type == "UnpackBits" else None
        if array is not None:
            value = builder_before(node, names).const(array, str(node.outputs[0].name))
            node.outputs[0].replace_all_uses_with(value)


def plain_weights(model: ir.Model, wanted: Callable[[ir.Value], bool] = lambda value: True) -> None:
    """Replace values computed from constants alone by plain constants, in place, for a target
    without compact weights.

    Of the `wanted` results, only those with a consumer outside the computation are stored, not the
    intermediate values.
    """
    fixed = _fixed(model)
    rewrite_illegal(
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
            if out.is_graph_output() or not wanted(out):
                continue
            made = lazily(out) or _computed(out, {})
            if made is not None:
                out.replace_all_uses_with(builder_before(node, names).const(made, str(out.name)))
    remove_dead_code(model)


MANY = 1 << 16  # elements above which results are computed lazily


@comparable
class _Dequantized:
    """A lazy DequantizeLinear of integers with 32-bit scales; `block` is 0 without blocks."""

    scale: LazyTensor
    zero: LazyTensor | None
    axis: int
    block: int

    def __call__(self, array: Array) -> Array:
        real: Array = array.astype(np.float32)
        scales = self.scale.numpy()
        zeros = None if self.zero is None else self.zero.numpy().astype(np.float32)
        if self.block:
            rows = np.moveaxis(real, self.axis, 0)
            scales = np.moveaxis(scales, self.axis, 0)
            zeros = zeros if zeros is None else np.moveaxis(zeros, self.axis, 0)
            parts = [rows[i * self.block : (i + 1) * self.block] for i in range(len(scales))]
        else:
            shape = [-1 if i == self.axis else 1 for i in range(real.ndim)]
            scales = scales if scales.size == 1 else scales.reshape(shape)
            zeros = zeros if zeros is None or zeros.size == 1 else zeros.reshape(shape)
            parts, scales, zeros = [real], scales[None], zeros if zeros is None else zeros[None]
        for i, part in enumerate(parts):  # views, which avoids a second copy of all elements
            if zeros is not None:
                part -= zeros[i]
            part *= scales[i]
        return real


def lazily(value: ir.Value | None, least: int = MANY) -> LazyTensor | None:
    """Return at least `least` 32-bit numbers that depend only on constants, as a tensor that is
    computed on every use and not cached.

    None for fewer numbers, for activations, and for operators that do not occur in compact weights.
    """
    shape = shape_of(value)
    if value is None or shape is None or math.prod(shape) < least:
        return None
    node = value.producer()
    if value.const_value is not None or node is None or node.domain or not node.inputs:
        return None
    source = node.inputs[0]
    if source is None or source.dtype == ir.DataType.STRING or value.dtype != ir.DataType.FLOAT:
        return None
    if node.op_type == "DequantizeLinear":
        return _dequantized(node, shape)
    if node.op_type == "Cast" and source.const_value is not None:
        tensor = LazyTensor.of(source.const_value)
        return tensor.derived(Converted(ir.DataType.FLOAT), ir.DataType.FLOAT)
    if node.op_type not in ("Transpose", "Reshape") or (before := lazily(source, least)) is None:
        return None
    perm = attrs_of(node).get("perm")
    return before.transposed(perm) if node.op_type == "Transpose" else before.reshaped(shape)


def _dequantized(node: ir.Node, shape: tuple[int, ...]) -> LazyTensor | None:
    given = [v for v in node.inputs if v is not None]
    tensors = [v.const_value for v in given]
    if any(t is None for t in tensors) or given[1].dtype != ir.DataType.FLOAT:
        return None
    x, scale, *zero = (LazyTensor.of(t) for t in tensors if t is not None)
    attrs = attributes(node)
    axis = attrs["axis"] % max(1, len(shape))
    change = _Dequantized(scale, zero[0] if zero else None, axis, attrs["block_size"])
    return x.derived(change, ir.DataType.FLOAT)


def _fixed(model: ir.Model) -> set[ir.Value]:
    """Return the values that depend only on constants."""
    found: set[ir.Value] = set()
    for node in all_nodes(model.graph):
        pure = node.op_type not in RANDOM and node.inputs and not any(subgraphs(node))
        if pure and all(v is None or v in found or v.const_value is not None for v in node.inputs):
            found.update(node.outputs)
    return found


def _computed(value: ir.Value, known: dict[ir.Value, Array | None]) -> Array | None:
    """Return the array of a fixed value; each intermediate value is computed once."""
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
    a = attributes(node)
    return [
        unpack(inputs[0], int(a["bits"]), str(a["order"]))[: int(np.prod(a["shape"]))].reshape(
            a["shape"]
        )
    ]


def unpack_constants() -> Pass[Context]:
    """Return the pass of a pipeline; see `unpack_bits`."""
    return change(
        "unpack-bits",
        "Store constants of packed bits as unpacked numbers",
        unpack_bits,
    )


def decode_weights(
    wanted: Callable[[ir.Value], bool] = lambda value: True,
    applies: Callable[[Any], bool] = lambda context: True,
) -> Pass[Any]:
    """Return the pass of a pipeline; see `plain_weights`."""
    return Pass(
        "decode-weights",
        "Store weights that are computed from constants",
        lambda model, _: plain_weights(model, wanted),
        applies,
    )
