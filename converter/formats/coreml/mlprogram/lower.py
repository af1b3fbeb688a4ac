"""The shared graph -> a program."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from typing import Any

import onnx_ir as ir

from converter.errors import Diagnostic, MappingError, UnsupportedError
from converter.formats.coreml.classifier import Classifier
from converter.formats.coreml.description import GRAYSCALE16_SINCE, has_halves
from converter.formats.coreml.mlprogram.blobs import NewBlobs
from converter.formats.coreml.mlprogram.classifier import names_of, write
from converter.formats.coreml.mlprogram.collector import MilLowering, needed
from converter.formats.coreml.mlprogram.description import (
    HALF_INTERFACE,
    STATES_SINCE,
    describe,
    is_state,
    pairs_of,
)
from converter.formats.coreml.mlprogram.mapping import MAPPING
from converter.formats.coreml.mlprogram.pipeline import LEGALIZE, PREPARE, Spec, refused_by
from converter.formats.coreml.mlprogram.program import ProgramWriter
from converter.formats.coreml.mlprogram.rules.quantization import compact_since
from converter.formats.coreml.proto import Model_pb2
from converter.formats.format import Flavor
from converter.graph.network import Network
from converter.graph.snapshot import Snapshot
from converter.graph.walk import all_graphs
from converter.mapping.lifting import refuse
from converter.passes.pipeline import run_passes

D = ir.DataType
# iOS -> specification version, and the name of its operation set
VERSIONS = {"15": 6, "16": 7, "17": 8, "18": 9, "26": 10}
SUPPRESSION_UNTIL = 8  # the one whose suppression of boxes has no least score any more
OPSETS = {6: "CoreML5", 7: "CoreML6", 8: "CoreML7", 9: "CoreML8", 10: "CoreML9"}


@dataclass
class Written:
    """A model's message, and the weights that are stored separately."""

    model: Any = field(default_factory=Model_pb2.Model)
    blobs: NewBlobs = field(default_factory=NewBlobs)


def lower(network: Network, flavor: Flavor, notes: list[Diagnostic]) -> Written:
    """Return a model for the graph; raise UnsupportedError with everything that is not
    supported.
    """
    clone, classifier = prepared(network, notes)
    asked, half = flavor.options.get("ios", ""), "fp16" in flavor.options
    if asked:
        try:
            return _lowered(network, clone, classifier, VERSIONS[asked], half, notes)
        except UnsupportedError as e:
            found_newer = _newer(network, VERSIONS[asked], half, [], e)
            if found_newer is None:
                raise
            name = next(k for k, v in VERSIONS.items() if v == found_newer[0])
            help = f"write it for a newer system: mlprogram+ios={name}"
            problems = [d if d.code != "X206" else replace(d, help=help) for d in e.diagnostics]
            raise UnsupportedError(problems) from None
    least = needed_by_boundary(network, clone, half)
    found, legal = lowest(clone, half)
    version, older = max(least, found), SUPPRESSION_UNTIL - 1
    legal = legal if version == found else None
    try:
        return _lowered(network, clone, classifier, version, half, notes, legal)
    except UnsupportedError as e:  # bodies of operators may need operations of newer versions
        if (newer := _newer(network, version, half, notes, e)) is not None:
            return newer[1]
        if version <= older or least > older:
            raise
        with contextlib.suppress(UnsupportedError):
            return _lowered(network, *prepared(network, []), older, half, notes)
        raise


def _newer(
    network: Network, version: int, half: bool, notes: list[Diagnostic], refusal: UnsupportedError
) -> tuple[int, Written] | None:
    """Return the first newer version that supports the network, if the refusal asks for one.

    If the refusal has no other reason, but no newer version does, raise the refusal of the newest.
    """
    if all(d.code != "X206" for d in refusal.diagnostics):
        return None
    last = refusal
    for newer in (v for v in OPSETS if v > version):
        try:
            return newer, _lowered(network, *prepared(network, []), newer, half, notes)
        except UnsupportedError as e:
            last = e
    if all(d.code == "X206" for d in refusal.diagnostics):
        raise last
    return None


def prepared(network: Network, notes: list[Diagnostic]) -> tuple[ir.Model, Classifier | None]:
    """Return a copy of the graph with constants folded."""
    clone, context = network.ir.clone(), Spec(network, notes=notes)
    run_passes(PREPARE, clone, context)
    return clone, context.classifier[-1]


def needed_by_boundary(network: Network, model: ir.Model, half: bool) -> int:
    """Return the first version that supports the inputs, outputs and states."""
    graph, newest = model.graph, MilLowering(MAPPING, STATES_SINCE, half)
    if any(is_state(network, v, newest) for v in pairs_of(network, graph)):
        return STATES_SINCE
    if any(v.dtype == D.FLOAT16 for v in (*graph.inputs, *graph.outputs)):
        return HALF_INTERFACE
    return GRAYSCALE16_SINCE if has_halves(network, model) else min(OPSETS)


def _lowered(
    network: Network,
    model: ir.Model,
    classifier: Classifier | None,
    version: int,
    half: bool,
    notes: list[Diagnostic],
    legal: Snapshot | None = None,
) -> Written:
    """Return the program for one version; `model` is changed. `legal`: the graph, if that version
    is known to support all its operators.
    """
    run_passes(LEGALIZE, model, Spec(network, notes=notes, version=version, half=half, legal=legal))
    low = MilLowering(MAPPING, version, half)
    for node in model.graph:
        low.node(node)
    refuse(low.problems)
    notes.extend(low.notes)
    low.layers = needed(low.layers, model.graph.outputs)
    return _program(network, model, low, classifier, notes)


def lowest(model: ir.Model, half: bool) -> tuple[int, Snapshot | None]:
    """Return the first version that supports as many operators as any later one, without
    decomposing them or storing their constants with more bits; and the graph, if that version
    supports all operators.
    """
    nodes = [n for g in all_graphs(model.graph) for n in g]
    least, found = len(nodes) + 1, min(OPSETS)
    for version in list(OPSETS)[:-1]:
        refused = refused_by(version, half)
        missing = sum(version < compact_since(n) or refused(n) for n in nodes)
        if not missing:
            return version, Snapshot(model)
        if missing < least:
            least, found = missing, version
    return found, None


def _program(
    network: Network,
    model: ir.Model,
    low: MilLowering,
    classifier: Classifier | None,
    notes: list[Diagnostic],
) -> Written:
    written = Written()
    writer = ProgramWriter(low, written.blobs)
    program = written.model.mlProgram
    program.version = 1
    written.model.specificationVersion = low.version
    function = program.functions["main"]
    function.opset = OPSETS[low.version]
    block = function.block_specializations[function.opset]
    try:
        hidden = [] if classifier is None else [classifier.scores]
        description = written.model.description
        boundary = describe(network, model, writer, description, notes, hidden)
        for name, dtype, value in boundary.inputs:
            given = function.inputs.add(name=name)
            writer.value_type(given.type, value, dtype)
        for name, value in boundary.states:
            wrapped = function.inputs.add(name=name).type.stateType.wrappedType
            writer.value_type(wrapped, value)
        layers = [*boundary.before, *low.layers, *boundary.after]
        names = () if classifier is None else names_of(classifier, writer)
        writer.block(block, layers, boundary.outputs)
        if classifier is not None:
            write(classifier, names, writer, block, description)
    except MappingError as e:
        raise UnsupportedError(Diagnostic(e.code, str(e), help=e.help)) from None
    return written
