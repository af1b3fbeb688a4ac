"""Convert indices that may count from the end, for targets whose lookups only count from the front.

before:  Gather(x[5,3], i)
after:   Gather(x[5,3], Where(i < 0, i + 5, i))
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from converter.graph import MOVES
from converter.graph.build import Builder, attributes, attrs_of
from converter.graph.infer import constant, known, shape_of
from converter.graph.value import known_sizes, operand, producer_of
from converter.mapping.fields import Guard

_DEPTH = 24  # operators that are followed back from an index
_ALWAYS = frozenset(
    [
        "ArgMax",
        "ArgMin",
        "Shape",
        "Size",
        "NonZero",
        "NonMaxSuppression",
        "Abs",
        "Relu",
        "Sqrt",
        "Exp",
        "Sigmoid",
        "HardSigmoid",
        "Softplus",
        "Softmax",
        "Less",
        "LessOrEqual",
        "Greater",
        "GreaterOrEqual",
        "Equal",
        "And",
        "Or",
        "Xor",
        "Not",
    ]
)
_KEEPS = MOVES | {"Floor", "Ceil", "Round", "Pow"}  # Pow depends on the base
_CAST = (ir.DataType.INT32, ir.DataType.INT64, ir.DataType.BOOL)  # casts do not wrap around
_JOINS = frozenset({"Add", "Mul", "Div", "Min", "Concat"})


def never_negative(value: ir.Value | None, depth: int = _DEPTH, *, proven: bool = False) -> bool:
    """Return whether the producers of a value guarantee that no element is negative.

    Where(i < 0, i + n, i) is accepted unless `proven`, because an i below -n stays negative.
    """
    if value is None or depth == 0:
        return False
    numbers = known(value)
    numbers = constant(value) if numbers is None else numbers
    if numbers is not None:
        return bool((numbers >= 0).all())
    if value.dtype is not None and value.dtype in (
        ir.DataType.UINT8,
        ir.DataType.UINT16,
        ir.DataType.UINT32,
        ir.DataType.UINT64,
        ir.DataType.BOOL,
    ):
        return True
    node = value.producer()
    return (
        node is not None
        and not node.domain
        and not (proven and _wraps(node))
        and _makes_none(node, value, lambda v: never_negative(v, depth - 1, proven=proven))
    )


# for rows of OneHot, if the layer accepts no negative indices
NOT_NEGATIVE = Guard(
    "negative indices are not supported",
    lambda w: never_negative(w.optional(0)),
    lambda r: never_negative(r.optional(0), proven=True),
)


def _makes_none(node: ir.Node, value: ir.Value, never: Callable[[ir.Value | None], bool]) -> bool:
    op = node.op_type
    if op in _ALWAYS:
        return True
    if op == "TopK":
        return value is node.outputs[1] or never(node.inputs[0])
    if op in _KEEPS:
        return never(node.inputs[0])
    if op == "Cast":
        source = node.inputs[0]
        return (
            source is not None
            and source.dtype is not None
            and (source.dtype in _CAST or source.dtype.is_floating_point())
            and never(source)
        )
    if op in _JOINS:
        return all(never(v) for v in node.inputs)
    if op in ("Max", "Clip"):
        return (
            any(never(v) for v in node.inputs)
            if op == "Max"
            else len(node.inputs) > 1 and never(node.inputs[1])
        )
    if op == "Mod":
        return not attributes(node)["fmod"] and never(node.inputs[1])
    return op == "Where" and (_wraps(node) or all(never(v) for v in node.inputs[1:]))


def _wraps(node: ir.Node) -> bool:
    """Return whether a node is Where(i < 0, .., i), which is meant to replace the negative
    indices.
    """
    if node.op_type != "Where":
        return False
    test = producer_of(node.inputs[0])
    if (
        test is None
        or test.domain
        or test.op_type != "Less"
        or test.inputs[0] is not node.inputs[2]
    ):
        return False
    zero = known(test.inputs[1])
    return zero is not None and not zero.any()


def cut_axes(axis: int, data: ir.Value, indices: ir.Value, scatter: bool = False) -> list[int]:
    """Return the axes, other than that of a GatherElements or ScatterElements, along which the
    indices are shorter than the data.

    If only the size of the data is dynamic, a gather is assumed to need slicing; for a scatter
    nothing is known.
    """
    sizes, positions = known_sizes(data) or [], known_sizes(indices) or []
    return [
        i
        for i, (n, m) in enumerate(zip(sizes, positions, strict=False))
        if i != axis % len(sizes) and m is not None and n != m and not (scatter and n is None)
    ]


def cut_elements(node: ir.Node, b: Builder) -> ir.Value | None:
    """Slice the data of a GatherElements to the size of the indices along the other axes, for
    targets that require equal sizes there.
    """
    x, indices, axis = operand(node), operand(node, 1), attributes(node)["axis"]
    axes, shape = cut_axes(axis, x, indices), shape_of(indices)
    if not axes or shape is None:
        return None
    cut = b.Slice(x, [0] * len(axes), [shape[i] for i in axes], axes)
    if cut.shape is not None:  # dynamic axes of the data are at least as long
        cut.shape = ir.Shape([shape[i] if i in axes else d for i, d in enumerate(cut.shape)])
    return b.GatherElements(cut, indices, axis=axis)


def batched_gather_orders(
    rank: int, depth: int, axis: int, batch: int
) -> tuple[list[int], list[int]]:
    """Return the permutations that express a Gather along `axis` as a GatherND with `batch` shared
    leading axes, for data of rank `rank` and indices of rank `depth`.

    The first permutation is applied to the data, and moves the axis after the shared ones; the
    second one is applied to the result.
    """
    order = [*range(batch), axis, *(i for i in range(batch, rank) if i != axis)]
    own, rest = list(range(batch, depth)), list(range(depth, depth + rank - 1 - batch))
    return order, [*range(batch), *rest[: axis - batch], *own, *rest[axis - batch :]]


def from_start(b: Builder, index: ir.Value, extent: int | ir.Value) -> ir.Value:
    """Convert indices to count from the front of an axis of size `extent`, a number or an int64
    [1].
    """
    size = b.Cast(extent, to=index.dtype) if isinstance(extent, ir.Value) else b.like(index, extent)
    return b.Where(index < b.like(index, 0), index + size, index)


def one_hot(node: ir.Node, b: Builder) -> ir.Value | None:
    """Rewrite a OneHot of known depth to use non-negative indices."""
    index, depth = node.inputs[0], known(node.inputs[1])
    if index is None or depth is None or depth.size != 1 or never_negative(index):
        return None
    return b.op(
        "OneHot",
        from_start(b, index, int(depth.reshape(-1)[0])),
        *node.inputs[1:],
        **attrs_of(node),
    )


__all__ = ["NOT_NEGATIVE", "batched_gather_orders", "from_start", "never_negative", "one_hot"]
