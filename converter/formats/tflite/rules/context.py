"""The contexts in which operators of a file are read and written.

A row sees an operator as a layer: its options are the attributes, by the names of the schema, and
all its tensors are inputs, in their order in the file, constants too. Read, inputs are real
numbers: what is stored as integers with a scale stands behind a DequantizeLinear, and results are
quantised as their tensors say, so that a quantised operator becomes one on real numbers. Images are
channels-last.

Written, an operator between DequantizeLinear and QuantizeLinear is first tried on the stored
integers (`quantised`), whose scales become those of tensors, and put between DEQUANTIZE and
QUANTIZE where no kernel takes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, MappingError, Where
from converter.formats.tflite.codec import LiteOperator, LiteTensor
from converter.formats.tflite.kernels import RESULTS, kernels
from converter.formats.tflite.tensors import FLOATS, dequantise, is_quantised
from converter.graph.build import Builder, attrs_of
from converter.graph.infer import Array, constant, known, rank_of
from converter.graph.lazy_tensor import LazyTensor, whole_bytes
from converter.graph.value import (
    Value,
    known_sizes,
    made_of,
    maker,
    operand,
    optional,
    with_operators,
)
from converter.mapping import context
from converter.mapping.codecs import PLAIN
from converter.mapping.fusing import activation_of, only_user
from converter.mapping.node import Layer, Node

if TYPE_CHECKING:
    from converter.formats.tflite.collector import LiteLowering
    from converter.formats.tflite.lift import GraphLifting

Dims = list[int | None]
NARROW = {
    ir.DataType.DOUBLE: ir.DataType.FLOAT,
    ir.DataType.FLOAT16: ir.DataType.FLOAT,
    ir.DataType.BFLOAT16: ir.DataType.FLOAT,
    ir.DataType.UINT64: ir.DataType.INT64,
}
INT32 = ir.DataType.INT32
LARGEST = np.iinfo(np.int32).max
STORED = (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16)
SMALL = 1e-5  # by which two scales may differ that are the same
LARGEST_SCALE = 1e30  # whose multiples are beyond the floats in which integers are scaled
TENSOR_INT32, TENSOR_INT64 = 2, 4  # of TensorType


@dataclass(frozen=True)
class Quantisation:
    """Scales and zero points of stored integers: one, or one for each place of `axis`."""

    scales: tuple[float, ...]
    zeros: tuple[int, ...]
    axis: int = 0

    @property
    def single(self) -> tuple[float, int]:
        return self.scales[0], self.zeros[0]


def dequantised(value: ir.Value | None) -> ir.Node | None:
    """The DequantizeLinear that makes a value."""
    return maker(value, "DequantizeLinear")


def any_quantised(values: Sequence[ir.Value]) -> bool:
    """Whether results are only read by a QuantizeLinear."""
    user = only_user(values[0]) if values else None
    return user is not None and is_linear(user, "QuantizeLinear")


def is_linear(node: ir.Node, kind: str) -> bool:
    return node.op_type == kind and node.domain == ""


def parameters(node: ir.Node) -> tuple[Array, Array] | None:
    """Scale and zero point of a QuantizeLinear or DequantizeLinear, when they are constants."""
    scale, given = constant(node.inputs[1]), optional(node, 2)
    if scale is None or attrs_of(node).get("block_size", 0):
        return None
    zero = np.zeros(scale.shape, np.int32) if given is None else constant(given)
    if zero is None or (zero.dtype.kind not in "iu" and zero.dtype.name not in ("int4", "uint4")):
        return None
    return scale.reshape(-1).astype(np.float32), zero.reshape(-1).astype(np.int32)


def quantisation_of(node: ir.Node) -> Quantisation:
    """That of a QuantizeLinear or DequantizeLinear whose scale is one constant."""
    found = parameters(node)
    if found is None or found[0].size != 1:
        raise MappingError("scale and zero point must be constant, and one for all")
    if not np.finfo(np.float32).tiny <= found[0][0] < LARGEST_SCALE:
        raise MappingError("a scale that is no ordinary number")
    return Quantisation((float(found[0][0]),), (int(found[1][0]),))


class Reading(context.Reading):
    """One operator on its way into the graph.

    `operator`  as the file has it
    `graph`     the subgraph that is being read, with the values of its tensors
    """

    def __init__(
        self, layer: Layer, b: Builder, operator: LiteOperator, graph: GraphLifting
    ) -> None:
        super().__init__(layer, b, 0, PLAIN, channels_last=True)
        self.operator, self.graph = operator, graph

    def begin(self, rule: context.Row) -> None:
        super().begin(rule)
        first = self.node.last and self.layer.inputs and 0 not in rule.owned("inputs")
        rank = rank_of(self.input(0)) if first else None
        if rank is not None and rank < 3:
            raise MappingError(f"an image of {rank} axes", "R105")

    # tensors, by their position among the operator's ---------------------------------------------

    def has(self, index: int) -> bool:
        return index < len(self.operator.inputs) and self.operator.inputs[index] >= 0

    def tensor(self, index: int) -> LiteTensor:
        """What the file says of input `index`; MappingError R105 when it is left out."""
        if not self.has(index):
            raise MappingError(f"input {index} is absent", "R105")
        return self.graph.tensors[self.operator.inputs[index]]

    def result(self, index: int = 0) -> LiteTensor:
        """What the file says of result `index`."""
        if index >= len(self.operator.outputs):
            raise MappingError(f"output {index} is absent", "R105")
        return self.graph.tensors[self.operator.outputs[index]]

    def whole(self, of: ir.Value | int) -> Value:
        """Indices, sizes and axes, a value or an input, as ONNX has them: 64 bits."""
        return self.cast(self.input(of) if isinstance(of, int) else of, ir.DataType.INT64)

    def stored(self, index: int) -> Value:
        """Input `index` as it is stored: the integers of a quantised tensor."""
        if not self.has(index):
            raise MappingError(f"input {index} is absent", "R105")
        return with_operators(self.graph.value(self.operator.inputs[index]))

    def permuted(self, index: int, perm: Sequence[int]) -> ir.Value:
        """Constant or computed weights with their axes in another order, as real numbers: a
        quantised constant stays integers behind a DequantizeLinear.
        """
        tensor = self.tensor(index)
        if self.rank(self.stored(index), "the weights") != len(perm):
            raise MappingError(f"weights of other than {len(perm)} axes", "R105")
        turned = self.transpose(self.stored(index), perm)
        axis = list(perm).index(tensor.axis) if tensor.axis in perm else 0
        return dequantise(self.b, turned, tensor, axis)

    def real_bias(self, index: int, factors: Sequence[int] = ()) -> ir.Value | None:
        """The bias at input `index` as real numbers, None when it is left out.

        Integers of 32 or 64 bits have the product of the scales of the inputs `factors`, those of
        the data and of the weights, as kernels do not read the scale of the bias itself.
        """
        if not self.has(index):
            return None
        tensor, value = self.tensor(index), self.stored(index)
        if value.dtype not in (ir.DataType.INT32, ir.DataType.INT64):
            return self.input(index)
        scales = self._bias_scales(tensor, [self.tensor(i) for i in factors])
        if not scales.size:
            return self.input(index)
        scale = scales.reshape(()) if len(scales) == 1 else scales
        if value.dtype == ir.DataType.INT64:
            number = self.b.Cast(value, to=ir.DataType.FLOAT)
            return number * scale
        return self.b.DequantizeLinear(value, scale, axis=0)

    def _bias_scales(self, bias: LiteTensor, factors: Sequence[LiteTensor]) -> Array:
        """The scales of a bias of integers, with a warning where the file states others."""
        stated = np.asarray(bias.scales, np.float32)
        if not factors or not all(map(is_quantised, factors)):
            return stated
        found = np.ones(1, np.float32)
        for tensor in factors:
            found = found * np.asarray(tensor.scales, np.float32)
        if stated.size in (1, found.size) and np.allclose(stated, found, rtol=SMALL, atol=0):
            return stated
        where = self.layer.where
        self.graph.notes.append(
            Diagnostic(
                "R112",
                f"the scale of the bias {bias.name!r} is not the product of the scales of input "
                "and weights; LiteRT computes with the product, and so does the result",
                "warning",
                Where(where.file, where.line, where.path, self.layer.name, self.layer.kind),
                help="quantize the model again if the scale in the file is meant",
            )
        )
        return found

    @property
    def quantised(self) -> bool:
        """Whether the first input is stored as integers that stand for real numbers."""
        return is_quantised(self.tensor(0))

    # states --------------------------------------------------------------------------------------

    def leave(self, index: int, value: ir.Value) -> None:
        """`value` is what the variable at input `index` holds from now on."""
        self.graph.leave(self.operator.inputs[index], value)


class Writing(context.Writing):
    """One operator on its way into a file.

    `quantised`: it is written on the stored integers around it.
    """

    low: LiteLowering

    def __init__(self, node: Node, low: LiteLowering, quantised: bool = False) -> None:
        super().__init__(node, low)
        self.quantised = quantised

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
        for step in self._behind:
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
        """As in the base; a result of the first operand's type has its scale, too."""
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
        """`value`, which stays in half precision."""
        self.low.keep_exact(value)
        return value

    def place(self, index: int, value: Any) -> None:
        """A tensor at an input of the operator: a value, or the array of a constant."""
        inputs = self.layer.inputs
        inputs.extend([None] * (index + 1 - len(inputs)))
        inputs[index] = value if value is None or isinstance(value, ir.Value) else self.const(value)

    def like(self, value: ir.Value, number: float) -> ir.Value:
        """One number as a constant of the type, and in the scale, of another value."""
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
        """A constant of int32; MappingError X204 where a number is larger."""
        array = np.asarray(numbers, np.int64)
        if array.size and not -(1 << 31) <= int(array.min()) <= int(array.max()) < 1 << 31:
            raise MappingError(f"{name} {array.reshape(-1)[:4].tolist()} is beyond 32 bits", "X204")
        return self.const(array.astype(np.int32), name)

    def index_constant(self, value: int | list[int], what: str) -> ir.Value:
        return self.int32(value, what)

    def indices(self, value: ir.Value, largest: bool = False) -> ir.Value:
        """Indices or sizes in 32 bits. `largest`: what is larger stays the largest such number."""
        array = known(value)
        if array is not None:
            return self.int32(
                np.clip(array, -LARGEST - 1, LARGEST) if largest else array, "indices"
            )
        source = made_of(value, "Cast")
        value = value if source is None or source.dtype != INT32 else source
        if value.dtype == INT32:
            return value
        shape = None if value.shape is None else list(value.shape)
        if largest:
            limits = [self.const(n) for n in (LARGEST, -LARGEST - 1)]
            value = self.emit("MINIMUM", value, limits[0], shape=shape)
            value = self.emit("MAXIMUM", value, limits[1], shape=shape)
        types = {"in_data_type": TENSOR_INT64, "out_data_type": TENSOR_INT32}
        return self.emit("CAST", value, dtype=INT32, shape=shape, **types)

    def untransposed(self, index: int) -> ir.Value | None:
        """What a Transpose of the same graph turns to make operand `index`, a matrix."""
        value, rank = self.input(index), self.rank(index)
        before, order = before_transpose(value, list(range(rank)), self.graph)
        return before if order == [*range(rank - 2), rank - 1, rank - 2] else None

    def demand_kernel(self, layer: Layer) -> None:
        """MappingError X202 unless a kernel takes the data of the layer."""
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
            what = f"{dtype.name} with a scale" if scaled else dtype.name
            raise MappingError(f"no kernel of {layer.kind} takes {what}", "X202")
        ranks = [len(v.shape) for v in (value, *layer.outputs) if v.shape is not None]
        if ranks and max(ranks) > kernel.rank:
            message = f"{layer.kind} takes up to {kernel.rank} axes, there are {max(ranks)}"
            raise MappingError(message, "X203")

    def demand_one_type(self, layer: Layer) -> None:
        """Stored integers of an operator have one type, but for constants and those that it
        brings to another scale.
        """
        if not self.quantised or layer.kind == "QUANTIZE":
            return
        values = (*layer.inputs, *layer.outputs)
        stored = [v for v in values if v in self.low.scales and v.const_value is None]
        if len({v.dtype for v in stored if v is not None}) > 1 and layer.kind != "SOFTMAX":
            raise MappingError("stored integers of several types")
        for v in stored:
            if v is not None and v.dtype == ir.DataType.INT16 and any(self.low.scales[v].zeros):
                raise MappingError("stored integers of 16 bits with a zero point")
        result = layer.outputs[0]
        fixed = RESULTS.get((layer.kind, result.dtype or ir.DataType.FLOAT))
        if fixed is not None and result in self.low.scales:
            scale, zero = self.low.scales[result].single
            if abs(scale - fixed[0]) > SMALL * fixed[0] or zero != fixed[1]:
                raise MappingError("the kernel gives another scale")

    # values --------------------------------------------------------------------------------------

    @property
    def graph(self) -> Any:
        """The graph in which the operator stands; None for one that was taken out of it."""
        own = self.node.outputs[0].producer()
        return None if own is None else own.graph

    def real(self, value: ir.Value) -> ir.Value:
        """What the operator reads: on the stored integers those in front of a DequantizeLinear."""
        if not self.quantised or value.dtype not in FLOATS:
            return value
        node = dequantised(value)
        stored = None if node is None else node.inputs[0]
        if node is not None and self.graph is not None and node.graph is not self.graph:
            raise MappingError(f"{value.name} is quantised around the body")
        if node is None or stored is None or stored.dtype not in STORED:
            raise MappingError(f"{value.name} is not quantised")
        self.low.note(stored, quantisation_of(node))
        return stored

    def target(self, value: ir.Value) -> ir.Value:
        """The value that the operator writes: on the stored integers that of a QuantizeLinear."""
        if not self.quantised or value.dtype not in FLOATS or value in self.low.made:
            return value
        user = only_user(value)
        if user is None or not is_linear(user, "QuantizeLinear") or user.inputs[0] is not value:
            raise MappingError("the result is not quantised")
        found = quantisation_of(user)
        stored = user.outputs[0]
        if stored.dtype not in STORED:
            raise MappingError("the result is not stored in 8 or 16 bits")
        self.low.note(stored, found)
        self.low.absorb(user)
        return stored

    def scale(self, value: ir.Value | None) -> Quantisation:
        """The scale of stored integers that the operator reads or writes."""
        found = None if value is None else self.low.scales.get(value)
        if found is None:
            raise MappingError("the operand is not quantised")
        return found

    def one_scale(self) -> None:
        """Refuses stored integers whose scales differ, of which the kernel only moves the numbers.

        Written when the layer is: the scales of results are known then.
        """
        if not self.quantised:
            return
        layer = self.layer

        def check() -> None:
            values = [v for v in (*layer.inputs, *layer.outputs) if v in self.low.scales]
            if len({self.low.scales[v].single for v in values if v is not None}) > 1:
                raise MappingError("its operands differ in scale or zero point")

        self.then(check)

    def activation(self) -> str:
        """The activation behind the operator, which becomes part of it."""
        value = self.layer.outputs[0]
        user = only_user(value)
        name = "" if user is None else activation_of(user)
        if user is None or not name or user.inputs[0] is not value:
            return ""
        self.layer.outputs[0] = user.outputs[0]
        self.low.absorb(user)
        return name

    def shape(self, sizes: Dims, of: ir.Value) -> ir.Value:
        """A vector of sizes; one that is not known is that of the same axis of another value."""
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

    def addend(self, count: int) -> ir.Value | None:
        """A constant vector that is added to the result along its last axis, and becomes part of
        the operator.
        """
        value = self.layer.outputs[0]
        user = only_user(value)
        if user is None or user.op_type != "Add" or user.domain:
            return None
        other = user.inputs[1 if user.inputs[0] is value else 0]
        node = dequantised(other)
        stored = constant(other if node is None else node.inputs[0])
        if other is None or other.shape is None or stored is None or value.shape is None:
            return None
        shape = list(stored.shape)
        if stored.size != count or shape[-1:] != [count] or len(shape) > len(value.shape):
            return None
        self.layer.outputs[0] = user.outputs[0]
        self.low.absorb(user)
        return other

    # images --------------------------------------------------------------------------------------

    def image(self, value: ir.Value) -> Dims:
        """The sizes of an image with its channels last, None for what is not known."""
        shape = dims_of(value)
        return shape if self.node.last else [shape[0], *shape[2:], shape[1]]

    def image_rank(self, rank: int) -> None:
        found = self.rank()
        if found != rank:
            raise MappingError(f"an image has {rank} axes here, not {found}")

    # weights -------------------------------------------------------------------------------------

    def weights(self, value: ir.Value, perm: Sequence[int]) -> ir.Value:
        """Weights with their axes in another order; a constant is a view. Quantised weights keep
        their integers.
        """
        array, node = constant(value), dequantised(value)
        if node is not None and constant(node.inputs[0]) is not None:
            return self._quantised_weights(value, node, perm)
        if self.quantised:
            raise MappingError("the weights are not quantised")
        if array is not None:
            tensor = LazyTensor(array) if value.const_value is None else value.const_value
            return self.const(LazyTensor.of(tensor).transposed(perm), str(value.name))
        half = _half(value)
        if half is not None:
            return self.const(half.transpose(perm), str(value.name))
        before, order = before_transpose(value, perm, self.graph)
        if order == list(range(len(order))):
            return before
        shape = dims_of(value)
        turned = [shape[i] for i in perm]
        return self.emit("TRANSPOSE", before, np.asarray(order, np.int32), shape=turned)

    def _quantised_weights(self, value: ir.Value, node: ir.Node, perm: Sequence[int]) -> ir.Value:
        stored, found = constant(node.inputs[0]), parameters(node)
        assert stored is not None
        if found is None:
            raise MappingError("scale and zero point of the weights must be constant")
        scales, zeros = found
        axis = int(attrs_of(node).get("axis", 1)) % max(1, stored.ndim)
        shape = [stored.shape[i] for i in perm]
        four = None if node.inputs[0] is None else node.inputs[0].const_value
        if four is not None and four.dtype == ir.DataType.INT4 and not self.quantised:
            made = self.const(LazyTensor.of(four).transposed(perm), str(value.name))
        else:
            turned, zeros = self._bytes(whole_bytes(stored).transpose(perm), zeros)
            made = self.const(turned, str(value.name))
        zeros = np.broadcast_to(zeros, scales.shape)
        place = list(perm).index(axis) if scales.size > 1 else 0
        self.low.note(made, Quantisation(tuple(map(float, scales)), tuple(map(int, zeros)), place))
        if self.quantised:
            return made
        return self.emit("DEQUANTIZE", made, dtype=ir.DataType.FLOAT, shape=shape)

    def _bytes(self, stored: Array, zeros: Array) -> tuple[Array, Array]:
        """Weights of 8 bits and their zero points, signed where the data beside them are."""
        if stored.dtype not in (np.int8, np.uint8):
            raise MappingError(f"weights of {stored.dtype}")
        if stored.dtype == np.uint8 and (not self.quantised or self.signed):
            return (stored ^ 0x80).view(np.int8), zeros - 128
        if stored.dtype == np.int8 and self.quantised and not self.signed:
            return stored.view(np.uint8) ^ 0x80, zeros + 128
        return stored, zeros

    @property
    def signed(self) -> bool:
        """Whether the stored integers of the data are signed."""
        value = next(
            (n.inputs[0] for v in self.node.inputs if (n := dequantised(v)) is not None), None
        )
        return value is None or value.dtype in (ir.DataType.INT8, ir.DataType.INT16)

    def bias(self, value: ir.Value | None, count: int, data: ir.Value, filter_: ir.Value) -> Any:
        """The bias, zeros where there is none. Beside stored integers it has 32 bits (64 beside
        those of 16), and the scale of the data times those of the weights.
        """
        array = np.zeros(count, np.float32) if value is None else constant(value)
        if not self.quantised:
            if array is not None:
                vector = np.broadcast_to(array.reshape(-1), (count,)).astype(array.dtype)
                return self.const(vector, "bias" if value is None else str(value.name))
            half = None if value is None else _half(value)
            if half is not None:
                return self.const(half.reshape(-1), "bias")
            return value
        node = dequantised(value)
        if node is not None:
            stored, found = constant(node.inputs[0]), parameters(node)
            if stored is None or found is None:
                raise MappingError("the bias is not constant")
            array = (stored.reshape(-1).astype(np.float64) - found[1]) * found[0]
        if array is None:
            raise MappingError("the bias is not constant")
        weights = self.scale(filter_)
        scales = np.float32(self.scale(data).scales[0]) * np.asarray(weights.scales, np.float32)
        wide = data.dtype == ir.DataType.INT16
        kind = np.dtype(np.int64 if wide else np.int32)
        steps = np.rint(np.broadcast_to(array.reshape(-1), (count,)) / scales.astype(np.float64))
        if np.abs(steps).max(initial=0) >= 2.0 ** (63 if wide else 31):
            raise MappingError("the bias does not fit into 32 bits", "X204")
        made = self.const(steps.astype(kind), "bias" if value is None else str(value.name))
        self.low.note(made, Quantisation(tuple(map(float, scales)), (0,) * len(scales)))
        return made

    def symmetric(self, filter_: ir.Value, axis: int) -> None:
        """What kernels demand of quantised weights: no zero point beside signed data, and scales
        along the outputs.
        """
        if not self.quantised:
            return
        found = self.scale(filter_)
        if len(found.scales) > 1 and (not self.signed or found.axis != axis):
            raise MappingError("scales for each channel beside unsigned data, or of another axis")
        if self.signed and any(found.zeros):
            raise MappingError("the zero point of signed weights is not 0")


def before_transpose(
    value: ir.Value, perm: Sequence[int], graph: Any
) -> tuple[ir.Value, list[int]]:
    """The value that a Transpose of the same graph turns, and the order in which `perm` has its
    axes: what a body reads of an outer graph is handed to it.
    """
    node = maker(value, "Transpose")
    if node is None or node.graph is not graph:
        return value, list(perm)
    own = [int(i) for i in attrs_of(node)["perm"]]
    return operand(node), [own[i] for i in perm]


def _half(value: ir.Value) -> Array | None:
    """Constant numbers of half precision behind a Cast."""
    array = constant(made_of(value, "Cast"))
    return array if array is not None and array.dtype == np.float16 else None


def dims_of(value: ir.Value) -> Dims:
    """The sizes of a value, None for what is not known; MappingError X203 without a rank."""
    found = known_sizes(value)
    if found is None:
        raise MappingError(f"the rank of {value.name} is unknown", "X203")
    return found


def number(value: ir.Value | None) -> float | None:
    """The one number of a constant."""
    array = known(value)
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None
