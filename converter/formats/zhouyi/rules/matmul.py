"""Matrix products."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.rules.context import LiftContext
from converter.formats.zhouyi.rules.fields import FLOATS
from converter.formats.zhouyi.types import is_float
from converter.graph.demands import representable
from converter.graph.infer import constant, shape_of
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.sizes import arange
from converter.graph.value import Value, stack
from converter.mapping.concepts.matmul import Transposes
from converter.mapping.context import LowerContext
from converter.mapping.fields import Attr, Detail, Field, Guard
from converter.mapping.rules import custom, op
from converter.record import record

# a product with constant weights -----------------------------------------------------------------


def weights_of(w: LowerContext) -> LazyTensor | None:
    """Return the weights of a product, if a layer can store them."""
    weights = w.constant_tensor(1)
    return weights if weights is not None and is_float(weights.dtype) else None


class FullWeights(Field):
    """Weights [in, out] and the addend <-> weights [out, in] and biases. The factors of a Gemm are
    multiplied into them.
    """

    folds = True
    names = ("alpha", "beta", "transA", "transB")
    keys = ("num_output",)
    blobs = ("weights", "biases")
    inputs = (1, 2)

    def lift(self, r: LiftContext) -> None:
        bias = r.bias()
        weights = r.layer.blobs.get("weights")
        if not isinstance(weights, ir.Value):
            rows = r.blob("weights")
            if not rows.size or rows.ndim < 2:
                raise MappingError(f"weights of shape {list(rows.shape)} are not supported", "R105")
            weights = r.weights("weights", rows.reshape(rows.shape[0], -1).T)
        r.set_input(1, weights)
        if r.node.op == "Gemm":
            r.node.set_input(2, bias)
        elif bias is not None:
            r.after_emit(lambda results: [results[0] + bias])

    def lower(self, w: LowerContext) -> None:
        weights, bias, a = weights_of(w), constant(w.optional(2)), w.node.attrs
        if weights is None:
            raise MappingError("the weights must be constant")
        alpha, beta = float(a.get("alpha", 1.0)), float(a.get("beta", 1.0))
        rows = weights if a.get("transB", 0) else weights.transposed()
        outputs, dtype = rows.shape.numpy()[0], rows.dtype.numpy()
        added = np.zeros(outputs, dtype)
        if bias is not None:
            factor = np.asarray(beta, bias.dtype)
            added = np.broadcast_to(bias.reshape(-1) * factor, (outputs,))
        scaled = rows if alpha == 1.0 else LazyTensor(rows.numpy() * np.asarray(alpha, dtype))
        w.layer.blobs |= {"weights": scaled, "biases": added}
        w.set(num_output=outputs)


def _is_full(w: LowerContext) -> bool:
    """Return whether the weights are constant, and the addend is a constant for each output or one
    for all.
    """
    bias, outputs = constant(w.optional(2)), w.out
    if weights_of(w) is None or w.attr("transA") or (w.optional(2) is not None and bias is None):
        return False
    count = (shape_of(outputs) or (0, 0))[1]
    return bias is None or (
        bias.size in (1, count)
        and bias.shape[-1:] in ((), (1,), (count,))
        and (bias.ndim < 2 or bias.shape[0] == 1)
    )


def _is_full_product(w: LowerContext) -> bool:
    weights = weights_of(w)
    return weights is not None and len(weights.shape) == 2 and w.rank() == 2


def _two_axes(r: LiftContext) -> bool:
    return len(r.shape) == 2


# a product of two activations --------------------------------------------------------------------


def multiply_product(r: LiftContext) -> None:
    """Read `fused_multiplier`, a factor after the product; it is never written."""
    factor = r.attr("fused_multiplier", float, 1.0)
    if factor != 1.0:
        r.after_emit(lambda y: [y[0] * factor])


@record
class ZeroPoint(Field):
    """A zero point: a constant <-> a key, 0 when omitted; of the type of input `operand`."""

    index: int
    key: str
    operand: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", (self.key,))
        object.__setattr__(self, "inputs", (self.index,))

    def lift(self, r: LiftContext) -> None:
        stored = r.node.input(self.operand)
        dtype = np.uint8 if stored is None or stored.dtype is None else stored.dtype.numpy()
        zero = representable(r.attr(self.key, int, 0), dtype, self.key)
        r.node.set_input(self.index, r.b.const(zero))

    def lower(self, w: LowerContext) -> None:
        zero = constant(w.optional(self.index))
        if w.optional(self.index) is not None and (zero is None or zero.size != 1):
            raise MappingError("the zero point must be a constant scalar")
        w.set(**{self.key: 0 if zero is None else int(zero.reshape(-1)[0])})


ONE_RANK = Guard(
    "operands must have the same rank",
    lambda w: len(w.static(0)) == len(w.static(1)) > 1,
)
ONE_BATCH = Guard(
    "batches must have the same shape", lambda w: w.static(0)[:-2] == w.static(1)[:-2]
)

# rotated embeddings ------------------------------------------------------------------------------


def lift_attention(r: LiftContext) -> ir.Value:
    """Compute softmax(q @ k * scale_factor + mask) @ v; `trans_*` exchange the last two axes first,
    and `enable_gqa` repeats the heads of k and v. Source: the vendor's executor, sdp_attetnion.py.
    """
    b, operands = r.b, []
    for i, name in enumerate("qkv"):
        x = r.input(i)
        if r.attr(f"trans_{name}", bool, False):
            axes = list(range(len(r.static(x, least=2))))
            x = b.Transpose(x, perm=[*axes[:-2], axes[-1], axes[-2]])
        operands.append(x)
    q, k, v = operands
    if r.attr("enable_gqa", bool, False):
        k, v = (_repeated_heads(r, x, r.static(q, least=3)[-3]) for x in (k, v))
    scores = (q @ k) * r.attr("scale_factor", float)
    if r.attr("with_mask", bool, False):
        scores = scores + r.input(3)
    return b.Softmax(scores, axis=-1) @ v


def _repeated_heads(r: LiftContext, x: Value, heads: int) -> Value:
    """Return x[.., heads / n, S, D] with each head n times, one after the other."""
    *before, own, length, size = r.static(x, least=3)
    if not own or heads % own:
        raise MappingError(f"{heads} heads cannot share {own} of the keys and values", "R105")
    each = r.b.Reshape(x, [*before, own, 1, length, size])
    wide = r.b.Expand(each, [*before, own, heads // own, length, size])
    return r.b.Reshape(wide, [*before, heads, length, size])


def lift_rotary(r: LiftContext) -> ir.Value:
    """Rotary position embedding of x[B, heads, S, D] or [B, S, heads * D].

    The caches of cosines and sines are [P, D / 2] or [B, P, D / 2]; the positions are the fourth
    operand [B, S], else 0, 1, ...
    """
    b, x, shape = r.b, r.input(0), r.shape
    if len(shape) == 3:
        heads = r.count("num_heads")
        split = b.Reshape(x, [shape[0], shape[1], heads, shape[2] // heads])
        x = b.Transpose(split, perm=[0, 2, 1, 3])
    batch, heads, steps, size = r.static(x, axes=4)
    wide = r.attr("rotary_embedding_dim", int, size)
    wide = size if wide < 1 else wide
    cos, sin = (_positions(r, r.input(i), batch, steps, wide // 2) for i in (1, 2))
    rotated = x[..., :wide]
    between = bool(r.attr("interleaved", bool, 0))
    if between:
        pairs = b.Reshape(rotated, [batch, heads, steps, wide // 2, 2])
        first, second = pairs[..., 0], pairs[..., 1]
    else:
        first, second = b.Split(rotated, [wide // 2] * 2, outputs=2, axis=3)
    real = cos * first - sin * second
    other = sin * first + cos * second
    if between:
        y = b.Reshape(stack((real, other)), [batch, heads, steps, wide])
    else:
        y = b.Concat(real, other, axis=3)
    if wide < size:
        y = b.Concat(y, x[..., wide:], axis=3)
    if len(shape) == 4:
        return y
    return b.Reshape(b.Transpose(y, perm=[0, 2, 1, 3]), list(shape))


def _positions(r: LiftContext, cache: Value, batch: int, steps: int, half: int) -> ir.Value:
    """Return the rows of the cache at the positions: [B, 1, S, half]."""
    b, given = r.b, r.optional(3)
    first = b.const(np.broadcast_to(arange(steps), [batch, steps]))
    ids = first if given is None else r.cast(given, ir.DataType.INT64)
    cache = cache[..., :half]
    if len(r.static(cache)) == 2:
        return b.Gather(cache, ids, axis=0)[:, None]
    rows = b.GatherND(cache, ids[..., None], batch_dims=1)
    return rows[:, None]


FULL = Guard("the weights must be constant", _is_full, _two_axes)
FULL_PRODUCT = Guard("the weights must be constant", _is_full_product)
MANY_AXES = Guard(
    "operands of two axes must be a Gemm", lambda w: w.rank() > 2, lambda r: not _two_axes(r)
)
ADDED = Guard("a Gemm must have its third operand", lambda w: w.optional(2) is not None)
RULES = [
    op("Gemm", "FullyConnected", FULL, FullWeights(), example_inputs="2,3 =3,4 =4"),
    op(
        "MatMul",
        "FullyConnected",
        FULL_PRODUCT,
        FullWeights(),
        lower_only=True,
        example_inputs="2,3 =3,4",
    ),
    op(
        "MatMul",
        "FullyConnected",
        MANY_AXES,
        FullWeights(),
        lift_only=True,
        example_inputs="2,2,3 =3,4",
    ),
    op(
        "Gemm",
        "Gemm",
        FLOATS,
        ADDED,
        Attr("transA", "trans_a", bool, default=0),
        Attr("transB", "trans_b", bool, default=0),
        Attr("alpha", kind=float, default=1.0),
        Attr("beta", kind=float, default=1.0),
        example_inputs="2,3 3,4 4",
    ),
    op(
        "MatMul",
        "MatMul",
        ONE_RANK,
        ONE_BATCH,
        # the keys have several spellings in section 4.3
        Transposes("trans_a adj_x", "trans_b tans_b adj_y"),
        Detail(read=multiply_product, keys=("fused_multiplier",)),
        example_inputs="2,2,3 2,3,4",
    ),
    op(
        "MatMulInteger",
        "MatMulInteger",
        Transposes("trans_a", "trans_b"),
        ZeroPoint(2, "a_zero_point", 0),
        ZeroPoint(3, "b_zero_point", 1),
        lift_only=True,
        example_inputs="u8:2,3 u8:3,4 =u8: =u8:",
    ),
    custom(
        "",
        "SDPAttention",
        lift=lift_attention,
        # how an integer form is computed
        ignored="impl_method is_perf_mode lut_mode sage_attn_block_m sage_attn_block_n "
        "sage_attn_use_QMatMul_for_QK sage_attn_scale_granularity_for_q "
        "sage_attn_scale_granularity_for_k sage_attn_use_QMatMul_for_PV "
        "sage_attn_scale_granularity_for_v",
    ),
    custom("", "RotaryEmbedding", lift=lift_rotary, ignored="num_heads"),
]
