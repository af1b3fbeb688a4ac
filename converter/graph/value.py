"""Values with Python operators: `x * b.Sigmoid(x * 1.702)` for Mul(x, Sigmoid(Mul(x, 1.702))).

An operator between values is a node, and a node is written by a builder: by the one whose `with`
block is open (the definitions of extension operators and the rewrites are called inside one). As
with an insertion point in MLIR.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar, overload

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from converter.errors import MappingError

T = TypeVar("T")
MAX = (1 << 63) - 1
LOWEST = float(np.finfo(np.float32).min)
# the types to which definitions and rewrites cast
FLOAT, INT32 = ir.DataType.FLOAT, ir.DataType.INT32
INT64, BOOL = ir.DataType.INT64, ir.DataType.BOOL
Operand = ir.Value | npt.NDArray[Any] | np.generic | float


class Writer(Protocol):
    """The part of a builder that operators on values need."""

    def operator(self, op_type: str) -> Callable[..., Value]: ...
    def operand_like(self, reference: ir.Value, number: float, /) -> Value: ...


_WRITERS: ContextVar[tuple[Writer, ...]] = ContextVar("netconv.writers", default=())


def open_writer(writer: Writer) -> None:
    """Create operators between values with `writer` from now on."""
    _WRITERS.set((*_WRITERS.get(), writer))


def close_writer() -> None:
    """Undo the last `open_writer`."""
    _WRITERS.set(_WRITERS.get()[:-1])


class Value(ir.Value):
    """A value of the graph with Python's operators.

    | Python | ONNX |
    |---|---|
    | `x + y`, `x - y`, `x * y`, `x ** y`, `x @ y` | Add, Sub, Mul, Pow, MatMul |
    | `x / y` | Div, which truncates integers |
    | `x % y` | Mod of integers, with the sign of the divisor |
    | `x < y`, `x <= y`, `x > y`, `x >= y` | Less, LessOrEqual, Greater, GreaterOrEqual |
    | `x & y`, `x \\| y`, `x ^ y`, `~x` | And, Or, Xor, Not; BitwiseAnd .. of integers |
    | `-x` | Neg |
    | `x[:, 2:5]`, `x[..., -1:]`, `x[::-1]` | Slice of the axes that are shortened |
    | `x[..., 3]`, `x[:, 0]` | Gather of one index of an axis, which is removed |
    | `x[:, None]`, `x[..., None]` | Unsqueeze |

    A Python number takes the type of the other operand; an array keeps its own, and cannot be
    compared from the left (NumPy turns `array < x` into `x > array`: write `b.Less(array, x)`).
    `==` and `hash` are those of the object, so that values can be kept in sets and dictionaries:
    elements are compared by `b.Equal(x, y)`. A comparison is a node, too: `0 < x < 1` does not
    work as in mathematics.
    """

    __slots__ = ()
    __array_ufunc__ = None  # makes NumPy leave `array * value` to the value
    __iter__ = None  # a value with slices is no sequence

    def __add__(self, other: Operand) -> Value:
        return _write("Add", self, other)

    def __radd__(self, other: Operand) -> Value:
        return _reflected("Add", self, other)

    def __sub__(self, other: Operand) -> Value:
        return _write("Sub", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return _reflected("Sub", self, other)

    def __mul__(self, other: Operand) -> Value:
        return _write("Mul", self, other)

    def __rmul__(self, other: Operand) -> Value:
        return _reflected("Mul", self, other)

    def __truediv__(self, other: Operand) -> Value:
        return _write("Div", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return _reflected("Div", self, other)

    def __mod__(self, other: Operand) -> Value:
        return _write("Mod", self, other)

    def __rmod__(self, other: Operand) -> Value:
        return _reflected("Mod", self, other)

    def __pow__(self, other: Operand) -> Value:
        return _write("Pow", self, other)

    def __rpow__(self, other: Operand) -> Value:
        return _reflected("Pow", self, other)

    def __matmul__(self, other: Operand) -> Value:
        return _write("MatMul", self, other)

    def __rmatmul__(self, other: Operand) -> Value:
        return _reflected("MatMul", self, other)

    def __and__(self, other: Operand) -> Value:
        return _write(_logical("And", self), self, other)

    def __rand__(self, other: Operand) -> Value:
        return _reflected(_logical("And", self), self, other)

    def __or__(self, other: Operand) -> Value:
        return _write(_logical("Or", self), self, other)

    def __ror__(self, other: Operand) -> Value:
        return _reflected(_logical("Or", self), self, other)

    def __xor__(self, other: Operand) -> Value:
        return _write(_logical("Xor", self), self, other)

    def __rxor__(self, other: Operand) -> Value:
        return _reflected(_logical("Xor", self), self, other)

    def __lt__(self, other: Operand) -> Value:
        return _write("Less", self, other)

    def __le__(self, other: Operand) -> Value:
        return _write("LessOrEqual", self, other)

    def __gt__(self, other: Operand) -> Value:
        return _write("Greater", self, other)

    def __ge__(self, other: Operand) -> Value:
        return _write("GreaterOrEqual", self, other)

    def __getitem__(self, positions: Any) -> Value:
        positions = positions if isinstance(positions, tuple) else (positions,)
        front = positions.index(...) if ... in positions else len(positions)
        sides = positions[:front], positions[front + 1 :]
        y = self._chosen(*([p for p in side if p is not None] for side in sides))
        kept = [[p for p in side if p is None or isinstance(p, slice)] for side in sides]
        new = [axis for axis, p in _by_axis(*kept) if p is None]
        return writer().operator("Unsqueeze")(y, new) if new else y

    def _chosen(self, front: list[Any], behind: list[Any]) -> Value:
        """Apply slices and indices to the first and to the last axes."""
        chosen = _by_axis(front, behind)
        write, x = writer().operator, self
        parts = [
            (*_bounds(part), axis, part.step or 1)
            for axis, part in chosen
            if isinstance(part, slice) and part != slice(None)
        ]
        if parts:
            starts, ends, sliced, steps = (list(column) for column in zip(*parts, strict=True))
            x = write("Slice")(x, starts, ends, sliced, *(() if set(steps) == {1} else (steps,)))
        # from the middle to both ends, so that removed axes do not shift the others
        for axis, index in sorted(chosen, key=lambda pair: -abs(pair[0])):
            if not isinstance(index, slice):
                x = write("Gather")(x, index, axis=axis)
        return x

    def __neg__(self) -> Value:
        return writer().operator("Neg")(self)

    def __invert__(self) -> Value:
        return writer().operator(_logical("Not", self))(self)


@overload
def with_operators(value: ir.Value) -> Value: ...
@overload
def with_operators(value: T) -> T: ...
def with_operators(value: Any) -> Any:
    """Add operators to a value that onnx_ir or a reader created, and return the same object.

    The value's class is changed to `Value`, which adds no data, so its identity, uses and
    dictionary entries are preserved. Other objects are returned unchanged.
    """
    if type(value) is ir.Value:
        value.__class__ = Value
    return value


def stack(values: Iterable[ir.Value], axis: int = -1) -> Value:
    """Stack values along a new axis, as in NumPy."""
    write = writer().operator
    return write("Concat")(*(write("Unsqueeze")(v, [axis]) for v in values), axis=axis)


def optional(node: ir.Node, index: int) -> Value | None:
    """Return operand `index` of a node, or None if it is left out."""
    return with_operators(node.inputs[index]) if index < len(node.inputs) else None


def operand(node: ir.Node, index: int = 0) -> Value:
    """Return operand `index` of a node; raise MappingError if it is left out."""
    value = optional(node, index)
    if value is None:
        raise MappingError(f"input {index} is absent")
    return value


def operands(node: ir.Node, count: int) -> list[Any]:
    """Return all operands of a node, at least `count`; None for each that is left out."""
    found = [with_operators(v) for v in node.inputs]
    return found + [None] * (count - len(found))


def array_type(value: ir.Value) -> np.dtype[Any]:
    """Return the elements' numpy type; float32 if it is unknown."""
    return (value.dtype or ir.DataType.FLOAT).numpy()


def type_name(dtype: ir.DataType | None) -> str:
    """Return the name of a type for messages: float32 and float64, not FLOAT and DOUBLE."""
    if dtype is None:
        return "unknown"
    names = {ir.DataType.FLOAT: "float32", ir.DataType.DOUBLE: "float64"}
    return names.get(dtype, dtype.name.lower())


def known_sizes(value: ir.Value | None) -> list[int | None] | None:
    """Return the sizes, None for unknown ones; None if not even the rank is known."""
    if value is None or value.shape is None:
        return None
    return [d if isinstance(d, int) else None for d in value.shape]


def producer_of(value: ir.Value | None) -> ir.Node | None:
    """Return the node that computes a value; None for inputs, constants, and operands that are left
    out.
    """
    return None if value is None else value.producer()


def producer_if(value: ir.Value | None, op_type: str) -> ir.Node | None:
    """Return the producer of a value if it is the standard operator `op_type`, else None."""
    node = producer_of(value)
    return node if node is not None and node.op_type == op_type and not node.domain else None


def producer_operand(value: ir.Value | None, op_type: str) -> Value | None:
    """Return the first operand of a value's producer if that is the standard operator `op_type`,
    else None.
    """
    node = producer_if(value, op_type)
    return None if node is None else optional(node, 0)


def _by_axis(front: list[Any], behind: list[Any]) -> list[tuple[int, Any]]:
    """Return the axes, the first ones and the last ones, with their slices and indices."""
    return [*enumerate(front), *enumerate(behind, -len(behind))]


def _bounds(part: slice) -> tuple[int, int]:
    """Return start and end of a slice; omitted bounds extend to the end of the axis."""
    first, last = (0, MAX) if part.step is None or part.step > 0 else (-1, -MAX)
    return first if part.start is None else part.start, last if part.stop is None else part.stop


def writer() -> Writer:
    """Return the builder whose `with` block is open."""
    writers = _WRITERS.get()
    if not writers:
        raise RuntimeError("operators between values need a builder's with block")
    return writers[-1]


def _write(op_type: str, x: Value, other: Operand) -> Value:
    y = _operand(x, other)
    return NotImplemented if y is NotImplemented else writer().operator(op_type)(x, y)


def _reflected(op_type: str, x: Value, other: Operand) -> Value:
    y = _operand(x, other)
    return NotImplemented if y is NotImplemented else writer().operator(op_type)(y, x)


def _logical(op_type: str, x: Value) -> str:
    """Return the name of the operator; for integers that of the bitwise operator."""
    return op_type if x.dtype in (None, ir.DataType.BOOL) else f"Bitwise{op_type}"


def _operand(x: Value, other: Operand) -> Any:
    """Convert `other` to an operand for use with `x`: a number takes the type of `x`."""
    if isinstance(other, ir.Value | np.ndarray | np.generic):
        return other
    if not isinstance(other, int | float):
        return NotImplemented
    return writer().operand_like(x, other)
