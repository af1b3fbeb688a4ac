"""The flat binary form of PyTorch's NNAPI back end (torch/backends/_nnapi): one `.nnapi` blob of
32-bit words and numbered weight buffers.

    header    6 x i32    version 1, operands, values, operations, inputs, outputs
    operands  i32 type, u32 rank, f32 scale, i32 zero point
    values    i32 operand, i32 source (0 immediate, 2 buffer), u32 length
    operations  i32 code, u32 inputs, u32 outputs
    dimensions u32..., then the values (padded to 4 bytes; for a buffer i32 buffer, i32 offset,
    i32 length),
    the operands of operations u32..., then inputs and outputs u32...

It has no names, lifetimes or consumer counts. The buffers are files next to the blob:
NAME.nnapi.weights, NAME.nnapi.1.weights and so on; torch keeps them as tensors, in the same order.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from converter.errors import Diagnostic, UnsupportedError, Where, unreadable
from converter.formats.nnapi.codec import view
from converter.formats.nnapi.layout import by_size, lay_out, value_bytes
from converter.formats.nnapi.operations import code_of, names_by_code
from converter.formats.nnapi.table import (
    Bytes,
    Lifetime,
    Operand,
    OperandType,
    Operation,
    Subgraph,
    Table,
)
from converter.io.files import Output, open_side_file
from converter.io.mapped_file import MappedFile

VERSION = 1
IMMEDIATE, BUFFER = 0, 2
_TYPES = {int(t): t for t in OperandType}
_MOST = 2**24  # torch's loader refuses counts from here on
_HEADER, _OPERAND, _VALUE, _OPERATION, _REFERENCE = (
    struct.Struct(f) for f in ("<6i", "<iIfi", "<iiI", "<iII", "<3i")
)

Words = npt.NDArray[np.uint32]


def weights_name(blob: str | Path, number: int) -> Path:
    """Return the file of a weight buffer: NAME.nnapi.weights for number 0, NAME.nnapi.1.weights for
    the next.
    """
    blob = Path(blob)
    stem = blob.name.removesuffix(".nnapi") + ".nnapi"
    return blob.with_name(f"{stem}.{number}.weights" if number else f"{stem}.weights")


class _Cursor:
    """A reader that goes through a blob from start to end; raise ReadError R103 at its end."""

    def __init__(self, path: Path) -> None:
        self._file = MappedFile(path)
        self._path = path
        self._at = 0

    def where(self, part: str) -> Where:
        return Where(str(self._path), path=part)

    def take(self, size: int, part: str) -> Bytes:
        if self._at + size > len(self._file):
            message = (
                f"the blob ends at byte {len(self._file)}, {part} needs bytes "
                f"{self._at}..{self._at + size}"
            )
            raise unreadable("R103", message, self.where(part))
        self._at += size
        return self._file.slice(self._at - size, size)

    def records(self, record: struct.Struct, count: int, part: str) -> list[tuple[int, ...]]:
        return list(record.iter_unpack(self.take(record.size * count, part).tobytes()))

    def words(self, count: int, part: str) -> Words:
        return self.take(4 * count, part).view("<u4")


def read_blob(path: str | Path) -> Table:
    """Return the table in a blob; operands are named by their index.

    Values in buffers are views of the mapped weight files.

    Raises ReadError: R100 no file, R102 a value outside its buffer or a buffer that is missing,
    R103 truncated, R104 version, R110 wrong codes.
    """
    path = Path(path)
    at = _Cursor(path)
    version, *counts = at.records(_HEADER, 1, "header")[0]
    if version != VERSION:
        raise unreadable(
            "R104",
            f"version {version} of the flat form is not supported; netconv reads version {VERSION}",
            at.where("header"),
        )
    if any(not 0 <= n < _MOST for n in counts):
        raise unreadable(
            "R103", f"the counts {counts} must be within 0..{_MOST - 1}", at.where("header")
        )
    n_operands, n_values, n_operations, n_inputs, n_outputs = counts
    heads = at.records(_OPERAND, n_operands, "operands")
    values = at.records(_VALUE, n_values, "values")
    codes = at.records(_OPERATION, n_operations, "operations")
    table = Table(operands=[_operand(i, head, at) for i, head in enumerate(heads)])
    for operand, head in zip(table.operands, heads, strict=True):
        operand.dimensions = at.words(head[1], "dimensions").tolist()
    _read_values(table, values, at, path)
    names = names_by_code()
    for i, (code, n_in, n_out) in enumerate(codes):
        if code not in names:
            raise unreadable(
                "R110", f"operation code {code} is not known", at.where(f"operations[{i}]")
            )
        table.operations.append(
            Operation(
                names[code],
                at.words(n_in, "operations").tolist(),
                at.words(n_out, "operations").tolist(),
            )
        )
    table.inputs, table.outputs = (
        at.words(n_inputs, "inputs").tolist(),
        at.words(n_outputs, "outputs").tolist(),
    )
    return table


def _operand(index: int, head: tuple[int, ...], at: _Cursor) -> Operand:
    code, _, scale, zero = head
    kind = _TYPES.get(code)
    if kind is None:
        raise unreadable(
            "R110", f"operand type code {code} is not known", at.where(f"operands[{index}]")
        )
    if not np.isfinite(scale):
        raise unreadable(
            "R110", f"scale {scale} is not a finite number", at.where(f"operands[{index}]")
        )
    return Operand(
        kind, name=f"operand{index}", scale=float(str(np.float32(scale))), zero_point=zero
    )


def _read_values(table: Table, values: Iterable[tuple[int, ...]], at: _Cursor, path: Path) -> None:
    buffers: dict[int, Bytes] = {}
    for i, (index, source, length) in enumerate(values):
        place = at.where(f"values[{i}]")
        if not 0 <= index < len(table.operands):
            raise unreadable(
                "R103", f"operand {index} does not exist, there are {len(table.operands)}", place
            )
        data = at.take(length + -length % 4, f"values[{i}]")[:length]
        if source == BUFFER:
            data = _referenced(data, buffers, path, place)
        elif source != IMMEDIATE:
            raise unreadable(
                "R110",
                f"source {source} of a value must be immediate ({IMMEDIATE}) or "
                f"a buffer ({BUFFER})",
                place,
            )
        operand = table.operands[index]
        operand.value = view(operand, data, place)


def _referenced(data: Bytes, buffers: dict[int, Bytes], path: Path, place: Where) -> Bytes:
    if data.size != _REFERENCE.size:
        raise unreadable(
            "R103", f"a reference must have {_REFERENCE.size} bytes, got {data.size}", place
        )
    number, offset, length = _REFERENCE.unpack(data.tobytes())
    if number not in buffers:
        name = weights_name(path, number).name
        file = open_side_file(path, name, place) if 0 <= number < _MOST else None
        if file is None:
            raise unreadable(
                "R102",
                f"weight buffer {number} is missing: {name} was not found next to the blob",
                place,
            )
        buffers[number] = file.bytes
    if offset < 0 or length < 0 or offset + length > buffers[number].size:
        raise unreadable(
            "R102",
            f"bytes {offset}..{offset + length} are outside weight buffer {number}, which has "
            f"{buffers[number].size}",
            place,
        )
    return buffers[number][offset : offset + length]


def write_blob(table: Table, out: Output) -> list[Diagnostic]:
    """Write a table as a blob, with its large values as one buffer in a second file; returns
    warnings about content that the form cannot store.

    Raises UnsupportedError X202 for operands without value, per-channel scales and subgraphs, X204
    for a buffer of 2 GiB or more.
    """
    problems, warnings = _limits(table)
    if problems:
        raise UnsupportedError(problems)
    layout = lay_out(by_size(replace(table, referenced=[])))
    (lifetimes,), (locations,) = layout.lifetimes, layout.locations
    if layout.pool_size >= 2**31:
        raise UnsupportedError(
            Diagnostic(
                "X204",
                f"the weights have {layout.pool_size} bytes; the flat form "
                "supports at most 2^31 - 1",
            )
        )
    constants = [i for i, lifetime in enumerate(lifetimes) if lifetime.is_constant]
    large = {i for i in constants if lifetimes[i] is Lifetime.CONSTANT_REFERENCE}
    with out.open() as f:
        f.write(
            _HEADER.pack(
                VERSION,
                len(table.operands),
                len(constants),
                len(table.operations),
                len(table.inputs),
                len(table.outputs),
            )
        )
        f.writelines(
            _OPERAND.pack(o.type, len(o.dimensions), o.scale, o.zero_point) for o in table.operands
        )
        f.writelines(
            _VALUE.pack(
                i,
                BUFFER if i in large else IMMEDIATE,
                _REFERENCE.size if i in large else locations[i].length,
            )
            for i in constants
        )
        f.writelines(
            _OPERATION.pack(code_of(o.type), len(o.inputs), len(o.outputs))
            for o in table.operations
        )
        f.writelines(_words(o.dimensions) for o in table.operands)
        for i in constants:
            data = (
                _REFERENCE.pack(0, locations[i].offset, locations[i].length)
                if i in large
                else value_bytes(table.operands[i]).tobytes()
            )
            f.write(data + bytes(-len(data) % 4))
        f.writelines(_words(o.inputs + o.outputs) for o in table.operations)
        f.write(_words(table.inputs + table.outputs))
    if large:
        out.stream(".weights" if out.stem.endswith(".nnapi") else ".nnapi.weights", layout.pool())
    return warnings


def reason_against(
    subgraph: Subgraph, operation: Operation, lifetimes: list[Lifetime]
) -> str | None:
    """Return why the flat form cannot hold an operation; None when it can."""
    reasons = (_missing(subgraph.operands[i], lifetimes[i]) for i in operation.inputs)
    return next((r for r in reasons if r is not None), None)


def _missing(operand: Operand, lifetime: Lifetime) -> str | None:
    """Return the first property of an operand that the blob form does not support."""
    if lifetime is Lifetime.NO_VALUE:
        return "the flat form does not support operands without a value"
    if lifetime is Lifetime.SUBGRAPH:
        return "the flat form does not support subgraphs"
    return (
        None
        if operand.channel_quant is None
        else "the flat form does not support per-channel scales"
    )


def _limits(table: Table) -> tuple[list[Diagnostic], list[Diagnostic]]:
    problems, warnings = [], []
    for i, (operand, lifetime) in enumerate(zip(table.operands, table.lifetimes(), strict=True)):
        where = Where(path=f"operands[{i}]", layer=operand.name, kind=operand.type.name)
        reason = _missing(operand, lifetime)
        if reason is not None:
            problems.append(Diagnostic("X202", reason, where=where))
    if table.relaxed:
        warnings.append(
            Diagnostic(
                "X207",
                "the flat form cannot declare that float32 may be computed as "
                "float16; the flag is dropped",
                "warning",
            )
        )
    return problems, warnings


def _words(values: list[int]) -> bytes:
    return np.asarray(values, "<u4").tobytes()
