"""The options of commands that convert a model, or look at one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    outputs: Sequence[str] = option(
        default=(),
        metavar="NAME",
        repeatable=True,
        help="Keep only what this tensor or layer needs; repeatable.",
        python="Tensors or layers; only what they need is kept.",
        group=Group.CHANGES,
        job=list,
    )


@options
class States(Options):
    state: Mapping[str, str] | None = option(
        default=None,
        kind=Kind.PAIRS,
        metavar="PAST=PRESENT",
        repeatable=True,
        help="The input PAST is a state whose next value is the output PRESENT; repeatable.",
        python="Inputs that are states, with the output that is the next value of each.",
        group=Group.CHANGES,
    )
    states: str = option(
        default="keep",
        kind=Kind.CHOICE,
        choices=("keep", "io"),
        help="keep: states in the target's own form, where it has one; io: as inputs and outputs.",
        group=Group.CHANGES,
    )


@options
class Writing(Options):
    force: bool = option(
        default=True,
        kind=Kind.FLAG,
        help="Overwrite existing files (never an input).",
        python="Overwrite existing files (never an input, nor a side file of another model).",
        group=Group.OUTPUT,
        settable=True,
    )
    max_output: str | int = option(
        default="",
        kind=Kind.MAX_OUTPUT,
        help="Refuse a result larger than this: a size (2GB), or a multiple of IN (100x).",
        group=Group.OUTPUT,
        job=str | int,
    )


@options
class Conversion(Writing, Custom, Layout, Constants, Shapes, Contents, TargetFormat, SourceFormat):
    """What every conversion from file to file has."""


@options
class Convert(States, Kept, Conversion):
    """A conversion of a whole model, or of what some outputs need."""


@options
class Output(Options):
    output: str = option(
        flags=("-o", "--output"),
        kind=Kind.PLACE,
        metavar="OUT",
        required=True,
        help="The file or URL to write, - for standard output; the suffix tells the format.",
        group=Group.OUTPUT,
    )


@options
class Verified(Options):
    with_verify: bool = option(
        default=False,
        flags=("--verify",),
        kind=Kind.FLAG,
        help="Compare the numbers afterwards (exit 1 if they differ, or the engine of OUT "
        "refuses it).",
        group=Group.COMPARISON,
    )


@options
class ConversionCommand(Native, Verified, Conversion, Output):
    """What every command that writes a model has."""


@options
class ConvertCommand(Convert, ConversionCommand):
    with_map: bool = option(
        default=False,
        flags=("--map",),
        kind=Kind.FLAG,
        help="Also write OUT.map.json: which layer comes from which.",
        group=Group.OUTPUT,
    )


@options
class ExtractCommand(ConversionCommand):
    spelled: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "source": ("-f", "--from-format"),
        "target": ("-t", "--to-format"),
    }
    starts: Sequence[str] = option(
        default=(),
        flags=("--from",),
        metavar="NAME",
        repeatable=True,
        help="This tensor, or the result of this layer, becomes an input; repeatable.",
        group=Group.CHANGES,
    )
    outputs: Sequence[str] = option(
        default=(),
        flags=("--to",),
        metavar="NAME",
        repeatable=True,
        help="This tensor, or the result of this layer, becomes an output, in this order; "
        "repeatable. Default: the outputs.",
        group=Group.CHANGES,
    )
    names: Mapping[str, str] | None = option(
        default=None,
        flags=("--rename",),
        kind=Kind.PAIRS,
        metavar="OLD=NEW",
        repeatable=True,
        help="Another name for an input or output of the part; repeatable.",
        group=Group.CHANGES,
    )


@options
class CheckCommand(Custom, Layout, Constants, Shapes, Contents, SourceFormat):
    target: str | None = option(
        default=None,
        flags=("-t", "--to"),
        kind=Kind.TARGET,
        help="Say what would not convert to this format.",
        group=Group.OUTPUT,
    )


@options
class InspectCommand(Reading):
    form: str = option(
        default="table",
        flags=("--of",),
        kind=Kind.CHOICE,
        choices=("table", "json", "text", "dot"),
        help="A table, JSON, ONNX's text syntax, or Graphviz.",
        group=Group.OUTPUT,
    )
    layers: bool = option(
        default=False,
        kind=Kind.FLAG,
        help="MACs, parameters, and bytes of weights and results, by layer.",
        group=Group.OUTPUT,
    )


@options
class RoundtripCommand(Seed):
    via: tuple[str, ...] = option(
        kind=Kind.TARGET,
        repeatable=True,
        required=True,
        help="The format to go through; repeatable.",
        group=Group.OUTPUT,
    )


@options
class ExplainCommand(Options):
    of: Path | None = option(
        default=None,
        kind=Kind.SOURCE,
        metavar="MODEL",
        help="With pipeline FORMAT: say what each pass changes in this model.",
        group=Group.INPUT,
    )
