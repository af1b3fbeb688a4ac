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
    source: str | None = option(
        default=None,
        kw_only=False,
        flags=("-f", "--from"),
        kind=Kind.FORMAT,
        help="The input's format (otherwise told from its content).",
        python="The input's format, where its content does not tell it.",
        group=Group.INPUT,
        job=str,
    )


@options
class TargetFormat(Options):
    target: str | None = option(
        default=None,
        kw_only=False,
        flags=("-t", "--to"),
        kind=Kind.TARGET,
        help="The format to write, with flavours: openvino+ir=7.",
        python='The format to write, with flavours ("openvino+ir=7"); without it the suffix of '
        "the output decides.",
        group=Group.OUTPUT,
    )


@options
class Contents(Options):
    """What of a file is read, and how."""

    dequantize: bool = option(
        default=False,
        kw_only=False,
        kind=Kind.FLAG,
        help="Read exact integer arithmetic (Zhouyi) as floats between QuantizeLinear and "
        "DequantizeLinear.",
        group=Group.INPUT,
    )
    signature: str = option(
        default="",
        flags=("--signature", "--function"),
        metavar="KEY",
        help="One of several networks: a signature of a TensorFlow Lite file, whose names inputs "
        "and outputs get, or a function of an ML Program.",
        group=Group.INPUT,
    )
    weights: PathLike | None = option(
        default=None,
        kind=Kind.SOURCE,
        help="The file with the weights, where it is not beside the model.",
        group=Group.INPUT,
    )


@options
class Custom(Options):
    """What happens to operators that netconv does not know."""

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
        help="An ONNX file whose functions are the bodies of unknown operators of their names; "
        "repeatable.",
        python="ONNX files whose functions are the bodies of unknown operators.",
        group=Group.INPUT,
        job=list,
    )


@options
class Reading(Contents, SourceFormat):
    """How a model is read that is not written again."""


@options
class FormatsOfTwo(Options):
    """The formats of REF and CAND."""

    ref_format: str | None = option(
        default=None,
        flags=("--from-ref",),
        kind=Kind.FORMAT,
        help="REF's format.",
        group=Group.INPUT,
    )
    cand_format: str | None = option(
        default=None,
        flags=("--from-cand",),
        kind=Kind.FORMAT,
        help="CAND's format.",
        group=Group.INPUT,
    )


@options
class FormatsOfPair(Options):
    """The formats of A and B."""

    a_format: str | None = option(
        default=None, flags=("--from-a",), kind=Kind.FORMAT, help="A's format.", group=Group.INPUT
    )
    b_format: str | None = option(
        default=None, flags=("--from-b",), kind=Kind.FORMAT, help="B's format.", group=Group.INPUT
    )


# --- what is changed


@options
class Shapes(Options):
    inputs: Mapping[str, Sequence[int]] | None = option(
        default=None,
        kind=Kind.SHAPES,
        repeatable=True,
        help="Fix an input's shape: x:1,3,224,224.",
        python='Shapes of inputs by name: {"x": [1, 3, 224, 224]}.',
        group=Group.CHANGES,
        job=dict,
    )


@options
class Constants(Options):
    freeze: Mapping[str, Any] | None = option(
        default=None,
        kind=Kind.VALUES,
        repeatable=True,
        help="Make an input a constant: a number, a list [1,2], or file.npy; repeatable.",
        python="Values of inputs that become constants: arrays, nested lists, or a number that "
        "fills the input.",
        group=Group.CHANGES,
    )


@options
class Layout(Options):
    io_layout: str = option(
        default="",
        kind=Kind.CHOICE,
        choices=("keep", "native"),
        help="keep: inputs and outputs as in the source; native: images channels-last (default "
        "of nnapi).",
        group=Group.OUTPUT,
        settable=True,
        job=str,
    )


# --- what is run and compared


@options
class Data(Options):
    data: Any = option(
        default=None,
        kw_only=False,
        kind=Kind.DATA,
        repeatable=True,
        help="in.npz, a folder of them, random, edge, or NAME=file.npy|random|edge; repeatable.",
        python="Inputs to run on: None (random and edge cases), a mapping of arrays, or what "
        "--data takes: in.npz, a folder of them, random, edge, NAME=file.npy.",
        group=Group.INPUT,
        settable=True,
        job=str | list,
    )


@options
class Seed(Options):
    seed: int = option(
        default=0,
        kind=Kind.INTEGER,
        help="Seed of the random inputs.",
        group=Group.INPUT,
        settable=True,
        job=int,
    )


@options
class TensorMap(Options):
    map: Mapping[str, str] | None = option(
        default=None,
        kind=Kind.MAP,
        help="Which tensor is which, as convert --map writes it.",
        python="Names of the candidate's tensors by those of the reference.",
        group=Group.COMPARISON,
    )


@options
class Tolerances(Options):
    rtol: Tolerance = option(
        default=None,
        metavar="[GLOB:]V",
        repeatable=True,
        help="Relative tolerance, instead of the measured noise.",
        group=Group.COMPARISON,
        settable=True,
        job=str | int | float | list,
    )
    atol: Tolerance = option(
        default=None,
        metavar="[GLOB:]V",
        repeatable=True,
        help="Absolute tolerance, instead of the measured noise.",
        group=Group.COMPARISON,
        settable=True,
        job=str | int | float | list,
    )


@options
class Native(Options):
    native: str = option(
        default="auto",
        kind=Kind.CHOICE,
        choices=("auto", "on", "off"),
        metavar="WHEN",
        help="Also run each file in its own engine: auto (where installed), on, off.",
        group=Group.COMPARISON,
        settable=True,
        job=str,
    )


@options
class TimeLimit(Options):
    timeout: float = option(
        default=0,
        kind=Kind.NUMBER,
        least=0,
        metavar="SECONDS",
        help="Limit of time (exit 7 beyond it). Default: none.",
        group=Group.EXECUTION,
    )
