"""Quantize one model for one or several targets."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from converter import formats
from converter.commands import convert
from converter.commands.dataset import Preparation
from converter.commands.options.convert import Convert
from converter.commands.options.declare import common
from converter.commands.options.quantize import Quantize
from converter.commands.quantize.data import Sample, digest, samples_of
from converter.commands.quantize.insert import insert
from converter.commands.quantize.measure import Reference, by_layer
from converter.commands.quantize.place import Placement, chosen, key, place
from converter.commands.quantize.result import Quantized
from converter.commands.quantize.scales import Observer, Range
from converter.commands.quantize.search import Limit, Search
from converter.commands.quantize.weights import compress
from converter.commands.verify.feeds import Feed
from converter.commands.verify.program import Program
from converter.errors import Diagnostic, UnsupportedError, Where, wrong_call
from converter.formats import model_files, sidefiles
from converter.formats.coreml.package import size_of
from converter.formats.format import Flavour, Format
from converter.formats.integers import Integers
from converter.formats.sidefiles import demand_replaceable
from converter.graph.infer import Arrays
from converter.graph.network import Network
from converter.graph.walk import all_nodes
from converter.io import progress
from converter.io.atomic import recover
from converter.io.files import Output
from converter.passes.constants import plain_weights
from converter.passes.dead_code import remove_dead_code
from converter.passes.fold import fold
from converter.passes.fold_batch_norms import affine, fold_batch_norms
from converter.passes.fuse_constants import fuse_constants

NOTE = "netconv.quantization"  # metadata of a written model
MEASURED = 32  # samples on which results are compared, where none has a label
SHOWN = 8  # samples on which layers are compared
FAR = 4.0  # deviations of the data from the mean that a normalization expects


def quantize(source: Path, output: Path, options: Quantize) -> Iterator[Quantized]:
    """Write a quantized model for each target. Raises UsageError for wrong options, and what
    reading and writing raise.
    """
    targets = _targets(output, options)
    inputs = [source]
    for path, _ in targets:
        recover(path)
    demand_replaceable([p for p, _ in targets], inputs, options.force)
    model = convert.read(source, common(Convert, options))
    if any(n.op_type == "QuantizeLinear" for n in all_nodes(model.ir.graph)):
        why = "the network already has quantized activations"
        raise UnsupportedError(Diagnostic("X215", why, where=Where(str(source))))
    job = _Job(source, model, options)
    for path, flavour in targets:
        yield job.write(path, flavour, inputs)


def _targets(output: Path, options: Quantize) -> list[tuple[Path, Flavour]]:
    """Return the files to write and their formats."""
    if len(options.targets) <= 1:
        flavour = formats.target_for(output, next(iter(options.targets), None))
        return [(output, _of_integers(flavour, options))]
    if output.suffix:
        raise wrong_call("several formats need a folder; name it with -o DIR")
    found = []
    for text in options.targets:
        flavour = _of_integers(formats.parse_flavour(text), options)
        found.append((output / text / f"model{formats.suffix(flavour)}", flavour))
    return found


def _of_integers(flavour: Flavour, options: Quantize) -> Flavour:
    """Return a flavour with the option by which its format writes integers. Raises UsageError for
    formats without integer kernels.
    """
    if options.weights:
        return flavour
    rules = formats.get(flavour.format).integers
    if rules is None:
        known = [n for n in formats.present() if formats.get(n).integers is not None]
        why = f"{flavour.format} has no integer kernels"
        raise wrong_call(why, help=f"use one of {', '.join(known)}, or --compress int8")
    if options.activations and options.activations not in rules.activations:
        raise wrong_call(
            f"{flavour.format} does not support activations of type {options.activations}",
            help=f"use one of {', '.join(rules.activations)}",
        )
    more = {rules.option: ""} if rules.option else {}
    return replace(flavour, options={**flavour.options, **more})


class _Job:
    """What the targets of one model have in common: the graph, the data, and the ranges."""

    def __init__(self, source: Path, model: Network, options: Quantize) -> None:
        self.source, self.model, self.options = source, model, options
        self.before = sum(map(size_of, [source, *sidefiles.present(source)]))
        self.notes: list[Diagnostic] = [*model.notes]
        self.graph = prepared(model)
        self.samples: list[Sample] = []
        if options.data is not None:
            images = Preparation(tuple(options.mean), tuple(options.std), options.layout)
            given = options.data, options.labels, images, options.seed, options.inputs
            self.samples = samples_of(model, *given)
        elif not options.weights:
            raise wrong_call(
                "quantization of activations needs representative data",
                help="name them with --data DIR, or use --compress int8, which needs no data",
            )
        # what is measured is not what the ranges are from, where something is decided by it
        apart = (options.labels is not None or options.max_drop) and len(self.samples) > 1
        self.used = self.samples[::2] if apart else self.samples
        rest = self.samples[1::2] if apart else self.samples
        many = len(rest) if options.labels is not None else MEASURED
        self.shown = rest[:: max(1, -(-len(rest) // many))]
        self.observed: Observer | None = None
        self.reference: Reference | None = None
        self.digest = ""

    def ranges(self, placed: Placement, dtype: str) -> dict[str, Range]:
        """Run the network on the data, once for all targets, and return the ranges of values."""
        if self.observed is None:
            self.observed = Observer(self.options.method)
            self.notes += unexpected(self.model, self.used[:SHOWN])
            program, hashes = Program(self.graph), []
            names = [n for n in program.values if program.values[n].dtype == ir.DataType.FLOAT]
            session = program.compile(program.piece(names, set(program.inputs)))
            with progress.step("calibrating"):
                for sample in self.used:
                    given = self.model.check_feeds(sample.load())
                    hashes.append(digest([given]))
                    feed = Feed("", given).by_value(self.graph)
                    self.observed.add(dict(zip(names, session.run(feed), strict=True)))
            self.digest = hash_of(hashes)
            self.notes += doubts(self.observed, self.graph, self.used)
        found = self.observed.ranges(dtype)
        return {n: r for n, r in found.items() if n in placed.groups}

    def write(self, path: Path, flavour: Flavour, inputs: Sequence[Path]) -> Quantized:
        target, options = formats.get(flavour.format), self.options
        graph, made = self._compressed() if options.weights else self._integers(target, path)
        graph.ir.metadata_props[NOTE] = json.dumps(self._about(made), sort_keys=True)
        made = replace(made, flavour=flavour)
        path.parent.mkdir(parents=True, exist_ok=True)
        check = lambda files: demand_replaceable(files, inputs, options.force)  # noqa: E731
        with model_files.expressible(), Output(path, check=check) as out:
            notes = formats.write(graph, out.made, flavour)
        files = tuple(sorted(out.files, key=lambda p: p != path))
        if self.samples and target.readable(path, flavour):
            back = model_files.load(path, flavour.format)
            quality = self._reference().quality(back, native=options.native != "off")
            made = replace(made, quality=quality)
            if made.floats or not options.weights:
                loaded = [s.load() for s in self.shown[:SHOWN]]
                layers = by_layer(self.graph, graph, made.layers, loaded)
                made = replace(made, layers=dict(sorted(layers.items(), key=lambda p: p[1])))
            notes += Limit.parse(options.max_drop).broken(quality, path)
        said = (*self.notes, *notes)
        self.notes = []  # once, whatever the number of targets
        return replace(made, files=files, notes=said, before=self.before)

    def _reference(self) -> Reference:
        if self.reference is None:
            self.reference = Reference(self.model, self.shown)
        return self.reference

    def _compressed(self) -> tuple[Network, Quantized]:
        graph = replace(self.model, ir=self.model.ir.clone(), source=None)
        plain_weights(graph.ir)
        kept = {n for n in map(_layer_if(self._kept()), all_nodes(graph.ir.graph)) if n}
        forms = compress(graph.ir, self.options.weights, self.options.block, kept)
        remove_dead_code(graph.ir)
        if not forms:
            why = "the network has no weights that are large enough to be compressed"
            raise UnsupportedError(Diagnostic("X215", why, where=Where(str(self.source))))
        return graph, _nothing(forms=forms)

    def _kept(self) -> Callable[[ir.Node], str]:
        by_name, by_op = chosen(*self.options.keep), {*self.options.skip}
        return lambda n: (
            "--keep" if by_name(n) else f"--skip {n.op_type}" if n.op_type in by_op else ""
        )

    def _integers(self, target: Format, path: Path) -> tuple[Network, Quantized]:
        """Return the quantized graph for a target."""
        rules, kept = target.integers, self._kept()
        assert rules is not None
        dtype = self.options.activations or rules.activations[0]
        whole = place(self.graph.ir.graph, rules, target.title, kept)
        ranges = self.ranges(whole, dtype)

        def attempt(floats: Mapping[str, str]) -> tuple[Network, Placement]:
            placed = place(
                self.graph.ir.graph,
                rules,
                target.title,
                lambda n: kept(n) or floats.get(key(n), ""),
            )
            return quantized(self.graph, placed, ranges, rules, dtype), placed

        limit, floats = Limit.parse(self.options.max_drop), dict[str, str]()
        if limit:
            reference = Reference(self.model, self.used[: max(MEASURED, len(self.shown))])
            journal = path.with_name(f"{path.name}.search.json")
            about = [self.digest, target.name, dtype, *map(str, self.options.keep)]
            floats = Search(reference, limit, attempt, whole, journal, about).floats()
        graph, placed = attempt(floats)
        if rules.fake:
            self.notes += narrow_doubles(graph.ir)
        if not placed.groups:
            why = "no layer of the network has an integer kernel"
            raise UnsupportedError(Diagnostic("X215", why, where=Where(str(self.source))))
        layers = dict.fromkeys(sorted(placed.owned), 0.0)
        return graph, _nothing(floats=placed.floats, layers=layers)

    def _about(self, made: Quantized) -> dict[str, Any]:
        import onnxruntime

        kind = self.options.weights
        how = (
            {"weights": kind}
            if kind
            else {
                "method": self.options.method,
                "data": self.digest,
                "samples": len(self.used),
                "floats": len(made.floats),
                "onnxruntime": onnxruntime.__version__,
            }
        )
        return {**how, "netconv": sys.modules["converter"].__version__}  # its API imports this


def _nothing(**more: Any) -> Quantized:
    return Quantized(Flavour(""), (), (), 0, **more)


def _layer_if(kept: Callable[[ir.Node], str]) -> Callable[[ir.Node], str]:
    from converter.commands.quantize.place import layer

    return lambda n: layer(n) if kept(n) else ""


def hash_of(parts: Sequence[str]) -> str:
    import hashlib

    return hashlib.sha256(" ".join(parts).encode()).hexdigest()


def prepared(model: Network) -> Network:
    """Return a copy in the form that kernels compute: plain weights, with constants, factors and
    biases merged into them.
    """
    found = replace(model, ir=model.ir.clone(), source=None)
    plain_weights(found.ir)
    for step in (fold, fold_batch_norms, fuse_constants, fold_batch_norms):
        step(found.ir)
    return found


def quantized(
    model: Network, placed: Placement, ranges: Mapping[str, Range], rules: Integers, dtype: str
) -> Network:
    made = replace(model, ir=model.ir.clone())
    insert(made.ir, placed, ranges, rules, dtype)
    return made


def narrow_doubles(model: ir.Model) -> Iterator[Diagnostic]:
    """Make inputs of doubles that are only cast to floats inputs of floats, in place: OpenVINO
    takes such a cast as a part of the FakeQuantize after it, and then has no kernel for doubles.
    """
    for value in model.graph.inputs:
        casts = [u.node for u in value.uses()]
        plain = all(n.op_type == "Cast" and n.outputs[0].dtype == ir.DataType.FLOAT for n in casts)
        if value.dtype == ir.DataType.DOUBLE and casts and plain:
            value.type = ir.TensorType(ir.DataType.FLOAT)
            yield Diagnostic("X205", f"{value.name} is DOUBLE; it is stored as FLOAT", "warning")


# doubts about the data ---------------------------------------------------------------------------


def doubts(observed: Observer, model: Network, used: Sequence[Sample]) -> Iterator[Diagnostic]:
    """Yield warnings of data that say little about those of later use."""
    if len(used) < 2:
        yield _doubt("one sample does not show the ranges", "use at least ten different samples")
    inputs = [str(v.name) for v in model.ir.graph.inputs]
    for name, seen in observed.seen.items():
        if seen.odd:
            why = (
                f"{seen.odd} values of {name!r} are NaN or infinite and were left out of the ranges"
            )
            yield _doubt(why, "run netconv run to find the input")
        if name in inputs and seen.low == seen.high:
            yield _doubt(f"input {name!r} is {seen.low:g} in all samples", "use real inputs")


def _doubt(message: str, help: str) -> Diagnostic:
    return Diagnostic("N411", message, "warning", help=help)


def unexpected(model: Network, used: Sequence[Sample]) -> Iterator[Diagnostic]:
    """Yield a warning if the first normalization sees other numbers than in training: its mean and
    variance are those of the training data.
    """
    norms = (n for n in model.ir.graph if n.op_type == "BatchNormalization" and not n.domain)
    for node in islice(norms, 1):
        found, name = affine(node), str(node.inputs[0].name)  # type: ignore[union-attr]
        mean, variance = (v.const_value for v in node.inputs[3:5] if v is not None)
        if found is None or mean is None or variance is None:
            continue
        program = Program(replace(model, source=None))
        feeds = [Feed("", model.check_feeds(s.load())).by_value(model) for s in used]
        values: list[Arrays] = program.tensors([name], feeds)
        arrays = np.concatenate(
            [np.moveaxis(v[name], 1, 0).reshape(mean.size, -1) for v in values], 1
        )
        spread = np.sqrt(variance.numpy() + 1e-12)
        away = float(np.median(np.abs(arrays.mean(axis=1) - mean.numpy()) / spread))
        wider = float(np.median(arrays.std(axis=1) / spread))
        if away > FAR or not 1 / FAR < wider < FAR:
            why = (
                f"the data differ from the training data: at {name!r} the mean is {away:.1f} "
                f"deviations away, and the deviation is {wider:.2g} times as large"
            )
            yield _doubt(
                why, "check --mean, --std and --layout of images, or the scale of the arrays"
            )
