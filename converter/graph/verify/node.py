"""Constraints of an operator on its attributes and operands beyond those that onnx's inference
checks.

Hostile and damaged files contain invalid values: a stride of 0, a window larger than its input, a
group that does not divide the channels. They are refused when the node is created, for every
source format. Source: the operators' specifications (ONNX operators, opset 21).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from converter.graph import REDUCTIONS
from converter.graph.known import known
from converter.graph.value import optional
from converter.graph.verify import operands as operand_checks
from converter.graph.verify.enumerations import unknown_word
from converter.graph.verify.indexing import CHECKS, nested
from converter.graph.verify.shapes_of import (
    Dims,
    Law,
    attribute,
    broadcasts,
    differ,
    dims_of,
    in_body,
    sizes_of,
    unlike,
    window_of,
)
from converter.graph.windows import LARGEST, window_fault

MOST = 1 << 48  # elements of one tensor; above, sizes in bytes may exceed 64 bits
FLAGS = frozenset(
    (
        "keepdims",
        "select_last_index",
        "noop_with_empty_axes",
        "largest",
        "sorted",
        "exclusive",
        "reverse",
        "ceil_mode",
        "count_include_pad",
        "transA",
        "transB",
    )
)
VARIADIC = frozenset(
    ("Concat", "Sum", "Max", "Min", "Mean")
)  # operators with any number of operands, all of which are significant
_ANY_NUMBER = frozenset(
    ("Constant", "Shape", "StringSplit", "TfIdfVectorizer")
)  # operators whose attributes are values, or may be arbitrarily large


def check_attributes(node: ir.Node) -> str | None:
    """Return why onnx's own inference must not be called, because it crashes on some numbers; or
    None.
    """
    if node.op_type not in _ANY_NUMBER:
        for a in node.attributes.values():
            if a.type in (ir.AttributeType.INT, ir.AttributeType.INTS) and not a.is_ref():
                beyond = [
                    n
                    for n in (a.value if a.type == ir.AttributeType.INTS else [a.value])
                    if not -LARGEST <= n < LARGEST
                ]
                if beyond:
                    return f"{a.name} has the invalid value {beyond[0]}"
    if node.op_type == "Split" and (count := node.attributes.get("num_outputs")) is not None:
        parts = len(node.outputs)
        return (
            None
            if count.value == parts
            else f"num_outputs is {count.value}, but there are {parts} outputs"
        )
    return nested(node) if node.op_type == "GatherND" else None


def verify_node(node: ir.Node) -> str | None:
    """Return why the node cannot be executed with any data, or None; inputs and outputs must have
    types and shapes.
    """
    for name in FLAGS.intersection(node.attributes):
        if attribute(node, name, 0) not in (0, 1):
            return f"{name} must be 0 or 1, got {attribute(node, name, 0)}"
    if (reason := unknown_word(node)) is not None:
        return reason
    check = _CHECKS.get(node.op_type)
    if check is not None and (reason := check(node)) is not None:
        return reason
    if check is None and in_body(node):  # a branch of an If that is never taken may be invalid
        return None
    return next(filter(None, map(check_shape, node.outputs)), None)


def check_shape(value: ir.Value) -> str | None:
    """Return why no tensor can have the value's shape, or None."""
    size = 1
    for d in value.shape or ():
        if isinstance(d, int):
            if d < 0:
                return f"the shape of {value.name!r} has the invalid dimension {d}"
            size *= max(d, 1)
    return f"{value.name!r} would have {size} elements, which is too many" if size > MOST else None


def _window(
    node: ir.Node, kernel: Sequence[int | None], size: Dims | None, shrinks: bool = True
) -> str | None:
    """Check that kernel, strides, dilations and pads are consistent and, for an operator that
    shrinks, fit the input.
    """
    n = len(kernel)
    strides, dilations, pads = window_of(node, n)
    if reason := window_fault(kernel, strides, dilations, pads):
        return reason
    if size is not None and len(size) != n:
        return f"a window of {n} axes does not fit {len(size)} axes"
    if not shrinks or size is None or attribute(node, "auto_pad", "NOTSET") != "NOTSET":
        return None
    rounded_up = bool(
        attribute(node, "ceil_mode", 0)
    )  # a window may then extend beyond the end by less than a stride
    for i, (s, k) in enumerate(zip(size, kernel, strict=True)):
        if not s or k is None:
            continue
        padded, window = s + pads[i] + pads[n + i], (k - 1) * dilations[i] + 1
        if padded + (strides[i] - 1 if rounded_up else 0) < window:
            return f"the window {window} is larger than the padded input {padded}"
    return None


def _convolution(node: ir.Node) -> str | None:
    x, w, bias = (dims_of(node, i) for i in range(3))
    group = int(attribute(node, "group", 1))
    if w is None or len(w) < 2:
        return "the weights have no channels" if w is not None else None
    kernel: Dims = list(attribute(node, "kernel_shape", w[2:]))
    if len(kernel) != len(w) - 2 or any(differ(k, d) for k, d in zip(kernel, w[2:], strict=True)):
        return f"the kernel {kernel} does not match the weights {w}"
    transposed = node.op_type == "ConvTranspose"
    inside, outside = (w[0], w[1]) if transposed else (w[1], w[0])
    if group < 1 or (w[0] is not None and w[0] % group):
        return f"{w[0]} channels cannot be divided into {group} groups"
    if (
        x is not None
        and len(x) > 1
        and differ(x[1], inside if transposed or inside is None else inside * group)
    ):
        return f"the weights {w} in {group} groups do not fit the {x[1]} channels of the input"
    if unlike(bias, [outside * group if transposed and outside is not None else outside]):
        return f"the bias {bias} does not fit the weights {w}"
    return _window(node, kernel, None if x is None else x[2:], not transposed)


def _pool(node: ir.Node) -> str | None:
    x, order = dims_of(node, 0), attribute(node, "storage_order", 0)
    if order not in (0, 1):
        return f"storage_order must be 0 or 1, got {order}"
    return operand_checks.power(node) or _window(
        node, list(attribute(node, "kernel_shape", ())), None if x is None else x[2:]
    )


def _channels(node: ir.Node) -> str | None:
    """Check normalizations: one scale, bias, mean and variance per channel."""
    x = dims_of(node, 0)
    channels = (
        x[1]
        if x is not None and len(x) > 1
        else 1
        if x is not None and node.op_type == "BatchNormalization"
        else None
    )
    for i in range(1, len(node.inputs)):
        if unlike(given := dims_of(node, i), [channels]):
            return f"input {i} has the shape {given}, but the data has {channels} channels"
    return None


def _recurrent(node: ir.Node) -> str | None:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[node.op_type]
    ways = 2 if attribute(node, "direction", "forward") == "bidirectional" else 1
    x, hidden = dims_of(node, 0), attribute(node, "hidden_size", None)
    features = x[2] if x is not None and len(x) == 3 else None
    rows, biases = (None if hidden is None else n * int(hidden) for n in (gates, 2 * gates))
    operands: tuple[Dims, ...] = ([ways, rows, features], [ways, rows, hidden], [ways, biases])
    for i, wanted in enumerate(operands, 1):
        if unlike(given := dims_of(node, i), wanted):
            return f"input {i} must have the shape {wanted}, got {given}"
    return _states(node, ways, hidden, x) if not attribute(node, "layout", 0) else None


def _states(node: ir.Node, ways: int, hidden: int | None, x: Dims | None) -> str | None:
    """Check the initial states, [ways, batch, hidden]."""
    wanted: Dims = [ways, x[1] if x is not None and len(x) == 3 else None, hidden]
    for i in (5, 6) if node.op_type == "LSTM" else (5,):
        if unlike(given := dims_of(node, i), wanted):
            return f"the initial state must have the shape {wanted}, got {given}"
    return None


def _blocks(node: ir.Node) -> str | None:
    x, size = dims_of(node, 0), int(attribute(node, "blocksize", 1))
    if size < 1:
        return f"the block size must be positive, got {size}"
    parts = (
        []
        if x is None or len(x) != 4
        else [(x[1], size * size)]
        if node.op_type == "DepthToSpace"
        else [(x[2], size), (x[3], size)]
    )
    bad = [d for d, by in parts if d is not None and d % by]
    return f"{bad[0]} elements cannot be divided into blocks of {size}" if bad else None


def _slope(node: ir.Node) -> str | None:
    x, slope = dims_of(node, 0), dims_of(node, 1)
    if x is None or slope is None:
        return None
    return None if broadcasts(slope, x) else f"the slope {slope} does not fit the shape {x}"


def _depth(node: ir.Node) -> str | None:
    size = int(attribute(node, "size", 1))
    return None if 0 < size < LARGEST else f"size must be positive, got {size}"


def _constant(node: ir.Node, index: int) -> list[int] | None:
    found = known(optional(node, index))
    return None if found is None else [int(n) for n in found.reshape(-1).tolist()]


def _reduction(node: ir.Node) -> str | None:
    x, axes, given = dims_of(node, 0), _constant(node, 1), dims_of(node, 1)
    if given is not None and len(given) > 1:
        return f"axes must be a vector, got the shape {given}"
    if x is not None and given and given[0] is not None and given[0] > len(x):
        return f"{given[0]} axes do not fit an input of rank {len(x)}"
    if x is None or axes is None:
        return None
    return operand_checks.different_axes(axes, x)


def _slice(node: ir.Node) -> str | None:
    """Check that starts, ends, axes and steps have the same length, and that no step is 0."""
    x, given = (
        dims_of(node, 0),
        [d for i in range(1, len(node.inputs)) if (d := dims_of(node, i)) is not None],
    )
    if any(len(d) != 1 for d in given) or len({d[0] for d in given if d[0] is not None}) > 1:
        return f"starts, ends, axes and steps have the shapes {given}, which do not fit each other"
    if x is not None and any(d[0] is not None and d[0] > len(x) for d in given):
        return f"{given[0][0]} axes are sliced, but the input has {len(x)}"
    return "a step must not be 0" if 0 in (_constant(node, 4) or ()) else None


def _tile(node: ir.Node) -> str | None:
    x, repeats = dims_of(node, 0), _constant(node, 1)
    return (
        None
        if x is None or repeats is None or (len(repeats) == len(x) and min(repeats, default=0) >= 0)
        else f"{repeats} repeats do not fit the shape {x}"
    )


def _reshape(node: ir.Node) -> str | None:
    """Check a Reshape; in a branch of an If that is never taken, sizes may be contradictory."""
    before, after = (sizes_of(v) for v in (node.inputs[0], node.outputs[0]))
    if in_body(node) or before is None or after is None or math.prod(before) == math.prod(after):
        return None
    return f"{math.prod(before)} elements of the shape {before} do not fit the shape {after}"


def _transpose(node: ir.Node) -> str | None:
    x, perm = dims_of(node, 0), attribute(node, "perm", None)
    return (
        None
        if x is None or perm is None or sorted(perm) == list(range(len(x)))
        else f"{list(perm)} is not a permutation of the {len(x)} axes of the input"
    )


def _blocked(x: Dims | None, scale: Dims | None, axis: int, block: int) -> str | None:
    """Check that there is one scale per `block` elements along the axis."""
    if x is None or scale is None:
        return None
    if block < 0 or not -len(x) <= axis < len(x):
        return f"blocks of {block} along axis {axis} do not fit the shape {x}"
    wanted = [
        -(-d // block) if d is not None and i == axis % len(x) else d for i, d in enumerate(x)
    ]
    return f"scales must have the shape {wanted}, got {scale}" if unlike(scale, wanted) else None


def _quantized(node: ir.Node) -> str | None:
    """Check that scale and zero point are per tensor, or per element along `axis`."""
    x, scale, zero = (dims_of(node, i) for i in range(3))
    axis = int(attribute(node, "axis", 1))
    if block := int(attribute(node, "block_size", 0)):
        return _blocked(x, scale, axis, block)
    one: tuple[Dims, Dims] = ([], [1])  # per tensor
    if scale is not None and not (zero in one and scale in one) and unlike(zero, scale):
        return f"zero points of shape {zero} do not fit scales of shape {scale}"
    if x is None or scale is None or len(scale) != 1 or scale[0] == 1:
        return None
    if not -len(x) <= axis < len(x) or differ(x[axis], scale[0]):
        return f"{scale[0]} scales along axis {axis} do not fit the shape {x}"
    return None


_CHECKS: dict[str, Law] = {
    **CHECKS,
    **operand_checks.CHECKS,
    **dict.fromkeys(("Conv", "ConvTranspose"), _convolution),
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), _pool),
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization"), _channels),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), _blocks),
    "PRelu": _slope,
    "LRN": _depth,
    "Transpose": _transpose,
    **dict.fromkeys(REDUCTIONS, _reduction),
    **dict.fromkeys(("Reshape", "Unsqueeze", "Squeeze"), _reshape),
    "Slice": _slice,
    "Tile": _tile,
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _quantized),
}
