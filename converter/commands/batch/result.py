"""A batch as data (JSON Schema: schemas/report/batch.json): the same for the same jobs, in
any order in which they ended.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from converter import version
from converter.commands.batch import staging
from converter.commands.batch.job import Done, Job
from converter.commands.report.cases import ERRORS, Case
from converter.errors import ExitCode, most_severe
from converter.io.strict_json import Json


def as_json(done: Sequence[Done]) -> Json:
    """Return all results except times."""
    ordered = sorted(done, key=lambda d: d.job.id)
    levels = {"error", "warning"}
    codes = Counter(
        d["code"] for job in ordered for d in job.outcome["diagnostics"] if d["level"] in levels
    )
    return {
        "schema": "netconv/batch/1",
        "version": version.__version__,
        "exit_code": int(exit_code(ordered)),
        "counts": dict(sorted(Counter(d.status for d in ordered).items())),
        "codes": dict(sorted(codes.items())),
        "jobs": [_job(d) for d in ordered],
    }


def _job(done: Done) -> Json:
    job = done.job
    return {
        "id": job.id,
        "action": job.action,
        "source": job.shown,
        "target": job.target,
        "status": done.status,
        **done.outcome,
    }


def exit_code(done: Sequence[Done]) -> ExitCode:
    """Return the most severe exit code of the jobs that ran; INTERRUPTED if there are none."""
    ran = [d.code for d in done if not not_run(d.outcome["diagnostics"])]
    return most_severe(ran) if ran or not done else ExitCode.INTERRUPTED


def not_run(diagnostics: Sequence[Json]) -> bool:
    """Return whether a job did not start because the run ended early."""
    return any(d["code"] == "B605" for d in diagnostics)


def timing(done: Sequence[Done], compared: Collection[str]) -> Json:
    """Return the data that differ from run to run, or with the folder: times, and the arguments
    that repeat a job. `compared` are the ids of jobs with numbers.
    """
    return {
        d.job.id: {
            "seconds": round(d.seconds, 3),
            "attempts": d.attempts,
            "kept": d.kept,
            "arguments": again(d.job, d.job.id in compared),
        }
        for d in sorted(done, key=lambda d: d.job.id)
    }


def again(job: Job, compared: bool) -> tuple[str, ...]:
    """Return the arguments of netconv that repeat one job in the folder where the batch ran: the
    comparison of its files, or its action.
    """
    source, output, o = _near(job.source), _near(job.output), job.options
    if job.action == "roundtrip":
        return "roundtrip", source, "--via", job.target
    if job.action == "check":
        return "check", source, "-t", job.target
    if compared:
        given = {"native": "off", **o.get("verify", {})}
        flags = [f for k, v in given.items() for f in _flags(k, v)]
        return "verify", source, output, *flags
    if job.action == "quantize":
        from converter.commands.batch.plan import QUANTIZE

        given = {k: v for k, v in {**o, **o.get("quantize", {})}.items() if k in QUANTIZE}
        flags = [f for k, v in given.items() for f in _flags(k, v)]
        return "quantize", source, "-o", output, "-t", job.target, *flags
    flags = [f for k in ("from", "io_layout", "max_output") if k in o for f in _flags(k, o[k])]
    flags += _flags("outputs", o.get("outputs", ()))
    sizes = o.get("inputs", {}).items()
    flags += [f for n, s in sizes for f in ("--inputs", f"{n}:{','.join(map(str, s))}")]
    return "convert", source, "-o", output, "-t", job.target, *flags


def _near(place: str) -> str:
    return place if "://" in place or not place else os.path.relpath(place)


def _flags(key: str, value: Any) -> list[str]:
    """Convert a key of a job file to options of the command line."""
    name = f"--{key.replace('_', '-')}"
    if isinstance(value, bool):
        return [name] if value else []
    return [
        f for v in (value if isinstance(value, list | tuple) else [value]) for f in (name, str(v))
    ]


def headline(data: Json) -> str:
    """Return a summary: 37 ok   2 unsupported (X204 x 3)   1 differs"""
    counts = "   ".join(
        f"{n} {status}"
        for status, n in sorted(data["counts"].items(), key=lambda i: (i[0] != "ok", -i[1]))
    )
    codes = ", ".join(f"{code} x {n}" for code, n in data["codes"].items())
    return counts + (f"   ({codes})" if codes else "")


def cases(data: Json) -> list[Case]:
    """Return one case per job, for JUnit and annotations."""
    return [
        Case(
            j["id"],
            f"batch {j['target']}",
            _failure(j),
            error=j["exit_code"] in ERRORS,
            skipped=j["exit_code"] == ExitCode.INTERRUPTED,
        )
        for j in data["jobs"]
    ]


def _failure(job: Json) -> str:
    if job["exit_code"] == 0:
        return ""
    errors = [f"{d['code']} {d['message']}" for d in job["diagnostics"] if d["level"] != "warning"]
    return "\n".join([job["status"], *errors])


def write(folder: str, files: dict[str, str]) -> None:
    """Write files to a folder, or below a URL. Each file appears complete or not at all."""
    for name, text in files.items():
        staging.write_text(staging.below(folder, name), text)


def dumps(data: Any) -> str:
    """Return data as the text of a JSON file."""
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
