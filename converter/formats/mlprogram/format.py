"""Core ML ML Programs as one value."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from converter.formats.format import Flavour, Format

if TYPE_CHECKING:
    from converter.errors import Diagnostic
    from converter.graph.network import Network


def sniff(head: bytes, path: str | os.PathLike[str]) -> bool:
    """Whether a file is a Core ML model whose kind is a program."""
    from converter.formats.coreml_kind import BEGINS, ML_PROGRAM, kind_of

    return head[:1] in BEGINS and kind_of(Path(path)) == ML_PROGRAM


def package(path: Path) -> bool:
    """Whether a folder is a package that holds a program."""
    from converter.formats.coreml_kind import ML_PROGRAM, kind_of

    return kind_of(path) == ML_PROGRAM


def read(path: Path, weights: Path | None) -> Network:
    return read_signature(path, "", weights)


def write(model: Network, path: Path, flavour: Flavour) -> list[Diagnostic]:
    from converter.errors import Diagnostic, UnsupportedError

    message = "ML Programs are read, not written"
    raise UnsupportedError(Diagnostic("X201", message, help="-t coreml writes an .mlmodel"))


def check(path: Path, weights: Path | None) -> list[Diagnostic]:
    """What reading says."""
    return read(path, weights).notes


def kinds() -> Mapping[str, str]:
    """The operations that are read, and what they become."""
    from converter.formats.mlprogram.rules import TABLE

    return TABLE.operators()


def read_signature(path: Path, key: str, weights: Path | None = None) -> Network:
    from converter.formats.mlpackage_zip import unpacked
    from converter.formats.mlprogram.lift import read_model

    with unpacked(path) as model:
        return read_model(model, weights, key)


def untold(model: Network, title: str) -> list[Diagnostic]:
    """An .mlmodel declares the same of its boundary, and warns itself of what it cannot."""
    from converter.formats.coreml_features import untold

    return [] if title.startswith("Core ML") else untold(model, title)


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
    package=package,
    read_signature=read_signature,
    untold=untold,
    versions="specification 6-10",
)
