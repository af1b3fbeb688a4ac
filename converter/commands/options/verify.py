"""The options of commands that run models, or compare two."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from pathlib import Path

from converter.commands.options.declare import Group, Kind, Options, option, options
from converter.commands.options.shared import (
    Data,
    FormatsOfPair,
    FormatsOfTwo,
    Labeled,
    Native,
    Reading,
    Seed,
    Shapes,
    TensorMap,
    TimeLimit,
    Tolerances,
)


@options
class Judged(Options):
    """Tensors whose differences count."""

    tensors: str | Iterable[str] = option(
        default="outputs",
        metavar="GLOB",
        repeatable=True,
        help="Judge outputs (default), all, or these names.",
        python='Tensors to judge: "outputs" (a difference is still traced to its '
        'layer), "all", or globs of names.',
        group=Group.COMPARISON,
        settable=True,
        job=str | list,
    )


@options
class Metrics(Options):
    """Conditions that compared tensors must satisfy."""

    metrics: str | Iterable[str] = option(
        default=(),
        flags=("--metric",),
        choices=("elem", "max=", "cos=", "l2=", "psnr=", "ulp="),
        metavar="NAME[=LIMIT]",
        repeatable=True,
        help="Also limit elem, max, cos, l2, psnr or ulp.",
        python='Limits that must hold as well ("cos=0.999"): elem, max, cos, l2, psnr, ulp.',
        group=Group.COMPARISON,
        settable=True,
        job=str | list,
    )
    mode: str = option(
        default="isolated",
        kind=Kind.CHOICE,
        choices=("isolated", "chain"),
        help="Use chain to compare layers on own inputs only.",
        group=Group.COMPARISON,
        settable=True,
        job=str,
    )


@options
class CandidateEngine(Options):
    """The engine of the candidate."""

    engine: str = option(
        default="onnxruntime",
        kind=Kind.ENGINE,
        help="Run CAND's graph in onnxruntime, openvino, litert, coreml, coreai or "
        "reference; several (with commas) give a table.",
        python="The engine that runs the candidate's graph: onnxruntime, openvino, "
        "litert, coreml, coreai, reference.",
        group=Group.EXECUTION,
        settable=True,
        job=str,
    )


@options
class Seeds(Seed):
    """Several seeds of random feeds."""

    seeds: int = option(
        default=1,
        kind=Kind.INTEGER,
        least=1,
        metavar="N",
        help="Use N seeds, beginning with --seed.",
        group=Group.INPUT,
        settable=True,
        job=int,
    )


@options
class Failing(Options):
    """The reaction to the first difference."""

    fail_fast: bool = option(
        default=False, kind=Kind.FLAG, help="Stop at the first wrong layer.", group=Group.EXECUTION
    )
    keep_tensors: str | Path | None = option(
        default=None,
        kind=Kind.FILE,
        metavar="DIR",
        help="Write inputs and results of wrong layers to DIR.",
        python="The folder for inputs and expected results of wrong layers.",
        group=Group.OUTPUT,
    )


@options
class Verify(
    Failing,
    TensorMap,
    Seeds,
    Native,
    CandidateEngine,
    Metrics,
    Tolerances,
    Judged,
    Shapes,
    Data,
):
    """A comparison of two models; `names` are their names in the result, `progress` is called with
    the name of each step.
    """

    names: tuple[str, str] = field(default=("reference", "candidate"), kw_only=True)
    progress: Callable[[str], None] | None = field(default=None, kw_only=True)


@options
class VerifyCommand(Labeled, FormatsOfTwo, TimeLimit, Verify):
    """Options of `netconv verify`."""

    agreement: float = option(
        default=1.0,
        kind=Kind.NUMBER,
        least=0,
        most=1,
        metavar="PART",
        help="Require this share of equal answers. Default: 1.",
        group=Group.LABELS,
    )
    max_memory: str = option(
        default="0",
        metavar="SIZE",
        help="Set the memory limit, 2G (exit 8 if exceeded).",
        group=Group.EXECUTION,
    )
    report: str | None = option(
        default=None,
        flags=("--page",),
        aliases=("--report",),
        kind=Kind.PLACE,
        metavar="PAGE.html",
        help="Also write a page to look at.",
        group=Group.OUTPUT,
    )
    certificate: Path | None = option(
        default=None,
        kind=Kind.FILE,
        metavar="FILE",
        help="Also write a certificate (see certify-check).",
        group=Group.OUTPUT,
    )


@options
class ReduceCommand(FormatsOfTwo, TensorMap, Seed, Tolerances, Data):
    """Options of `netconv reduce`."""

    output: str = option(
        flags=("-o", "--output"),
        kind=Kind.PLACE,
        metavar="DIR",
        required=True,
        help="Write both models, inputs and a README.md to this folder.",
        group=Group.OUTPUT,
    )
    force: bool = option(
        default=False,
        kind=Kind.FLAG,
        help="Write into a folder that is not empty.",
        group=Group.OUTPUT,
        settable=True,
    )


@options
class ViewCommand(FormatsOfPair, TensorMap, Seed, Data):
    """Options of `netconv view`."""

    output: str = option(
        flags=("-o", "--output"),
        kind=Kind.PLACE,
        metavar="PAGE.html",
        required=True,
        help="Write this page.",
        group=Group.OUTPUT,
    )
    with_verify: bool = option(
        default=False,
        flags=("--verify",),
        kind=Kind.FLAG,
        help="Color the layers by the error of B against A.",
        group=Group.COMPARISON,
    )


@options
class DiffCommand(FormatsOfPair):
    """Options of `netconv diff`."""

    pass


@options
class RunCommand(Reading, TimeLimit, Shapes, Seed, Data):
    """Options of `netconv run`."""

    data: Sequence[str] = option(
        default=(),
        kind=Kind.DATA,
        repeatable=True,
        help="Run on in.npz, a folder of them, random, edge, or NAME=file.npy; "
        "repeatable. Default: random.",
        group=Group.INPUT,
        settable=True,
    )
    out: str | None = option(
        default=None,
        flags=("-o", "--output"),
        aliases=("--out",),
        kind=Kind.PLACE,
        metavar="OUT.npz",
        help="Write the outputs to this file, or to a folder for several inputs.",
        group=Group.OUTPUT,
    )
    engine: str = option(
        default="onnxruntime",
        kind=Kind.ENGINE,
        help="Run the model in onnxruntime, openvino, litert, coreml, coreai or reference.",
        group=Group.EXECUTION,
        settable=True,
    )
    profile: bool = option(
        default=False,
        kind=Kind.FLAG,
        help="Show the time by kernel and layer instead of outputs (onnxruntime).",
        group=Group.EXECUTION,
    )
    force: bool = option(
        default=False,
        kind=Kind.FLAG,
        help="Overwrite OUT.npz.",
        group=Group.OUTPUT,
        settable=True,
    )
