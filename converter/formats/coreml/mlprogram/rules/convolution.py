"""Convolutions, pools and matrix products."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, no_match
from converter.formats.coreml.mlprogram.operations import FLOATS
from converter.formats.coreml.mlprogram.rules.context import (
    LiftContext,
    LowerContext,
    before_swap,
    compressed,
)
from converter.formats.coreml.mlprogram.rules.fields import OPPOSITE, Window, listed, mil
from converter.graph.infer import constant
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.value import Value, producer_if
from converter.graph.windows import SAME, halves, overhang
from converter.mapping.codecs import Codec
from converter.mapping.concepts import transposed_window
from converter.mapping.concepts.matmul import Transposes
from converter.mapping.concepts.window import Geometry
from converter.mapping.fields import (
    Attr,
    Detail,
    Field,
    FirstResult,
    Guard,
    ImpliedAttrs,
    RequireAttr,
)
from converter.mapping.fusing import only_user
from converter.mapping.rules import Custom, Rule, custom

IOS17, IOS18 = 8, 9  # the specification versions
COUNTED = Attr("count_include_pad", "exclude_padding_from_average", OPPOSITE, 1)
GROUPS = Attr("group", "groups", int, default=1)


class Biased(Field):
    """A bias and weights that must be constant."""

    def __init__(self, weights: bool = False) -> None:
        self.weights = weights

    def lower(self, w: LowerContext) -> None:
        if self.weights and w.version < IOS17:
            w.set_operand(1, w.weight(1, "the weights"))
        elif not self.weights and any(d != 1 for d in w.node.attrs.get("dilations") or ()):
            w.set_operand(1, w.weight(1, "the weights of a convolution with dilations"))
        if w.has(2):
            w.set_operand(2, w.weight(2, "the bias"))


class TransposedWindow(Window, transposed_window.TransposedWindow):
    """The window of a transposed convolution; `output_shape` determines where its result ends."""

    names = transposed_window.TransposedWindow.names

    def __init__(self) -> None:
        super().__init__()
        self.keys += ("output_shape",)

    def read(self, r: LiftContext) -> Geometry:
        found, wanted = super().read(r), listed(r, "output_shape")
        if wanted is None:
            return found
        n = len(found.kernel)
        if len(wanted) < n:
            raise MappingError(f"output_shape must have {n} spatial axes, got {wanted}", "R110")
        if found.scheme:
            found.demand_steps()
            steps = zip(*found.steps, strict=True)
            totals = [overhang(s, k, s, d, 1) for k, s, d in steps]
            found = replace(found, pads=halves(totals, found.scheme == SAME[0]), scheme="")
        return replace(found, target=wanted[-n:], extra=[0] * n)


def permuted(r: LiftContext, value: ir.Value) -> Value:
    """Swap the last two axes."""
    n = r.rank(value)
    return r.transpose(value, [*range(n - 2), n - 1, n - 2])


def linear(r: LiftContext) -> Value:
    """Compute x @ weight^T + bias; the weight is [units, input size]."""
    x, weights = r.x, r.value("weight")
    if weights.dtype != x.dtype and x.dtype is not None:
        weights = r.cast(weights, x.dtype)
    r.static(weights, "the weight", axes=2)
    y = r.b.MatMul(x, permuted(r, weights))
    bias = r.given("bias")
    return y if bias is None else y + r.cast(bias, y.dtype or ir.DataType.FLOAT)


def write_linear(w: LowerContext) -> None:
    """Write MatMul or Gemm with a matrix of weights."""
    x, weights = w.data, w.input(1)
    tensor, bias = weights.const_value, w.optional(2)
    if w.node.op == "MatMul" and (found := compact_matrix(weights)) and _line(x):
        w.operation("linear", x=x, weight=found)
        return
    if tensor is None or len(tensor.shape) != 2 or x.dtype not in FLOATS:
        raise no_match("the weights must be a constant matrix")
    if not _line(x):
        raise no_match("only inputs of rank 1 to 3 are supported by a linear layer")
    if w.attr("transA", 0) or w.attr("alpha", 1.0) != 1 or w.attr("beta", 1.0) != 1:
        raise no_match("a linear layer supports neither a transposed input nor alpha and beta")
    size = w.static(1)[0 if w.attr("transB", 0) else 1]
    if not w.attr("transB", 0):
        weights = transposed_weights(w, weights)
    given = None if bias is None else w.constant(2, "the bias").reshape(-1)
    if given is not None and given.size not in (1, size):
        raise no_match("the bias must have one element per row")
    spread = None if given is None else w.const(np.broadcast_to(given, size).copy(), "bias")
    w.operation("linear", x=x, weight=weights, bias=spread)


def _line(x: ir.Value) -> bool:
    return x.dtype in FLOATS and x.shape is not None and 1 <= len(x.shape) <= 3


def compact_matrix(value: ir.Value) -> ir.Value | None:
    """Return the compressed matrix whose Transpose is the value."""
    matrix = before_swap(value)
    known = matrix is not None and matrix.shape is not None and len(matrix.shape) == 2
    return matrix if known and compressed(matrix) else None


def write_biased(w: LowerContext) -> None:
    """Write a matrix product and the bias after it as a single linear operation."""
    for value, bias in ((w.data, w.optional(1)), (w.input(1), w.optional(0))):
        product, numbers = producer_if(value, "MatMul"), constant(bias)
        if product is None or numbers is None or only_user(value) is None:
            continue
        x, weights = product.inputs
        size = value.shape[-1] if value.shape is not None else None
        if x is None or weights is None or not _line(x) or value.shape != w.node.outputs[0].shape:
            continue
        if numbers.shape[-1:] != (size,) or numbers.size != size:
            continue
        found = compact_matrix(weights)
        if found is None and weights.const_value is not None and len(weights.shape or ()) == 2:
            found = transposed_weights(w, weights)
        if found is not None:
            w.operation("linear", x=x, weight=found, bias=w.const(numbers.reshape(-1), "bias"))
            return
    raise no_match("only a linear layer followed by its bias is supported")


def transposed_weights(w: LowerContext, weights: ir.Value) -> ir.Value:
    """Return a constant matrix with its axes changed, computed when it is written unless it
    is a view.
    """
    assert weights.const_value is not None
    permuted = LazyTensor.of(weights.const_value).transposed()
    return w.const(permuted, weights.name or "weight")


def computed(value: ir.Value | None) -> bool:
    """Return whether a value exists and is not constant."""
    return value is not None and value.const_value is None


def in_one_type(r: LiftContext) -> None:
    """Cast integers to the type of the other operand, or to float32."""
    x, y = r.operands()
    if x.dtype != y.dtype:
        kind = next((v.dtype for v in (x, y) if v.dtype in FLOATS), ir.DataType.FLOAT)
        r.set_inputs(r.cast(x, kind), r.cast(y, kind))


def attention(r: LiftContext) -> Value:
    """Compute softmax(q k^T / sqrt(size) + mask) v; a boolean mask is true for the elements that
    are attended to.
    """
    b = r.b
    q, k, v = (r.value(n) for n in ("query", "key", "value"))
    size = q.shape[-1] if q.shape else None
    if isinstance(size, int) and size:
        scaled = q * float(size**-0.5)
    else:
        own = b.Gather(b.Shape(q), -1, axis=0)
        scaled = q / b.Sqrt(b.Cast(own, to=q.dtype or ir.DataType.FLOAT))
    scores = b.MatMul(scaled, permuted(r, k))
    mask = r.given("attn_mask")
    if mask is not None and mask.dtype == ir.DataType.BOOL:
        lowest = float((scores.dtype or ir.DataType.FLOAT).min)
        scores = b.Where(mask, scores, b.like(scores, lowest))
    elif mask is not None:
        scores = scores + r.cast(mask, scores.dtype or ir.DataType.FLOAT)
    return b.MatMul(b.Softmax(scores, axis=-1), v)


def write_attention(w: LowerContext) -> None:
    """Write attention; the scale is the default for the size, any other one is multiplied into the
    query.
    """
    w.needs(IOS18)
    q, k, v = (w.input(i) for i in range(3))
    shapes, mask = [list(w.static(i)) for i in range(3)], w.optional(3)
    if len({tuple(s[:-2]) for s in shapes}) > 1 or shapes[0][-1] != shapes[1][-1]:
        raise MappingError("query, key and value must have the same batch sizes")
    if mask is not None and (mask.dtype != q.dtype or not 2 <= w.rank(3) <= len(shapes[0])):
        raise MappingError("the mask must have the type and rank of the query")
    factor = float(w.attr("scale")) * shapes[0][-1] ** 0.5
    if abs(factor - 1) > 1e-6:
        number = np.asarray(factor, (q.dtype or ir.DataType.FLOAT).numpy())
        q = w.made("mul", q.dtype, shapes[0], x=q, y=w.const(number, "scale"))
    given = {} if mask is None else {"attn_mask": mask}
    w.operation("scaled_dot_product_attention", query=q, key=k, value=v, **given)


UNSPACED = Codec(lambda v: str(v).replace(" ", ""), str)
RULES: list[Rule | Custom] = [
    mil(
        "Conv",
        "conv",
        "x weight bias?",
        Window(),
        GROUPS,
        Biased(),
        example_inputs="1,4,8,8 =6,4,3,3 =6",
    ),
    mil(
        "ConvTranspose",
        "conv_transpose",
        "x weight bias?",
        TransposedWindow(),
        GROUPS,
        Biased(True),
        example_inputs="1,4,8,8 =4,6,3,3 =6",
    ),
    mil("AveragePool", "avg_pool", "x", Window(True), COUNTED, example_inputs="1,4,8,8"),
    mil(
        "MaxPool",
        "max_pool",
        "x",
        FirstResult("the indices output is not supported"),
        Window(True),
        ImpliedAttrs(("storage_order",)),
        example_inputs="1,4,8,8",
    ),
    mil(
        "LpPool",
        "l2_pool",
        "x",
        Window(True, axes=2),
        RequireAttr("p", 2),
        example_inputs="1,4,8,8",
    ),
    custom("MatMul Gemm", "linear", linear, write_linear),
    custom("Add", "linear", None, write_biased),
    mil(
        "MatMul",
        "matmul",
        "x y",
        Guard(
            "both operands must have at least two axes", lambda w: min(w.rank(0), w.rank(1)) >= 2
        ),
        Guard("one operand must be computed", lambda w: any(map(computed, w.node.inputs))),
        Detail(read=in_one_type),
        Transposes("transpose_x", "transpose_y"),
    ),
    mil("Einsum", "einsum", "values*", Attr("equation", kind=UNSPACED), lift_only=True),
    custom(
        *("netconv::ScaledDotProductAttention", "scaled_dot_product_attention"),
        attention,
        write_attention,
    ),
]
