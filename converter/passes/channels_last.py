"""The layout pass: assign an order of axes in which each value is stored, for the whole graph at
once, in either direction.

before:  x -> Conv -> Relu -> Add(Conv) -> Flatten -> Gemm -> y
         (N, C, H, W)
after:   x -> Transpose -> Conv' -> Relu -> Add(Conv') -> Reshape -> Gemm with permuted weights -> y
         (N, H, W, C)

`to_nhwc` replaces layout-sensitive operators by their channels-last variants (domain
netconv.channels_last), `to_nchw` replaces these variants by plain operators. Values in between take
the order that needs the fewest Transposes (passes/layout/). A Transpose of the source is not
copied: its result is treated as the same stored data with permuted axes, and a Transpose is only
inserted where a consumer needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import onnx_ir as ir

from converter.errors import Diagnostic, ReadError
from converter.graph import CHANNELS_LAST_DOMAIN
from converter.graph.build import Builder
from converter.graph.names import Names, public_name
from converter.graph.walk import all_graphs, all_nodes
from converter.passes.dead_code import remove_dead_code
from converter.passes.layout import axes
from converter.passes.layout.axes import Perm
from converter.passes.layout.rewrite import PERMUTATION, Direction, Rewriting, take_name
from converter.passes.layout.rules import dims_of
from converter.passes.pipeline import Context, Pass


def to_nhwc(
    model: ir.Model, io_layout: str = "keep", kept: Collection[str] = ()
) -> list[Diagnostic]:
    """Convert an N, C, spatial graph to N, spatial, C, in place; return a warning for each input
    and output that is transposed.

    io_layout "keep": graph inputs and outputs are unchanged, with at most one Transpose each.
    "native": images (inputs and outputs of rank 4 that a layout-sensitive operator consumes or
    produces) are transposed with the rest, and `metadata_props["netconv.permutation"]` of the value
    records it ("0,2,3,1"); all others, and those with the public names `kept`, are unchanged.
    """
    assert io_layout in ("keep", "native"), io_layout
    _transpose_boundary(
        model, last=True, turns=lambda v: io_layout == "native" and public_name(v) not in kept
    )
    ends = [("input", v) for v in model.graph.inputs] + [("output", v) for v in model.graph.outputs]
    return [
        _note(side, v, perm) for side, v in ends if (perm := boundary_permutation(v)) is not None
    ]


def _note(side: str, value: ir.Value, perm: Perm) -> Diagnostic:
    stored = dims_of(value)
    source = [stored[i] for i in axes.inverse(perm)]
    message = (
        f"{side} {public_name(value)} is channels-last, {_text(stored)}; in the "
        f"source it is {_text(source)}"
    )
    return Diagnostic(
        "X211", message, "warning", help="use --io-layout keep to insert a transposition"
    )


def _text(dims: Sequence[object]) -> str:
    return f"[{','.join('?' if d is None else str(d) for d in dims)}]"


def to_nchw(model: ir.Model) -> None:
    """Convert a graph of channels-last variants to plain operators on N, C, spatial, in place;
    graph inputs and outputs are unchanged.
    """
    _transpose_boundary(model, last=False, turns=lambda _: False)


def restore_boundary(
    model: ir.Model,
    permutations: Mapping[str, Sequence[int]],
    of_outputs: Mapping[str, Sequence[int]] | None = None,
) -> None:
    """Undo io_layout "native": make inputs and outputs (by public name) canonical again by
    inserting Transposes.

    In a permutation, stored axis i is canonical axis perm[i]. Names that are not in the graph are
    skipped. `of_outputs`: the permutations of the outputs, for outputs that have the name of an
    input.
    """
    of_outputs = permutations if of_outputs is None else of_outputs
    names = Names(model)
    graph = model.graph
    for i, stored in enumerate(list(graph.inputs)):
        perm = permutations.get(public_name(stored))
        if perm is not None:
            value = _like(stored, perm)
            graph.inputs[i] = value
            b = Builder(graph, names, before=next(iter(graph), None))
            transposed = b.Transpose(value, perm=list(perm))
            for j, output in enumerate(list(graph.outputs)):
                if output is stored:
                    graph.outputs[j] = value
            stored.replace_all_uses_with(transposed)
            take_name(value, stored, names)
    for i, stored in enumerate(list(graph.outputs)):
        perm = of_outputs.get(public_name(stored))
        if perm is not None:
            graph.outputs[i] = value = Builder(graph, names).Transpose(
                stored, perm=axes.inverse(perm)
            )
            take_name(value, stored, names)


def count_transposes(model: ir.Model) -> int:
    """Return the number of Transposes in the graph and its sub-graphs."""
    return sum(n.op_type == "Transpose" and n.domain == "" for n in all_nodes(model.graph))


def boundary_permutation(value: ir.Value) -> Perm | None:
    """Return the permutation in which a graph input or output is stored, or None if it is stored as
    in the source.
    """
    text = value.metadata_props.get(PERMUTATION)
    return tuple(int(a) for a in text.split(",")) if text else None


def _like(stored: ir.Value, perm: Sequence[int]) -> ir.Value:
    shape = None
    if stored.shape is not None:
        if len(perm) != len(stored.shape):
            message = (
                f"{public_name(stored)} has {len(stored.shape)} axes, which the "
                f"permutation {perm} does not fit"
            )
            raise ReadError(Diagnostic("R103", message))
        shape = ir.Shape([stored.shape[i] for i in axes.inverse(perm)])
    return ir.Value(name="canonical", type=stored.type, shape=shape)


def _transpose_boundary(model: ir.Model, *, last: bool, turns: Callable[[ir.Value], bool]) -> None:
    names = Names(model)
    for graph in list(all_graphs(model.graph)):
        Rewriting(
            graph, names, Direction(last), turns if graph is model.graph else lambda _: False
        ).run()
    if last:
        model.graph.opset_imports.setdefault(CHANNELS_LAST_DOMAIN, 1)
    remove_dead_code(model)


__all__ = [
    "PERMUTATION",
    "boundary_permutation",
    "count_transposes",
    "restore_boundary",
    "to_nchw",
    "to_nhwc",
]


def channels_last() -> Pass[Context]:
    """Return the pass of a pipeline; see `to_nhwc`."""
    return Pass(
        "channels-last",
        "Store images channels-last; Transposes remain at the ends",
        lambda model, c: c.notes.extend(to_nhwc(model, c.io_layout or "keep")),
    )
