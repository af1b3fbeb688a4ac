"""Operations that equal earlier ones are not checked again; those that differ are."""

from __future__ import annotations

import numpy as np

from converter.formats.nnapi.repeated import signature
from converter.formats.nnapi.table import Operand, OperandType, Operation, Table
from converter.formats.nnapi.validate import validate

FLOATS, NUMBER = OperandType.TENSOR_FLOAT32, OperandType.INT32


def sums(*shapes: tuple[list[int], list[int]]) -> Table:
    """Return a table of sums, each of an input with itself: the dimensions of both."""
    table = Table()
    table.operands.append(Operand(NUMBER, value=np.array(0, np.int32)))
    for before, after in shapes:
        first = len(table.operands)
        table.operands += [Operand(FLOATS, before), Operand(FLOATS, after)]
        table.operations.append(Operation("ADD", [first, first, 0], [first + 1]))
        table.inputs.append(first)
        table.outputs.append(first + 1)
    return table


def test_a_wrong_operation_after_equal_ones_is_found() -> None:
    right = ([2, 3], [2, 3])
    assert not validate(sums(right, right))
    found = validate(sums(right, right, ([2, 3], [2, 4]), right, ([2, 3], [2, 4])))
    assert [d.where.path for d in found] == ["operations[2].outputs[0]", "operations[4].outputs[0]"]


def test_signatures() -> None:
    table = sums(([2], [2]), ([2], [2]), ([3], [3]))
    same = [signature(o, table) for o in table.operations]
    assert same[0] == same[1] != same[2]
    two = Operation("ADD", [1, 3, 0], [2])
    assert signature(two, table) != same[0]  # not one operand twice
    table.operands[3].scale = 0.5
    assert signature(table.operations[1], table) != same[0]
    table.operands.append(Operand(NUMBER, value=np.array(1, np.int32)))
    relu = Operation("ADD", [1, 1, 7], [2])
    assert signature(relu, table) != same[0]
    assert signature(Operation("WHILE", [], []), table) is None
