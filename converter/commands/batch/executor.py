"""Run the jobs of a batch in threads of this process, each of which has a worker process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed

from converter.commands.batch import pool, staging
from converter.commands.batch.job import Job, outcome
from converter.commands.batch.pool import TaskResult
from converter.errors import Diagnostic, ExitCode
from converter.io.atomic import uninterrupted


class Executor:
    """Run jobs in threads of this process, each of which has a worker process."""

    def __init__(self, workers: int, stage: str) -> None:
        self.stage, self.stopped = stage, False
        self.threads = ThreadPoolExecutor(workers)

    def fingerprints(self, sources: Sequence[str]) -> list[dict[str, str]]:
        """Return the fingerprints of sources, which are read in parallel."""
        return list(self.threads.map(staging.fingerprint, sources))

    def run(self, jobs: Sequence[Job], keys: dict[str, str]) -> Iterator[tuple[Job, TaskResult]]:
        """Run the jobs in parallel and yield each with its result, in the order of their ends."""
        futures: dict[Future[TaskResult], Job] = {
            self.threads.submit(self._one, j): j for j in jobs
        }
        for future in as_completed(futures):
            yield futures[future], future.result()

    def _one(self, job: Job) -> TaskResult:
        return not_run() if self.stopped else staging.execute(job, self.stage)

    def stop(self) -> None:
        """Start no further job."""
        self.stopped = True

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *error: object) -> None:
        with uninterrupted():  # a second Ctrl-C waits: remaining workers would continue
            self.stop()
            pool.kill_all()
            self.threads.shutdown(cancel_futures=True)
            pool.begin()


def not_run() -> TaskResult:
    """Return the result of a job that an interruption prevented (B605)."""
    return TaskResult(
        outcome(ExitCode.INTERRUPTED, Diagnostic("B605", "the job was not run", "note")), 0, 0
    )
