"""The output that a command line names: OUT, `-o OUT`, or a folder for a file named like IN."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from converter.cli.streams import DASH, is_url, with_original_names
from converter.commands.options.convert import ConversionCommand
from converter.errors import cannot_write, wrong_call
from converter.record import comparable


@comparable
class Destination:
    """A path or URL to write; `folder` is the folder to create for it, if it is missing."""

    place: str
    folder: Path | None = None


def chosen(command: str, source: Path, out: str | None, options: ConversionCommand) -> Destination:
    """Return the file and the format to write. Raises UsageError if the call names none or two, and
    if it names a folder but no format.
    """
    if out and options.output:
        help = f"netconv {command} {with_original_names(str(source))} {out}"
        raise wrong_call(f"the output is named twice: {out!r} and -o {options.output!r}", help=help)
    place = out or options.output
    if not place:
        from converter.commands.convert import output_in

        shown = with_original_names(str(source))
        other = output_in("", shown, "tflite" if shown.endswith(".onnx") else "onnx").lstrip("/")
        example = f"netconv {command} {shown} {other}"
        raise wrong_call("the call names no output", help=f"name a file: {example}")
    if not _is_folder(place):
        return Destination(place if place == DASH else place.rstrip("/"))
    folder = None if is_url(place) else Path(place.removeprefix("file://"))
    return Destination(_inside(place, source, options.target), folder)


def _is_folder(place: str) -> bool:
    """Return whether an output is a folder to write a file in: it exists, or ends with a slash; but
    not a package.
    """
    from converter import formats
    from converter.formats.coreml.package import holds_model

    path = Path(place.removeprefix("file://"))
    if place == DASH or formats.of_suffix(path):
        return False
    there = not is_url(place) and path.is_dir()
    return not holds_model(path) if there else place.endswith("/")


def _inside(folder: str, source: Path, target: str | None) -> str:
    """Return the path of a file in the folder, named like the source."""
    from converter.commands.convert import output_in

    if target is None:
        example = output_in(folder, with_original_names(str(source)), "onnx")
        help = f"name a file in it, as {example}, or the format: -t FORMAT"
        raise wrong_call(f"{folder!r} is a folder, which has no suffix of a format", help=help)
    return output_in(folder, with_original_names(str(source)), target)


@contextlib.contextmanager
def made(folder: Path | None) -> Iterator[None]:
    """Make a folder, and remove it again if an error occurs."""
    if folder is None:
        yield
        return
    absent = [p for p in (folder, *folder.parents) if not os.path.lexists(p)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise cannot_write(folder, e) from None
    try:
        yield
    except BaseException:
        for path in absent:
            with contextlib.suppress(OSError):
                path.rmdir()
        raise
