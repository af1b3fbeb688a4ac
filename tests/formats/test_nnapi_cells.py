"""Cells of recurrent networks and the pool of squares, by formulas and back at their level."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nnapi_models import I32, constant, scalar, tensor

from converter.api import Model
from converter.formats.nnapi.levels import feature_level
from converter.formats.nnapi.lift import lift
from converter.formats.nnapi.lower import lower
from converter.formats.nnapi.table import Lifetime, Operand, OperandType, Operation, Table
from converter.formats.nnapi.validate import validate

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


# QUANTIZED_LSTM, in the integers that AOSP computes with -----------------------------------------


def whole(x: Any, bits: int) -> Any:
    return np.clip(np.round(x), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def quantized(project: bool) -> tuple[Table, dict[str, Any], list[Any]]:
    """With all gates and peepholes; biases have the scales of input * weights."""
    outputs = 3 if project else UNITS
    sx, sw, sp, sc, sh, sy = 1 / 64, 1 / 100, 1 / 4096, 1 / 8192, 1 / 128, 1 / 96
    kinds = OperandType.TENSOR_QUANT8_SYMM, OperandType.TENSOR_QUANT16_SYMM
    signed = OperandType.TENSOR_QUANT8_ASYMM_SIGNED
    x, h = rng.integers(-99, 99, (BATCH, INPUTS)), rng.integers(-99, 99, (BATCH, outputs))
    c = rng.integers(-9999, 9999, (BATCH, UNITS))
    w, r = rng.integers(-127, 127, (4, UNITS, INPUTS)), rng.integers(-127, 127, (4, UNITS, outputs))
    peephole, bias = rng.integers(-4096, 4096, (3, UNITS)), rng.integers(-999, 999, (4, UNITS))
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
    if project:
        inputs += [one(weights, kinds[0], sw), one(more, I32, sh * sw)]
    else:
        absent: dict[str, Any] = {"lifetime": Lifetime.NO_VALUE}
        inputs += [tensor(table, [0, 0], kinds[0], scale=1.0, **absent)]
        inputs += [tensor(table, [0], I32, **absent)]
    inputs += ends[1:]
    inputs += [tensor(table, [0], kinds[1], scale=1.0, lifetime=Lifetime.NO_VALUE) for _ in "1234"]
    numbers = [0.0, 0.0, *[2.0**-12] * 4, 5, sh]
    inputs += [scalar(table, n, SCALARS[type(n)]) for n in numbers]
    table.inputs = ends
    table.outputs = [
        tensor(table, [BATCH, outputs], signed, "state", scale=sy, zero_point=-2),
        tensor(table, [BATCH, UNITS], kinds[1], "cell", scale=sc),
        tensor(table, [BATCH, outputs], signed, "y", scale=sy, zero_point=-2),
    ]
    table.operations = [Operation("QUANTIZED_LSTM", inputs, table.outputs)]

    def gate(i: int, cell: Any = None) -> Any:
        own = whole(((x - 3) @ w[i].T + bias[i]) * (sx * sw * 4096), 16)
        g = whole(own + whole((h + 2) @ r[i].T * (sy * sw * 4096), 16), 16)
        if cell is not None:
            g = whole(g + whole(cell * peephole[min(i, 2)] * (sc * sp * 4096), 16), 16)
        return g / 4096

    enter, forget = (whole(sigmoid(gate(i, c)) * 32768, 16) for i in (0, 1))
    candidate = whole(np.tanh(gate(2)) * 32768, 16)
    added = whole(enter * candidate / 2**30 / sc, 16)
    cell = whole(whole(forget * c / 32768, 16) + added, 16)
    out = whole(sigmoid(gate(3, cell)) * 32768, 16) * whole(np.tanh(cell * sc) * 32768, 16)
    y = whole(out / 2**30 / sh + 5, 8)
    if project:
        y = whole(((y - 5) @ weights.T + more) * (sh * sw / sy) - 2, 8)
    return table, {"x": x, "h": h, "c": c}, [y, cell, y]


@pytest.mark.parametrize("project", [False, True])
def test_a_quantized_lstm_by_its_integers(project: bool) -> None:
    table, feeds, wanted = quantized(project)
    assert validate(table) == [] and feature_level(table)[0] == 4
    model = Model.of(lift(table))
    typed = {i.name: feeds[i.name].astype(i.dtype) for i in model.inputs}
    for found, right in zip(model.run(typed).values(), wanted, strict=True):
        assert np.ptp(right) > 9
        np.testing.assert_allclose(found, right, atol=1)
