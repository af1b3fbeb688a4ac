"""What the parts of a row and custom converters see of a layer that is read and of an operator that
is written.

Reading   one foreign layer on its way into the graph: typed attributes, operands, constants, and
the builder Writing   one canonical operator on its way into layers: attributes with their defaults,
operands, constants, and `emit`

A format subclasses them where it knows more, such as the revision of an operation set.
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
    """A rule, as contexts see it."""

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
    """What collects the layers that are written, as contexts see it."""

    name: str
    version: int
    layers: list[Layer]
    notes: list[Diagnostic]

    @property
    def spelling(self) -> Mapping[Kind, Codec]: ...
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


class Reading:
    """One layer of a foreign format on its way into the graph.

    `layer`    the layer, with the graph's values as its inputs
    `b`        the builder, for nodes in front of the operator and behind it
    `version`  of the layer: an operation set, a specification version; 0 where the format has none
    `node`     the canonical operator that the fields of a row complete; only while a row is applied
    `outputs`  how many outputs that operator gets
    `ready`    values that exist already and are the results: then no operator is made
    `rule`     the row that is applied, or was the last one
    """

    node: Node
    outputs: int
    ready: Results | None
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
        layer.inputs = Operands(layer.inputs)
        layer.attrs, layer.blobs = Parameters(layer.attrs), Parameters(layer.blobs)
        for value in layer.inputs:
            with_operators(value)
        self._behind: list[Callable[[Results], Results]] = []
        self.spelling, self.channels_last = spelling, channels_last

    # attributes ----------------------------------------------------------------------------------

    def parse(self, key: str, value: Any, kind: Kind | Codec) -> Any:
        """The canonical value of what stands under `key`; MappingError R110 when it makes none."""
        try:
            return codec_of(kind, self.spelling).lift(value)
        except (ValueError, TypeError, OverflowError):
            raise MappingError(f"{key}={value!r} is not a valid value", "R110") from None
        except MappingError as e:
            raise MappingError(f"{key}: {e}", e.code) from None

    def attr(self, key: str, kind: Kind | Codec, default: Any = REQUIRED) -> Any:
        """An attribute of the layer; without a default it must be there."""
        if key in self.layer.attrs:
            return self.parse(key, self.layer.attrs[key], kind)
        if default is REQUIRED:
            raise MappingError(f"required attribute {key!r} is absent", "R110")
        return default

    def count(self, key: str, default: Any = REQUIRED) -> int:
        """An integer attribute of at least 1."""
        n = int(self.attr(key, int, default))
        at_least(1, **{key: n})
        return n

    def count_list(self, key: str, n: int, default: Any = REQUIRED) -> list[int]:
        """A list attribute of `n` integers of at least 1."""
        found: list[int] = self.attr(key, list, default)
        of_counts(n, **{key: found})
        return found

    def number_list(self, key: str, n: int, default: Any = REQUIRED) -> list[float]:
        """A list attribute of `n` numbers."""
        found: list[float] = self.attr(key, Floats, default)
        of_length(n, **{key: found})
        return found

    def attributes(self, *ignored: str, **kinds: Any) -> SimpleNamespace:
        """Several attributes at once: a type makes one required, a default says its type.

        A keyword `exclude_pad` also stands for the spelling `exclude-pad`. An attribute of the
        layer that is neither asked for nor ignored is the error R111.
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
        """Operand `index`; MappingError R105 when it is left out."""
        value = self.optional(index)
        if value is None:
            raise MappingError(f"input {index} is absent", "R105")
        return value

    def inputs(self, least: int, most: int | None = None) -> list[ir.Value | None]:
        """The inputs of the operator so far; MappingError R105 unless they are `least` to `most`
        (by default as many).
        """
        inputs, most = self.node.inputs, least if most is None else most
        if not least <= len(inputs) <= most:
            needed = f"{least}" if least == most else f"{least} to {most}"
            raise MappingError(f"{len(inputs)} inputs, {needed} are needed", "R105")
        return inputs

    def optional(self, index: int) -> Value | None:
        inputs = self.layer.inputs
        return with_operators(inputs[index]) if index < len(inputs) else None

    def known(self, value: ir.Value | None, what: str) -> Array:
        """The elements of an operand that must be known when converting."""
        array = known(value)
        if array is None:
            message = f"{what} must be known when converting"
            help = "constants only; fix the inputs' shapes when it depends on them"
            raise MappingError(message, "X202", help)
        return np.asarray(array)

    def ints(self, index: int, what: str) -> list[int]:
        return whole_numbers(self.known(self.optional(index), what), what)

    def integers(self, source: str | int, what: str, default: Any = REQUIRED) -> list[int]:
        """The integers under a key of the layer, or those of the constant operand at a position; a
        single one is a list of one.
        """
        if isinstance(source, int):
            absent = default is not REQUIRED and self.optional(source) is None
            return default if absent else self.ints(source, what)
        if isinstance(self.layer.attrs.get(source), int):
            return [self.attr(source, int)]
        return self.attr(source, list, default)  # type: ignore[no-any-return]

    def number(self, index: int, what: str) -> float:
        array = known(self.optional(index))
        if array is None or array.size != 1:
            raise MappingError(f"{what} must be one number that is known when converting")
        return float(np.asarray(array).reshape(-1)[0])

    def rank(self, value: ir.Value | int = 0, what: str = "the input") -> int:
        """How many axes a value, or operand number `value`, has."""
        return rank(self.input(value) if isinstance(value, int) else value, what)

    def static(
        self,
        value: ir.Value | int = 0,
        what: str = "the input",
        axes: int | None = None,
        least: int = 0,
    ) -> tuple[int, ...]:
        """The sizes of a value, or of operand number `value`, of so many axes."""
        return static(self.input(value) if isinstance(value, int) else value, what, axes, least)

    # nodes ---------------------------------------------------------------------------------------

    def cast(self, value: ir.Value, dtype: ir.DataType) -> Value:
        """`value` in another type; constants stay constants."""
        if value.dtype == dtype:
            return with_operators(value)
        array = known(value) if value.const_value is not None else None
        if array is not None and dtype.numpy().kind in "iufb" and array.dtype.kind in "iufb":
            return self.b.const(array.astype(dtype.numpy()), value.name or "const")
        return self.b.op("Cast", value, to=int(dtype))

    def reshape(self, value: ir.Value, shape: Sequence[int]) -> Value:
        """A Reshape; of a constant, the reshaped constant."""
        return self.b.reshaped(value, shape)

    def transpose(self, value: ir.Value, perm: Sequence[int]) -> Value:
        """A Transpose; of a constant, the transposed constant (a view, unless its numbers are
        computed).
        """
        if list(perm) == list(range(len(perm))):
            return with_operators(value)
        if value.const_value is not None and value.dtype != ir.DataType.STRING:
            turned = LazyTensor.of(value.const_value).transposed(perm)
            return self.b.const(turned, value.name or "const")
        return self.b.op("Transpose", value, perm=list(perm))

    # rows ----------------------------------------------------------------------------------------

    def begin(self, rule: Row) -> None:
        """A row is applied: its operator with the layer's inputs is what the fields complete."""
        last = self.channels_last and (rule.domain, rule.op) in LAYOUT_SENSITIVE
        self.node = Node(rule.op, rule.domain, inputs=Operands(self.layer.inputs), last=last)
        self.outputs, self._behind = max(1, len(self.layer.outputs)), []
        self.ready, self.rule = None, rule

    def bind(self, operands: Sequence[str]) -> None:
        """The operator's inputs, of operands that the layer has by these names: see
        `Rule.operands`. Formats whose layers have such operands say how.
        """
        raise TypeError(f"{type(self).__name__} has no operands by name: {operands}")

    def set(self, **attrs: Any) -> None:
        """Attributes of the operator."""
        self.node.attrs |= attrs

    @property
    def data(self) -> Value:
        """The first input of the operator so far; MappingError R105 when it is left out."""
        value = self.node.input(0)
        if value is None:
            raise MappingError("input 0 is absent", "R105")
        return with_operators(value)

    @data.setter
    def data(self, value: ir.Value) -> None:
        self.node.set_input(0, value)

    def set_input(self, index: int, operand: Any) -> None:
        """Input `index` of the operator; arrays and Python numbers become constants."""
        self.node.set_input(index, self.b.value(operand))

    def set_inputs(self, *operands: Any) -> None:
        """The inputs of the operator; arrays and Python numbers become constants."""
        self.node.inputs = [self.b.value(v) for v in operands]

    def then(self, step: Callable[[Results], Results]) -> None:
        """When the node is there: the results of the layer, of those of the node; steps run in
        order.
        """
        self._behind.append(step)

    def behind(self, step: Callable[[Value], ir.Value]) -> None:
        """When the node is there: the first result of the layer, of that of the node."""
        self.then(lambda results: [step(with_operators(results[0])), *results[1:]])

    def emit(self) -> Results:
        """The results of the row: the node in the graph, and what stands behind it."""
        results = self._made() if self.ready is None else self.ready
        for step in self._behind:
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


class Writing:
    """One canonical operator on its way into foreign layers.

    `node`   the operator, its attributes with the defaults of its schema
    `layer`  the layer that the fields of a row complete; only while a row is applied
    """

    layer: Layer

    def __init__(self, node: Node, low: Layers) -> None:
        self.node, self.low, self.version = node, low, low.version
        self.spelling = low.spelling
        self._behind: list[Callable[[], object]] = []

    # attributes ----------------------------------------------------------------------------------

    def spell(self, value: Any, kind: Kind | Codec) -> Any:
        """A canonical value as the format spells it."""
        return codec_of(kind, self.spelling).lower(value)

    def set(self, **attrs: Any) -> None:
        """Attributes of the layer of a row, spelled by their Python type."""
        self.layer.attrs |= {k: self.spell(v, type(v)) for k, v in attrs.items()}

    def attr(self, name: str, default: Any = REQUIRED) -> Any:
        value = self.node.attrs.get(name, default)
        if value is REQUIRED:
            raise MappingError(f"required attribute {name!r} is absent")
        return value

    # operands ------------------------------------------------------------------------------------

    @property
    def out(self) -> ir.Value:
        """The first result of the operator."""
        return self.node.outputs[0]

    @property
    def origin(self) -> tuple[str, str]:
        """The format that the operator was read from, and the kind of its layer there."""
        node = self.out.producer()
        source = {} if node is None else node.metadata_props
        return source.get("netconv.format", ""), source.get("netconv.type", "")

    def input(self, index: int) -> ir.Value:
        """Operand `index`; MappingError when it is left out."""
        value = self.node.input(index)
        if value is None:
            raise MappingError(f"input {index} is absent")
        return value

    def used(self, index: int) -> bool:
        """Whether somebody reads result `index` of the operator."""
        return any(v.uses() or v.is_graph_output() for v in self.node.outputs[index : index + 1])

    @property
    def data(self) -> ir.Value:
        """The first operand; MappingError when it is left out."""
        return self.input(0)

    def optional(self, index: int) -> ir.Value | None:
        return self.node.input(index)

    def has(self, index: int) -> bool:
        """Whether operand `index` is there."""
        return self.optional(index) is not None

    def constant(self, index: int, what: str) -> Array:
        """A constant operand; refused where it is computed or left out."""
        array = constant(self.node.input(index))
        if array is None:
            raise MappingError(f"{what} must be constant")
        return array

    def constant_tensor(self, index: int) -> LazyTensor | None:
        """A constant operand, whose numbers may be computed only while they are written; None where
        it is computed when the network runs.
        """
        value = self.node.input(index)
        if value is not None and value.const_value is not None:
            return LazyTensor.of(value.const_value)
        array = constant(value)
        return None if array is None else LazyTensor(array)

    def ints(self, index: int, what: str, default: Iterable[int] | None = None) -> list[int]:
        """The whole numbers of a constant operand, or `default` where it is left out."""
        if default is not None and not self.has(index):
            return list(default)
        return whole_numbers(self.constant(index, what), what)

    def untransposed(self, index: int) -> ir.Value | None:
        """The constant matrices whose last two axes were exchanged to make operand `index`, where
        that is a view of them: a layer that transposes by itself leaves them as they are stored.
        """
        value = self.input(index)
        tensor = value.const_value
        stored = tensor.untransposed() if isinstance(tensor, LazyTensor) else None
        return None if stored is None else self.const(stored, value.name or "weights")

    def rank(self, index: int = 0, what: str = "the input") -> int:
        return rank(self.input(index), what)

    def static(self, index: int = 0, what: str = "the input") -> tuple[int, ...]:
        return static(self.input(index), what)

    def needs(self, version: int) -> None:
        """Refuses what the version that is written does not have yet."""
        if self.version and self.version < version:
            raise MappingError(f"{self.node.op} needs version {version}", "X206")

    # rows ----------------------------------------------------------------------------------------

    def begin(self, rule: Row) -> None:
        """A row is applied: its layer, with the inputs that no field owns, is what the fields
        complete.
        """
        taken = rule.owned("inputs")
        inputs = [v for i, v in enumerate(self.node.inputs) if i not in taken]
        while inputs and inputs[-1] is None:
            inputs.pop()
        outputs, name = list(self.node.outputs), self.low.name
        self.layer, self._behind = Layer(rule.kind, name, inputs=inputs, outputs=outputs), []

    def bind(self, operands: Sequence[str]) -> None:
        """Gives the inputs of the layer these names; the counterpart of `Reading.bind`."""
        raise TypeError(f"{type(self).__name__} has no operands by name: {operands}")

    def set_inputs(self, *operands: Any) -> None:
        """The inputs of the layer of a row; arrays, integers and lists of integers become
        constants.
        """
        self.layer.inputs = [self.operand(v) for v in operands]

    def then(self, step: Callable[[], object]) -> None:
        """When the layer is there: layers behind it; steps run in order."""
        self._behind.append(step)

    def set_operand(self, index: int, value: ir.Value | None) -> None:
        """Operand `index` of the layer of a row."""
        inputs = self.layer.inputs
        inputs.extend([None] * (index + 1 - len(inputs)))
        inputs[index] = value

    def set_integers(self, source: str | int, value: int | list[int], what: str) -> None:
        """Integers under a key of the layer of a row, or as the operand at a position."""
        if isinstance(source, str):
            self.set(**{source: value})
        else:
            self.set_operand(source, self.index_constant(value, what))

    def index_constant(self, value: int | list[int], what: str) -> ir.Value:
        """Positions, axes or sizes as a constant operand, in the type that the format has."""
        return self.const(np.asarray(value, np.int64), what)

    def indices(self, value: ir.Value) -> ir.Value:
        """Positions, axes or sizes that are computed, in the type that the format has."""
        return value

    def emit_layer(self) -> None:
        """The layer of the row, and what stands behind it."""
        self.low.layers.append(self.layer)
        for step in self._behind:
            step()

    def result(
        self, name: str = "result", dtype: ir.DataType | None = None, index: int = 0
    ) -> ir.Value:
        """A value that the layer of the row writes instead of the operator's own result, which a
        layer behind it makes.
        """
        own = self.layer.outputs[index]
        shape = None if own.shape is None else list(own.shape)
        self.layer.outputs[index] = self.temporary(name, dtype or own.dtype, shape)
        return self.layer.outputs[index]

    def mark(self) -> Any:
        """For `undo`: what was written so far."""
        return len(self.low.layers)

    def undo(self, mark: Any) -> None:
        """Takes back what was written since."""
        del self.low.layers[mark:]

    def note(self, message: str) -> None:
        """Tells the user what becomes of the operator, which is written."""
        own = Where(layer=self.low.name, kind=self.node.op)
        self.low.notes.append(Diagnostic("X207", message, "warning", own))

    # layers --------------------------------------------------------------------------------------

    def temporary(
        self, name: str, dtype: ir.DataType | None, shape: Iterable[Any] | None = None
    ) -> ir.Value:
        """A value between two layers of this operator."""
        return self.low.value(name, dtype, shape)

    def const(self, array: Any, name: str = "const") -> ir.Value:
        """A constant operand of a layer: an array, a tensor, or Python integers (int64)."""
        return self.low.constant(array, name)

    def like(self, value: ir.Value, number: float) -> ir.Value:
        """One number as a constant of the type of another value."""
        return self.const(np.array(number, (value.dtype or ir.DataType.FLOAT).numpy()))

    def operand(self, value: Any) -> ir.Value | None:
        """A value as it is; arrays, integers and lists of integers become constants."""
        return value if value is None or isinstance(value, ir.Value) else self.const(value)

    def emit(
        self,
        kind: str,
        *operands: Any,
        dtype: ir.DataType | None = None,
        shape: Sequence[Any] | None = None,
        **attrs: Any,
    ) -> ir.Value:
        """One more layer with one result, of the type of its first operand unless `dtype` says."""
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
        """One more layer; its results are those of the operator unless `outputs` says.

        Attributes that are None are left out, the others are spelled by their Python type.
        """
        results = list(self.node.outputs if outputs is None else outputs)
        spelled = {k: self.spell(v, type(v)) for k, v in attrs.items() if v is not None}
        return self.low.add(kind, [self.operand(v) for v in operands], results, spelled)


def whole_numbers(array: Array, what: str) -> list[int]:
    try:
        return [int(v) for v in array.reshape(-1)]
    except (ValueError, OverflowError):  # of what is no number, or infinite
        raise MappingError(f"{what} must be whole numbers", "R110") from None
