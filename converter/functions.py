"""The functions of `import netconv`: each command of the command line, for models in files and in
memory, for programs: with errors that are also Python's own, warnings, and a log.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from converter import api
from converter.api import Model
from converter.commands.options.convert import Convert, Extract
from converter.commands.options.declare import takes
from converter.commands.options.quantize import Quantize
from converter.commands.options.verify import Verify
from converter.commands.verify import result as verified
from converter.errors import (
    ConverterError,
    Diagnostic,
    ExitCode,
    NetconvWarning,
    python_error,
    wrong_call,
)
from converter.formats import model_files
from converter.formats.model_files import PathLike
from converter.graph.network import Network
from converter.io import progress

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from converter.commands.convert import Coverage
    from converter.commands.quantize.result import Quantized
    from converter.commands.reduce import Reduced
    from converter.graph.infer import Array

    # a file, the content of one, or a model in memory
    AnyModel = PathLike | bytes | Network | onnx.ModelProto | onnx_ir.Model

P = ParamSpec("P")
R = TypeVar("R")
_HERE = os.path.dirname(os.path.abspath(__file__))
_LEVELS = {"note": "info", "warning": "warning", "error": "error"}


def _public(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function so that its errors are also Python's own (such as OSError)."""

    @functools.wraps(function)
    def call(*arguments: P.args, **keywords: P.kwargs) -> R:
        try:
            return function(*arguments, **keywords)
        except ConverterError as e:
            raise python_error(e) from None

    return call


def _announce(notes: Iterable[Diagnostic]) -> None:
    """Log notes and warnings to the logger "netconv", and warn of the latter, at the caller's
    line.
    """
    import logging

    log = logging.getLogger("netconv")
    for d in notes:
        getattr(log, _LEVELS[d.level])("%s", d)
        if d.level == "warning":
            warnings.warn(str(d), NetconvWarning, stacklevel=_depth_of_caller())


def _depth_of_caller() -> int:
    """Return the `stacklevel` of the first frame outside netconv, as seen from `_announce`."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame, depth = frame.f_back, depth + 1
    return depth


# --- models of every kind


@contextlib.contextmanager
def _opened(model: AnyModel) -> Iterator[Path | Network]:
    """Provide a model as a file or a network."""
    if isinstance(model, Network):
        yield model
    elif isinstance(model, str | os.PathLike):
        yield Path(model)
    elif (network := _from_onnx_ir(model)) is not None:
        yield network
    else:
        with tempfile.TemporaryDirectory(prefix="netconv-") as folder:
            yield _stored(model, Path(folder))


def _from_onnx_ir(model: Any) -> Network | None:
    """Return the network of an onnx_ir.Model, None for anything else."""
    import onnx_ir

    if not isinstance(model, onnx_ir.Model):
        return None
    from converter.formats.onnx.canonicalize import canonical_form

    return canonical_form(Network(model, "onnx"))


def _stored(model: Any, folder: Path) -> Path:
    """Write bytes or an onnx.ModelProto to a file in the folder."""
    if isinstance(model, bytes | bytearray | memoryview):
        (path := folder / "model").write_bytes(model)
        return path
    import onnx

    if isinstance(model, onnx.ModelProto):
        onnx.save_model(model, path := folder / "model.onnx", save_as_external_data=_large(model))
        return path
    raise wrong_call(
        f"a model is a path, bytes, an onnx.ModelProto, an onnx_ir.Model or a Model, not "
        f"{type(model).__name__}"
    )


def _large(model: onnx.ModelProto) -> bool:
    return model.ByteSize() >= 1 << 31


@_public
def load(
    model: AnyModel,
    format: str | None = None,
    weights: PathLike | None = None,
    dequantize: bool = False,
    *,
    signature: str = "",
    member: str = "",
    inputs: Mapping[str, Sequence[int]] | None = None,
) -> Model:
    """Read a model: a file, the bytes of one, an onnx.ModelProto or an onnx_ir.Model.

    `format` overrides detection by content; `weights` names the second file where it does not lie
    next to the first. With `dequantize` exact integer arithmetic (Zhouyi integer IR) becomes float
    operators between DequantizeLinear and QuantizeLinear, which other formats can take; files
    without such arithmetic are read as ever. `signature` is one of several networks: the key of
    a signature of a TensorFlow Lite file, whose names inputs and outputs then get, or a function of
    an ML Program; `member` is the name of a model in a bundle (.task, .litertlm). `inputs` has
    shapes by the names of inputs where the file fixes others: `{"x": [5, 3, 8, 8]}`. Raises
    ReadError, which is also an OSError (unreadable or invalid), UnsupportedError (layers without
    a mapping, all of them at once), or UsageError U501 for shapes that the network does not take.
    """
    whole = partial(
        api.load, format=format, weights=weights, dequantize=dequantize, signature=signature,
        member=member, inputs=inputs,
    )  # fmt: skip
    if isinstance(model, Model):
        return model
    if isinstance(model, Network):
        return Model.of(model)
    if isinstance(model, str | os.PathLike):
        return _announced(whole(model))
    if (network := _from_onnx_ir(model)) is not None:
        return _announced(Model.of(network))
    # it lasts as long as the model, which may read its weights when they are needed
    folder = tempfile.TemporaryDirectory(prefix="netconv-")
    path = _stored(model, Path(folder.name))
    found = whole(path)
    found.keep = folder
    return _announced(found)


def _announced(model: Model) -> Model:
    _announce(model.notes)
    return model


@_public
def save(
    model: Network, path: PathLike, format: str | None = None, io_layout: str = ""
) -> list[Diagnostic]:
    """Write a model: `format` may carry a flavor ("openvino+ir=7"); without it the suffix decides.
    Return notes and warnings; the latter are also warned of (NetconvWarning).

    Nothing is written unless everything can be (UnsupportedError lists all that cannot, WriteError
    says why not). A graph that was built by hand and is not in canonical form (implicit padding,
    another opset, values without types) is read as a file would be. Existing files are overwritten,
    but for a side file that another model next to it uses (WriteError W302).
    """
    notes = api.save(model, path, format, io_layout)
    _announce(notes)
    return notes


@_public
@takes(Convert)
def convert(src: AnyModel, dst: PathLike, options: Convert) -> list[Diagnostic]:
    """Convert a model to a file, as `netconv convert` does, and return notes and warnings; the
    latter are also warned of (NetconvWarning).

    `src` is a file, or a model in memory. The suffix of `dst` decides on the format where `target`
    does not; "DIR/" is a folder for a file named like the source. States are kept in the target's
    own form where it has one, or become inputs and outputs (`states="io"`). All files appear, or
    none. `progress` is called with the name of each step. Raises the errors of `load` and `save`,
    UsageError for names and shapes that the model does not have, WriteError W302 where a file may
    not be overwritten and W304 where the result is larger than `max_output`.
    """
    return _converted(src, dst, options)


@_public
@takes(Quantize)
def quantize(src: AnyModel, dst: PathLike, options: Quantize) -> list[Quantized]:
    """Write an int8 network of a float one, or one with compressed weights, as `netconv quantize`
    does, and return a result for each target.

    `dst` is a folder where `targets` has several formats. A result's `quality` says how far the
    written file is from the float network, `floats` which layers compute in floats, and why,
    `notes` the warnings. Raises the errors of `convert`, UnsupportedError X215 where
    there is nothing to quantize, and N412 where only the float network keeps `max_drop`.
    """
    from converter.commands.quantize.run import quantize

    with _opened(src) as source:
        if isinstance(source, Path):
            found = list(quantize(source, Path(dst), options))
        else:
            with tempfile.TemporaryDirectory(prefix="netconv-") as folder:
                api.save(source, path := Path(folder) / "model.onnx")
                found = list(quantize(path, Path(dst), options))
    _announce(note for made in found for note in made.notes)
    return found


@_public
@takes(Extract)
def extract(src: AnyModel, dst: PathLike, options: Extract) -> list[Diagnostic]:
    """Cut a part out of a model and write it, as `netconv extract` does: from the tensors `start`
    to the tensors `outputs`, under other names with `rename`.
    """
    whole = Convert(
        **{f.name: getattr(options, f.name) for f in fields(Convert) if hasattr(options, f.name)}
    )
    more = {"starts": options.start, "names": options.rename}
    return _converted(src, dst, whole, **more)


def _converted(src: AnyModel, dst: PathLike, options: Convert, **more: Any) -> list[Diagnostic]:
    from converter.commands.convert import convert, output_in

    if options.states not in ("keep", "io"):
        raise wrong_call(f"states must be 'keep' or 'io', got {options.states!r}")
    with _opened(src) as source, progress.listening(options.progress):
        place = os.fspath(dst)
        if place.endswith(os.sep) and options.target is not None:
            Path(place).mkdir(parents=True, exist_ok=True)
            place = output_in(place, _name(source), options.target)
        notes = list(convert(source, Path(place), options, **more).notes)
    _announce(notes)
    return notes


def _name(source: Path | Network) -> str:
    path = source.source if isinstance(source, Network) else source
    return "model" if path is None else path.name


def run(
    model: AnyModel, feeds: Any = None, engine: str = "onnxruntime", **named: Any
) -> dict[str, Array]:
    """Run a model once, on arrays by the names of its inputs; see Model.run."""
    return load(model).run(feeds, engine, **named)


@_public
def inspect(model: AnyModel) -> dict[str, Any]:
    """Return the contents of a model, as plain data."""
    from converter.commands.inspect import full

    return full(load(model))


# --- comparisons


class Result(verified.Result):
    """The result of a comparison. `str` of it is the text that `netconv verify` prints, and a
    notebook shows the page that it writes.
    """

    def __str__(self) -> str:
        from converter.commands.verify.text import lines

        return "\n".join(lines(self))

    def to_html(self, path: PathLike | None = None) -> str:
        """Return the page that `netconv verify --page` writes; `path` names a file for it."""
        from converter.commands.report.page import of_result

        page = of_result(self)
        if path is not None:
            Path(path).write_text(page, encoding="utf-8")
        return page

    def _repr_html_(self) -> str:
        from converter.commands.report.assets import frame

        return frame(self.to_html(), repr(self))


def _shown(result: verified.Result) -> Result:
    return Result(**{f.name: getattr(result, f.name) for f in fields(result)})


@_public
@takes(Verify)
def verify(reference: Any, candidate: Any, options: Verify) -> Result:
    """Compare two models (files, or models in memory) on the same inputs.

    A difference is judged against the measured rounding noise of the reference unless `rtol` or
    `atol` ("[GLOB:]NUMBER") say otherwise. Inputs that are drawn and that the reference does not
    take are left out, with a note. Sizes that one of the models has are those of both; `inputs` are
    for those that both leave dynamic, and replace sizes that files fix. `progress` is called with
    the name of each step.

    `native` says whether the files that the models were read from run too, each in the engine it is
    written for (onnxruntime, OpenVINO, LiteRT), and must give the same outputs: "auto" where that
    is installed, "on" (UsageError U502 where it is not), or "off". A model without a file has no
    such run; a model that was changed after reading no longer agrees with its file: set its
    `source` to None, or "off".

    `print(result)` is the text of `netconv verify`, `result.to_html(path)` its page. Raises
    NothingComparedError when nothing could be compared, for example because an engine cannot run a
    model (N403).
    """
    from converter.commands.verify import compare

    with progress.listening(options.progress):
        a, b = (load(m, inputs=options.inputs) for m in (reference, candidate))
        return _shown(compare(a, b, options))


@dataclass(frozen=True, repr=False)
class Changes(Sequence[Any]):
    """The differences of two models. `str` of it is the text that `netconv diff` prints."""

    changes: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.changes)

    def __getitem__(self, at: Any) -> Any:
        return self.changes[at]

    def __str__(self) -> str:
        return "\n".join(line for change in self.changes for line in change.lines())

    def __repr__(self) -> str:
        return f"<{len(self)} differences>" if self.changes else "<no differences>"


@_public
def diff(a: AnyModel, b: AnyModel) -> Changes:
    """Return the differences of inputs, outputs, layers, attributes and weights of two models."""
    from converter.commands.diff import diff

    return Changes(tuple(diff(load(a), load(b))))


@_public
def reduce(
    reference: AnyModel,
    candidate: AnyModel,
    data: Any = None,
    output: PathLike = "",
    **options: Any,
) -> Reduced | None:
    """Return the smallest part of two models that differs, None if they do not differ; `output` is
    a folder to write it to. `options` are those of `verify`, without tensors and mode.
    """
    from converter.commands import reduce

    models = load(reference), load(candidate)
    found = reduce.reduce(*models, data, **options)
    if found is not None and output:
        names = tuple(_name(m) for m in models)
        reduce.write(found, Path(output), (names[0], names[1]), force=True)
    return found


@_public
def roundtrip(path: PathLike, via: str, seed: int = 0) -> Any:
    """Convert a file to the format `via` and back, and compare bytes, structure and numbers."""
    from converter.commands.roundtrip import roundtrip

    return roundtrip(Path(path), via, seed)


# --- files, pages and many models


@dataclass(frozen=True)
class Checked:
    """The problems of a model, and the layers that cannot be converted."""

    diagnostics: tuple[Diagnostic, ...]
    coverage: Coverage | None = None

    @property
    def passed(self) -> bool:
        return all(d.level != "error" for d in self.diagnostics)

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        return "\n".join(map(str, self.diagnostics))


@_public
def check(
    model: AnyModel, target: str | None = None, format: str | None = None, **options: Any
) -> Checked:
    """Check that a file is valid or, with `target`, that a model can be converted to that format:
    everything that cannot be, all at once. Nothing is written. `options` are those of `convert`.
    """
    from converter.commands import convert

    with _opened(model) as source:
        if target is not None:
            read = convert.read(source, Convert(source=format, **options))
            found = convert.check(read, target, source, options.get("io_layout", ""))
            return Checked(found.diagnostics, found)
        if isinstance(source, Network):
            return Checked(tuple(source.notes))
        return Checked(tuple(model_files.check(source, format, options.get("weights"))))


@dataclass(frozen=True, repr=False)
class Page:
    """A page in HTML, which a notebook shows."""

    html: str
    title: str

    def save(self, path: PathLike) -> None:
        """Write the page as an HTML file."""
        Path(path).write_text(self.html, encoding="utf-8")

    def __repr__(self) -> str:
        return f"<Page {self.title}, {len(self.html):,} characters>"

    def _repr_html_(self) -> str:
        from converter.commands.report.assets import frame

        return frame(self.html, self.title)


@_public
def view(a: AnyModel, b: AnyModel | None = None, path: PathLike | None = None) -> Page:
    """Draw a model, or two side by side, as a page; `path` names a file for it."""
    from converter.commands.view.page import render

    models = [load(m) for m in (a, b) if m is not None]
    names = [_name(m) for m in models]
    page = Page(render(list(zip(names, models, strict=True))), " and ".join(names))
    if path is not None:
        page.save(path)
    return page


@_public
def report(
    results: PathLike | Sequence[PathLike], form: str = "html", baseline: PathLike | None = None
) -> str:
    """Render stored results as `form`: text, junit, sarif, github, md or html."""
    from converter.commands import report
    from converter.commands.report import facts

    given = [results] if isinstance(results, str | os.PathLike) else results
    files = [Path(f) for f in given]
    with facts.strange(files):
        return report.render(facts.read(files, None if baseline is None else Path(baseline)), form)


@dataclass(frozen=True, repr=False)
class BatchResult:
    """The jobs of a batch with their results; `data` is the content of results.json."""

    data: dict[str, Any]

    @property
    def passed(self) -> bool:
        return bool(self.data["exit_code"] == ExitCode.OK)

    def __str__(self) -> str:
        from converter.commands.batch.result import headline

        return headline(self.data)

    def __repr__(self) -> str:
        return f"<BatchResult {self}>"


@_public
def batch(
    source: PathLike,
    to: str | Sequence[str] = (),
    output: PathLike = "",
    *,
    verify: bool = False,
    jobs: int = 0,
    timeout: float = 0,
    max_memory: str = "0",
    force: bool = False,
    progress: Callable[[str], None] | None = None,
) -> BatchResult:
    """Run many conversions: those of a job file, or of all models of a folder `to` some formats.
    `progress` is called with the name of each job that is done.
    """
    from converter.commands.batch import plan, result, run
    from converter.commands.options.batch import Batch

    path, out = Path(source), str(Path(output).absolute()) if output else ""
    targets = [to] if isinstance(to, str) else [*to]
    if path.is_dir():
        if not targets:
            raise wrong_call("a folder of models needs a target", help='batch(DIR, "onnx")')
        settings = {"verify": verify, "timeout": timeout, "max-memory": max_memory}
        jobs_ = plan.of_folder(str(path.absolute()), targets, settings, out)
    else:
        jobs_ = plan.of_file(path, out)

    def tell(done: Any) -> None:
        if progress is not None:
            progress(done.job.id)

    return BatchResult(result.as_json(run.run(jobs_, Batch(workers=jobs, force=force), tell)))


__all__ = [
    "Model",
    "batch",
    "check",
    "convert",
    "diff",
    "extract",
    "inspect",
    "load",
    "quantize",
    "reduce",
    "report",
    "roundtrip",
    "run",
    "save",
    "verify",
    "view",
]
