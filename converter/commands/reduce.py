"""Find the smallest part of two models that still differs, as two separate models and the inputs
that show the difference.

If a layer is wrong by itself, the part is that layer. If the difference grows over several layers,
both ends are moved towards each other by bisection, as long as the part between them differs.
"""

from __future__ import annotations

import glob
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from converter import engines
from converter.commands.run import save_arrays
from converter.commands.verify import verify
from converter.commands.verify.align import Alignment, align
from converter.commands.verify.feeds import feeds_for
from converter.commands.verify.program import Cutter, Program
from converter.commands.verify.result import Result
from converter.commands.verify.text import lines
from converter.errors import NothingComparedError, UnsupportedError, cannot_write, unwritable
from converter.formats import model_files
from converter.graph.infer import Array
from converter.graph.names import public_name
from converter.graph.network import Network
from converter.io.escape import escaped
from converter.io.files import Output
from converter.passes.extract_subgraph import extract_subgraph

FILES = (
    *("reference.onnx", "candidate.onnx", "inputs.npz", "expected.npz", "actual.npz"),
    "README.md",
)


@dataclass(frozen=True)
class Reduced:
    """The smallest failing case: two models with the same names of inputs and outputs, one set of
    inputs, and the difference of the outputs.
    """

    reference: Network
    candidate: Network
    inputs: dict[str, Array]
    result: Result
    options: dict[str, Any] = field(default_factory=dict)  # of the comparison

    @property
    def nodes(self) -> tuple[int, int]:
        return len(self.reference.ir.graph), len(self.candidate.ir.graph)


def reduce(
    reference: Network, candidate: Network, data: Any = None, **options: Any
) -> Reduced | None:
    """Return the smallest part that differs; None if the models do not differ. `data` and `options`
    are those of converter.verify, without tensors and mode.
    """
    found = verify(reference, candidate, data, **options)
    if found.passed:
        return None
    return _Search(reference, candidate, data, options).run(found)


class _Search:
    """The search for parts of the two models between aligned tensors."""

    def __init__(
        self, reference: Network, candidate: Network, data: Any, options: dict[str, Any]
    ) -> None:
        self.reference, self.candidate = reference, candidate
        self.options = {
            k: v for k, v in options.items() if k not in ("map", "seed", "seeds", "names")
        }
        self.alignment: Alignment = align(reference, candidate, options.get("map"))
        self.program = Program(reference)
        feeds = feeds_for(reference, data, options.get("seed", 0), options.get("seeds", 1))
        self.names = [f.name for f in feeds]
        self.feeds = [f.by_value(reference) for f in feeds]

    @property
    def order(self) -> list[str]:
        """Return the aligned tensors in the order in which the reference computes them."""
        place = Cutter(self.reference.ir.graph)
        return sorted(
            (r for r in self.alignment.pairs if place.node(r) in place.order),
            key=lambda r: place.order[place.node(r)],  # type: ignore[index]
        )

    def run(self, found: Result) -> Reduced:
        """Return the part of the first wrong layer, or the result of bisection; the models
        themselves if no part differs alone.
        """
        # exactly the pairs that the comparison aligned, including those by numbers
        if found.tensors:
            pairs = {t.reference: t.candidate for t in found.tensors}
            self.alignment = replace(self.alignment, pairs=pairs)
        return self._smallest(found) or self._all(found)

    def _all(self, found: Result) -> Reduced:
        feed = self.feeds[self.names.index(found.worst.feed) if found.worst is not None else 0]
        return Reduced(
            self.reference,
            self.candidate,
            {public_name(v): feed[str(v.name)] for v in self.reference.ir.graph.inputs},
            found,
            self.options,
        )

    def _smallest(self, found: Result) -> Reduced | None:
        if (
            found.first is not None
            and (part := self.part(found.first.tensor, self.order)) is not None
        ):
            return part
        outputs = [o for o in self.alignment.outputs if o[0] in self.alignment.pairs]
        ends = [r for r, _ in outputs if self.part(r, []) is not None] or [r for r, _ in outputs][
            :1
        ]
        if not ends:
            return None
        # a later end still differs, a later start differs less: both are nearly monotonic
        order = self.order
        upstream = order[: order.index(ends[0]) + 1]
        end = upstream[_first(len(upstream), lambda i: self.part(upstream[i], []) is not None)]
        before = upstream[: upstream.index(end)]
        count = len(before) - _first(
            len(before) + 1, lambda i: self.part(end, before[: len(before) - i]) is not None
        )
        return self.part(end, before[: max(count, 0)]) or self.part(end, [])

    def part(self, target: str, stops: Sequence[str]) -> Reduced | None:
        """Return the part that computes `target` from `stops` in both models if it differs, else
        None.
        """
        pairs = {
            **dict(self.alignment.inputs),
            **{r: self.alignment.pairs[r] for r in stops if r != target},
        }
        mine = _part(self.reference, target, set(pairs), {})
        back = {c: r for r, c in pairs.items()}
        other = self.alignment.pairs.get(target) or dict(self.alignment.outputs)[target]
        theirs = _part(self.candidate, other, set(back), {**back, other: target})
        if mine is None or theirs is None:
            return None
        names = sorted({str(v.name) for m in (mine, theirs) for v in m.ir.graph.inputs})
        feeds = self.program.tensors(names, self.feeds)
        _same_inputs(mine, theirs)
        for inputs in feeds:
            try:
                result = verify(mine, theirs, inputs, **self.options)
            except (
                NothingComparedError,
                UnsupportedError,
            ):  # a tolerance for other tensors only, or a part that cannot run alone
                return None
            if not result.passed:
                return Reduced(mine, theirs, inputs, result, self.options)
        return None


def _first(count: int, holds: Callable[[int], bool]) -> int:
    """Return the first of `count` numbers for which `holds` is true, assuming that it is true for
    all later ones; the last number if it is true for none.
    """
    low, high = 0, count - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _part(model: Network, target: str, stops: set[str], names: dict[str, str]) -> Network | None:
    """Copy the part that computes `target`, with its boundary renamed; None if no node
    computes it.
    """
    clone = model.ir.clone()
    graph = clone.graph
    cutter = Cutter(graph)
    piece = cutter.piece([target], stops)
    if not piece.nodes:
        return None
    for name in piece.inputs:
        if name not in cutter.inputs:
            inner = cutter.values[name]
            fresh = ir.Value(name=name, type=inner.type, shape=inner.shape)
            inner.name = f"{name}.computed"
            ir.convenience.replace_all_uses_with(inner, fresh)
            graph.inputs.append(fresh)
    end = cutter.values[target]
    end.metadata_props.clear()
    extract_subgraph(clone, [str(end.name)])
    _rename(
        graph, {**{n: names.get(n, n) for n in piece.inputs}, target: names.get(target, target)}
    )
    return Network(clone, model.format)


def _rename(graph: ir.Graph, names: dict[str, str]) -> None:
    """Give inputs and the output the reference's names; inner values with the same name are
    renamed.
    """
    boundary = [*graph.inputs, *graph.outputs]
    wanted = set(names.values())
    for value in [*(o for n in graph for o in n.outputs), *graph.initializers.values()]:
        if str(value.name) in wanted and value not in boundary:
            value.name = f"{value.name}.inner"
    for value in boundary:
        value.metadata_props.clear()
        value.name, old = f"{value.name}.boundary", str(value.name)
        value.metadata_props["old"] = old
    for value in boundary:
        old = value.metadata_props.pop("old")
        value.name = names.get(old, old)


def _same_inputs(a: Network, b: Network) -> None:
    """Add inputs that only one side needs to the other side, so that the same inputs fit both."""
    for have, lack in ((a, b), (b, a)):
        known = {str(v.name) for v in lack.ir.graph.inputs}
        for v in have.ir.graph.inputs:
            if str(v.name) not in known:
                lack.ir.graph.inputs.append(ir.Value(name=v.name, type=v.type, shape=v.shape))


@dataclass(frozen=True)
class Case:
    """The content of a folder with a reduced case: its files, their comparison by `command`, and
    whether the verdict is the one for which the case was created.
    """

    files: tuple[Path, ...]
    result: Result
    command: str
    reproduced: bool


def write(found: Reduced, folder: Path, names: tuple[str, str], force: bool = False) -> Case:
    """Write FILES: the models, arrays, and a README.md with the command that reproduces the
    difference.
    """
    if folder.exists() and not force and any(folder.iterdir() if folder.is_dir() else [folder]):
        help = "use --force to write into it"
        raise unwritable("W302", "the folder is not empty", folder, help)
    reference, candidate, inputs, expected, actual, readme = files = [folder / n for n in FILES]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for model, path in ((found.reference, reference), (found.candidate, candidate)):
            model_files.save(Network(model.ir, "onnx"), path, "onnx")
        save_arrays(inputs, found.inputs)
        with engines.only_running():
            save_arrays(expected, engines.run(found.reference, found.inputs))
            save_arrays(actual, engines.run(found.candidate, found.inputs))
        case = _reproduced(found, tuple(files))
        with Output(readme) as out, out.open() as f:
            f.write(_readme(found, case, names).encode())
    except OSError as e:
        raise cannot_write(folder, e) from None
    return case


def _reproduced(found: Reduced, files: tuple[Path, ...]) -> Case:
    """Read the files again and compare them as the models were. The noise of a network may differ
    for a part of its inputs, or on another machine: if the verdict depends on it, the case includes
    the measured tolerance.
    """
    case = _judged(found, files, found.options)
    if case.reproduced or not found.result.measured:
        return case
    limits = [
        f"{glob.escape(o.reference)}:{min(d.tolerance, 0.99 * d.abs_at_index)!r}"
        for o in found.result.outputs
        if not o.passed and np.isfinite((d := o.difference).abs_at_index)
    ]
    carried = _judged(found, files, {**found.options, "atol": limits}) if limits else case
    return carried if carried.reproduced else case


def _judged(found: Reduced, files: tuple[Path, ...], options: dict[str, Any]) -> Case:
    a, b = (model_files.load(f) for f in files[:2])
    given = {**options, "native": "off", "names": FILES[:2]}
    try:
        result = verify(a, b, [str(files[2])], **given)
    except (NothingComparedError, UnsupportedError):
        result = replace(found.result, passed=True)
    return Case(files, result, _command(options), result.code == found.result.code)


def _command(options: dict[str, Any]) -> str:
    """Return `netconv verify` with the options of a comparison."""
    words = ["netconv", "verify", *FILES[:2], "--data", FILES[2]]
    for name, option in (("rtol", "--rtol"), ("atol", "--atol"), ("metrics", "--metric")):
        given = options.get(name)
        values = [given] if isinstance(given, str | float | int) else list(given or ())
        words += [w for v in values for w in (option, str(v))]
    if options.get("engine", "onnxruntime") != "onnxruntime":
        words += ["--engine", options["engine"]]
    return shlex.join(words)


def _readme(found: Reduced, case: Case, names: tuple[str, str]) -> str:
    a, b = found.nodes
    names = (escaped(names[0]), escaped(names[1]))
    whole = "\n".join(map(escaped, lines(found.result)))
    shown = (
        "This command shows the difference:\n\n"
        if case.reproduced
        else "When read from the files of this folder, the two models do not differ as before: the "
        "difference depends on how the models are stored, or on other inputs than these. The "
        f"original models were compared with this result:\n\n```text\n{whole}\n```\n\n"
        "This command compares the files of this folder:\n\n"
    )
    text = "\n".join(map(escaped, lines(case.result)))
    first = found.result.first
    where = (
        [f"{n} at `{escaped(w)}`" for n, w in zip(names, first.where, strict=True) if w]
        if first
        else []
    )
    origin = f"The difference is at {' and '.join(where)}.\n\n" if where else ""
    return (
        f"# {names[0]} and {names[1]} differ\n\n"
        f"The smallest part that still differs has {a} and {b} nodes. {shown}"
        f"```sh\n{escaped(case.command)}\n```\n\n"
        f"```text\n{text}\n```\n\n{origin}"
        "`expected.npz` and `actual.npz` are the results of the two for `inputs.npz`.\n"
    )
