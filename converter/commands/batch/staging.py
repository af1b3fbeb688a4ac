"""A job's files: fetched where they are remote, made in a folder of the job's own, published when
they are complete.

Paths may be URLs of fsspec (s3://, gs://, memory://); those of file:// are paths.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from converter.commands.batch import content, pool
from converter.commands.batch.job import Job, Outcome, refused
from converter.commands.batch.pool import Ran
from converter.commands.batch.work import Task
from converter.errors import (
    ConverterError,
    ExitCode,
    ReadError,
    cannot_read,
    cannot_write,
    wrong_call,
)
from converter.formats import sidefiles
from converter.formats.mlpackage import MANIFEST, files_of, is_package, size_of
from converter.formats.sidefiles import demand_replaceable
from converter.io.files import Output

# outcomes of jobs whose files are whole: a comparison that failed takes nothing away
PUBLISHED = (ExitCode.OK, ExitCode.FINDING, ExitCode.NOTHING_COMPARED)


def local(path: str) -> Path | None:
    """The path, when it is on this machine."""
    return (
        Path(path.removeprefix("file://"))
        if "://" not in path or path.startswith("file://")
        else None
    )


def filesystem(url: str) -> tuple[Any, str]:
    """The file system behind a URL, and the path in it; UsageError when fsspec or the driver is not
    installed.
    """
    try:
        import fsspec

        found: tuple[Any, str] = fsspec.core.url_to_fs(url)
        return found
    except (ImportError, ValueError) as e:
        raise wrong_call(
            f"cannot open {url}: {e}",
            help="pip install 'netconv[batch]', and s3fs or gcsfs for those stores",
            code="U502",
        ) from None


def execute(job: Job, stage: str = "") -> Ran:
    """Runs one job from fetching to publishing; everything that goes wrong is an outcome. `stage`:
    where to make its files.
    """
    try:
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
                ran.outcome["files"] = publish(made, job.output, job.source)
            return ran
    except ConverterError as e:
        return Ran(refused(e), 0, 1)
    except OSError as e:
        return Ran(refused(cannot_write(job.output or job.shown, e)), 0, 1)


@contextmanager
def _folder(stage: str) -> Iterator[Path]:
    if stage:
        os.makedirs(stage, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="job-", dir=stage or None) as folder:
        yield Path(folder)


def fetch(url: str, folder: Path) -> Path:
    """Copies a model and its side files here."""
    system, place = filesystem(url)
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / os.path.basename(place)
    parent = os.path.dirname(place)
    try:
        _get(system, place, model)
        for name in sidefiles.names(model) if model.is_file() else ():
            side = (folder / name).resolve()
            if side.is_relative_to(folder.resolve()) and system.exists(f"{parent}/{name}"):
                side.parent.mkdir(parents=True, exist_ok=True)
                system.get_file(f"{parent}/{name}", str(side))
    except Exception as e:  # drivers raise families of their own
        raise cannot_read(url, e) from None
    return model


def _get(system: Any, place: str, path: Path) -> None:
    """Copies a file, or all files of a folder (a package, or one of data), here."""
    if system.isfile(place):
        system.get_file(place, str(path))
        return
    stem = place.rstrip("/")
    for file in system.find(stem):
        name = PurePosixPath(os.path.relpath(file, stem))
        if ".." in name.parts or "\\" in str(name):
            raise OSError(errno.EINVAL, f"{str(name)!r} is not a file name")
        part = path / name
        part.parent.mkdir(parents=True, exist_ok=True)
        system.get_file(file, str(part))


def _put(system: Any, path: Path, place: str) -> None:
    """Copies a file, or the files of a package, away; without the manifest, which comes last, there
    is none, so that an old one and new files are never taken for a package.
    """
    if not path.is_dir():
        system.put_file(str(path), place)
        return
    files = sorted(p for p in path.rglob("*") if p.is_file())
    if is_package(path):
        files = files_of(path)
        if system.exists(place):
            system.rm(f"{place}/{MANIFEST}")
            system.rm(place, recursive=True)
    for file in files:
        inner = f"{place}/{file.relative_to(path).as_posix()}"
        system.makedirs(os.path.dirname(inner), exist_ok=True)
        system.put_file(str(file), inner)


def publish(made: Path, output: str, source: str = "") -> dict[str, dict[str, Any]]:
    """Moves everything beside `made` to the folder of `output`, itself last; name -> hash and size.
    W302 where that would overwrite `source` or its side files, or a side file of another model.
    """
    files = sorted(made.parent.iterdir(), key=lambda p: p.name == made.name)
    found = {p.name: {"sha256": content.digest(p), "bytes": size_of(p)} for p in files}
    target = local(output)
    if target is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        inputs = [given for given in [local(source)] if source and given is not None]
        with Output(
            target, check=lambda files: demand_replaceable(files, inputs, force=True)
        ) as out:
            for p in files:
                out.adopt(p)
        return dict(sorted(found.items()))
    _put_all(files, os.path.dirname(output))
    return dict(sorted(found.items()))


def upload(folder: Path, url: str) -> None:
    """Copies everything in a folder below a URL; WriteError W301."""
    _put_all(sorted(folder.iterdir()), url)


def _put_all(files: Iterable[Path], url: str) -> None:
    system, place = filesystem(url)
    try:
        system.makedirs(place, exist_ok=True)
        for p in files:
            _put(system, p, f"{place.rstrip('/')}/{p.name}")
    except Exception as e:  # drivers raise families of their own
        raise cannot_write(url, e) from None


def exists(output: str) -> bool:
    path = local(output)
    if path is not None:
        return path.exists()
    system, place = filesystem(output)
    return bool(system.exists(place))


def present(job: Job, outcome: Outcome) -> bool:
    """Whether the files of an earlier run are there, unchanged."""
    files = outcome.get("files", {})
    if not files:
        return True
    with tempfile.TemporaryDirectory(prefix="netconv-") as folder:
        parent = local(os.path.dirname(job.output))
        try:
            for name, facts in files.items():
                path = parent / name if parent is not None else Path(folder) / name
                if parent is None:
                    system, place = filesystem(f"{os.path.dirname(job.output)}/{name}")
                    _get(system, place, path)
                if size_of(path) != facts["bytes"] or content.digest(path) != facts["sha256"]:
                    return False
        except (OSError, ReadError):
            return False
    return True


def fingerprint(source: str) -> dict[str, str]:
    """converter.commands.batch.content.fingerprint of a path or URL."""
    path = local(source)
    if path is not None:
        return content.fingerprint(path)
    try:
        with tempfile.TemporaryDirectory(prefix="netconv-") as folder:
            return content.fingerprint(fetch(source, Path(folder)))
    except ConverterError:
        return {}


def write_text(path: str, text: str) -> None:
    """Complete or not at all, where the store can rename or writes whole objects. WriteError
    W301.
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
    except Exception as e:  # drivers raise families of their own
        raise cannot_write(path, e) from None


def below(folder: str, name: str) -> str:
    """A file of a folder, which may be a URL."""
    return f"{folder.rstrip('/')}/{name}" if "://" in folder else os.path.join(folder, name)


def demand_known(path: str) -> None:
    """UsageError when a URL is of a kind that cannot be written to here."""
    if local(path) is None:
        filesystem(path)


def read_text(path: str) -> str:
    here = local(path)
    if here is not None:
        return here.read_text(encoding="utf-8")
    system, place = filesystem(path)
    return bytes(system.cat_file(place)).decode()
