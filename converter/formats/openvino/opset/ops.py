"""The rows: canonical operators <-> operations of opset1 to opset17.

`since`/`until` are opset numbers: the row holds for layers whose `version` lies between them; writing uses the row that
the newest opset allows. Inputs that are constants in ONNX (axes, shapes, ...) are inputs in the opsets too.
"""

from __future__ import annotations

import numpy as np

from converter.formats.openvino.opset.fields import NumpyBroadcast, element_type, flag, window
from converter.mapping.codecs import enum, int_text, number
from converter.mapping.fields import Attr, Const, Fixed, Guard, Only, ignore
from converter.mapping.table import Table, op, ops

UNARY = [
    *ops("Abs Acos Asin Atan Ceil=Ceiling Cos Cosh Erf Exp Floor Log Neg=Negative Relu=ReLU Sigmoid Sign Sin Sinh Sqrt Tan Tanh Not=LogicalNot"),
    *ops("Acosh Asinh Atanh Softplus=SoftPlus Mish HardSwish=HSwish", since=4),
    *ops("Softsign=SoftSign", since=9),
    *ops("IsNaN", since=10),
    *ops("BitwiseNot", since=13),
    op("Identity", "Identity", since=16),
    op("Elu", "Elu", Attr("alpha", "alpha", number)),
    op("Gelu", "Gelu", Attr("approximate", "approximation_mode", enum({"none": "ERF", "tanh": "TANH"}), far_default="none"), since=7),
    op("Gelu", "Gelu", until=6, lift_only=True),
    op("Round", "Round", Fixed("mode", "half_to_even", absent=True), since=5),
    op("IsInf", "IsInf", flag("detect_negative", "detect_negative", 1), flag("detect_positive", "detect_positive", 1), since=10),
    op(
        "Clip",
        "Clamp",
        Const(1, "min", number, dtype=None, default=float("-inf")),
        Const(2, "max", number, dtype=None, default=float("inf")),
        Guard("integer Clip has no counterpart (Clamp keeps float bounds)", lambda near: _is_float(near.input(0))),
        given="2,3 = = ",
    ),
    op("Cast", "Convert", Attr("to", "destination_type", element_type), Only("saturate", 1), given="2,3"),
    op("Cast", "Convert", Attr("to", "destination_type", element_type), Only("saturate", 1), ignore("no_clamp", "use_rounding"), lift_only=True),
]

BINARY = [
    *ops(
        "Add Sub=Subtract Mul=Multiply Pow=Power Equal Less Greater LessOrEqual=LessEqual GreaterOrEqual=GreaterEqual "
        "And=LogicalAnd Or=LogicalOr Xor=LogicalXor",
        NumpyBroadcast(),
    ),
    op("Max", "Maximum", NumpyBroadcast(), Guard("Maximum takes two inputs", lambda near: len(near.inputs) == 2)),
    op("Min", "Minimum", NumpyBroadcast(), Guard("Minimum takes two inputs", lambda near: len(near.inputs) == 2)),
    op("Mod", "Mod", Only("fmod", 1), NumpyBroadcast()),
    op("Mod", "FloorMod", Only("fmod", 0), NumpyBroadcast()),
    *ops("BitwiseAnd BitwiseOr BitwiseXor", NumpyBroadcast(), since=13),
    op("PRelu", "PReLU", Guard("a slope of rank 1 means channels in PReLU", lambda near: _rank(near.input(1)) != 1 or _rank(near.input(0)) in (1, 2, None))),
]

WINDOWS = [
    op(
        "Conv",
        "Convolution",
        window(kernel=False),
        Only("group", 1),
        Guard("a bias is an Add in the opsets", lambda near: near.input(2) is None),
        ignore("output_padding"),
        given="1,4,8,8 =6,4,3,3",
    ),
    op(
        "AveragePool",
        "AvgPool",
        window(kernel=True, dilations=False),
        Attr("count_include_pad", "exclude-pad", enum({0: "true", 1: "false"})),
        Attr("ceil_mode", "rounding_type", enum({0: "floor", 1: "ceil_torch"}), far_default=0),
        Only("dilations", None),
        since=14,
        given="1,4,8,8",
    ),
]

SHAPES = [
    op("Concat", "Concat", Attr("axis", "axis", int_text)),
    op("Softmax", "SoftMax", Attr("axis", "axis", int_text, far_default=1), since=8),
    op("LogSoftmax", "LogSoftmax", Attr("axis", "axis", int_text, far_default=1), since=5),
    op("Where", "Select", NumpyBroadcast()),
    op("Einsum", "Einsum", Attr("equation", "equation"), since=7),
    op("GatherElements", "GatherElements", Attr("axis", "axis", int_text), since=6),
    op("GatherND", "GatherND", Attr("batch_dims", "batch_dims", int_text, far_default=0), since=8),
    op("CumSum", "CumSum", flag("exclusive", "exclusive", 0), flag("reverse", "reverse", 0), since=3),
    op(
        "DepthToSpace",
        "DepthToSpace",
        Attr("blocksize", "block_size", int_text, far_default=1),
        Attr("mode", "mode", enum({"DCR": "blocks_first", "CRD": "depth_first"})),
        given="1,8,2,2",
    ),
    op("SpaceToDepth", "SpaceToDepth", Attr("blocksize", "block_size", int_text, far_default=1), Fixed("mode", "blocks_first"), given="1,2,4,4"),
    op(
        "GridSample",
        "GridSample",
        flag("align_corners", "align_corners", 0),
        Attr("mode", "mode", enum({"linear": "bilinear", "nearest": "nearest", "cubic": "bicubic"}), far_default="linear"),
        Attr("padding_mode", "padding_mode", enum({"zeros": "zeros", "border": "border", "reflection": "reflection"}), far_default="zeros"),
        since=9,
        given="1,2,4,4 1,3,3,2",
    ),
    op("NonZero", "NonZero", Fixed("output_type", "i64", absent=True), since=3),
    *ops("ReduceMax ReduceMin ReduceMean ReduceProd ReduceSum", flag("keepdims", "keep_dims", 0), Only("noop_with_empty_axes", 1), given="2,3 =1"),
    *ops("ReduceL1 ReduceL2", flag("keepdims", "keep_dims", 0), Only("noop_with_empty_axes", 1), since=4, given="2,3 =1"),
]


def _is_float(value: object) -> bool:
    dtype = getattr(value, "dtype", None)
    return dtype is None or np.issubdtype(dtype.numpy(), np.floating)


def _rank(value: object) -> int | None:
    shape = getattr(value, "shape", None)
    return None if shape is None else len(shape)


TABLE = Table([*UNARY, *BINARY, *WINDOWS, *SHAPES])
