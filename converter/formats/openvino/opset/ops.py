"""The rows: canonical operators <-> operations of opset1 to opset17.

`since`/`until` are opset numbers: the row holds for layers whose `version` lies between them; writing uses the row that
the newest opset allows. Inputs that are constants in ONNX (axes, shapes, ...) are inputs in the opsets too.
"""

from __future__ import annotations

from converter.formats.openvino.opset.fields import NumpyBroadcast, flag
from converter.graph.infer import rank_of
from converter.mapping.codecs import Codec, enum, int_text, number
from converter.mapping.fields import Attr, Guard
from converter.mapping.node import Node
from converter.mapping.table import Table, op, ops

UNARY = [
    *ops("Abs Acos Asin Atan Ceil=Ceiling Cos Cosh Erf Exp Floor Log Neg=Negative Relu=ReLU Sigmoid Sign Sin Sinh Sqrt Tan Tanh Not=LogicalNot"),
    *ops("Acosh Asinh Atanh Softplus=SoftPlus Mish HardSwish=HSwish", since=4),
    *ops("Softsign=SoftSign", since=9),
    *ops("IsNaN", since=10),
    *ops("BitwiseNot", since=13),
    op("Identity", "Identity", since=16),
    op("Elu", "Elu", Attr("alpha", "alpha", number)),
    op("IsInf", "IsInf", flag("detect_negative", "detect_negative", 1), flag("detect_positive", "detect_positive", 1), since=10),
]

BINARY = [
    *ops(
        "Add Sub=Subtract Mul=Multiply Equal And=LogicalAnd Or=LogicalOr",
        NumpyBroadcast(),
    ),
    op("Pow", "Power", NumpyBroadcast(), lift_only=True),
    op("Max", "Maximum", NumpyBroadcast(), lift_only=True),
    op("Min", "Minimum", NumpyBroadcast(), lift_only=True),
    op("Mod", "Mod", NumpyBroadcast(), Attr("fmod", "fmod", far_default=1), lift_only=True),
    *ops("BitwiseAnd BitwiseOr BitwiseXor", NumpyBroadcast(), since=13),
]

SHAPES = [
    op("Concat", "Concat", Attr("axis", "axis", int_text)),
    op("Where", "Select", NumpyBroadcast()),
    op("Einsum", "Einsum", Attr("equation", "equation", Codec(str, lambda v: v.replace(" ", ""))), since=7),
    op(
        "GatherElements",
        "GatherElements",
        Attr("axis", "axis", int_text),
        Guard("indices that are smaller than the data beside the axis", lambda near: _same_beside(near)),
        since=6,
        given="6,1 =6,1",
    ),
    op("Softmax", "SoftMax", Attr("axis", "axis", int_text, far_default=1), given="2,3"),
    op("LogSoftmax", "LogSoftmax", Attr("axis", "axis", int_text, far_default=1), since=5, given="2,3"),
    op(
        "GridSample",
        "GridSample",
        flag("align_corners", "align_corners", 0),
        Attr("mode", "mode", enum({"linear": "bilinear", "nearest": "nearest", "cubic": "bicubic"}), far_default="linear"),
        Attr("padding_mode", "padding_mode", enum({"zeros": "zeros", "border": "border", "reflection": "reflection"}), far_default="zeros"),
        Guard("samples of other than two axes", lambda near: near.inputs[0] is None or rank_of(near.inputs[0]) in (None, 4)),
        since=9,
        given="1,2,4,4 1,3,3,2",
    ),
]


def _same_beside(near: Node) -> bool:
    """A size of the data that is not known may be larger than a known one of the indices."""
    shapes = [list(v.shape) if v is not None and v.shape is not None else [] for v in near.inputs[:2]]
    if not shapes[0] or not shapes[1]:
        return True
    axis = near.attrs.get("axis", 0) % len(shapes[0])
    return all(i == axis or a == b or not isinstance(b, int) for i, (a, b) in enumerate(zip(*shapes, strict=False)))


TABLE = Table([*UNARY, *BINARY, *SHAPES])
