"""Inner products and products of matrices. Weights are stored [outputs, inputs]."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, no_match
from converter.formats.coreml.neuralnetwork import operands as blobs
from converter.formats.coreml.neuralnetwork.rules.context import LiftContext, LowerContext
from converter.formats.coreml.neuralnetwork.rules.fields import KEEP_ONE_AXIS, ONE, SEVERAL
from converter.formats.coreml.neuralnetwork.weight_encoding import (
    computed,
    dynamic_int8,
    transposed_form,
)
from converter.formats.coreml.neuralnetwork.weights import WeightData
from converter.graph.infer import constant, rank_of, shape_of
from converter.graph.value import producer_if, producer_of, producer_operand
from converter.mapping.concepts.matmul import Transposes
from converter.mapping.fields import Detail, Field, Guard, RequireAttr, ignore
from converter.mapping.rules import op
from converter.passes.constants import is_constant

Value = ir.Value
D = ir.DataType


def transposed(w: LowerContext, weights: Value) -> WeightData:
    """Return the transpose of a constant matrix [K,N] as stored, [N,K]: the input of its Transpose,
    or a view.
    """
    stored = producer_operand(weights, "Transpose")
    if weights.const_value is None and stored is not None and rank_of(weights) == 2:
        return w.stored(stored)
    compact = transposed_form(weights)
    if compact is not None:
        return compact
    half = producer_operand(weights, "Cast")
    source = half if half is not None and half.dtype == D.FLOAT16 else weights
    array = constant(source)
    data = computed(source, w.low.half, transposed=True) if array is None else w.plain(array.T)
    if data is None:
        raise MappingError("the matrix must be constant")
    return data


class InnerProduct(Field):
    """x times a constant matrix [K,N] <-> weights [N,K]; a bias is an Add after it."""

    blobs = ("weights", "bias")
    inputs: tuple[int, ...] = (1,)

    def __init__(self, into: str, out: str) -> None:
        self.into, self.out = into, out
        self.keys = (into, out, "hasBias", "int8DynamicQuantize")

    def operands(self, r: LiftContext) -> tuple[Value, Value | None]:
        """Return the weights as stored, and the bias."""
        into, out = r.attr(self.into, int), r.attr(self.out, int)
        weights = r.weights("weights", [out, into])
        return weights, r.plain("bias", [out]) if r.attr("hasBias", bool) else None

    def lift(self, r: LiftContext) -> None:
        weights, bias = self.operands(r)
        r.set_input(1, r.transpose(weights, [1, 0]))
        if bias is not None:
            r.after_first(lambda y: y + bias)

    def lower(self, w: LowerContext) -> None:
        x, weights = w.data, w.input(1)
        self.product(w, x, weights)
        if is_constant(x):
            raise no_match("only one operand may be constant")
        self.write(w, transposed(w, weights), shape_of(weights), None, dynamic(weights))

    def product(self, w: LowerContext, x: Value, weights: Value) -> None:
        """Refuse an operator that is not a product with a constant matrix."""
        if len(shape_of(weights) or ()) != 2 or not is_constant(weights) or not rank_of(x):
            raise no_match("the second operand must be a constant matrix")

    def write(
        self, w: LowerContext, data: WeightData, size: Any, bias: Any, quantized: WeightData | None
    ) -> None:
        """Write sizes and weights, quantized ones since specification 5 if there is no bias."""
        into, out = size
        w.set(**{self.into: int(into), self.out: int(out), "hasBias": bias is not None})
        w.layer.blobs["weights"] = data
        if bias is not None:
            w.layer.blobs["bias"] = w.plain(bias)
        elif quantized is not None and w.version >= 5:
            w.layer.blobs["weights"] = quantized
            w.set(int8DynamicQuantize=True)


def dynamic(weights: Value | None) -> WeightData | None:
    """Return weights that a Core ML file stored as int8 for dynamic quantization."""
    weights = producer_operand(weights, "Transpose") or weights
    node = producer_of(weights)
    own = node is not None and node.metadata_props.get("netconv.format") == "coreml"
    return dynamic_int8(weights) if own else None


class Affine(InnerProduct):
    """The weights of a Gemm, in the order in which they are stored (`transB`), and the bias."""

    inputs = (1, 2)

    def lift(self, r: LiftContext) -> None:
        r.set_inputs(r.input(0), *self.operands(r))

    def lower(self, w: LowerContext) -> None:
        weights, size = w.input(1), shape_of(w.input(1))
        if size is None:
            raise MappingError("the shape of the weights must be known")
        as_stored = w.attr("transB")
        into, out = size[::-1] if as_stored else size
        bias = w.numbers(2, "the bias of Gemm") if w.has(2) else None
        if bias is not None and bias.size not in (1, out):
            raise MappingError("the bias must have one element per output")
        bias = None if bias is None else np.broadcast_to(bias.reshape(-1), (out,))
        data = w.stored(weights) if as_stored else transposed(w, weights)
        self.write(w, data, (into, out), bias, dynamic(weights) if as_stored else None)


def as_columns(r: LiftContext) -> None:
    """Flatten the last three axes to a vector; the result is [C,1,1]."""
    b, x = r.b, r.input(0)
    rank, out = blobs.rank(x), r.attr("outputChannels", int)
    rows = blobs.shape_as(b, [-1, r.attr("inputChannels", int)], x)
    r.data = blobs.reshape(b, x, rows)
    lead = [-1] if rank == 4 else blobs.dims(x)[: rank - 3]
    shape = blobs.shape_as(b, [*lead, out, 1, 1], x)
    r.after_first(lambda y: blobs.reshape(b, y, shape))


class AddedBias(InnerProduct):
    """A constant vector that is added to a product, of which the addition is the single
    consumer.
    """

    inputs = (0, 1)

    def lower(self, w: LowerContext) -> None:
        for i, other in ((0, 1), (1, 0)):
            node, vector = producer_if(w.input(i), "MatMul"), constant(w.input(other))
            if node is not None and vector is not None and len(node.outputs[0].uses()) == 1:
                break
        else:
            raise no_match("only a product followed by its bias is supported by this layer")
        x, weights = node.inputs
        assert x is not None and weights is not None
        self.product(w, x, weights)
        size = shape_of(weights) or (0, 0)
        fits = vector.size == size[1] and (not vector.ndim or vector.shape[-1] == size[1])
        if not fits or vector.ndim > (rank_of(x) or 0) or (rank_of(x) or 0) > self.most(w):
            raise no_match("the bias must be a vector with one element per output")
        w.layer.inputs = [x]
        self.write(w, transposed(w, weights), size, vector.reshape(-1), None)

    def most(self, w: LowerContext) -> int:
        """Return the maximum number of axes of the layer: innerProduct would contract three from
        rank 4 on.
        """
        return 3 if w.layer.kind == "innerProduct" else 5


INNER = ("inputChannels", "outputChannels")
STORED = ("weightMatrixFirstDimension", "weightMatrixSecondDimension")
AFFINE = (
    Affine(*INNER),
    RequireAttr("alpha", 1.0),
    RequireAttr("beta", 1.0),
    RequireAttr("transA", 0),
)
TRANSPOSED_B = RequireAttr("transB", 1)
TRANSPOSES = Transposes("transposeA", "transposeB")
NO_SWAP = ignore(*TRANSPOSES.keys)
# innerProduct contracts three axes from rank 4 on
FEW_AXES = Guard(
    "at most 3 axes are supported by this layer",
    lambda w: w.rank() <= 3,
    lambda r: r.rank(r.input(0)) <= 3,
)
MATRIX = Guard(
    "only matrices are supported by this layer", lift_if=lambda r: r.rank(r.input(0)) == 2
)
BIASED = "MatMul(2,3;=3,4) =4"

RULES = [
    op("Add", "innerProduct", AddedBias(*INNER), example_inputs=BIASED, lower_only=True),
    op(
        "Add",
        "batchedMatmul",
        AddedBias(*STORED),
        example_inputs="MatMul(1,2,2,3;=3,4) =4",
        lower_only=True,
    ),
    op("Gemm", "innerProduct", MATRIX, *AFFINE, TRANSPOSED_B),
    op("Gemm", "innerProduct", *AFFINE, RequireAttr("transB", 0), lower_only=True),
    op("MatMul", "innerProduct", FEW_AXES, InnerProduct(*INNER), example_inputs="2,2,3 =3,4"),
    op("Gemm", "innerProduct", *AFFINE, TRANSPOSED_B, before_lift=as_columns, lift_only=True),
    op(
        "MatMul",
        "batchedMatmul",
        ONE,
        InnerProduct(*STORED),
        NO_SWAP,
        example_inputs="1,2,2,3 =3,4",
    ),
    op(
        "MatMul",
        "batchedMatmul",
        SEVERAL,
        Detail(read=TRANSPOSES.lift, keys=TRANSPOSES.keys),
        KEEP_ONE_AXIS,
        ignore(*STORED, "hasBias", "int8DynamicQuantize"),
    ),
]
