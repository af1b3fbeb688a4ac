"""Canonical operators rewritten for legacy IR, where no row or pair says them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.legacy.access import kind_before
from converter.formats.openvino.legacy.types import SMALL
from converter.graph.build import Builder, attrs_of
from converter.graph.infer import constant, known, shape_of
from converter.passes.decompositions.bitwise import BITS, by_digits
from converter.passes.indices import one_hot
from converter.passes.legalise import Rewrite, Rewrites

REWRITES: dict[tuple[str, str], Rewrite] = {}


def rewrites(*op_types: str, domain: str = "") -> Callable[[Rewrite], Rewrite]:
    def enter(f: Rewrite) -> Rewrite:
        for name in op_types:
            REWRITES[domain, name] = f
        return f

    return enter


def table() -> Rewrites:
    return REWRITES


def _inputs(node: ir.Node) -> list[Any]:
    return list(node.inputs) + [None] * (8 - len(node.inputs))


rewrites("OneHot")(one_hot)


@rewrites("InstanceNormalization")
def instance_normalization(node: ir.Node, b: Builder) -> ir.Value | None:
    x, scale, bias = _inputs(node)[:3]
    shape = shape_of(x)
    if shape is None or len(shape) < 3:
        return None
    y = b.ext("MVN", x, axes=list(range(2, len(shape))), normalize_variance=1, eps=attrs_of(node).get("epsilon", 1e-5), eps_mode="inside_sqrt")
    per_channel = [1, -1, *[1] * (len(shape) - 2)]
    return b.op("Add", b.op("Mul", y, b.op("Reshape", scale, per_channel)), b.op("Reshape", bias, per_channel))


@rewrites("MVN", domain="netconv")
def mvn_of_lists(node: ir.Node, b: Builder) -> ir.Value | None:
    """With one spatial axis, as an image with one row."""
    x, attrs = _inputs(node)[0], attrs_of(node)
    shape = shape_of(x)
    if shape is None or len(shape) != 3 or sorted(a % 3 for a in attrs["axes"]) not in ([2], [1, 2]) or attrs.get("eps_mode", "inside_sqrt") != "inside_sqrt":
        return None
    axes = [3 if a % 3 == 2 else 1 for a in attrs["axes"]]
    wide = b.op("Reshape", x, [shape[0], shape[1], 1, shape[2]])
    return b.op("Reshape", b.ext("MVN", wide, **{**attrs, "axes": sorted({*axes, 2})}), list(shape))


@rewrites("PRelu")
def prelu(node: ir.Node, b: Builder) -> ir.Value:
    """max(x, 0) + slope * min(x, 0) for slopes of any shape."""
    x, slope = _inputs(node)[:2]
    return b.op("Add", b.op("Relu", x), b.op("Mul", slope, b.op("Neg", b.op("Relu", b.op("Neg", x)))))


@rewrites("Mod")
def mod(node: ir.Node, b: Builder) -> ir.Value | None:
    """x - y * floor(x / y), or with the quotient cut towards 0 (fmod), which is what the engine has for integers."""
    x, y = _inputs(node)[:2]
    if x.dtype is not None and not x.dtype.is_floating_point():
        return None if attrs_of(node).get("fmod") else _down(b, x, y)
    quotient = b.op("Div", x, y)
    whole = b.op("Mul", b.op("Sign", quotient), b.op("Floor", b.op("Abs", quotient))) if attrs_of(node).get("fmod") else b.op("Floor", quotient)
    return b.op("Sub", x, b.op("Mul", y, whole))


def _down(b: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
    """The engine's remainder has the sign of x; where the divisor's is the other one, the divisor is added, which cannot overflow."""
    rest, zero = b.op("Mod", x, y, fmod=1), b.like(x, 0)
    opposite = b.op("And", b.op("Less", b.op("Min", rest, y), zero), b.op("Greater", b.op("Max", rest, y), zero))
    return b.op("Where", opposite, b.op("Add", rest, y), rest)


@rewrites("DepthToSpace", "SpaceToDepth")
def depth_to_space(node: ir.Node, b: Builder) -> ir.Value | None:
    """By reshapes and a permutation: the engine's own layer is wrong for more than one channel."""
    x, attrs = _inputs(node)[0], attrs_of(node)
    shape = shape_of(x)
    if shape is None or len(shape) != 4:
        return None
    (n, c, h, w), s = shape, attrs["blocksize"]
    if node.op_type == "SpaceToDepth":
        split = b.op("Reshape", x, [n, c, h // s, s, w // s, s])
        return b.op("Reshape", b.op("Transpose", split, perm=[0, 3, 5, 1, 2, 4]), [n, c * s * s, h // s, w // s])
    depth = c // (s * s)
    first = attrs.get("mode", "DCR") == "DCR"
    split = b.op("Reshape", x, [n, s, s, depth, h, w] if first else [n, depth, s, s, h, w])
    return b.op("Reshape", b.op("Transpose", split, perm=[0, 3, 4, 1, 5, 2] if first else [0, 1, 4, 2, 5, 3]), [n, depth, h * s, w * s])


@rewrites("LSTM", "GRU", "RNN")
def recurrent(node: ir.Node, b: Builder) -> Sequence[ir.Value] | None:
    """Both directions one by one; a sequence as a loop over single steps."""
    attrs = attrs_of(node)
    x, w, r, bias, lengths, *states = _inputs(node)
    shape = shape_of(x)
    if shape is None or attrs.get("layout") or states[2] is not None:
        return None
    if lengths is not None and ((found := known(lengths)) is None or (found != shape[0]).any()):
        return None
    if attrs.get("direction", "forward") == "bidirectional":
        # which alphas and betas belong to which direction is the common decomposition's business
        return None if attrs.get("activation_alpha") or attrs.get("activation_beta") else _both(node, b, attrs)
    if shape[0] == 1 and attrs.get("direction", "forward") == "forward" and lengths is None:
        return None
    names = ("direction", "hidden_size", "activations", "activation_alpha", "activation_beta", "clip", "linear_before_reset", "input_forget")
    kept = {k: attrs[k] for k in names if k in attrs and k != "direction"}
    count, hidden = (2 if node.op_type == "LSTM" else 1), (shape_of(r) or (0, 0, 0))[2]
    initial = [s if s is not None else b.const(np.zeros((1, shape[1], hidden), np.float32), "state") for s in states[:count]]
    inner = b.body("steps")
    i = inner.input("i", ir.DataType.INT64, [])
    inner.input("go", ir.DataType.BOOL, [])
    formal = [inner.input("state", s.dtype or ir.DataType.FLOAT, shape_of(s)) for s in initial]
    backwards = attrs.get("direction") == "reverse"
    place = inner.op("Sub", shape[0] - 1, i) if backwards else i
    one = inner.op("Unsqueeze", inner.op("Gather", x, place, axis=0), [0])
    results = inner.ops(node.op_type, one, w, r, bias, None, *formal, outputs=1 + count, **kept)
    inner.output(inner.const(True, "again"), *results[1:], inner.op("Squeeze", results[0], [0]))
    ended = b.ops("Loop", shape[0], True, *initial, outputs=count + 1, body=inner.graph)
    steps = b.op("Slice", ended[-1], [-1], [-(1 << 60)], [0], [-1]) if backwards else ended[-1]
    return [steps, *ended[:count]]


def _both(node: ir.Node, b: Builder, attrs: dict[str, Any]) -> list[ir.Value] | None:
    """Directions are the first axis of weights and states, and axis 1 of the results of all steps."""
    x, w, r, bias, lengths, *states = _inputs(node)
    parts = []
    functions = attrs.get("activations")
    for k, direction in enumerate(("forward", "reverse")):
        cut = [
            None if v is None else b.const(a[k : k + 1]) if (a := constant(v)) is not None else b.op("Slice", v, [k], [k + 1], [0])
            for v in (w, r, bias, *states[:2])
        ]
        own = {**attrs, "direction": direction}
        if functions:
            own["activations"] = functions[k * len(functions) // 2 : (k + 1) * len(functions) // 2]
        parts.append(b.ops(node.op_type, x, *cut[:3], lengths, *cut[3:], outputs=3 if node.op_type == "LSTM" else 2, **own))
    return [b.op("Concat", *pair, axis=1 if i == 0 else 0) for i, pair in enumerate(zip(*parts, strict=True))]


@rewrites("ArgMax", "ArgMin")
def best_place(node: ir.Node, b: Builder) -> ir.Value | None:
    """The layer takes the largest of floats: the smallest are the largest of the negative, the best of integers are those that equal it."""
    x, attrs = node.inputs[0], attrs_of(node)
    if x is None or x.dtype is None:
        return None
    if x.dtype.is_floating_point():
        return b.op("ArgMax", b.op("Neg", x), **attrs) if node.op_type == "ArgMin" else None
    best = b.op("ReduceMax" if node.op_type == "ArgMax" else "ReduceMin", x, [attrs.get("axis", 0)])
    return b.op("ArgMax", b.op("Cast", b.op("Equal", x, best), to=ir.DataType.FLOAT), **attrs)


@rewrites("TopK")
def smallest(node: ir.Node, b: Builder) -> Sequence[ir.Value | None] | None:
    """The smallest are the largest of the negative; the best of integers is the place and the value of the extreme."""
    x, attrs, count = node.inputs[0], attrs_of(node), known(node.inputs[1])
    alone = not all(o.uses() or o.is_graph_output() for o in node.outputs)
    if x is not None and x.dtype is not None and not x.dtype.is_floating_point() and alone and count is not None and count.size == 1 and int(count.max()) == 1:
        axis, kind = attrs.get("axis", -1), "Max" if attrs.get("largest", 1) else "Min"
        return [b.op(f"Reduce{kind}", x, [axis]), b.op(f"Arg{kind}", x, axis=axis)]
    if x is not None and x.dtype is not None and not x.dtype.is_floating_point():  # the layer takes floats only
        values, places = b.ops("TopK", b.op("Cast", x, to=ir.DataType.FLOAT), node.inputs[1], outputs=2, **attrs)
        return [b.op("Cast", values, to=x.dtype), places]
    if attrs.get("largest", 1):
        return None
    values, places = b.ops("TopK", b.op("Neg", _inputs(node)[0]), _inputs(node)[1], outputs=2, **{**attrs, "largest": 1})
    return [b.op("Neg", values) if node.outputs[0].uses() or node.outputs[0].is_graph_output() else None, places]


@rewrites(*BITS)
def bits(node: ir.Node, b: Builder) -> ir.Value | None:
    """By digits; integers of 8 and 16 bits as ones of 32, in as many digits as they need: the engine's sums are exact up to 2^24."""
    x = node.inputs[0]
    if x is None or x.dtype not in SMALL:
        return by_digits(node, b)
    wide = b.op(node.op_type, *(b.op("Cast", v, to=ir.DataType.INT32) for v in node.inputs)).producer()
    assert wide is not None
    found = by_digits(wide, b, SMALL[x.dtype] // 4 + (not x.dtype.is_signed()))
    return None if found is None else b.op("Cast", found, to=x.dtype)


@rewrites("Abs", "Neg", "Sign")
def of_integers(node: ir.Node, b: Builder) -> ir.Value | None:
    """The layers of these names take floats only."""
    x = node.inputs[0]
    if x is None or x.dtype is None or x.dtype.is_floating_point():
        return None
    if not x.dtype.is_signed():
        return b.op("Min", x, b.like(x, 1)) if node.op_type == "Sign" else b.op("Identity", x) if node.op_type == "Abs" else None
    if node.op_type == "Sign":
        return b.op("Max", b.op("Min", x, b.like(x, 1)), b.like(x, -1))
    turned = b.op("Sub", b.like(x, 0), x)
    return turned if node.op_type == "Neg" else b.op("Max", x, turned)


@rewrites("ReduceLogSumExp")
def log_sum_exp(node: ir.Node, b: Builder) -> ir.Value | None:
    """With the largest number taken out: the layer's own exponentials overflow from 89 on."""
    x, axes, attrs = _inputs(node)[0], _inputs(node)[1], attrs_of(node)
    most = b.op("ReduceMax", x, axes, **{**attrs, "keepdims": 1})
    rest = b.op("ReduceLogSum", b.op("Exp", b.op("Sub", x, most)), axes, **{**attrs, "keepdims": 1})
    total = b.op("Add", rest, most)
    shape = shape_of(node.outputs[0])
    return total if attrs.get("keepdims", 1) or shape is None else b.op("Reshape", total, list(shape))


def unfit(node: ir.Node) -> bool:
    """Whether the layer of that name is known, but does not serve: it takes no integers, overflows, or makes the engine compute in 8 bits."""
    x = node.inputs[0] if node.inputs else None
    if x is None or x.dtype is None or kind_before(node.outputs[0]):
        return False
    if (node.domain, node.op_type) == ("netconv", "FakeQuantize"):
        return constant(x) is not None
    return not node.domain and (node.op_type == "ReduceLogSumExp" or (node.op_type in ("Abs", "Neg", "Sign") and x.dtype.is_integer()))
