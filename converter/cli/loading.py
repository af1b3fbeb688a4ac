"""Read models with the options of a command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from converter.commands.options.shared import FormatsOfTwo, Reading
from converter.errors import wrong_call

if TYPE_CHECKING:
    from converter.api import Model


def read_pair(
    files: tuple[Path, Path],
    options: FormatsOfTwo,
    inputs: Mapping[str, Sequence[int]] | None = None,
) -> tuple[Model, Model]:
    """Read two models to compare, with the shapes of `inputs` if their files fix others. Of files
    of formats that have functions, the chosen one is read; raises UsageError if no file has any.
    """
    from converter import api, formats

    given = zip(files, (options.ref_format, options.cand_format), strict=True)
    names = [
        formats.detect(file).name if options.signature and not format else format
        for file, format in given
    ]
    having = [bool(options.signature) and _has_functions(name) for name in names]
    if options.signature and not any(having):
        raise wrong_call("--signature needs a file of several functions or signatures")
    a, b = (
        api.load(file, name, signature=options.signature if has else "", inputs=inputs)
        for file, name, has in zip(files, names, having, strict=True)
    )
    return a, b


def _has_functions(format: str | None) -> bool:
    from converter import formats

    return format is not None and formats.get(format.split("+")[0]).read_signature is not None


def read(file: Path, options: Reading, inputs: Mapping[str, Sequence[int]] | None = None) -> Model:
    """Read the model of a file, with the shapes of `inputs` if the file fixes others."""
    from converter import api

    return api.load(
        file,
        options.source,
        options.weights,
        options.dequantize,
        signature=options.signature,
        member=options.member,
        inputs=inputs,
    )
