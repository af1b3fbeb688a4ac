"""A certificate of a comparison: an in-toto statement that anyone can check again.

It names every file of both models with its SHA-256, the versions of netconv and of the engines, the
inputs, the options and the verdict. `check` compares the files with their hashes and repeats the
comparison. Signatures are left to existing tools for statements, such as cosign.

Form: https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md, the predicate in
schemas/report/certificate.json.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from converter import version
from converter.commands.verify import verify
from converter.commands.verify.result import Output, Result
from converter.errors import Diagnostic, Where, unreadable
from converter.formats import model_files, sidefiles
from converter.formats.coreml.package import files_of
from converter.graph.network import Network
from converter.io.files import npz_files, sha256_of
from converter.io.strict_json import Json, has_form, read

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "urn:netconv:certificate:1"
# packages that affect the numbers; a package that is absent is omitted
PACKAGES = ("numpy", "onnx", "onnx-ir", "onnxruntime", "openvino", "ai-edge-litert", "coreai-core")
# the keywords of converter.verify that determine a verdict; no others are read from a certificate
OPTIONS = (
    *("tensors", "rtol", "atol", "metrics", "mode", "seed", "seeds", "map", "engine", "native"),
    "inputs",
)
_VALUE = (str, int, float, bool, None, [(str, float)], {str: (str, [int])})
_FILE = {"name": str, "digest": {"sha256": str}}
_MODEL = {"file": str, "format": str, "function": str, "weights": (str, None)}
_FORM = {
    "_type": STATEMENT,
    "subject": [_FILE],
    "predicateType": PREDICATE,
    "predicate": {
        "tool": {"name": str, "version": str},
        "environment": {str: str},
        "reference": _MODEL,
        "candidate": _MODEL,
        "inputs": {"data": ([str], None), "files": [_FILE], "feeds": [str]},
        "options": {str: _VALUE},
        "verdict": {
            "passed": bool,
            "status": str,
            "exit_code": int,
            "measured_noise": bool,
            "outputs": [{str: (str, int, float, bool)}],
            "engines": [{str: str}],
            "wrong_layers": [{str: str}],
        },
        "coverage": {str: int},
    },
}


@dataclass(frozen=True)
class Side:
    """A model of a comparison: its file, its format and, where one was chosen, its function."""

    file: Path
    format: str
    weights: Path | None = None
    function: str = ""

    def files(self) -> list[Path]:
        """Return every file that the model consists of, those of a package one by one."""
        beside = [self.weights] if self.weights else sidefiles.present(self.file)
        whole = [self.file, *beside]
        return [p for f in whole for p in (files_of(f) if f.is_dir() else [f])]


def side_of(model: Network) -> Side:
    """Describe a model that was read from a file of its own."""
    assert model.source is not None
    return Side(model.source, model.format, function=model.function)


@dataclass(frozen=True)
class Checked:
    """The outcome of a repeated comparison: `changed` files, or the result if none has changed."""

    changed: tuple[Diagnostic, ...]
    result: Result | None
    certified: str

    @property
    def holds(self) -> bool:
        """Return whether the files are those of the certificate, and the verdict is the same."""
        return self.result is not None and self.result.code.status == self.certified


def statement(
    reference: Side,
    candidate: Side,
    result: Result,
    options: Mapping[str, Any],
    data: Sequence[str] | None,
    folder: Path,
) -> Json:
    """Return the statement about a comparison; files are named relative to `folder`, the future
    folder of the certificate.

    `options` are the given keywords of `converter.verify`, `data` its inputs.
    """
    taken = [p for item in data or () for p in _data_files(item)]
    files = {p: None for side in (reference, candidate) for p in side.files()}
    return {
        "_type": STATEMENT,
        "subject": [_described(p, folder) for p in files],
        "predicateType": PREDICATE,
        "predicate": {
            "tool": {"name": "netconv", "version": version.__version__},
            "environment": dict(_environment()),
            "reference": _side(reference, folder),
            "candidate": _side(candidate, folder),
            "inputs": {
                "data": None if data is None else [_moved(item, folder) for item in data],
                "files": [_described(p, folder) for p in taken],
                "feeds": list(result.feeds),
            },
            "options": {k: _plain(v) for k, v in options.items() if k in OPTIONS},
            "verdict": _verdict(result),
            "coverage": {
                "outputs": len(result.outputs),
                "values": sum(o.count for o in result.outputs),
                "tensors_matched": result.aligned,
                "only_in_reference": len(result.only_reference),
                "only_in_candidate": len(result.only_candidate),
            },
        },
    }


def text_of(data: Json) -> str:
    """Return a statement as text, which is deterministic."""
    return json.dumps(data, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def check(path: Path) -> Checked:
    """Compare the files of a certificate with their hashes and repeat its comparison.

    Files are searched relative to the certificate. Raises ReadError R103 if the file is not a
    certificate, and the errors of reading and comparing the models.
    """
    data = read(path, "a certificate")
    if not has_form(data, _FORM, whole=True) or data["predicate"]["options"].keys() - set(OPTIONS):
        message = f"this is not a certificate of netconv ({PREDICATE})"
        raise unreadable(
            "R103", message, path, "create one with netconv verify REF CAND --certificate FILE"
        )
    predicate = data["predicate"]
    files = [*data["subject"], *predicate["inputs"]["files"]]
    changed = tuple(d for f in files if (d := _difference(f, path)) is not None)
    certified = str(predicate["verdict"]["status"])
    if changed:
        return Checked(changed, None, certified)
    sides = [predicate[role] for role in ("reference", "candidate")]
    models = [
        model_files.load(
            _under(s["file"], path),
            s["format"],
            _optional(s["weights"], path),
            signature=s["function"],
            inputs=predicate["options"].get("inputs"),
        )
        for s in sides
    ]
    given = predicate["inputs"]["data"]
    inputs = None if given is None else [_found(item, path) for item in given]
    names = (str(sides[0]["file"]), str(sides[1]["file"]))
    result = verify(models[0], models[1], inputs, names=names, **predicate["options"])
    return Checked((), result, certified)


def _environment() -> Iterator[tuple[str, str]]:
    yield "python", platform.python_version()
    yield "system", f"{platform.system()} {platform.machine()}"
    for package in PACKAGES:
        try:
            yield package, metadata.version(package)
        except metadata.PackageNotFoundError:
            continue


def _described(path: Path, folder: Path) -> Json:
    """Return a resource descriptor of in-toto: name and digest."""
    return {"name": _relative(path, folder), "digest": {"sha256": sha256_of(path)}}


def _side(side: Side, folder: Path) -> Json:
    weights = None if side.weights is None else _relative(side.weights, folder)
    return {
        "file": _relative(side.file, folder),
        "format": side.format,
        "function": side.function,
        "weights": weights,
    }


def _verdict(result: Result) -> Json:
    return {
        "passed": result.passed,
        "status": result.code.status,
        "exit_code": int(result.code),
        "measured_noise": result.measured,
        "outputs": [_output(o) for o in result.outputs],
        "engines": [
            {"file": n.file, "engine": n.engine, "status": n.status} for n in result.native
        ],
        "wrong_layers": [{"layer": f.layer, "kind": f.kind} for f in result.findings],
    }


def _output(output: Output) -> Json:
    d = output.difference
    return {
        "reference": output.reference,
        "candidate": output.candidate,
        "passed": output.passed,
        "largest_difference": _number(d.max_abs),
        "of_tolerance": _number(d.excess),
        "values": output.count,
    }


def _plain(value: Any) -> Any:
    """Convert the value of an option to JSON."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, str | int | float | bool | None):
        return value
    return [_plain(v) for v in value]


def _number(value: float) -> float | str:
    """Convert a number to JSON; infinities and NaN become texts."""
    return value if abs(value) < float("inf") else str(value)


def _data_files(item: str) -> list[Path]:
    """Return the files that an item of --data names: none if its inputs are generated."""
    path = Path(item.rpartition("=")[2])
    return npz_files(path) if path.exists() else []


def _moved(item: str, folder: Path) -> str:
    """Make the path in an item of --data relative to the certificate."""
    name, equal, location = item.rpartition("=")
    return f"{name}{equal}{_relative(Path(location), folder)}" if Path(location).exists() else item


def _found(item: str, certificate: Path) -> str:
    name, equal, location = item.rpartition("=")
    path = _under(location, certificate)
    return f"{name}{equal}{path}" if path.exists() else item


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


def _under(name: str, certificate: Path) -> Path:
    return Path(os.path.normpath(certificate.parent / name))


def _optional(name: str | None, certificate: Path) -> Path | None:
    return None if name is None else _under(name, certificate)


def _difference(entry: Json, certificate: Path) -> Diagnostic | None:
    """Return why a file differs from that of the certificate; None if it does not."""
    name = entry["name"]
    path = _under(name, certificate)
    try:
        digest = sha256_of(path)
    except OSError:
        message, help = (
            f"{name}, which the certificate names, was not found",
            "names in a certificate are relative to its folder",
        )
        return Diagnostic("N410", message, where=Where(str(path)), help=help)
    if digest == entry["digest"]["sha256"]:
        return None
    message = f"{name} has changed since it was certified"
    help = "compare the models again with netconv verify REF CAND --certificate FILE"
    evidence = (f"certified: {entry['digest']['sha256']}", f"found: {digest}")
    return Diagnostic("N410", message, where=Where(str(path)), evidence=evidence, help=help)
