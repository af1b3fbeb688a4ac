"""LSTM, GRU and RNN, as cells and as sequences.

Sequences here are batch first: X [N, S, I], states [N, D, H], Y [N, D, S, H]. Weights are [D,
gates*H, I]; the gates of LSTM are f, i, c, o (ONNX: i, o, f, c), those of GRU z, r, h as in ONNX.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.openvino.fields import ACTIVATIONS, GATES, USUAL, dim, words
from converter.formats.openvino.opset.rules.context import LiftContext, LowerContext
from converter.graph.infer import Array, constant, shape_of
from converter.graph.sizes import demand_small
from converter.mapping.codecs import Floats
from converter.mapping.context import Results
from converter.mapping.fields import Attr, Field, Guard, RequireAttr, ignore
from converter.mapping.rules import op

T = ir.DataType
DEFAULTS = {"hardsigmoid": (0.2, 0.5), "elu": (1.0, 0.0)}  # alpha and beta
DIRECTIONS = words("forward", "reverse", "bidirectional")


# attributes --------------------------------------------------------------------------------------


class CellFunctions(Field):
    """The direction, the activations with their numbers, and the bound of their operands.

    The format lists the activations of one direction, ONNX those of all.
    """

    names = ("direction", "activations", "activation_alpha", "activation_beta", "clip")
    keys = ("direction", "activations", "activations_alpha", "activations_beta", "clip")

    def lift(self, r: LiftContext) -> None:
        a, usual = r.node.attrs, USUAL[r.node.op]
        a["direction"] = r.attr("direction", DIRECTIONS, "forward")
        clip, functions = r.attr("clip", float, 0.0), r.attr("activations", tuple, usual)
        if clip > 0 and np.isfinite(clip):
            a["clip"] = clip
        if unknown := [n for n in functions if n not in ACTIVATIONS]:
            raise MappingError(f"activation {unknown[0]!r} is not known", "R110")
        if functions == usual:
            return
        both = 2 if a["direction"] == "bidirectional" else 1
        a["activations"] = [ACTIVATIONS[n] for n in functions] * both
        for i, name in enumerate(("alpha", "beta")):
            values = _numbers(functions, r.attr(f"activations_{name}", Floats, []), i)
            if values:
                a[f"activation_{name}"] = values * both

    def lower(self, w: LowerContext) -> None:
        usual, (directions, *_) = USUAL[w.node.op], w.static(2, "the weights")
        # the schema's default has two, for any direction
        given = w.attr("activations", None) or list(usual) * directions
        functions = [str(n).lower() for n in given][: len(usual) * directions]
        own = functions[: len(usual)]
        if set(functions) - {"sigmoid", "tanh", "relu"} or functions != own * directions:
            raise MappingError(f"activations {functions} are not supported")
        w.set(direction=w.attr("direction"), clip=float(w.attr("clip", None) or 0.0))
        w.set(activations=own, activations_alpha=[], activations_beta=[])


def _numbers(functions: tuple[str, ...], values: list[float], index: int) -> list[float]:
    """Return alpha (index 0) or beta (index 1) of the activations; ONNX lists them for those
    activations that have one, in order.
    """
    takes = [n for n in functions if n == "hardsigmoid" or (n == "elu" and index == 0)]
    if not takes:
        return []
    if len(values) == len(functions):
        return [values[i] for i, n in enumerate(functions) if n in takes]
    if values:
        raise MappingError(f"{len(values)} parameters do not fit the activations {functions}")
    return [DEFAULTS[n][index] for n in takes]


# weights -----------------------------------------------------------------------------------------


def _const(c: LiftContext | LowerContext, array: Array, name: str) -> ir.Value:
    return c.b.const(array, name) if isinstance(c, LiftContext) else c.const(array, name)


def _parts(c: LiftContext | LowerContext, value: ir.Value, count: int) -> list[ir.Value]:
    """Split `value` into equal parts along axis 1."""
    if isinstance(c, LiftContext):
        return list(c.b.Split(value, axis=1, num_outputs=count, outputs=count))
    parts = [c.temporary("part", value.dtype) for _ in range(count)]
    c.put("Split", value, 1, outputs=parts, num_splits=count)
    return parts


def _joined(c: LiftContext | LowerContext, *parts: ir.Value) -> ir.Value:
    if isinstance(c, LiftContext):
        return c.b.Concat(*parts, axis=1)
    return c.emit("Concat", *parts, axis=1)


def _ordered(c: LiftContext | LowerContext, value: ir.Value, kind: str) -> ir.Value:
    """Reorder the gates along axis 1."""
    order = GATES[kind] if isinstance(c, LiftContext) else np.argsort(GATES[kind]).tolist()
    size = shape_of(value)
    if size is not None and (len(size) < 2 or size[1] % len(order)):
        raise MappingError(
            f"weights of {len(order)} gates cannot have the shape {list(size)}", "R105"
        )
    if list(order) == sorted(order):
        return value
    array = constant(value)
    if array is None:
        parts = _parts(c, value, len(order))
        return _joined(c, *(parts[i] for i in order))
    pieces = np.split(array, len(order), axis=1)
    return _const(c, np.concatenate([pieces[i] for i in order], axis=1), value.name or "weights")


def _read_bias(r: LiftContext, bias: ir.Value | None) -> ir.Value | None:
    """Return ONNX's biases [D, 2*g*H] for input and state; the second half is zero, except for GRU
    with linear_before_reset.
    """
    if bias is None:
        return None
    if r.node.attrs.get("linear_before_reset"):
        z, reset, hx, hr = _parts(r, bias, 4)
        none = z * 0
        return _joined(r, z, reset, hx, none, none, hr)
    bias = _ordered(r, bias, r.node.op)
    array = constant(bias)
    if array is not None:
        return r.b.const(np.concatenate([array, np.zeros_like(array)], axis=1), "bias")
    return _joined(r, bias, bias * 0)


def _written_bias(w: LowerContext, directions: int, hidden: int) -> ir.Value:
    """Return the sum of both biases; for GRU with linear_before_reset, those of the last gate stay
    separate: [D, 4*H].
    """
    bias, kind, reset = w.optional(3), w.node.op, bool(w.attr("linear_before_reset", 0))
    if bias is None:
        count = 4 if reset else len(GATES[kind])
        dtype = (w.input(1).dtype or T.FLOAT).numpy()
        return w.const(np.zeros((directions, count * hidden), dtype))
    array, cut = constant(bias), 2 * hidden
    if array is None:
        x, h = _parts(w, bias, 2)
        if not reset:
            return _ordered(w, w.emit("Add", x, h, auto_broadcast="numpy"), kind)
        xs, hs = _parts(w, x, 3), _parts(w, h, 3)
        sums = [w.emit("Add", xs[i], hs[i], auto_broadcast="numpy") for i in (0, 1)]
        return _joined(w, *sums, xs[2], hs[2])
    own, states = np.split(array, 2, axis=1)
    if not reset:
        return _ordered(w, w.const(own + states), kind)
    total = own[:, :cut] + states[:, :cut]
    return w.const(np.concatenate([total, own[:, cut:], states[:, cut:]], axis=1))


# sequences ---------------------------------------------------------------------------------------

BATCH_FIRST = (1, 0, 2)
RESULTS = ((2, 1, 0, 3), BATCH_FIRST, BATCH_FIRST)  # Y and the final states


class Sequence(Field):
    """The size of the state, and the operands: data, states, lengths, weights of the data and of
    the state, biases.
    """

    names = keys = ("hidden_size",)
    inputs = tuple(range(7))

    def lift(self, r: LiftContext) -> None:
        kind = r.node.op
        n = 3 if kind == "LSTM" else 2
        r.node.attrs["hidden_size"], r.outputs = r.attr("hidden_size", int), n
        x, *states = (r.b.Transpose(r.input(i), perm=BATCH_FIRST) for i in range(n))
        lengths: ir.Value | None = r.input(n)
        known, size = constant(lengths), dim(r.input(0), 1)
        if known is not None and size is not None and np.all(known == size):
            lengths = None
        lengths = None if lengths is None else r.cast(lengths, T.INT32)
        weights = [_ordered(r, r.input(n + i), kind) for i in (1, 2)]
        r.set_inputs(x, *weights, _read_bias(r, r.input(n + 3)), lengths, *states)
        r.after_emit(lambda y: [r.b.Transpose(v, perm=p) for v, p in zip(y, RESULTS, strict=False)])

    def lower(self, w: LowerContext) -> None:
        directions, _, hidden = w.static(2, "the weights")
        x = w.emit("Transpose", w.data, list(BATCH_FIRST))
        states = []
        for i in (5, 6) if w.node.op == "LSTM" else (5,):
            given = w.optional(i)
            states.append(
                _zeros(w, x, directions, hidden)
                if given is None
                else _state(w, x, given, directions, hidden)
            )
        weights = [_ordered(w, w.input(i), w.node.op) for i in (1, 2)]
        bias = _written_bias(w, directions, hidden)
        w.set_inputs(x, *states, _lengths(w, x), *weights, bias)
        w.set(hidden_size=hidden)
        own = w.layer.outputs
        w.layer.outputs = [w.temporary(n, x.dtype) for n in ("y", "h", "c")[: 1 + len(states)]]
        shared = directions == 1 and len(w.data.uses()) > 1
        for result, inner, perm in zip(own, w.layer.outputs, RESULTS, strict=False):
            put = _in_two_steps if shared and len(perm) == 4 else _transposed
            w.after_emit(partial(put, w, inner, perm, result))


def _transposed(w: LowerContext, inner: ir.Value, perm: tuple[int, ...], result: ir.Value) -> None:
    w.put("Transpose", inner, list(perm), outputs=[result])


def _in_two_steps(w: LowerContext, inner: ir.Value, _: tuple[int, ...], result: ir.Value) -> None:
    """Y [N, 1, S, H] -> [S, 1, N, H], where the data have other consumers.

    The runtime (2026.4) matches a sequence between two Transposes and replaces the one before it by
    a Reshape, for all of its consumers, after it merged equal Transposes. Its own import of ONNX
    gives the same wrong numbers. It does not match this form.
    """
    steps = w.emit("Squeeze", w.emit("Transpose", inner, [1, 2, 0, 3]), [0])
    w.put("Unsqueeze", steps, [1], outputs=[result])


def _state(w: LowerContext, x: ir.Value, given: ir.Value, directions: int, hidden: int) -> ir.Value:
    """Initial states [N, D, H]; x is [N, S, I].

    The CPU plugin (2026.4) cannot compile a sequence whose data have a dynamic batch and whose
    states have a static one, so these are broadcast.
    """
    state = w.emit("Transpose", w.operand(given), list(BATCH_FIRST))
    if dim(w.data, 1) is not None or dim(given, 1) is None:
        return state
    return w.emit("Broadcast", state, _sizes_of_state(w, x, directions, hidden), mode="numpy")


def _sizes_of_state(w: LowerContext, x: ir.Value, directions: int, hidden: int) -> ir.Value:
    """Return the sizes [N, D, H] as int64[3], where x is [N, S, I] and N is dynamic."""
    return w.emit("Concat", _size(w, x, 0), [directions, hidden], axis=0)


def _zeros(w: LowerContext, x: ir.Value, directions: int, hidden: int) -> ir.Value:
    """Return initial states [N, D, H] of zeros; x is [N, S, I]."""
    batch = dim(w.data, 1)
    if batch is not None:
        demand_small(batch, directions, hidden)
        dtype = (x.dtype or T.FLOAT).numpy()
        return w.const(np.zeros((batch, directions, hidden), dtype))
    shape = _sizes_of_state(w, x, directions, hidden)
    return w.emit("Broadcast", w.like(x, 0), shape, mode="numpy")


def _lengths(w: LowerContext, x: ir.Value) -> ir.Value:
    if (found := w.optional(4)) is not None:
        return found
    size, batch = (dim(w.data, i) for i in (0, 1))
    if size is not None and batch is not None:
        demand_small(batch)
        return w.const(np.full(batch, size, np.int64))
    return w.emit("Broadcast", _size(w, x, 1), _size(w, x, 0), mode="numpy")


def _size(w: LowerContext, x: ir.Value, axis: int) -> ir.Value:
    """Return one dimension as int64[1]."""
    shape = w.emit("ShapeOf", x, dtype=T.INT64, output_type="i64")
    return w.emit("Gather", shape, [axis], 0, batch_dims=0)


# cells -------------------------------------------------------------------------------------------


def one_step(r: LiftContext) -> None:
    """Read a cell as one step in one direction: operands get both axes, and the direction is
    removed from the states.
    """
    kind, n = r.node.op, 3 if r.node.op == "LSTM" else 2
    if len(r.layer.inputs) > n + 3:
        raise MappingError("peepholes are not supported")
    r.node.attrs["hidden_size"], r.outputs = r.attr("hidden_size", int), n
    x, *states = (r.b.Unsqueeze(r.input(i), [0]) for i in range(n))
    weights = [_ordered(r, _unsqueezed(r, r.input(n + i)), kind) for i in (0, 1)]
    bias = None if r.optional(n + 2) is None else _unsqueezed(r, r.input(n + 2))
    r.set_inputs(x, *weights, _read_bias(r, bias), None, *states)

    def finish(results: Results) -> Results:
        return [r.b.Squeeze(v, [0]) for v in results[1:]]

    r.after_emit(finish)


def _unsqueezed(r: LiftContext, v: ir.Value) -> ir.Value:
    array = constant(v)
    if array is None:
        return r.b.Unsqueeze(v, [0])
    return r.b.const(array[None], v.name or "weights")


# rows --------------------------------------------------------------------------------------------

PLAIN = (
    Guard(
        "input_forget=true is not supported", lift_if=lambda r: not r.attr("input_forget", bool, 0)
    ),
    Guard(
        "layout=1, input_forget and peepholes are not supported",
        lower_if=lambda w: not w.attr("layout", 0) and not w.has(7),
    ),
    RequireAttr("layout", 0),
    ignore("weights_format", "input_forget"),
)
OWN: dict[str, tuple[Field, ...]] = {
    "LSTM": (RequireAttr("input_forget", 0),),
    "GRU": (Attr("linear_before_reset", kind=bool, default=0),),
    "RNN": (),
}
GIVEN = {
    "LSTM": "4,2,3 =1,8,3 =1,8,2 =1,16 ? 1,2,2 1,2,2",
    "GRU": "4,2,3 =1,6,3 =1,6,2 =1,12 ? 1,2,2",
    "RNN": "4,2,3 =1,2,3 =1,2,2 =1,4 ? 1,2,2",
}
RULES = [
    *(
        op(
            kind,
            f"{kind}Sequence",
            *PLAIN,
            *own,
            CellFunctions(),
            Sequence(),
            example_inputs=GIVEN[kind],
        )
        for kind, own in OWN.items()
    ),
    *(
        op(
            kind,
            f"{kind}Cell",
            *PLAIN,
            *own,
            CellFunctions(),
            ignore("hidden_size"),
            before_lift=one_step,
            lift_only=True,
        )
        for kind, own in OWN.items()
    ),
]
