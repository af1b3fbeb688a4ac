"""Constants, also compressed ones, and casts. Blobs are always float32."""

from __future__ import annotations

import onnx_ir as ir

from converter.errors import MappingError, no_match
from converter.formats.coreml.neuralnetwork.collector import is_float
from converter.formats.coreml.neuralnetwork.rules.context import LiftContext, LowerContext
from converter.formats.coreml.neuralnetwork.rules.fields import INTEGERS, truncate
from converter.formats.coreml.neuralnetwork.weight_encoding import channel_codes
from converter.graph.value import type_name
from converter.mapping.fields import Detail, RequireKey
from converter.mapping.rules import Custom, Rule, custom, op
from converter.passes.constants import is_constant
from converter.passes.indices import never_negative
from converter.passes.promote_types import FLOAT8

T = ir.DataType
Value = ir.Value
_COARSE = (*FLOAT8, T.INT4, T.UINT4)
_LONG_UNSIGNED = (T.UINT32, T.UINT64)
_INDEXED = {
    "Gather",
    "GatherElements",
    "GatherND",
    "ScatterND",
    "ScatterElements",
    "OneHot",
    "Reshape",
    "Expand",
    "Tile",
}

# constants ---------------------------------------------------------------------------------------


def lift_constant_nd(r: LiftContext) -> Value:
    """Return the weights of the layer, which may be quantized, in its shape."""
    return r.weights("data", r.attr("shape", list) or [1])


def lift_constant(r: LiftContext) -> Value:
    """Read a constant [C,H,W], with the leading axes that all blobs of the network have."""
    shape = r.attr("shape", list)
    value = r.weights("data", shape)
    if value.const_value is not None:
        whole = value.const_value.numpy().reshape([*[1] * r.lead, *shape])
        return r.b.const(whole, r.layer.name)
    return r.b.Unsqueeze(value, list(range(r.lead)))


def lower_constant(w: LowerContext) -> None:
    """Write a constant as one layer, whose quantized numbers have one scale; scales for channels
    are multiplied afterwards.
    """
    out = w.out
    if not is_constant(out):
        raise MappingError("DequantizeLinear of computed data is not supported")
    shape = w.dims(out) or [1]
    found = channel_codes(out)
    data = {"data": w.stored(out) if found is None else found.codes}
    if found is None:
        w.low.add("loadConstantND", [], w.node.outputs, {"shape": shape}, data)
        return
    value = w.temporary("codes", T.FLOAT, shape)
    w.low.add("loadConstantND", [], [value], {"shape": shape}, data)
    if found.zero.any():
        value = w.emit("subtractBroadcastable", value, found.zero, shape=shape)
    w.put("multiplyBroadcastable", value, found.scale)


# types -------------------------------------------------------------------------------------------


def wraps(x: Value, out: Value) -> bool:
    """Return whether integers may exceed the range of the short type that they become; 32 and 64
    bits are not distinguished, since blobs support neither.
    """
    if x.dtype not in INTEGERS or out.dtype not in INTEGERS or out.dtype.bitwidth > 16:
        return False
    return bool(x.dtype.min < out.dtype.min or x.dtype.max > out.dtype.max)


def _has_integral_values(value: Value) -> bool:
    """Return whether all elements are known to be integers."""
    node = value.producer()
    if node is None or node.domain:
        return False
    source = node.inputs[0] if node.op_type == "Cast" else None
    return node.op_type in ("Ceil", "Floor", "Round") or (
        source is not None and source.dtype in (*INTEGERS, T.BOOL)
    )


def _only_indices(value: Value) -> bool:
    """Return whether a value is only read by layers that take indices. The Cast of a layer that was
    read as one was added by the reader: the layer takes the numbers directly.
    """
    indexed = all(u.node.op_type in _INDEXED and u.idx == 1 for u in value.uses())
    return bool(value.uses()) and indexed and not value.is_graph_output()


def _is_compact(x: Value) -> bool:
    node = x.producer()
    packed = node is not None and node.op_type in ("UnpackBits", "DequantizeLinear")
    return packed or x.const_value is not None


def _tests_for_nonzero(x: Value, out: Value) -> bool:
    """Return whether a Cast tests for nonzero numbers."""
    return out.dtype == T.BOOL and x.dtype not in (T.BOOL, T.STRING) and not _is_compact(x)


def write_nonzero(w: LowerContext) -> None:
    """Return whether numbers are not zero."""
    if not _tests_for_nonzero(w.data, w.out):
        raise no_match("only a Cast to bool is supported by this layer")


def lower_cast(w: LowerContext) -> None:
    """Write a Cast only if it changes numbers; compact weights that are not stored with a layer
    become a separate constant.
    """
    x, out = w.data, w.out
    if T.STRING in (x.dtype, out.dtype):
        raise MappingError("strings are not supported by Core ML")
    if _is_compact(x):
        lower_constant(w)
        return
    before, after = type_name(x.dtype), type_name(out.dtype)
    if out.dtype in _COARSE and x.dtype != out.dtype:
        raise MappingError(f"a Cast to {after} changes values in a way that no Core ML layer does")
    if wraps(x, out):
        raise MappingError(
            f"a Cast of {before} to {after} is not supported, because it wraps around"
        )
    if out.dtype in _LONG_UNSIGNED and is_float(x) and not never_negative(x):
        raise MappingError(
            f"a Cast of data that may be negative to {after} is not supported, "
            "because it wraps around"
        )
    as_it_is = _has_integral_values(x) or (w.origin[0] == "coreml" and _only_indices(out))
    if out.dtype in INTEGERS and is_float(x) and not as_it_is:
        truncate(w, x)
    else:
        w.low.alias(out, x)


RULES: list[Rule | Custom] = [
    custom(
        "DequantizeLinear netconv::UnpackBits", "loadConstantND", lift_constant_nd, lower_constant
    ),
    custom("", "loadConstant", lift_constant),
    op(
        "Cast",
        "notEqual",
        Detail(write=write_nonzero, names=("to", "saturate", "round_mode")),
        RequireKey("alpha", 0.0),
        lower_only=True,
    ),
    custom("Cast", "", lower=lower_cast),
]
