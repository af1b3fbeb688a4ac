"""Core AI models as one value."""

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
    """Return whether a file is MLIR bytecode, as in a package."""
    return head[:4] == b"ML\xefR"


def package(path: Path) -> bool:
    """Return whether a folder is a Core AI model, or a result of Apple's compiler."""
    from converter.formats.coreml.package import is_core_ai

    return is_core_ai(path) or (path.is_dir() and path.name.endswith(".aimodelx"))


def read(path: Path, weights: Path | None) -> Network:
    """Read the first function of a Core AI file."""
    return read_signature(path, "", weights)


def read_signature(path: Path, key: str, weights: Path | None = None) -> Network:
    """Read the function `key` of a Core AI file; the file's own boundary is kept for engines."""
    from converter.formats.coreml.coreai.lift import read_model

    model = read_model(path, key)
    # that of the file, which an engine may run
    model.interface["coreai_boundary"] = (model.inputs, model.outputs)
    return model


def write(model: Network, path: Path, flavor: Flavor) -> list[Diagnostic]:
    """Write a model as a Core AI file and return the notes."""
    from converter.formats.coreml.coreai.lower import write_model

    return write_model(model, path, flavor)


def check(path: Path, weights: Path | None) -> list[Diagnostic]:
    """Return the diagnostics of reading the file, and check that the program is unmodified."""
    from converter.formats.coreml.coreai.package import hash_note, main_of

    return [*read(path, weights).notes, *hash_note(main_of(path))]


def kinds() -> Mapping[str, str]:
    """Return the operations that are read, and their canonical operators."""
    from converter.formats.coreml.coreai.rules import TABLE

    return TABLE.operators()


def written() -> Written:
    """Return the limits of the format: the operators that cannot be written."""
    from converter.formats.coreml.coreai.legalize import REWRITES
    from converter.formats.coreml.coreai.rules import TABLE
    from converter.passes.coverage import absent_operators

    return Written(absent_operators(TABLE, REWRITES))


def passes(flavor: Flavor) -> Sequence[Pass[Any]]:
    """Return the passes before lowering, in order."""
    from converter.formats.coreml.coreai.pipeline import PIPELINE

    return PIPELINE


FORMAT = Format(
    name="coreai",
    title="Core AI",
    suffixes=(".aimodel",),
    sniff=sniff,
    read=read,
    write=write,
    check=check,
    kinds=kinds,
    written=written,
    passes=passes,
    package=package,
    read_signature=read_signature,
    options=(Option("fp16", "compute floats in half precision"),),
    # the operations around which Apple's own quantizer (coreai-opt 0.4) puts scales
    integers=Integers(COMMON | {"Sub"}, ranks=(3, 4, 5), recurrent="int8"),
    versions="asset version 2.0, macOS and iOS 27 (coreai-core 1.0.0 beta)",
    states=lambda flavor: "static",
    engine=lambda path: "coreai",
)
