"""The passes that legalize a graph for operations of the opsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field

import onnx_ir as ir

from converter.errors import Diagnostic, MappingError, Where
from converter.formats.openvino.opset.constants import NAMES, quantizes
from converter.formats.openvino.opset.legalize import REWRITES
from converter.formats.openvino.opset.mapping import MAPPING
from converter.formats.openvino.opset.rules.fields import HALVES, V10_OUTPUTS
from converter.graph.infer import KNOWN_LIMIT
from converter.graph.names import public_name
from converter.graph.states import begun_states, is_begun
from converter.graph.value import producer_if, type_name
from converter.graph.walk import all_graphs, all_nodes, subgraphs
from converter.mapping.lowering import refusal
from converter.mapping.narrow import narrow_array
from converter.passes.constants_into_bodies import copy_constants_into_bodies
from converter.passes.fold import fold
from converter.passes.fold_empty import fold_empty_values
from converter.passes.legalize import rewrite_illegal
from converter.passes.pipeline import Context, Pass, change, check_target
from converter.passes.rare import STACK_SEQUENCES, implied_shapes
from converter.passes.small_types import UNCOMMON, widen_small_types
from converter.passes.stored_halves import stored_half
from converter.passes.unroll import never_runs, unroll_loops
from converter.record import record

WIDE_BITS = MappingError(
    "bit operations on 64-bit integers are not supported by OpenVINO, whose "
    "CPU plugin computes them in 32 bits",
    help="leave the operator out with --outputs, or write another format (-t onnx)",
)
NEWEST = {10: 8, 11: 17}  # IR version -> newest opset that its readers support


@record
class Version(Context):
    """A conversion for a version of the IR. `stored_halves`: the half-precision type in which the
    source stores its weights, once it is known.
    """

    version: int = 11
    stored_halves: list[ir.DataType | None] = field(default_factory=list)


def _unsupported(model: ir.Model, context: Version) -> Iterator[Diagnostic]:
    unknown = [_rank_unknown(v) for v in model.graph.inputs if v.shape is None]
    wide = [refusal(n, WIDE_BITS) for n in all_nodes(model.graph) if _reads_wide_bits(n)]
    yield from unknown or wide


def _text(model: ir.Model, context: Version) -> Iterable[Diagnostic]:
    boundary = [*model.graph.inputs, *model.graph.outputs]
    return [_no_text(v) for v in boundary if v.dtype == ir.DataType.STRING]


def _note_presented(model: ir.Model, context: Version) -> None:
    boundary = [*model.graph.inputs, *model.graph.outputs]
    context.notes.extend(filter(None, map(_presented, boundary)))


def _legalize(model: ir.Model, context: Version) -> None:
    context.stored_halves.append(stored_half(model))  # as long as all weights are there
    network, limit = context.network, NEWEST[context.version]
    kept = begun_states(model.graph).keys() & network.interface.get("states", {}).keys()
    rewrite_illegal(
        model,
        lambda n: (
            not (is_begun(n) and public_name(n.inputs[0]) in kept)  # type: ignore[arg-type]
            and MAPPING.reason_against(n, limit) is not None
        ),
        REWRITES,
    )


def _fold(model: ir.Model) -> None:
    # a constant that is computed outside of a loop and read inside breaks the runtime's own folding
    plain = not any(any(subgraphs(n)) for n in model.graph)
    fold(model, keep=_stays if plain else lambda node: False)


def _reads_wide_bits(node: ir.Node) -> bool:
    """Return whether a node reads the bits of 64-bit numbers, which the runtime does not keep."""
    types = [v.dtype for v in (*node.inputs, *node.outputs) if v is not None and v.dtype]
    return node.op_type == "BitCast" and any(t.bitwidth == 64 for t in types)


def _stays(node: ir.Node) -> bool:
    """Return whether quantized weights stay quantized: without their FakeQuantize the runtime does
    not compute a layer in integers.
    """
    return quantizes(node) or _widens(node)


def _widens(node: ir.Node) -> bool:
    """Return whether a Cast makes many constant numbers, or 4-bit ones, larger; halves are
    converted back when they are written.
    """
    source = node.inputs[0] if node.op_type == "Cast" else None
    tensor, to = source.const_value if source is not None else None, node.outputs[0].dtype
    if (
        tensor is None
        or to is None
        or (tensor.size <= KNOWN_LIMIT and not _nibbles(tensor, to))
        or tensor.dtype in HALVES
        or tensor.dtype.bitwidth >= to.bitwidth
    ):
        return False
    return tensor.dtype.bitwidth >= 8 or not _each_has_a_factor(node.outputs[0])


def _nibbles(tensor: ir.TensorProtocol, to: ir.DataType) -> bool:
    """Return whether weights have less than eight bits, so that they are stored packed."""
    return tensor.dtype.bitwidth < 8 and len(tensor.shape) > 1 and to.is_floating_point()


def _each_has_a_factor(weights: ir.Value) -> bool:
    """Return whether every number has a separate constant factor: for 4-bit numbers, the runtime
    computes that incorrectly.
    """
    for reader, place in weights.uses():
        others = [v for v in reader.inputs if v is not None and v.const_value is not None]
        if reader.op_type == "Mul" and any(v.shape == weights.shape for v in others):
            return True
        if reader.op_type == "Sub" and not place and _each_has_a_factor(reader.outputs[0]):
            return True
    return False


def _unknown_constants(model: ir.Model) -> list[Diagnostic]:
    """Report constants whose types have no name in the format."""
    return [
        Diagnostic(
            "X202",
            f"constant {v.name} is {type_name(v.dtype)}, which is not supported",
            where=Where(layer=str(v.name)),
        )
        for g in all_graphs(model.graph)
        for v in g.initializers.values()
        if v.dtype is not None and v.dtype not in NAMES and (v.uses() or v.is_graph_output())
    ]


def presented_as(value: ir.Value) -> ir.DataType | None:
    """Return the type in which readers of v10 present an input or output, if it differs."""
    if value.is_graph_input():
        return ir.DataType.FLOAT if value.dtype == ir.DataType.FLOAT16 else None
    return V10_OUTPUTS.get(value.dtype or ir.DataType.FLOAT)


def _presented(value: ir.Value) -> Diagnostic | None:
    shown, own = presented_as(value), value.dtype or ir.DataType.FLOAT
    if shown is None:
        return None
    name = public_name(value)
    message = f"{name} is {type_name(own)}; readers of IR v10 present it as {type_name(shown)}"
    return Diagnostic("X205", message, level="warning")


def _rank_unknown(value: ir.Value) -> Diagnostic:
    message = (
        f"the rank of input {public_name(value)!r} is unknown, but the runtime needs known ranks"
    )
    return Diagnostic(
        "X203",
        message,
        where=Where(layer=public_name(value), kind="input"),
        help=f"fix it with --inputs {public_name(value)}:1,3,224,224",
    )


def _no_text(value: ir.Value) -> Diagnostic:
    kind = "input" if value.is_graph_input() else "output"
    message = (
        f"{kind} {public_name(value)!r} is a string tensor, which readers of IR "
        "v10 present as numbers"
    )
    return Diagnostic(
        "X202",
        message,
        where=Where(layer=public_name(value), kind=kind),
        help="write IR v11 (-t openvino), or omit it with --outputs",
    )


def _unpresentable(model: ir.Model) -> list[Diagnostic]:
    """Return constant outputs with numbers outside of the type in which readers of v10 present
    them.
    """
    problems = []
    for value in model.graph.outputs:
        copied, shown = producer_if(value, "Identity"), presented_as(value)
        source = value if copied is None or copied.inputs[0] is None else copied.inputs[0]
        if source.const_value is None or shown is None:
            continue
        name = public_name(value)
        try:
            narrow_array(source.const_value.numpy(), shown.numpy(), name)
        except MappingError as e:
            problems.append(Diagnostic(e.code, str(e), where=Where(layer=name, kind="output")))
    return problems


PIPELINE: list[Pass[Version]] = [
    widen_small_types(UNCOMMON, saturating=False),
    check_target(MAPPING.target),
    STACK_SEQUENCES,
    implied_shapes(),
    Pass(
        "check-runtime",
        "Refuse inputs of unknown rank and bit operations on 64-bit integers, "
        "which no runtime supports",
        lambda model, _: None,
        requires=_unsupported,
    ),
    Pass(
        "check-v10",
        "Refuse string inputs and outputs; warn about types that readers of "
        "v10 present differently",
        _note_presented,
        applies=lambda context: context.version < 11,
        requires=_text,
    ),
    # the results of the two branches may differ in rank, so that nothing is known after it; the
    # runtime knows no shapes for a loop without iterations
    unroll_loops(lambda node: node.op_type == "If" or never_runs(node)),
    fold_empty_values(),
    Pass("legalize", "Rewrite operators that the opset lacks", _legalize),
    fold_empty_values(),
    change("fold-constants", "Fold constants and known shapes", _fold),
    Pass(
        "copy-constants",
        "Copy constants into the bodies that read them",
        lambda model, _: copy_constants_into_bodies(model),
        ensures=lambda model, _: _unknown_constants(model),
    ),
    Pass(
        "check-outputs",
        "Refuse constant outputs whose type readers of v10 do not present",
        lambda model, _: None,
        applies=lambda context: context.version < 11,
        requires=lambda model, _: _unpresentable(model),
    ),
]
