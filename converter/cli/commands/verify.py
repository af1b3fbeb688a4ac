"""netconv verify"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from converter import version
from converter.cli.common import Source
from converter.cli.console import Console
from converter.cli.loading import read_pair
from converter.cli.options import REPORTS, subcommand
from converter.cli.streams import uploaded, with_original_names
from converter.commands.options.verify import Verify, VerifyCommand
from converter.commands.report.cases import Case
from converter.errors import Diagnostic, ExitCode, wrong_call

if TYPE_CHECKING:
    from converter.api import Model

EXAMPLES = """netconv verify net.mlmodel net.xml
netconv verify net.onnx net.txt --tensors all --data image=photo.npy
netconv verify net.onnx net.tflite --engine onnxruntime,openvino,litert
netconv verify net.onnx q.onnx --data images --labels labels.csv --mean 127 --std 128
netconv verify a.onnx b.onnx --rtol 1e-3 --atol 'prob*:1e-6' --metric cos=0.9999"""


@subcommand("verify", VerifyCommand, REPORTS, EXAMPLES)
@click.argument("reference", metavar="REF", type=Source())
@click.argument("candidate", metavar="CAND", type=Source())
def command(console: Console, options: VerifyCommand, reference: Path, candidate: Path) -> None:
    """Run both models on the same inputs and compare the numbers.

    A difference is judged against the measured rounding noise of REF. If the outputs differ, the
    first wrong layer is named, with the cause. Each file also runs in its own engine (--native),
    which must load it and agree with netconv. Exit 0: same. 1: different. 6: could not compare.
    9: hidden difference (outputs are equal, but layers differ).
    """
    from converter.commands.report.origin import origin
    from converter.io import limits

    several = options.labels is not None or "," in options.engine
    if options.report and several:
        why = (
            "--page needs one comparison of tensors; it does not support --labels "
            "or several engines"
        )
        raise wrong_call(why)
    if options.certificate:
        _demand_certifiable(options, (reference, candidate), several)
    began = time.monotonic()
    with limits.time(options.timeout):
        a, b = read_pair((reference, candidate), options, options.inputs)
        console.report([*a.notes, *b.notes])
        options = replace(options, names=(str(reference), str(candidate)))
        if options.labels is not None:
            _answers(console, a, b, options)
            return
        if "," in options.engine:
            _table(console, a, b, options)
            return
        result = _compare(a, b, options)
    console.about = {
        "arguments": _again(),
        "seconds": round(time.monotonic() - began, 3),
        "origin": origin(),
    }
    if not console.text or options.report:
        from converter.commands.inspect import summary

        result = replace(result, structure=(summary(a), summary(b)))
    show(console, result)
    if options.report:
        _page(console, options.report)
    if options.certificate:
        _certify(console, options, a, b, result)


def _demand_certifiable(options: VerifyCommand, files: Sequence[Path], several: bool) -> None:
    """Raise UsageError if the comparison could not be repeated from the certificate."""
    if several:
        raise wrong_call("--certificate needs one comparison of tensors with one engine")
    data = [item.rpartition("=")[2] for item in options.data or () if isinstance(item, str)]
    if any(with_original_names(str(f)) != str(f) for f in (*files, *data)):
        why = "--certificate needs files on this machine, but one of the inputs is not"
        raise wrong_call(why, help="first download the models and data first")


def _certify(
    console: Console,
    options: VerifyCommand,
    reference: Model,
    candidate: Model,
    result: Any,
) -> None:
    from converter.commands.certificate import side_of

    assert options.certificate is not None
    sides = side_of(reference), side_of(candidate)
    certify(console, options.certificate, sides, result, options)


def certify(
    console: Console, path: Path, sides: tuple[Any, Any], result: Any, options: Verify
) -> None:
    """Write a certificate of a comparison with these options."""
    from converter.commands import certificate
    from converter.io.files import Output

    given = {name: getattr(options, name) for name in certificate.OPTIONS}
    data = None if options.data is None else [*options.data]
    text = certificate.text_of(certificate.statement(*sides, result, given, data, path.parent))
    with Output(path) as out, out.open("") as file:
        file.write(text.encode())
    console.say(f"certificate: {path}")


def _page(console: Console, place: str) -> None:
    """Write the console's result as a page, as `netconv report` would render it."""
    from converter.commands import report
    from converter.commands.report import facts, machine

    data = machine.document(
        console.command, int(console.code), console.diagnostics, console.result, console.about
    )
    entries = tuple(facts.of_data(data, "verify"))
    found = facts.Report("verify", version.__version__, entries, origin=data["origin"])
    text = report.render(found, "html")
    with uploaded(place, force=True) as path:
        report.write(path, text)
    console.say(f"report: {place}")


def _again() -> list[str]:
    """Return the arguments of this call of netconv, without those for the output format."""
    given = sys.argv[1:]
    return [
        a
        for i, a in enumerate(given)
        if a != "--format" and not a.startswith("--format=") and given[i - 1 : i] != ["--format"]
    ]


def _answers(console: Console, a: Any, b: Any, options: VerifyCommand) -> None:
    """Compare the answers of both models on a labeled data set."""
    from converter.commands import dataset

    if options.data is None or len(options.data) != 1:
        why = "--labels needs one --data: a folder, or an .npz file with samples"
        raise wrong_call(why)
    assert options.labels is not None
    prepared = dataset.Preparation(options.mean, options.std, options.layout)
    found = dataset.compare(
        a,
        b,
        dataset.samples_of(a, Path(options.data[0]), options.labels, prepared),
        names=options.names,
        scores=("outputs",) if options.tensors == "outputs" else tuple(options.tensors),
        engine=options.engine,
        wanted=options.agreement,
    )
    console.verdict(ExitCode.OK if found.passed else ExitCode.FINDING)
    console.result = found.as_json()
    console.say(*found.lines())
    said = found.diagnostic
    console.report([said] if said is not None else [])
    failure = "" if said is None else said.message
    console.cases.append(Case("answers", f"verify {options.names[1]}", failure))


def _table(console: Console, a: Any, b: Any, options: VerifyCommand) -> None:
    """Run the candidate in several engines."""
    from converter import engines
    from converter.commands import engine_table

    chosen = list(dict.fromkeys(e.strip() for e in options.engine.split(",")))
    for name in chosen:
        engines.demand_known(name)
    found = engine_table.rows(
        chosen, lambda e: _compare(a, b, replace(options, engine=e, native="off"))
    )
    console.verdict(max(r.code for r in found))
    console.record([d for r in found for d in r.diagnostics])
    console.result = [r.as_json() for r in found]
    for row in found:
        failure = "" if row.code == ExitCode.OK else row.code.status
        console.cases.append(Case(row.engine, f"verify {options.names[1]}", failure))
    console.say(*engine_table.lines(found))


def _compare(a: Any, b: Any, options: VerifyCommand) -> Any:
    """Compare within --max-memory; raise U503 if that is not enough."""
    from converter.commands.verify import compare
    from converter.errors import MemoryLimitError, NothingComparedError
    from converter.io import limits

    with_limit = limits.size(options.max_memory)
    if with_limit:
        import converter.commands.verify.check
        import converter.engines.onnxruntime  # noqa: F401 - loaded modules count as the program
    try:
        with limits.memory(with_limit):
            return compare(a, b, options)
    except (MemoryError, ImportError, NothingComparedError) as e:
        if not with_limit or not limits.ran_out(e):
            raise
        why = Diagnostic(
            "U503",
            f"the comparison needs more memory than {options.max_memory}",
            help="raise --max-memory, or use fewer inputs (--data)",
        )
        raise MemoryLimitError(why) from None


def show(console: Console, result: Any) -> None:
    """Print a comparison and set the exit code of the command."""
    from converter.commands.verify.text import headline, lines

    console.verdict(result.code)
    console.record(result.diagnostics)
    text = list(lines(result))
    console.result = result.as_json()
    failure, group = "\n".join([headline(result), *text]), f"verify {result.models[1]}"
    console.cases += [
        Case(f"output {o.reference}", group, "" if o.passed else failure) for o in result.outputs
    ]
    console.cases += [
        Case(f"{n.role} {n.file} in {n.engine}", group)
        for n in result.native
        if not n.failed  # the others are diagnostics
    ]
    console.cases += [
        Case(f"layer {t.layer}", group, failure if t.status == "wrong" else "")
        for t in (result.tensors if console.format == "junit" else ())
    ]
    console.say(*text)
    if any(not o.passed for o in result.outputs):
        models = shlex.join(with_original_names(m) for m in result.models)
        console.say(f"Next: netconv reduce {models} -o case")
    if console.verbosity > 0:
        for t in result.tensors:
            own = f"{t.own.max_abs:10.3g}" if t.own is not None else " " * 10
            total = f"{t.total.max_abs:10.3g}" if t.total is not None else "         -"
            console.say(f"{t.index:5} {t.status:9} own {own} total {total}  {t.kind:20} {t.layer}")
