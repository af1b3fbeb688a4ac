"""TensorFlow Lite models of the operators that NNAPI has, by way of an operand table.

TensorFlow Lite and NNAPI have most operators in common, so that a file becomes an operand table and
a table a file; the graph is that of the table.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from converter.formats.format import Flavour, Format, Option

if TYPE_CHECKING:
    from converter.errors import Diagnostic
    from converter.formats.nnapi.table import Table
    from converter.graph.network import Network


def sniff(head: bytes, path: str | os.PathLike[str] = "") -> bool:
    """Whether a file that begins with `head` (8 bytes suffice) has the identifier of the format."""
    return head[4:8] == b"TFL3"


def read(path: Path, weights: Path | None) -> Network:
    from converter.formats.tflite.reader import read_tflite

    notes: list[Diagnostic] = []
    model = _lifted(read_tflite(path, notes), str(path))
    model.notes += notes
    # those of the file, which an engine may run; a table that is made of it has a table's layout
    model.format, model.interface = "tflite", {"tflite": (model.inputs, model.outputs)}
    return model


def _lifted(table: Table, file: str) -> Network:
    """The model of a file's table.

    The file may have operators of types that NNAPI does not have: they are not supported (X201),
    but nothing is wrong with the file (R105).
    """
    from converter.errors import UnsupportedError
    from converter.formats.nnapi.lift import lift

    try:
        return lift(table, file)
    except UnsupportedError as e:
        raise UnsupportedError(
            replace(d, code="X201") if d.code == "R105" else d for d in e.diagnostics
        ) from None


def write(model: Network, path: Path, flavour: Flavour) -> list[Diagnostic]:
    from converter.formats.tflite.writer import write_model

    return write_model(model, path, flavour)


def check(path: Path, weights: Path | None) -> list[Diagnostic]:
    """What reading says: the rules of NNAPI's tables are not those of TensorFlow Lite."""
    return read(path, weights).notes


def kinds() -> Mapping[str, str]:
    """The operations of NNAPI, which say what is read."""
    from converter.formats.nnapi.format import kinds

    return kinds()


def engine(path: Path) -> str:
    """LiteRT takes every file of the format."""
    with open(path, "rb") as f:
        return "litert" if sniff(f.read(8)) else ""


FORMAT = Format(
    name="tflite",
    title="TensorFlow Lite (operators of NNAPI)",
    suffixes=(".tflite",),
    sniff=sniff,
    read=read,
    write=write,
    check=check,
    kinds=kinds,
    options=(
        Option(
            "level",
            "the highest NNAPI feature level to use",
            values=("1", "2", "3", "4", "5", "6", "7"),
            default="7",
        ),
    ),
    versions="schema version 3",
    engine=engine,
)
