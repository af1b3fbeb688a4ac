"""The options of commands that run models, or compare two."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    tensors: str | Iterable[str] = option(
        default="outputs",
        metavar="GLOB",
        repeatable=True,
        help="What is judged: outputs (default), all, or names.",
        python='What is judged: "outputs" (a difference is still traced to its layer), "all", or '
        "globs of tensor names.",
        group=Group.COMPARISON,
        settable=True,
        job=str | list,
    )


@options
class Metrics(Options):
    metrics: str | Iterable[str] = option(
        default=(),
        flags=("--metric",),
        metavar="NAME[=LIMIT]",
        repeatable=True,
        help="elem, max, cos, l2, psnr, ulp; all given must hold.",
        python='Limits that must hold besides ("cos=0.999"): elem, max, cos, l2, psnr, ulp.',
        group=Group.COMPARISON,
        settable=True,
        job=str | list,
    )
    mode: str = option(
        default="isolated",
        kind=Kind.CHOICE,
        choices=("isolated", "chain"),
        help="chain: layers on their own inputs alone.",
        group=Group.COMPARISON,
        settable=True,
        job=str,
    )


@options
class CandidateEngine(Options):
    engine: str = option(
        default="onnxruntime",
        kind=Kind.ENGINE,
        help="For the graph read from CAND: onnxruntime, openvino, litert, coreml, coreai, "
        "reference; several with commas make a table.",
        python="What runs the candidate's graph: onnxruntime, openvino, litert, coreml, coreai, "
        "reference.",
        group=Group.EXECUTION,
        settable=True,
        job=str,
    )


@options
class Seeds(Seed):
    seeds: int = option(
        default=1,
        kind=Kind.INTEGER,
        least=1,
        metavar="N",
        help="Random inputs for N seeds, from --seed on.",
        group=Group.INPUT,
        settable=True,
        job=int,
    )


@options
class Failing(Options):
    fail_fast: bool = option(
        default=False, kind=Kind.FLAG, help="Stop at the first wrong layer.", group=Group.EXECUTION
    )
    keep_tensors: str | Path | None = option(
        default=None,
        kind=Kind.FILE,
        metavar="DIR",
        help="Write inputs and expected results of wrong layers.",
        python="A folder for inputs and expected results of wrong layers.",
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
    """A comparison of two models; `names` are what the result calls them."""

    names: tuple[str, str] = field(default=("reference", "candidate"), kw_only=True)


@options
class VerifyCommand(Labeled, FormatsOfTwo, TimeLimit, Verify):
    agreement: float = option(
        default=1.0,
        kind=Kind.NUMBER,
        least=0,
        most=1,
        metavar="PART",
        help="Of the samples whose answers agree. Default: 1.",
        group=Group.LABELS,
    )
    max_memory: str = option(
        default="0",
        metavar="SIZE",
        help="Limit of memory, 2G (exit 8 beyond it).",
        group=Group.EXECUTION,
    )
    report: str | None = option(
        default=None,
        kind=Kind.PLACE,
        metavar="PAGE",
        help="Also write an HTML page: report.html.",
        group=Group.OUTPUT,
    )
    certificate: Path | None = option(
        default=None,
        kind=Kind.FILE,
        metavar="FILE",
        help="Also write a certificate, see certify-check.",
        group=Group.OUTPUT,
    )


@options
class ReduceCommand(FormatsOfTwo, TensorMap, Seed, Tolerances, Data):
    output: str = option(
        flags=("-o", "--output"),
        kind=Kind.PLACE,
        metavar="DIR",
        required=True,
        help="Folder for both models, inputs and a README.md.",
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
    output: str = option(
        flags=("-o", "--output"),
        kind=Kind.PLACE,
        metavar="PAGE.html",
        required=True,
        help="The page to write.",
        group=Group.OUTPUT,
    )
    with_verify: bool = option(
        default=False,
        flags=("--verify",),
        kind=Kind.FLAG,
        help="Colour the layers by the error of B against A.",
        group=Group.COMPARISON,
    )


@options
class DiffCommand(FormatsOfPair):
    pass


@options
class RunCommand(Reading, TimeLimit, Shapes, Seed, Data):
    data: Sequence[str] = option(
        default=(),
        kind=Kind.DATA,
        repeatable=True,
        help="in.npz, a folder of them, random, edge, or NAME=file.npy; repeatable. "
        "Default: random.",
        group=Group.INPUT,
        settable=True,
    )
    out: str | None = option(
        default=None,
        kind=Kind.PLACE,
        metavar="OUT.npz",
        help="Write the outputs; with several inputs a folder.",
        group=Group.OUTPUT,
    )
    engine: str = option(
        default="onnxruntime",
        kind=Kind.ENGINE,
        help="What executes it: onnxruntime, openvino, litert, coreml, coreai, reference.",
        group=Group.EXECUTION,
        settable=True,
    )
    profile: bool = option(
        default=False,
        kind=Kind.FLAG,
        help="Show where the time goes, by kernel and layer, instead of outputs (onnxruntime).",
        group=Group.EXECUTION,
    )
    force: bool = option(
        default=False,
        kind=Kind.FLAG,
        help="Overwrite OUT.npz.",
        group=Group.OUTPUT,
        settable=True,
    )
