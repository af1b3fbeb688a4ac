"""The contexts in which operators of a file are read and written.

For a row an operator is a layer: its options are the attributes, by the names of the schema, and
all its tensors, constants too, are inputs in the order of the file. On reading, inputs are real
numbers: quantized tensors are read through a DequantizeLinear, and results are quantized as their
tensors declare, so that a quantized operator becomes one on real numbers. Images are channels-last.

On writing, an operator between DequantizeLinear and QuantizeLinear is first tried on the quantized
values (`quantized`), whose scales become those of tensors; if no kernel supports them it is put
between DEQUANTIZE and QUANTIZE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, MappingError
from converter.formats.lite.context import LiteLiftContext, LiteLowerContext
from converter.formats.lite.quantization import (
    Quantization,
    bias_integers,
    constant_dequantized,
    node_quantization,
    quantized_weights,
    real_numbers,
)
from converter.formats.lite.recurrent import OPERANDS
from converter.formats.tflite.codec import LiteGraph, LiteOperator, LiteTensor
from converter.formats.tflite.collector import LiteLowering, dequantized
from converter.formats.tflite.kernels import RESULTS, kernels
from converter.formats.tflite.tensors import is_quantized, tensor_quantization, type_of
from converter.graph.build import Builder
from converter.graph.infer import Array, constant, known, rank_of
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.states import Hashtable, State, Variables
from converter.graph.value import (
    Value,
    known_sizes,
    operand,
    producer_operand,
    type_name,
    with_operators,
)
from converter.mapping import context
from converter.mapping.codecs import PLAIN
from converter.mapping.node import Layer, Node

Dims = list[int | None]
NARROW = {
    ir.DataType.DOUBLE: ir.DataType.FLOAT,
    ir.DataType.FLOAT16: ir.DataType.FLOAT,
    ir.DataType.BFLOAT16: ir.DataType.FLOAT,
    ir.DataType.UINT64: ir.DataType.INT64,
}
INT32 = ir.DataType.INT32
SMALLEST, LARGEST = np.iinfo(np.int32).min, np.iinfo(np.int32).max
STORED = (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16)
SMALL = 1e-5  # by which two scales may differ that are the same
TENSOR_INT32, TENSOR_INT64 = 2, 4  # of TensorType


class SubgraphView(Protocol):
    """A subgraph that is being read, as far as rows need it.

    `subgraph`     as the file has it
    `path`         the subgraphs around this one, and itself
    `handles`      the states that resource tensors refer to, which are not values
    `tables`       the tables of keys and values, likewise
    `initializes`  the subgraph gives variables their initial values
    `notes`        warnings about content of the file that no kernel reads
    """

    subgraph: LiteGraph
    tensors: Sequence[LiteTensor]
    path: tuple[int, ...]
    handles: dict[int, State]
    tables: dict[int, Hashtable]
    variables: Variables
    initializes: bool
    problems: list[Diagnostic]
    notes: list[Diagnostic]

    def value(self, index: int) -> ir.Value: ...
    def leave(self, index: int, value: ir.Value) -> None: ...
    def child(self, number: int, b: Builder) -> SubgraphView: ...
    def inlined(self, number: int, b: Builder, inputs: Sequence[ir.Value]) -> list[ir.Value]: ...
    def run(self) -> None: ...


class LiftContext(LiteLiftContext):
    """One operator on its way into the graph.

    `operator`  as the file has it
    `graph`     the subgraph that is being read, with the values of its tensors
    """

    activation_key = "fused_activation_function"

    def __init__(
        self, layer: Layer, b: Builder, operator: LiteOperator, graph: SubgraphView
    ) -> None:
        super().__init__(layer, b, 0, PLAIN, channels_last=True)
        self.operator, self.graph = operator, graph

    def begin(self, rule: context.Row) -> None:
        super().begin(rule)
        first = self.node.last and self.layer.inputs and 0 not in rule.owned("inputs")
        rank = rank_of(self.input(0)) if first else None
        if rank is not None and rank < 3:
            raise MappingError(f"an image cannot have {rank} axes", "R105")

    # tensors, by their position among the operator's ---------------------------------------------

    def key(self, name: str) -> int | None:
        names = OPERANDS[self.layer.kind]
        return names.index(name) if name in names else None

    def has(self, index: int | None) -> bool:
        indexes = self.operator.inputs
        return index is not None and index < len(indexes) and indexes[index] >= 0

    def stored_type(self, index: int) -> ir.DataType:
        return type_of(self.tensor(index))

    def tensor(self, index: int) -> LiteTensor:
        """Return the tensor description of input `index`; raise MappingError R105 if the input is
        omitted.
        """
        if not self.has(index):
            raise MappingError(f"input {index} is absent", "R105")
        return self.graph.tensors[self.operator.inputs[index]]

    def result(self, index: int = 0) -> LiteTensor:
        """Return the tensor description of result `index`."""
        if index >= len(self.operator.outputs):
            raise MappingError(f"output {index} is absent", "R105")
        return self.graph.tensors[self.operator.outputs[index]]

    def whole(self, of: ir.Value | int) -> Value:
        """Return a value or an input that contains indices, sizes or axes as int64, which ONNX
        requires.
        """
        return self.cast(self.input(of) if isinstance(of, int) else of, ir.DataType.INT64)

    def stored(self, index: int) -> Value:
        """Return input `index` in its storage type: the integers of a quantized tensor."""
        if not self.has(index):
            raise MappingError(f"input {index} is absent", "R105")
        self.optional(index)  # marks it as read
        return with_operators(self.graph.value(self.operator.inputs[index]))

    def real(self, index: int | None) -> Value:
        return self.input(len(self.layer.inputs) if index is None else index)

    def quantization(self, index: int) -> Quantization | None:
        return tensor_quantization(self.tensor(index))

    def channels(self) -> int | None:
        """Return the last size of an image, None where it is not known."""
        found = dims_of(self.data)
        if len(found) < 3:
            raise MappingError(f"an image cannot have {len(found)} axes", "R105")
        return found[-1]

    def bias_scales(self, key: int, factors: Sequence[int]) -> Array:
        """Return the product of the scales of `factors`, with a warning if the file
        states others.
        """
        bias = self.tensor(key)
        stated, found = np.asarray(bias.scales, np.float32), self.product_of_scales(factors)
        fits = stated.size in (1, found.size) and np.allclose(stated, found, rtol=SMALL, atol=0)
        if not factors or not found.size or fits:
            return stated
        layer = self.layer
        self.graph.notes.append(
            Diagnostic(
                "R112",
                f"the scale of bias {bias.name!r} is not the product of input "
                "and weight scales; LiteRT and netconv use the product",
                "warning",
                replace(layer.where, layer=layer.name, kind=layer.kind),
                help="quantize the model again if the scale in the file is intended",
            )
        )
        return found

    @property
    def quantized(self) -> bool:
        """Return whether the first input is quantized."""
        return is_quantized(self.tensor(0))

    # states --------------------------------------------------------------------------------------

    def leave(self, index: int, value: ir.Value) -> None:
        """Make `value` the value of the variable at input `index` from now on."""
        self.graph.leave(self.operator.inputs[index], value)


class LowerContext(LiteLowerContext):
    """One operator on its way into a file.

    `quantized`: it is written on the quantized values around it.
    """

    low: LiteLowering

    def __init__(self, node: Node, low: LiteLowering, quantized: bool = False) -> None:
        super().__init__(node, low)
        self.quantized = quantized

    # rows ----------------------------------------------------------------------------------------

    def begin(self, rule: context.Row) -> None:
        super().begin(rule)
        taken = rule.owned("inputs")
        own = [v for i, v in enumerate(self.node.inputs) if i not in taken]
        self.layer.inputs = self.layer.inputs[: len(own)]

    def emit_layer(self) -> None:
        layer = self.layer
        layer.inputs = [None if v is None else self.real(v) for v in layer.inputs]
        layer.outputs = [self.target(v) for v in layer.outputs]
        self.demand_kernel(layer)
        self.demand_one_type(layer)
        self.low.layers.append(layer)
        for step in self._after_emit:
            step()

    def put(
        self,
        kind: str,
        *operands: Any,
        outputs: Sequence[ir.Value] | None = None,
        **attrs: Any,
    ) -> Layer:
        results = self.node.outputs if outputs is None else outputs
        layer = super().put(kind, *operands, outputs=[self.target(v) for v in results], **attrs)
        self.demand_kernel(layer)
        return layer

    def emit(
        self,
        kind: str,
        *operands: Any,
        dtype: ir.DataType | None = None,
        shape: Sequence[Any] | None = None,
        **attrs: Any,
    ) -> ir.Value:
        """Emit a layer as the base class does; a result of the first operand's type also has its
        scale.
        """
        inputs = [self.operand(v) for v in operands]
        result = super().emit(kind, *inputs, dtype=dtype, shape=shape, **attrs)
        if dtype is None and inputs[0] is not None and inputs[0] in self.low.scales:
            self.low.note(result, self.low.scales[inputs[0]])
        return result

    def operand(self, value: Any) -> ir.Value | None:
        found = super().operand(value)
        return found if found is None else self.real(found)

    def mark(self) -> Any:
        return self.low.mark()

    def undo(self, mark: Any) -> None:
        self.low.undo(mark)

    def result(
        self, name: str = "result", dtype: ir.DataType | None = None, index: int = 0
    ) -> ir.Value:
        stored = self.target(self.layer.outputs[index])
        made = super().result(name, dtype or stored.dtype, index)
        if dtype is None and stored in self.low.scales:
            self.low.note(made, self.low.scales[stored])
        return made

    def exact(self, value: ir.Value) -> ir.Value:
        """Return `value`, which stays in half precision."""
        self.low.keep_exact(value)
        return value

    def place(self, index: int, value: Any) -> None:
        """Set an input of the operator to a value, or to a constant with the given array."""
        inputs = self.layer.inputs
        inputs.extend([None] * (index + 1 - len(inputs)))
        inputs[index] = value if value is None or isinstance(value, ir.Value) else self.const(value)

    def like(self, value: ir.Value, number: float) -> ir.Value:
        """Return one number as a constant of the type, and in the scale, of another value."""
        dtype = NARROW.get(value.dtype or ir.DataType.FLOAT, value.dtype or ir.DataType.FLOAT)
        scale = self.low.scales.get(value)
        kind = np.dtype(dtype.numpy())
        stored: float = number
        if kind.kind == "b":
            return self.const(np.asarray(bool(number)))
        if scale is not None:
            stored = float(np.rint(number / scale.scales[0])) + scale.zeros[0]
        limits = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)
        made = self.const(np.asarray(np.clip(stored, limits.min, limits.max), kind))
        if scale is not None:
            self.low.note(made, scale)
        return made

    def int32(self, numbers: Any, name: str = "const") -> ir.Value:
        """Return a constant of int32; raise MappingError X204 if a number is larger."""
        array = np.asarray(numbers, np.int64)
        if array.size and not -(1 << 31) <= int(array.min()) <= int(array.max()) < 1 << 31:
            raise MappingError(
                f"{name} {array.reshape(-1)[:4].tolist()} is outside the range of int32", "X204"
            )
        return self.const(array.astype(np.int32), name)

    def index_constant(self, value: int | list[int], what: str) -> ir.Value:
        return self.int32(value, what)

    def indices(self, value: ir.Value, largest: bool = False) -> ir.Value:
        """Return indices or sizes in 32 bits. `largest`: computed ones are clamped to int32."""
        array = known(value)
        if array is not None:
            return self.int32(array, "indices")
        source = producer_operand(value, "Cast")
        value = value if source is None or source.dtype != INT32 else source
        if value.dtype == INT32:
            return value
        shape = None if value.shape is None else list(value.shape)
        if largest:
            value = self.emit("MINIMUM", value, self.const(LARGEST), shape=shape)
            value = self.emit("MAXIMUM", value, self.const(SMALLEST), shape=shape)
        types = {"in_data_type": TENSOR_INT64, "out_data_type": TENSOR_INT32}
        return self.emit("CAST", value, dtype=INT32, shape=shape, **types)

    def demand_kernel(self, layer: Layer) -> None:
        """Raise MappingError X202 unless a kernel takes the data of the layer."""
        kernel = kernels().get(layer.kind)
        if kernel is None or kernel.data >= len(layer.inputs):
            return
        value = layer.inputs[kernel.data]
        if value is None:
            return
        dtype = NARROW.get(value.dtype or ir.DataType.FLOAT, value.dtype or ir.DataType.FLOAT)
        scaled = value in self.low.scales
        computed = dtype == ir.DataType.INT4 and value.const_value is None
        if computed or not kernel.takes(dtype, scaled):
            what = f"quantized {type_name(dtype)}" if scaled else type_name(dtype)
            raise MappingError(f"no kernel of {layer.kind} supports {what}", "X202")
        ranks = [len(v.shape) for v in (value, *layer.outputs) if v.shape is not None]
        if ranks and max(ranks) > kernel.rank:
            message = f"{layer.kind} supports up to {kernel.rank} axes, got {max(ranks)}"
            raise MappingError(message, "X203")

    def demand_one_type(self, layer: Layer) -> None:
        """Check that the quantized values of an operator have one type, except for constants and
        values that it rescales.
        """
        if not self.quantized or layer.kind == "QUANTIZE":
            return
        values = (*layer.inputs, *layer.outputs)
        stored = [v for v in values if v in self.low.scales and v.const_value is None]
        if len({v.dtype for v in stored if v is not None}) > 1 and layer.kind != "SOFTMAX":
            raise MappingError("quantized operands must have one type")
        for v in stored:
            if v is not None and v.dtype == ir.DataType.INT16 and any(self.low.scales[v].zeros):
                raise MappingError("quantized 16-bit data must have zero point 0")
        result = layer.outputs[0]
        fixed = RESULTS.get((layer.kind, result.dtype or ir.DataType.FLOAT))
        if fixed is not None and result in self.low.scales:
            scale, zero = self.low.scales[result].single
            if abs(scale - fixed[0]) > SMALL * fixed[0] or zero != fixed[1]:
                raise MappingError("the kernel gives a different scale")

    # values --------------------------------------------------------------------------------------

    def real(self, value: ir.Value) -> ir.Value:
        """Return an input of the operator; if it works on quantized values, those before
        DequantizeLinear.
        """
        if (found := self.read_quantized(value)) is None:
            return value
        if found[0].dtype not in STORED:
            raise MappingError(f"{value.name} must be stored in 8 or 16 bits")
        self.low.note(*found)
        return found[0]

    def target(self, value: ir.Value) -> ir.Value:
        """Return the value that the operator writes; on quantized values, the result of the
        QuantizeLinear.
        """
        found = None if value in self.low.made else self.written_quantized(value)
        if found is None:
            return value
        stored = self.absorb(found[0])
        if stored.dtype not in STORED:
            raise MappingError("the result must be stored in 8 or 16 bits")
        self.low.note(stored, found[1])
        return stored

    def absorb(self, node: ir.Node) -> ir.Value:
        self.low.absorb(node)
        return node.outputs[0]

    def scale(self, value: ir.Value | None) -> Quantization:
        """Return the scale of quantized values that the operator reads or writes."""
        found = None if value is None else self.low.scales.get(value)
        if found is None:
            raise MappingError("the operand is not quantized")
        return found

    def one_scale(self) -> None:
        """Refuse quantized values whose scales differ, if the kernel only moves them. Checked when
        the layer is written: the scales of results are known then.
        """
        if not self.quantized:
            return
        layer = self.layer

        def check() -> None:
            values = [v for v in (*layer.inputs, *layer.outputs) if v in self.low.scales]
            if len({self.low.scales[v].single for v in values if v is not None}) > 1:
                raise MappingError("the operands must have the same scale and zero point")

        self.after_emit(check)

    def shape(self, sizes: Dims, of: ir.Value) -> ir.Value:
        """Return a vector of sizes; one that is not known is that of the same axis of
        another value.
        """
        if None not in sizes:
            return self.int32(sizes, "shape")
        own = self.emit("SHAPE", of, dtype=INT32, shape=[len(sizes)], out_type=TENSOR_INT32)
        parts: list[ir.Value] = []
        for i, n in enumerate(sizes):
            if n is not None:
                parts.append(self.int32([n], "size"))
            else:
                one = np.array([1], np.int32)
                place = np.array([i], np.int32)
                parts.append(self.emit("SLICE", own, place, one, shape=[1]))
        return self.emit("CONCATENATION", *parts, shape=[len(sizes)], axis=0)

    def scaled_shape(self, of: ir.Value, factors: Sequence[int], added: Sequence[int]) -> ir.Value:
        """Return a vector of sizes: those of another value, each times a factor, plus a number."""
        shape = [len(factors)]
        own = self.emit("SHAPE", of, dtype=INT32, shape=shape, out_type=TENSOR_INT32)
        product = self.emit("MUL", own, self.int32(factors, "factors"), shape=shape)
        return self.emit("ADD", product, self.int32(added, "added"), shape=shape)

    # images --------------------------------------------------------------------------------------

    def image(self, value: ir.Value) -> Dims:
        """Return the sizes of an image in channels-last order, None for dynamic sizes."""
        shape = dims_of(value)
        return shape if self.node.last else [shape[0], *shape[2:], shape[1]]

    def image_size(self, factors: Sequence[int], added: Sequence[int]) -> ir.Value:
        """Return the sizes of the spatial axes of the image, each times a factor, plus a number."""
        n = len(factors)
        sizes = self.scaled_shape(self.data, [0, *factors, 0], [0, *added, 0])
        return self.emit("SLICE", sizes, self.int32([1]), self.int32([n]), shape=[n])

    def image_rank(self, rank: int) -> None:
        found = self.rank()
        if found != rank:
            raise MappingError(f"an image must have {rank} axes, got {found}")

    # weights -------------------------------------------------------------------------------------

    def placed(self, key: int) -> ir.Value:
        found = self.layer.inputs[key]
        assert found is not None
        return found

    def alias(self, value: ir.Value, source: ir.Value) -> None:
        self.low.alias(value, source)

    def weights(self, perm: Sequence[int], outputs: int) -> ir.Value:
        value, name = self.input(1), str(self.input(1).name)
        before, order = self.before_transpose(value, perm)
        node = constant_dequantized(before)
        if node is not None:
            return self._quantized_weights(name, node, order, outputs)
        if self.quantized:
            raise MappingError("the weights are not quantized")
        if (array := constant(value)) is not None:
            tensor = LazyTensor(array) if value.const_value is None else value.const_value
            return self.const(LazyTensor.of(tensor).transposed(perm), name)
        if (half := _half(value)) is not None:
            return self.const(half.transpose(perm), name)
        if order == list(range(len(order))):
            return before
        shape = [dims_of(value)[i] for i in perm]
        return self.emit("TRANSPOSE", before, np.asarray(order, np.int32), shape=shape)

    def _quantized_weights(
        self, name: str, node: ir.Node, order: list[int], outputs: int
    ) -> ir.Value:
        """Return constant quantized weights, dequantized by a DEQUANTIZE if the operator computes
        with real numbers. With signed data they have no zero point, and one scale per output.
        """
        stored, signed = operand(node), not self.quantized or self.signed
        tensor = stored.const_value
        if tensor is not None and stored.dtype == ir.DataType.INT4 and not self.quantized:
            found = node_quantization(node)
            axis = None if found.axis is None else order.index(found.axis)
            found = replace(found, axis=axis)
            made = self.const(LazyTensor.of(tensor).transposed(order), name)
        else:
            array, found = quantized_weights(node, order, signed)
            made = self.const(array, name)
        self.low.note(made, found)
        if not self.quantized:
            shape = list(made.shape or ())
            return self.emit("DEQUANTIZE", made, dtype=ir.DataType.FLOAT, shape=shape)
        if found.axis is not None and (not signed or found.axis != outputs):
            raise MappingError(
                "per-channel scales are only supported along the output "
                "channels, and not with unsigned data"
            )
        if signed and any(found.zeros):
            raise MappingError("the zero point of signed weights must be 0")
        return made

    @property
    def signed(self) -> bool:
        """Return whether the integers of the data are signed."""
        value = next(
            (n.inputs[0] for v in self.node.inputs if (n := dequantized(v)) is not None), None
        )
        return value is None or value.dtype in (ir.DataType.INT8, ir.DataType.INT16)

    def bias(self, value: ir.Value | None, count: int, weights: ir.Value) -> ir.Value:
        """Return the operand of a bias. With quantized data it has 32 bits, 64 for 16-bit data, and
        the product of the scales of data and weights as its scale.
        """
        name = "bias" if value is None else str(value.name)
        if not self.quantized:
            array = np.zeros(count, np.float32) if value is None else constant(value)
            array = array if array is not None or value is None else _half(value)
            if array is None:
                assert value is not None
                return value
            vector = np.broadcast_to(array.reshape(-1), (count,)).astype(array.dtype)
            return self.const(vector, name)
        numbers = np.zeros(count) if value is None else real_numbers(value)
        if numbers is None:
            raise MappingError("the bias must be constant")
        data = self.real(self.data)
        scales = np.float32(self.scale(data).scales[0]) * np.asarray(
            self.scale(weights).scales, np.float32
        )
        kind = np.int64 if data.dtype == ir.DataType.INT16 else np.int32
        made = self.const(bias_integers(numbers, count, scales, kind), name)
        axis = 0 if len(scales) > 1 else None
        self.low.note(made, Quantization(tuple(map(float, scales)), (0,) * len(scales), axis))
        return made


def _half(value: ir.Value) -> Array | None:
    """Match constant half-precision numbers followed by a Cast."""
    array = constant(producer_operand(value, "Cast"))
    return array if array is not None and array.dtype == np.float16 else None


def dims_of(value: ir.Value) -> Dims:
    """Return the sizes of a value, None for dynamic ones; raise MappingError X203 if the rank is
    unknown.
    """
    found = known_sizes(value)
    if found is None:
        raise MappingError(f"the rank of {value.name} is unknown", "X203")
    return found
