"""The files of a job: fetched if they are remote, created in a separate folder, and published when
they are complete.

Paths may be URLs of fsspec (s3://, gs://, memory://; see converter.commands.batch.store); those of
file:// are paths. Below the folder of the results no link is followed.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from converter.commands.batch import content, pool, store
from converter.commands.batch.job import WRITING, Job, Outcome, refused
from converter.commands.batch.pool import TaskResult
from converter.commands.batch.work import Task
from converter.errors import (
    ConverterError,
    ExitCode,
    cannot_write,
    unwritable,
    wrong_call,
)
from converter.formats.coreml.package import size_of
from converter.formats.sidefiles import demand_replaceable
from converter.io.atomic import belongs, recover
from converter.io.extras import install_for
from converter.io.files import Output

# outcomes of jobs with complete files: a failed comparison does not invalidate them
PUBLISHED = (ExitCode.OK, ExitCode.FINDING, ExitCode.NOTHING_COMPARED, ExitCode.UNFELT)


def local(path: str) -> Path | None:
    """Return the path if it is on this machine, else None."""
    return (
        Path(path.removeprefix("file://"))
        if "://" not in path or path.startswith("file://")
        else None
    )


def filesystem(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it. Raises UsageError if fsspec or the
    driver is not installed.
    """
    try:
        import fsspec

        found: tuple[Any, str] = fsspec.core.url_to_fs(url)
        return found
    except (ImportError, ValueError) as e:
        raise wrong_call(
            f"cannot open {url}: {e}",
            help=f"run {install_for(url)}",
            code="U502",
        ) from None


def execute(job: Job, stage: str = "") -> TaskResult:
    """Run one job from fetching to publishing; every error becomes an outcome. `stage`: the folder
    for its unfinished files.
    """
    try:
        demand_no_link(job.output, job.folder)
        with _folder(stage) as folder:
            with_source = local(job.source) or fetch(job.source, folder / "in")
            made = folder / "out" / os.path.basename(job.output) if job.output else None
            ran = pool.runner().run(
                Task(
                    job.action,
                    str(with_source),
                    job.shown,
                    job.target,
                    str(made or ""),
                    os.path.basename(job.output),
                    job.options,
                    job.memory,
                ),
                job.timeout,
            )
            if made is not None and ran.outcome["exit_code"] in PUBLISHED:
                ran.outcome["files"] = publish(made, job.output, job.source, job.folder)
            return ran
    except ConverterError as e:
        return TaskResult(refused(e), 0, 1)
    except OSError as e:
        return TaskResult(refused(cannot_write(job.output or job.shown, e)), 0, 1)


@contextmanager
def _folder(stage: str) -> Iterator[Path]:
    if stage:
        os.makedirs(stage, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="job-", dir=stage or None) as folder:
        yield Path(folder)


def fetch(url: str, folder: Path) -> Path:
    """Copy a model and its side files to a local folder. Raises ReadError R100."""
    system, place = filesystem(url)
    return store.fetch(system, place, folder, url)


def demand_no_link(output: str, folder: str) -> None:
    """Raise WriteError W301 if a folder between `folder` and an output in it is a link: it would
    lead out of the folder of the results.
    """
    target, root = local(output), local(folder)
    if not output or not folder or target is None or root is None:
        return
    for part in reversed(target.parents):
        if part != root and part.is_relative_to(root) and part.is_symlink():
            message = (
                "cannot write: the folder is a link, and netconv batch does not follow links there"
            )
            help = "remove the link, or name its target folder with -o"
            raise unwritable("W301", message, part, help)


def publish(
    made: Path, output: str, source: str = "", folder: str = ""
) -> dict[str, dict[str, Any]]:
    """Move `made` and all files next to it to the folder of `output`, `made` itself last; return
    name -> hash and size. Raises W302 if that would overwrite `source` or its side files, or a side
    file of another model, W301 if a link leads out of `folder`.
    """
    files = sorted(made.parent.iterdir(), key=lambda p: p.name == made.name)
    found = {p.name: {"sha256": content.digest(p), "bytes": size_of(p)} for p in files}
    target = local(output)
    if target is None:
        upload(made.parent, output)
        return dict(sorted(found.items()))
    demand_no_link(output, folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    inputs = [given for given in [local(source)] if source and given is not None]
    with Output(target, check=lambda files: demand_replaceable(files, inputs, force=True)) as out:
        for p in files:
            out.adopt(p)
    return dict(sorted(found.items()))


def upload(folder: Path, url: str) -> None:
    """Copy everything in a folder, including the model that the URL names, to the parent of the
    URL. Raises WriteError W301 or W302.
    """
    system, place = filesystem(url.rstrip("/"))
    store.put(system, folder, place, url)


def exists(output: str) -> bool:
    """Return whether an output is there, local or in a store; an interrupted local write is
    completed first. Raises WriteError if the store cannot be asked.
    """
    path = local(output)
    if path is not None:
        recover(path)
        return path.exists()
    system, place = filesystem(output)
    try:
        return store.is_there(system, place)
    except Exception as e:  # drivers raise their own exception types
        raise cannot_write(output, e) from None


def present(job: Job, outcome: Outcome) -> bool:
    """Return whether the files of an earlier run are there, unchanged, including the job's output,
    and no unexpected ones.
    """
    files = outcome.get("files", {})
    name = os.path.basename(job.output)
    if job.action not in WRITING or outcome.get("exit_code", 0) not in PUBLISHED:
        return not files
    if name not in files or not all(belongs(n, name) for n in files):
        return False
    try:
        demand_no_link(job.output, job.folder)
        with tempfile.TemporaryDirectory(prefix="netconv-") as folder:
            return all(_is_there(job, n, f, Path(folder)) for n, f in files.items())
    except Exception:  # drivers raise their own exception types; the job is repeated
        return False


def _is_there(job: Job, name: str, facts: dict[str, Any], folder: Path) -> bool:
    """Return whether a file, or a package, of an earlier run is there, unchanged and not a link."""
    parent = local(os.path.dirname(job.output))
    if parent is None:
        path = folder / name
        system, place = filesystem(f"{os.path.dirname(job.output)}/{name}")
        store.get(system, place, path)
    else:
        path = parent / name
        recover(parent / os.path.basename(job.output))
        if stat.S_ISLNK(os.lstat(path).st_mode):
            return False
    return bool(size_of(path) == facts["bytes"] and content.digest(path) == facts["sha256"])


def fingerprint(source: str) -> dict[str, str]:
    """Return converter.commands.batch.content.fingerprint of a path or URL."""
    path = local(source)
    if path is not None:
        return content.fingerprint(path)
    try:
        with tempfile.TemporaryDirectory(prefix="netconv-") as folder:
            return content.fingerprint(fetch(source, Path(folder)))
    except ConverterError:
        return {}


def write_text(path: str, text: str) -> None:
    """Write a text completely or not at all, if the store can rename or writes whole objects.
    Raises WriteError W301.
    """
    data = text.encode("utf-8", "backslashreplace")  # names of files may be any bytes
    here = local(path)
    try:
        if here is None:
            system, place = filesystem(path)
            system.makedirs(os.path.dirname(place), exist_ok=True)
            system.pipe_file(place, data)
            return
        here.parent.mkdir(parents=True, exist_ok=True)
        with Output(here) as out, out.open() as f:
            f.write(data)
    except ConverterError:
        raise
    except Exception as e:  # drivers raise their own exception types
        raise cannot_write(path, e) from None


def below(folder: str, name: str) -> str:
    """Return the path of a file in a folder, which may be a URL."""
    return f"{folder.rstrip('/')}/{name}" if "://" in folder else os.path.join(folder, name)


def demand_known(path: str) -> None:
    """Raise UsageError if a URL is of a kind that cannot be written to here."""
    if local(path) is None:
        filesystem(path)


def read_text(path: str) -> str:
    """Return the text of a file, local or in a store."""
    here = local(path)
    if here is not None:
        return here.read_text(encoding="utf-8")
    system, place = filesystem(path)
    return bytes(system.cat_file(place)).decode()
