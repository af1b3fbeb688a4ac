"""What an operator demands of its attributes and operands beyond what onnx's inference looks at.

Hostile and damaged files hold such values: a stride of 0, a window larger than its input, a group that does not divide the channels. They
are refused where the node is made, whatever format they come from. Source: the operators' specifications (ONNX operators, opset 21).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.words import unknown_word

MOST = 1 << 48  # elements of one tensor; beyond, sizes in bytes leave 64 bits
LARGEST = 1 << 31  # of one parameter of a window
BODY = "netconv.body"  # key of the meta data of a graph inside a node
MOST_ENTRIES = 1 << 12  # of a constant that is looked into
MOST_INDICES = 1 << 20  # of constant indices that are looked into
FLAGS = frozenset(
    ("keepdims", "select_last_index", "noop_with_empty_axes", "largest", "sorted", "exclusive", "reverse", "ceil_mode", "count_include_pad", "transA", "transB")
)
VARIADIC = frozenset(("Concat", "Sum", "Max", "Min", "Mean"))  # operators of any number of operands, all of which count
_TERM = re.compile(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*")  # of an equation of Einsum
_ANY_NUMBER = frozenset(("Constant", "Shape", "StringSplit", "TfIdfVectorizer"))  # whose attributes are values, or may count to any end
Dims = list[int | None]


def wild(node: ir.Node) -> str | None:
    """Why onnx's own inference must not even be asked: it does not survive some numbers; or None."""
    if node.op_type not in _ANY_NUMBER:
        for a in node.attributes.values():
            if a.type in (ir.AttributeType.INT, ir.AttributeType.INTS) and not a.is_ref():
                beyond = [n for n in (a.value if a.type == ir.AttributeType.INTS else [a.value]) if not -LARGEST <= n < LARGEST]
                if beyond:
                    return f"{a.name} is {beyond[0]}"
    return _nested(node) if node.op_type == "GatherND" else None


def broken(node: ir.Node) -> str | None:
    """Why the node cannot be executed whatever it is fed, or None; inputs and outputs carry their types and shapes."""
    for name in FLAGS.intersection(node.attributes):
        if _attr(node, name, 0) not in (0, 1):
            return f"{name} is {_attr(node, name, 0)}, not 0 or 1"
    if (reason := unknown_word(node)) is not None:
        return reason
    law = _LAWS.get(node.op_type)
    if law is None:  # the branch of an If that is never taken may hold any nonsense of shapes
        return None
    return law(node) or next(filter(None, map(impossible, node.outputs)), None)


def impossible(value: ir.Value) -> str | None:
    """Why no tensor can have the value's shape, or None."""
    size = 1
    for d in value.shape or ():
        if isinstance(d, int):
            if d < 0:
                return f"the shape of {value.name!r} has the dimension {d}"
            size *= max(d, 1)
    return f"{value.name!r} would have {size} elements" if size > MOST else None


def _dims(node: ir.Node, index: int) -> Dims | None:
    value = node.inputs[index] if index < len(node.inputs) else None
    return None if value is None or value.shape is None else [d if isinstance(d, int) else None for d in value.shape]


def _attr(node: ir.Node, name: str, default: Any) -> Any:
    return node.attributes[name].value if name in node.attributes and not node.attributes[name].is_ref() else default


def _differ(a: int | None, b: int | None) -> bool:
    return a is not None and b is not None and a != b


def _window(node: ir.Node, kernel: Sequence[int | None], size: Dims | None, shrinks: bool = True) -> str | None:
    """Kernel, strides, dilations and pads fit each other and, for an operator that shrinks, the input."""
    n = len(kernel)
    strides, dilations, pads = (list(_attr(node, name, [d] * m)) for name, d, m in (("strides", 1, n), ("dilations", 1, n), ("pads", 0, 2 * n)))
    if len(strides) != n or len(dilations) != n or len(pads) != 2 * n or (size is not None and len(size) != n):
        return f"a window of {n} axes has {len(strides)} strides, {len(dilations)} dilations, {len(pads)} pads" + (f", {len(size)} sizes" if size else "")
    for name, values, least in (("kernel", kernel, 1), ("stride", strides, 1), ("dilation", dilations, 1), ("pad", pads, -LARGEST)):
        for v in values:
            if v is not None and not least <= v < LARGEST:
                return f"the {name} {v} is impossible"
    if not shrinks or size is None or _attr(node, "auto_pad", "NOTSET") != "NOTSET":
        return None
    for i, (s, k) in enumerate(zip(size, kernel, strict=True)):
        if s and k is not None and s + pads[i] + pads[n + i] < (k - 1) * dilations[i] + 1:
            return f"the window {(k - 1) * dilations[i] + 1} is larger than the padded input {s + pads[i] + pads[n + i]}"
    return None


def _convolution(node: ir.Node) -> str | None:
    x, w, bias, group = _dims(node, 0), _dims(node, 1), _dims(node, 2), int(_attr(node, "group", 1))
    if w is None or len(w) < 2:
        return "the weights have no channels" if w is not None else None
    kernel: Dims = list(_attr(node, "kernel_shape", w[2:]))
    if len(kernel) != len(w) - 2 or any(_differ(k, d) for k, d in zip(kernel, w[2:], strict=True)):
        return f"the kernel {kernel} is not that of the weights {w}"
    transposed = node.op_type == "ConvTranspose"
    inside, outside = (w[0], w[1]) if transposed else (w[1], w[0])
    if group < 1 or (w[0] is not None and w[0] % group):
        return f"{w[0]} channels cannot be divided into {group} groups"
    if x is not None and len(x) > 1 and _differ(x[1], inside if transposed or inside is None else inside * group):
        return f"the weights {w} in {group} groups do not fit the {x[1]} channels of the input"
    if bias is not None and (len(bias) != 1 or _differ(bias[0], outside * group if transposed and outside is not None else outside)):
        return f"the bias {bias} does not fit the weights {w}"
    return _window(node, kernel, None if x is None else x[2:], not transposed)


def _pool(node: ir.Node) -> str | None:
    x = _dims(node, 0)
    return _window(node, list(_attr(node, "kernel_shape", ())), None if x is None else x[2:])


def _channels(node: ir.Node) -> str | None:
    """Normalisations: one scale, bias, mean and variance for each channel."""
    x = _dims(node, 0)
    channels = x[1] if x is not None and len(x) > 1 else 1 if x is not None and node.op_type == "BatchNormalization" else None
    for i in range(1, len(node.inputs)):
        given = _dims(node, i)
        if given is not None and (len(given) != 1 or _differ(given[0], channels)):
            return f"input {i} has the shape {given}, the data has {channels} channels"
    return None


def _recurrent(node: ir.Node) -> str | None:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[node.op_type]
    ways = 2 if _attr(node, "direction", "forward") == "bidirectional" else 1
    x, hidden = _dims(node, 0), _attr(node, "hidden_size", None)
    features = x[2] if x is not None and len(x) == 3 else None
    for i, wanted in ((1, (ways, gates, features)), (2, (ways, gates, hidden)), (3, (ways, 2 * gates))):
        given = _dims(node, i)
        exact = None if given is None else [wanted[0], None if hidden is None else wanted[1] * int(hidden), *wanted[2:]]
        if given is not None and exact is not None and (len(given) != len(exact) or any(_differ(a, b) for a, b in zip(given, exact, strict=True))):
            return f"input {i} has the shape {given} instead of {exact}"
    return None


def _blocks(node: ir.Node) -> str | None:
    x, size = _dims(node, 0), int(_attr(node, "blocksize", 1))
    if size < 1:
        return f"the block size {size} is impossible"
    parts = [] if x is None or len(x) != 4 else [(x[1], size * size)] if node.op_type == "DepthToSpace" else [(x[2], size), (x[3], size)]
    bad = [d for d, by in parts if d is not None and d % by]
    return f"{bad[0]} cannot be divided into blocks of {size}" if bad else None


def _slope(node: ir.Node) -> str | None:
    x, slope = _dims(node, 0), _dims(node, 1)
    if x is None or slope is None:
        return None
    fits = len(slope) <= len(x) and not any(s not in (1, None) and _differ(s, d) for s, d in zip(slope[::-1], x[::-1], strict=False))
    return None if fits else f"the slope {slope} does not fit the shape {x}"


def _depth(node: ir.Node) -> str | None:
    size = int(_attr(node, "size", 1))
    return None if 0 < size < LARGEST else f"the size {size} is impossible"


def _elements(node: ir.Node) -> str | None:
    x, index = _dims(node, 0), _dims(node, 1)
    if x is not None and index is not None and len(x) != len(index):
        return f"indices of {len(index)} axes into data of {len(x)}"
    return _gathered(node)


def _inside(node: ir.Node, sizes: Sequence[int | None]) -> str | None:
    """Constant indices, the last axis of which counts along `sizes`, lie between -size and size; a branch never taken may hold others."""
    from converter.graph.infer import constant  # which asks these laws

    found = None if _in_body(node) else constant(node.inputs[1])
    if found is None or found.size > MOST_INDICES or found.dtype.kind not in "iu":
        return None
    index = found.reshape(-1, max(len(sizes), 1))
    for i, size in enumerate(sizes):
        wrong = index[:, i][(index[:, i] < -size) | (index[:, i] >= size)] if size is not None else np.zeros(0)
        if wrong.size:
            return f"the index {wrong[0]} is outside the {size} places"
    return None


def _nested(node: ir.Node) -> str | None:
    """GatherND and ScatterND: the last axis of the indices names a place along the first axes of the data, behind those of the batch."""
    x, index, batch = _dims(node, 0), _dims(node, 1), int(_attr(node, "batch_dims", 0))
    if x is None or index is None:
        return None
    if not 0 <= batch < max(min(len(x), len(index)), 1):
        return f"{batch} axes of a batch are impossible for data {x} and indices {index}"
    depth = index[-1] if index else 0
    if depth is None:
        return None
    return _inside(node, x[batch : batch + depth]) if 0 < depth <= len(x) - batch else f"indices {index} of {depth} axes into data {x}"


def _clip(node: ir.Node) -> str | None:
    sizes = [s for v in node.inputs[1:] if (s := _sizes(v)) is not None]
    if any(math.prod(s) != 1 for s in sizes):
        return f"a bound is one number, not an array of the shape {next(s for s in sizes if math.prod(s) != 1)}"
    bounds = [v.const_value.numpy() for v in node.inputs[1:] if v is not None and v.const_value is not None]
    return "a bound is not a number" if any(b.dtype.kind == "f" and np.isnan(b).any() for b in bounds) else None


def _celu(node: ir.Node) -> str | None:
    return "alpha is 0, by which the data are divided" if _attr(node, "alpha", 1.0) == 0 else None


def _einsum(node: ir.Node) -> str | None:
    equation = str(_attr(node, "equation", "")).replace(" ", "")
    terms, _, output = equation.partition("->")
    wrong = [t for t in (*terms.split(","), output) if not _TERM.fullmatch(t)]
    if wrong or not set(output) <= set(terms) or any(output.count(c) > 1 for c in output if c != "."):
        return f"{equation[:200]!r} is no equation"
    return None if terms.count(",") + 1 == len(node.inputs) else f"{equation[:200]!r} has not as many terms as there are operands"


def _layers(node: ir.Node) -> str | None:
    """Scale and bias of a LayerNormalization broadcast to what is normalised together."""
    x = _dims(node, 0)
    for i in (1, 2):
        given = _dims(node, i)
        if x is not None and given is not None and any(s not in (1, None) and _differ(s, d) for s, d in zip(given[::-1], x[::-1], strict=False)):
            return f"input {i} has the shape {given}, which does not fit the shape {x}"
    return _axis(node)


def _suppression(node: ir.Node) -> str | None:
    """Boxes [images, n, 4], scores [images, classes, n], limits of one number each."""
    boxes, scores = _dims(node, 0), _dims(node, 1)
    if boxes is not None and (len(boxes) != 3 or _differ(boxes[2], 4)):
        return f"boxes of the shape {boxes}"
    if scores is not None and (len(scores) != 3 or (boxes is not None and (_differ(scores[0], boxes[0]) or _differ(scores[2], boxes[1])))):
        return f"scores of the shape {scores} for boxes of the shape {boxes}"
    limits = [s for i in (2, 3, 4) if i < len(node.inputs) and (s := _sizes(node.inputs[i])) is not None and math.prod(s) != 1]
    return f"a limit of the shape {limits[0]}" if limits else None


def _turned(node: ir.Node) -> str | None:
    batch, time = int(_attr(node, "batch_axis", 1)), int(_attr(node, "time_axis", 0))
    return None if {batch, time} == {0, 1} else f"the axes {batch} of the batch and {time} of time are not 0 and 1"


def _constant(node: ir.Node, index: int) -> list[int] | None:
    value = node.inputs[index] if index < len(node.inputs) else None
    if value is None or value.const_value is None or value.const_value.size > MOST_ENTRIES:
        return None
    return [int(n) for n in value.const_value.numpy().reshape(-1).tolist()]


def _reduction(node: ir.Node) -> str | None:
    x, axes = _dims(node, 0), _constant(node, 1)
    if x is None or axes is None:
        return None
    fits = all(-len(x) <= a < len(x) for a in axes) and len({a % len(x) for a in axes}) == len(axes) if x else not axes
    return None if fits else f"{axes} are not different axes of the shape {x}"


def _slice(node: ir.Node) -> str | None:
    """Starts, ends, axes and steps: as many of one as of the other, no step of 0."""
    x, given = _dims(node, 0), [d for i in range(1, len(node.inputs)) if (d := _dims(node, i)) is not None]
    if any(len(d) != 1 for d in given) or len({d[0] for d in given if d[0] is not None}) > 1:
        return f"starts, ends, axes and steps of the shapes {given} do not fit each other"
    if x is not None and any(d[0] is not None and d[0] > len(x) for d in given):
        return f"{given[0][0]} axes are cut, the input has {len(x)}"
    return "a step is 0" if 0 in (_constant(node, 4) or ()) else None


def _tile(node: ir.Node) -> str | None:
    x, repeats = _dims(node, 0), _constant(node, 1)
    return None if x is None or repeats is None or (len(repeats) == len(x) and min(repeats, default=0) >= 0) else f"{repeats} repeats for the shape {x}"


def _reshape(node: ir.Node) -> str | None:
    """In the branch of an If that is never taken sizes may well contradict each other."""
    before, after = (_sizes(v) for v in (node.inputs[0], node.outputs[0]))
    if _in_body(node) or before is None or after is None or math.prod(before) == math.prod(after):
        return None
    return f"{math.prod(before)} elements of the shape {before} do not fit the shape {after}"


def _in_body(node: ir.Node) -> bool:
    return isinstance(node.graph, ir.Graph) and BODY in node.graph.meta


def _sizes(value: ir.Value | None) -> list[int] | None:
    if value is None or value.shape is None or not all(isinstance(d, int) for d in value.shape):
        return None
    return [int(d) for d in value.shape if isinstance(d, int)]


def _axis(node: ir.Node) -> str | None:
    x, axis = _dims(node, 0), int(_attr(node, "axis", -1))
    return None if x is None or not x or -len(x) <= axis < len(x) else f"there is no axis {axis} of the shape {x}"


def _gathered(node: ir.Node) -> str | None:
    x, axis = _dims(node, 0), int(_attr(node, "axis", 0))
    if x is not None and not -len(x) <= axis < len(x):
        return f"there is no axis {axis} of the shape {x}"
    return None if x is None else _inside(node, [x[axis]])


def _transpose(node: ir.Node) -> str | None:
    x, perm = _dims(node, 0), _attr(node, "perm", None)
    return None if x is None or perm is None or sorted(perm) == list(range(len(x))) else f"{list(perm)} is not an order of the {len(x)} axes of the input"


def _quantised(node: ir.Node) -> str | None:
    """One scale and zero point for all, or one for each place along `axis`."""
    x, scale, zero, axis = _dims(node, 0), _dims(node, 1), _dims(node, 2), int(_attr(node, "axis", 1))
    one: tuple[Dims, Dims] = ([], [1])  # one scale for all
    if zero is not None and scale is not None and not (zero in one and scale in one) and (len(zero) != len(scale) or any(map(_differ, zero, scale))):
        return f"the zero points {zero} do not fit the scales {scale}"
    if x is None or scale is None or len(scale) != 1 or scale[0] == 1:
        return None
    if not -len(x) <= axis < len(x) or _differ(x[axis], scale[0]):
        return f"{scale[0]} scales along axis {axis} do not fit the shape {x}"
    return None


_LAWS: dict[str, Callable[[ir.Node], str | None]] = {
    **{"Conv": _convolution, "ConvTranspose": _convolution, "MaxPool": _pool, "AveragePool": _pool, "LpPool": _pool},
    **{"BatchNormalization": _channels, "InstanceNormalization": _channels, "LSTM": _recurrent, "GRU": _recurrent, "RNN": _recurrent},
    **{"DepthToSpace": _blocks, "SpaceToDepth": _blocks, "PRelu": _slope, "LRN": _depth},
    **{
        "Transpose": _transpose,
        "Softmax": _axis,
        "LogSoftmax": _axis,
        "Hardmax": _axis,
        "LpNormalization": _axis,
        "ArgMax": _axis,
        "ArgMin": _axis,
        "Gather": _gathered,
    },
    **{f"Reduce{kind}": _reduction for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")},
    **{"Reshape": _reshape},
    **{"Slice": _slice, "Tile": _tile},
    **{"GatherElements": _elements, "ScatterElements": _elements, "GatherND": _nested, "ScatterND": _nested},
    **{"Clip": _clip, "Celu": _celu, "Einsum": _einsum, "ReverseSequence": _turned, "NonMaxSuppression": _suppression, "LayerNormalization": _layers},
    **{"QuantizeLinear": _quantised, "DequantizeLinear": _quantised},
}
