"""Contexts of rows and custom converters: the layer being read, or the operator being written.

Reading   one foreign layer that is lifted into the graph: typed attributes, operands, constants,
          and the builder
Writing   one canonical operator that is lowered into layers: attributes with their defaults,
          operands, constants, and `emit`

A format subclasses them if it has more information, such as the version of an operation set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, MappingError, Where
from converter.graph import CHANNELS_LAST_DOMAIN, sizes
from converter.graph.build import Builder
from converter.graph.channels_last import LAYOUT_SENSITIVE
from converter.graph.demands import at_least, of_counts, of_length
from converter.graph.infer import Array, constant, known
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.value import Value, with_operators
from converter.mapping.codecs import PLAIN, Codec, Floats, Kind, codec_of
from converter.mapping.node import Layer, Node, Operands, Parameters

REQUIRED: Any = object()
Results = list[ir.Value]
FIX_INPUTS, rank, static = sizes.FIX_INPUTS, sizes.rank, sizes.static


class Row(Protocol):
    """The interface of a rule that contexts use."""

    @property
    def op(self) -> str: ...
    @property
    def domain(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def fields(self) -> Sequence[Any]: ...
    def owned(self, side: str, /) -> Any: ...


class Layers(Protocol):
    """The interface of the collection of written layers that contexts use."""

    name: str
    version: int
    layers: list[Layer]
    notes: list[Diagnostic]

    @property
    def spelling(self) -> Mapping[Kind, Codec]: ...
    def check(self, layer: Layer, /) -> None: ...
    def value(
        self, name: str, dtype: ir.DataType | None, shape: Iterable[Any] | None
    ) -> ir.Value: ...
    def constant(self, array: Any, name: str = "const") -> ir.Value: ...
    def add(
        self,
        kind: str,
        inputs: Sequence[ir.Value | None],
        outputs: Sequence[ir.Value],
        attrs: dict[str, Any] | None = None,
        *,
        extra: Any = None,
    ) -> Layer: ...


class LiftContext:
    """One layer of a foreign format that is lifted into the graph.

    `layer`    the layer, with the graph's values as its inputs
    `b`        the builder, for nodes before and after the operator
    `version`  of the layer: an operation set, a specification version; 0 if the format has none
    `node`     the canonical operator that the fields of a row complete; only while a row is applied
    `outputs`  how many outputs that operator has
    `forwarded` existing values that are the results, in which case no operator is created
    `rule`     the row that is being applied, or the last one that was
    """

    node: Node
    outputs: int
    forwarded: Results | None
    rule: Row | None = None

    def __init__(
        self,
        layer: Layer,
        b: Builder,
        version: int = 0,
        spelling: Mapping[Kind, Codec] = PLAIN,
        channels_last: bool = False,
    ) -> None:
        self.layer, self.b, self.version = layer, b, version
        for value in layer.inputs:
            with_operators(value)
        layer.inputs = Operands(layer.inputs)
        layer.attrs, layer.blobs = Parameters(layer.attrs), Parameters(layer.blobs)
        self._after_emit: list[Callable[[Results], Results]] = []
        self.spelling, self.channels_last = spelling, channels_last

    # attributes ----------------------------------------------------------------------------------

    def parse(self, key: str, value: Any, kind: Kind | Codec) -> Any:
        """Convert the value of `key` to its canonical form; raise MappingError R110 if it is
        invalid.
        """
        try:
            return codec_of(kind, self.spelling).lift(value)
        except (ValueError, TypeError, OverflowError):
            raise MappingError(f"{key}={value!r} is not a valid value", "R110") from None
        except MappingError as e:
            raise MappingError(f"{key}: {e}", e.code) from None

    def attr(self, key: str, kind: Kind | Codec, default: Any = REQUIRED) -> Any:
        """Return an attribute of the layer; raise MappingError R110 if it is absent and has no
        default.
        """
        if key in self.layer.attrs:
            return self.parse(key, self.layer.attrs[key], kind)
        if default is REQUIRED:
            raise MappingError(f"required attribute {key!r} is absent", "R110")
        return default

    def count(self, key: str, default: Any = REQUIRED) -> int:
        """Return an integer attribute, which must be at least 1."""
        n = int(self.attr(key, int, default))
        at_least(1, **{key: n})
        return n

    def count_list(self, key: str, n: int, default: Any = REQUIRED) -> list[int]:
        """Return a list attribute of `n` integers, each at least 1."""
        found: list[int] = self.attr(key, list, default)
        of_counts(n, **{key: found})
        return found

    def number_list(self, key: str, n: int, default: Any = REQUIRED) -> list[float]:
        """Return a list attribute of `n` numbers."""
        found: list[float] = self.attr(key, Floats, default)
        of_length(n, **{key: found})
        return found

    def attributes(self, *ignored: str, **kinds: Any) -> SimpleNamespace:
        """Return several attributes at once: a type makes one required, a default value implies its
        type.

        A keyword `exclude_pad` also matches the key `exclude-pad`. Raise MappingError R111 if the
        layer has an attribute that is neither requested nor ignored.
        """
        spelled = {name.replace("-", "_"): name for name in self.layer.attrs}
        for key in spelled:
            if key not in kinds and key not in ignored:
                raise MappingError(f"attribute {spelled[key]!r} is not known", "R111")
        values = {}
        for key, given in kinds.items():
            required = isinstance(given, type | Codec)
            kind = given if required else type(given)
            values[key] = self.attr(spelled.get(key, key), kind, REQUIRED if required else given)
        return SimpleNamespace(**values)

    # operands ------------------------------------------------------------------------------------

    def input(self, index: int) -> Value:
        """Return operand `index`; raise MappingError R105 if it is left out."""
        value = self.optional(index)
        if value is None:
            raise MappingError(f"input {index} is absent", "R105")
        return value

    def inputs(self, least: int, most: int | None = None) -> list[ir.Value | None]:
        """Return the current inputs of the operator.

        Raise MappingError R105 unless there are `least` to `most` of them (by default exactly
        `least`).
        """
        inputs, most = self.node.inputs, least if most is None else most
        if not least <= len(inputs) <= most:
            needed = f"{least}" if least == most else f"{least} to {most}"
            raise MappingError(f"{needed} inputs are needed, got {len(inputs)}", "R105")
        return inputs

    def optional(self, index: int) -> Value | None:
        """Return an input of the layer, None if it is absent."""
        inputs = self.layer.inputs
        return with_operators(inputs[index]) if index < len(inputs) else None

    def known(self, value: ir.Value | None, what: str) -> Array:
        """Return the elements of an operand; raise MappingError X202 if they are unknown at
        conversion time.
        """
        array = known(value)
        if array is None:
            message = f"{what} must be known at conversion time"
            help = "make it constant, or fix the inputs' shapes if it depends on them"
            raise MappingError(message, "X202", help)
        return np.asarray(array)

    def ints(self, index: int, what: str) -> list[int]:
        """Return the integers of an input that is known. Raises MappingError; `what` is its name
        there.
        """
        return as_integers(self.known(self.optional(index), what), what)

    def integers(self, source: str | int, what: str, default: Any = REQUIRED) -> list[int]:
        """Return the integers of an attribute of the layer (`source` is its key) or of a constant
        operand (`source` is its index). A single integer is returned as a list.
        """
        if isinstance(source, int):
            absent = default is not REQUIRED and self.optional(source) is None
            return default if absent else self.ints(source, what)
        if isinstance(self.layer.attrs.get(source), int):
            return [self.attr(source, int)]
        return self.attr(source, list, default)  # type: ignore[no-any-return]

    def number(self, index: int, what: str) -> float:
        """Return the number of an input of one known element. Raises MappingError for others."""
        array = known(self.optional(index))
        if array is None or array.size != 1:
            raise MappingError(f"{what} must be one number that is known at conversion time")
        return float(np.asarray(array).reshape(-1)[0])

    def rank(self, value: ir.Value | int = 0, what: str = "the input") -> int:
        """Return the rank of a value, or of operand number `value`."""
        return rank(self.input(value) if isinstance(value, int) else value, what)

    def static(
        self,
        value: ir.Value | int = 0,
        what: str = "the input",
        axes: int | None = None,
        least: int = 0,
    ) -> tuple[int, ...]:
        """Return the static shape of a value, or of operand number `value`, which must have `axes`
        axes (if given) and at least `least`.
        """
        return static(self.input(value) if isinstance(value, int) else value, what, axes, least)

    # nodes ---------------------------------------------------------------------------------------

    def cast(self, value: ir.Value, dtype: ir.DataType) -> Value:
        """Cast a value to another type; constants stay constants."""
        if value.dtype == dtype:
            return with_operators(value)
        array = known(value) if value.const_value is not None else None
        if array is not None and dtype.numpy().kind in "iufb" and array.dtype.kind in "iufb":
            return self.b.const(array.astype(dtype.numpy()), value.name or "const")
        return self.b.op("Cast", value, to=int(dtype))

    def reshape(self, value: ir.Value, shape: Sequence[int]) -> Value:
        """Reshape a value; a constant stays a constant."""
        return self.b.reshaped(value, shape)

    def transpose(self, value: ir.Value, perm: Sequence[int]) -> Value:
        """Transpose a value.

        A constant stays a constant: a view, unless its elements are computed.
        """
        if list(perm) == list(range(len(perm))):
            return with_operators(value)
        if value.const_value is not None and value.dtype != ir.DataType.STRING:
            permuted = LazyTensor.of(value.const_value).transposed(perm)
            return self.b.const(permuted, value.name or "const")
        return self.b.op("Transpose", value, perm=list(perm))

    # rows ----------------------------------------------------------------------------------------

    def begin(self, rule: Row) -> None:
        """Start to apply a row: set `node` to its operator with the layer's inputs, for the fields
        to complete.
        """
        last = self.channels_last and (rule.domain, rule.op) in LAYOUT_SENSITIVE
        self.layer.inputs = Operands(self.layer.inputs)
        inputs = Operands(self.layer.inputs, self.layer.inputs.read)
        self.node = Node(rule.op, rule.domain, inputs=inputs, last=last)
        self.layer.inputs.read.clear()  # copying them is no reading
        self.outputs, self._after_emit = max(1, len(self.layer.outputs)), []
        self.forwarded, self.rule = None, rule

    def bind(self, operands: Sequence[str]) -> None:
        """Set the operator's inputs to the layer's operands of these names; see `Rule.operands`.

        Formats whose layers have named operands override it.
        """
        raise TypeError(f"{type(self).__name__} has no operands by name: {operands}")

    def set(self, **attrs: Any) -> None:
        """Set attributes of the operator."""
        self.node.attrs |= attrs

    @property
    def data(self) -> Value:
        """Return the current first input of the operator; raises MappingError R105 if it is
        left out.
        """
        value = self.node.input(0)
        if value is None:
            raise MappingError("input 0 is absent", "R105")
        return with_operators(value)

    @data.setter
    def data(self, value: ir.Value) -> None:
        self.node.set_input(0, value)

    def set_input(self, index: int, operand: Any) -> None:
        """Set input `index` of the operator; arrays and Python numbers become constants."""
        self.node.set_input(index, self.b.value(operand))

    def set_inputs(self, *operands: Any) -> None:
        """Set the inputs of the operator; arrays and Python numbers become constants."""
        self.node.inputs = [self.b.value(v) for v in operands]

    def after_emit(self, step: Callable[[Results], Results]) -> None:
        """Register a function that maps the node's results to the layer's results.

        It is called after the node has been created; several functions are called in order.
        """
        self._after_emit.append(step)

    def after_first(self, step: Callable[[Value], ir.Value]) -> None:
        """Register a function that maps the node's first result to the layer's first result.

        It is called after the node has been created.
        """
        self.after_emit(lambda results: [step(with_operators(results[0])), *results[1:]])

    def unread(self) -> list[int]:
        """Return the positions of operands of the layer that nothing has read, and that are no
        inputs of the operator.
        """
        inputs = self.layer.inputs
        assert isinstance(inputs, Operands)
        used = set(inputs.read)
        if self.forwarded is None:
            used.update(v for v in self.node.inputs if v is not None)
        return [i for i, v in enumerate(inputs) if v is not None and v not in used]

    def emit(self) -> Results:
        """Create the node and the nodes after it, and return the results of the row."""
        results = self._made() if self.forwarded is None else self.forwarded
        for step in self._after_emit:
            results = step(results)
        return results

    def _made(self) -> Results:
        node, count = self.node, self.outputs
        if node.last:
            base = {"base_domain": node.domain} if node.domain else {}
            domain, attrs = CHANNELS_LAST_DOMAIN, {**node.attrs, **base}
        else:
            domain, attrs = node.domain, node.attrs
        return list(self.b.ops(node.op, *node.inputs, domain=domain, outputs=count, **attrs))


class LowerContext:
    """One canonical operator that is lowered into foreign layers.

    `node`   the operator, its attributes with the defaults of its schema
    `layer`  the layer that the fields of a row complete; only while a row is applied
    """

    layer: Layer

    def __init__(self, node: Node, low: Layers) -> None:
        self.node, self.low, self.version = node, low, low.version
        self.spelling = low.spelling
        self._after_emit: list[Callable[[], object]] = []

    # attributes ----------------------------------------------------------------------------------

    def spell(self, value: Any, kind: Kind | Codec) -> Any:
        """Convert a canonical value to the format's spelling."""
        return codec_of(kind, self.spelling).lower(value)

    def set(self, **attrs: Any) -> None:
        """Set attributes of the row's layer, spelled according to their Python types."""
        self.layer.attrs |= {k: self.spell(v, type(v)) for k, v in attrs.items()}

    def attr(self, name: str, default: Any = REQUIRED) -> Any:
        """Return an attribute or its default; raise MappingError if both are absent."""
        value = self.node.attrs.get(name, default)
        if value is REQUIRED:
            raise MappingError(f"required attribute {name!r} is absent")
        return value

    # operands ------------------------------------------------------------------------------------

    @property
    def out(self) -> ir.Value:
        """Return the first result of the operator."""
        return self.node.outputs[0]

    @property
    def origin(self) -> tuple[str, str]:
        """Return the format from which the operator was read, and the kind of its layer there."""
        node = self.out.producer()
        source = {} if node is None else node.metadata_props
        return source.get("netconv.format", ""), source.get("netconv.type", "")

    def input(self, index: int) -> ir.Value:
        """Return operand `index`; raise MappingError if it is left out."""
        value = self.node.input(index)
        if value is None:
            raise MappingError(f"input {index} is absent")
        return value

    def used(self, index: int) -> bool:
        """Return whether result `index` of the operator has a consumer or is a graph output."""
        return any(v.uses() or v.is_graph_output() for v in self.node.outputs[index : index + 1])

    @property
    def data(self) -> ir.Value:
        """Return the first operand; raises MappingError if it is left out."""
        return self.input(0)

    def optional(self, index: int) -> ir.Value | None:
        """Return an input of the node, None if it is absent."""
        return self.node.input(index)

    def has(self, index: int) -> bool:
        """Return whether operand `index` is present."""
        return self.optional(index) is not None

    def constant(self, index: int, what: str) -> Array:
        """Return a constant operand; raise MappingError if it is computed or left out."""
        array = constant(self.node.input(index))
        if array is None:
            raise MappingError(f"{what} must be constant")
        return array

    def constant_tensor(self, index: int) -> LazyTensor | None:
        """Return a constant operand, whose elements may be computed lazily; None if it is computed
        at run time.
        """
        value = self.node.input(index)
        if value is not None and value.const_value is not None:
            return LazyTensor.of(value.const_value)
        array = constant(value)
        return None if array is None else LazyTensor(array)

    def ints(self, index: int, what: str, default: Iterable[int] | None = None) -> list[int]:
        """Return the integers of a constant operand, or `default` if it is left out."""
        if default is not None and not self.has(index):
            return list(default)
        return as_integers(self.constant(index, what), what)

    def untransposed(self, index: int) -> ir.Value | None:
        """Return the stored matrices if operand `index` is a constant view of them with the last
        two axes exchanged, otherwise None.

        A layer that transposes by itself can use them as they are stored.
        """
        value = self.input(index)
        tensor = value.const_value
        stored = tensor.untransposed() if isinstance(tensor, LazyTensor) else None
        return None if stored is None else self.const(stored, value.name or "weights")

    def rank(self, index: int = 0, what: str = "the input") -> int:
        """Return the rank of an input. Raises MappingError if it is unknown."""
        return rank(self.input(index), what)

    def static(self, index: int = 0, what: str = "the input") -> tuple[int, ...]:
        """Return the shape of an input. Raises MappingError if it is dynamic."""
        return static(self.input(index), what)

    def needs(self, version: int) -> None:
        """Raise MappingError X206 if the format version that is written is older than `version`."""
        if self.version and self.version < version:
            raise MappingError(f"{self.node.op} needs version {version}", "X206")

    # rows ----------------------------------------------------------------------------------------

    def begin(self, rule: Row) -> None:
        """Start to apply a row: set `layer` to its layer with the inputs that no field owns, for
        the fields to complete.
        """
        taken = rule.owned("inputs")
        inputs = [v for i, v in enumerate(self.node.inputs) if i not in taken]
        while inputs and inputs[-1] is None:
            inputs.pop()
        outputs, name = list(self.node.outputs), self.low.name
        self.layer, self._after_emit = Layer(rule.kind, name, inputs=inputs, outputs=outputs), []

    def bind(self, operands: Sequence[str]) -> None:
        """Assign these names to the layer's inputs; the counterpart of `LiftContext.bind`."""
        raise TypeError(f"{type(self).__name__} has no operands by name: {operands}")

    def set_inputs(self, *operands: Any) -> None:
        """Set the inputs of the row's layer; arrays, integers and lists of integers become
        constants.
        """
        self.layer.inputs = [self.operand(v) for v in operands]

    def after_emit(self, step: Callable[[], object]) -> None:
        """Register a function that adds layers after the row's layer; several are called in
        order.
        """
        self._after_emit.append(step)

    def set_operand(self, index: int, value: ir.Value | None) -> None:
        """Set operand `index` of the row's layer."""
        inputs = self.layer.inputs
        inputs.extend([None] * (index + 1 - len(inputs)))
        inputs[index] = value

    def set_integers(self, source: str | int, value: int | list[int], what: str) -> None:
        """Store integers in the row's layer, as an attribute or, if `source` is an index, as an
        operand.
        """
        if isinstance(source, str):
            self.set(**{source: value})
        else:
            self.set_operand(source, self.index_constant(value, what))

    def index_constant(self, value: int | list[int], what: str) -> ir.Value:
        """Return a constant operand of indices, axes or sizes, in the type that the format uses."""
        return self.const(np.asarray(value, np.int64), what)

    def indices(self, value: ir.Value) -> ir.Value:
        """Return computed indices, axes or sizes in the type that the format uses."""
        return value

    def emit_layer(self) -> None:
        """Append the row's layer and the layers after it."""
        self.low.check(self.layer)
        self.low.layers.append(self.layer)
        for step in self._after_emit:
            step()

    def result(
        self, name: str = "result", dtype: ir.DataType | None = None, index: int = 0
    ) -> ir.Value:
        """Return a new value that the row's layer writes instead of the operator's result.

        A later layer computes the operator's result from it.
        """
        own = self.layer.outputs[index]
        shape = None if own.shape is None else list(own.shape)
        self.layer.outputs[index] = self.temporary(name, dtype or own.dtype, shape)
        return self.layer.outputs[index]

    def mark(self) -> Any:
        """Return a marker of the layers written so far, for `undo`."""
        return len(self.low.layers)

    def undo(self, mark: Any) -> None:
        """Remove the layers written since `mark`."""
        del self.low.layers[mark:]

    def note(self, message: str) -> None:
        """Add a warning about the operator, which is written nevertheless."""
        own = Where(layer=self.low.name, kind=self.node.op)
        self.low.notes.append(Diagnostic("X207", message, "warning", own))

    # layers --------------------------------------------------------------------------------------

    def temporary(
        self, name: str, dtype: ir.DataType | None, shape: Iterable[Any] | None = None
    ) -> ir.Value:
        """Return a new value between two layers of this operator."""
        return self.low.value(name, dtype, shape)

    def const(self, array: Any, name: str = "const") -> ir.Value:
        """Return a constant operand of a layer: an array, a tensor, or Python integers (int64)."""
        return self.low.constant(array, name)

    def like(self, value: ir.Value, number: float) -> ir.Value:
        """Return one number as a constant of the type of another value."""
        return self.const(np.array(number, (value.dtype or ir.DataType.FLOAT).numpy()))

    def operand(self, value: Any) -> ir.Value | None:
        """Return a value unchanged; arrays, integers and lists of integers become constants."""
        return value if value is None or isinstance(value, ir.Value) else self.const(value)

    def emit(
        self,
        kind: str,
        *operands: Any,
        dtype: ir.DataType | None = None,
        shape: Sequence[Any] | None = None,
        **attrs: Any,
    ) -> ir.Value:
        """Append a layer with one result, which has the type of the first operand unless `dtype` is
        given.
        """
        inputs = [self.operand(v) for v in operands]
        first = inputs[0].dtype if inputs and inputs[0] is not None else None
        result = self.temporary(kind.lower(), dtype or first, shape)
        self.put(kind, *inputs, outputs=[result], **attrs)
        return result

    def put(
        self,
        kind: str,
        *operands: Any,
        outputs: Sequence[ir.Value] | None = None,
        **attrs: Any,
    ) -> Layer:
        """Append a layer; its results are those of the operator unless `outputs` is given.

        Attributes that are None are left out; the others are spelled according to their Python
        types.
        """
        results = list(self.node.outputs if outputs is None else outputs)
        spelled = {k: self.spell(v, type(v)) for k, v in attrs.items() if v is not None}
        return self.low.add(kind, [self.operand(v) for v in operands], results, spelled)


def as_integers(array: Array, what: str) -> list[int]:
    """Return the elements as integers; raise MappingError R110 for NaN and infinity."""
    try:
        return [int(v) for v in array.reshape(-1)]
    except (ValueError, OverflowError):  # not a number, or infinite
        raise MappingError(f"{what} must be integers", "R110") from None
