"""The Core ML format as one value."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from converter.formats.format import Flavor, Format, Option, Written

if TYPE_CHECKING:
    from converter.errors import Diagnostic
    from converter.graph.network import Network
    from converter.passes.pipeline import Pass


def sniff(head: bytes, path: str | os.PathLike[str]) -> bool:
    """Return whether the file is a Core ML model other than a program."""
    from converter.formats.coreml.kind import BEGINS, ML_PROGRAM, kind_of

    return head[:1] in BEGINS and kind_of(Path(path)) not in (0, ML_PROGRAM)


def package(path: Path) -> bool:
    """Return whether a folder is a package of a Core ML model other than a program."""
    from converter.formats.coreml.kind import ML_PROGRAM, kind_of

    return kind_of(path) not in (0, ML_PROGRAM)


def read(path: Path, weights: Path | None) -> Network:
    """Read a neural network from a file, a package or a zip archive of one."""
    from converter.formats.coreml.neuralnetwork.codec import read_mlmodel
    from converter.formats.coreml.neuralnetwork.lift import lift
    from converter.formats.coreml.package import open_model
    from converter.formats.coreml.package_zip import unpacked

    with unpacked(path) as model:
        file = open_model(model)
        return lift(read_mlmodel(file.path, file))


def write(model: Network, path: Path, flavor: Flavor) -> list[Diagnostic]:
    """Write a model and return the notes."""
    from converter.formats.coreml.neuralnetwork.codec import write_mlmodel
    from converter.formats.coreml.neuralnetwork.lower import lower
    from converter.io.files import Output

    notes: list[Diagnostic] = []
    written = lower(model, flavor, notes)
    with Output(path) as out:
        write_mlmodel(written, out)
    return notes


def check(path: Path, weights: Path | None) -> list[Diagnostic]:
    """Read the file as far as the graph: unsupported content raises, dropped content is returned as
    warnings.
    """
    return read(path, weights).notes


def kinds() -> Mapping[str, str]:
    """Return every layer of the specification, with the operators of its rows; `(special)` are
    control flow and layers without row.
    """
    from converter.formats.coreml.neuralnetwork.mapping import MAPPING
    from converter.formats.coreml.neuralnetwork.network import CONTROL

    table = MAPPING.table
    return {**{k: "(special)" for k in CONTROL}, **table.operators()}


def written() -> Written:
    """Return the limits of the format: the operators that cannot be written."""
    from converter.formats.coreml.neuralnetwork.legalize import REWRITES
    from converter.formats.coreml.neuralnetwork.mapping import MAPPING
    from converter.passes.coverage import absent_operators

    return Written(absent_operators(MAPPING.table, REWRITES))


def undeclared_features(model: Network, title: str) -> list[Diagnostic]:
    """Return notes on features of inputs and outputs that the format `title` cannot declare."""
    from converter.formats.coreml.features import undeclared_features

    return [] if title.startswith("Core ML") else undeclared_features(model, title)


def passes(flavor: Flavor) -> Sequence[Pass[Any]]:
    """Return the passes before lowering, in order."""
    from converter.formats.coreml.neuralnetwork.pipeline import PIPELINE

    return PIPELINE


def about(path: Path) -> dict[str, str]:
    """Return the metadata of a model."""
    from converter.formats.coreml.about import about

    return about(path)


FORMAT = Format(
    name="coreml",
    custom=True,
    title="Core ML neural network",
    suffixes=(".mlmodel",),
    containers=(".mlpackage",),
    sniff=sniff,
    package=package,
    read=read,
    write=write,
    check=check,
    kinds=kinds,
    written=written,
    passes=passes,
    undeclared_features=undeclared_features,
    about=about,
    single_precision=True,
    options=(
        Option(
            "spec", "the highest specificationVersion to write", values=("4", "5", "7"), default="7"
        ),
        Option("fp16", "write half-precision weights"),
    ),
    text=lambda flavor: True,  # of classifiers
    versions="reads specificationVersion 1 to 9 (neural networks, classifiers, regressors, "
    "pipelines); writes the lowest that will do: 4, 5, or 7",
)
