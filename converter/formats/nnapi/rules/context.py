"""The contexts in which operations of a table are read and written.

An operation binds its operands to the arguments of its signature, which have names in
`schemas/nnapi/operations.json`. A row sees them as the parts of a layer:

    attributes   scalars, and int32 tensors that a field owns (its `keys`); both must be known
    blobs        operands that a field owns as such (its `blobs`): they may be computed at run time
    inputs       tensors that no field owns, in the order of the signature

Other tensors that a field owns, such as filters, it asks for by name. The layout (`nchw`) belongs
to no row: channels-last operations are read as operators of the channels-last dialect, and images
are always written channels-last.

A quantized table becomes a graph of DequantizeLinear -> operator -> QuantizeLinear: inputs are real
numbers, and the reader quantizes results as their operands say. When writing, a node is first tried
on the integers around it (`quantized`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, MappingError, Where
from converter.formats.lite.context import LiteLiftContext, LiteLowerContext
from converter.formats.lite.quantization import (
    Quantization,
    bias_integers,
    constant_dequantized,
    node_quantization,
    quantized_weights,
    real_numbers,
)
from converter.formats.nnapi.collector import Ref, Writer
from converter.formats.nnapi.operations import (
    Argument,
    Binding,
    OperationSpec,
    Signature,
    operations,
)
from converter.formats.nnapi.quantization import (
    DATA_TYPES,
    dequantize_operand,
    operand_quantization,
)
from converter.formats.nnapi.table import Array, ChannelQuant, Lifetime, Operand, OperandType
from converter.graph.build import Builder
from converter.graph.channels_last import LAYOUT_SENSITIVE
from converter.graph.infer import constant, known
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.value import Value, producer_if, producer_operand, with_operators
from converter.mapping import context
from converter.mapping.codecs import PLAIN, Codec, Kind
from converter.mapping.context import REQUIRED, static
from converter.mapping.fields import Field
from converter.mapping.lowering import view_of
from converter.mapping.node import Layer
from converter.passes.constants import lazily

FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16)
ACTIVATION = "activation"  # the argument of a fused activation
INTEGERS = "TENSOR_INT32"  # the type of arguments such as axes


class Stored(Field):
    """An operation that moves or reads numbers in their storage type, without dequantization."""

    def lower(self, w: LowerContext) -> None:
        assert isinstance(w, LowerContext)
        if w.quantized:
            raise MappingError("quantized data are only supported in their storage type")


def is_scalar(argument: Argument, types: Mapping[str, OperandType]) -> bool:
    """Return whether an argument is a scalar, given the operand types of type parameters."""
    kind = types.get(argument.type, OperandType.__members__.get(argument.type))
    return kind is not None and not kind.is_tensor


class LiftContext(LiteLiftContext):
    """One operation that is being read.


    `values` are those of the graph, by the index of the operand; `reals` are the same as real
    numbers, which all operations that read them share.
    """

    activation_key = ACTIVATION

    def __init__(
        self,
        b: Builder,
        binding: Binding,
        operands: Sequence[Operand],
        values: Mapping[int, ir.Value],
        reals: dict[int, ir.Value],
    ) -> None:
        super().__init__(Layer(binding.spec.name), b, channels_last=True)
        self.binding, self.operands, self.values, self.reals = binding, operands, values, reals
        found = [o for o in binding.outputs.values() if o is not None]
        self.results = [i for o in found for i in (o if isinstance(o, list) else [o])]
        self.layer.outputs = [ir.Value() for _ in self.results]
        for argument in binding.signature.inputs:
            if is_scalar(argument, binding.types) and self.has(argument.name):
                self._enter(argument.name, lambda array: array.reshape(-1)[0].item())
        self.nchw = bool(self.layer.attrs.pop("nchw", False))
        self._entered: set[str] = set()

    def _enter(self, name: str, plain: Callable[[Array], Any]) -> None:
        """Store a known operand as an attribute."""
        array = known(self.stored(name))
        if array is not None:
            self.layer.attrs[name] = plain(array)

    def attr(self, key: str, kind: Kind | Codec, default: Any = REQUIRED) -> Any:
        if key not in self.layer.attrs and self.has(key):
            raise MappingError(f"{key!r} must be constant")
        return super().attr(key, kind, default)

    # operands, by the names of the signature -----------------------------------------------------

    def index(self, name: str) -> int | None:
        found = self.binding.inputs.get(name)
        if isinstance(found, list):
            found = found[0] if found else None
        return None if found is None or found not in self.values else found

    def has(self, name: str) -> bool:
        return self.index(name) is not None

    def _demand(self, name: str) -> int:
        index = self.index(name)
        if index is None:
            raise MappingError(f"the input {name!r} is absent", "R105")
        return index

    def operand(self, name: str) -> Operand:
        return self.operands[self._demand(name)]

    def stored(self, name: str) -> Value:
        return with_operators(self.values[self._demand(name)])

    def real(self, name: str) -> Value:
        return self._real(self._demand(name))

    def stored_type(self, name: str) -> ir.DataType:
        return DATA_TYPES[self.operand(name).type]

    def quantization(self, name: str) -> Quantization | None:
        return operand_quantization(self.operand(name))

    def real_bias(self, key: str, factors: Sequence[str] = ()) -> ir.Value | None:
        """Return a bias as the base class does; a table is only valid if the scale of a bias is the
        product.
        """
        stated = self.has(key) and self.operand(key).scale
        return self.real(key) if stated else super().real_bias(key, factors)

    def _real(self, index: int) -> Value:
        if index not in self.values:
            raise MappingError(f"operand {index} is read before it has a value", "R105")
        if index not in self.reals:
            self.reals[index] = dequantize_operand(self.b, self.values[index], self.operands[index])
        return with_operators(self.reals[index])

    def array(self, name: str) -> Array:
        """Return a constant tensor in its storage type."""
        value = self.stored(name)
        array = known(value)
        if array is None and value.const_value is not None:
            array = value.const_value.numpy()
        if array is None:
            raise MappingError(f"{name!r} must be constant")
        return array

    def shape(self, name: str = "input", axes: int | None = None) -> tuple[int, ...]:
        """Return an operand with sizes, of which there must be `axes`: tables may declare any
        number.
        """
        found = static(self.stored(name), repr(name))
        if axes is not None and len(found) != axes:
            raise MappingError(f"{name!r} must have {axes} axes, got {len(found)}", "R105")
        return found

    def spatial(self) -> tuple[int, int]:
        """Return height and width of the image."""
        shape = self.shape(axes=4)
        return (shape[2], shape[3]) if self.nchw else (shape[1], shape[2])

    def channels(self) -> int:
        shape = self.shape(axes=4)
        return shape[1] if self.nchw else shape[-1]

    def output(self, index: int = 0) -> Operand:
        """Return the operand that a result is written to."""
        return self.operands[self.results[index]]

    # rows ----------------------------------------------------------------------------------------

    def begin(self, rule: context.Row) -> None:
        super().begin(rule)
        self.node.last = self.node.last and not self.nchw
        keys, blobs = rule.owned("keys"), rule.owned("blobs")
        for name in self._entered:  # by a row that did not apply
            del self.layer.attrs[name]
        self._entered, self.layer.blobs = set(), {}
        stored = any(isinstance(f, Stored) for f in rule.fields)
        for argument in self.binding.signature.inputs:
            name = argument.name
            if name in blobs:
                self.layer.attrs.pop(name, None)
                self.layer.blobs[name] = self.stored(name)
            elif is_scalar(argument, self.binding.types):
                if self.has(name) and name not in (*self.layer.attrs, "nchw"):
                    raise MappingError(f"{name!r} must be constant")
            elif name not in keys:
                self.node.inputs += self._inputs(name, stored)
            elif argument.type == INTEGERS and self.has(name):
                self.layer.attrs[name] = self.array(name).tolist()
                self._entered.add(name)

    def _inputs(self, name: str, stored: bool) -> list[ir.Value | None]:
        """Return the values of an argument, which may be repeated or omitted."""
        found = self.binding.inputs.get(name)
        if not isinstance(found, list) and not self.has(name):
            return [None]
        indexes = found if isinstance(found, list) else [self._demand(name)]
        return [self.values[i] if stored else self._real(i) for i in indexes]


Step = Callable[[Ref, Ref], object]


class LowerContext(LiteLowerContext):
    """One node on its way into a table.

    `source`      the node in the graph
    `quantized`   operations work on the quantized values around the node
    `operands`    of inputs of the operator for which a field put another operand
    """

    computes_bias = True

    def __init__(self, node: ir.Node, writer: Writer, quantized: bool) -> None:
        self.node, self.source, self.writer = view_of(node), node, writer
        self.version, self.spelling, self.quantized = writer.level, PLAIN, quantized

    def begin(self, rule: context.Row) -> None:
        self._taken, self._owned = rule.owned("inputs"), rule.owned("keys") | rule.owned("blobs")
        self.layer = Layer(rule.kind, outputs=list(self.node.outputs))
        self.operands: dict[int, Ref] = {}
        self._steps: list[tuple[Sequence[int], Step]] = []

    def mark(self) -> Any:
        return self.writer.mark()

    def undo(self, mark: Any) -> None:
        self.writer.undo(mark)

    def note(self, message: str) -> None:
        own = Where(layer=self.source.name or "", kind=self.node.op)
        self.writer.narrowing.notes.append(Diagnostic("X207", message, "warning", own))

    def set(self, **attrs: Any) -> None:
        """Set arguments of a row's operation: operands, numbers or lists."""
        self.layer.attrs |= attrs

    def after_first(self, dims: Sequence[int], step: Step) -> None:
        """Give the operation of the row a separate result with these dimensions.

        `step(x, y)` appends the operations that compute the operator's result y from it; several
        steps form a chain.
        """
        self._steps.append((dims, step))

    def emit_layer(self) -> None:
        kind, is_image = self.layer.kind, self._is_image(0)
        spec = operations()[kind]
        arguments = {**self._inputs(spec), **self.layer.attrs}
        if any(a.name == "nchw" and a.since is None for a in spec.signatures[0].inputs):
            arguments.setdefault("nchw", False)
        results = [self.target(v, is_image) for v in self.layer.outputs]
        first, more = results[0], results[1:]
        way = [*(self.temp(dims, first) for dims, _ in self._steps), first]
        self.operation(kind, [way[0], *more], **arguments)
        for (_, step), x, y in zip(self._steps, way[:-1], way[1:], strict=True):
            step(x, y)

    def _inputs(self, spec: OperationSpec) -> dict[str, Any]:
        """Return the arguments that are inputs of the operator and that no field reads."""
        positions = [i for i in range(len(self.node.inputs)) if i not in self._taken]
        while positions and self.node.inputs[positions[-1]] is None:
            positions.pop()
        tensors = [a for a in spec.signatures[0].inputs if not is_scalar(a, spec.rows[0])]
        free = [a for a in tensors if a.name not in self._owned]
        if free and free[0].repeat:
            return {free[0].name: [self.ref(i) for i in positions]}
        if len(positions) > len(free):
            raise MappingError(f"{spec.name} got {len(free)} inputs")
        pairs = zip(free, positions, strict=False)
        return {a.name: self.ref(i) for a, i in pairs if self.node.inputs[i] is not None}

    def _is_image(self, index: int) -> bool:
        """Return whether an input of the operator is an image, which is stored channels-last."""
        ports = LAYOUT_SENSITIVE.get((self.node.domain, self.node.op))
        return ports is not None and index in ports[0]

    def ref(self, index: int) -> Ref:
        """Return the operand of an input of the operator."""
        if index in self.operands:
            return self.operands[index]
        if not self._is_image(index):
            return self.real(self.input(index))
        if len(self.static(index)) != 4:
            raise MappingError("only two spatial axes are supported")
        return self.real(self.input(index), self.image(self.input(index)))

    # values --------------------------------------------------------------------------------------

    def result_shape(self, index: int = 0) -> tuple[int, ...]:
        """Return the shape of a result."""
        return static(self.node.outputs[index], "the result")

    def axis(self, default: int = 0) -> int:
        return int(self.node.attrs.get("axis", default)) % max(1, len(self.static()))

    def image(self, value: ir.Value) -> list[int]:
        """Return the dimensions of an image after the graph is converted to channels-last."""
        shape = static(value)
        return list(shape) if self.node.last else [shape[i] for i in (0, 2, 3, 1)]

    def stored(self, value: ir.Value, dims: Sequence[int] | None = None) -> Ref:
        """Return the operand of a value itself, without dequantization."""
        return self.writer.operand(value, dims)

    def real(self, value: ir.Value, dims: Sequence[int] | None = None) -> Ref:
        """Return the operand of a value that the operation computes with.

        If the node is written quantized, these are the integers before the DequantizeLinear.
        """
        if (found := self.read_quantized(value)) is None:
            return self.stored(value, dims)
        ref = self.stored(found[0], dims)
        if scale_and_zero(self.about(ref)) != found[1].single:
            raise MappingError(f"the quantized data of {value.name} are read with several scales")
        return ref

    def about(self, ref: Ref) -> Operand:
        return self.writer.subgraph.operands[ref.index]

    # weights -------------------------------------------------------------------------------------

    def place(self, key: str, operand: Any) -> None:
        self.layer.attrs[key] = operand

    def placed(self, key: str) -> Any:
        return self.layer.attrs[key]

    def set_operand(self, index: int, value: ir.Value | None) -> None:
        assert value is not None
        self.operands[index] = self.real(value)

    def as_matrix(self, units: int) -> None:
        *rows, size = self.static()
        count = int(np.prod(rows))
        self.operands[0] = self.reshaped(self.ref(0), [count, size])
        self.after_first([count, units], self.reshape)

    def weights(self, perm: Sequence[int], outputs: int) -> Ref:
        x, value = self.about(self.ref(0)), self.input(1)
        before, order = self.before_transpose(value, perm)
        node, name = constant_dequantized(before), str(value.name)
        if node is not None and self.quantized:
            return self._quantized_weights(x, name, node, order)
        if node is not None and (made := lazily(value, 0)) is not None:
            return self.writer.tensor(made.transposed(perm), OperandType.TENSOR_FLOAT32, name)
        if self.quantized and producer_if(before, "DequantizeLinear") is None:
            raise MappingError("the weights are not quantized")
        if node is None and (array := constant(value)) is not None:
            stored = value.const_value if value.dtype == ir.DataType.FLOAT else None
            if stored is not None and x.type is OperandType.TENSOR_FLOAT32:
                permuted = LazyTensor.of(stored).transposed(perm)
                return self.writer.tensor(permuted, x.type, name)
            return self.number(array.transpose(perm), self.ref(0), name)
        inner = self.real(before)
        if order == list(range(len(order))):
            return inner
        dims = static(value, "the weights")
        return self.step(
            "TRANSPOSE", [dims[i] for i in perm], inner, input=inner, permutation=order
        )

    def _quantized_weights(self, x: Operand, name: str, node: ir.Node, order: list[int]) -> Ref:
        """Return constant quantized weights; those with a scale for each channel have no zero
        point.
        """
        several = node_quantization(node).axis is not None
        signed = x.type is OperandType.TENSOR_QUANT8_ASYMM_SIGNED
        array, found = quantized_weights(node, order, several or signed)
        if several:
            if any(found.zeros):
                raise MappingError("per-channel scales need zero points of 0")
            quant = ChannelQuant(found.axis or 0, found.scales)
            kind = OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL
            return self.writer.tensor(array, kind, name, channel_quant=quant)
        kind = OperandType.TENSOR_QUANT8_ASYMM_SIGNED if signed else OperandType.TENSOR_QUANT8_ASYMM
        scale, zero = found.single
        return self.writer.tensor(array, kind, name, scale=scale, zero_point=zero)

    def bias(self, value: ir.Value | None, count: int, weights: Ref) -> Ref:
        """Return the operand of a bias; of a quantized node it is int32, with the product of the
        scales.
        """
        x, numbers = self.about(self.ref(0)), np.zeros(count)
        name = "" if value is None else str(value.name)
        if value is not None:
            found = real_numbers(value)
            if found is None and not self.quantized:
                return self.reshaped(self.real(value), [count])
            if found is None:
                return self._computed_bias(value)
            numbers = found.reshape(-1)
        if not self.quantized:
            return self.number(np.broadcast_to(numbers, (count,)), self.ref(0), name)
        filter_ = self.about(weights)
        channel = filter_.channel_quant
        own = np.array(channel.scales if channel else [filter_.scale], np.float32)
        steps = bias_integers(numbers, count, np.float32(x.scale) * own, np.int32)
        scale = 0.0 if channel else float(x.scale * filter_.scale)
        return self.writer.tensor(steps, OperandType.TENSOR_INT32, name, scale=scale)

    def _computed_bias(self, value: ir.Value) -> Ref:
        """Return a computed bias: 32-bit integers, followed by a DequantizeLinear."""
        integers = producer_operand(value, "DequantizeLinear")
        if integers is None or integers.dtype != ir.DataType.INT32:
            raise MappingError("the bias must be int32")
        return self.stored(integers)

    # results -------------------------------------------------------------------------------------

    def target(self, value: ir.Value, image: bool = False) -> Ref:
        """The operand to write a result to."""
        if (found := self.written_quantized(value)) is not None:
            value = self.absorb(found[0])
        return self.writer.new(value, self.image(value) if image else None)

    def absorb(self, node: ir.Node) -> ir.Value:
        self.writer.enter(self.writer.done, node, True)
        return node.outputs[0]

    def has_activation(self, value: ir.Value) -> bool:
        return value.dtype in FLOATS

    def alias(self, value: ir.Value, source: ir.Value) -> None:
        """Make `value` the same operand as `source`."""
        self.writer.enter(self.writer.operands, value, self.stored(source).index)

    def constant_alias(self, value: ir.Value, array: Array) -> None:
        """Make `value` a constant operand of its own type."""
        like = self.writer.like(value)
        assert like.type.dtype is not None
        stored = array.astype(like.type.dtype, copy=False)
        ref = self.writer.tensor(
            stored, like.type, like.name, scale=like.scale, zero_point=like.zero_point
        )
        self.writer.enter(self.writer.operands, value, ref.index)

    def temp(self, dims: Sequence[int], like: Ref) -> Ref:
        """Return an operand between two operations of this node, with the type and scale of another
        one.
        """
        source = self.about(like)
        name = f"{self.node.outputs[0].name}.{len(self.writer.subgraph.operands)}"
        made = Operand(source.type, list(dims) or [1], name, source.scale, source.zero_point)
        return self.writer.add(made)

    def number(self, array: Any, like: Ref, name: str = "") -> Ref:
        """Return a constant of a float operand's type."""
        kind = self.about(like).type
        if kind.dtype is None or kind.dtype.kind == "u" or kind.dtype.itemsize == 1:
            raise MappingError("the constant is not quantized")
        return self.writer.tensor(np.asarray(array, kind.dtype), kind, name)

    # operations ----------------------------------------------------------------------------------

    def step(self, kind: str, dims: Sequence[int], like: Ref, /, **arguments: Any) -> Ref:
        """Append an operation with a separate result."""
        y = self.temp(dims, like)
        self.operation(kind, y, **arguments)
        return y

    def reshaped(self, x: Ref, dims: Sequence[int]) -> Ref:
        dims = list(dims) or [1]
        same = self.about(x).dimensions == dims
        return x if same else self.step("RESHAPE", dims, x, input=x, shape=dims)

    def added(self, x: Ref, wanted: list[int]) -> list[int]:
        """Return the axes of length 1 that these dimensions have in addition to those of an
        operand.
        """
        dims, ones = self.about(x).dimensions, (i for i, n in enumerate(wanted) if n == 1)
        return [i for i in ones if wanted[:i] + wanted[i + 1 :] == dims]

    def reshape(self, x: Ref, y: Ref) -> None:
        """Reshape a value. Only level 6 reshapes integers; lower levels add an axis."""
        wanted = self.about(y).dimensions
        added = self.added(x, wanted)
        whole = self.about(x).type is OperandType.TENSOR_INT32 and self.version < 6
        if whole and added:
            self.operation("EXPAND_DIMS", y, input=x, axis=added[0])
        else:
            self.operation("RESHAPE", y, input=x, shape=wanted)

    def operation(self, kind: str, outputs: Ref | Sequence[Ref], /, **arguments: Any) -> None:
        """Append an operation with its arguments by name.

        Arguments are operands, numbers (scalars), lists (int32 tensors), or None (omitted).
        """
        results = [outputs] if isinstance(outputs, Ref) else list(outputs)
        spec = operations()[kind]
        signature = next(s for s in spec.signatures if arguments.keys() <= s.names)
        inputs: list[int] = []
        types = self._types(spec, signature, arguments, results)
        for argument in signature.inputs[: _count(signature, arguments)]:
            given = arguments.get(argument.name)
            for one in list(given or ()) if argument.repeat else [given]:
                inputs.append(self._argument(argument, one, types).index)
        self.writer.operation(kind, inputs, [r.index for r in results])

    def _types(
        self,
        spec: OperationSpec,
        signature: Signature,
        arguments: dict[str, Any],
        outputs: list[Ref],
    ) -> dict[str, OperandType]:
        """Return the operand types of the type variables that have no operand here."""
        have: dict[str, OperandType] = {}
        for a in signature.inputs:
            given = arguments.get(a.name)
            ref = given[0] if a.repeat and given else given
            if isinstance(ref, Ref):
                have.setdefault(a.type, self.about(ref).type)
        for a, ref in zip(spec.outputs, outputs, strict=False):
            have.setdefault(a.type, self.about(ref).type)
        fits = (row for row in spec.rows if all(row.get(k, v) is v for k, v in have.items()))
        return next(fits, spec.rows[0])

    def _argument(self, argument: Argument, given: Any, types: dict[str, OperandType]) -> Ref:
        if isinstance(given, Ref):
            return given
        kind = types[argument.type] if argument.type in types else OperandType[argument.type]
        if given is None and argument.default is None:
            dims = [0] * (argument.rank[0] if argument.rank else 0)
            return self.writer.add(Operand(kind, dims, lifetime=Lifetime.NO_VALUE))
        if given is None:
            given = argument.default
        whole = kind.dtype is not None and kind.dtype.kind in "iu"
        if whole and not kind.name.startswith("TENSOR_QUANT") and not _within(given, kind.dtype):
            raise MappingError(
                f"{argument.name} is {str(given)[:80]}, which {kind.dtype} cannot represent"
            )
        if kind.is_tensor:
            return self.writer.tensor(np.asarray(given, kind.dtype), kind)
        return self.writer.scalar(kind, given)


def _count(signature: Signature, arguments: dict[str, Any]) -> int:
    """Return how many arguments are written: the fewest that the signature allows and that are
    given.
    """
    given = [i for i, a in enumerate(signature.inputs) if arguments.get(a.name) is not None]
    count = max(given) + 1
    while count < len(signature.inputs) and signature.inputs[count].since is None:
        count += 1
    return min((c for c in signature.counts if c >= count), default=count)


def _within(given: Any, dtype: Any) -> bool:
    """Return whether an integer type has all these numbers."""
    low, high = _bounds(dtype)
    if isinstance(given, int):
        return low <= given <= high
    found = np.asarray(given)
    return not found.size or bool(low <= found.min() <= found.max() <= high)


@functools.cache
def _bounds(dtype: Any) -> tuple[int, int]:
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)


def scale_and_zero(operand: Operand) -> tuple[float, int]:
    """Scale and zero point, as they compare equal."""
    return float(np.float32(operand.scale)), operand.zero_point
