"""Spell out the defaults of a node: two nodes that only differ in omitted defaults are the same.

Sources: the operators' pages of ONNX 1.21 (opset 21), defaults and equivalent forms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph import build
from converter.graph.build import attrs_of
from converter.graph.infer import Array, constant, rank_of, shape_of
from converter.graph.recurrent import DEFAULT_ACTIVATIONS
from converter.graph.value import optional

Attributes = dict[str, Any]
Constants = dict[int, Array]  # by operand index

# attributes that do not affect the outputs that are read
_IDLE = {"momentum", "stash_type", "training_mode"}
_WINDOWS = {
    "Conv",
    "ConvTranspose",
    "MaxPool",
    "AveragePool",
    "LpPool",
    "ConvInteger",
    "QLinearConv",
}
_KERNEL = {"Conv": 1, "ConvTranspose": 1, "ConvInteger": 1, "QLinearConv": 3}
_OF_RESULT = {"Unsqueeze", "OneHot"}  # operators whose axes refer to the result
# operands that default to zeros
_ZEROS = {
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm", "LayerNormalization"), (2,)),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), (3, 5, 6, 7)),
    "Pad": (2,),
}
_BIASED = {"Conv", "ConvTranspose"}
_RESULT_SAYS = {"Reshape": 1, "Expand": 1}  # operand that the shape of the result implies


def attributes(node: ir.Node) -> Attributes:
    """Return all attributes, with defaults for omitted ones; axes count from 0."""
    found = build.attributes(node)
    if node.domain:
        return found
    for name in _IDLE & found.keys():
        del found[name]
    if node.op_type in _WINDOWS:
        _window(node, found)
    if node.op_type in DEFAULT_ACTIVATIONS:
        turns = 2 if found.get("direction") == "bidirectional" else 1
        found.setdefault("activations", DEFAULT_ACTIVATIONS[node.op_type] * turns)
        found.pop("hidden_size", None)  # the weights imply it
    rank = _rank(node)
    if rank and isinstance(found.get("axis"), int):
        found["axis"] %= rank + (node.op_type == "Flatten")
    if node.op_type == "Transpose" and rank:
        found.setdefault("perm", list(range(rank))[::-1])
    if node.op_type == "Resize":
        _resize(found)
    if node.op_type == "Split":
        found.pop("num_outputs", None)
    return found


def _window(node: ir.Node, found: Attributes) -> None:
    weights = optional(node, _KERNEL.get(node.op_type, len(node.inputs)))
    shape = shape_of(weights)
    if shape is not None:
        found.setdefault("kernel_shape", list(shape[2:]))
    count = len(found.get("kernel_shape") or ()) or (rank_of(node.inputs[0]) or 2) - 2
    for name, value, times in (("strides", 1, 1), ("dilations", 1, 1), ("pads", 0, 2)):
        found.setdefault(name, [value] * (count * times))
    if node.op_type == "ConvTranspose":
        found.setdefault("output_padding", [0] * count)
        if found.pop("output_shape", None) is not None and (out := shape_of(node.outputs[0])):
            found["output_shape"] = list(out[2:])
    if node.op_type == "MaxPool" and len(node.outputs) < 2:
        found.pop("storage_order", None)


def _resize(found: Attributes) -> None:
    if found.get("mode") != "cubic":
        found.pop("cubic_coeff_a", None)
    if found.get("mode") != "nearest":
        found.pop("nearest_mode", None)
    if found.get("coordinate_transformation_mode") != "tf_crop_and_resize":
        found.pop("extrapolation_value", None)
    found.pop("axes", None)  # the factors imply them
    found.pop("keep_aspect_ratio_policy", None)


def _rank(node: ir.Node) -> int | None:
    values = node.outputs if node.op_type in _OF_RESULT else node.inputs
    return rank_of(values[0]) if values else None


def added_bias(node: ir.Node) -> Array | None:
    """Return the bias that a single Add after a convolution without a bias adds, one number per
    channel.
    """
    uses = list(node.outputs[0].uses()) if node.op_type in _BIASED and not node.domain else []
    shape = shape_of(node.outputs[0])
    if optional(node, 2) is not None or len(uses) != 1 or shape is None:
        return None
    add = uses[0].node
    array = constant(add.inputs[1 - uses[0].idx]) if add.op_type == "Add" else None
    if array is None or array.ndim > len(shape):
        return None
    full = (1,) * (len(shape) - array.ndim) + array.shape
    return array.reshape(-1) if full[1] == array.size == shape[1] else None


def constants(node: ir.Node) -> Constants:
    """Return the constant operands by index, with defaults for omitted ones, in one form where
    several are equivalent.
    """
    found = {i: c for i, v in enumerate(node.inputs) if (c := constant(v)) is not None}
    if node.domain:
        return found
    if node.op_type in _RESULT_SAYS and shape_of(node.outputs[0]) is not None:
        at = _RESULT_SAYS[node.op_type]
        found[at] = np.array(shape_of(node.outputs[0]), np.int64)
    for i in _ZEROS.get(node.op_type, ()):
        if optional(node, i) is None:
            found[i] = np.zeros((), np.float32)
    special = _SPECIAL.get(node.op_type)
    if special is not None:
        special(node, found)
    elif node.op_type.startswith("Reduce"):
        _axes(node, found, 1)
    return found


def _axes(node: ir.Node, found: Constants, at: int) -> None:
    """Replace axes by sorted ones that count from 0; all axes if omitted."""
    rank = _rank(node)
    if rank is None:
        return
    if at in found:
        found[at] = np.sort(found[at].reshape(-1) % max(rank, 1))
    elif optional(node, at) is None and not attrs_of(node).get("noop_with_empty_axes"):
        found[at] = np.arange(rank)


def _squeeze(node: ir.Node, found: Constants) -> None:
    shape = shape_of(node.inputs[0])
    if 1 not in found and optional(node, 1) is None and shape is not None:
        found[1] = np.flatnonzero(np.array(shape) == 1)
    elif 1 in found:
        _axes(node, found, 1)


def _clip(node: ir.Node, found: Constants) -> None:
    """Replace a bound that no number exceeds, or an omitted one, by infinity."""
    dtype = node.inputs[0].dtype if node.inputs[0] is not None else None
    if dtype is None or not dtype.is_floating_point():
        return
    for i, sign in ((1, -1.0), (2, 1.0)):
        if (i not in found and optional(node, i) is None) or (
            i in found and bool(np.all(sign * found[i] >= np.finfo(np.float32).max))
        ):
            found[i] = np.array(sign * np.inf)


def _slice(node: ir.Node, found: Constants) -> None:
    """Replace starts, ends and steps by those of all axes, clamped to the operand."""
    shape = shape_of(node.inputs[0])
    if shape is None or any(optional(node, i) is not None and i not in found for i in range(1, 5)):
        return
    starts, ends = (found[i].reshape(-1) for i in (1, 2))
    axes = found.get(3, np.arange(len(starts))).reshape(-1)
    steps = found.get(4, np.ones(len(starts), np.int64)).reshape(-1)
    whole = [slice(None)] * len(shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=False):
        low = None if step < 0 and end < -int(shape[axis]) else int(end)
        whole[axis] = slice(int(start), low, int(step))
    declared = [s.indices(n) for s, n in zip(whole, shape, strict=True)]
    for i, column in zip((1, 2, 4), zip(*declared, strict=True), strict=False):
        found[i] = np.array(column, np.int64)
    found[3] = np.arange(len(shape))


def _pad(node: ir.Node, found: Constants) -> None:
    """Replace the padding by that of all axes."""
    rank = rank_of(node.inputs[0])
    if rank is None or 1 not in found or (optional(node, 3) is not None and 3 not in found):
        return
    pads = found[1].reshape(-1)
    axes = found.pop(3, np.arange(rank)).reshape(-1) % max(rank, 1)
    full = np.zeros(2 * rank, np.int64)
    full[axes], full[axes + rank] = pads[: len(axes)], pads[len(axes) :]
    found[1] = full


def _factors(node: ir.Node, found: Constants) -> None:
    """Replace factors or sizes by the factors of all axes."""
    before, after = shape_of(node.inputs[0]), shape_of(node.outputs[0])
    if before is None or after is None or 0 in before:
        return
    sizes, scales = found.pop(3, None), found.get(2)
    if sizes is not None or (scales is not None and scales.size == len(before)):
        exact = scales is not None and scales.size == len(before)
        found[2] = (
            np.asarray(scales, np.float64)
            if exact and scales is not None
            else np.array(after) / np.array(before)
        )
    found.pop(1, None)


def _sizes(node: ir.Node, found: Constants) -> None:
    """Replace the lengths of the parts by those of the results."""
    axis = attributes(node).get("axis", 0)
    shapes = [shape_of(o) for o in node.outputs]
    if all(s is not None for s in shapes):
        found[1] = np.array([s[axis] for s in shapes if s is not None])


_SPECIAL: dict[str, Callable[[ir.Node, Constants], None]] = {
    "Clip": _clip,
    "Pad": _pad,
    "Resize": _factors,
    "Slice": _slice,
    "Split": _sizes,
    "Squeeze": _squeeze,
    "Unsqueeze": lambda n, c: _axes(n, c, 1),
}
