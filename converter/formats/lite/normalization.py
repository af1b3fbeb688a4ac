"""Softmax, and normalizations."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.lite.context import LiteLiftContext, LiteLowerContext
from converter.graph.infer import known
from converter.mapping.fields import Field
from converter.mapping.fusing import only_user
from converter.record import record

SMALLEST_NORM = 1e-6  # the larger of this and the norm is the divisor


@record
class Beta(Field):
    """`beta`, read as a factor before a softmax. `takes_factor`: such a factor is written as
    `beta`; LiteRT's fast kernel only supports 1.
    """

    takes_factor: bool = False
    keys = ("beta",)

    def lift(self, r: LiteLiftContext) -> None:
        if (beta := r.attr("beta", float)) != 1:
            r.data = r.data * r.b.like(r.data, beta)

    def lower(self, w: LiteLowerContext) -> None:
        node, beta = w.data.producer(), 1.0
        if self.takes_factor and node is not None and scales_a_softmax(node):
            x, beta = factor_of(node) or (w.data, 1.0)
            w.set_operand(0, x)
        w.layer.attrs["beta"] = beta


@record
class SoftmaxAxis(Field):
    """The axis of a softmax: `key`, or the last one if there is none. `always`: `key` is written
    for the last axis, too. Without it the axis is implied for a matrix, or for four axes.
    """

    key: str = ""
    always: bool = False
    names = ("axis",)

    def __post_init__(self) -> None:
        self.keys = (self.key,) if self.key else ()

    def lift(self, r: LiteLiftContext) -> None:
        r.set(axis=r.attr(self.key, int, -1) % max(1, r.rank(r.data)) if self.key else -1)

    def lower(self, w: LiteLowerContext) -> None:
        rank = w.rank()
        axis = int(w.attr("axis", -1)) % max(1, rank)
        if axis != rank - 1 and not self.key:
            raise MappingError(f"axis must be {rank - 1} (the last one), got {axis}")
        if self.key and (self.always or axis != rank - 1):
            w.set(**{self.key: axis})
        elif self.key and rank not in (2, 4):
            w.as_matrix(w.static()[-1])


def scales_a_softmax(node: ir.Node) -> bool:
    """Return whether a Mul is the factor of a Softmax, which has a parameter for it."""
    user = only_user(node.outputs[0])
    softmax = user is not None and user.op_type in ("Softmax", "LogSoftmax") and not user.domain
    return softmax and factor_of(node) is not None


def factor_of(node: ir.Node) -> tuple[ir.Value, float] | None:
    """Return x and c of x * c with a positive scalar constant c."""
    if node.op_type != "Mul" or node.domain:
        return None
    x, c = node.inputs
    array = known(c)
    if x is None or array is None or array.size != 1:
        return None
    factor = float(array.reshape(-1)[0])
    return (x, factor) if factor > 0 else None


@record
class Norm(Field):
    """The axis that is divided by its norm (at least 1e-6): `key`, or the last axis. The last of
    four axes is written without `key`.
    """

    key: str = ""
    names = ("axes", "eps", "eps_mode")

    def __post_init__(self) -> None:
        self.keys = (self.key,) if self.key else ()

    def lift(self, r: LiteLiftContext) -> None:
        axis = r.attr(self.key, int, -1) % max(1, r.rank(r.data)) if self.key else -1
        r.set(axes=[axis], eps=SMALLEST_NORM**2, eps_mode="max")
        if r.data.dtype == ir.DataType.FLOAT16:  # its own square would vanish there
            r.data = r.cast(r.data, ir.DataType.FLOAT)
            r.after_first(lambda y: r.cast(y, ir.DataType.FLOAT16))

    def lower(self, w: LiteLowerContext) -> None:
        rank, eps, limit = w.rank(), w.attr("eps"), SMALLEST_NORM**2
        axes = [int(i) % rank for i in w.attr("axes")]
        smaller = eps <= limit and w.attr("eps_mode") == "add"
        if not smaller and not np.isclose(eps, limit, rtol=1e-3, atol=0):
            raise MappingError(
                f"epsilon must be {limit:g} (the smallest square of a norm), got {eps:g}"
            )
        if len(axes) != 1 or (not self.key and axes != [rank - 1]):
            which = "one axis" if self.key else "the last axis"
            raise MappingError(f"axes must be {which}, got {axes}")
        if self.key and (rank, axes[0]) != (4, 3):
            w.set(**{self.key: axes[0]})


class Neighbors(Field):
    """Local response normalization: x / (bias + alpha * sum over `radius` neighbors on either side
    of x^2) ^ beta. ONNX divides alpha by the size of the window.
    """

    names = ("size", "alpha")
    keys = ("radius", "alpha")

    def lift(self, r: LiteLiftContext) -> None:
        size = 2 * r.attr("radius", int) + 1
        r.set(size=size, alpha=r.attr("alpha", float) * size)

    def lower(self, w: LiteLowerContext) -> None:
        size = int(w.attr("size"))
        if size % 2 == 0:
            raise MappingError(f"size must be odd, got {size}")
        w.layer.attrs |= {"radius": size // 2, "alpha": w.attr("alpha") / size}
