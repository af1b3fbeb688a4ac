"""netconv batch"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from converter.cli.common import Place
from converter.cli.console import Console
from converter.cli.options import REPORTS, subcommand
from converter.cli.streams import fetched, is_url
from converter.commands.options.batch import BatchCommand
from converter.errors import Diagnostic, ExitCode
from converter.io.strict_json import Json

EXAMPLES = """netconv batch jobs.toml --report out
netconv batch nets -t openvino -t zhouyi -o converted --verify --jobs 2
netconv batch jobs.toml --scheduler tcp://10.0.0.1:8786"""


@subcommand("batch", BatchCommand, REPORTS, EXAMPLES)
@click.argument("source", metavar="JOBS.toml|DIR", type=Place())
def command(console: Console, options: BatchCommand, source: str) -> None:
    """Run many conversions, in parallel, resumable.

    JOBS.toml describes them; DIR means every model below it. Either may be a URL. Jobs that an
    earlier run finished are kept when their model, options, the version and their results are
    unchanged. The exit code is the most severe of the jobs': 70, 130, 5, 2, 4,
    3, 7, 8, 6, 1, 9, 0.
    """
    from converter.commands.batch import progress, result, run, staging

    jobs = _plan(source, options)
    if options.report is not None:
        staging.demand_known(options.report)
    bar = (
        console.text
        and console.verbosity >= 0
        and options.progress == "auto"
        and sys.stderr.isatty()
    )
    notes: list[Diagnostic] = []
    with progress.shown(len(jobs.jobs), console.say, bar) as tell:
        done = run.run(jobs, options, tell, notes.extend)
    data = result.as_json(done)
    console.verdict(ExitCode.OK if options.exit_zero else result.exit_code(done))
    console.result, console.cases = data, result.cases(data)
    console.report(notes)
    _details(console, data)
    console.say(result.headline(data))
    if options.report is not None:
        _report(console, options.report, data, done)


def _plan(source: str, options: BatchCommand) -> Any:
    from converter.commands.batch import plan
    from converter.errors import wrong_call

    out = options.output
    out = str(Path(out).absolute()) if out and "://" not in out else out
    own = {
        "-t": options.targets,
        "--verify": options.with_verify,
        "--timeout": options.timeout,
        "--memory": options.memory != "0",
        "--max-output": options.max_output,
    }
    url = is_url(source)
    path = Path(source.removeprefix("file://"))
    if not source.endswith(".toml") if url else path.is_dir():
        if not options.targets:
            raise wrong_call("a folder needs a target", help="use netconv batch DIR -t FORMAT")
        settings = {
            "verify": options.with_verify,
            "timeout": options.timeout,
            "memory": options.memory,
            **({"max-output": options.max_output} if options.max_output else {}),
        }
        root = source.rstrip("/") if url else str(path.absolute())
        return plan.of_folder(root, options.targets, settings, out)
    if given := [name for name, value in own.items() if value]:
        raise wrong_call(
            f"{', '.join(given)} needs a folder; a job file contains these settings itself"
        )
    with fetched(source) as file:
        return plan.of_file(file, out, os.path.dirname(source) if url else "")


def _details(console: Console, data: Json) -> None:
    """Report diagnostics to machines, and with -v to people."""
    from converter.commands.report.facts import diagnostic

    found = [diagnostic(d) for job in data["jobs"] for d in job["diagnostics"]]
    if console.text and console.verbosity < 1:
        found = []
    console.report(found)


def _report(console: Console, folder: str, data: Json, done: Sequence[Any]) -> None:
    """Write results.json, timing.json, junit.xml, index.html, and a separate page for each job that
    was compared or failed.
    """
    from converter.commands.batch import result, staging
    from converter.commands.report import facts, html, render

    times = result.timing(done, {j["id"] for j in data["jobs"] if "numbers" in j})
    entries = tuple(facts.timed(facts.of_data(data, "batch"), times))
    report = facts.Report("batch", data["version"], entries)
    pages = {
        i: f"job-{i:04}.html"
        for i, e in enumerate(report.entries)
        if e.code or e.numbers is not None
    }
    files = {
        "results.json": result.dumps(data),
        "timing.json": result.dumps(times),
        "junit.xml": render(report, "junit") + "\n",
    }
    files |= {
        name: html.render(
            facts.Report(report.entries[i].name, report.version, (report.entries[i],)),
            home="index.html",
        )
        for i, name in pages.items()
    }
    files["index.html"] = html.render(report, lambda i, e: pages.get(i, ""))
    result.write(folder, files)
    console.say(
        "report: "
        + "  ".join(
            staging.below(folder, name) for name in ("index.html", "junit.xml", "results.json")
        )
    )
