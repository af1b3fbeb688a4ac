"""Run the jobs on a dask.distributed cluster. Models and results are on storage that all machines
reach: a shared folder or URLs.

A dask worker that dies takes its jobs with it; the scheduler gives them to another one. A job that
was published before its worker died is not repeated: a marker next to the results, named after the
job's key, holds its outcome.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from converter.commands.batch import staging
from converter.commands.batch.executor import Executor, not_run
from converter.commands.batch.job import Job, is_outcome, outcome
from converter.commands.batch.pool import TaskResult
from converter.errors import ConverterError, Diagnostic, ExitCode, Where, wrong_call
from converter.io.extras import install

CONNECT = 20  # seconds


class Cluster(Executor):
    """Send jobs to the workers of a scheduler; `markers` is the folder of the outcomes."""

    def __init__(self, address: str, markers: str) -> None:
        self.markers, self.stopped = markers, False
        staging.demand_no_link(
            staging.below(markers, "marker"), os.path.dirname(os.path.dirname(markers))
        )
        try:
            from distributed import Client
        except ImportError:
            raise wrong_call(
                "--scheduler needs the package dask.distributed",
                help=f"run {install('batch')}",
                code="U502",
            ) from None
        try:
            self.client = Client(address, timeout=CONNECT)
        except (OSError, ValueError) as e:
            raise wrong_call(
                f"no scheduler responds at {address}: {str(e).splitlines()[0]}"
            ) from None
        self._futures: list[Any] = []

    def fingerprints(self, sources: Sequence[str]) -> list[dict[str, str]]:
        found: list[dict[str, str]] = self.client.gather(
            self.client.map(staging.fingerprint, sources, pure=False)
        )
        return found

    def run(self, jobs: Sequence[Job], keys: dict[str, str]) -> Iterator[tuple[Job, TaskResult]]:
        from distributed import as_completed

        by_future = {
            self.client.submit(
                once,
                j,
                f"{self.markers}/{keys[j.id]}.json",
                key=f"netconv-{keys[j.id]}-{n}",
                pure=False,
            ): j
            for n, j in enumerate(jobs)
        }
        self._futures = list(by_future)
        for future in as_completed(self._futures):
            yield by_future[future], self._result(by_future[future], future)

    def _result(self, job: Job, future: Any) -> TaskResult:
        from distributed import KilledWorker

        try:
            if future.cancelled():
                return not_run()
            ran: TaskResult = future.result()
            return ran
        except KilledWorker as e:
            where, evidence = Where(job.shown), (str(e)[:200],)
            message = "the cluster's workers died while running this job"
            why = Diagnostic("B602", message, where=where, evidence=evidence)
            return TaskResult(outcome(ExitCode.BUG, why), 0, 1)

    def stop(self) -> None:
        """Cancel all jobs that have not ended."""
        if not self.stopped:
            self.stopped = True
            self.client.cancel([f for f in self._futures if not f.done()], force=True)

    def __exit__(self, *error: object) -> None:
        self.stop()
        self.client.close()


def once(job: Job, marker: str) -> TaskResult:
    """Return the outcome in the marker file if the job's files exist, else run the job."""
    before = _read(marker)
    if before is not None and staging.present(job, before):
        return TaskResult(before, 0, 1)
    ran = staging.execute(job)
    if ran.outcome.get("files"):
        try:
            staging.write_text(marker, json.dumps(ran.outcome))
        except (OSError, ConverterError):  # the job is done nevertheless
            return ran
    return ran


def _read(marker: str) -> Any:
    try:
        found = json.loads(staging.read_text(marker))
        return found if is_outcome(found) else None
    except (OSError, ValueError, ConverterError):
        return None
