"""ai.onnx operators as opsets 1 to 6 spelled them, and operators of the first releases that never
became standard.
"""

from __future__ import annotations

import numpy as np
import onnx

from converter.errors import MappingError
from converter.formats.onnx.op import Op, Results
from converter.formats.onnx.opset_converter.upgrade import ROWS
from converter.graph.build import Builder

_BROADCASTING = ("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less")


@ROWS.until(6, *_BROADCASTING)
def broadcast(op: Op, b: Builder) -> None:
    """Reshape the second operand, which before 7 was aligned at `axis`, only when `broadcast` was
    set.
    """
    axis, wanted = op.take("axis"), op.take("broadcast", 0)
    if wanted and axis is not None:
        first, second = op.rank(0), op.rank(1)
        trailing = first - (axis % max(first, 1)) - second
        if trailing > 0:
            op.set_input(1, b.Unsqueeze(op.need(1), list(range(second, second + trailing))))


@ROWS.until(6, "PRelu")
def prelu(op: Op, b: Builder) -> None:
    """Reshape the slope, which before 7 was one number or one per channel."""
    rank, slope = op.rank(0), op.need(1)
    if op.rank(1) == 1 and rank > 2 and slope.shape is not None and slope.shape[0] != 1:
        op.set_input(1, b.Unsqueeze(slope, list(range(1, rank - 1))))


@ROWS.until(6, "Gemm")
def gemm(op: Op, b: Builder) -> None:
    """Remove the flag of broadcasting, which is automatic since."""
    op.take("broadcast")


@ROWS.until(5, "Cast")
def cast(op: Op, b: Builder) -> None:
    """Convert the name of a type to its number. Raises MappingError R110 for unknown names."""
    to = op.attr("to")
    if isinstance(to, str):
        if to.upper() not in onnx.TensorProto.DataType.keys():  # noqa: SIM118 (an enum wrapper, not a dict)
            raise MappingError(f"Cast to the unknown type {to!r} is not supported", "R110")
        op.attrs["to"] = int(onnx.TensorProto.DataType.Value(to.upper()))


@ROWS.until(3, "Concat")
def concat(op: Op, b: Builder) -> None:
    """Spell out the default axis, 1."""
    op.attrs.setdefault("axis", 1)


@ROWS.until(1, "GlobalLpPool", "LpPool")
def lp_pool(op: Op, b: Builder) -> None:
    """Convert the exponent, which was a float, to an integer. Raises MappingError for fractions."""
    p = float(op.attr("p", 2.0))
    if p != int(p):
        raise MappingError(f"{op.kind} with p={p} is not supported (only integers)")
    op.attrs["p"] = int(p)


@ROWS.until(6, "GRU", "LSTM", "RNN")
def recurrent(op: Op, b: Builder) -> None:
    """Remove output_sequence, and correct the default direction of GRU-1, "foward"."""
    op.take("output_sequence")
    if op.attr("direction") == "foward":  # the default of GRU-1, spelled so
        op.attrs["direction"] = "forward"


@ROWS.until(1, "Pad")
def pad_1(op: Op, b: Builder) -> None:
    """Rename the amounts of Pad."""
    op.attrs["pads"] = op.take("paddings", op.attr("pads"))


@ROWS.until(4, "Reshape")
def reshape(op: Op, b: Builder) -> None:
    """Make the shape of Reshape an input."""
    op.set_constant(b, 1, "shape", op.take("shape", []))


@ROWS.until(6, "Upsample")
def upsample_1(op: Op, b: Builder) -> None:
    """Replace the scales of height and width by one for each axis."""
    if "height_scale" in op.attrs:
        op.attrs["scales"] = [1.0, 1.0, op.take("height_scale"), op.take("width_scale", 1.0)]


@ROWS.until(5, "Tile")
def tile(op: Op, b: Builder) -> Results:
    """Rewrite Tile of one axis as one of all axes."""
    repeats = np.ones(op.rank(0), np.int64)
    repeats[int(op.constant(2).reshape(()))] = int(op.constant(1).reshape(()))
    return b.Tile(op.x, repeats)


# operators of the first ONNX releases that never became standard


ROWS.enter(
    Affine=lambda op, b: op.x * op.number("alpha", 1.0) + op.number("beta", 0.0),
    ScaledTanh=lambda op, b: b.Tanh(op.x * op.number("beta", 1.0)) * op.number("alpha", 1.0),
    ParametricSoftplus=lambda op, b: (
        b.Softplus(op.x * op.number("beta", 1.0)) * op.number("alpha", 1.0)
    ),
)


@ROWS.always("ImageScaler")
def image_scaler(op: Op, b: Builder) -> Results:
    """Rewrite ImageScaler as a product with the scale and a sum with a bias for each channel."""
    x = op.x
    bias = np.array(op.attr("bias", [0.0]), x.dtype.numpy() if x.dtype else np.float32).reshape(
        -1, 1, 1
    )
    return x * op.number("scale", 1.0) + bias
