"""The parts of a row.

A field owns parts of the operator and of the layer, and converts them in both directions: `lift`
reads the foreign layer and completes the canonical node, `lower` does the reverse. It declares the
parts that it owns, so that leftovers are detected:

`names`   attributes of the operator          `keys`   attributes of the layer
`inputs`  indices of the operator's inputs    `blobs`  weights of the layer

`ignored` are the `names` that the layer cannot express and that are dropped on purpose; a note
informs the user if an operator has one of them.

A field may also add nodes or layers to those of the row: before it at once, after it with
`after_emit` of the context.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, no_match
from converter.graph.demands import representable
from converter.graph.infer import constant, rank_of
from converter.graph.value import Value, array_type
from converter.mapping.codecs import Codec, Kind, same
from converter.mapping.context import REQUIRED, LiftContext, LowerContext, Results
from converter.mapping.node import Node, Parameters
from converter.record import record

MISSING: Any = REQUIRED


class Field:
    """The base class, which owns and converts no parts. See the module."""

    names: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    blobs: tuple[str, ...] = ()
    inputs: tuple[int, ...] = ()
    ignored: tuple[str, ...] = ()
    folds: bool = False  # the parts it owns are lifted into another form that computes the same

    def lift(self, r: Any) -> None:
        """Complete `r.node` with the parts of `r.layer` that the field covers; `r` is the format's
        LiftContext.
        """

    def lower(self, w: Any) -> None:
        """Complete `w.layer` with the parts of `w.node` that the field covers; `w` is the format's
        LowerContext.
        """


def equal(a: Any, b: Any) -> bool:
    """Compare attributes: numbers by value (1 == "1" is not decided here), lists element by
    element.
    """
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return bool(np.array_equal(np.asarray(a), np.asarray(b)))
    return bool(a == b)


# attributes --------------------------------------------------------------------------------------


@record
class Attr(Field):
    """An attribute of the operator <-> one of the layer, through a codec or by its type.

    `key`           the same as `name` if left out
    `default`       the value if the layer does not have the key; MISSING makes the key required,
                    None leaves the operator's attribute unset
    `node_default`  the value if the operator does not have the attribute (the defaults of ONNX's
                    schema need not be repeated)
    `omit`          do not write the key if it equals `default`
    `since`         the first version in which layers have the key: older ones mean `default`
    """

    name: str
    key: str = ""
    kind: Kind | Codec = same
    default: Any = MISSING
    node_default: Any = MISSING
    omit: bool = False
    since: int = 0

    def __post_init__(self) -> None:
        self.key = self.key or self.name
        self.names = (self.name,)
        self.keys = (self.key,)

    def lift(self, r: Any) -> None:
        value = r.attr(self.key, self.kind, self.default)
        if value is not None:
            r.node.attrs[self.name] = value

    def lower(self, w: Any) -> None:
        value = w.node.attrs.get(self.name, self.node_default)
        if value is MISSING:
            if self.default is MISSING:
                raise MappingError(f"required attribute {self.name!r} is absent")
            return
        too_old = bool(w.version) and w.version < self.since
        if too_old and not equal(value, self.default):
            raise MappingError(f"{self.name}={value!r} needs version {self.since}", "X206")
        if value is not None and not too_old and not (self.omit and equal(value, self.default)):
            w.layer.attrs[self.key] = w.spell(value, self.kind)


def attrs(**kinds: Any) -> tuple[Attr, ...]:
    """Return attributes with the same name on both sides: a type makes one required, a default
    value implies its type.

    attrs(count=int, clip=False, framework="") is a required integer, a flag and a word.
    """

    def one(name: str, given: Any) -> Attr:
        if isinstance(given, type | Codec):
            return Attr(name, kind=given)
        default = int(given) if isinstance(given, bool) else given
        return Attr(name, kind=type(given), default=default)

    return tuple(one(name, given) for name, given in kinds.items())


@record
class RequireKey(Field):
    """A constant value of the layer that identifies the row.

    `absent`: it may be left out when reading.
    """

    key: str
    value: Any
    absent: bool = False
    kind: Kind | Codec = same

    def __post_init__(self) -> None:
        self.keys = (self.key,)

    def lift(self, r: Any) -> None:
        found = r.attr(self.key, self.kind, self.value if self.absent else None)
        if found is None or not equal(found, self.value):
            shown = "(absent)" if found is None else repr(found)
            error = MappingError(
                f"{self.key}={shown} is not supported here (only {self.value!r})", "R110"
            )
            error.choice = (self.key, shown, self.value)
            raise error

    def lower(self, w: Any) -> None:
        w.layer.attrs[self.key] = w.spell(self.value, self.kind)


class Nested(Field):
    """Fields of a message nested in the layer's: the key holds a dictionary, without which the row
    does not match.
    """

    def __init__(self, key: str, *fields: Field) -> None:
        self.key, self.fields, self.keys = key, fields, (key,)
        self.names = tuple(n for f in fields for n in f.names)
        self.inputs = tuple(i for f in fields for i in f.inputs)
        self.blobs = tuple(b for f in fields for b in f.blobs)

    def lift(self, r: Any) -> None:
        found = r.layer.attrs.get(self.key)
        if not isinstance(found, dict):
            error = no_match(f"{self.key!r} is absent", "R110")
            error.choice = ("message", "(absent)", self.key)
            raise error
        owned = {k for f in self.fields for k in f.keys}
        if unknown := [key for key in found if key not in owned]:
            raise MappingError(f"attribute {self.key}.{unknown[0]} is not known", "R111")
        outer = r.layer
        r.layer = replace(outer, attrs=Parameters(found))
        try:
            for f in self.fields:
                f.lift(r)
        finally:
            r.layer = outer

    def lower(self, w: Any) -> None:
        outer = w.layer.attrs
        w.layer.attrs = {}
        try:
            for f in self.fields:
                f.lower(w)
        finally:
            w.layer.attrs = {**outer, self.key: w.layer.attrs}


@record
class RequireAttr(Field):
    """An attribute that the operator may only have with this value, because the layer cannot
    express others.
    """

    name: str
    value: Any

    def __post_init__(self) -> None:
        self.names = (self.name,)

    def lift(self, r: LiftContext) -> None:
        if self.value is not None:
            r.node.attrs[self.name] = self.value

    def lower(self, w: LowerContext) -> None:
        found = w.node.attrs.get(self.name, self.value)
        if not equal(found, self.value):
            raise MappingError(f"{self.name}={found!r} is not supported (only {self.value!r})")


@record
class Ignore(Field):
    """Keys without a meaning (informative, or redundant with shapes); they are never written."""

    keys: tuple[str, ...] = ()


def ignore(*keys: str) -> Ignore:
    """Return the field for attributes of the layer that need not be read."""
    return Ignore(keys)


@record
class IgnoreInputs(Field):
    """Operands of the layer that contain no information, or information that the layer also has
    elsewhere.
    """

    positions: tuple[int, ...]

    def lift(self, r: Any) -> None:
        for i in self.positions:
            r.optional(i)  # an operand that is not read refuses the layer


def ignore_inputs(*positions: int) -> IgnoreInputs:
    """Return the field for inputs of the layer that need not be read."""
    return IgnoreInputs(positions)


@record
class WriteKey(Field):
    """A key that is always written with the same value, and ignored when reading."""

    key: str
    value: Any

    def __post_init__(self) -> None:
        self.keys = (self.key,)

    def lower(self, w: LowerContext) -> None:
        w.set(**{self.key: self.value})


@record
class ImpliedAttrs(Field):
    """Attributes of the operator that the layer need not store, because they follow from the rest
    of it or have no meaning.
    """

    names: tuple[str, ...] = ()


@record
class Group(Field):
    """Several attributes at once; one expression for each direction.

    `lift_(r)` returns attributes of the operator, `lower_(w)` those of the layer. Both may inspect
    the types and shapes of inputs and outputs, but nothing beyond these.
    """

    names: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    lift_: Callable[[Any], dict[str, Any]] = field(default=lambda r: {})
    lower_: Callable[[Any], dict[str, Any]] = field(default=lambda w: {})
    blobs: tuple[str, ...] = ()

    def lift(self, r: LiftContext) -> None:
        try:
            r.node.attrs |= self.lift_(r)
        except KeyError as e:
            raise MappingError(f"required attribute {e.args[0]!r} is absent", "R110") from None

    def lower(self, w: LowerContext) -> None:
        try:
            w.layer.attrs |= self.lower_(w)
        except KeyError as e:
            raise MappingError(f"required attribute {e.args[0]!r} is absent") from None


def pads(begin: str, end: str, kind: Kind | Codec = same) -> Group:
    """Return a field for ONNX's pads=[b0,b1,..,e0,e1,..] <-> two lists."""

    def lift(r: LiftContext) -> dict[str, Any]:
        found = r.layer.attrs
        return {"pads": [*r.parse(begin, found[begin], kind), *r.parse(end, found[end], kind)]}

    def lower(w: LowerContext) -> dict[str, Any]:
        p = w.node.attrs["pads"]
        half = len(p) // 2
        return {begin: w.spell(p[:half], kind), end: w.spell(p[half:], kind)}

    return Group(("pads",), (begin, end), lift, lower)


def spread(name: str, *keys: str, kind: Kind | Codec = same, default: Any = REQUIRED) -> Group:
    """Return a field for [a, b, ...] <-> scalars under `keys` in the same order.

    `default` is the value of scalars that are left out.
    """
    defaults = {} if default is REQUIRED else {name: [default] * len(keys)}

    def lift(r: LiftContext) -> dict[str, Any]:
        return {name: [r.attr(k, kind, default) for k in keys]}

    def lower(w: LowerContext) -> dict[str, Any]:
        values = w.node.attrs.get(name) or defaults[name]
        if len(values) != len(keys):
            raise MappingError(f"{name} must have {len(keys)} elements, got {len(values)}")
        return {k: w.spell(v, kind) for k, v in zip(keys, values, strict=True)}

    return Group((name,), keys, lift, lower)


# inputs ------------------------------------------------------------------------------------------


@record
class Const(Field):
    """A constant *input* of the operator <-> an attribute of the layer (axes, bounds, padding ...).

    `node_default`  value for the layer if the input is left out (MISSING: the key is not written)
    `default`       as in Attr
    `dtype`         of the canonical constant; None means the type of input 0
    """

    index: int
    key: str
    kind: Kind | Codec = same
    dtype: Any = np.int64
    node_default: Any = MISSING
    default: Any = MISSING

    def __post_init__(self) -> None:
        self.keys = (self.key,)
        self.inputs = (self.index,)

    def lift(self, r: LiftContext) -> None:
        value = r.attr(self.key, self.kind, self.default)
        if value is not None:
            data = representable(value, self.dtype or _dtype(r.node), self.key)
            r.set_input(self.index, r.b.const(data, self.key))

    def lower(self, w: LowerContext) -> None:
        source = w.node.input(self.index)
        if source is None:
            if self.node_default is not MISSING:
                w.layer.attrs[self.key] = w.spell(self.node_default, self.kind)
            elif self.default is MISSING:
                message = f"input {self.index} is absent, but the target needs {self.key!r}"
                raise MappingError(message)
            return
        array = constant(source)
        if array is None:
            message = f"input {self.index} ({source.name}) must be constant for {self.key!r}"
            raise MappingError(message)
        if self.kind in (int, float, bool):
            if array.size != 1:
                raise MappingError(f"{self.key} must be one number, got {array.size}")
            array = array.reshape(())
        w.layer.attrs[self.key] = w.spell(array.tolist(), self.kind)


def _dtype(node: Node) -> np.dtype[Any]:
    """Return the type of input 0; float32 if it is left out."""
    first = node.input(0)
    return np.dtype(np.float32) if first is None else array_type(first)


@record
class RequireInput(Field):
    """An input of the operator that always has this value, which the layer implies (the bounds of a
    Relu6 ...).
    """

    index: int
    value: float

    def __post_init__(self) -> None:
        self.inputs = (self.index,)

    def lift(self, r: LiftContext) -> None:
        dtype = _dtype(r.node)
        number = max(self.value, 0) if dtype.kind == "u" else self.value
        value = r.b.const(np.array(number, dtype))
        inputs = r.node.inputs
        inputs.extend([None] * (self.index - len(inputs)))
        inputs.insert(self.index, value)

    def lower(self, w: LowerContext) -> None:
        array = constant(w.node.input(self.index))
        if array is None or array.size != 1 or array.reshape(-1)[0] != self.value:
            raise no_match(f"input {self.index} must be {self.value:g}")


@record
class AttrInput(Field):
    """An attribute of the operator <-> a constant input of the layer (alpha of Selu, the axis of a
    Split ...).

    `dtype`    of the layer's constant; None means the type of input 0
    `shape`    of the layer's constant, if the attribute is one number
    `default`  the value if the layer does not have the input; MISSING makes it required
    `omit`     do not write the input if the attribute equals `default`
    """

    name: str
    index: int
    kind: Kind = int
    dtype: Any = np.int64
    shape: tuple[int, ...] = ()
    default: Any = MISSING
    omit: bool = False

    def __post_init__(self) -> None:
        self.names = (self.name,)

    def lift(self, r: Any) -> None:
        value = r.optional(self.index)
        if value is None:
            if self.default is MISSING:
                raise MappingError(f"input {self.index} is absent", "R105")
            found = self.default
        else:
            array = r.known(value, self.name)
            if array.dtype.kind == "f" and not issubclass(self.kind, float):
                raise MappingError(f"{self.name} must be integers", "R105")
            if issubclass(self.kind, list):
                found = array.reshape(-1).tolist()
            elif array.size == 1:
                found = array.reshape(-1)[0].item()
            else:
                raise MappingError(f"{self.name} must be one number, got {array.size}", "R105")
        if found is not None:
            r.node.attrs[self.name] = found
        if self.index < len(r.node.inputs):
            r.node.inputs[self.index] = None

    def lower(self, w: Any) -> None:
        value = w.node.attrs.get(self.name)
        if value is None:
            if self.default is MISSING:
                raise MappingError(f"required attribute {self.name!r} is absent")
            return
        if self.omit and equal(value, self.default):
            return
        array = np.asarray(value, self.dtype or _dtype(w.node))
        array = array.reshape(self.shape) if array.size == 1 and array.ndim == 0 else array
        inputs = w.layer.inputs
        inputs.extend([None] * (self.index + 1 - len(inputs)))
        inputs[self.index] = w.const(array, self.name)


@record
class Weight(Field):
    """A constant input of the operator <-> a blob of the layer.

    `perm` permutes the axes to the layer's order (a view, nothing is copied); it may be a function
    of the rank. `optional`: the input and the blob may both be absent. `shape(r)`: the shape, in
    the operator's order, of a blob that is stored flat.
    """

    blob: str
    index: int
    perm: Sequence[int] | Callable[[int], Sequence[int]] | None = None
    optional: bool = False
    shape: Callable[[Any], Sequence[int]] | None = None

    def __post_init__(self) -> None:
        self.blobs = (self.blob,)
        self.inputs = (self.index,)

    def _perm(self, rank: int) -> Sequence[int] | None:
        return self.perm(rank) if callable(self.perm) else self.perm

    def lift(self, r: LiftContext) -> None:
        array = r.layer.blobs.get(self.blob)
        if array is None:
            if not self.optional:
                raise MappingError(f"the weights {self.blob!r} are absent", "R110")
            return
        if isinstance(array, ir.Value):
            r.set_input(self.index, array)
            return
        array = np.asarray(array)
        if self.shape is not None:
            array = _reshape(array, self.shape(r), self.blob)
        perm = self._perm(array.ndim)
        if perm is not None:
            if len(perm) != array.ndim:
                message = f"{self.blob} must have {len(perm)} axes, got {array.ndim}"
                raise MappingError(message, "R105")
            array = array.transpose(np.argsort(np.asarray(perm)))
        name = f"{r.layer.name}.{self.blob}" if r.layer.name else self.blob
        r.set_input(self.index, r.b.const(array, name))

    def lower(self, w: LowerContext) -> None:
        source = w.node.input(self.index)
        if source is None:
            if not self.optional:
                raise MappingError(
                    f"input {self.index} is absent, but the target needs {self.blob!r}"
                )
            return
        array = constant(source)
        if array is None:
            raise MappingError(
                f"input {self.index} ({source.name}) must be constant, because "
                f"the target stores {self.blob!r} with the layer"
            )
        perm = self._perm(array.ndim)
        w.layer.blobs[self.blob] = array if perm is None else array.transpose(perm)


def _reshape(array: Any, shape: Sequence[int], blob: str) -> Any:
    count = int(np.prod([int(s) for s in shape]))
    if min(shape, default=0) < 0 or array.size != count:
        needed = f"{'x'.join(map(str, shape))} = {count} are needed"
        message = f"the weights {blob!r} have {array.size} elements, but {needed}"
        raise MappingError(message, "R103")
    return array.reshape(shape)


@record
class InputType(Field):
    """Inputs that the operator requires in one type while the layer accepts others: reading inserts
    a Cast before the operator.

    Constants stay constants. `dtype` None: the operator accepts any type; `also`: further types
    that it accepts. `flat`: the operator requires a vector, `scalar`: a scalar; the layer accepts
    either. `written`: the type that the layer requires, converted by `cast` of the format's
    Writing.
    """

    positions: tuple[int, ...]
    dtype: ir.DataType | None = ir.DataType.INT64
    flat: bool = False
    written: ir.DataType | None = None
    also: tuple[ir.DataType, ...] = ()
    scalar: bool = False

    def lift(self, r: Any) -> None:
        changes = self.dtype is not None or self.flat or self.scalar
        for i in self.positions if changes else ():
            if (value := r.node.input(i)) is not None:
                if self.dtype is not None and value.dtype not in self.also:
                    value = r.cast(value, self.dtype)
                if self.flat and rank_of(value) != 1:
                    value = r.b.op("Reshape", value, [-1])
                if self.scalar and rank_of(value) != 0:
                    value = r.b.op("Reshape", value, [])
                r.node.inputs[i] = value

    def lower(self, w: Any) -> None:
        for i in () if self.written is None else self.positions:
            if i < len(w.layer.inputs) and (value := w.layer.inputs[i]) is not None:
                own = value.dtype in self.also
                w.layer.inputs[i] = value if own else w.cast(value, self.written)


def any_type(*positions: int) -> InputType:
    """Return a field for inputs that are accepted in any type; without positions, for all
    inputs.
    """
    return InputType(positions or tuple(range(64)), None)


@record
class Outputs(Field):
    """Outputs that the layer always has, of these types (None: the type of input 0).

    The operator may leave out the last ones.
    """

    types: tuple[ir.DataType | None, ...]

    def lift(self, r: LiftContext) -> None:
        r.outputs = len(self.types)

    def lower(self, w: LowerContext) -> None:
        outputs = w.layer.outputs
        for i, dtype in list(enumerate(self.types))[len(outputs) :]:
            outputs.append(w.temporary(f"output{i}", dtype or w.input(0).dtype))


@record
class OutputType(Field):
    """A key of the layer that specifies the type of outputs, which the operator computes in
    `dtype`: reading inserts a Cast after it.

    `codec` converts the numbers of ONNX's data types; `default` is the type if the layer lacks the
    key.
    """

    key: str
    codec: Codec
    positions: tuple[int, ...] = (0,)
    dtype: ir.DataType = ir.DataType.INT64
    default: ir.DataType = ir.DataType.INT64

    def __post_init__(self) -> None:
        self.keys = (self.key,)

    def lift(self, r: LiftContext) -> None:
        to = ir.DataType(r.attr(self.key, self.codec, int(self.default)))

        def finish(results: Results) -> Results:
            typed = enumerate(results)
            return [r.cast(v, to) if i in self.positions else v for i, v in typed]

        r.after_emit(finish)

    def lower(self, w: LowerContext) -> None:
        w.layer.attrs[self.key] = w.spell(int(self.dtype), self.codec)


@record
class Detail(Field):
    """Short functions for details of a row that no other field covers. `read(r)` completes `r.node`
    as `lift` of a field does, `write(w)` completes `w.layer` as `lower` does. The field covers the
    keys and inputs that these functions use.
    """

    read: Callable[[Any], None] | None = None
    write: Callable[[Any], None] | None = None
    names: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    inputs: tuple[int, ...] = ()
    blobs: tuple[str, ...] = ()
    folds: bool = False

    def lift(self, r: Any) -> None:
        if self.read is not None:
            self.read(r)

    def lower(self, w: Any) -> None:
        if self.write is not None:
            self.write(w)


# conditions and hooks ----------------------------------------------------------------------------


@record
class Guard(Field):
    """A condition on shapes, types or versions; `reason` is the message of the refusal.

    `lower_if(w)` and `lift_if(r)` return whether the row applies; they are called before any other
    field. `code` is the code of the refusal.
    """

    reason: str
    lower_if: Callable[[Any], bool] | None = None
    lift_if: Callable[[Any], bool] | None = None
    code: str = "X202"

    def lift(self, r: LiftContext) -> None:
        if self.lift_if is not None and not self.lift_if(r):
            raise MappingError(self.reason, self.code)

    def lower(self, w: LowerContext) -> None:
        if self.lower_if is not None and not self.lower_if(w):
            raise MappingError(self.reason, self.code)


# layers of two operands, of operators that have any number
TWO = Guard("exactly two operands are supported", lambda w: len(w.node.inputs) == 2)
ONE_TYPE = Guard("both operands must have one type", lambda w: w.data.dtype == w.input(1).dtype)


class FirstResult(Guard):
    """A condition that only the first result has consumers, because the layer has no others."""

    def lower(self, w: LowerContext) -> None:
        if any(map(w.used, range(1, len(w.node.outputs)))):
            raise MappingError(self.reason)
        w.layer.outputs = w.layer.outputs[:1]


@record
class Hook(Field):
    """Functions for the irregular part of a row; see `op` in rules.py, which has them as options.

    `before_lift(r)`      changes `r.node`, inserts nodes before it, or returns its first input
    `after_lift(r, y)`    returns the layer's first result, given the node's first result
    `before_lower(w)`     changes `w.layer`, or inserts layers before it
    `after_lower(w)`      adds layers after it
    """

    before_lift: Callable[[Any], ir.Value | None] | None = None
    after_lift: Callable[[Any, Value], ir.Value] | None = None
    before_lower: Callable[[Any], None] | None = None
    after_lower: Callable[[Any], None] | None = None

    def lift(self, r: LiftContext) -> None:
        if self.before_lift is not None and (x := self.before_lift(r)) is not None:
            r.data = x
        if (after := self.after_lift) is not None:
            r.after_first(lambda y: after(r, y))

    def lower(self, w: LowerContext) -> None:
        if self.before_lower is not None:
            self.before_lower(w)
        if (after := self.after_lower) is not None:
            w.after_emit(lambda: after(w))
