"""One conversion from file to file, with everything that can be asked of it. Either all its files
appear, or none.
"""

from __future__ import annotations

import operator
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from converter import formats
from converter.errors import (
    Diagnostic,
    UnsupportedError,
    did_you_mean,
    in_file,
    wrong_call,
)
from converter.formats import model_files, sidefiles
from converter.formats.coreml.package import size_of
from converter.formats.format import Flavour
from converter.formats.sidefiles import demand_replaceable
from converter.graph.network import Network
from converter.graph.record import record
from converter.io.atomic import recover
from converter.io.files import Output
from converter.io.growth import Growth, MaxOutput, measured
from converter.passes.extract_subgraph import extract_subgraph, rename_boundary
from converter.passes.fix_inputs import fix_inputs
from converter.passes.states import declare_states, settle


@record
class Request:
    """`shapes` fixes inputs, `freeze` gives inputs constant values, `outputs` cuts the network
    behind these tensors, `starts` before these; `names` renames what are its inputs and outputs
    then; `state` says which outputs are the next values of inputs, `states` whether the target may
    keep states in its own form ("keep") or they are inputs and outputs ("io"), `force` allows to
    overwrite (never an input), `dequantize` and `signature` are as in `load`.

    `with_map`: also OUT.map.json, which says what comes from where. `max_output` is the largest
    result that is written; `announce` is called before one that is far larger than its source.
    """

    source: Path
    target: Path
    source_format: str | None = None
    target_format: str | None = None
    weights: Path | None = None
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    freeze: Mapping[str, Any] = field(default_factory=dict)
    outputs: Sequence[str] = ()
    starts: Sequence[str] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    state: Mapping[str, str] = field(default_factory=dict)
    states: str = "keep"
    io_layout: str = ""
    force: bool = False
    dequantize: bool = False
    with_map: bool = False
    signature: str = ""
    max_output: MaxOutput = field(default_factory=MaxOutput)
    announce: Callable[[Diagnostic], None] | None = None

    def growth(self, warnings: list[Diagnostic]) -> Growth:
        """What the files of the result count for; warnings that nobody is told of go to a list."""
        beside = [self.weights] if self.weights else sidefiles.present(self.source)
        source = sum(map(size_of, [self.source, *beside]))
        return Growth(source, self.max_output, self.announce or warnings.append)


@record
class Written:
    """What a conversion made: its files (the target first, without the map), the model that was
    written, warnings.
    """

    model: Network
    flavour: Flavour
    files: tuple[Path, ...]
    notes: tuple[Diagnostic, ...]


def read(request: Request) -> Network:
    """The source as it shall be converted: inputs fixed, outputs cut. UsageError for names that it
    does not have.
    """
    model = model_files.load(
        request.source,
        request.source_format,
        request.weights,
        request.dequantize,
        request.signature,
    )
    changed = (request.outputs, request.starts, request.shapes, request.freeze, request.names)
    if any(changed) or request.state:
        model.source = None  # it is another network than that of the file
    if request.outputs or request.starts:
        _cut(model, request)
        model.tidy()
    if request.shapes or request.freeze:
        _fix(model, request)
    if request.names:
        _rename(model, request.names)
    _set_states(model, request)
    return model


def _fix(model: Network, request: Request) -> None:
    """Inputs get their shapes and values."""
    shapes = {
        name: model.declared_shape(name, _sizes(name, shape))
        for name, shape in request.shapes.items()
    }
    if shapes:
        for name in model.interface.get("channel_inputs", ()):  # one sequence of one state
            if (start := model.interface.get("defaults", {}).get(name)) is not None:
                shapes.setdefault(name, list(start.shape))
    values = {name: _array(model, name, value) for name, value in request.freeze.items()}
    model.notes.extend(fix_inputs(model.ir, shapes, values))
    settle(model)


def _rename(model: Network, names: Mapping[str, str]) -> None:
    """Inputs and outputs get other names. UsageError for those that the model does not have."""
    known = ", ".join(v.name for v in (*model.inputs, *model.outputs))
    if unknown := rename_boundary(model.ir, names):
        message = f"--rename names no inputs and outputs of the result: {', '.join(unknown)}"
        raise wrong_call(message, help=f"it has: {known}")
    model.rename(names)


def _set_states(model: Network, request: Request) -> None:
    """States that are asked for, and none where they shall be inputs and outputs."""
    if request.state:
        declare_states(model, request.state)
        settle(model)
    if request.states == "io":
        for name in model.interface.pop("states", {}):
            model.interface.get("defaults", {}).pop(name, None)


def _cut(model: Network, request: Request) -> None:
    """The network between some tensors. UsageError for names that it does not have, with what was
    probably meant, and for beginnings that nothing depends on.
    """
    known = [str(o.name) for n in model.ir.graph for o in n.outputs]
    if not (missing := extract_subgraph(model.ir, request.outputs, request.starts)):
        return
    there = missing[0] in known
    message = (
        f"nothing that is kept depends on {', '.join(missing)}, or its type is not known"
        if there
        else f"the model has no tensors or layers called {', '.join(missing)}"
    )
    help = "" if there else did_you_mean(missing[0], known, "netconv inspect -v lists them")
    raise wrong_call(message, help=help, where=request.source)


def _array(model: Network, name: str, value: Any) -> Any:
    """A value in the shape of the graph's input, where it is an array."""
    if name not in model.interface.get("channel_inputs", ()) or not np.shape(value):
        return value
    array = np.asarray(value)
    return array.reshape(model.declared_shape(name, array.shape))


def _sizes(name: str, shape: Sequence[Any]) -> list[int]:
    try:
        sizes = [operator.index(d) for d in shape]
    except TypeError:
        sizes = [-1]
    if min(sizes, default=0) < 0:
        raise wrong_call(
            f"{shape!r} is not a shape for the input {name!r}",
            help="all its sizes are whole numbers, for example [1, 3, 224, 224]",
        )
    return sizes


def convert(request: Request) -> Written:
    """Reads, lowers, writes. WriteError W302 when a file would be overwritten; nothing is left
    behind by a failure.
    """
    flavour = formats.target_for(request.target, request.target_format, request.io_layout)
    if request.with_map:
        formats.demand_readable(request.target, flavour, "--map")
    recover(request.target)
    _demand_replaceable([request.target], request)
    model = read(request)
    warned: list[Diagnostic] = []
    grown = request.growth(warned)
    with Output(request.target, check=lambda files: _demand_replaceable(files, request)) as out:
        with measured(out.made.parent, grown):
            notes = _write(model, out.made, flavour, request.source)
        if request.with_map:
            _write_map(model, out, flavour)
    files = sorted(
        (p for p in out.files if p != map_of(request.target)), key=lambda p: p != request.target
    )
    beside = [request.weights] if request.weights else sidefiles.present(request.source)
    if not grown.warned:
        warned.extend(model_files.larger(model, files, [request.source, *beside]))
    said = in_file(warned, str(request.source))
    return Written(model, flavour, tuple(files), (*model.notes, *notes, *said))


def map_of(target: Path) -> Path:
    return target.with_name(f"{target.name}.map.json")


def _write_map(model: Network, out: Output, flavour: Flavour) -> None:
    from converter.commands import provenance

    data = provenance.provenance_map(model, model_files.load(out.made, flavour.format))
    with out.open(map_of(out.target).name.removeprefix(out.stem)) as f:
        f.write(provenance.text_of(data).encode())


def _write(model: Network, path: Path, flavour: Flavour, source: Path) -> tuple[Diagnostic, ...]:
    """Writes; refusals and warnings tell places in the source file."""
    try:
        with model_files.expressible():
            return in_file(formats.write(model, path, flavour), str(source))
    except UnsupportedError as e:
        raise UnsupportedError(in_file(e.diagnostics, str(source))) from None


def _demand_replaceable(files: Sequence[Path], request: Request) -> None:
    demand_replaceable(
        files, [p for p in (request.source, request.weights) if p is not None], request.force
    )


@record
class Coverage:
    """What a target can express of a model: layers in all, those that convert, operators, and
    everything that was said.
    """

    flavour: Flavour
    layers: int
    converted: int
    operators: int
    operators_converted: int
    diagnostics: tuple[Diagnostic, ...]

    @property
    def reasons(self) -> int:
        return len({(d.code, d.message) for d in self.diagnostics if d.level == "error"})

    def as_json(self) -> dict[str, Any]:
        return {
            "target": str(self.flavour),
            "layers": {"all": self.layers, "convert": self.converted},
            "operators": {"all": self.operators, "convert": self.operators_converted},
        }


def check(
    model: Network,
    target: str,
    source: Path,
    io_layout: str = "",
    max_output: MaxOutput | None = None,
) -> Coverage:
    """Converts without keeping anything: the same code as `convert`, so that its promise is
    exact.
    """
    from converter.graph.walk import all_nodes

    flavour = formats.parse_flavour(target, io_layout)
    found: list[Diagnostic] = [*model.notes]
    growth = Request(source, source, max_output=max_output or MaxOutput()).growth(found)
    with (
        tempfile.TemporaryDirectory(prefix="netconv-") as folder,
        measured(Path(folder), growth),
    ):
        try:
            found.extend(
                _write(model, Path(folder) / f"model{formats.suffix(flavour)}", flavour, source)
            )
        except UnsupportedError as e:
            found.extend(e.diagnostics)
    blocked = {(d.where.layer, d.where.kind) for d in found if d.level == "error"}
    kinds = {n.metadata_props.get("netconv.type", n.op_type) for n in all_nodes(model.ir.graph)}
    layers = len({n.metadata_props.get("netconv.layer") or n for n in all_nodes(model.ir.graph)})
    blocked_kinds = {kind for _, kind in blocked} & kinds
    return Coverage(
        flavour,
        layers,
        max(0, layers - len(blocked)),
        len(kinds),
        len(kinds) - len(blocked_kinds),
        tuple(found),
    )
