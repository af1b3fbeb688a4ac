"""One NNAPI operation in an operand table, and LiteRT, which computes its numbers operation by
operation.

Inputs are in the order of the signature; a constant without axes is a scalar operand, as is an
output of RANK.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np

from converter.formats.nnapi.codec import read_table, write_table
from converter.formats.nnapi.lift import lift as lift
from converter.formats.nnapi.operations import bind
from converter.formats.nnapi.rules import TABLE
from converter.formats.nnapi.table import ChannelQuant, Operand, OperandType, Operation, Table
from converter.io.files import Output
from layers.cases import Case, Tensor, chosen
from layers.models.judged import JudgeEngine

TARGET, LAYOUT, SUFFIX = "nnapi", "native", ".nnapi.json"
MAPPING = SimpleNamespace(table=TABLE)
T = OperandType
_TENSORS = {
    np.dtype(t.dtype): t
    for t in (T.TENSOR_FLOAT32, T.TENSOR_FLOAT16, T.TENSOR_INT32, T.TENSOR_BOOL8)
}
_SCALARS = {np.dtype(t.dtype): t for t in (T.FLOAT32, T.FLOAT16, T.INT32, T.UINT32, T.BOOL)}


def build(case: Case) -> Table:
    table = Table()
    inputs = [table.add(_operand(f"x{i}", t)) for i, t in enumerate(case.inputs)]
    outputs = [table.add(_operand(f"y{i}", t)) for i, t in enumerate(case.outputs)]
    table.operations.append(Operation(case.kind, inputs, outputs))
    table.inputs = [int(name[1:]) for name in case.feeds()]
    table.outputs = [len(inputs) + int(name[1:]) for name in case.expected()]
    return table


def _operand(name: str, t: Tensor) -> Operand:
    if t.absent:
        return Operand(T.TENSOR_FLOAT32, [0], name)
    value = np.ascontiguousarray(t.values) if t.constant else None
    found = Operand(_type(t), list(t.shape), name, value=value)
    if "scales" in t.quantized:
        found.channel_quant = ChannelQuant(t.quantized["axis"], tuple(t.quantized["scales"]))
    elif t.quantized:
        found.scale, found.zero_point = t.quantized["scale"], t.quantized.get("zero_point", 0)
    return found


def _type(t: Tensor) -> OperandType:
    if t.quantized:
        return T[t.quantized["type"]]
    return (_TENSORS if t.shape else _SCALARS)[t.dtype]


def read(path: Path) -> Table:
    return read_table(path)


def write(table: Table, path: Path) -> None:
    with Output(path) as out:
        write_table(table, out)


def taken(path: Path, kind: str) -> Case | str:
    """The only operation of a table, or that of a kind with its neighbors cut off; or why there is
    none.
    """
    table = read_table(path)
    operation = chosen(table.operations, kind, lambda o: o.type)
    if isinstance(operation, str):
        return operation
    used = [table.operands[i] for i in (*operation.inputs, *operation.outputs)]
    if strange := [
        o.type.name for o in used if o.type not in {*_TENSORS.values(), *_SCALARS.values()}
    ]:
        return f"operands of type {strange[0]}"
    given = {*table.inputs, *(i for o in table.operations for i in o.outputs)}
    inputs = [
        Tensor.of(np.array(table.operands[i].array()), constant=True)
        if table.operands[i].value is not None
        else _tensor(table.operands[i], absent=i not in given)
        for i in operation.inputs
    ]
    bound = bind(operation, table).inputs.items()
    lists = [(name, index if isinstance(index, list) else [index]) for name, index in bound]
    names = [(name, i) for name, indexes in lists for i in indexes if i is not None]
    if [i for _, i in names] == operation.inputs:
        for t, (name, _) in zip(inputs, names, strict=True):
            t.name = name
    return Case(
        operation.type,
        inputs=inputs,
        outputs=[_tensor(table.operands[i]) for i in operation.outputs],
    )


def _tensor(operand: Operand, absent: bool = False) -> Tensor:
    assert operand.type.dtype is not None
    return Tensor(operand.type.dtype.name, tuple(operand.dimensions), absent=absent)


class Engine(JudgeEngine):
    judge, name = "nnapi-table", "LiteRT"

    def __init__(self) -> None:
        from importlib.metadata import version

        super().__init__()
        self.name = f"LiteRT {version('ai-edge-litert')}"
