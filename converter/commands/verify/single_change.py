"""Find the single change of a layer that explains the numbers of a candidate with a different
decomposition.

A layer that a format writes as several, or folds into its weights, has no attribute or weight to
compare. So the reference's layer runs with one attribute or weight changed, until it computes the
same as the candidate's piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import onnx_ir as ir

from converter.commands.verify.cause import (
    ATTRIBUTE,
    CONSTANT,
    OPERAND,
    Cause,
    became,
    input_label,
    named_input,
    weights,
)
from converter.commands.verify.compare import distance, same_shape
from converter.commands.verify.isolate import Unit
from converter.commands.verify.program import CannotRun, Program
from converter.commands.verify.spelling import attributes
from converter.graph.build import attrs_of
from converter.graph.infer import Array, constant, rank_of
from converter.graph.verify.enumerations import WORDS

CLOSE = 0.01  # share of the difference that may remain: the change explains the rest
MOST_TRIED = 60
MOST_NODES = 3  # of the reference in the piece: more are not a single layer
LARGEST = 1 << 20  # elements of a weight that is tried
EPSILONS = (1e-3, 1e-5, 1e-6, 1e-12, 1e-4, 1e-7, 1e-8, 2e-5, 0.0)  # values that tools use
_FLAGS = {
    *("count_include_pad", "exclusive", "reverse", "transA", "transB", "input_forget"),
    *("linear_before_reset", "align_corners", "include_image_border"),
}


@dataclass(frozen=True)
class Change:
    """A context manager that changes a node temporarily."""

    node: ir.Node
    text: str
    rank: int
    made: AbstractContextManager[None]


def single_change(
    u: Unit,
    mine: Program,
    theirs: Program,
    feed: Mapping[str, Array],
) -> Cause | None:
    """Return the change of one of the reference's layers that gives the candidate's numbers,
    attributed to the layer in the source; None if none of the tried changes does.
    """
    if len(u.mine.nodes) > MOST_NODES or not u.mine.nodes:
        return None
    try:
        (values,) = mine.tensors(u.reads, [feed])
        given = u.given_by(values, theirs)
        result = same_shape(values[u.name], theirs.compile(u.theirs).run(given)[0])
    except CannotRun:
        return None
    if result is None or result.dtype.kind != "f":
        return None
    off = _distance(values[u.name], result)
    best, at = CLOSE * off, None
    for tried, change in enumerate(_changes(u)):
        if tried == MOST_TRIED or not off:
            break
        try:
            with change.made:
                left = _distance(mine.compile(u.mine, optimize=False).run(values)[0], result)
        except CannotRun:
            continue
        if left < best:
            best, at = left, change
    return None if at is None else Cause(_source(u, at.node), at.text, at.rank)


def _source(u: Unit, node: ir.Node) -> ir.Node:
    names = {str(o.name) for o in node.outputs}
    return next((n for n in u.nodes if names & {str(o.name) for o in n.outputs}), u.nodes[-1])


def _distance(x: Array, y: Array) -> float:
    return float(np.max(distance(x, y), initial=0.0)) if x.shape == y.shape else np.inf


def _changes(u: Unit) -> Iterator[Change]:
    theirs = [c for n in u.others for v in n.inputs if (c := constant(v)) is not None]
    numbers = [float(c.reshape(-1)[0]) for c in theirs if c.size == 1 and c.dtype.kind == "f"]
    numbers += [v for n in u.others for v in attrs_of(n).values() if isinstance(v, float)]
    for node in u.mine.nodes:
        if node.domain:
            continue
        yield from _of_attributes(node, numbers)
        yield from _of_weights(node, [c for c in theirs if 1 < c.size <= LARGEST])


def _of_attributes(node: ir.Node, numbers: Sequence[float]) -> Iterator[Change]:
    for name, value in attributes(node).items():
        others: list[object] = []
        if isinstance(value, float):
            usual = EPSILONS if name == "epsilon" else ()
            others = [n for n in dict.fromkeys((*numbers, *usual)) if n != value]
        elif name in WORDS.get(node.op_type, {}):
            others = [w for w in WORDS[node.op_type][name] if w != value]
        elif name in _FLAGS:
            others = [1 - int(value)]
        elif name == "axis" and node.inputs[0] is not None:
            others = [a for a in range(rank_of(node.inputs[0]) or 0) if a != value]
        for other in others:
            yield Change(
                node, f"{name}  {became(value, other)}", ATTRIBUTE, _set(node, name, other)
            )


@contextmanager
def _set(node: ir.Node, name: str, value: object) -> Iterator[None]:
    old = node.attributes.get(name)
    node.attributes[name] = ir.convenience.convert_attribute(name, value)  # type: ignore[arg-type]
    try:
        yield
    finally:
        if old is None:
            del node.attributes[name]
        else:
            node.attributes[name] = old


def _of_weights(node: ir.Node, theirs: Sequence[Array]) -> Iterator[Change]:
    own = {
        i: c
        for i, v in enumerate(node.inputs)
        if (c := constant(v)) is not None and c.dtype.kind == "f" and 1 < c.size <= LARGEST
    }
    for i, x in own.items():
        tried = [y.reshape(x.shape) for y in theirs if y.size == x.size]
        tried += [np.zeros_like(x), np.ones_like(x), -x]
        if x.ndim > 1 and x.shape[-1] == x.shape[-2]:
            tried.append(x.swapaxes(-1, -2))
        for y in tried:
            if said := weights(x, y.astype(x.dtype)):
                text = f"{named_input(node, i)}  {said[0]}"
                yield Change(node, text, CONSTANT, _replace(node, {i: y.astype(x.dtype)}))
    for i, j in combinations(own, 2):
        if own[i].shape == own[j].shape:
            text = f"operands {input_label(node, i)} and {input_label(node, j)} are exchanged"
            yield Change(node, text, OPERAND, _replace(node, {i: own[j], j: own[i]}))


@contextmanager
def _replace(node: ir.Node, arrays: Mapping[int, Array]) -> Iterator[None]:
    old = {i: node.inputs[i] for i in arrays}
    for i, array in arrays.items():
        tensor = ir.Tensor(np.ascontiguousarray(array))
        value = ir.Value(
            name=f"netconv_tried_{i}",
            type=ir.TensorType(tensor.dtype),
            shape=ir.Shape(array.shape),
            const_value=tensor,
        )
        node.replace_input_with(i, value)
    try:
        yield
    finally:
        for i, operand in old.items():
            node.replace_input_with(i, operand)
