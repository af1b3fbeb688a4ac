"""TensorFlow Lite models of the operators that NNAPI has: a form of the operand table, and a target of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from converter.format import Format, Option
from converter.formats.nnapi import format as nnapi

if TYPE_CHECKING:
    from converter.diagnostics import Diagnostic


def check(path: Path, weights: Path | None) -> list[Diagnostic]:
    """What reading says: the rules of NNAPI's tables are not those of TensorFlow Lite."""
    return nnapi.read(path, weights).notes


FORMAT = Format(
    name="tflite",
    title="TensorFlow Lite (operators of NNAPI)",
    suffixes=(".tflite",),
    sniff=lambda head, path: nnapi.sniff(head, path) == "tflite",
    read=nnapi.read,
    write=nnapi.write,
    check=check,
    kinds=nnapi.kinds,
    options=(Option("level", "the highest NNAPI feature level to use", values=("1", "2", "3", "4", "5", "6", "7"), default="7"),),
    versions="schema version 3",
    engine=nnapi.engine,
)
