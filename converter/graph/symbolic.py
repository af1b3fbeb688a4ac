"""Elements of small tensors that are computed from shapes, as expressions of named dimensions
(`size_expressions.py`).

Those of `Shape(x[N, 3, H, W])[2:] * 2` are [2*H, 2*W]. As with known values, they are cached on the
value when its node is inferred.
"""

from __future__ import annotations

import fractions
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.known import SIZES, Array, evaluate, known, set_known, shape_of
from converter.graph.size_expressions import Element, Scaled, Size, parse, total
from converter.graph.verify.shapes_of import attribute

MOST = 64  # elements of a vector of sizes
_FINEST = 1 << 10  # denominator of a factor whose products are exact in float32
_WHOLE = (ir.DataType.INT64, ir.DataType.INT32)
_REAL = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
_TYPES = (*_WHOLE, *_REAL, ir.DataType.BOOL)
Item = Size | Scaled | float | None  # a float is a factor that is not exact, None is not known


def elements(value: ir.Value | None) -> Array | None:
    """Return the elements of a small tensor, each a Size, or another Item if it is no size; None if
    not even their number is known.
    """
    if value is None:
        return None
    shape = shape_of(value)
    if shape is None or math.prod(shape) > MOST or value.dtype not in _TYPES:
        return None
    array = known(value)
    if array is not None:
        return _each(_number)(array) if array.size else np.zeros(shape, object)
    found: Array = np.full(shape, None, object)
    if (kept := value.meta.get(SIZES)) is not None:
        found = np.full(kept[0], None, object)
        for i, item in enumerate(kept[1]):
            found.reshape(-1)[i] = item
    elif value.dtype in _WHOLE:
        items = [Size.of(Element(value, i, False)) for i in range(math.prod(shape))]
        found.reshape(-1)[:] = items
    return found


def sizes_of(value: ir.Value | None) -> list[Size | None] | None:
    """Return the elements of a vector of sizes, None for those that are no sizes; None if not even
    their number is known.
    """
    found = elements(value)
    if found is None or found.ndim > 1:
        return None
    return [v if isinstance(v, Size) and v.is_integral else None for v in found.reshape(-1)]


def sizes_in(value: ir.Value | None) -> list[int | None] | None:
    """Return the elements of a vector of sizes, None for those that are not known; None if not even
    their number is known.
    """
    found = sizes_of(value)
    return None if found is None else [None if v is None else v.integer for v in found]


def dimensions(value: ir.Value | None) -> list[Size] | None:
    """Return the dimensions of a value as expressions; None if the rank is unknown."""
    if value is None or value.shape is None:
        return None
    found = []
    for axis, d in enumerate(value.shape):
        named = parse(d.value) if isinstance(d, ir.SymbolicDim) and d.value else None
        if isinstance(d, int):
            found.append(Size.of(d))
        else:
            found.append(Size.of(Element(value, axis, True)) if named is None else named)
    return found


def axis_of_size(size: Size, values: Iterable[ir.Value]) -> tuple[ir.Value, int] | None:
    """Return a value of which a dimension is `size`, and its axis; None if there is none."""
    for value in values:
        found = dimensions(value) or []
        if size in found:
            return value, found.index(size)
    return None


def keep_elements(node: ir.Node) -> None:
    """Cache the elements of the results, as far as they follow from those of the operands."""
    compute = _ELEMENTS.get(node.op_type)
    results = None if compute is None else compute(node)
    found = results if isinstance(results, list) else [results]
    for out, items in zip(node.outputs, found, strict=False):
        shape = shape_of(out)
        if items is None or shape is None or known(out) is not None or items.shape != shape:
            continue
        if any(v is not None for v in items.reshape(-1)):
            # no array: the garbage collector does not see the values that its elements refer to
            out.meta[SIZES] = items.shape, list(items.reshape(-1))
        numbers = [v.number if isinstance(v, Size) else None for v in items.reshape(-1)]
        if None not in numbers and out.dtype is not None:
            array = _typed([n for n in numbers if n is not None], out.dtype.numpy())
            if array is not None:
                set_known(out, array.reshape(shape))


def _typed(numbers: list[fractions.Fraction], dtype: np.dtype[Any]) -> Array | None:
    """Return numbers as an array; None for integers that the type does not have.

    Integers do not become floats in between, which would round the 2**63 - 1 that ends a slice.
    """
    if dtype.kind not in "iu":
        return np.array(numbers, float).astype(dtype)
    integers, limits = [int(n) for n in numbers], np.iinfo(dtype)
    inside = all(limits.min <= n <= limits.max for n in integers)
    return np.array(integers, dtype) if inside else None


def _each(function: Callable[..., Item]) -> Callable[..., Array]:
    """Return the function on arrays that broadcast."""

    def run(*arrays: Array) -> Array:
        shape = np.broadcast_shapes(*(a.shape for a in arrays))
        found = np.empty(shape, object)
        flat = [np.broadcast_to(a, shape).reshape(-1) for a in arrays]
        found.reshape(-1)[:] = [function(*items) for items in zip(*flat, strict=True)]
        return found

    return run


def _number(number: Any) -> Item:
    """Return an element of a constant."""
    if isinstance(number, np.integer | np.bool_):
        return Size.of(int(number))
    if not np.isfinite(number):
        return None
    exact = fractions.Fraction(float(number))
    return Size.of(exact) if exact.denominator <= _FINEST else float(number)


def _is_exact(size: Item) -> bool:
    """Return whether float32 represents the multiples of the coefficients."""
    return isinstance(size, Size) and all(
        c.denominator <= _FINEST and c.denominator.bit_count() == 1 for c in size.terms.values()
    )


def _add(a: Item, b: Item) -> Item:
    return a + b if _is_exact(a) and _is_exact(b) else None  # type: ignore[operator]


def _sub(a: Item, b: Item) -> Item:
    return a - b if _is_exact(a) and _is_exact(b) else None  # type: ignore[operator]


def product(a: Item, b: Item) -> Item:
    """Multiply two elements of a shape computation; None if the product is not certain."""
    if isinstance(a, float):
        a, b = b, a
    if isinstance(a, Size) and isinstance(b, float):
        return Scaled(a, b) if a.is_integral else None
    return a * b if _is_exact(a) and _is_exact(b) else None  # type: ignore[operator]


def _div(a: Item, b: Item, whole: bool) -> Item:
    """Divide; integers are truncated."""
    if not isinstance(a, Size) or not isinstance(b, Size) or not _is_exact(a) or not b.terms:
        return None
    divisor, exact = b.number, a.ratio(b)
    if divisor is None:
        quotient = a.divided(b) if exact is None else Size.of(exact)
        return quotient if quotient is not None and (quotient.is_integral or not whole) else None
    quotient = a * (1 / divisor)
    if quotient.is_integral or (not whole and abs(divisor.numerator) <= _FINEST):
        return quotient
    least = a.at_least()
    return quotient.floor() if whole and divisor > 0 and least is not None and least >= 0 else None


def floored(a: Item) -> Item:
    """Round an element of a shape computation down to an integer; None if that is not certain."""
    if isinstance(a, Scaled):
        return Size.of(a)
    return a.floor() if isinstance(a, Size) else None


def _ceil(a: Item) -> Item:
    return (a * -1).floor() * -1 if isinstance(a, Size) else None


def _truncated(a: Item) -> Item:
    """Return a real number as an integer."""
    if isinstance(a, Size) and not a.is_integral:
        least = a.at_least()
        return a.floor() if least is not None and least >= 0 else None
    return floored(a)


def _modulo(a: Item, b: Item) -> Item:
    divisor = b.integer if isinstance(b, Size) else None
    if not isinstance(a, Size) or divisor is None or divisor < 1 or not a.is_integral:
        return None
    return a - a.floordiv(divisor) * divisor


def not_less(a: Item, b: Item, by: int = 0) -> bool:
    """Return whether a >= b + by, as far as is known."""
    least = (a - b).at_least() if isinstance(a, Size) and isinstance(b, Size) else None
    return least is not None and least >= by


def _larger(a: Item, b: Item) -> Item:
    return a if not_less(a, b) else b if not_less(b, a) else None


def _smaller(a: Item, b: Item) -> Item:
    return b if not_less(a, b) else a if not_less(b, a) else None


def _truth(yes: bool, no: bool) -> Item:
    return Size.of(1) if yes else Size.of(0) if no else None


def _equal(a: Item, b: Item) -> Item:
    return _truth(
        isinstance(a, Size) and a == b,
        isinstance(a, Size)
        and isinstance(b, Size)
        and ((a - b).number is not None or not_less(a, b, 1) or not_less(b, a, 1)),
    )


def _less(a: Item, b: Item) -> Item:
    # sizes are integers, so that a < b is a + 1 <= b
    return _truth(not_less(b, a, 1), not_less(a, b))


def _where(condition: Item, a: Item, b: Item) -> Item:
    if a is not None and a == b:
        return a
    number = condition.number if isinstance(condition, Size) else None
    return None if number is None else a if number else b


def _pointwise(function: Callable[..., Item]) -> Callable[[ir.Node], Array | None]:
    apply = _each(function)

    def compute(node: ir.Node) -> Array | None:
        items = [elements(v) for v in node.inputs]
        return None if any(v is None for v in items) else apply(*items)

    return compute


def _fold(function: Callable[[Any, Any], Item]) -> Callable[[ir.Node], Array | None]:
    """Return the computation of an operator of any number of operands."""
    apply = _each(function)

    def compute(node: ir.Node) -> Array | None:
        items = [elements(v) for v in node.inputs]
        if any(v is None for v in items):
            return None
        total, *rest = items
        for item in rest:
            total = apply(total, item)
        return total

    return compute


def _divided(node: ir.Node) -> Array | None:
    whole = node.outputs[0].dtype in _WHOLE
    return _pointwise(lambda a, b: _div(a, b, whole))(node)


def _remainder(node: ir.Node) -> Array | None:
    fits = node.outputs[0].dtype in _WHOLE and not attribute(node, "fmod", 0)
    return _pointwise(_modulo)(node) if fits else None


def _cast(node: ir.Node) -> Array | None:
    items, dtype = elements(node.inputs[0]), node.outputs[0].dtype
    if items is None or dtype not in (*_WHOLE, *_REAL):
        return None
    return _each(_truncated)(items) if dtype in _WHOLE else items


def _shape(node: ir.Node) -> Array | None:
    sizes = dimensions(node.inputs[0])
    if sizes is None or len(sizes) > MOST:
        return None
    found = np.empty(len(sizes), object)
    found[:] = sizes
    return found[attribute(node, "start", 0) : attribute(node, "end", None)]


def _count(node: ir.Node) -> Array | None:
    sizes = dimensions(node.inputs[0])
    return None if sizes is None else _scalar(total(sizes))


def _scalar(item: Item) -> Array:
    found = np.empty((), object)
    found[()] = item
    return found


def _reduced(function: Callable[[Any, Any], Item]) -> Callable[[ir.Node], Array | None]:
    """Return the function that reduces a vector to one number."""

    def compute(node: ir.Node) -> Array | None:
        items = elements(node.inputs[0])
        if items is None or items.ndim != 1 or not items.size:
            return None
        found: Item = items[0]
        for item in items[1:]:
            found = function(found, item)
        return _scalar(found).reshape([1] if attribute(node, "keepdims", 1) else [])

    return compute


def _moved(node: ir.Node) -> list[Array] | None:
    """Compute an operator that only moves elements by applying it to their indices."""
    count = len(node.inputs) if node.op_type == "Concat" else 1
    data, more = [elements(v) for v in node.inputs[:count]], [known(v) for v in node.inputs[count:]]
    given = zip(node.inputs[count:], more, strict=True)
    if any(v is None for v in data) or any(v is not None and k is None for v, k in given):
        return None
    indices, items = [], [v.reshape(-1) for v in data if v is not None]
    first = 0
    for array in data:
        assert array is not None
        indices.append(np.arange(first, first + array.size).reshape(array.shape))
        first += array.size
    flat = np.concatenate(items)
    results = [np.asarray(positions) for positions in evaluate(node, [*indices, *more])]
    return [flat[positions.reshape(-1)].reshape(positions.shape) for positions in results]


_ELEMENTS: dict[str, Callable[[ir.Node], Any]] = {
    "Shape": _shape,
    "Size": _count,
    "Cast": _cast,
    "Add": _pointwise(_add),
    "Sub": _pointwise(_sub),
    "Mul": _pointwise(product),
    "Div": _divided,
    "Mod": _remainder,
    "Neg": _pointwise(lambda a: a * -1 if isinstance(a, Size) else None),
    "Floor": _pointwise(floored),
    "Ceil": _pointwise(_ceil),
    "Max": _fold(_larger),
    "Min": _fold(_smaller),
    "Equal": _pointwise(_equal),
    "Less": _pointwise(_less),
    "Greater": _pointwise(lambda a, b: _less(b, a)),
    "Where": _pointwise(_where),
    "ReduceProd": _reduced(product),
    "ReduceSum": _reduced(_add),
    **dict.fromkeys(("Identity", "Gather", "Slice", "Concat", "Reshape", "Squeeze"), _moved),
    **dict.fromkeys(("Unsqueeze", "Transpose", "Expand", "Tile", "Split"), _moved),
}
