"""The shared graph -> a program."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from converter.errors import Diagnostic, MappingError, UnsupportedError
from converter.formats.coreml.classifier import Classifier, take_out
from converter.formats.coreml.description import GRAYSCALE16_SINCE, has_halves, said_of
from converter.formats.coreml.mlprogram.blobs import NewBlobs
from converter.formats.coreml.mlprogram.classifier import names_of, write
from converter.formats.coreml.mlprogram.collector import MOST_AXES, MilLowering, needed
from converter.formats.coreml.mlprogram.description import (
    HALF_INTERFACE,
    STATES_SINCE,
    describe,
    is_state,
    pairs_of,
)
from converter.formats.coreml.mlprogram.legalise import REWRITES
from converter.formats.coreml.mlprogram.mapping import MAPPING
from converter.formats.coreml.mlprogram.program import ProgramWriter
from converter.formats.coreml.mlprogram.rules.quantization import compact_since
from converter.formats.coreml.proto import Model_pb2
from converter.formats.format import Flavour
from converter.graph.network import Network
from converter.graph.walk import all_graphs
from converter.mapping.lifting import refuse
from converter.passes.collapse_dims import collapse_dims, join_reshapes, with_fewer_axes
from converter.passes.constants import holds_numbers, plain_weights, unpack_bits
from converter.passes.fold import fold
from converter.passes.fold_empty import fold_empty
from converter.passes.fuse_attention import fuse_attention
from converter.passes.labels import take_out_labels
from converter.passes.legalise import legalise
from converter.passes.stored_halves import store_halves, stored_half
from converter.passes.unroll import unroll

D = ir.DataType
# iOS -> specification version, and the name of its operation set
VERSIONS = {"15": 6, "16": 7, "17": 8, "18": 9, "26": 10}
ATTENTION_SINCE = 9  # the specification version that has it as one operation
SUPPRESSION_UNTIL = 8  # the one whose suppression of boxes has no least score any more
COMPRESSED_SINCE = 7  # the one that has compressed weights
OPSETS = {6: "CoreML5", 7: "CoreML6", 8: "CoreML7", 9: "CoreML8", 10: "CoreML9"}


@dataclass
class Written:
    """A model's message, and the numbers that lie beside it."""

    model: Any = field(default_factory=Model_pb2.Model)
    blobs: NewBlobs = field(default_factory=NewBlobs)


def lower(network: Network, flavour: Flavour, notes: list[Diagnostic]) -> Written:
    """A model of the graph; UnsupportedError with everything that has no counterpart."""
    refuse(MAPPING.target.refusals(network.ir))
    clone, classifier = prepared(network, notes)
    asked, half = flavour.options.get("ios", ""), "fp16" in flavour.options
    if asked:
        return _lowered(network, clone, classifier, VERSIONS[asked], half, notes)
    least = needed_by_boundary(network, clone, half)
    version, older = max(least, lowest(clone, half)), SUPPRESSION_UNTIL - 1
    try:
        return _lowered(network, clone, classifier, version, half, notes)
    except UnsupportedError:  # what newer versions lack may come out of the bodies of operators
        if version <= older or least > older:
            raise
        with contextlib.suppress(UnsupportedError):
            return _lowered(network, *prepared(network, []), older, half, notes)
        raise


def prepared(network: Network, notes: list[Diagnostic]) -> tuple[ir.Model, Classifier | None]:
    """A copy of the graph in which what is known beforehand is computed."""
    clone = network.ir.clone()
    classifier = take_out(said_of(network, clone)[0], clone)
    notes.extend(take_out_labels(clone))
    unpack_bits(clone)
    fold(clone, limit=4096, keep=holds_numbers)
    fold_empty(clone)
    unroll(clone)
    return clone, classifier


def needed_by_boundary(network: Network, model: ir.Model, half: bool) -> int:
    """The first version that has the inputs, outputs and states."""
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
) -> Written:
    """The program for one version; `model` is changed."""
    if version < COMPRESSED_SINCE:
        plain_weights(model)
    if stored_half(network.ir) == D.FLOAT16:
        store_halves(model, D.FLOAT16)
    collapse_dims(model, MOST_AXES)
    if version >= ATTENTION_SINCE:
        fuse_attention(model)
    legalise(model, _refused(version, half), with_fewer_axes(REWRITES, MOST_AXES))
    join_reshapes(model, MOST_AXES)
    fold(model, limit=4096, keep=decodes)
    low = MilLowering(MAPPING, version, half)
    for node in model.graph:
        low.node(node)
    refuse(low.problems)
    notes.extend(low.notes)
    low.layers = needed(low.layers, model.graph.outputs)
    return _program(network, model, low, classifier, notes)


def decodes(node: ir.Node) -> bool:
    """Whether a node makes numbers of compact weights, which stay compact. All else that constants
    give is folded: coremltools computes it while it loads a program, and fails at some.
    """
    types = {v.dtype for v in node.inputs if v is not None and v.dtype is not None}
    half = node.op_type == "Cast" and D.FLOAT16 in types
    return half or any(t.bitwidth <= 8 for t in types - {D.BOOL, D.STRING})


def lowest(model: ir.Model, half: bool) -> int:
    """The first version that says as many operators as any, without decomposing them or storing
    their constants with more bits.
    """
    nodes = [n for g in all_graphs(model.graph) for n in g]

    def missing(version: int) -> int:
        refused = _refused(version, half)
        return sum(version < compact_since(n) or refused(n) for n in nodes)

    return min(list(OPSETS)[:-1], key=lambda v: (missing(v), v))


def _refused(version: int, half: bool) -> Callable[[ir.Node], bool]:
    """Whether no row says an operator: the rows are applied to operations that nobody keeps."""

    def refused(node: ir.Node) -> bool:
        low = MilLowering(MAPPING, version, half)
        try:
            low.lower(node)
        except MappingError:
            return True
        return bool(low.problems)

    return refused


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
        layers = [*boundary.before, *low.layers, *boundary.behind]
        names = () if classifier is None else names_of(classifier, writer)
        writer.block(block, layers, boundary.outputs)
        if classifier is not None:
            write(classifier, names, writer, block, description)
    except MappingError as e:
        raise UnsupportedError(Diagnostic(e.code, str(e), help=e.help)) from None
    return written
