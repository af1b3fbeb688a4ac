"""The Core ML format as one value."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from converter.formats.format import Flavour, Format, Option

if TYPE_CHECKING:
    from converter.errors import Diagnostic
    from converter.graph.network import Network

# Model: everything beside the kinds (all from 200), with the wire types they have
_COMMON = {(1, 0), (2, 2), (10, 0)}
_KINDS = range(200, 4000)


def sniff(head: bytes, path: str | os.PathLike[str]) -> bool:
    """Whether the file is a Core ML model: a bare protobuf message, told by walking its top-level
    fields.

    ONNX begins with the same byte (0x08, a version) and goes on with a length-delimited field 2
    when it names its producer, but has no field from 200 on; Core ML has one there, its kind of
    model, and none of ONNX's 3..9. A truncated model is still recognised if its kind is begun.
    """
    if head[:1] != b"\x08" or os.path.isdir(path):
        return False
    from converter.formats.coreml.wire import WireError, fields

    kind = False
    try:
        with (
            open(path, "rb") as f,
            mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as data,
        ):
            for field in fields(data):
                if field.wire == 2 and field.number in _KINDS:
                    kind = True
                elif (field.number, field.wire) not in _COMMON:
                    return False
    except WireError as e:
        return kind or e.number in _KINDS
    except (OSError, ValueError):  # a pipe cannot be mapped
        return False
    return kind


def read(path: Path, weights: Path | None) -> Network:
    from converter.formats.coreml.codec import read_mlmodel
    from converter.formats.coreml.lift import lift

    return lift(read_mlmodel(path))


def write(model: Network, path: Path, flavour: Flavour) -> list[Diagnostic]:
    from converter.formats.coreml.codec import write_mlmodel
    from converter.formats.coreml.lower import lower
    from converter.io.files import Output

    notes: list[Diagnostic] = []
    written = lower(model, flavour, notes)
    with Output(path) as out:
        write_mlmodel(written, out)
    return notes


def check(path: Path, weights: Path | None) -> list[Diagnostic]:
    """Reads the file as far as the graph: what cannot be carried is raised, what is dropped is
    returned.
    """
    return read(path, weights).notes


def kinds() -> Mapping[str, str]:
    """Every layer of the specification, with the operators of its rows; `(special)` are control
    flow and what no row says.
    """
    from converter.formats.coreml.mapping import MAPPING
    from converter.formats.coreml.network import CONTROL

    table = MAPPING.table
    return {**{k: "(special)" for k in CONTROL}, **table.operators()}


def untold(model: Network, title: str) -> list[Diagnostic]:
    from converter.formats.coreml.flexible import untold

    return untold(model, title)


FORMAT = Format(
    name="coreml",
    title="Core ML neural network",
    suffixes=(".mlmodel",),
    sniff=sniff,
    read=read,
    write=write,
    check=check,
    kinds=kinds,
    untold=untold,
    options=(
        Option(
            "spec", "the highest specificationVersion to write", values=("4", "5", "7"), default="7"
        ),
        Option("fp16", "half-precision weights"),
    ),
    versions="reads specificationVersion 1 to 9 (neural networks, classifiers, regressors, "
    "pipelines); writes the lowest that will do: 4, 5, or 7",
)
