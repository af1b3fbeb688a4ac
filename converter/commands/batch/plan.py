"""Read JOBS.toml, or a folder of models, as a list of jobs. The format of the file is described in
converter.commands.batch.
"""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any

from converter import formats
from converter.commands.batch.content import digest
from converter.commands.batch.job import ACTIONS, WRITING, Job
from converter.commands.options.batch import JobLimits
from converter.commands.options.convert import Convert
from converter.commands.options.declare import job_keys, renamed_keys
from converter.commands.options.quantize import Quantize
from converter.commands.options.verify import Verify
from converter.errors import UsageError, did_you_mean, wrong_call
from converter.formats.coreml.package import COMPILED, FOLDERS, is_inside, is_model_folder
from converter.io import growth, toml
from converter.io.atomic import PREFIX, recover_folder
from converter.io.limits import size

DEFAULT_OUT = "converted"
_MEANS_ANYTHING = (".txt", ".xml", ".json")
# key -> its valid types
LIMITS = job_keys(JobLimits)
TOP: dict[str, Any] = {"out": str, "job": list, **LIMITS}
OF_MODEL = {k: v for k, v in job_keys(Convert).items() if k not in LIMITS}
KEYS: dict[str, Any] = {
    **{"models": str | list, "exclude": str | list, "to": str | list, "action": str},
    **OF_MODEL,
    **{"verify": bool | dict, "quantize": dict, **LIMITS},
}
QUANTIZE = {k: v for k, v in job_keys(Quantize).items() if k not in OF_MODEL}
VERIFY = {k: v for k, v in job_keys(Verify).items() if k not in OF_MODEL}


@dataclass(frozen=True)
class Plan:
    """A list of jobs. `root` is the base of ids, `out` the folder of the results (a path or a
    URL).
    """

    root: str
    out: str
    jobs: tuple[Job, ...]


def of_file(path: Path, out: str = "", root: str = "") -> Plan:
    """Return the jobs of a TOML file. Raises UsageError for invalid content, and if a glob matches
    nothing. `root`: the base of its paths (a folder or a URL), by default its own folder.
    """
    data = toml.read(path, "the jobs")
    _known(data, TOP, "the job file", path)
    data = renamed_keys(JobLimits, data)
    root = root or str(path.absolute().parent)
    folder = out or _under(root, data.get("out", DEFAULT_OUT))
    jobs: list[Job] = []
    for table in data.get("job", []):
        settings: dict[str, Any] = {
            **{k: data[k] for k in LIMITS if k in data},
            **_table(table, path),
        }
        jobs.extend(_jobs(settings, root, path))
    return _plan(root, folder, jobs, path)


def of_folder(
    root: str | Path, targets: Sequence[str], settings: Mapping[str, Any], out: str = ""
) -> Plan:
    """Return a job for every model file below a folder (an absolute path or a URL) and each
    target.
    """
    path, root = Path(root), os.fspath(root)
    folder = out or _under(root, DEFAULT_OUT)
    if "://" in root:
        models = [m for m in _remote_models_below(root) if not m.startswith(f"{folder}/")]
    else:
        found = [str(p.relative_to(root)) for p in sorted(_models_below(path))]
        models = [
            m
            for m in found
            if not Path(_under(root, m)).is_relative_to(folder)
            and not any(part.startswith(".") for part in Path(m).parts)
        ]
    wanted = {**settings, "models": models, "to": list(targets), "literal": True}
    return _plan(root, folder, list(_jobs(wanted, root, path)), path)


def _models_below(root: Path) -> Iterator[Path]:
    """Yield model files and packages, without descending into packages."""
    for folder, folders, names in os.walk(root):
        if any(n.startswith(PREFIX) for n in folders):
            recover_folder(Path(folder))
            _, folders[:], names = next(os.walk(folder))
        packages = [n for n in folders if is_model_folder(Path(folder, n))]
        folders[:] = [n for n in folders if n not in packages]
        yield from (Path(folder, n) for n in packages)
        yield from (p for n in names if _is_model(p := Path(folder, n)))


def _is_model(path: Path) -> bool:
    """Return whether a file is a model: by its suffix or, if that is ambiguous, by its content."""
    name = formats.of_suffix(path) if path.is_file() else None
    if name is None or path.suffix not in _MEANS_ANYTHING:
        return name is not None
    with open(path, "rb") as f:
        return formats.get(name).sniff(f.read(formats.HEAD), path)


def _remote_models_below(url: str) -> Iterator[str]:
    """Yield the models below a URL, by suffix or, if that is ambiguous, by content."""
    from converter.commands.batch.staging import filesystem

    for model in _glob(f"{url}/**"):
        path = PurePosixPath(model)
        name = formats.of_suffix(Path(path.name))
        if any(part.startswith(".") for part in path.parts) or name is None:
            continue
        if path.suffix in _MEANS_ANYTHING:
            system, place = filesystem(model)
            head = system.cat_file(place, start=0, end=formats.HEAD)
            if not formats.get(name).sniff(head, Path(path.name)):
                continue
        yield model


def _plan(root: str, out: str, jobs: Sequence[Job], path: Path) -> Plan:
    if not jobs:
        if path.suffix == ".toml":
            help = "a table [[job]] has the keys models and to"
            raise wrong_call("the job file has no job", help=help, where=path)
        known = ", ".join(s for n in formats.present() for s in formats.get(n).suffixes)
        raise wrong_call("the folder has no models", help=f"netconv reads {known}", where=path)
    unique = list({j.id: j for j in jobs}.values())
    clash: Counter[str] = Counter(_result(j, out, False) for j in unique if j.action in WRITING)
    return Plan(
        root,
        out,
        tuple(
            replace(j, output=_result(j, out, clash[_result(j, out, False)] > 1), folder=out)
            if j.action in WRITING
            else j
            for j in unique
        ),
    )


def _result(job: Job, out: str, full: bool) -> str:
    """Return OUT/TARGET/path/of/model.suffix, with the model's own suffix before it if two models
    would otherwise give the same file.
    """
    model = PurePosixPath(job.shown)
    suffix = formats.suffix(formats.parse_flavor(job.target))
    parts = (
        [model.parts[0].rstrip(":"), *model.parts[1:]] if "://" in job.source else model.parts
    )  # s3://nets/a.onnx: s3/nets/a.onnx
    inside = PurePosixPath(*(p for p in parts if p not in ("/", "..")))
    return "/".join(
        [
            out.rstrip("/"),
            job.target,
            str(inside.with_name((model.name if full else model.stem) + suffix)),
        ]
    )


def _jobs(settings: Mapping[str, Any], root: str, path: Path) -> Iterator[Job]:
    action = settings.get("action", "convert")
    if action not in ACTIONS:
        raise _wrong(
            path, f"action must be one of {', '.join(ACTIONS)}, got {action!r}", action, ACTIONS
        )
    targets = _list(settings.get("to", []))
    if not targets:
        raise _wrong(path, "a job needs a target", help='add for example to = ["openvino"]')
    for target in targets:
        flavor = formats.parse_flavor(target)
        if action == "roundtrip" or settings.get("verify"):
            what = "roundtrip" if action == "roundtrip" else "verify"
            formats.demand_readable(Path(formats.suffix(flavor)), flavor, what)
    options = {k.replace("-", "_"): settings[k] for k in job_keys(Convert) if k in settings}
    growth.parse(options.get("max_output", ""))
    if verify := settings.get("verify"):
        options["verify"] = (
            {} if verify is True else _table_of("verify", VERIFY, verify, root, path)
        )
    if quantize := settings.get("quantize"):
        options["quantize"] = _table_of("quantize", QUANTIZE, quantize, root, path)
        if str(labels := options["quantize"].get("labels", "")).endswith(".csv"):
            options["quantize"]["labels"] = _under(root, labels)
        data = map(Path, options["quantize"].get("data", ()))
        # so that a job runs again when they have changed
        options["quantize"]["digests"] = [digest(p) for p in data if p.exists()]
    limits: dict[str, Any] = {
        "timeout": float(settings.get("timeout", 0)),
        "memory": size(settings.get("max-memory", 0)),
    }
    for model in _models(settings, root, path):
        shown = _shown(model, root)
        for target in targets:
            name = f"{shown} -> {target}" + ("" if action == "convert" else f" ({action})")
            yield Job(name, action, model, target, "", options, **limits)


def _models(settings: Mapping[str, Any], root: str, path: Path) -> list[str]:
    if settings.get("literal"):
        return [_under(root, m) for m in settings["models"]]
    found: dict[str, None] = {}
    for pattern in _list(settings.get("models", [])):
        matches = _glob(_pattern(pattern, root))
        if not matches:
            raise _wrong(path, f"no file matches the models {pattern!r}")
        found.update(dict.fromkeys(matches))
    left = [
        m
        for m in found
        if not any(fnmatch(_shown(m, root), e) for e in _list(settings.get("exclude", [])))
    ]
    if not left:
        raise _wrong(path, "a job needs models", help='add for example models = ["nets/*.onnx"]')
    return left


def _pattern(pattern: str, root: str) -> str:
    if "://" in pattern:
        return pattern
    return f"{root}/{pattern}" if "://" in root else os.path.join(glob.escape(root), pattern)


def _glob(pattern: str) -> list[str]:
    if "://" in pattern:
        from converter.commands.batch.staging import filesystem

        system, place = filesystem(pattern)
        there = sorted(system.glob(place, detail=True).items())
        found = [p for p, facts in there if _is_remote_model(p, facts["type"])]
        return [system.unstrip_protocol(p) for p in found]
    for folder in glob.glob(os.path.dirname(pattern) or ".", recursive=True):
        recover_folder(Path(folder))
    found = [p for p in glob.glob(pattern, recursive=True) if _may_be_model(Path(p))]
    named = not glob.has_magic(pattern)  # an explicit path into a package is intended
    return sorted(p for p in found if named or not is_inside(p))


def _may_be_model(path: Path) -> bool:
    return path.is_file() or is_model_folder(path) or path.name.endswith(COMPILED)


def _is_remote_model(place: str, kind: str) -> bool:
    """Return whether a match in a store may be a model: a file outside packages, or a package,
    judging by its name.
    """
    *folders, name = PurePosixPath(place).parts
    whole = not any(f.endswith(FOLDERS) or f.startswith(PREFIX) for f in folders)
    return whole and (kind == "file" or name.endswith(FOLDERS))


def _shown(model: str, root: str) -> str:
    return model if "://" in model else os.path.relpath(model, root)


def _under(root: str, path: str) -> str:
    if "://" in path or "://" in root:
        return path if "://" in path else f"{root}/{path}"
    return os.path.normpath(os.path.join(root, path))


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _table(table: Any, path: Path) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise _wrong(path, "[[job]] must be a table")
    _known(table, KEYS, "[[job]]", path)
    return renamed_keys(JobLimits, renamed_keys(Convert, table))


def _table_of(
    name: str, keys: Mapping[str, Any], table: Any, root: str, path: Path
) -> dict[str, Any]:
    """Resolve paths of data files relative to the job file."""
    _known(table, keys, name, path)
    if "data" not in table:
        return dict(table)
    items = [str(i).rpartition("=") for i in _list(table["data"])]
    return {
        **table,
        "data": [
            f"{name}{equal}{value if value in ('random', 'edge') else _under(root, value)}"
            for name, equal, value in items
        ],
    }


def _known(table: Mapping[str, Any], keys: Mapping[str, Any], what: str, path: Path) -> None:
    for key, value in table.items():
        if key not in keys:
            raise _wrong(path, f"{what} has no key {key!r}", key, tuple(keys))
        if not isinstance(value, keys[key]) or (isinstance(value, bool) and key != "verify"):
            raise _wrong(path, f"{key} = {value!r} has the wrong type")


def _wrong(
    path: Path, message: str, given: str = "", known: Sequence[str] = (), help: str = ""
) -> UsageError:
    hint = help or did_you_mean(given, known, f"use one of {', '.join(known)}" if known else "")
    return wrong_call(message, help=hint, where=path)
