"""Quantize one model for one or several targets."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from converter import formats
from converter.commands import convert
from converter.commands.dataset import Preparation, Sample, samples_of
from converter.commands.options.convert import Convert
from converter.commands.options.quantize import Quantize
from converter.commands.quantize.bias import correct_biases
from converter.commands.quantize.doubts import doubts
from converter.commands.quantize.equalize import chains, equalize
from converter.commands.quantize.feedback import Moments
from converter.commands.quantize.insert import insert
from converter.commands.quantize.measure import Quality, Reference, by_layer
from converter.commands.quantize.place import RECURRENT, chosen, is_depthwise, key, place
from converter.commands.quantize.result import Quantized
from converter.commands.quantize.scales import Observer
from converter.commands.quantize.search import Limit, Search
from converter.commands.quantize.weights import compress
from converter.commands.verify.feeds import Feed, feeds_for
from converter.commands.verify.program import Program
from converter.commands.verify.sizes import shapes_for
from converter.errors import Diagnostic, UnsupportedError, Where, wrong_call
from converter.formats import model_files, sidefiles
from converter.formats.coreml.package import size_of
from converter.formats.format import Flavor, Format
from converter.formats.integers import NOTE
from converter.formats.sidefiles import demand_replaceable
from converter.graph.infer import Arrays, shape_of
from converter.graph.network import Network
from converter.graph.value import operand
from converter.graph.walk import all_nodes
from converter.io import progress
from converter.io.atomic import recover
from converter.io.files import Output
from converter.passes.biases_before_reshapes import biases_before_reshapes
from converter.passes.constants import plain_weights
from converter.passes.decompositions.arithmetic import TABLE
from converter.passes.fold import fold
from converter.passes.fuse_constants import fuse_constants, fuse_factors
from converter.passes.fuse_hard_swish import fuse_hard_swish
from converter.passes.legalize import rewrite_illegal

MEASURED = 32  # samples on which results are compared, where none has a label
CORRECTED = 16  # samples from which biases are corrected
SHOWN = 8  # samples on which layers are compared


def quantize(
    source: Path, output: Path, options: Quantize, detailed: bool = False
) -> Iterator[Quantized]:
    """Write a quantized model for each target. With `detailed`, the layers are also measured before
    biases are corrected and layers left in floats. Raises UsageError for wrong options, and the
    errors of reading and writing.
    """
    targets = _targets(output, options)
    for path, _ in targets:
        recover(path)
    demand_replaceable([p for p, _ in targets], [source], options.force)
    model = convert.read(source, Convert(source=options.source, inputs=options.inputs))
    if any(n.op_type == "QuantizeLinear" for n in all_nodes(model.ir.graph)):
        raise _nothing(source, "the network already has quantized activations")
    job = _Job(source, model, options, detailed)
    for path, flavor in targets:
        yield job.write(path, flavor)


def _nothing(source: Path, why: str) -> UnsupportedError:
    return UnsupportedError(Diagnostic("X215", why, where=Where(str(source))))


def _targets(output: Path, options: Quantize) -> list[tuple[Path, Flavor]]:
    """Return the files to write and their formats."""
    if len(options.targets) <= 1:
        flavor = formats.target_for(output, next(iter(options.targets), None))
        return [(output, _of_integers(flavor, options))]
    if output.suffix:
        raise wrong_call("several formats need a folder; name it with -o DIR")
    flavors = [_of_integers(formats.parse_flavor(t), options) for t in options.targets]
    folders = zip(options.targets, flavors, strict=True)
    return [(output / t / f"model{formats.suffix(f)}", f) for t, f in folders]


def _of_integers(flavor: Flavor, options: Quantize) -> Flavor:
    """Return a flavor with the option by which its format writes integers. Raises UsageError for
    formats without integer kernels.
    """
    rules, kind = formats.get(flavor.format).integers, options.activations
    if options.weights:
        return flavor
    if rules is None:
        known = [n for n in formats.present() if formats.get(n).integers is not None]
        why = f"{flavor.format} has no integer kernels"
        raise wrong_call(why, help=f"use one of {', '.join(known)}, or --compress int8")
    if kind and kind not in rules.activations:
        help = f"use one of {', '.join(rules.activations)}"
        raise wrong_call(f"{flavor.format} does not support {kind} activations", help=help)
    more = {rules.option: ""} if rules.option else {}
    return replace(flavor, options={**flavor.options, **more})


class _Job:
    """The state shared by the targets of one model: the graph, the data, and the ranges."""

    def __init__(
        self, source: Path, model: Network, options: Quantize, detailed: bool = False
    ) -> None:
        self.source, self.model, self.options, self.detailed = source, model, options, detailed
        self.limit = Limit.parse(options.max_drop)
        self.before = sum(map(size_of, [source, *sidefiles.present(source)]))
        self.notes: list[Diagnostic] = [*model.notes]
        if options.data is None and not options.weights:
            raise wrong_call(
                "quantization of activations needs representative data",
                help="name them with --data DIR, or use --compress int8, which needs no data",
            )
        found = [] if options.data is None else [*_samples(model, options)]
        # a decision is not measured on the samples that the ranges are from
        decided = options.labels is not None or self.limit or options.weights == "int4"
        apart = decided and len(found) > 1
        self.used, rest = (found[::2], found[1::2]) if apart else (found, found)
        most = len(rest) if options.labels is not None else MEASURED
        self.shown = rest[:: max(1, -(-len(rest) // max(1, most)))]
        self.observed: Observer | None = None
        self.floating: Network  # in the form that the last target computes
        self.reference: Reference | None = None
        self.digest, self.feeds = hashlib.sha256(), list[Arrays]()

    @cached_property
    def graph(self) -> Network:
        return prepared(self.model)

    def calibrate(self) -> Observer:
        """Run the network on the data, once for all targets, and return the observed ranges."""
        if self.observed is not None:
            return self.observed
        graph = self.graph.ir.graph
        split = {str(operand(n).name) for n in graph if is_depthwise(n)}
        split |= {str(v.name) for _, values, _ in chains(graph) for v in values}
        self.observed = Observer(self.options.method, split)
        program = Program(self.graph)
        names = [n for n, v in program.values.items() if v.dtype == ir.DataType.FLOAT]
        with progress.step("calibrating"):
            for values in program.stream(names, self._calibration()):
                self.observed.add(values)
        count, shown = len(self.used), self.feeds[:SHOWN]
        self.notes += doubts(self.observed, self.model, count, shown)
        return self.observed

    def _calibration(self) -> Iterator[Arrays]:
        """Yield the data that are quantized for, compute their hash, and keep the first."""
        self.digest, self.feeds = hashlib.sha256(), []
        for sample in self.used:
            given = self.model.check_feeds(sample.load())
            for name in sorted(given):
                self.digest.update(f"{name} {given[name].dtype} {given[name].shape}".encode())
                self.digest.update(np.ascontiguousarray(given[name]).tobytes())
            feed = Feed("", given).by_value(self.model)
            self.feeds += [feed] if len(self.feeds) < CORRECTED else []
            yield feed

    def write(self, path: Path, flavor: Flavor) -> Quantized:
        target, options = formats.get(flavor.format), self.options
        graph, made = self._compressed() if options.weights else self._integers(target, path)
        graph.ir.metadata_props[NOTE] = json.dumps(self._about(), sort_keys=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            model_files.expressible(),
            Output(
                path, check=lambda files: demand_replaceable(files, [self.source], options.force)
            ) as out,
        ):
            self.notes += formats.write(graph, out.made, flavor)
        files = tuple(sorted(out.files, key=lambda p: p != path))
        made = replace(made, flavor=flavor, files=files, before=self.before)
        if options.weights and made.size > 0.9 * self.before:
            why = f"{target.title} has no compact form of {options.weights} for these weights"
            self.notes.append(Diagnostic("N413", f"{why}: the file is not smaller", "warning"))
        if self.shown and target.readable(path, flavor):
            made = self._measured(made, graph, model_files.load(path, flavor.format))
        notes, self.notes = tuple(self.notes), []  # once for all targets
        return replace(made, notes=notes)

    def _measured(self, made: Quantized, graph: Network, back: Network) -> Quantized:
        if self.reference is None:
            self.reference = Reference(self.model, self.shown)
        quality = self.reference.quality(back, native=self.options.native != "off")
        if self.limit is not None and not self.limit.holds(quality, likely=True):
            why = "the network loses more on data that the search has not seen"
            where, help = Where(str(made.files[0])), "use more samples"
            self.notes.append(Diagnostic("N412", why, where=where, help=help))
        layers = self._by_layer(graph, made.layers) if made.layers else {}
        ordered = dict(sorted(layers.items(), key=lambda p: p[1]))
        return replace(made, quality=quality, layers=ordered)

    def _kept(self, floats: Collection[str] = ()) -> Callable[[ir.Node], str]:
        """Return why a node computes in floats although it need not."""
        by_name, skipped = chosen(*self.options.keep), {*self.options.skip}

        def why(node: ir.Node) -> str:
            if key(node) in floats:
                return f"it loses most (--max-drop {self.options.max_drop})"
            if by_name(node):
                return "--keep"
            return f"--skip {node.op_type}" if node.op_type in skipped else ""

        return why

    def _compressed(self) -> tuple[Network, Quantized]:
        graph = replace(self.model, ir=self.model.ir.clone(), source=None)
        plain_weights(graph.ir)
        form, used = self.options.weights, self.options.weights == "int4" and self.used
        moments = Moments(self.model, self._calibration) if used else None
        forms = compress(graph.ir, form, self.options.block, self._kept(), moments)
        if not forms:
            raise _nothing(self.source, "no weights are large enough to be compressed")
        return graph, Quantized(forms=forms)

    def _integers(self, target: Format, path: Path) -> tuple[Network, Quantized]:
        """Return the quantized graph for a target."""
        rules = target.integers
        assert rules is not None
        dtype = self.options.activations or rules.activations[0]
        ranges = self.calibrate().ranges(dtype)
        narrow = {key(n) for n in self.graph.ir.graph if n.op_type in rules.narrow}
        self.floating = floating = replace(self.graph, ir=self.graph.ir.clone())
        # FakeQuantize has a scale for each channel; with dynamic shapes OpenVINO (2026.4, with AMX)
        # crashes on it
        if not rules.fake or any(shape_of(v) is None for v in floating.ir.graph.inputs):
            ranges = equalize(floating.ir, ranges)
        names = [*place(floating.ir.graph, rules, target.title, self._kept()).layers]
        if not names:
            raise _nothing(self.source, "no layer of the network has an integer kernel")

        def attempt(
            floats: Collection[str] = (), wide: Sequence[str] = (), corrected: bool = True
        ) -> tuple[Network, Quantized]:
            placed = place(floating.ir.graph, rules, target.title, self._kept(floats))
            graph = replace(floating, ir=floating.ir.clone())
            wide = [n for n in wide if n not in narrow]
            rounded = insert(graph.ir, placed, ranges, rules, dtype, wide)
            if corrected:
                correct_biases(graph, rounded, self.feeds)
            forms = dict[str, str]()
            if form := rules.recurrent:
                skipped = partial(_unless_recurrent, self._kept(floats))
                forms = compress(graph.ir, form, self.options.block, skipped)
            layers = dict.fromkeys(sorted(placed.layers.values()), 0.0)
            return graph, Quantized(floats=placed.floats, wide=wide, forms=forms, layers=layers)

        graph, made = attempt()
        plain = self._by_layer(attempt(corrected=False)[0], made.layers) if self.detailed else {}
        if self.limit is not None:
            reference = Reference(self.model, self.used[:MEASURED])

            def quality(floats: Collection[str], wide: Sequence[str]) -> Quality:
                return reference.quality(attempt(floats, wide)[0], native=False)

            about = [self.digest.hexdigest(), target.name, dtype, *map(str, self.options.keep)]
            journal = path.with_name(f"{path.name}.search.json")
            more = "int16" in rules.activations and dtype != "int16"
            graph, made = attempt(*Search(self.limit, quality, names, journal, about, more).run())
        if rules.fake:
            self.notes += narrow_doubles(graph.ir)
        return graph, replace(made, rounded=plain)

    def _by_layer(self, graph: Network, layers: Iterable[str]) -> dict[str, float]:
        given = (self.model.check_feeds(s.load()) for s in self.shown[:SHOWN])
        feeds = [Feed("", g).by_value(self.model) for g in given]
        return by_layer(self.floating, graph, layers, feeds)

    def _about(self) -> dict[str, Any]:
        about = {"netconv": sys.modules["converter"].__version__}  # its API imports this
        data = {"data": self.digest.hexdigest(), "samples": len(self.used)}
        if form := self.options.weights:
            return {**about, "weights": form, **(data if form == "int4" and self.used else {})}
        more = {"method": self.options.method, "onnxruntime": version("onnxruntime")}
        return {**about, **data, **more}


def _unless_recurrent(kept: Callable[[ir.Node], str], node: ir.Node) -> str:
    """Return why the weights of a layer without an integer kernel stay in floats."""
    return kept(node) or ("" if node.op_type in RECURRENT else "no recurrent layer")


def _samples(model: Network, options: Quantize) -> Iterator[Sample]:
    """Yield the samples of --data: those of folders and .npz files, and the feeds of verify."""
    data, labels = options.data, options.labels
    items = [*data] if isinstance(data, list | tuple) else [data]
    if labels is not None and len(items) != 1:
        raise wrong_call("--labels needs one --data: a folder, or an .npz file with samples")
    images = Preparation(tuple(options.mean), tuple(options.std), options.layout)
    shapes = shapes_for(model, options.inputs)
    for item in items:
        path = Path(item) if isinstance(item, str | Path) else None
        if path is not None and (path.is_dir() or path.suffix == ".npz") and "=" not in str(item):
            yield from samples_of(model, path, labels, images)
            continue
        for feed in feeds_for(model, item, options.seed, shapes=shapes):
            yield Sample(feed.name, partial(dict, feed.arrays))


def prepared(model: Network) -> Network:
    """Return a copy in the form that kernels compute: plain weights, with constants, factors and
    biases merged into them.
    """
    found = replace(model, ir=model.ir.clone(), source=None)
    plain_weights(found.ir)
    rewrite_illegal(found.ir, lambda n: (n.domain, n.op_type) == ("", "BatchNormalization"), TABLE)
    for step in (fold, fuse_hard_swish, biases_before_reshapes, fuse_factors, fuse_constants):
        step(found.ir)
    return found


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
