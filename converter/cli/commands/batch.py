"""netconv batch"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from converter.cli.common import PathOrUrl
from converter.cli.console import Console, current
from converter.cli.options import REPORTS, subcommand
from converter.cli.streams import fetched, is_url
from converter.commands.options.batch import BatchCommand
from converter.errors import Diagnostic, ExitCode
from converter.io.strict_json import Json

EXAMPLES = """netconv batch jobs.toml --report out
netconv batch nets -t openvino -t zhouyi -o converted --verify --jobs 2
netconv batch jobs.toml --scheduler tcp://10.0.0.1:8786"""


@subcommand("batch", BatchCommand, REPORTS, EXAMPLES)
@click.argument("source", metavar="JOBS.toml|DIR", type=PathOrUrl())
def command(console: Console, options: BatchCommand, source: str) -> None:
    """Run many conversions in parallel; an interrupted run can be resumed.

    JOBS.toml describes the jobs; DIR stands for every model below it. Either may be a URL. Results
    of an earlier run are kept if their model, options, version and files are unchanged. The exit
    code is the most severe of the jobs': 70, 130, 5, 2, 4, 3, 7, 8, 6, 1, 9, 0.
    """
    from converter.commands.batch import progress, result, run, staging
    from converter.commands.report import facts
    from converter.commands.report.causes import causes

    facts.demand_baseline(options.fail_on, options.baseline)
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
    with progress.shown(len(jobs.jobs), console.say, bar) as tell, _counted(jobs, tell) as counted:
        done = run.run(jobs, options, counted, notes.extend)
    data = result.as_json(done)
    times = result.timing(done, {j["id"] for j in data["jobs"] if "numbers" in j})
    found = _as_report(data, times, options.baseline)
    code = result.exit_code(done)
    if options.fail_on == "new" and code != ExitCode.INTERRUPTED:
        code = ExitCode(found.code_of("new"))
    console.verdict(ExitCode.OK if options.exit_zero else code)
    console.result, console.cases = data, result.cases(data)
    console.report(notes)
    _details(console, data)
    console.say(*(c.line() for c in causes(found.entries)))
    since = f"   since {found.baseline}: {found.trend}" if found.baseline else ""
    console.say(f"{result.headline(data)}{since}")
    if options.report is not None:
        _report(console, options.report, data, times, found)


def _as_report(data: Json, times: Json, baseline: Path | None) -> Any:
    from converter.commands.report import facts
    from converter.commands.report.origin import origin

    entries = tuple(facts.timed(facts.of_data(data, "batch"), times))
    report = facts.Report("batch", data["version"], entries, origin=origin(sys.argv[1:]))
    return report if baseline is None else facts.since(report, baseline)


@contextlib.contextmanager
def _counted(jobs: Any, tell: Callable[[Any], None]) -> Iterator[Callable[[Any], None]]:
    """Yield a function that counts finished jobs and calls another one; if the run is interrupted,
    print the count.
    """
    count = 0

    def counted(done: Any) -> None:
        nonlocal count
        count += 1
        tell(done)

    try:
        yield counted
    except KeyboardInterrupt:
        message = (
            f"{count} of {len(jobs.jobs)} jobs are done; run the same command again to do the rest"
        )
        current().remark(message)
        raise


def _plan(source: str, options: BatchCommand) -> Any:
    from converter.commands.batch import plan
    from converter.errors import wrong_call

    out = options.output
    out = str(Path(out).absolute()) if out and "://" not in out else out
    own = {
        "-t": options.targets,
        "--verify": options.with_verify,
        "--timeout": options.timeout,
        "--max-memory": options.memory != "0",
        "--max-output": options.max_output,
    }
    url = is_url(source)
    path = Path(source.removeprefix("file://"))
    if not source.endswith(".toml") if url else path.is_dir():
        if not options.targets:
            help = f"use netconv batch {source} -t FORMAT"
            raise wrong_call("a folder of models needs a target", help=help)
        settings = {
            "verify": options.with_verify,
            "timeout": options.timeout,
            "max-memory": options.memory,
            **({"max-output": options.max_output} if options.max_output else {}),
        }
        root = source.rstrip("/") if url else str(path.absolute())
        return plan.of_folder(root, options.targets, settings, out)
    if given := [name for name, value in own.items() if value]:
        help = "" if source.endswith(".toml") else f"use netconv convert {source} OUT for one model"
        why = f"{', '.join(given)} needs a folder, but {source} is not one"
        raise wrong_call(why, help=help or "use the keys of the job file instead")
    with fetched(source) as file:
        return plan.of_file(file, out, os.path.dirname(source) if url else "")


def _details(console: Console, data: Json) -> None:
    """Report diagnostics in machine-readable output, and as text with -v."""
    from converter.commands.report.facts import diagnostic

    found = [diagnostic(d) for job in data["jobs"] for d in job["diagnostics"]]
    if console.text and console.verbosity < 1:
        found = []
    console.report(found)


def _report(console: Console, folder: str, data: Json, times: Json, report: Any) -> None:
    """Write results.json, timing.json, origin.json, junit.xml, index.html, and a page for each job
    that failed.
    """
    from converter.commands.batch import result, staging
    from converter.commands.report import facts, html, origin, render

    pages = {i: f"job-{i:04}.html" for i, e in enumerate(report.entries) if e.code}
    files = {
        "results.json": result.dumps(data),
        "timing.json": result.dumps(times),
        origin.FILE: result.dumps(report.origin),
        "junit.xml": render(report, "junit") + "\n",
    }
    files |= {
        name: html.render(
            facts.Report(
                report.entries[i].name,
                report.version,
                (report.entries[i],),
                origin=report.origin,
            ),
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
