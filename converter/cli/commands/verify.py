"""netconv verify"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

import converter
from converter.cli.common import (
    REPORTS,
    Choice,
    FilePath,
    Place,
    Source,
    data_option,
    formats_options,
    inputs_option,
    map_option,
    native_option,
    option,
    seed_option,
    subcommand,
    timeout_option,
    tolerance_options,
)
from converter.cli.console import Console
from converter.cli.streams import uploaded
from converter.errors import ExitCode

EXAMPLES = """netconv verify net.mlmodel net.xml
netconv verify net.onnx net.txt --tensors all --data image=photo.npy
netconv verify a.onnx b.onnx --rtol 1e-3 --atol 'prob*:1e-6' --metric cos=0.9999"""


@subcommand("verify", REPORTS, EXAMPLES)
@click.argument("reference", metavar="REF", type=Source())
@click.argument("candidate", metavar="CAND", type=Source())
@data_option
@inputs_option
@option(
    "--tensors",
    metavar="outputs|all|GLOB",
    multiple=True,
    help="What the verdict is about. Default: outputs.",
)
@tolerance_options
@option(
    "--metric",
    metavar="NAME[=LIMIT]",
    multiple=True,
    help="elem, max, cos, l2, psnr, ulp; all given must hold.",
)
@option(
    "--mode",
    type=Choice(["isolated", "chain"]),
    default="isolated",
    help="chain: do not run layers on the reference's inputs.",
)
@option(
    "--engine",
    default="onnxruntime",
    help="What executes the graph read from CAND: onnxruntime, openvino, litert, coreml, "
    "reference.",
)
@native_option
@seed_option
@option(
    "--seeds",
    type=click.IntRange(1),
    default=1,
    metavar="N",
    help="Random inputs for N seeds, from --seed on.",
)
@map_option
@timeout_option
@option(
    "--max-memory",
    metavar="SIZE",
    default="0",
    help="Memory that the comparison may take: 2G. Default: no limit.",
)
@option("--fail-fast", is_flag=True, help="Stop at the first wrong layer.")
@option(
    "--keep-tensors",
    metavar="DIR",
    type=FilePath(),
    help="Write inputs and expected results of wrong layers.",
)
@option("--report", metavar="PAGE", type=Place(), help="Also write an HTML page: report.html.")
@formats_options
def command(
    console: Console,
    reference: Path,
    candidate: Path,
    ref_format: str | None,
    cand_format: str | None,
    **options: Any,
) -> ExitCode | None:
    """Run both models on the same inputs and compare the numbers.

    A difference is judged against the rounding noise of REF itself, measured; when the outputs
    differ, the first layer that is wrong by itself is named, with what differs in it. The files
    also run themselves, each in the engine it is written for (--native): it must take the file and
    give what was read from it. Exit 0: same. 1: different. 6: nothing could be compared. 9: no
    output shows it, but layers differ by themselves.
    """
    from converter import api
    from converter.io import limits

    began = time.monotonic()
    with limits.time(options["timeout"]):
        a, b = api.load(reference, ref_format), api.load(candidate, cand_format)
        console.report([*a.notes, *b.notes])
        result = _compare(a, b, options, (str(reference), str(candidate)))
    console.about = {"arguments": _again(), "seconds": round(time.monotonic() - began, 3)}
    if not console.text or options["report"]:
        from converter.commands.inspect import summary

        result = replace(result, structure=(summary(a), summary(b)))
    code = show(console, result)
    if options["report"]:
        _page(console, options["report"])
    return code


def _page(console: Console, place: str) -> None:
    """What the console has, as `netconv report` would render it."""
    from converter.commands import report
    from converter.commands.report import facts, machine

    data = machine.document(
        console.command, int(console.code), console.diagnostics, console.result, console.about
    )
    entries = tuple(facts.of_data(data, "verify"))
    text = report.render(facts.Report("verify", converter.__version__, entries), "html")
    with uploaded(place, force=True) as path:
        report.write(path, text)
    console.say(f"report: {place}")


def _again() -> list[str]:
    """What netconv was called with, but for the form of its output."""
    given = sys.argv[1:]
    return [
        a
        for i, a in enumerate(given)
        if a != "--format" and not a.startswith("--format=") and given[i - 1 : i] != ["--format"]
    ]


def _compare(a: Any, b: Any, options: dict[str, Any], names: tuple[str, str]) -> Any:
    """Within --max-memory; U503 when that is not enough."""
    from converter import api
    from converter.commands.batch.plan import size
    from converter.errors import Diagnostic, MemoryLimitError, NothingComparedError
    from converter.io import limits

    with_limit = size(options["max_memory"])
    if with_limit:
        import converter.commands.verify.check
        import converter.engines.onnxruntime  # noqa: F401 - what is loaded counts as the program
    try:
        with limits.memory(with_limit):
            return api.verify(
                a, b, list(options["data"]) or None, names=names, **_keywords(options)
            )
    except (MemoryError, NothingComparedError) as e:
        if not with_limit or not limits.ran_out(e):
            raise
        why = Diagnostic(
            "U503",
            f"the comparison needs more memory than {options['max_memory']}",
            help="raise --max-memory, or fewer inputs: --data",
        )
        raise MemoryLimitError(why) from None


def _keywords(options: dict[str, Any]) -> dict[str, Any]:
    from converter.commands.provenance import read_map

    return {
        "tensors": options["tensors"] or "outputs",
        "rtol": options["rtol"] or None,
        "atol": options["atol"] or None,
        "metrics": options["metric"],
        "mode": options["mode"],
        "engine": options["engine"],
        "native": options["native"],
        "seed": options["seed"],
        "seeds": options["seeds"],
        "inputs": dict(options["inputs"]),
        "map": read_map(options["map_file"]) if options["map_file"] else None,
        "fail_fast": options["fail_fast"],
        "keep_tensors": options["keep_tensors"],
    }


def show(console: Console, result: Any) -> ExitCode:
    """Prints a comparison and gives its exit code."""
    from converter.commands.verify.text import headline, lines

    code: ExitCode = result.code
    console.verdict(code)
    console.record(result.diagnostics)
    text = list(lines(result))
    console.result = result.as_json()
    failure, group = "\n".join([headline(result), *text]), f"verify {result.models[1]}"
    for o in result.outputs:
        console.cases.append(
            {
                "name": f"output {o.reference}",
                "group": group,
                "failure": "" if o.passed else failure,
            }
        )
    for n in result.native:
        if not n.failed:  # the others are diagnostics
            console.cases.append(
                {"name": f"{n.role} {n.file} in {n.engine}", "group": group, "failure": ""}
            )
    for t in result.tensors if console.format == "junit" else ():
        console.cases.append(
            {
                "name": f"layer {t.layer}",
                "group": group,
                "failure": failure if t.status == "wrong" else "",
            }
        )
    for line in text:
        console.say(line)
    if console.verbosity > 0:
        for t in result.tensors:
            own = f"{t.own.max_abs:10.3g}" if t.own is not None else " " * 10
            total = f"{t.total.max_abs:10.3g}" if t.total is not None else "         -"
            console.say(f"{t.index:5} {t.status:9} own {own} total {total}  {t.kind:20} {t.layer}")
    return code
