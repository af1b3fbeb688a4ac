"""What a job's result depends on, as one hash: the bytes of the model and its side files, the options, the version."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
from pathlib import Path

import converter
from converter.batch.job import Job

# ONNX names side files in entries {key: "location", value: path} of a protobuf; each string is preceded by its length
_LOCATION = re.compile(rb"\x0a\x08location\x12([\x00-\x7f]|[\x80-\xff][\x00-\x7f])")


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def side_files(model: Path) -> list[Path]:
    """The files beside a model that hold its weights: named as the model is, or named in it."""
    named = [p for p in model.parent.glob("*") if p.suffix in (".bin", ".data", ".weights") and p.name.startswith(model.stem)]
    named.extend(model.parent / n for n in locations(model))
    return sorted({p for p in named if p.is_file() and p != model})


def locations(model: Path) -> set[str]:
    """The side files that an ONNX file names."""
    if model.suffix != ".onnx" or not model.is_file() or model.stat().st_size == 0:
        return set()
    with open(model, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as content:
        found = set()
        for match in _LOCATION.finditer(content):
            length = sum((b & 0x7F) << 7 * i for i, b in enumerate(match[1]))
            text = content[match.end() : match.end() + length]
            if b"\0" not in text:
                found.add(text.decode("utf-8", "replace"))
        return found


def fingerprint(model: Path) -> dict[str, str]:
    """Name -> hash of the model and its side files; empty when the model cannot be read (the job will say why)."""
    try:
        return {os.path.relpath(p, model.parent): digest(p) for p in [model, *side_files(model)]}
    except OSError:
        return {}


def key(job: Job, files: dict[str, str]) -> str:
    """Equal for jobs that must have the same result."""
    data = [converter.__version__, job.action, job.target, os.path.basename(job.output), job.options, files]
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
