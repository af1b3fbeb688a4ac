"""The options of quantize."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from converter.commands.options.convert import Force
from converter.commands.options.declare import Group, Kind, Options, option, options
from converter.commands.options.shared import (
    Data,
    Labeled,
    Native,
    Seed,
    Shapes,
    SourceFormat,
)

METHODS = ("minmax", "entropy", "percentile", "mse")
TYPES = ("int8", "uint8", "int16")
WEIGHTS = (
    *("int8", "int4", "f16", "bf16", "f8e4m3", "f8e5m2", "f4e2m1"),
    *("palette8", "palette6", "palette4", "palette2", "palette1"),
)


@options
class Calibration(Options):
    """Options for the ranges of quantized values."""

    method: str = option(
        default="minmax",
        kind=Kind.CHOICE,
        metavar="NAME",
        choices=METHODS,
        help="Compute ranges from the data by minmax, entropy, percentile or mse.",
        group=Group.CHANGES,
        settable=True,
        job=str,
    )
    activations: str = option(
        default="",
        kind=Kind.CHOICE,
        metavar="TYPE",
        choices=TYPES,
        help="Set the type of activations: int8, uint8, int16. Default: the target's.",
        group=Group.CHANGES,
        job=str,
    )
    weights: str = option(
        default="",
        flags=("--compress",),
        aliases=("--weights",),
        kind=Kind.CHOICE,
        metavar="FORM",
        choices=WEIGHTS,
        help="Compress weights alone, without data: int8, int4, f8e4m3, f8e5m2, f4e2m1, f16, bf16, "
        "or a palette of 2^N numbers, paletteN with N of 1, 2, 4, 6, 8.",
        group=Group.CHANGES,
        job=str,
    )
    block: int = option(
        default=32,
        kind=Kind.INTEGER,
        least=1,
        metavar="N",
        help="Set how many weights share a scale of int4 or f4e2m1. Default: 32.",
        group=Group.CHANGES,
        job=int,
    )


@options
class Kept(Options):
    """Layers that stay in floating point."""

    keep: Sequence[str] = option(
        default=(),
        metavar="GLOB",
        repeatable=True,
        help="Keep these layers in floating point; repeatable.",
        group=Group.CHANGES,
        job=list,
    )
    skip: Sequence[str] = option(
        default=(),
        metavar="OP",
        repeatable=True,
        help="Keep this ONNX operator in floating point; repeatable.",
        group=Group.CHANGES,
        job=list,
    )
    max_drop: str = option(
        default="",
        metavar="LIMIT",
        help="Keep layers in floating point until the loss is at most 1% (of accuracy) or 30dB.",
        group=Group.CHANGES,
        job=str,
    )


@options
class Quantize(Kept, Calibration, Native, Labeled, Seed, Data, Force, Shapes, SourceFormat):
    """A quantization of a model; `targets` are the formats of the results."""

    targets: Sequence[str] = option(
        default=(),
        flags=("-t", "--to"),
        kind=Kind.TARGET,
        repeatable=True,
        help="Set the format to write; repeatable with a folder as OUT.",
        python="The formats to write; without any the suffix of the output decides.",
        group=Group.OUTPUT,
    )


@options
class QuantizeCommand(Quantize):
    """Options of `netconv quantize`."""

    output: Path | None = option(
        default=None,
        flags=("-o", "--output"),
        kind=Kind.FILE,
        metavar="OUT",
        help="Another way to give OUT.",
        group=Group.OUTPUT,
    )
    page: str | None = option(
        default=None,
        kind=Kind.PLACE,
        metavar="PAGE.html",
        help="Also write a page: the error of each layer, sizes, layers in floating point.",
        group=Group.OUTPUT,
    )
