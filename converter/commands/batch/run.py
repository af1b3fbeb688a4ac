"""Run one batch from start to end: finished jobs are kept, the others run, and each result is
recorded as soon as its job ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from converter.commands.batch import content, pool, staging
from converter.commands.batch.executor import Executor
from converter.commands.batch.job import FINAL, Done, Job, refused
from converter.commands.batch.journal import Journal, clear_stage
from converter.commands.batch.plan import Plan
from converter.commands.options.batch import Batch
from converter.errors import Diagnostic, ExitCode, output_exists
from converter.io.files import npz_files

STATE = ".netconv"
Tell = Callable[[Done], None]


def run(
    plan: Plan,
    settings: Batch,
    tell: Tell = lambda done: None,
    note: Callable[[Sequence[Diagnostic]], None] = lambda notes: None,
) -> list[Done]:
    """Return all jobs with their outcomes, in the order of their ids. `tell` is called for each job
    when it ends, `note` with diagnostics of the whole run before it begins.
    """
    out = staging.local(plan.out)
    state = (
        Path(settings.state) if settings.state else (out if out is not None else Path.cwd()) / STATE
    )
    with Journal(state / "journal.jsonl", bool(settings.state)) as journal:
        note(journal.notes)
        stage = state / "stage"
        clear_stage(stage)  # leftovers of a killed run; we hold the journal's lock
        with _executor(plan, settings, "" if out is None else str(stage)) as executor:
            done = list(_all(plan, settings, journal, executor, tell))
        clear_stage(stage)
    return sorted(done, key=lambda d: d.job.id)


def _all(
    plan: Plan, settings: Batch, journal: Journal, executor: Executor, tell: Tell
) -> Iterator[Done]:
    keys = _keys(plan.jobs, executor)
    todo: list[Job] = []
    for job in plan.jobs:
        done = _known(job, keys[job.id], journal, settings.force)
        if done is None:
            todo.append(job)
        else:
            tell(done)
            yield done
    journal.claim(j.id for j in todo)
    failures = 0
    for job, ran in executor.run(todo, keys):
        done = Done(job, ran.outcome, ran.seconds, ran.attempts)
        if done.code in FINAL:
            journal.finish(job.id, keys[job.id], ran.outcome)
        failures += done.code not in (ExitCode.OK, ExitCode.INTERRUPTED)
        if settings.max_failures and failures >= settings.max_failures:
            executor.stop()
        tell(done)
        yield done


def _known(job: Job, key: str, journal: Journal, force: bool) -> Done | None:
    """Return the outcome if it is known without running: the same job was done before, or its
    output exists and no earlier run created it.
    """
    before = journal.done.get(job.id)
    if before is not None and before[0] == key and staging.present(job, before[1]):
        return Done(job, before[1], kept=True)
    if job.output and not force and job.id not in journal.claimed and staging.exists(job.output):
        why = output_exists(job.output, "the output exists and does not come from an earlier run")
        return Done(job, refused(why))
    return None


def _keys(jobs: Sequence[Job], executor: Executor) -> dict[str, str]:
    sources = sorted({j.source for j in jobs})
    files = dict(zip(sources, executor.fingerprints(sources), strict=True))
    return {j.id: content.key(j, {**files[j.source], **_data(j)}) for j in jobs}


def _data(job: Job) -> dict[str, str]:
    """Return the hashes of the files with inputs for a job's comparison."""
    found: dict[str, str] = {}
    for item in job.options.get("verify", {}).get("data", ()):
        path = Path(item.rpartition("=")[2])
        for file in filter(Path.is_file, npz_files(path)):
            found[f"data {file.name}"] = content.digest(file)
    return found


def _executor(plan: Plan, settings: Batch, stage: str) -> Executor:
    if settings.scheduler:
        from converter.commands.batch.cluster import Cluster

        return Cluster(settings.scheduler, f"{plan.out.rstrip('/')}/{STATE}/done")
    workers = settings.workers or pool.default_size(max((j.memory for j in plan.jobs), default=0))
    return Executor(max(1, min(workers, len(plan.jobs))), stage)
