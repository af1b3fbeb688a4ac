"""Ownership of side files. A side file belongs to the model that reads it, and is replaced only
together with that model.

So `n.bin` of `n.xml` may be replaced by a new result `n.xml`; it is never overwritten for a result
`n.txt`, which would leave `n.xml` without its weights. A file that no model in its folder reads has
no owner.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from converter import formats
from converter.errors import (
    ConverterError,
    output_exists,
    overwrites_input,
    unwritable,
    wrong_call,
)
from converter.formats.coreml.package import holds_model

_ELSEWHERE = "give the output another name or folder"
# the names of a model's side files; a part of detection, which names the model of a side file
names = formats.side_names


def present(model: Path, format: str | None = None) -> list[Path]:
    """Return the side files of a model that are there."""
    return [p for n in names(model, format) if _is_file(p := model.parent / n) and p != model]


def demand_replaceable(files: Sequence[Path], inputs: Iterable[Path], force: bool) -> None:
    """Check that a result may consist of these files.

    Raises UsageError for one of `inputs` or their side files, or a package that contains one;
    raise WriteError W302 for a file that another model reads, for a folder that is not a package,
    and, without `force`, for any existing file.
    """
    there = [f for f in files if os.path.lexists(f)]
    if not there:
        return
    sources = [p for p in inputs if p.exists()]
    sources += [side for p in sources for side in present(p)]
    for file in there:
        if any(_same(file, p) or _holds(file, p) for p in sources):
            raise _shared_side_file(file, files, sources) or overwrites_input(file)
        if owner := next(_others(file, files), None):
            message = f"the output would overwrite a file that {owner.name} uses"
            raise unwritable("W302", message, file, _ELSEWHERE)
        if file.is_dir() and not holds_model(file):
            message = "the output would replace a folder that is not a model package"
            raise unwritable("W302", message, file, _ELSEWHERE)
        if not force:
            raise output_exists(file)


def _shared_side_file(
    file: Path, files: Sequence[Path], sources: Sequence[Path]
) -> ConverterError | None:
    """Return the error if a side file of the result is a side file of an input."""
    source = next((p for p in sources if any(_same(file, side) for side in present(p))), None)
    target = next((f for f in files if not _same(f, file)), None)
    if source is None or target is None:
        return None
    suffix = "".join(target.suffixes)
    other = target.with_name(f"{target.name.removesuffix(suffix)}-{suffix.lstrip('.')}{suffix}")
    message = f"{target.name} needs {file.name}, which holds the weights of {source.name}"
    help = f"choose another name or folder, for example {other}"
    return wrong_call(message, help=help, where=file, code="W302")


def _others(file: Path, together: Sequence[Path]) -> Iterator[Path]:
    """Return the models in the folder of `file` that read it, except those that are replaced
    together with it. A model is not a side file.
    """
    known = [formats.get(n) for n in formats.present()]
    if file.name.endswith(tuple(s for f in known for s in f.suffixes)):
        return
    suffixes = tuple(s for f in known if f.side_names is not None for s in f.suffixes)
    with os.scandir(file.parent) as entries:
        models = sorted(
            (e.path, e.stat())
            for e in entries
            if e.name.endswith(suffixes) and _is_file(Path(e.path))
        )
    for path, stat in models:
        model = Path(path)
        if model not in together and any(
            _same(file, model.parent / n) for n in _unchanged(model, stat.st_mtime_ns, stat.st_size)
        ):
            yield model


@functools.lru_cache(1 << 16)
def _unchanged(model: Path, mtime_ns: int, size: int) -> tuple[str, ...]:
    """Return the current `names` of a model, cached: a batch reads all models of a folder each time
    that it replaces a result there.
    """
    return tuple(names(model))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _holds(folder: Path, file: Path) -> bool:
    try:
        return folder.is_dir() and file.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):
        return False


def _same(a: Path, b: Path) -> bool:
    try:
        return os.path.samefile(a, b)
    except OSError:
        return False
