"""Dimensions of results that onnx's inference leaves unknown, named by expressions of those of the
operands.

before:  x[N, 3, H, W] -> Resize(x, Concat(Shape(x)[:2], Shape(x)[2:] * 2)) -> y[N, 3, ?, ?]
after:   y[N, 3, 2*H, 2*W]

Equal sizes have equal names, however a network computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from converter.graph.known import known, shape_of
from converter.graph.size_expressions import Element, Size, total
from converter.graph.symbolic import (
    dimensions,
    elements,
    floored,
    keep_elements,
    not_less,
    product,
    sizes_of,
)
from converter.graph.value import optional
from converter.graph.verify.shapes_of import attribute, window_of

Sizes = list[Size | None]
RECURRENT = ("LSTM", "GRU", "RNN")


def infer(node: ir.Node) -> None:
    """Cache the elements of results, and name their dimensions, as far as they follow from those of
    the operands.
    """
    keep_elements(node)
    write = _DIMENSIONS.get(node.op_type)
    for out, sizes in zip(node.outputs, (write and write(node)) or [], strict=False):
        _name(out, sizes)


def _name(out: ir.Value, sizes: list[Size | None] | None) -> None:
    """Name the dimensions of a value that inference has not determined."""
    if sizes is None or (out.shape is not None and len(out.shape) != len(sizes)):
        return
    dims: list[int | ir.SymbolicDim] = [ir.SymbolicDim(None)] * len(sizes)
    if out.shape is not None:
        dims = list(out.shape)
    for axis, (d, size) in enumerate(zip(dims, sizes, strict=True)):
        number = None if size is None else size.integer
        if (
            size is not None
            and isinstance(d, ir.SymbolicDim)
            and (d.value is None or number is not None)
        ):
            dims[axis] = ir.SymbolicDim(size.name()) if number is None else max(number, 0)
    out.shape = ir.Shape(dims)


def _reshape(node: ir.Node) -> list[Sizes] | None:
    x, wanted = dimensions(node.inputs[0]), sizes_of(node.inputs[1])
    if x is None or wanted is None:
        return None
    found: Sizes = list(wanted)
    for axis, size in enumerate(wanted):
        if size == Size.of(0) and not attribute(node, "allowzero", 0):
            found[axis] = x[axis] if axis < len(x) else None
    rest = [i for i, size in enumerate(found) if size == Size.of(-1)]
    others = [size for i, size in enumerate(found) if i not in rest]
    if len(rest) == 1:
        sizes = [v for v in others if v is not None]
        found[rest[0]] = _quotient(x, sizes) if len(sizes) == len(others) else None
    return [[_size_or_none(v) for v in found]]


def _quotient(x: Sequence[Size], others: Sequence[Size]) -> Size | None:
    """Return the unknown size of a product whose other factors cancel."""
    left = list(x)
    divisors = []
    for size in others:
        if size in left:
            left.remove(size)
        else:
            divisors.append(size)
    quotient = total(left).divided(total(divisors))
    return quotient if quotient is not None and quotient.is_integral else None


def _size_or_none(size: Size | None) -> Size | None:
    """Return a size that cannot stand for another one, as -1 does."""
    if size is None or any(isinstance(a, Element) and not a.is_dimension for a in size.atoms):
        return None
    number = size.integer
    return None if number is not None and number < 0 else size


def _expand(node: ir.Node) -> list[Sizes] | None:
    x, wanted = dimensions(node.inputs[0]), sizes_of(node.inputs[1])
    if x is None or wanted is None:
        return None
    rank, one = max(len(x), len(wanted)), Size.of(1)
    own: Sizes = [*[one] * (rank - len(x)), *x]
    given: Sizes = [*[one] * (rank - len(wanted)), *wanted]
    return [
        [
            a if b in (one, a) else _size_or_none(b) if a == one else None
            for a, b in zip(own, given, strict=True)
        ]
    ]


def _filled(node: ir.Node) -> list[Sizes] | None:
    wanted = sizes_of(node.inputs[0])
    return None if wanted is None else [[_size_or_none(v) for v in wanted]]


def _tile(node: ir.Node) -> list[Sizes] | None:
    x, repeats = dimensions(node.inputs[0]), sizes_of(node.inputs[1])
    if x is None or repeats is None or len(x) != len(repeats):
        return None
    pairs = zip(x, map(_size_or_none, repeats), strict=True)
    return [[None if n is None else size * n for size, n in pairs]]


def _concat(node: ir.Node) -> list[Sizes] | None:
    shapes = [dimensions(v) for v in node.inputs]
    if any(s is None for s in shapes) or len({len(s or ()) for s in shapes}) != 1:
        return None
    known_shapes = [s for s in shapes if s is not None]
    axis = attribute(node, "axis", 0) % len(known_shapes[0])
    found: Sizes = []
    for i, sizes in enumerate(zip(*known_shapes, strict=True)):
        if i == axis:
            found.append(sum(sizes[1:], sizes[0]))
        else:
            found.append(next((s for s in sizes if s.integer is not None), _named(sizes)))
    return [found]


def _named(sizes: Sequence[Size]) -> Size:
    """Return the size of several equal ones that has a name."""
    return next((s for s in sizes if s.name() is not None), sizes[0])


def _slice(node: ir.Node) -> list[Sizes] | None:
    x = dimensions(node.inputs[0])
    starts, ends = (sizes_of(node.inputs[i]) for i in (1, 2))
    axes, steps = (known(optional(node, i)) for i in (3, 4))
    computed = any(optional(node, i) is not None and v is None for i, v in ((3, axes), (4, steps)))
    if x is None or starts is None or ends is None or computed:
        return None
    chosen = list(range(len(starts))) if axes is None else [int(a) for a in axes.reshape(-1)]
    strides = [1] * len(chosen) if steps is None else [int(s) for s in steps.reshape(-1)]
    if not len(chosen) == len(starts) == len(ends) == len(strides):
        return None  # no kernel takes such bounds
    found: Sizes = list(x)
    for axis, start, end, step in zip(chosen, starts, ends, strides, strict=True):
        found[axis] = _part(x[axis], start, end, step)
    return [found]


def _part(size: Size, start: Size | None, end: Size | None, step: int) -> Size | None:
    """Return how many elements a slice of an axis has, if it begins within the axis and ends at a
    size that is at most that of the axis.
    """
    first = None if start is None else start.integer
    if step == -1 and first == -1 and end is not None and (end.integer or 0) < -(1 << 30):
        return size
    last = None if end is None else end.integer
    if first not in (0, 1) or step < 1 or end is None:
        return None
    if last is not None and last > 1 << 30:
        stop = size
    elif last == -1:
        stop = size - 1
    elif not_less(size, end) and not_less(end, Size.of(0)):
        stop = end
    else:
        return None
    return (stop - first + (step - 1)).floordiv(step)


def _window(node: ir.Node) -> list[Sizes] | None:
    """Return the sizes of a convolution or a pool."""
    x, kernel = dimensions(node.inputs[0]), _kernel(node)
    if x is None or kernel is None or len(x) != len(kernel) + 2 or attribute(node, "ceil_mode", 0):
        return None
    strides, dilations, pads = window_of(node, len(kernel))
    scheme, found = attribute(node, "auto_pad", "NOTSET"), []
    for i, (size, k, s, d) in enumerate(zip(x[2:], kernel, strides, dilations, strict=True)):
        if scheme in ("SAME_UPPER", "SAME_LOWER"):
            found.append((size + (s - 1)).floordiv(s))
        else:
            padding = pads[i] + pads[len(kernel) + i] if scheme == "NOTSET" else 0
            found.append((size + (padding - (k - 1) * d - 1)).floordiv(s) + 1)
    return [[None, None, *found]] * len(node.outputs)


def _kernel(node: ir.Node) -> list[int] | None:
    """Return the size of the window, which a convolution may leave to its weights."""
    given = attribute(node, "kernel_shape", None)
    if given is None and "Conv" in node.op_type:
        weights = shape_of(node.inputs[1])
        given = None if weights is None else weights[2:]
    return None if given is None else [int(n) for n in given]


def _transposed_window(node: ir.Node) -> list[Sizes] | None:
    x, kernel = dimensions(node.inputs[0]), _kernel(node)
    scheme = attribute(node, "auto_pad", "NOTSET")
    if (
        x is None
        or kernel is None
        or len(x) != len(kernel) + 2
        or "output_shape" in node.attributes
    ):
        return None
    strides, dilations, pads = window_of(node, len(kernel))
    extra = attribute(node, "output_padding", [0] * len(kernel))
    found: Sizes = [None, None]
    for i, (size, k, s, d) in enumerate(zip(x[2:], kernel, strides, dilations, strict=True)):
        padding = pads[i] + pads[len(kernel) + i] if scheme == "NOTSET" else 0
        whole = (size - 1) * s + (extra[i] + (k - 1) * d + 1 - padding)
        found.append(whole if scheme in ("NOTSET", "VALID") else None)
    return [found]


def _resize(node: ir.Node) -> list[Sizes] | None:
    x = dimensions(node.inputs[0])
    if x is None or attribute(node, "keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    axes = [int(a) % len(x) for a in attribute(node, "axes", range(len(x)))]
    given, factors = sizes_of(optional(node, 3)), elements(optional(node, 2))
    found: Sizes = list(x)
    if optional(node, 3) is not None:
        wanted = None if given is None else list(map(_size_or_none, given))
    else:
        items = [] if factors is None else list(factors.reshape(-1))
        scaled = [floored(product(x[a], f)) for a, f in zip(axes, items, strict=False)]
        wanted = [v if isinstance(v, Size) else None for v in scaled]
    if wanted is None or len(wanted) != len(axes):
        return None
    for axis, size in zip(axes, wanted, strict=True):
        found[axis] = size
    return [found]


def _pad(node: ir.Node) -> list[Sizes] | None:
    x, amounts, axes = dimensions(node.inputs[0]), sizes_of(node.inputs[1]), optional(node, 3)
    chosen = known(axes)
    if x is None or amounts is None or (axes is not None and chosen is None):
        return None
    positions = range(len(x)) if chosen is None else [int(a) % len(x) for a in chosen.reshape(-1)]
    if len(amounts) != 2 * len(positions):
        return None
    found: Sizes = list(x)
    for i, axis in enumerate(positions):
        before, after = amounts[i], amounts[len(positions) + i]
        found[axis] = None if before is None or after is None else x[axis] + before + after
    return [[_size_or_none(v) for v in found]]


def _blocks(node: ir.Node) -> list[Sizes] | None:
    x, block = dimensions(node.inputs[0]), attribute(node, "blocksize", 1)
    if x is None or len(x) != 4:
        return None
    if node.op_type == "DepthToSpace":
        return [[x[0], x[1].floordiv(block * block), x[2] * block, x[3] * block]]
    return [[x[0], x[1] * (block * block), x[2].floordiv(block), x[3].floordiv(block)]]


def _flatten(node: ir.Node) -> list[Sizes] | None:
    x = dimensions(node.inputs[0])
    if x is None:
        return None
    axis = attribute(node, "axis", 1)
    axis += len(x) if axis < 0 else 0
    return [[total(x[:axis]), total(x[axis:])]]


def _range(node: ir.Node) -> list[Sizes] | None:
    items = [elements(v) for v in node.inputs]
    start, limit, step = (None if v is None or v.size != 1 else v.reshape(-1)[0] for v in items)
    if start != Size.of(0) or step != Size.of(1) or not isinstance(limit, Size):
        return None
    return [[limit if not_less(limit, start) and limit.is_integral else None]]


def _split(node: ir.Node) -> list[Sizes] | None:
    x, given = dimensions(node.inputs[0]), sizes_of(optional(node, 1))
    if x is None or given is None or len(given) != len(node.outputs):
        return None
    axis = attribute(node, "axis", 0) % len(x)
    return [[*x[:axis], _size_or_none(size), *x[axis + 1 :]] for size in given]


def batch_of(node: ir.Node) -> Size | None:
    """Return the batch of a recurrent operator, which its data and its initial states share; an
    integer if one of them has it.
    """
    layout = attribute(node, "layout", 0)
    states = [dimensions(optional(node, i)) for i in (5, 6)]
    data = dimensions(node.inputs[0])
    sizes = [v[0 if layout else 1] for v in (data, *states) if v is not None and len(v) == 3]
    found: Size | None = next((s for s in sizes if s.integer is not None), None)
    return found if found is not None or not sizes else _named(sizes)


def _recurrent(node: ir.Node) -> list[Sizes] | None:
    x, w, r = (dimensions(v) for v in node.inputs[:3])
    if x is None or w is None or r is None or not len(x) == len(w) == len(r) == 3:
        return None
    batch, ways, size = batch_of(node), w[0], r[2]
    if attribute(node, "layout", 0):
        return [[batch, x[1], ways, size], *[[batch, ways, size]] * 2]
    return [[x[0], ways, batch, size], *[[ways, batch, size]] * 2]


_DIMENSIONS: dict[str, Callable[[ir.Node], list[Sizes] | None]] = {
    "Reshape": _reshape,
    "Expand": _expand,
    "ConstantOfShape": _filled,
    "Tile": _tile,
    "Concat": _concat,
    "Slice": _slice,
    "ConvTranspose": _transposed_window,
    "Resize": _resize,
    "Pad": _pad,
    "Flatten": _flatten,
    "Range": _range,
    "Split": _split,
    **dict.fromkeys(RECURRENT, _recurrent),
    **dict.fromkeys(("Conv", "ConvInteger", "QLinearConv"), _window),
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), _window),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), _blocks),
}
