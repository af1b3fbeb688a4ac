"""Products of matrices: FullyConnected with a constant matrix on the right, GEMM otherwise."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, no_match
from converter.formats.openvino.legacy.rules.context import LiftContext, LowerContext, is_float
from converter.formats.openvino.legacy.rules.elementwise import merged
from converter.graph.lazy_tensor import LazyTensor
from converter.mapping.concepts.matmul import Transposes
from converter.mapping.fields import Field, ignore
from converter.mapping.rules import op

D = ir.DataType


class Connected(Field):
    """Weights [out, in] and a bias for each output, applied to x flattened to rows. Inputs of rank
    3 keep their first two axes if the port has them.
    """

    names: tuple[str, ...] = ("alpha", "beta", "transA", "transB")
    keys = ("out-size",)
    inputs: tuple[int, ...] = (1, 2)
    blobs = ("weights", "biases")

    def lift(self, r: LiftContext) -> None:
        out, size, x = r.dims(least=1), r.static(), r.input(0)
        rows = math.prod(out[:-1])
        wanted = [out[-1], math.prod(size) // max(rows, 1)]
        flat = x if len(size) == 2 else r.b.Reshape(x, [rows, wanted[1]])
        given, bias = r.optional(1), r.optional(2)
        weights = r.b.Reshape(given, wanted) if given is not None else r.blob("weights", wanted)
        bias = r.blob("biases", wanted[:1]) if "biases" in r.layer.blobs else bias
        r.set_inputs(flat, weights, bias)
        r.set(transB=1)

    def lower(self, w: LowerContext) -> None:
        if w.attr("transA", 0):
            raise MappingError("a transposed first operand is not supported by FullyConnected")
        what = "the weights of a fully connected layer"
        factor, weights = w.attr("alpha", 1.0), w.constant_tensor(1)
        if weights is None or factor != 1:
            weights = LazyTensor(self.scaled(w.constant(1, what), factor))
        weights = weights if w.attr("transB", 0) else weights.transposed()
        count = int(weights.shape.numpy()[0])
        w.layer.blobs["weights"] = weights
        if w.has(2):
            bias = self.scaled(w.constant(2, "the bias"), w.attr("beta", 1.0))
            if bias.size not in (1, count) or (bias.ndim == 2 and bias.shape[0] != 1):
                raise MappingError("the bias must have one element per output")
            w.layer.blobs["biases"] = np.broadcast_to(bias.reshape(-1), [count])
        w.set_inputs(images(w, w.data))
        w.layer.attrs["out-size"] = str(count)

    def scaled(self, array: np.ndarray, factor: float) -> np.ndarray:
        """Multiply by a factor, in the type of the array."""
        return array if factor == 1 else array * np.asarray(factor, array.dtype)


def images(w: LowerContext, rows: ir.Value) -> ir.Value:
    """Return the images of which `rows` is the flattened form, since the layer flattens them
    itself.
    """
    producer = rows.producer()
    flat = producer is not None and producer.op_type in ("Reshape", "Flatten")
    before = producer.inputs[0] if producer is not None and flat and not producer.domain else None
    if before is None:
        return rows
    return before if len(w.shape(before)) == 4 and w.shape(before)[0] == w.shape(rows)[0] else rows


class Matrix(Connected):
    """A product with a constant matrix."""

    names: tuple[str, ...] = ()
    inputs: tuple[int, ...] = (1,)

    def lower(self, w: LowerContext) -> None:
        x, weights = w.data, w.input(1).const_value
        plain = weights is not None and len(weights.shape) == 2 and len(w.shape()) == 2
        if not plain or weights is None or x.const_value is not None or not is_float(x):
            raise no_match("the matrix must be constant")
        w.layer.blobs["weights"] = LazyTensor.of(weights).transposed()
        w.set_inputs(x)
        w.layer.attrs["out-size"] = str(weights.shape.numpy()[1])


TRANSPOSES = Transposes("transpose_a", "transpose_b")


class Matrices(Field):
    """The product alpha * A B + beta * C, with numpy's broadcasting of the leading axes."""

    keys = ("alpha", "beta", *TRANSPOSES.keys)

    def lift(self, r: LiftContext) -> None:
        alpha, beta, c = r.attr("alpha", float, 1.0), r.attr("beta", float, 1.0), r.optional(2)
        r.set_inputs(r.input(0), r.input(1))
        TRANSPOSES.lift(r)
        if alpha != 1:
            r.after_first(lambda y: y * alpha)
        if c is not None:
            added = c if beta == 1 else c * beta
            r.after_first(lambda y: y + added)

    def lower(self, w: LowerContext) -> None:
        """Write operands of equal rank, with at least two leading axes; integers as floats."""
        a, b = w.data, w.input(1)
        left, right = w.shape(0), w.shape(1)
        left = left if len(left) > 1 else [1, *left]
        right = right if len(right) > 1 else [*right, 1]
        rank = max(len(left), len(right))
        left, right = ([1] * (rank - len(s)) + s for s in (left, right))
        front = [max(p, q) for p, q in zip(left[:-2], right[:-2], strict=True)]
        if rank > 4:
            (first, second), fewer = merged([left[:-2], right[:-2]], front)
            if len(fewer) > 2:
                a, b = (w.spread(v, [*front, *s[-2:]]) for v, s in ((a, left), (b, right)))
                first = second = fewer = [math.prod(front)]
            left, right, front = [*first, *left[-2:]], [*second, *right[-2:]], fewer
        source = permuted(w, b) if len(w.shape(b)) == rank <= 4 else None
        if source is None and rank <= 4:
            source = w.untransposed(1)
        factor, shape = (
            (b, right) if source is None else (source, [*right[:-2], right[-1], right[-2]])
        )
        inputs = [w.reshaped(a, left), w.reshaped(factor, shape)]
        integers = not is_float(w.out)
        if integers:  # after layers that only move data the engine takes integers for floats
            inputs = [w.converted(v, D.FLOAT) for v in inputs]
        w.set_inputs(*inputs)
        w.layer.attrs |= {"transpose_a": "False", "transpose_b": str(source is not None)}
        w.gives([*front, left[-2], right[-1]], D.FLOAT if integers else None)


def permuted(w: LowerContext, value: ir.Value) -> ir.Value | None:
    """Return the matrices before a transposition of their last two axes."""
    producer = value.producer()
    if producer is None or producer.op_type != "Transpose" or producer.domain:
        return None
    rank = len(w.shape(value))
    perm = list(producer.attributes["perm"].as_ints()) if "perm" in producer.attributes else []
    return producer.inputs[0] if perm == [*range(rank - 2), rank - 1, rank - 2] else None


UNUSED = ignore("out_size", "alpha", "beta", "transpose_a", "transpose_b")

RULES = [
    *(
        op(
            "Gemm",
            kind,
            Connected(),
            UNUSED,
            lift_only=kind == "InnerProduct",
            example_inputs="2,3 =4,3 =4",
        )
        for kind in ("FullyConnected", "InnerProduct")
    ),
    op("MatMul", "FullyConnected", Matrix(), lower_only=True, example_inputs="2,3 =3,4"),
    op("MatMul", "GEMM", Matrices()),
    *(op("MatMul", kind, Matrices(), lift_only=True) for kind in ("Gemm", "MatMul")),
]
