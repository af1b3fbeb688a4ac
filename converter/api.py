"""The Python API behind `import converter` (which loads this only when it is used)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from converter import formats
from converter.diagnostics import Diagnostic, Where
from converter.errors import UnsupportedError, unreadable
from converter.files import Output
from converter.format import Flavour
from converter.graph.infer import InferenceError
from converter.graph.laws import impossible
from converter.publish import recover
from converter.sidefiles import demand_replaceable

if TYPE_CHECKING:
    from converter.crosscheck import Result
    from converter.graph.infer import Array
    from converter.model import Model

PathLike = str | os.PathLike[str]


def load(path: PathLike, format: str | None = None, weights: PathLike | None = None, dequantize: bool = False) -> Model:
    """Reads a model file into the shared graph.

    `format` overrides detection by content; `weights` names the second file where it does not lie beside the first. With `dequantize`
    exact integer arithmetic (Zhouyi integer IR) becomes float operators between DequantizeLinear and QuantizeLinear, which other
    formats can take; files without such arithmetic are read as ever.
    Raises ReadError (unreadable or invalid) or UnsupportedError (layers without a mapping, all of them at once).
    """
    p = Path(path)
    if not p.exists():
        recover(p)
    chosen = formats.get(format.split("+")[0]) if format else formats.detect(p)
    formats.demand_file(p)
    read = chosen.read_numbers if dequantize and chosen.read_numbers is not None else chosen.read
    with _boundary_told(p):
        model = read(p, Path(weights) if weights else None)
    _demand_boundary(model, p)
    model.source = p if weights is None else None
    if not format and not p.name.endswith(chosen.suffixes) and (other := formats.of_suffix(p)):
        message = f"the content is {chosen.title}, the suffix that of {formats.get(other).title}"
        model.notes.append(Diagnostic("R108", message, "warning", Where(str(p)), help=f"-f {chosen.name} says that it is meant"))
    return model


def check(path: PathLike, format: str | None = None, weights: PathLike | None = None) -> list[Diagnostic]:
    """What is wrong with a model file by itself. Raises ReadError for what cannot be read at all."""
    p = Path(path)
    chosen = formats.get(format) if format else formats.detect(p)
    formats.demand_file(p)
    with _boundary_told(p):
        return chosen.check(p, Path(weights) if weights else None)


@contextmanager
def _boundary_told(path: Path) -> Iterator[None]:
    """What is impossible about an input or an output is told with the file; of a layer it is told with the layer."""
    try:
        yield
    except InferenceError as e:
        raise unreadable("R105", str(e), Where(str(path))) from None


def _demand_boundary(model: Model, p: Path) -> None:
    """There are outputs, sizes that tensors can have, and one name for each input."""
    if reason := next(filter(None, map(impossible, (*model.ir.graph.inputs, *model.ir.graph.outputs))), None):
        raise unreadable("R110", reason, Where(str(p)))
    names = [i.name for i in model.inputs]
    if len(set(names)) < len(names):
        raise unreadable("R105", f"two inputs are called {next(n for n in names if names.count(n) > 1)!r}", Where(str(p)))
    if not model.ir.graph.outputs:
        raise unreadable("R105", "the model has no outputs", Where(str(p)))


def save(model: Model, path: PathLike, format: str | None = None, io_layout: str = "") -> list[Diagnostic]:
    """Writes a model: `format` may carry a flavour ("openvino+ir=7"); without it the suffix decides. Returns warnings.

    Nothing is written unless everything can be (UnsupportedError lists all that cannot, WriteError says why not). A graph that
    was built by hand and is not in canonical form (implicit padding, another opset, values without types) is read as a file would be.
    Existing files are overwritten, but for a side file that another model beside it uses (WriteError W302).
    """
    from converter.graph.invariants import violations

    if violations(model.ir):
        from converter.formats.onnx.by_hand import canonical_form

        model = canonical_form(model)
    flavour: Flavour = formats.target_for(Path(path), format, io_layout)
    with expressible(), Output(path, check=lambda files: demand_replaceable(files, (), force=True)) as out:
        return formats.write(model, out.made, flavour)


@contextmanager
def expressible() -> Iterator[None]:
    """A rewrite that onnx's inference refuses (of a network with dimensions of size 0, mostly) means that the target cannot have the network."""
    try:
        yield
    except InferenceError as e:
        raise UnsupportedError(Diagnostic("X202", f"what stands for an operator does not fit together: {e}")) from None


def convert(
    src: PathLike,
    dst: PathLike,
    source: str | None = None,
    target: str | None = None,
    dequantize: bool = False,
    *,
    inputs: Mapping[str, Sequence[int]] | None = None,
    outputs: Sequence[str] = (),
    io_layout: str = "",
    weights: PathLike | None = None,
    force: bool = True,
) -> list[Diagnostic]:
    """One conversion from file to file, as `netconv convert` does it; returns what reading and writing warn of.

    `source` overrides detection by content; `target` may carry a flavour ("openvino+ir=7"), without it the suffix of `dst` decides.
    `inputs` fixes the shapes of inputs by name, `outputs` keeps only what these tensors or layers need, `io_layout` is "keep" or
    "native" for channels-last targets, `weights` and `dequantize` are as in `load`. Existing files are overwritten unless `force` is
    false, but never an input, nor a side file that another model beside it uses (W302). All files appear, or none.
    Raises what `load` and `save` raise, and UsageError for names and shapes that the model does not have.
    """
    from converter import conversion

    request = conversion.Request(
        source=Path(src),
        target=Path(dst),
        source_format=source,
        target_format=target,
        weights=Path(weights) if weights else None,
        shapes=inputs or {},
        outputs=(outputs,) if isinstance(outputs, str) else outputs,
        io_layout=io_layout,
        force=force,
        dequantize=dequantize,
    )
    return list(conversion.convert(request).notes)


def run(path: PathLike, feeds: dict[str, Any], engine: str = "onnxruntime") -> dict[str, Array]:
    """Executes a model file once."""
    return load(path).run(feeds, engine)


def verify(reference: Any, candidate: Any, data: Any = None, *, native: str = "auto", **options: Any) -> Result:
    """Compares two models (files or Models) on the same inputs; see converter.crosscheck.verify. The files run in their own engines, too."""
    from converter.crosscheck import verify as compare

    return compare(_model(reference), _model(candidate), data, native=native, **options)


def inspect(path: PathLike) -> dict[str, Any]:
    """What is in a model file, as plain data."""
    from converter.inspection import summary

    return summary(load(path))


def _model(model: Any) -> Model:
    from converter.model import Model

    return model if isinstance(model, Model) else load(model)
