"""LSTM, GRU and plain RNN, batch-major, one direction.

Rows of the weights are blocks of gates: i c f o, and r z c; columns are [W | R].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.rules.context import LiftContext
from converter.formats.zhouyi.rules.fields import constant_of
from converter.formats.zhouyi.rules.shape import transpose
from converter.formats.zhouyi.types import numpy_type
from converter.graph.infer import Array, constant
from converter.mapping.context import LowerContext
from converter.mapping.rules import custom
from converter.record import record


@record
class CellKind:
    """A recurrent layer type.

    `op`           its canonical operator
    `gates`        positions of ONNX's gates (i o f c; z r h) among those of the format; the same
                   in the other direction
    `activations`  the usual ones
    `results`      all steps and the last states, as `out_sequence` names them
    `behind`       a GRU that resets after the recurrent product, with a separate bias there
    """

    op: str
    gates: tuple[int, ...]
    activations: tuple[str, ...]
    results: tuple[str, ...]
    behind: bool = False

    @property
    def states(self) -> tuple[int, ...]:
        """Return the operator's inputs that are initial states."""
        return (5, 6) if self.op == "LSTM" else (5,)


_GRU = (1, 0, 2), ("Sigmoid", "Tanh"), ("H", "Hn")
CELLS = {
    "BasicLSTM": CellKind("LSTM", (0, 3, 2, 1), ("Sigmoid", "Tanh", "Tanh"), ("Y", "H", "C")),
    "GRUv1": CellKind("GRU", *_GRU, behind=True),
    "GRUv3": CellKind("GRU", *_GRU),
    "RNN": CellKind("RNN", (0,), ("Tanh",), ("H", "Hn")),
}
# activations of recurrent layers that the vendor's executor supports; the definition lists more
RUN = ("SIGMOID", "TANH")
_GATED = "Sigmoid Tanh Relu HardSigmoid Elu Softsign Softplus LeakyRelu ThresholdedRelu"
FUNCTIONS = {name.upper(): name for name in _GATED.split()}
PLAIN = {name.upper(): name for name in ("Tanh", "Sigmoid", "Relu")}


def gates(array: Array, order: tuple[int, ...]) -> Array:
    """Reorder the blocks of rows that belong to gates."""
    blocks = array.reshape(len(order), -1, *array.shape[1:])
    return blocks[list(order)].reshape(-1, *array.shape[1:])


# reading -----------------------------------------------------------------------------------------


def lift_recurrent(r: LiftContext) -> list[ir.Value]:
    """Return the outputs that `out_sequence` names: steps [batch, time, cells], states [batch,
    cells].
    """
    cell, b = CELLS[r.layer.kind], r.b
    w, rec, h = _weights(r, cell)
    attrs = _attributes(r, cell)
    bias = r.weights("biases", _both_biases(r, cell, h)[None])
    x = b.Transpose(r.input(0), perm=[1, 0, 2])
    states = [r.input(i)[None] for i in range(1, 1 + len(cell.states))]
    parts = (r.weights("W", w), r.weights("R", rec), bias, None, *states)
    count = len(cell.results)
    found = b.ops(cell.op, x, *parts, outputs=count, hidden_size=h, **attrs)
    named = dict(zip((n.upper() for n in cell.results), found, strict=True))
    return [_result(r, named, str(n).upper()) for n in _wanted(r, list(named))]


def _wanted(r: LiftContext, known: list[str]) -> list[Any]:
    given = r.layer.attrs.get("out_sequence", known)
    names = given if isinstance(given, list) else [given]
    if not names:
        raise MappingError("out_sequence=[] must name a result", "R110")
    for name in names:
        if str(name).upper() not in known:
            message = f"out_sequence contains {str(name).upper()}; use {', '.join(known)}"
            raise MappingError(message, "R110")
    return names


def _result(r: LiftContext, found: Mapping[str, ir.Value], name: str) -> ir.Value:
    if name != next(iter(found)):
        return r.b.Squeeze(found[name], [0])
    return r.b.Transpose(r.b.Squeeze(found[name], [1]), perm=[1, 0, 2])


def _weights(r: LiftContext, cell: CellKind) -> tuple[Array, Array, int]:
    """Return W [1, gates * h, x] and R [1, gates * h, h] in ONNX's order of gates."""
    weights, h = r.blob("weights"), r.static(1, "the state", least=1)[-1]
    count = len(cell.gates)
    if weights.ndim != 2 or weights.shape[0] != count * h or weights.shape[1] <= h:
        message = f"weights of shape {list(weights.shape)} do not fit {count} gates of {h} cells"
        raise MappingError(message, "R105")
    x = weights.shape[1] - h
    ordered = gates(weights, cell.gates)
    return ordered[None, :, :x], ordered[None, :, x:], h


def _both_biases(r: LiftContext, cell: CellKind, h: int) -> Array:
    """Return the biases of the input's product, then those of the recurrent one."""
    biases, size = r.blob("biases").reshape(-1), len(cell.gates) * h
    if biases.size != size + (h if cell.behind else 0):
        raise MappingError(f"{biases.size} biases do not fit {h} cells", "R105")
    first, second = gates(biases[:size], cell.gates), np.zeros(size, biases.dtype)
    second[size - h :] = biases[size:] if cell.behind else 0
    return np.concatenate([first, second])


def _attributes(r: LiftContext, cell: CellKind) -> dict[str, Any]:
    given = r.layer.attrs
    reverse = str(given.get("direction", "forward")).lower()
    if reverse not in ("forward", "reverse"):
        raise MappingError(f"direction={reverse} must be forward or reverse", "R110")
    for key in ("cell_clip", "forget_bias"):
        if given.get(key) not in (None, 0, 0.0, float("inf")):
            raise MappingError(f"{key} is not supported")
    attrs: dict[str, Any] = {"direction": reverse, "layout": 0}
    threshold = r.attr("threshold", float, np.inf)
    if np.isfinite(threshold):
        attrs["clip"] = threshold
    if cell.op == "GRU":
        attrs["linear_before_reset"] = int(cell.behind)
    attrs["activations"] = _functions(r, cell)
    return attrs


def _functions(r: LiftContext, cell: CellKind) -> list[str]:
    """Return a list of words; for a plain RNN, which has fewer words, also a single word."""
    given = r.layer.attrs.get("activations", [a.upper() for a in cell.activations])
    words = [str(a).upper() for a in (given if isinstance(given, list) else [given])]
    plain, count = cell.op == "RNN", len(cell.activations)
    if plain and (len(words) != 1 or words[0] not in PLAIN):
        message = f"activations={words[0] if len(words) == 1 else given} is not supported"
        raise MappingError(f"{message} (known: {', '.join(PLAIN)})", "R110")
    known = isinstance(given, list) and len(words) == count and set(words) <= FUNCTIONS.keys()
    if not plain and not known:
        raise MappingError(f"activations={given!r} must be {count} known functions", "R110")
    if not plain and any(
        r.layer.attrs.get(f"activation_{k}") is not None for k in ("alpha", "beta")
    ):
        raise MappingError("activation_alpha and activation_beta are not supported")
    return [FUNCTIONS[w] for w in words]


# writing -----------------------------------------------------------------------------------------


def lower_recurrent(w: LowerContext) -> None:
    """Write a recurrent layer of one direction, [time, batch, x], with constant weights. Transposes
    and Reshapes are added around the batch-major layer.
    """
    before = w.node.op == "GRU" and not w.attr("linear_before_reset", 0)
    kind = {"LSTM": "BasicLSTM", "GRU": "GRUv3" if before else "GRUv1"}.get(w.node.op, "RNN")
    cell = CELLS[kind]
    functions = _checked(w, cell)
    x, input_weights, recurrent = w.input(0), *(constant_of(w, i, "the weights")[0] for i in (1, 2))
    (time, batch, size), h = w.static(), recurrent.shape[1]
    columns = [gates(v, cell.gates) for v in (input_weights, recurrent)]
    biases = _stored_biases(w, cell, h, input_weights.dtype)
    steps = w.temporary("steps", x.dtype, [batch, time, size])
    transpose(w, x, steps, [1, 0, 2])
    states = [_state(w, i, [batch, h]) for i in cell.states]
    shapes = [[batch, time, h], *[[batch, h]] * (len(cell.results) - 1)]
    used = [w.temporary("state", x.dtype, s) for s in shapes]
    layer = w.put(kind, steps, *states, outputs=used)
    layer.blobs |= {"weights": np.concatenate(columns, axis=1), "biases": biases}
    layer.attrs |= {
        "time_steps": time,
        "input_size": size,
        "cell_size": h,
        "direction": w.attr("direction"),
        "out_sequence": list(cell.results),
        "activations": functions[0] if cell.op == "RNN" else functions,
    }
    if w.attr("clip", 0):
        layer.attrs["threshold"] = float(w.attr("clip"))
    _results(w, used, [time, batch, h])


def _checked(w: LowerContext, cell: CellKind) -> list[str]:
    """Return the names of the activations; raise for features that the layer lacks."""
    functions = [f.upper() for f in w.attr("activations", None) or cell.activations]
    if w.attr("direction") not in ("forward", "reverse") or w.attr("layout"):
        raise MappingError("direction=bidirectional and layout=1 are not supported")
    if any(w.optional(i) is not None for i in (4, 7)) or w.attr("input_forget", 0):
        raise MappingError("sequence_lens, peepholes and coupled gates are not supported")
    scaled = w.attr("activation_alpha", None) or w.attr("activation_beta", None)
    if scaled or any(f not in RUN for f in functions[: len(cell.activations)]):
        raise MappingError("these activations are not supported")
    return functions


def _stored_biases(w: LowerContext, cell: CellKind, h: int, dtype: Any) -> Array:
    """Return the sum of both biases, where the layer has no second one."""
    size = len(cell.gates) * h
    given = w.optional(3)
    both = np.zeros(2 * size, dtype) if given is None else constant_of(w, 3, "the biases")[0]
    first, second = (gates(v, cell.gates) for v in (both[:size], both[size:]))
    if not cell.behind:
        return np.asarray(first + second)
    return np.concatenate([(first + second)[: 2 * h], first[2 * h :], second[2 * h :]])


def _state(w: LowerContext, index: int, shape: list[int]) -> ir.Value:
    """Return the initial state as [batch, cells]; the layer always has one, zeros if need be."""
    value = w.optional(index)
    if value is None:
        zeros = np.zeros(shape, numpy_type(w.input(0)))
        return w.const(zeros, "initial")
    array = constant(value)
    if array is not None:
        return w.const(array.reshape(shape), "initial")
    return _reshaped(w, value, shape)


def _reshaped(w: LowerContext, value: ir.Value, shape: Sequence[int]) -> ir.Value:
    out = w.temporary("initial", value.dtype, shape)
    w.put("Reshape", value, outputs=[out], shape=list(shape))
    return out


def _results(w: LowerContext, found: list[ir.Value], steps: list[int]) -> None:
    """Convert [batch, time, cells] to [time, 1, batch, cells], and [batch, cells] to [1, batch,
    cells].
    """
    (time, batch, h), outputs = steps, w.node.outputs
    for i, (value, out) in enumerate(zip(found, outputs, strict=False)):
        if not out.uses() and not out.is_graph_output():
            continue
        shape = [1, batch, h]
        if i == 0:
            transposed = w.temporary("steps", value.dtype, steps)
            transpose(w, value, transposed, [1, 0, 2])
            value, shape = transposed, [time, 1, batch, h]
        w.put("Reshape", value, outputs=[out], shape=shape)


RULES = [custom("LSTM GRU RNN", " ".join(CELLS), lift=lift_recurrent, lower=lower_recurrent)]
