"""TensorFlow Lite models, read and written by the rows in `rules/`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from converter.formats.format import Flavor, Format, Option, Written
from converter.formats.integers import COMMON, FIXED, Integers, named

if TYPE_CHECKING:
    from converter.errors import Diagnostic
    from converter.graph.network import Network
    from converter.passes.pipeline import Pass


def sniff(head: bytes, path: str | os.PathLike[str] = "") -> bool:
    """Return whether a file that begins with `head` (8 bytes suffice) has the identifier of the
    format.
    """
    return head[4:8] == b"TFL3"


def read(path: Path, weights: Path | None) -> Network:
    """Read a TensorFlow Lite file; the file's own boundary is kept for engines."""
    from converter.formats.tflite.lift import read_model

    model = read_model(path)
    # those of the file, which an engine may run; a table that is made of it has a table's layout
    model.interface["tflite"] = (model.inputs, model.outputs)
    return model


def read_signature(path: Path, key: str, weights: Path | None) -> Network:
    """Read the network of the signature `key`."""
    from converter.formats.tflite.lift import read_model

    return read_model(path, key)


def write(model: Network, path: Path, flavor: Flavor) -> list[Diagnostic]:
    """Write a model and return the notes."""
    from converter.formats.tflite.lower import write_model

    return write_model(model, path, flavor)


def check(path: Path, weights: Path | None) -> list[Diagnostic]:
    """Return the diagnostics of reading the file."""
    return read(path, weights).notes


def kinds() -> Mapping[str, str]:
    """Return the operators that are read, and their canonical operators."""
    from converter.formats.tflite.rules import TABLE

    return TABLE.operators()


def written() -> Written:
    """Return the limits of the format: operators without a row, those written in part, and layers
    with kernels of some types.
    """
    from converter.formats.tflite.kernels import PARTLY, limits
    from converter.formats.tflite.legalize import REWRITES
    from converter.formats.tflite.rules import TABLE
    from converter.passes.coverage import absent_operators

    return Written(absent_operators(TABLE, REWRITES), PARTLY, limits())


def engine(path: Path) -> str:
    """Return LiteRT, which runs every file of the format."""
    with open(path, "rb") as f:
        return "litert" if sniff(f.read(8)) else ""


def passes(flavor: Flavor) -> Sequence[Pass[Any]]:
    """Return the passes before lowering, in order."""
    from converter.formats.tflite.pipeline import PIPELINE

    return PIPELINE


def about(path: Path) -> dict[str, str]:
    """Return the version of the schema, the runtime that the file needs, and its signatures."""
    from converter.formats.tflite.codec import read_flat

    lite = read_flat(path)
    runtime = lite.metadata.get("min_runtime_version", b"").decode("utf-8", "replace").rstrip("\0 ")
    found = {
        "format": "schema version 3" + (f", TensorFlow Lite {runtime} or newer" if runtime else ""),
        "functions": ", ".join(s.key for s in lite.signatures),
    }
    return {k: v for k, v in found.items() if v}


FORMAT = Format(
    about=about,
    name="tflite",
    custom=True,
    title="TensorFlow Lite",
    suffixes=(".tflite",),
    sniff=sniff,
    read=read,
    write=write,
    read_signature=read_signature,
    check=check,
    kinds=kinds,
    written=written,
    passes=passes,
    options=(Option("fp16", "store weights in half precision"),),
    versions="schema version 3",
    engine=engine,
    states=lambda flavor: "static",
    integers=Integers(
        COMMON
        | named(
            "Clip Gelu HardSwish LeakyRelu LogSoftmax Max Min PRelu ReduceMax ReduceMean Relu "
            "Sigmoid Softmax Sub Tanh"
        ),
        activations=("int8", "uint8", "int16"),
        biased=True,
        recurrent="int8",
        fixed=FIXED,
    ),
)
