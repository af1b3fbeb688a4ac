"""The table of formats. A format is one value, FORMAT in its own folder, loaded when it is first
asked for.
"""

from __future__ import annotations

import errno
import importlib
import importlib.util
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from converter.errors import (
    ConverterError,
    Diagnostic,
    ReadError,
    cannot_read,
    closest,
    did_you_mean,
    unreadable,
    wrong_call,
)
from converter.formats.coreml.package import demand_not_compiled
from converter.formats.format import Flavor, Format
from converter.io import progress
from converter.io.atomic import recover

if TYPE_CHECKING:
    from converter.graph.network import Network

FORMATS = {
    "coreml": "converter.formats.coreml.neuralnetwork.format",
    "openvino": "converter.formats.openvino.format",
    "zhouyi": "converter.formats.zhouyi.format",
    "nnapi": "converter.formats.nnapi.format",
    "tflite": "converter.formats.tflite.format",
    "mlprogram": "converter.formats.coreml.mlprogram.format",
    "coreai": "converter.formats.coreml.coreai.format",
    "onnx": "converter.formats.onnx.format",
}
# the format of nearly all files with a suffix, which is asked first: no other is loaded then
USUAL = {".mlmodel": "coreml", ".onnx": "onnx", ".tflite": "tflite", ".xml": "openvino"}
HEAD = 4096
LAYOUTS = ("keep", "native")


def get(name: str) -> Format:
    """Return the format called `name`; raise UsageError with a suggestion for an unknown one."""
    if name not in FORMATS:
        from converter.formats.other_names import help_for_format

        help = did_you_mean(name, FORMATS, f"known: {', '.join(FORMATS)}")
        raise wrong_call(f"format {name!r} is not known", help=help_for_format(name) or help)
    found = importlib.import_module(FORMATS[name]).FORMAT
    assert isinstance(found, Format)
    return found


def write(model: Network, path: Path, flavor: Flavor) -> list[Diagnostic]:
    """Write a network with the format of the flavor; also warn about boundary declarations that
    only the source format has.
    """
    chosen = get(flavor.format)
    model, taken = (model, []) if chosen.text(flavor) else _without_labels(model)
    with progress.step(f"writing {path.name}"):
        notes = [*taken, *chosen.write(model, path, flavor)]
    source = get(model.format) if model.format in FORMATS and model.format != chosen.name else None
    undeclared_features = (
        source.undeclared_features(model, chosen.title) if source is not None else []
    )
    notes += _images_as_stored(model, flavor)
    if source is not None and source.single_precision:
        notes = _without_doubles(model, notes, source, chosen)
    return [*notes, *undeclared_features, *_states_as_inputs(model, flavor, chosen)]


def _images_as_stored(model: Network, flavor: Flavor) -> list[Diagnostic]:
    """Return a note if images stay channels-first in TensorFlow Lite, whose programs expect them
    channels-last.
    """
    images = [n for n in model.interface.get("images", {}) if flavor.format == "tflite"]
    if not images or flavor.io_layout:
        return []
    message = f"the image {', '.join(images)} is channels-first, as in the source"
    help = "use --io-layout native for channels-last images, as Android's programs feed them"
    return [Diagnostic("X211", message, "note", help=help)]


def _without_doubles(
    model: Network, notes: list[Diagnostic], source: Format, target: Format
) -> list[Diagnostic]:
    """Replace the warnings about inputs and outputs that are declared in double precision and
    computed in single precision by one note: nothing is lost.
    """
    doubles = {i.name for i in (*model.inputs, *model.outputs) if i.dtype == "float64"}
    lost = [d for d in notes if d.code == "X205" and d.where.layer in doubles and not d.where.kind]
    if not lost:
        return notes
    message = (
        f"inputs and outputs that {source.title} declares as float64 are float32 in {target.title};"
        f" {source.title} computes in float32"
    )
    return [*(d for d in notes if d not in lost), Diagnostic("X205", message, "note")]


def _without_labels(model: Network) -> tuple[Network, list[Diagnostic]]:
    """Return the network as it is, or without string outputs that only name classes."""
    from converter.passes.labels import take_out_labels

    if all(o.dtype.kind != "O" for o in model.outputs):
        return model, []
    model = replace(model, ir=model.ir.clone())
    return model, take_out_labels(model.ir)


def _states_as_inputs(model: Network, flavor: Flavor, target: Format) -> list[Diagnostic]:
    """Describe which states the target has as both inputs and outputs only."""
    from converter.graph.states import begun_states

    states = dict(model.interface.get("states", {}))
    begun, holds = begun_states(model.ir.graph), target.states(flavor)
    sized = {
        i.name
        for i in model.inputs
        if i.shape is not None and all(isinstance(d, int) for d in i.shape)
    }
    kinds = {
        n: "computed" if n in begun else "static" if n in sized else "constant" for n in states
    }
    wider = ("static", "constant", "computed")
    left = [n for n in states if wider.index(kinds[n]) > (wider.index(holds) if holds else -1)]
    if not left:
        return []
    said = (
        f"{target.title} has no states; they are written as inputs and outputs: {', '.join(left)}"
    )
    first = f"feed these initial values in the first run: {', '.join(begun)}" if begun else ""
    return [Diagnostic("X207", said, "warning", help=first)]


def demand_readable(path: Path, flavor: Flavor, what: str) -> None:
    """Raise UsageError if the option `what` must read the result at a path and the format cannot be
    read.
    """
    if not get(flavor.format).readable(path, flavor):
        raise wrong_call(
            f"{what} reads the result again, but netconv cannot read {path.name} ({flavor})"
        )


def present() -> list[str]:
    """Return the names of the formats that this installation has."""
    return [
        n
        for n, module in FORMATS.items()
        if importlib.util.find_spec(module) and hasattr(importlib.import_module(module), "FORMAT")
    ]


def parse_flavor(text: str, io_layout: str = "") -> Flavor:
    """Parse "openvino+ir=7+fp16" into Flavor("openvino", {"ir": "7", "fp16": ""}); raises
    UsageError for unknown options.
    """
    if io_layout and io_layout not in LAYOUTS:
        raise wrong_call(
            f"--io-layout {io_layout!r} is not known",
            help=f"use one of {', '.join(LAYOUTS)}",
        )
    name, *parts = text.split("+")
    known = {o.name: o for o in get(name).options}
    options: dict[str, str] = {}
    for part in parts:
        key, _, value = part.partition("=")
        option = known.get(key)
        if option is None:
            from converter.formats.other_names import help_for_flavor

            help = did_you_mean(key, known, f"known: {', '.join(known) or 'none'}")
            raise wrong_call(
                f"{name} has no flavor {key!r}",
                help=help_for_flavor(key, [*known], name) or help,
            )
        if option.values and value not in option.values and "N" not in option.values:
            raise wrong_call(
                f"{key}={value!r} is not supported",
                help=did_you_mean(value, option.values, f"use one of {', '.join(option.values)}"),
            )
        if not option.values and value:
            raise wrong_call(f"flavor {key!r} takes no value")
        options[key] = value
    return Flavor(name, options, io_layout)


def detect(path: Path) -> Format:
    """Return the format of a file: content first, suffix where the content fits several.

    If the file is absent, an interrupted write of it is completed first. Raises ReadError: R100 for
    a file that cannot be opened and for a folder that is not a model package, R101 for a file that
    is not a model; the message names the actual kind of file if it is recognized.
    """
    found = _fitting(path)
    if len(found) == 1:
        return found[0]
    demand_not_compiled(path)
    if found and not path.is_dir():
        names = ", ".join(f.name for f in found)
        message = f"the content matches several formats ({names})"
        raise unreadable("R101", message, path, help="name the format with -f FORMAT")
    raise _unrecognized(path)


def _fitting(path: Path) -> list[Format]:
    """Return the formats that a file or folder fits. Raises ReadError R100 if it cannot be
    opened.
    """
    demand_there(path)
    if path.is_dir():
        return [f for f in map(get, present()) if f.package(path)]
    demand_file(path)
    head = _head(path)
    if (usual := USUAL.get(path.suffix)) and get(usual).sniff(head, path):
        return [get(usual)]
    found = [f for f in map(get, present()) if f.sniff(head, path)]
    if len(found) > 1:
        found = [f for f in found if any(path.name.endswith(s) for s in f.suffixes)] or found
    return found


def demand_there(path: Path) -> None:
    """Raise ReadError R100 for an absent file, with the name of a similar one next to it. An
    interrupted write of the file is completed first.
    """
    if os.path.lexists(path):
        return
    recover(path)
    if not os.path.lexists(path):
        missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        raise cannot_read(path, missing, _similar(path))


def _similar(path: Path) -> str:
    """Return a help that names a file which may have been meant."""
    try:
        if not path.parent.is_dir():
            return f"folder {str(path.parent)!r} does not exist"
        names = sorted(os.listdir(path.parent))
    except (OSError, ValueError):  # a folder that cannot be read, a name that no file can have
        return ""
    found = closest(path.name, names, 0.7)
    return f"perhaps you meant {str(path.parent / found)!r}" if found else ""


def _head(path: Path) -> bytes:
    try:
        with open(path, "rb") as f:
            return f.read(HEAD)
    except OSError as e:
        raise cannot_read(path, e) from None


def _unrecognized(path: Path) -> ReadError:
    """Return the error for a file or folder that is not a model; it names the actual kind where
    that is known.
    """
    from converter.formats.foreign import Models, recognize

    def side_names_by_suffix(model: Path) -> list[str]:
        return side_names(model, of_suffix(model))

    suffixes = tuple(s for n in present() for s in get(n).suffixes if s != ".txt")
    known = f"netconv reads {', '.join(FORMATS)}"
    code, head = ("R100", b"") if path.is_dir() else ("R101", _head(path))
    if what := recognize(path, head, Models(suffixes, side_names_by_suffix)):
        return unreadable(code, f"netconv cannot read {what.title}", path, what.help)
    if path.is_dir():
        return unreadable(code, "this folder is not a model package", path, known)
    message = "netconv does not recognize this file format"
    return unreadable(code, message, path, f"{known}; -f FORMAT overrides the detection")


def side_names(model: Path, format: str | None = None) -> list[str]:
    """Return the names of a model's side files relative to its folder, whether they exist or not;
    none if the model cannot be read, for which no reason is looked for.
    """
    try:
        found = [get(format)] if format else _fitting(model)
        if len(found) != 1 or found[0].side_names is None:
            return []
        return list(found[0].side_names(model))
    except ConverterError:  # the reader will report it
        return []


def demand_file(path: Path) -> None:
    """Raise ReadError R100 for a pipe or a device: opening or reading one might never end."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return  # opening the file reports the error
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise unreadable("R100", "cannot read: this is not a regular file", path)


def of_suffix(path: Path) -> str | None:
    """Return the format whose suffix the path has; the longest suffix if several match."""
    found = [(len(s), n) for n in present() for s in get(n).suffixes if path.name.endswith(s)]
    return max(found)[1] if found else None


def suffix(flavor: Flavor) -> str:
    """Return the suffix for files of this flavor that is used where no file name is given."""
    chosen = get(flavor.format)
    own = (o.suffix for o in chosen.options if o.name in flavor.options and o.suffix)
    return next(own, chosen.suffixes[0])


def target_for(path: Path, target: str | None, io_layout: str = "") -> Flavor:
    """The flavor to write: as named, else by the suffix of the path."""
    if name := target or of_suffix(path):
        return parse_flavor(name, io_layout)
    known = [s for n in present() for s in get(n).suffixes]
    help = did_you_mean("".join(path.suffixes[-2:]), known) or did_you_mean(
        path.suffix, known, f"use one of {', '.join(known)}"
    )
    raise wrong_call(
        f"the suffix of {path.name!r} belongs to no format",
        help=f"{help}; or name the target with -t FORMAT",
    )
