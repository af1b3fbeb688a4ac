"""Operations on stored integers, and operations that are only read.

The laws of tests/test_mapping_laws.py hold rows to real numbers. Here a sample node of a row stands
between DequantizeLinear and QuantizeLinear, its operation computes on the integers around it, and
the results are at most one step of the scale apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice, zip_longest
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from nnapi_models import I32, Q8, constant, scalar, tensor

from converter import engines
from converter.api import Model
from converter.errors import MappingError
from converter.formats.nnapi.lift import lift
from converter.formats.nnapi.lower import lower
from converter.formats.nnapi.operations import operations
from converter.formats.nnapi.rules import TABLE
from converter.formats.nnapi.rules.context import Stored
from converter.formats.nnapi.table import OperandType, Operation, Table
from converter.graph.build import Builder
from converter.graph.infer import InferenceError
from converter.mapping.node import Node
from converter.mapping.rules import Rule
from laws.nnapi import NNAPIAdapter, results_of
from mapping_samples import candidates, contexts

ADAPTER = NNAPIAdapter()
ROWS = [pytest.param(r, id=f"{i}-{r.op}={r.kind}") for i, r in enumerate(TABLE.rules)]


def nodes(rule: Rule) -> Iterator[tuple[Node, Builder]]:
    """Sample nodes: the ordinary one, then those that differ from it in one attribute."""
    for context in contexts(rule):
        values = candidates(rule, context)
        ordinary = {k: v[0] for k, v in values.items()}
        others = ({**ordinary, k: v} for k, options in values.items() for v in options[1:])
        for attrs in (ordinary, *others):
            try:
                yield ADAPTER.node(rule, context, attrs)
            except (InferenceError, MappingError) as e:
                print(context, attrs, e)


def computes_the_same(b: Builder, values: list[ir.Value], table: Table) -> None:
    """The graph and the table that was made of it agree within one step."""
    b.output(*values)
    model, again = Model(ir.Model(b.graph, ir_version=10), "onnx"), Model.of(lift(table))
    rng = np.random.default_rng(0)
    feeds = {i.name: numbers(rng, i) for i in model.inputs}
    expected = list(model.run(feeds).values())
    stored = {
        i.name: feeds[j.name].astype(i.dtype.numpy() if hasattr(i.dtype, "numpy") else i.dtype)
        for i, j in zip(again.inputs, model.inputs, strict=True)
    }
    for e, a in zip(expected, engines.run(again, stored).values(), strict=True):
        assert e.shape == a.shape or (e.shape == () and a.shape == (1,))
        assert e.dtype == a.dtype or (e.dtype, a.dtype) == (np.int64, np.int32)
        actual, right = (x.astype(np.float64).reshape(-1) for x in (a, e))
        np.testing.assert_allclose(actual, right, rtol=1e-4, atol=1)


def numbers(rng: np.random.Generator, port: Any) -> Any:
    dtype = np.dtype(port.dtype.numpy() if hasattr(port.dtype, "numpy") else port.dtype)
    shape = [int(d) for d in port.shape]
    if dtype.kind == "f":
        return rng.uniform(0.25, 3, shape).astype(dtype)
    return rng.integers(*((0, 2) if dtype.kind == "b" else (1, 5)), shape).astype(dtype)


# the integers around a node ----------------------------------------------------------------------

SCALE = 1 / 16
# kinds that no sample gets to: 16 bits for boxes, or only at a level with another row for integers
OTHER_INTEGERS = {
    "EXPAND_DIMS", "EMBEDDING_LOOKUP", "ROI_ALIGN", "ROI_POOLING", "HEATMAP_MAX_KEYPOINT",
    "BOX_WITH_NMS_LIMIT", "GENERATE_PROPOSALS",
}  # fmt: skip
WEIGHTS = {"Conv", "ConvTranspose", "MatMul", "Gemm"}


def quantize(rule: Rule, view: Node, b: Builder) -> Node:
    """The node between DequantizeLinear and QuantizeLinear, as the operation wants its scales."""
    node = view.outputs[0].producer()
    assert node is not None
    before = Builder(b.graph, b.names, before=node)
    zero, owned = np.array(0, np.uint8), rule.owned("inputs")
    for i, value in enumerate(node.inputs):
        if value is None or value.dtype != ir.DataType.FLOAT:
            continue
        if value.const_value is None:
            stored = b.input(f"q{i}", ir.DataType.UINT8, list(value.shape or ()))
            b.graph.inputs.remove(value)
        elif i not in owned or (i == 1 and node.op_type in WEIGHTS):
            array = np.clip(np.round(value.const_value.numpy() / SCALE), 0, 255)
            stored = b.const(array.astype(np.uint8))
        else:
            continue
        scale = np.array(SCALE, np.float32)
        node.replace_input_with(i, before.op("DequantizeLinear", stored, scale, zero))
    for value, spec in zip_longest(node.outputs, operations()[rule.kind].outputs):
        if value.dtype == ir.DataType.FLOAT:
            known = spec is not None and isinstance(spec.quantization, Mapping)
            wanted = spec.quantization if known else {}
            scale, point = wanted.get("TENSOR_QUANT8_ASYMM", (SCALE, 0))
            numbers = np.array(scale, np.float32), np.array(point, np.uint8)
            b.op("QuantizeLinear", value, *numbers)
    return replace(view, inputs=list(node.inputs))


def has_bytes(rule: Rule) -> bool:
    """Whether the row may be written with a result of 8 bits."""
    spec = operations()[rule.kind]
    of_reals = not any(isinstance(f, Stored) for f in rule.fields)
    return (
        of_reals
        and not rule.lift_only
        and any(r.get(spec.outputs[0].type) is Q8 for r in spec.rows)
    )


@pytest.mark.parametrize("rule", [p for p in ROWS if has_bytes(p.values[0])])
def test_a_row_writes_the_integers_around_a_node(rule: Rule) -> None:
    found, reasons = 0, []
    for node, b in islice(nodes(rule), 4):
        node = quantize(rule, node, b)
        try:
            table = ADAPTER.write(rule, rule, node, b, 7, integers=True).file
        except MappingError as e:
            reasons.append(str(e))
            continue
        own = next(o for o in table.operations if o.type == rule.kind)
        assert table.operands[own.outputs[0]].type is Q8
        computes_the_same(b, results_of(node), table)
        found += 1
    old = rule.op == "Expand" and rule.kind == "MUL"  # for real numbers alone
    assert bool(found) == (rule.kind not in OTHER_INTEGERS and not old), reasons


# refusals ---------------------------------------------------------------------------------------

X = np.random.default_rng(1).uniform(0.5, 2, (2, 3)).astype(np.float32)
WIDE = np.arange(8, dtype=np.float32).reshape(4, 2)
TRUE = np.array([[True, False, True], [True, True, True]])
# arguments in the order of the signature (arrays are inputs of the network, lists constants), and
# the result by its formula
READ: dict[str, tuple[list[Any], Any]] = {
    "NOT_EQUAL": ([X, X[::-1].copy()], X[::-1] != X),
    "RSQRT": ([X], 1 / np.sqrt(X)),
    "REDUCE_ALL": ([TRUE, [1], False], TRUE.all(axis=1)),
    "REDUCE_ANY": ([~TRUE, [-1], True], (~TRUE).any(axis=1, keepdims=True)),
    "CHANNEL_SHUFFLE": ([WIDE, 2, 0], WIDE[[0, 2, 1, 3]]),
    "PACK": ([1, X, 2 * X], np.stack([X, 2 * X], axis=1)),
    "FILL": ([[2, 2], 0.5], np.full((2, 2), 0.5, np.float32)),
    "RANK": ([X], np.array(2, np.int32)),
    "MIRROR_PAD": ([X, [[1, 0], [2, 1]], 1], np.pad(X, [(1, 0), (2, 1)], "symmetric")),
    "REVERSE": ([X, [1]], X[:, ::-1]),
}
TENSORS = {"f": OperandType.TENSOR_FLOAT32, "b": OperandType.TENSOR_BOOL8, "i": I32}
SCALARS = {bool: OperandType.BOOL, int: OperandType.INT32, float: OperandType.FLOAT32}


@pytest.mark.parametrize("kind", READ)
def test_operations_that_are_only_read_are_right(kind: str) -> None:
    arguments, wanted = READ[kind]
    table, feeds = Table(), {}
    indexes = []
    for i, one in enumerate(arguments):
        if isinstance(one, np.ndarray):
            indexes.append(tensor(table, list(one.shape), TENSORS[one.dtype.kind], f"x{i}"))
            table.inputs.append(indexes[-1])
            feeds[f"x{i}"] = one
        elif isinstance(one, list):
            indexes.append(constant(table, one, I32))
        else:
            indexes.append(scalar(table, one, SCALARS[type(one)]))
    types = TENSORS if wanted.shape else {"i": OperandType.INT32}
    y = tensor(table, list(wanted.shape), types[wanted.dtype.kind], "y")
    table.operations, table.outputs = [Operation(kind, indexes, [y])], [y]
    found = Model.of(lift(table)).run(feeds)["y"]
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_all_that_is_only_read_is_tested() -> None:
    """SQUEEZE has samples, though a RESHAPE is written for it."""
    assert {r.kind for r in TABLE.rules if r.lift_only} == READ.keys() | {"SQUEEZE"}


def test_a_cell_of_integers_comes_back_as_itself() -> None:
    table, rng = Table(), np.random.default_rng(4)
    batch, inputs, size = 2, 3, 4
    eighth: dict[str, Any] = {"scale": 1 / 128, "zero_point": 128}
    x = tensor(table, [batch, inputs], Q8, "x", **eighth)
    shapes = [[size, inputs]] * 4 + [[size, size]] * 4
    numbers = [rng.integers(90, 160, s) for s in shapes]
    weights = [constant(table, n, Q8, scale=0.02, zero_point=120) for n in numbers]
    biases = [constant(table, rng.integers(-50, 50, size), I32, scale=0.02 / 128) for _ in range(4)]
    wide: dict[str, Any] = {"scale": 1 / 2048, "zero_point": 0}
    cell = tensor(table, [batch, size], OperandType.TENSOR_QUANT16_SYMM, "cell", **wide)
    state = tensor(table, [batch, size], Q8, "state", **eighth)
    new_cell = tensor(table, [batch, size], OperandType.TENSOR_QUANT16_SYMM, "new cell", **wide)
    y = tensor(table, [batch, size], Q8, "y", **eighth)
    kind = "QUANTIZED_16BIT_LSTM"
    table.operations = [Operation(kind, [x, *weights, *biases, cell, state], [new_cell, y])]
    table.inputs, table.outputs = [x, cell, state], [new_cell, y]
    model = Model.of(lift(table))
    again = lower(model)
    assert [o.type for o in again.operations] == [kind]
    feeds = {"x": rng.integers(100, 156, (batch, inputs)).astype(np.uint8)}
    feeds |= {"cell": rng.integers(-999, 999, (batch, size)).astype(np.int16)}
    feeds |= {"state": rng.integers(100, 156, (batch, size)).astype(np.uint8)}
    for wanted, found in zip(
        model.run(feeds).values(), Model.of(lift(again)).run(feeds).values(), strict=True
    ):
        assert np.ptp(wanted) > 0
        np.testing.assert_array_equal(found, wanted)
