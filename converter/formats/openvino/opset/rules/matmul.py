"""Matrix products and attention."""

from __future__ import annotations

import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.openvino.opset.rules.context import LiftContext
from converter.graph.infer import rank_of
from converter.graph.value import Value
from converter.mapping.codecs import Codec
from converter.mapping.concepts.matmul import Transposes
from converter.mapping.fields import Attr, Detail, ignore
from converter.mapping.rules import op

T = ir.DataType


def swapped(r: LiftContext, x: Value) -> Value:
    """Exchange the last two axes, if there are two."""
    n = r.rank(x)
    return x if n < 2 else r.transpose(x, [*range(n - 2), n - 1, n - 2])


def align_ellipses(r: LiftContext) -> None:
    """Align ellipses of different lengths: the shorter ones get leading axes of size 1."""
    terms = r.node.attrs["equation"].partition("->")[0].split(",")
    places = {i: term.index("...") for i, term in enumerate(terms) if "..." in term}
    hidden = {i: r.rank(i) - len(terms[i].replace("...", "")) for i in places}
    for i, start in places.items():
        if short := max(hidden.values()) - hidden[i]:
            axes = list(range(start, start + short))
            r.node.inputs[i] = r.b.Unsqueeze(r.input(i), axes)


def attention(r: LiftContext) -> None:
    """Compute softmax(Q K' * scale + mask) V; the operator is the MatMul with V. A boolean mask is
    true for visible keys; causal replaces the mask.
    """
    b, causal, mask = r.b, r.attr("causal", bool), r.optional(3)
    q, k, v = (r.input(i) for i in range(3))
    if len(r.layer.inputs) > 5:
        raise MappingError("attention sinks are not supported")
    scores = (q * (r.optional(4) or _scale(r, q))) @ swapped(r, k)
    if causal:
        mask = _causal(r, q, k)
    if mask is not None and (rank_of(mask) != 0 or causal):
        if mask.dtype == T.BOOL:
            mask = b.Where(mask, b.like(q, 0), b.like(q, float("-inf")))
        scores = scores + mask
    r.set_inputs(b.Softmax(scores, axis=-1), v)


def _scale(r: LiftContext, q: Value) -> Value:
    size = r.b.Cast(r.b.Shape(q, start=-1), to=q.dtype or T.FLOAT)
    return r.b.like(q, 1) / r.b.Sqrt(size)


def _causal(r: LiftContext, q: Value, k: Value) -> Value:
    """Return a mask that is true for keys that a query may attend to: those up to its own
    position.
    """
    sizes = (r.b.Shape(v, start=-2, end=-1) for v in (q, k))
    ones = r.b.Expand(1.0, r.b.Concat(*sizes, axis=0))
    return r.b.Cast(r.b.Trilu(ones, upper=0), to=T.BOOL)


EQUATION = Codec(lambda v: str(v).replace(" ", ""), lambda v: v.replace(" ", ""))

RULES = [
    op("MatMul", "MatMul", Transposes("transpose_a", "transpose_b")),
    op(
        "MatMul",
        "ScaledDotProductAttention",
        ignore("causal"),
        before_lift=attention,
        lift_only=True,
    ),
    op(
        "Einsum",
        "Einsum",
        Attr("equation", kind=EQUATION),
        Detail(read=align_ellipses),
        since=7,
    ),
    op(
        "netconv::MatrixInverse",
        "Inverse",
        Attr("adjoint", kind=bool, default=0),
        since=14,
        example_inputs="3,3",
    ),
    op("netconv::GroupedMatMul", "GroupedMatMul", since=17, example_inputs="2,3,4 2,5,4"),
]
