"""A hash of everything that a job's result depends on: the bytes of the model and its side files,
the options, and the version.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from converter import version
from converter.commands.batch.job import Job
from converter.errors import ReadError
from converter.formats import sidefiles
from converter.formats.coreml.package import files_of
from converter.io.atomic import recover
from converter.io.files import open_part, sha256_of


def digest(path: Path) -> str:
    """Return the SHA-256 of a file or, for a package, of the names and hashes of its files. Raises
    ReadError for a package that cannot be read.
    """
    if path.is_dir():
        names = [str(p.relative_to(path)) for p in files_of(path)]
        files = {n: sha256_of(open_part(path, n)) for n in names}
        return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
    return sha256_of(path)


def fingerprint(model: Path) -> dict[str, str]:
    """Return name -> hash of the model and its side files; empty if the model cannot be read (the
    job will report the reason).
    """
    recover(model)
    try:
        return {
            os.path.relpath(p, model.parent): digest(p)
            for p in [model, *sorted(sidefiles.present(model))]
        }
    except (OSError, ReadError):
        return {}


def key(job: Job, files: dict[str, str]) -> str:
    """Return a key that is equal for jobs that must have the same result."""
    data = [
        version.__version__,
        job.action,
        job.target,
        os.path.basename(job.output),
        job.options,
        files,
    ]
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
