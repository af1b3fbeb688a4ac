"""Groups of options that several commands have. A dataclass lists the fields of its last base
first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from converter.commands.options.declare import Group, Kind, Options, option, options

PathLike = str | Path
Tolerance = float | str | Iterable[float | str] | None


# --- how a model is read


@options
class SourceFormat(Options):
    """The format of the source."""

    source: str | None = option(
        default=None,
        kw_only=False,
        flags=("-f", "--from"),
        aliases=("--from-format",),
        kind=Kind.FORMAT,
        help="Set the input's format (default: detected from its content).",
        python="The input's format, if its content does not determine it.",
        group=Group.INPUT,
        job=str,
    )


@options
class TargetFormat(Options):
    """The format and the flavor to write."""

    target: str | None = option(
        default=None,
        kw_only=False,
        flags=("-t", "--to"),
        aliases=("--to-format",),
        kind=Kind.TARGET,
        help="Set the format to write, with flavors: openvino+ir=7.",
        python='The format to write, with flavors ("openvino+ir=7"); by default the '
        "suffix of the output determines it.",
        group=Group.OUTPUT,
    )


@options
class Contents(Options):
    """Options for reading a file."""

    dequantize: bool = option(
        default=False,
        kw_only=False,
        kind=Kind.FLAG,
        help="Read exact integer arithmetic (Zhouyi) as floating point between "
        "QuantizeLinear and DequantizeLinear.",
        group=Group.INPUT,
    )
    signature: str = option(
        default="",
        flags=("--signature", "--function"),
        metavar="KEY",
        help="Choose one of several networks: a signature of a TensorFlow Lite "
        "file, which names inputs and outputs, or a function of an ML Program.",
        group=Group.INPUT,
    )
    member: str = option(
        default="",
        metavar="NAME",
        help="Choose one model of a bundle (.task, .litertlm); inspect lists them.",
        group=Group.INPUT,
    )
    weights: PathLike | None = option(
        default=None,
        kind=Kind.SOURCE,
        help="Name the weights file, if it is not next to the model.",
        group=Group.INPUT,
    )


@options
class Custom(Options):
    """Options for operators that netconv does not know."""

    allow_custom: bool = option(
        default=False,
        kind=Kind.FLAG,
        help="Carry unknown operators to formats that have custom ones: ONNX, OpenVINO IR, Core "
        "ML, TensorFlow Lite.",
        group=Group.CHANGES,
    )
    define: Sequence[PathLike] = option(
        default=(),
        kind=Kind.SOURCE,
        repeatable=True,
        help="Read bodies of unknown operators from the functions of this ONNX file; repeatable.",
        python="ONNX files whose functions are the bodies of unknown operators.",
        group=Group.INPUT,
        job=list,
    )


@options
class Reading(Contents, SourceFormat):
    """Options for reading a model that is not written again."""


@options
class FormatsOfTwo(Options):
    """Options for reading REF and CAND."""

    ref_format: str | None = option(
        default=None,
        flags=("--from-ref",),
        aliases=("--from-a",),
        kind=Kind.FORMAT,
        help="Set REF's format.",
        group=Group.INPUT,
    )
    cand_format: str | None = option(
        default=None,
        flags=("--from-cand",),
        aliases=("--from-b",),
        kind=Kind.FORMAT,
        help="Set CAND's format.",
        group=Group.INPUT,
    )
    signature: str = option(
        default="",
        flags=("--signature", "--function"),
        metavar="KEY",
        help="Choose this function of files with several.",
        group=Group.INPUT,
    )


@options
class FormatsOfPair(Options):
    """The formats of A and B."""

    a_format: str | None = option(
        default=None,
        flags=("--from-a",),
        aliases=("--from-ref",),
        kind=Kind.FORMAT,
        help="Set A's format.",
        group=Group.INPUT,
    )
    b_format: str | None = option(
        default=None,
        flags=("--from-b",),
        aliases=("--from-cand",),
        kind=Kind.FORMAT,
        help="Set B's format.",
        group=Group.INPUT,
    )


# --- changes


@options
class Shapes(Options):
    """Shapes of inputs."""

    inputs: Mapping[str, Sequence[int]] | None = option(
        default=None,
        kind=Kind.SHAPES,
        repeatable=True,
        help="Set an input's shape, also where the file fixes one: x:1,3,224,224.",
        python='Shapes of inputs by name: {"x": [1, 3, 224, 224]}.',
        group=Group.CHANGES,
        job=dict,
    )


@options
class Constants(Options):
    """Inputs that become constants."""

    freeze: Mapping[str, Any] | None = option(
        default=None,
        kind=Kind.VALUES,
        repeatable=True,
        help="Make an input constant: a number, a list [1,2], or file.npy; repeatable.",
        python="Values of inputs that become constant: arrays, nested lists, or a "
        "number that fills the input.",
        group=Group.CHANGES,
    )


@options
class Layout(Options):
    """The layout of inputs and outputs."""

    io_layout: str = option(
        default="",
        kind=Kind.CHOICE,
        choices=("keep", "native"),
        help="Keep the layout of inputs and outputs (keep), or store images "
        "channels-last (native; default of nnapi).",
        group=Group.OUTPUT,
        settable=True,
        job=str,
    )


# --- runs and comparisons


@options
class Data(Options):
    """Feeds of a model."""

    data: Any = option(
        default=None,
        kw_only=False,
        kind=Kind.DATA,
        repeatable=True,
        help="Run on in.npz, a folder of them, random, edge, or "
        "NAME=file.npy|random|edge; repeatable.",
        python="Inputs to run on: None (random and edge cases), a mapping of arrays, "
        "or the values of --data: in.npz, a folder of them, random, edge, "
        "NAME=file.npy.",
        group=Group.INPUT,
        settable=True,
        job=str | list,
    )


@options
class Labeled(Options):
    """Labels of a data set, and the preparation of its images."""

    labels: str | None = option(
        default=None,
        metavar="LABELS",
        help="Compare answers: labels.csv (FILE,LABEL) for a folder in "
        "--data of images or .npz, or an array of one .npz.",
        group=Group.LABELS,
        job=str,
    )
    mean: tuple[float, ...] = option(
        default=(),
        kind=Kind.NUMBERS,
        metavar="R,G,B",
        help="Subtract this mean from the pixels of images, 0 to 255.",
        group=Group.LABELS,
        job=list,
    )
    std: tuple[float, ...] = option(
        default=(),
        kind=Kind.NUMBERS,
        metavar="R,G,B",
        help="Divide by this deviation: (pixel - mean) / std.",
        group=Group.LABELS,
        job=list,
    )
    layout: str = option(
        default="",
        kind=Kind.CHOICE,
        choices=("nchw", "nhwc"),
        metavar="NAME",
        help="Set the layout: nchw or nhwc. Default: by the input's shape.",
        group=Group.LABELS,
        job=str,
    )


@options
class Seed(Options):
    """The seed of random feeds."""

    seed: int = option(
        default=0,
        kind=Kind.INTEGER,
        help="Set the seed of random inputs.",
        group=Group.INPUT,
        settable=True,
        job=int,
    )


@options
class TensorMap(Options):
    """Pairs of corresponding tensors with different names."""

    map: Mapping[str, str] | None = option(
        default=None,
        kind=Kind.MAP,
        help="Use the names that convert --write-map wrote.",
        python="Names of the candidate's tensors by those of the reference.",
        group=Group.COMPARISON,
    )


@options
class Tolerances(Options):
    """Limits of permitted differences."""

    rtol: Tolerance = option(
        default=None,
        metavar="[GLOB:]V",
        repeatable=True,
        help="Set the relative tolerance (default: noise).",
        group=Group.COMPARISON,
        settable=True,
        job=str | int | float | list,
    )
    atol: Tolerance = option(
        default=None,
        metavar="[GLOB:]V",
        repeatable=True,
        help="Set the absolute tolerance (default: noise).",
        group=Group.COMPARISON,
        settable=True,
        job=str | int | float | list,
    )


@options
class Native(Options):
    """Runs of files in their own engines."""

    native: str = option(
        default="auto",
        kind=Kind.CHOICE,
        choices=("auto", "on", "off"),
        metavar="WHEN",
        help="Also run each file in its own engine: auto (if installed), on, off.",
        group=Group.COMPARISON,
        settable=True,
        job=str,
    )


@options
class TimeLimit(Options):
    """The time limit of a run."""

    timeout: float = option(
        default=0,
        kind=Kind.NUMBER,
        least=0,
        metavar="SECONDS",
        help="Limit the time (exit 7). Default: none.",
        group=Group.EXECUTION,
    )
