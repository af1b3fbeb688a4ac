"""The options of commands that convert a model, or look at one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import ClassVar

from converter.commands.options.declare import Group, Kind, Options, option, options
from converter.commands.options.shared import (
    Constants,
    Contents,
    Custom,
    Layout,
    Native,
    Reading,
    Seed,
    Shapes,
    SourceFormat,
    TargetFormat,
)


@options
class Kept(Options):
    """The selection of outputs to keep."""

    outputs: Sequence[str] = option(
        default=(),
        metavar="NAME",
        repeatable=True,
        help="Keep only this tensor or layer and its producers; repeatable.",
        python="Tensors or layers; only they, and the layers they depend on, are kept.",
        group=Group.CHANGES,
        job=list,
    )


@options
class States(Options):
    """Inputs and outputs of a model that are its states."""

    state: Mapping[str, str] | None = option(
        default=None,
        kind=Kind.PAIRS,
        metavar="PAST=PRESENT",
        repeatable=True,
        help="Make the input PAST a state whose next value is the output PRESENT; repeatable.",
        python="Inputs that are states, each with the output that is its next value.",
        group=Group.CHANGES,
    )
    states: str = option(
        default="keep",
        kind=Kind.CHOICE,
        choices=("keep", "io"),
        help="Write states as states where the target has them (keep), or as inputs "
        "and outputs (io).",
        group=Group.CHANGES,
    )


@options
class Force(Options):
    """Permission to overwrite files."""

    force: bool = option(
        default=True,
        kind=Kind.FLAG,
        help="Overwrite existing files (never an input).",
        python="Overwrite existing files (never an input, nor a side file of another model).",
        group=Group.OUTPUT,
        settable=True,
    )


@options
class Writing(Force):
    """Options for writing files."""

    max_output: str | int = option(
        default="",
        kind=Kind.MAX_OUTPUT,
        help="Refuse a result larger than this: a size (2GB), or a multiple of IN (100x).",
        group=Group.OUTPUT,
        job=str | int,
    )


@options
class Conversion(Writing, Custom, Layout, Constants, Shapes, Contents, TargetFormat, SourceFormat):
    """Options of every conversion from file to file."""


@options
class Convert(States, Kept, Conversion):
    """A conversion of a whole model, or of the part that some outputs need. `progress` is called
    with the name of each step.
    """

    progress: Callable[[str], None] | None = field(default=None, kw_only=True)


@options
class Output(Options):
    """The file or folder of the result."""

    output: str = option(
        default="",
        flags=("-o", "--output"),
        kind=Kind.PLACE,
        metavar="OUT",
        help="Another way to give OUT.",
        group=Group.OUTPUT,
    )


@options
class Verified(Options):
    """Options for comparing the result with the source."""

    with_verify: bool = option(
        default=False,
        flags=("--verify",),
        kind=Kind.FLAG,
        help="Compare the numbers afterwards (exit 1 if they differ, or the engine "
        "of OUT cannot load it).",
        group=Group.COMPARISON,
    )


@options
class ConversionCommand(Native, Verified, Conversion, Output):
    """Options of every command that writes a model."""


@options
class ConvertCommand(Convert, ConversionCommand):
    """Options of `netconv convert`."""

    certificate: Path | None = option(
        default=None,
        kind=Kind.FILE,
        metavar="FILE",
        help="With --verify: also write a certificate (see certify-check).",
        group=Group.OUTPUT,
    )
    with_map: bool = option(
        default=False,
        flags=("--write-map",),
        aliases=("--map",),
        kind=Kind.FLAG,
        help="Also write OUT.map.json, which maps layers to their sources.",
        group=Group.OUTPUT,
    )


@options
class Part(Options):
    """The part of a model that is cut out."""

    start: Sequence[str] = option(
        default=(),
        aliases=("--from",),
        metavar="NAME",
        repeatable=True,
        help="Make this tensor, or the result of this layer, an input; repeatable.",
        group=Group.CHANGES,
    )
    outputs: Sequence[str] = option(
        default=(),
        aliases=("--to",),
        metavar="NAME",
        repeatable=True,
        help="Make this tensor, or the result of this layer, an output, in this "
        "order; repeatable. Default: the outputs.",
        group=Group.CHANGES,
    )
    rename: Mapping[str, str] | None = option(
        default=None,
        kind=Kind.PAIRS,
        metavar="OLD=NEW",
        repeatable=True,
        help="Rename an input or output of the part; repeatable.",
        group=Group.CHANGES,
    )


@options
class Extract(Part, Conversion):
    """A part of a model, converted."""


@options
class ExtractCommand(Part, ConversionCommand):
    """Options of `netconv extract`."""

    spelled: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "source": ("-f", "--from-format"),
        "target": ("-t", "--to-format"),
    }


@options
class CheckCommand(Custom, Layout, Constants, Shapes, Contents, SourceFormat):
    """Options of `netconv check`."""

    target: str | None = option(
        default=None,
        flags=("-t", "--to"),
        aliases=("--to-format",),
        kind=Kind.TARGET,
        help="Also report which layers cannot be converted to this format.",
        group=Group.OUTPUT,
    )


@options
class InspectCommand(Reading):
    """Options of `netconv inspect`."""

    form: str = option(
        default="table",
        flags=("--as",),
        aliases=("--of",),
        kind=Kind.CHOICE,
        choices=("table", "json", "text", "dot"),
        help="Print a table, JSON, ONNX's text syntax, or Graphviz.",
        group=Group.OUTPUT,
    )
    layers: bool = option(
        default=False,
        kind=Kind.FLAG,
        help="Print MACs, parameters, and bytes of weights and results by layer.",
        group=Group.OUTPUT,
    )


@options
class RoundtripCommand(Seed):
    """Options of `netconv roundtrip`."""

    via: tuple[str, ...] = option(
        kind=Kind.TARGET,
        repeatable=True,
        required=True,
        help="Convert through this format; repeatable.",
        group=Group.OUTPUT,
    )


@options
class ExplainCommand(Options):
    """Options of `netconv explain`."""

    of: Path | None = option(
        default=None,
        flags=("--model",),
        aliases=("--of",),
        kind=Kind.SOURCE,
        metavar="MODEL",
        help="With pipeline FORMAT: print the changes of each pass in this model.",
        group=Group.INPUT,
    )
