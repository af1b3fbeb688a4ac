"""Cells of recurrent networks and the pool of squares, by formulas and back at their level."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from nnapi_models import I32, constant, scalar, tensor

from converter.api import Model, load
from converter.errors import UnsupportedError
from converter.formats.nnapi.levels import feature_level
from converter.formats.nnapi.lift import lift
from converter.formats.nnapi.lower import lower
from converter.formats.nnapi.table import Lifetime, Operand, OperandType, Operation, Table
from converter.formats.nnapi.validate import validate
from converter.graph.build import new_model
from converter.graph.fixed_point import logistic_table, tanh_table
from layers import cases
from layers.models.nnapi import build
from support import corpus_cases

rng = np.random.default_rng(7)
BATCH, INPUTS, UNITS = 2, 3, 4
SCALARS = {int: OperandType.INT32, float: OperandType.FLOAT32}
Tables = tuple[Table, dict[str, Any], list[Any]]


def reals(*shape: int) -> Any:
    return rng.uniform(-1, 1, shape).astype(np.float32)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def table_of(kind: str, arguments: list[Any], results: list[Any]) -> Tables:
    """A table of one operation: the first and all named arguments are inputs, None has no value."""
    table, feeds, indexes = Table(), {}, []
    for one in arguments:
        if one is None:
            absent = Operand(OperandType.TENSOR_FLOAT32, [0], lifetime=Lifetime.NO_VALUE)
            indexes.append(table.add(absent))
        elif isinstance(one, tuple):
            name, array = one
            indexes.append(tensor(table, list(array.shape), name=name))
            table.inputs.append(indexes[-1])
            feeds[name] = array
        elif isinstance(one, np.ndarray):
            indexes.append(constant(table, one))
        else:
            indexes.append(scalar(table, one, SCALARS[type(one)]))
    table.outputs = [tensor(table, list(r.shape), name=f"y{i}") for i, r in enumerate(results)]
    table.operations = [Operation(kind, indexes, table.outputs)]
    return table, feeds, results


def rnn() -> Tables:
    x, w, r, bias, h = (
        reals(BATCH, INPUTS),
        reals(UNITS, INPUTS),
        reals(UNITS, UNITS),
        reals(UNITS),
        reals(BATCH, UNITS),
    )
    y = np.maximum(x @ w.T + h @ r.T + bias, 0)
    return table_of("RNN", [("x", x), w, r, bias, ("h", h), 1], [y, y])


def svdf() -> Tables:
    memory, rank = 5, 2
    x, feature, time = reals(BATCH, INPUTS), reals(UNITS, INPUTS), reals(UNITS, memory)
    bias, state = reals(UNITS // rank), reals(BATCH, UNITS * memory)
    seen = state.reshape(BATCH, UNITS, memory).copy()
    seen[:, :, -1] = x @ feature.T
    y = (seen * time).sum(2).reshape(BATCH, UNITS // rank, rank).sum(2) + bias
    after = np.concatenate([seen[:, :, 1:], np.zeros((BATCH, UNITS, 1))], 2)
    arguments = [("x", x), feature, time, bias, ("state", state), rank, 0]
    return table_of("SVDF", arguments, [after.reshape(BATCH, -1), y])


def lstm(coupled: bool) -> Tables:
    outputs, clip, most = 3, 0.25, 0.3
    x, h, c = reals(BATCH, INPUTS), reals(BATCH, outputs), reals(BATCH, UNITS)
    w, r, bias = reals(4, UNITS, INPUTS), reals(4, UNITS, outputs), reals(4, UNITS)
    peephole, project, more = reals(3, UNITS), reals(outputs, UNITS), reals(outputs)
    gates = [x @ w[i].T + h @ r[i].T + bias[i] for i in range(4)]  # input, forget, cell, output
    forget = sigmoid(gates[1] + peephole[1] * c)
    enter = 1 - forget if coupled else sigmoid(gates[0] + peephole[0] * c)
    cell = np.clip(forget * c + enter * np.tanh(gates[2]), -clip, clip)
    y = sigmoid(gates[3] + peephole[2] * cell) * np.tanh(cell)
    y = np.clip(y @ project.T + more, -most, most)
    own: list[Any] = [None if coupled else a[0] for a in (w, r, peephole, bias)]
    arguments = [("x", x), own[0], *w[1:], own[1], *r[1:], own[2], *peephole[1:], own[3]]
    arguments += [*bias[1:], project, more, ("h", h), ("c", c), 4, clip, most]
    scratch = np.zeros((BATCH, UNITS * (3 if coupled else 4)))
    return table_of("LSTM", arguments, [scratch, y, cell, y])


def pool() -> Tables:
    x = reals(1, 4, 6, 2)
    parts = x.reshape(1, 2, 2, 3, 2, 2).transpose(0, 1, 3, 5, 2, 4)
    y = np.sqrt((parts**2).mean((4, 5)))
    return table_of("L2_POOL_2D", [("x", x), 0, 0, 0, 0, 2, 2, 2, 2, 0], [y])


CASES = {"RNN": rnn, "SVDF": svdf, "LSTM": lambda: lstm(False), "coupled": lambda: lstm(True)}


@pytest.mark.parametrize("name", [*CASES, "L2_POOL_2D"])
def test_an_operation_of_level_1_comes_back_as_itself(name: str) -> None:
    table, feeds, wanted = {**CASES, "L2_POOL_2D": pool}[name]()
    assert validate(table) == [] and feature_level(table) == (1, "")
    network = lift(table)
    again = lower(network)
    assert [o.type for o in again.operations] == [table.operations[0].type]
    assert feature_level(again) == (1, "")
    for model in (Model.of(network), Model.of(lift(again))):
        for found, right in zip(model.run(feeds).values(), wanted, strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_wrong_dimensions_of_a_cell_are_found_out(name: str) -> None:
    table, *_ = CASES[name]()
    for index in table.outputs:
        table.operands[index].dimensions[1] += 1
        assert [d.where.layer for d in validate(table)] == [table.operands[index].name]
        table.operands[index].dimensions[1] -= 1
    table.operands[table.operations[0].inputs[0]].dimensions[1] += 1
    (found,) = validate(table)
    assert found.code == "R105" and found.where.kind == table.operations[0].type


def test_a_merged_output_and_one_of_the_backward_direction_contradict_each_other() -> None:
    case = cases.read(cases.FOLDER / "nnapi" / "BIDIRECTIONAL_SEQUENCE_RNN.toml")
    table = build(case)
    (operation,) = table.operations
    names = [t.name for t in case.inputs]
    table.operands[operation.inputs[names.index("merge_outputs")]].value = np.array(True)
    with pytest.raises(UnsupportedError, match="merge_outputs contradicts the number of outputs"):
        lift(table)


@pytest.mark.parametrize("activation", ["Relu", "Tanh"])
def test_a_plain_recurrent_layer_is_one_operation(activation: str) -> None:
    """The exponential function needs the level that has this operation, which has no Tanh."""
    model, b = new_model("net")
    constants = [reals(1, UNITS, n) for n in (INPUTS, UNITS)] + [reals(1, 2 * UNITS)]
    how: dict[str, Any] = {"hidden_size": UNITS, "activations": [activation], "outputs": 2}
    with b:
        every, last = b.RNN(b.input("x", ir.DataType.FLOAT, [5, BATCH, INPUTS]), *constants, **how)
        b.output(b.Exp(every), last)
    feeds, source = {"x": reals(5, BATCH, INPUTS)}, Model(model, "onnx")
    expected = source.run(feeds).values()
    table = lower(source)
    kinds = [o.type for o in table.operations]
    assert ("UNIDIRECTIONAL_SEQUENCE_RNN" in kinds) == (activation == "Relu")
    for found, right in zip(Model.of(lift(table)).run(feeds).values(), expected, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)


# QUANTIZED_LSTM, in the integers that AOSP computes with -----------------------------------------


def whole(x: Any, bits: int = 16) -> Any:
    return np.clip(x, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def shifted_down(x: int, bits: int) -> int:
    """gemmlowp's RoundingDivideByPOT."""
    rest, threshold = x & ((1 << bits) - 1), ((1 << bits) - 1 >> 1) + (x < 0)
    return (x >> bits) + (rest > threshold)


def doubled_high(x: int, y: int, bits: int = 32) -> int:
    """gemmlowp's SaturatingRoundingDoublingHighMul."""
    product, unit = x * y, 1 << (bits - 1)
    nudged = product + (unit // 2 if product >= 0 else 1 - unit // 2)
    return min(abs(nudged) // unit * (1 if nudged >= 0 else -1), unit - 1)


def times(x: int, factor: Any) -> int:
    """TensorFlow Lite's QuantizeMultiplier, MultiplyByQuantizedMultiplier."""
    fraction, shift = math.frexp(float(np.float32(factor)))
    high = doubled_high(x << max(shift, 0), round(fraction * 2**31))
    return shifted_down(high, max(-shift, 0))


def exact_root(x: int) -> float:
    return 1 / math.sqrt(max(x, 1))


def layer_norm(gate: list[int], weights: Any, bias: Any, scale: float) -> list[int]:
    """ApplyLayerNorm, with the inverse root as a real number."""
    n = len(gate)
    mean = math.trunc(sum(gate) * 1024 / n)
    variance = math.trunc((sum(g * g for g in gate) * (2**20 // n) - mean * mean) / 2**20)
    found = []
    for g, w, b in zip(gate, weights, bias, strict=True):
        product = round((1024 * g - mean) * exact_root(variance)) * int(w) + int(b)
        tenth = (abs(product) + 512) // 1024 * (1 if product > 0 else -1)
        found.append(int(whole(times(tenth, np.float32(scale) * np.float32(4096)))))
    return found


SCALES = {"x": 1 / 64, "w": 1 / 100, "p": 1 / 4096, "c": 1 / 8192, "h": 1 / 128, "y": 1 / 96}
NORM_SCALE = 1 / 20000


def logistic(z: Any) -> Any:
    return logistic_table()[z + 32768].astype(np.int64)


def tanh(z: Any, bits: int) -> Any:
    return tanh_table(bits)[z + 32768].astype(np.int64)


def without_input_gate(table: Table, inputs: list[int]) -> list[int]:
    found = list(inputs)
    for index in (1, 5, 9, 12, 20):
        given, none = table.operands[inputs[index]], Lifetime.NO_VALUE
        sizes = [0] * len(given.dimensions)
        found[index] = tensor(table, sizes, given.type, scale=1.0, lifetime=none)
    return found


def quantized(
    project: bool, normalize: bool = False, clip: float = 0.0, coupled: bool = False
) -> tuple[Table, dict[str, Any], list[Any]]:
    """With all gates and peepholes, or `coupled`: without the input gate, whose share is 32767
    minus that of the forget gate. Biases have the scales of input * weights.
    """
    outputs = 3 if project else UNITS
    sx, sw, sp, sc, sh, sy = SCALES.values()
    unit = 2.0**-8 if normalize else 2.0**-12
    kinds = OperandType.TENSOR_QUANT8_SYMM, OperandType.TENSOR_QUANT16_SYMM
    signed = OperandType.TENSOR_QUANT8_ASYMM_SIGNED
    x, h = rng.integers(-99, 99, (BATCH, INPUTS)), rng.integers(-99, 99, (BATCH, outputs))
    c = rng.integers(-9999, 9999, (BATCH, UNITS))
    w, r = rng.integers(-127, 127, (4, UNITS, INPUTS)), rng.integers(-127, 127, (4, UNITS, outputs))
    peephole = rng.integers(-4096, 4096, (3, UNITS))
    bias = rng.integers(-999, 999, (4, UNITS)) * (5000 if normalize else 1)
    norms = rng.integers(5000, 20000, (4, UNITS))
    weights, more = rng.integers(-127, 127, (outputs, UNITS)), rng.integers(-99, 99, outputs)
    table = Table()

    def one(array: Any, kind: OperandType, scale: float) -> int:
        return constant(table, array, kind, scale=scale)

    ends = [
        tensor(table, [BATCH, INPUTS], signed, "x", scale=sx, zero_point=3),
        tensor(table, [BATCH, outputs], signed, "h", scale=sy, zero_point=-2),
        tensor(table, [BATCH, UNITS], kinds[1], "c", scale=sc),
    ]
    inputs = [ends[0], *(one(a, kinds[0], sw) for a in (*w, *r))]
    inputs += [one(a, kinds[1], sp) for a in peephole] + [one(a, I32, sx * sw) for a in bias]
    absent: dict[str, Any] = {"lifetime": Lifetime.NO_VALUE}
    if project:
        inputs += [one(weights, kinds[0], sw), one(more, I32, sh * sw)]
    else:
        inputs += [tensor(table, [0, 0], kinds[0], scale=1.0, **absent)]
        inputs += [tensor(table, [0], I32, **absent)]
    inputs += ends[1:]
    if normalize:
        inputs += [one(a, kinds[1], NORM_SCALE) for a in norms]
    else:
        inputs += [tensor(table, [0], kinds[1], scale=1.0, **absent) for _ in "1234"]
    if coupled:
        inputs = without_input_gate(table, inputs)
    numbers = [clip, clip, *[unit] * 4, 5, sh]
    inputs += [scalar(table, n, SCALARS[type(n)]) for n in numbers]
    table.inputs = ends
    table.outputs = [
        tensor(table, [BATCH, outputs], signed, "state", scale=sy, zero_point=-2),
        tensor(table, [BATCH, UNITS], kinds[1], "cell", scale=sc),
        tensor(table, [BATCH, outputs], signed, "y", scale=sy, zero_point=-2),
    ]
    table.operations = [Operation("QUANTIZED_LSTM", inputs, table.outputs)]
    f32 = np.float32
    by = np.vectorize(times, otypes=[np.int64])
    down = np.vectorize(shifted_down, otypes=[np.int64])

    def gate(i: int, cell: Any = None) -> Any:
        own = (x - 3) @ w[i].T + (0 if normalize else bias[i])
        g = whole(by(own, f32(sw) * f32(sx) / f32(unit)))
        g = whole(g + by((h + 2) @ r[i].T, f32(sw) * f32(sy) / f32(unit)))
        if cell is not None:
            g = whole(g + by(cell * peephole[min(i, 2)], f32(sc) * f32(sp) / f32(unit)))
        if normalize:
            rows = [layer_norm([int(n) for n in row], norms[i], bias[i], NORM_SCALE) for row in g]
            return np.array(rows)
        return g

    forget, candidate = logistic(gate(1, c)), tanh(gate(2), 3)
    enter = 32767 - forget if coupled else logistic(gate(0, c))
    cell = whole(down(forget * c, 15) + down(enter * candidate, 30 - 13))
    if clip:
        cell = np.clip(cell, -int(clip / sc), int(clip / sc))
    out = logistic(gate(3, cell)) * tanh(cell, 2)
    y = whole(by(out, f32(2.0**-30 / sh)) - 5, 8)
    if project:
        product = (y + 5) @ weights.T + more
        y = whole(by(product, f32(sw) * f32(sh) / f32(sy)) - 2, 8)
        if clip:
            y = np.clip(y + 2, -int(clip / sy), int(clip / sy)) - 2
    return table, {"x": x, "h": h, "c": c}, [y, cell, y]


@pytest.mark.parametrize("project", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(("clip", "coupled"), [(0.0, False), (0.1, False), (0.625, True)])
def test_a_quantized_lstm_by_its_integers(
    project: bool, normalize: bool, clip: float, coupled: bool
) -> None:
    table, feeds, wanted = quantized(project, normalize, clip, coupled)
    assert validate(table) == [] and feature_level(table)[0] == 4
    model = Model.of(lift(table))
    typed = {i.name: feeds[i.name].astype(i.dtype) for i in model.inputs}
    for found, right in zip(model.run(typed).values(), wanted, strict=True):
        assert np.ptp(right) > 9
        np.testing.assert_array_equal(found, right)


def test_a_cell_state_whose_scale_is_no_power_of_two() -> None:
    table, _, _ = quantized(False)
    for operand in table.operands:
        if operand.name in ("c", "cell"):
            operand.scale = 1 / 9000
    with pytest.raises(
        UnsupportedError,
        match=r"the scale of the cell state must be a power of two from 2\^-15 to 2\^-9, got",
    ):
        lift(table)


@pytest.mark.parametrize("index", [26, 27, 28, 29, 31])
def test_scales_that_are_no_numbers(index: int) -> None:
    table, _, _ = quantized(False)
    table.operations[0].inputs[index] = scalar(table, 0.0, OperandType.FLOAT32)
    with pytest.raises(UnsupportedError, match="is not a valid factor between scales"):
        lift(table)


@pytest.mark.parametrize("case", corpus_cases("nnapi/level3plus", "*qlstm*"))
def test_androids_integers_of_a_quantized_lstm(case: Path) -> None:
    model = load(case / "model.nnapi.json")
    given, wanted = (np.load(case / f"{name}.npz") for name in ("inputs", "outputs"))
    feeds = dict(zip((i.name for i in model.inputs), given.values(), strict=True))
    for found, right in zip(model.run(feeds).values(), wanted.values(), strict=True):
        np.testing.assert_array_equal(found, right)
