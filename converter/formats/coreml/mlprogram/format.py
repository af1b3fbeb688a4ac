"""Core ML ML Programs as one value."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from converter.formats.format import Flavor, Format, Option, Written
from converter.formats.integers import COMMON, Integers

if TYPE_CHECKING:
    from converter.errors import Diagnostic
    from converter.graph.network import Network
    from converter.passes.pipeline import Pass


def sniff(head: bytes, path: str | os.PathLike[str]) -> bool:
    """Return whether a file is a Core ML model whose kind is a program."""
    from converter.formats.coreml.kind import BEGINS, ML_PROGRAM, kind_of

    return head[:1] in BEGINS and kind_of(Path(path)) == ML_PROGRAM


def package(path: Path) -> bool:
    """Return whether a folder is a package that holds a program."""
    from converter.formats.coreml.kind import ML_PROGRAM, kind_of

    return kind_of(path) == ML_PROGRAM


def read(path: Path, weights: Path | None) -> Network:
    """Read the main function of an ML Program."""
    return read_signature(path, "", weights)


def write(model: Network, path: Path, flavor: Flavor) -> list[Diagnostic]:
    """Write a model as a package with its weights, and return the notes."""
    from converter.formats.coreml.mlprogram.lower import lower
    from converter.formats.coreml.package import write_package
    from converter.io.files import Output

    notes: list[Diagnostic] = []
    written = lower(model, flavor, notes)
    message = written.model.SerializeToString(deterministic=True)
    with Output(path) as out:
        weights = written.blobs.write if written.blobs.tensors else None
        write_package(out, message, weights)
    return notes


def check(path: Path, weights: Path | None) -> list[Diagnostic]:
    """Return the contradictions within the file, or if there are none, the diagnostics of reading
    it.
    """
    from converter.formats.coreml.mlprogram.blobs import Blobs
    from converter.formats.coreml.mlprogram.lift import parse
    from converter.formats.coreml.mlprogram.validate import findings
    from converter.formats.coreml.package import open_model
    from converter.formats.coreml.package_zip import unpacked

    with unpacked(path) as model:
        file = open_model(model)
        blobs = Blobs(file.path.parent, weights, model)
        found = list(findings(parse(file), blobs, str(path)))
    if any(d.level == "error" for d in found):
        return found
    return found + read(path, weights).notes


def kinds() -> Mapping[str, str]:
    """Return the operations that are read, and their canonical operators."""
    from converter.formats.coreml.mlprogram.rules import TABLE

    return TABLE.operators()


def written() -> Written:
    """Return the limits of the format: the operators that cannot be written."""
    from converter.formats.coreml.mlprogram.legalize import REWRITES
    from converter.formats.coreml.mlprogram.rules import TABLE
    from converter.passes.coverage import absent_operators

    return Written(absent_operators(TABLE, REWRITES))


def read_signature(path: Path, key: str, weights: Path | None = None) -> Network:
    """Read the function `key` of an ML Program, which may be in a zip archive."""
    from converter.formats.coreml.mlprogram.lift import read_model
    from converter.formats.coreml.package_zip import unpacked

    with unpacked(path) as model:
        return read_model(model, weights, key)


def undeclared_features(model: Network, title: str) -> list[Diagnostic]:
    """Return no warnings for an .mlmodel, which has the same declarations and its own warnings."""
    from converter.formats.coreml.features import undeclared_features

    return [] if title.startswith("Core ML") else undeclared_features(model, title)


def passes(flavor: Flavor) -> Sequence[Pass[Any]]:
    """Return the passes before lowering, in order."""
    from converter.formats.coreml.mlprogram.pipeline import PIPELINE

    return PIPELINE


def about(path: Path) -> dict[str, str]:
    """Return the metadata of a model."""
    from converter.formats.coreml.about import about

    return about(path)


FORMAT = Format(
    name="mlprogram",
    title="Core ML ML Program",
    suffixes=(".mlpackage",),
    containers=(".mlmodel",),
    sniff=sniff,
    read=read,
    write=write,
    check=check,
    kinds=kinds,
    written=written,
    passes=passes,
    package=package,
    read_signature=read_signature,
    undeclared_features=undeclared_features,
    about=about,
    options=(
        Option(
            "ios",
            "the system version whose operations are written; default: the "
            "lowest that has all of them",
            values=("15", "16", "17", "18", "26"),
        ),
        Option("fp16", "write activations and weights in half precision"),
    ),
    text=lambda flavor: True,  # of classifiers
    versions="specification 6-10",
    integers=Integers(COMMON - {"Mul"}, recurrent="int8"),
    states=lambda flavor: "computed",  # its lowering says which are none
)
