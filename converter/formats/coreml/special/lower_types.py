"""Casts, and compact weights that stand for themselves."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.coreml.lowering import is_float, shape_list, x_of
from converter.formats.coreml.special.lower_arithmetic import INTEGERS, core, truncated
from converter.formats.coreml.special.registry import lowers
from converter.formats.coreml.stored import channel_codes
from converter.graph.infer import constant
from converter.mapping.drive import Lowering
from converter.mapping.node import MappingError, Node
from converter.passes.constants import is_constant
from converter.passes.widen import FLOAT8

Value = ir.Value
_COARSE = (*FLOAT8, ir.DataType.INT4, ir.DataType.UINT4)
_LONG_UNSIGNED = (ir.DataType.UINT32, ir.DataType.UINT64)
_POSITIVE = {"Abs", "Relu", "Sqrt", "Exp", "Sigmoid", "Softplus", "HardSigmoid", "Softmax"}
_KEEPS_SIGN = {"Cast", "Floor", "Ceil", "Round", "Mul", "Identity"}
_INDEXED = {"Gather", "GatherElements", "GatherND", "ScatterND", "ScatterElements", "OneHot", "Reshape", "Expand", "Tile"}


@lowers("Cast")
def lower_cast(near: Node, low: Lowering) -> None:
    """Blobs are float32 throughout: a Cast matters only where a number changes (to bool, or to an integer)."""
    x, out = x_of(near), near.outputs[0]
    if ir.DataType.STRING in (x.dtype, out.dtype):
        raise MappingError("texts have no place in Core ML's tensors")
    if constant_cast(near, low):
        return
    if out.dtype in _COARSE and x.dtype != out.dtype:
        raise MappingError(f"a Cast to {out.dtype.name} changes numbers in a way that no layer does")
    if wraps(x, out):
        raise MappingError(f"a Cast of {x.dtype.name if x.dtype else ''} to {out.dtype.name if out.dtype else ''} wraps around")
    if out.dtype in _LONG_UNSIGNED and is_float(x) and not _never_negative(x):
        raise MappingError(f"a Cast of numbers that may be negative to {out.dtype.name} wraps around")
    if out.dtype == ir.DataType.BOOL and x.dtype != ir.DataType.BOOL:
        low.add("notEqual", [x], near.outputs, {"alpha": 0.0})
    elif out.dtype in INTEGERS and is_float(x) and not _only_indices(out):
        truncated(core(low), x, near.outputs)
    else:
        core(low).alias(out, x)


def wraps(x: Value, out: Value) -> bool:
    """Whether integers may lie outside of the short type that they become; 32 and 64 bits count as one, since blobs hold neither."""
    if x.dtype not in INTEGERS or out.dtype not in INTEGERS or out.dtype.bitwidth > 16:
        return False
    return bool(x.dtype.min < out.dtype.min or x.dtype.max > out.dtype.max)


def _never_negative(x: Value | None) -> bool:
    node, array = (x.producer(), constant(x)) if x is not None else (None, None)
    if array is not None:
        return bool(np.all(array >= 0))
    if node is None or node.domain:
        return x is not None and x.dtype in (ir.DataType.UINT8, ir.DataType.UINT16, *_LONG_UNSIGNED)
    if node.op_type == "Pow":
        return _never_negative(node.inputs[0])
    return node.op_type in _POSITIVE or (node.op_type in _KEEPS_SIGN and all(_never_negative(v) for v in node.inputs))


def _only_indices(value: Value) -> bool:
    return bool(value.uses()) and all(u.node.op_type in _INDEXED and u.idx == 1 for u in value.uses()) and not value.is_graph_output()


def constant_cast(near: Node, low: Lowering) -> bool:
    """Compact weights that nobody stores with a layer are a constant of their own."""
    x = near.input(0)
    if x is None or (x.const_value is None and not (x.producer() is not None and x.producer().op_type in ("UnpackBits", "DequantizeLinear"))):  # type: ignore[union-attr]
        return False
    load_constant(near, low)
    return True


def load_constant(near: Node, low: Lowering) -> None:
    """One layer, whose quantised numbers have one scale; a scale for each channel is multiplied afterwards."""
    out, c = near.outputs[0], core(low)
    shape = [int(d) for d in (shape_list(out) or [])] or [1]
    found = channel_codes(out)
    if found is None:
        low.add("loadConstantND", [], near.outputs, {"shape": shape}, {"data": c.weights(out)})
        return
    value = c.one("loadConstantND", [], shape, {"shape": shape}, {"data": found.codes})
    if found.zero.any():
        value = c.one("subtractBroadcastable", [value, c.const(found.zero)], shape)
    low.add("multiplyBroadcastable", [value, c.const(found.scale)], near.outputs)


@lowers("DequantizeLinear")
def lower_dequantize(near: Node, low: Lowering) -> None:
    """Of constants only; activations are decomposed before."""
    if not is_constant(near.outputs[0]):
        raise MappingError("DequantizeLinear of an activation")
    load_constant(near, low)


@lowers("UnpackBits", domain="netconv")
def lower_unpack(near: Node, low: Lowering) -> None:
    load_constant(near, low)
