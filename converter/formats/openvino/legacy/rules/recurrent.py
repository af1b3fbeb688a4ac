"""Layers along time: recurrent cells and sequences, and decoding.

Weights are [gates*H, I+H] with rows of x and h side by side; gates f, i, c, o (LSTM) and z, r, h
(GRU).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.openvino.fields import (
    ACTIVATIONS,
    BATCH_AND_TIME,
    GATES,
    USUAL,
    leading_axes,
)
from converter.formats.openvino.legacy.rules.context import LiftContext, LowerContext
from converter.graph.infer import known
from converter.mapping.codecs import Floats
from converter.mapping.context import Results
from converter.mapping.fields import Attr, Field, InputType, ignore
from converter.mapping.rules import Rule, op

D = ir.DataType
FUNCTIONS = {
    **ACTIVATIONS,
    **{f.lower(): f for f in ("LeakyRelu", "ThresholdedRelu", "Affine", "ScaledTanh")},
}


def state_count(op: str) -> int:
    """Return the number of states of a recurrent operator."""
    return 2 if op == "LSTM" else 1


def hidden_size(r: LiftContext) -> int:
    """Return the size of the hidden state, by default that of the initial state."""
    size: int = r.attr("hidden_size", int, r.static(1, "the state", least=1)[-1])
    return size


class Parameters(Field):
    """W [1, G*H, I], R [1, G*H, H] and B [1, 2*G*H] in ONNX's order of gates <-> two blobs."""

    names = ("linear_before_reset",)
    keys = ("linear_before_reset",)
    inputs = (1, 2, 3)
    blobs = ("weights", "biases")

    def lift(self, r: LiftContext) -> None:
        kind, width, hidden = r.node.op, r.static(least=1)[-1], hidden_size(r)
        gates, apart = len(GATES[kind]), kind == "GRU" and r.attr("linear_before_reset", bool, 0)
        rows = r.array("weights", [gates, hidden, width + hidden])
        bias = np.zeros((gates + bool(apart), hidden), rows.dtype)
        if "biases" in r.layer.blobs:
            bias = r.array("biases", bias.shape)
        own = np.zeros((gates, hidden), bias.dtype)
        if apart:  # the fourth bias belongs to the hidden state's part of the h gate
            own[2], bias = bias[3], bias[:3]
            r.set(linear_before_reset=1)
        order = list(GATES[kind])
        rows, bias = rows[order], bias[order]
        rows = rows.reshape(1, gates * hidden, width + hidden)
        biases = np.concatenate([bias.reshape(1, -1), own.reshape(1, -1)], 1)
        parts = {"W": rows[:, :, :width], "R": rows[:, :, width:], "B": biases}
        for i, (name, array) in enumerate(parts.items(), 1):
            r.set_input(i, r.b.const(array, f"{r.layer.name}.{name}"))

    def lower(self, w: LowerContext) -> None:
        order = np.argsort(GATES[w.node.op])
        gates = len(order)
        x, h = w.constant(1, "the weights")[0], w.constant(2, "the weights")[0]
        hidden = h.shape[1]
        rows = np.concatenate([x, h], 1).reshape(gates, hidden, -1)
        both = np.zeros((2, gates, hidden), x.dtype)
        if w.has(3):
            both = w.constant(3, "the biases")[0].reshape(2, gates, hidden)
        rows, bias = rows[order], both.sum(0, dtype=x.dtype)[order]
        if w.node.op == "GRU" and w.attr("linear_before_reset", 0):
            bias = np.concatenate([both[0, :2] + both[1, :2], both[0, 2:], both[1, 2:]])
            w.set(linear_before_reset=1)
        w.layer.blobs |= {"weights": rows.reshape(gates * hidden, -1), "biases": bias.reshape(-1)}


class Functions(Field):
    """The size of the state, activations with their parameters, and the clip; defaults are
    omitted.
    """

    names = ("hidden_size", "activations", "activation_alpha", "activation_beta", "clip")
    keys = (
        "hidden_size",
        "activations",
        "activations_alpha",
        "activations_beta",
        "activation_alpha",
        "activation_beta",
        "clip",
    )

    def lift(self, r: LiftContext) -> None:
        a, usual = r.node.attrs, USUAL[r.node.op]
        a["hidden_size"] = hidden_size(r)
        functions = r.attr("activations", tuple, usual)
        if not FUNCTIONS.keys() >= set(functions):
            message = f"activations={r.attr('activations', str)!r} contains an unknown function"
            raise MappingError(message, "R110")
        if functions != usual:
            a["activations"] = [FUNCTIONS[n] for n in functions]
        for k in ("alpha", "beta"):
            older = r.attr(f"activation_{k}", Floats, [])
            if values := r.attr(f"activations_{k}", Floats, older):
                a[f"activation_{k}"] = values
        if (clip := r.attr("clip", float, 0.0)) > 0:
            a["clip"] = clip

    def lower(self, w: LowerContext) -> None:
        usual = USUAL[w.node.op]
        given = list(w.attr("activations", None) or map(FUNCTIONS.get, usual))[: len(usual)]
        functions = tuple(n.lower() for n in given)
        if not {"sigmoid", "tanh", "relu"}.issuperset(functions):
            raise MappingError(f"activations {given} are not supported")
        w.set(hidden_size=w.static(2, "the weights")[2])
        if functions != usual or w.node.op == "RNN":
            w.set(activations=functions)
        for k in ("alpha", "beta"):
            if values := w.attr(f"activation_{k}", None):
                w.layer.attrs[f"activations_{k}"] = w.spell(list(values), Floats)
        if clip := w.attr("clip", 0):
            w.set(clip=float(clip))


class OneStep(Field):
    """A cell: a sequence of length 1, in forward direction."""

    names = ("direction", "layout", "input_forget")
    inputs = (4, 5, 6, 7)

    def lift(self, r: LiftContext) -> None:
        count, (rows, width), hidden = state_count(r.node.op), r.static(axes=2), hidden_size(r)
        states = [r.b.Reshape(r.input(1 + i), [1, rows, hidden]) for i in range(count)]
        steps = r.b.Reshape(r.input(0), [1, rows, width])
        r.set_inputs(steps, None, None, None, None, *states)
        r.outputs = 1 + count
        r.after_emit(lambda found: [r.b.Reshape(v, [rows, hidden]) for v in found[1:]])

    def lower(self, w: LowerContext) -> None:
        (steps, rows, width) = w.shape()
        one_way = w.attr("direction", "forward") != "bidirectional"
        if steps != 1 or not one_way or w.attr("layout", 0):
            raise MappingError("a sequence of more than one step must be a loop")
        lengths = known(w.optional(4)) if w.has(4) else np.ones(1)
        plain = lengths is not None and bool(np.all(lengths == 1))
        if w.has(7) or w.attr("input_forget", 0) or not plain:
            message = "peepholes, coupled gates and sequence_lens are not supported"
            raise MappingError(message)
        shape = [rows, w.static(2, "the weights")[2]]
        given = [w.optional(5 + i) for i in range(state_count(w.node.op))]
        zeros = np.zeros(shape, np.float32)
        states = [w.const(zeros, "state") if v is None else w.reshaped(v, shape) for v in given]
        w.set_inputs(w.reshaped(w.data, [rows, width]), *states)
        w.layer.outputs = [w.temporary("h", w.data.dtype, shape) for _ in states]
        w.after_emit(lambda: self._results(w, list(w.layer.outputs), shape))

    def _results(self, w: LowerContext, results: list[ir.Value], shape: list[int]) -> None:
        """Remove the ports of unused results, which would become outputs of the net."""
        used = [(max(0, i - 1), o) for i, o in enumerate(w.node.outputs) if w.used(i)]
        if len({i for i, _ in used}) < len(results):
            rows, hidden = shape
            both = w.emit("Concat", *results, shape=[rows, 2 * hidden], axis=1)
            first = used[0][0] * hidden
            half = w.emit("Crop", both, shape=shape, axis=[1], offset=[first], dim=[hidden])
            results = [half, half]
        for i, out in used:
            w.finish(results[i], out)


DIRECTIONS = {"forward": "forward", "backward": "reverse", "reverse": "reverse"}


def along_steps(r: LiftContext) -> None:
    """A sequence along `axis` (0 or 1); the outputs are all hidden states and the last states."""
    b, axis, count = r.b, r.attr("axis", int, 1), state_count(r.node.op)
    direction = DIRECTIONS.get(r.attr("direction", str, "forward"))
    if direction is None or axis not in (0, 1):
        raise MappingError("only one direction along axis 0 or 1 is supported", "R110")
    steps = b.Transpose(r.input(0), perm=[1, 0, 2]) if axis == 1 else r.input(0)
    lengths, parameters = r.optional(1 + count), r.node.inputs[1:4]
    length = None if lengths is None else r.cast(r.cast(lengths, D.INT64), D.INT32)
    rows = r.static(steps)[1]
    states = [b.Reshape(r.input(1 + i), [1, rows, hidden_size(r)]) for i in range(count)]
    r.set_inputs(steps, *parameters, length, *states)
    r.node.attrs["direction"], r.outputs = direction, 1 + count
    r.after_emit(lambda found: ports_of(r, found, axis))


def ports_of(r: LiftContext, found: Results, axis: int) -> Results:
    """Return sequence and last states as the layer's ports have them: without the axis of
    directions, and with the batch first if time is axis 1.
    """
    every = r.b.Squeeze(found[0], [1])
    return [r.b.Transpose(every, perm=[1, 0, 2]) if axis == 1 else every, *found[1:]]


# other layers ------------------------------------------------------------------------------------


class Merged(Attr):
    """The flag for merging repeated classes, which the engine ignores: it always merges them."""

    def lower(self, w: LowerContext) -> None:
        if not w.attr(self.name):
            message = "repeated classes that are not merged are not supported"
            raise MappingError(message)
        super().lower(w)


MISSPELT = "CTCGreadyDecoder"  # as early tools wrote it


# rows --------------------------------------------------------------------------------------------

CELL = ignore("input_size", "linear_before_reset")
SEQUENCE = ignore("direction", "axis", "sequence_dim", "has_num_directions", "batch_dim")
GIVEN: dict[str, Any] = {
    "LSTM": "1,2,3 =1,16,3 =1,16,4 =1,32 ? 1,2,4 1,2,4",
    "GRU": "1,2,3 =1,12,3 =1,12,4 =1,24 ? 1,2,4",
    "RNN": "1,2,3 =1,4,3 =1,4,4 =1,8 ? 1,2,4",
}

RULES: list[Rule] = [
    *(
        op(
            kind,
            f"{kind}Cell",
            OneStep(),
            Parameters(),
            Functions(),
            CELL,
            example_inputs=GIVEN[kind],
        )
        for kind in GATES
    ),
    *(
        op(
            kind,
            f"{kind}Sequence",
            Parameters(),
            Functions(),
            CELL,
            SEQUENCE,
            before_lift=along_steps,
            lift_only=True,
        )
        for kind in GATES
    ),
    op(
        "ReverseSequence",
        "ReverseSequence",
        *BATCH_AND_TIME,
        InputType((1,)),
        before_lift=leading_axes,
        example_inputs="4,3,2 i64:3",
    ),
    *(
        op(
            "netconv::CTCGreedyDecoder",
            kind,
            Merged("ctc_merge_repeated", kind=bool, default=1),
            ignore("stride"),
            example_inputs="4,1,3 4,1",
            lift_only=kind == MISSPELT,
        )
        for kind in ("CTCGreedyDecoder", MISSPELT)
    ),
    op(
        "netconv::GatherTree",
        "GatherTree",
        InputType((0, 1, 2, 3)),
        lift_only=True,
        example_inputs="i64:4,2,3 i64:4,2,3 i64:2 =i64:",
    ),
]
