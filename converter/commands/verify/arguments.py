"""Inputs that are not data but indices, sizes or bounds: random values for them are drawn from the
range that their consumers allow.

Source: the operators' pages of ONNX 1.21, opset 21.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from converter.graph import REDUCTIONS
from converter.graph.build import attrs_of
from converter.graph.infer import Array, known, shape_of
from converter.graph.value import optional

Range = tuple[int, int]  # lowest, and one more than the highest
Ranging = Callable[[ir.Node, "Sizes"], Range | None]
_THROUGH = {
    *("Cast", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Transpose", "Flatten", "Slice"),
    *("Expand", "Concat", "Split", "Where"),
}
_KEEPING = {"Cast", "Identity"}  # operators that preserve their operand
_CELLS = {"LSTM", "GRU", "RNN"}


@dataclass(frozen=True)
class Sizes:
    """Shapes of values inside the network; symbolic sizes are replaced by those of the inputs."""

    numbers: Mapping[str, int]
    inputs: Mapping[ir.Value, tuple[int, ...]]

    def of(self, value: ir.Value | None) -> tuple[int, ...] | None:
        """Return the shape of a value for given sizes of the inputs, or None if it is not known."""
        if value is None:
            return None
        if value in self.inputs:
            return self.inputs[value]
        dims = [
            d if isinstance(d, int) else self.numbers.get(d.value or "")
            for d in (value.shape or ())
        ]
        return (
            None if value.shape is None or None in dims else tuple(d for d in dims if d is not None)
        )


def _uses(value: ir.Value, through: set[str]) -> Iterator[tuple[ir.Node, int]]:
    pending, seen = [value], {value}
    while pending:
        for use in pending.pop().uses():
            if use.node.op_type in through and not use.node.domain:
                new = [o for o in use.node.outputs if o not in seen]
                seen.update(new)
                pending.extend(new)
            else:
                yield use.node, use.idx


def index_range(value: ir.Value, sizes: Sizes | None = None) -> Range | None:
    """Return the valid range of an input that is an index, a count of steps, or a bit shift; None
    for any other input.
    """
    sizes = sizes or Sizes({}, {})
    limits = [
        r for node, at in _uses(value, _THROUGH) if (r := _range(node, at, sizes)) is not None
    ]
    return (max(r[0] for r in limits), min(r[1] for r in limits)) if limits else None


def _range(node: ir.Node, at: int, sizes: Sizes) -> Range | None:
    rule = _RANGES.get((node.op_type, at)) if not node.domain else None
    if rule is None:
        return None
    limit = rule(node, sizes)
    return None if limit is None or limit[1] <= limit[0] else limit


def _axis(node: ir.Node, otherwise: int = 0) -> int:
    return int(attrs_of(node).get("axis", otherwise))


def _along(axis: Callable[[ir.Node], int], first: int = 0) -> Ranging:
    """Return a rule for an index along an axis of the first operand or, with `first` = 1, for a
    number of steps along it.
    """

    def rule(node: ir.Node, sizes: Sizes) -> Range | None:
        shape = sizes.of(node.inputs[0])
        return (first, shape[axis(node)] + first) if shape else None

    return rule


def _flat_index_range(node: ir.Node, sizes: Sizes) -> Range | None:
    """Return the range of indices of several axes at once, which the shortest of them bounds."""
    shape, indices = sizes.of(node.inputs[0]), sizes.of(optional(node, 1))
    first = int(attrs_of(node).get("batch_dims", 0))
    if not shape or not indices:
        return None
    return 0, min(shape[first : first + indices[-1]], default=1)


def _bits(node: ir.Node, sizes: Sizes) -> Range | None:
    dtype = node.inputs[0].dtype if node.inputs[0] is not None else None
    return None if dtype is None else (0, int(dtype.bitwidth))


def _classes(node: ir.Node, sizes: Sizes) -> Range | None:
    depth = known(node.inputs[1])
    return None if depth is None else (0, int(depth.reshape(-1)[0]))


def _rank(node: ir.Node, sizes: Sizes) -> Range | None:
    shape = sizes.of(node.inputs[0])
    return (0, len(shape)) if shape else None


def _time(node: ir.Node) -> int:
    return int(attrs_of(node).get("time_axis", 0))


_RANGES: dict[tuple[str, int], Ranging] = {
    ("Gather", 1): _along(_axis),
    ("GatherElements", 1): _along(_axis),
    ("ScatterElements", 1): _along(_axis),
    ("GatherND", 1): _flat_index_range,
    ("ScatterND", 1): _flat_index_range,
    ("RoiAlign", 2): _along(lambda n: 0),
    ("OneHot", 0): _classes,
    ("BitShift", 1): _bits,
    ("ReverseSequence", 1): _along(_time, first=1),
    ("TopK", 1): _along(lambda n: _axis(n, -1), first=1),
    **{(op, 4): _along(lambda n: int(attrs_of(n).get("layout", 0)), first=1) for op in _CELLS},
    ("CumSum", 1): _rank,
    ("NonMaxSuppression", 2): lambda n, s: (1, 4),
    ("OneHot", 1): lambda n, s: (2, 6),
    ("Tile", 1): lambda n, s: (1, 3),
    ("ConstantOfShape", 0): lambda n, s: (1, 4),
    ("Pad", 1): lambda n, s: (0, 2),
    ("Loop", 0): lambda n, s: (1, 4),
    ("Slice", 4): lambda n, s: (1, 2),
    ("Range", 0): lambda n, s: (0, 2),
    ("Range", 1): lambda n, s: (2, 6),
    ("Range", 2): lambda n, s: (1, 2),
    ("Trilu", 1): lambda n, s: (-1, 2),
}


def argument(value: ir.Value, shape: Sequence[int], sizes: Sizes) -> Array | None:
    """Return all elements of an input that is a shape, a list of axes, bounds or sizes, provided
    that this is its only use; None otherwise.
    """
    for node, at in _uses(value, _KEEPING):
        rule = _ARGUMENTS.get((node.op_type, at)) if not node.domain else None
        count = int(np.prod(shape))
        found = None if rule is None else rule(node, count, sizes.of(node.inputs[0]))
        if found is not None and len(found) == count:
            return np.asarray(found).reshape(shape)
    return None


Shape = tuple[int, ...]
# arguments: node, number of elements wanted, shape of the first operand
Rule = Callable[[ir.Node, int, Shape | None], Sequence[float] | None]


def _reshape(node: ir.Node, count: int, before: Shape | None) -> Sequence[int] | None:
    declared = shape_of(node.outputs[0])
    if declared is not None and len(declared) == count:
        return declared
    if before is None or len(before) == count:
        return before
    return [-1, *[1] * (count - 1)] if count else []


def _expand(node: ir.Node, count: int, before: Shape | None) -> Sequence[int] | None:
    return [1] * count if before is None or len(before) != count else before


def _ends(node: ir.Node, count: int, before: Shape | None) -> Sequence[int] | None:
    if before is None:
        return None
    given = known(optional(node, 3))
    axes = range(count) if given is None else given.reshape(-1).tolist()
    return [before[a] for a in axes] if len(axes) == count else None


def _parts(node: ir.Node, count: int, before: Shape | None) -> Sequence[int] | None:
    if before is None or not count:
        return None
    size = before[_axis(node)]
    return [size // count] * (count - 1) + [size - size // count * (count - 1)]


def _single(node: ir.Node, count: int, before: Shape | None) -> Sequence[int] | None:
    """Return the axes of size 1."""
    return None if before is None else [i for i, d in enumerate(before) if d == 1][:count]


def _twice(node: ir.Node, count: int, before: Shape | None) -> Sequence[int] | None:
    return (
        None
        if before is None or len(before) != count
        else [*before[:2], *(2 * d for d in before[2:])]
    )


def _counted(node: ir.Node, count: int, before: Shape | None) -> Sequence[int]:
    return range(count)


_ARGUMENTS: dict[tuple[str, int], Rule] = {
    ("Reshape", 1): _reshape,
    ("Expand", 1): _expand,
    ("Slice", 1): lambda n, count, s: [0] * count,
    ("Slice", 2): _ends,
    ("Slice", 3): _counted,
    ("Split", 1): _parts,
    ("Squeeze", 1): _single,
    ("Unsqueeze", 1): _counted,
    ("Resize", 2): lambda n, count, s: [1.0] * min(2, count) + [2.0] * max(0, count - 2),
    ("Resize", 3): _twice,
    **{(op, 1): _counted for op in REDUCTIONS},
}
