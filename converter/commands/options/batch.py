"""The options of commands about many models, and about results and the installation."""

from __future__ import annotations

from pathlib import Path

from converter.commands.options.declare import Group, Kind, Options, option, options


@options
class JobLimits(Options):
    """Limits of one job; a job file has these for all jobs, and for each."""

    timeout: float = option(
        default=0,
        kind=Kind.NUMBER,
        metavar="SECONDS",
        help="Set the time limit of one job (with DIR).",
        group=Group.EXECUTION,
        job=int | float,
    )
    memory: str = option(
        default="0",
        flags=("--max-memory",),
        aliases=("--memory",),
        metavar="SIZE",
        help="Set the memory limit of one job, 512M or 4G (with DIR).",
        group=Group.EXECUTION,
        job=str | int,
    )
    max_output: str = option(
        default="",
        kind=Kind.MAX_OUTPUT,
        help="Refuse results larger than this (with DIR): a size (2GB), a multiple "
        "of the model (1000x), or off. Default: 100x, but at least 64 MB.",
        group=Group.EXECUTION,
        job=str | int,
    )


@options
class Batch(Options):
    """Settings for running jobs. `workers`: 0 means as many as cores and memory allow;
    `max_failures`: 0 means no limit; `state`: the folder of the journal, "" for one next to the
    results.
    """

    workers: int = option(
        default=0,
        flags=("--jobs",),
        kind=Kind.INTEGER,
        metavar="N",
        help="Set the number of worker processes. Default: as many as cores and memory allow.",
        group=Group.EXECUTION,
        settable=True,
    )
    max_failures: int = option(
        default=0,
        kind=Kind.INTEGER,
        metavar="N",
        help="Start no more jobs after N have failed.",
        group=Group.EXECUTION,
    )
    force: bool = option(
        default=False,
        kind=Kind.FLAG,
        help="Overwrite files that no earlier run wrote (never an input).",
        group=Group.OUTPUT,
        settable=True,
    )
    scheduler: str = option(
        default="",
        metavar="ADDRESS",
        help="Run the jobs on a dask.distributed cluster.",
        group=Group.EXECUTION,
        settable=True,
    )
    state: str | Path = option(
        default="",
        flags=("--journal",),
        aliases=("--state",),
        kind=Kind.FILE,
        metavar="DIR",
        help="Set the folder of the journal. Default: OUT/.netconv.",
        group=Group.OUTPUT,
    )


@options
class Verdict(Options):
    """Settings that decide which failures change the exit code."""

    baseline: Path | None = option(
        default=None,
        kind=Kind.SOURCE,
        metavar="OLD.json",
        help="Mark results as new, fixed or known since these.",
        group=Group.COMPARISON,
    )
    fail_on: str = option(
        default="any",
        kind=Kind.CHOICE,
        choices=("any", "new"),
        help="Fail on any failure, or on those that are new since --baseline.",
        group=Group.GENERAL,
        settable=True,
    )


@options
class BatchCommand(Verdict, JobLimits, Batch):
    """Options of `netconv batch`."""

    targets: tuple[str, ...] = option(
        default=(),
        flags=("-t", "--to"),
        aliases=("--to-format",),
        kind=Kind.TARGET,
        repeatable=True,
        help="Convert all models of DIR to this format; repeatable.",
        group=Group.OUTPUT,
    )
    output: str = option(
        default="",
        flags=("-o", "--output"),
        kind=Kind.PLACE,
        metavar="OUT",
        help="Set the folder or URL of the results. Default: converted, next to the job file.",
        group=Group.OUTPUT,
    )
    with_verify: bool = option(
        default=False,
        flags=("--verify",),
        kind=Kind.FLAG,
        help="Compare the numbers of each conversion (with DIR).",
        group=Group.COMPARISON,
    )
    report: str | None = option(
        default=None,
        kind=Kind.PLACE,
        metavar="DIR",
        help="Write results.json, timing.json, junit.xml and index.html to this folder or URL.",
        group=Group.OUTPUT,
    )
    exit_zero: bool = option(
        default=False,
        kind=Kind.FLAG,
        help="Exit 0 for any results.",
        group=Group.GENERAL,
    )
    progress: str = option(
        default="auto",
        kind=Kind.CHOICE,
        choices=("auto", "never"),
        help="Show a progress bar on a terminal, or never.",
        group=Group.GENERAL,
        settable=True,
    )


FORMS = ("text", "junit", "sarif", "github", "md", "html")


@options
class ReportCommand(Verdict):
    """Options of `netconv report`."""

    form: str = option(
        default="text",
        flags=("--as",),
        aliases=("--to",),
        kind=Kind.CHOICE,
        choices=FORMS,
        help=f"Choose the form: {', '.join(FORMS)}.",
        group=Group.OUTPUT,
    )
    output: str | None = option(
        default=None,
        flags=("-o", "--output"),
        kind=Kind.PLACE,
        metavar="FILE",
        help="Write to this file instead of standard output.",
        group=Group.OUTPUT,
    )
    exit_zero: bool = option(
        default=False,
        kind=Kind.FLAG,
        help="Exit 0 for any results.",
        group=Group.GENERAL,
    )


@options
class EnvCommand(Options):
    """Options of `netconv env`."""

    with_settings: bool = option(
        default=False,
        flags=("--settings",),
        kind=Kind.FLAG,
        help="List every setting with its value and source.",
        group=Group.OUTPUT,
    )
