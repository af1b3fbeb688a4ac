"""Convert one file to another, with all options. Either all output files appear, or none."""

from __future__ import annotations

import operator
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from converter import formats
from converter.commands.options.convert import Convert
from converter.commands.options.shared import Custom
from converter.errors import (
    Diagnostic,
    UnsupportedError,
    UsageError,
    did_you_mean,
    in_file,
    wrong_call,
)
from converter.formats import model_files, sidefiles
from converter.formats.coreml.package import size_of
from converter.formats.format import Flavor
from converter.formats.sidefiles import demand_replaceable
from converter.graph.custom import CustomOperators, reading_custom
from converter.graph.network import Network
from converter.io.atomic import recover
from converter.io.files import Output
from converter.io.growth import Growth, MaxOutput, measured, parse
from converter.record import record

Announce = Callable[[Diagnostic], None]


def growth(
    source: Path | Network,
    options: Convert,
    warnings: list[Diagnostic],
    announce: Announce | None = None,
    limit: MaxOutput | None = None,
) -> Growth:
    """Return the counter for the sizes of the output files; without `announce`, warnings are
    appended to `warnings`. `limit` overrides the limit of the options.
    """
    size = _size_in_memory(source) if isinstance(source, Network) else _size(source, options)
    most = parse(options.max_output) if limit is None else limit
    return Growth(size, most, announce or warnings.append)


def _size(source: Path, options: Convert) -> int:
    """Return the size of the files of a model."""
    beside = [Path(options.weights)] if options.weights else sidefiles.present(source)
    return sum(map(size_of, [source, *beside]))


def _size_in_memory(model: Network) -> int:
    tensors = (v.const_value for v in model.ir.graph.initializers.values())
    return sum(t.nbytes for t in tensors if t is not None)


@record
class Written:
    """The result of a conversion: its files (the target first, without the map), the written model,
    and the warnings.
    """

    model: Network
    flavor: Flavor
    files: tuple[Path, ...]
    notes: tuple[Diagnostic, ...]


def read(
    source: Path | Network,
    options: Convert,
    starts: Sequence[str] = (),
    names: Mapping[str, str] | None = None,
) -> Network:
    """Read the source (or copy it, if it is in memory) in the form to convert: cut after some
    outputs, and before `starts`; with inputs fixed; `names` renames the resulting inputs and
    outputs. Raises UsageError for unknown names.
    """
    if isinstance(source, Network):
        model, place = source.copy(), Path()
    else:
        place = source
        model = model_files.load(
            source,
            options.source,
            options.weights,
            options.dequantize,
            options.signature,
            options.member,
            options.inputs,
        )
    outputs = _as_names(options.outputs)
    if any((outputs, starts, options.inputs, options.freeze, names, options.state)):
        model.source = None  # the network is no longer that of the file
    if outputs or starts:
        _cut(model, outputs, starts, place)
        model.tidy()
    if options.inputs or options.freeze:
        _fix(model, options.inputs or {}, options.freeze or {})
    if names:
        _rename(model, names)
    _set_states(model, options)
    return model


def _as_names(names: str | Sequence[str]) -> Sequence[str]:
    return (names,) if isinstance(names, str) else tuple(names)


def _fix(model: Network, inputs: Mapping[str, Sequence[int]], freeze: Mapping[str, Any]) -> None:
    """Set shapes and values of inputs."""
    from converter.passes.fix_inputs import fix_inputs
    from converter.passes.states import settle

    shapes = {
        name: model.declared_shape(name, _sizes(name, shape)) for name, shape in inputs.items()
    }
    if shapes:
        for name in model.interface.get("channel_inputs", ()):  # a sequence and its state
            if (start := model.interface.get("defaults", {}).get(name)) is not None:
                shapes.setdefault(name, list(start.shape))
    values = {name: _array(model, name, value) for name, value in freeze.items()}
    dynamic = any(i.shape and not isinstance(i.shape[0], int) for i in model.inputs)
    before = model.copy() if shapes and dynamic and not values else model
    try:
        model.notes.extend(fix_inputs(model.ir, shapes, values))
    except UsageError as e:
        raise _with_batch(e, before, shapes) from None
    settle(model)


def _with_batch(
    error: UsageError, model: Network, shapes: Mapping[str, Sequence[int]]
) -> Exception:
    """Add a size for the batch to the error, if the network works with one."""
    from converter.commands.verify.sizes import fitting_batch

    (diagnostic, *_) = error.diagnostics
    help = "" if diagnostic.help or not diagnostic.where.layer else fitting_batch(model, shapes)
    return type(error)(replace(diagnostic, help=help)) if help else error


def _rename(model: Network, names: Mapping[str, str]) -> None:
    """Rename inputs and outputs. Raises UsageError for unknown names."""
    from converter.passes.extract_subgraph import rename_boundary

    known = ", ".join(v.name for v in (*model.inputs, *model.outputs))
    if unknown := rename_boundary(model.ir, names):
        message = (
            f"--rename names {', '.join(unknown)}, which the result does not have "
            "as inputs or outputs"
        )
        raise wrong_call(message, help=f"the result has: {known}")
    model.rename(names)


def _set_states(model: Network, options: Convert) -> None:
    """Declare the requested states, and remove all states that are to be inputs and outputs."""
    if options.state:
        from converter.passes.states import declare_states, settle

        declare_states(model, options.state)
        settle(model)
    if options.states == "io":
        for name in model.interface.pop("states", {}):
            model.interface.get("defaults", {}).pop(name, None)


def _cut(model: Network, outputs: Sequence[str], starts: Sequence[str], source: Path) -> None:
    """Extract the network between some tensors. Raises UsageError for unknown names, with a
    suggestion, and for starting tensors that no output depends on.
    """
    from converter.passes.extract_subgraph import extract_subgraph

    known = [str(o.name) for n in model.ir.graph for o in n.outputs]
    if not (missing := extract_subgraph(model.ir, outputs, starts)):
        return
    there = missing[0] in known
    message = (
        f"no kept output depends on {', '.join(missing)}, or its type is unknown"
        if there
        else f"the model has no tensors or layers named {', '.join(missing)}"
    )
    help = "" if there else did_you_mean(missing[0], known, "netconv inspect -v lists them")
    if missing[0].split("+")[0] in formats.FORMATS:
        help = f"-t {missing[0]} names the format to write"
    raise wrong_call(message, help=help, where="" if source == Path() else source)


def _array(model: Network, name: str, value: Any) -> Any:
    """Return an array in the shape of the graph's input; other values unchanged."""
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
            f"{shape!r} is not a valid shape for input {name!r}",
            help="use integers, for example [1, 3, 224, 224]",
        )
    return sizes


def convert(
    source: Path | Network,
    target: Path,
    options: Convert,
    *,
    starts: Sequence[str] = (),
    names: Mapping[str, str] | None = None,
    with_map: bool = False,
    announce: Announce | None = None,
    limit: MaxOutput | None = None,
) -> Written:
    """Read, lower and write a model. Raises WriteError W302 if a file would be overwritten; a
    failure leaves no files.

    `with_map`: also write OUT.map.json, which maps tensors and layers of the output to those of the
    input. `announce` is called before a result is written that is far larger than its source;
    `starts` and `names` are as in `read`, `limit` as in `growth`.
    """
    flavor = formats.target_for(target, options.target, options.io_layout)
    if with_map:
        formats.demand_readable(target, flavor, "--write-map")
    for path in _models(source):
        formats.demand_there(path)
    recover(target)
    demand_replaceable([target], _files(source, options), options.force)
    with custom_operators(options, flavor.format):
        return _convert(source, target, flavor, options, starts, names, with_map, announce, limit)


def custom_operators(options: Custom, target: str) -> AbstractContextManager[None]:
    """Read and write unknown operators as the options say: carried if the target can store
    them, else by their definitions.
    """
    carry = options.allow_custom and (not target or formats.get(target).custom)
    if not options.define or carry:
        return reading_custom(CustomOperators(carry))
    from converter.formats.onnx.definitions import definitions

    return reading_custom(definitions([Path(p) for p in options.define]))


def _models(source: Path | Network) -> list[Path]:
    """Return the file of a source, none for a model in memory."""
    return [source] if isinstance(source, Path) else []


def _files(source: Path | Network, options: Convert) -> list[Path]:
    """Return the files that a source is read from, as the call names them."""
    return [*_models(source), *([] if options.weights is None else [Path(options.weights)])]


def _convert(
    source: Path | Network,
    target: Path,
    flavor: Flavor,
    options: Convert,
    starts: Sequence[str],
    names: Mapping[str, str] | None,
    with_map: bool,
    announce: Announce | None,
    limit: MaxOutput | None,
) -> Written:
    inputs, shown = _files(source, options), next(map(str, _models(source)), "")
    model = read(source, options, starts, names)
    warned: list[Diagnostic] = []
    grown = growth(source, options, warned, announce, limit)
    with Output(
        target, check=lambda files: demand_replaceable(files, inputs, options.force)
    ) as out:
        with measured(out.made.parent, grown):
            notes = _write(model, out.made, flavor, shown)
        if with_map:
            _write_map(model, out, flavor)
    files = sorted((p for p in out.files if p != map_of(target)), key=lambda p: p != target)
    if not grown.warned:
        beside = inputs[1:] or [s for path in _models(source) for s in sidefiles.present(path)]
        warned.extend(model_files.larger(model, files, [*_models(source), *beside]))
    said = in_file(warned, shown)
    return Written(model, flavor, tuple(files), (*model.notes, *notes, *said))


def output_in(folder: str, source: str, target: str) -> str:
    """Return the path of a result in a folder: named like the source, with the target's suffix."""
    name = os.path.basename(source.rstrip("/"))
    known = [s for n in formats.present() for s in formats.get(n).suffixes if name.endswith(s)]
    stem = name.removesuffix(max(known, key=len)) if known else Path(name).stem
    return f"{folder.rstrip('/')}/{stem}{formats.suffix(formats.parse_flavor(target))}"


def map_of(target: Path) -> Path:
    """Return the path of the map of names of a written file."""
    return target.with_name(f"{target.name}.map.json")


def _write_map(model: Network, out: Output, flavor: Flavor) -> None:
    from converter.commands import provenance

    data = provenance.provenance_map(model, model_files.load(out.made, flavor.format))
    with out.open(map_of(out.target).name.removeprefix(out.stem)) as f:
        f.write(provenance.text_of(data).encode())


def _write(model: Network, path: Path, flavor: Flavor, source: str) -> tuple[Diagnostic, ...]:
    """Write the model; refusals and warnings give locations in the source file."""
    try:
        with model_files.expressible():
            return in_file(formats.write(model, path, flavor), source)
    except UnsupportedError as e:
        found, text = in_file(e.diagnostics, source), ""
        if any(d.code in ("X202", "X203") and re.search(_EXAMPLE, d.help) for d in found):
            text = _options(model, flavor)
        raise UnsupportedError(_with_inputs(d, text) for d in found) from None


# the option in a help, with or without an example of another model
_EXAMPLE = r"--inputs(?: NAME:[\d,]+)?(?= |$|[.,;])"
_SIZES = (32, 64, 128, 256, 512, 1024, 4096, 16384)  # examples of a size that is not a batch
_MOST_NODES = 5000  # of networks of which several sizes are tried
_MOST_INPUTS = 8


def _with_inputs(diagnostic: Diagnostic, text: str) -> Diagnostic:
    """Return the diagnostic with `text`, options with the names and ranks of the model's dynamic
    inputs, in its help.
    """
    if diagnostic.code not in ("X202", "X203") or not text:
        return diagnostic
    return replace(diagnostic, help=re.sub(_EXAMPLE, lambda _: text, diagnostic.help, count=1))


def _options(model: Network, flavor: Flavor) -> str:
    """Return options that fix the dynamic inputs to sizes that the network accepts, with those that
    it or the target needs besides; "" for a network without dynamic inputs.
    """
    import shlex

    shapes, more = _accepted(model)
    more = more or _fixed_conditions(model, shapes, flavor)
    options = [
        f"--inputs {shlex.quote(name)}:{','.join(map(str, shape))}"
        for name, shape in list(shapes.items())[:_MOST_INPUTS]
    ]
    return " ".join([*options, *(["..."] if len(shapes) > _MOST_INPUTS else []), *more])


def _accepted(model: Network) -> tuple[dict[str, list[int]], list[str]]:
    """Return example shapes of the dynamic inputs, and options that are needed besides: the first
    that the network accepts, if possible without more options.
    """
    from converter.graph.size_expressions import parse
    from converter.passes.fix_inputs import needed_to_accept

    dynamic = [i for i in model.inputs if i.shape and any(not isinstance(d, int) for d in i.shape)]
    batches = {str(i.shape[0]) for i in dynamic if i.shape and parse(str(i.shape[0])) is not None}
    examples = [
        {i.name: _example(i.shape or (), batches, size, alone) for i in dynamic}
        for size in _SIZES
        for alone in (False, True)
    ]
    small = len(model.ir.graph) <= _MOST_NODES
    found: list[tuple[dict[str, list[int]], list[str]]] = []
    for example in examples if dynamic and small else []:
        needed = needed_to_accept(model.ir, example)
        if needed == "":
            return example, []
        if needed is not None:
            found.append((example, [needed]))
    return found[0] if found else (examples[0], [])


def _fixed_conditions(model: Network, shapes: dict[str, list[int]], flavor: Flavor) -> list[str]:
    """Return options that fix conditions by which the network chooses, if the target refuses the
    choices once the shapes are fixed.
    """
    from converter.graph.shapes import freezing
    from converter.graph.walk import operators
    from converter.passes.fix_inputs import fix_inputs

    if not operators(model.ir.graph, "If"):
        return []
    fixed = model.copy()
    try:
        fix_inputs(fixed.ir, shapes)
        needed = freezing(n.inputs[0] for n in operators(fixed.ir.graph, "If"))
        if needed:
            with tempfile.TemporaryDirectory(prefix="netconv-") as folder:
                formats.write(fixed, Path(folder) / f"model{formats.suffix(flavor)}", flavor)
    except UsageError:
        return []
    except UnsupportedError as e:
        return [needed] if any(needed in d.help for d in e.diagnostics) else []
    return []


def _example(
    shape: Sequence[int | str | None], batches: Set[str], size: int, alone: bool
) -> list[int]:
    """Return sizes for a shape; dimensions of one name are equal, those of `batches` are 1. If
    `alone`, only the last axis has more than one element.
    """
    return [
        d
        if isinstance(d, int)
        else 1
        if not axis or d in batches or (alone and axis < len(shape) - 1)
        else size
        for axis, d in enumerate(shape)
    ]


@record
class Coverage:
    """The part of a model that a target can express: the number of layers, of those that convert,
    operators, and all diagnostics.
    """

    flavor: Flavor
    layers: int
    converted: int
    operators: int
    operators_converted: int
    diagnostics: tuple[Diagnostic, ...]

    @property
    def reasons(self) -> int:
        return len({(d.code, d.message) for d in self.diagnostics if d.level == "error"})

    def as_json(self) -> dict[str, Any]:
        """Return the coverage as plain data."""
        return {
            "target": str(self.flavor),
            "layers": {"all": self.layers, "convert": self.converted},
            "operators": {"all": self.operators, "convert": self.operators_converted},
        }


def check(
    model: Network,
    target: str,
    source: Path | Network,
    io_layout: str = "",
    limit: MaxOutput | None = None,
) -> Coverage:
    """Convert without keeping any file, by the same code as `convert`, so that the prediction is
    exact.
    """
    from converter.graph.walk import all_nodes

    flavor = formats.parse_flavor(target, io_layout)
    shown = str(source) if isinstance(source, Path) else ""
    found: list[Diagnostic] = [*model.notes]
    grown = growth(source, Convert(), found, limit=limit)
    with (
        tempfile.TemporaryDirectory(prefix="netconv-") as folder,
        measured(Path(folder), grown),
    ):
        try:
            found.extend(
                _write(model, Path(folder) / f"model{formats.suffix(flavor)}", flavor, shown)
            )
        except UnsupportedError as e:
            found.extend(e.diagnostics)
    blocked = {(d.where.layer, d.where.kind) for d in found if d.level == "error"}
    kinds = {n.metadata_props.get("netconv.type", n.op_type) for n in all_nodes(model.ir.graph)}
    layers = len({n.metadata_props.get("netconv.layer") or n for n in all_nodes(model.ir.graph)})
    blocked_kinds = {kind for _, kind in blocked} & kinds
    return Coverage(
        flavor,
        layers,
        max(0, layers - len(blocked)),
        len(kinds),
        len(kinds) - len(blocked_kinds),
        tuple(found),
    )
