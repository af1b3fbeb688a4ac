"""Matrix products and convolutions -> layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.coreml.lowering import CoreLowering, attrs_with_defaults, numbers, rank_of_value, shape_list, x_of
from converter.formats.coreml.special.lower_arithmetic import core
from converter.formats.coreml.special.registry import lowers
from converter.formats.coreml.stored import dynamic_int8
from converter.formats.coreml.weights import WeightData
from converter.graph.infer import Array, constant, shape_of
from converter.mapping.drive import Lowering
from converter.mapping.node import MappingError, Node
from converter.passes.constants import evaluate_constant, is_constant

Value = ir.Value
Window = dict[str, list[int]]  # kernel, strides, dilations, pads


def turned(low: CoreLowering, weights: Value) -> WeightData:
    """The transpose of a constant matrix [K,N] as stored [N,K]: what a Transpose was made of, or a view."""
    node = weights.producer()
    if weights.const_value is None and node is not None and node.op_type == "Transpose" and rank_of_value(weights) == 2:
        return low.weights(node.inputs[0])
    array = evaluate_constant(weights)
    if array is None:
        raise MappingError("the matrix must be constant")
    return low.plain(array.T)


def dense(low: CoreLowering, x: Value, weights: WeightData, size: tuple[int, int], bias: Any, outputs: list[Value], dynamic: WeightData | None = None) -> None:
    """x [..,K] times the stored [N,K], as innerProduct up to rank 3 (which would contract three axes from rank 4 on)."""
    out, into = size
    blobs: dict[str, Any] = {"weights": weights}
    extra: dict[str, Any] = {}
    if dynamic is not None and bias is None and low.version >= 5:
        blobs, extra = {"weights": dynamic}, {"int8DynamicQuantize": True}
    if bias is not None:
        blobs["bias"] = low.plain(bias)
    if rank_of_value(x) <= 3:
        low.add("innerProduct", [x], outputs, {"inputChannels": into, "outputChannels": out, "hasBias": bias is not None, **extra}, blobs)
    else:
        attrs = {"weightMatrixFirstDimension": into, "weightMatrixSecondDimension": out, "hasBias": bias is not None, **extra}
        low.add("batchedMatmul", [x], outputs, attrs, blobs)


def product_with_bias(node: ir.Node, bias: Value, outputs: list[Value], low: CoreLowering) -> bool:
    """MatMul by a constant, plus a constant vector."""
    x, weights = node.inputs[0], node.inputs[1]
    array, size = constant(bias), shape_of(weights) if weights is not None else None
    if x is None or weights is None or array is None or size is None or len(size) != 2 or rank_of_value(x) < 1:
        return False
    if array.size != size[1] or (array.ndim and array.shape[-1] != size[1]) or not is_constant(weights) or array.ndim > rank_of_value(x):
        return False
    dense(low, x, turned(low, weights), (size[1], size[0]), array.reshape(-1), outputs)
    return True


@lowers("MatMul")
def lower_matmul(near: Node, low: Lowering) -> None:
    x, y = x_of(near, 0), x_of(near, 1)
    size = shape_of(y)
    if size is not None and len(size) == 2 and rank_of_value(x) >= 1 and is_constant(y) and not is_constant(x):
        dense(core(low), x, turned(core(low), y), (size[1], size[0]), None, near.outputs, _dynamic(y))
    else:
        low.add("batchedMatmul", [x, y], near.outputs)


def _dynamic(weights: Value | None) -> WeightData | None:
    """Weights that a Core ML file held as int8 for dynamic quantisation."""
    node = weights.producer() if weights is not None else None
    if node is not None and node.op_type == "Transpose":
        weights = node.inputs[0]
        node = weights.producer() if weights is not None else None
    return dynamic_int8(weights) if node is not None and node.metadata_props.get("netconv.format") == "coreml" else None


@lowers("Gemm")
def lower_gemm(near: Node, low: Lowering) -> None:
    attrs = attrs_with_defaults(near)
    weights, bias = x_of(near, 1), near.input(2)
    if attrs["alpha"] != 1.0 or attrs["beta"] != 1.0 or attrs["transA"]:
        raise MappingError("alpha, beta or transA of Gemm")
    size = shape_of(weights)
    if size is None:
        raise MappingError("weights of unknown shape")
    out, into = size if attrs["transB"] else size[::-1]
    array = numbers(bias, "the bias of Gemm") if bias is not None else None
    if array is not None and array.size not in (1, out):
        raise MappingError("a bias that is not one number per output")
    data = core(low).weights(weights) if attrs["transB"] else turned(core(low), weights)
    full = None if array is None else np.broadcast_to(array.reshape(-1), (out,))
    dense(core(low), x_of(near), data, (int(out), int(into)), full, near.outputs, _dynamic(weights) if attrs["transB"] else None)


def borders(pads: list[int]) -> dict[str, Any]:
    """[H start, W start, H end, W end] as BorderAmounts."""
    return {"borderAmounts": [{"startEdgeSize": pads[i], "endEdgeSize": pads[2 + i]} for i in (0, 1)]}


def flat(low: CoreLowering, x: Value, out: Value) -> tuple[Value, Value]:
    """One-dimensional windows: [N,C,L] as [N,C,1,L], and the value that becomes the result's [N,C,1,L']."""
    shape, result = shape_list(x), shape_list(out)
    wide = low.one("expandDims", [x], [*shape[:2], 1, *shape[2:]] if shape else None, {"axes": [2]})
    inner = low.value("flat", out.dtype, [*result[:2], 1, *result[2:]] if result else None)
    return wide, inner


@lowers("Conv ConvTranspose")
def lower_conv(near: Node, low: Lowering) -> None:
    """Output padding takes back what is cut off at the end; what it adds beyond is bias alone, and is written as such."""
    c, out, shape = core(low), near.outputs[0], shape_of(x_of(near, 1))
    if shape is None or len(shape) not in (3, 4, 5):
        raise MappingError("the weights of a convolution need a static shape of one to three spatial axes")
    n = len(shape) - 2
    attrs = attrs_with_defaults(near)
    if attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise MappingError("automatic padding (explicit pads are needed)")
    window: Window = {k: [int(v) for v in attrs.get(k) or [1] * n] for k in ("strides", "dilations")}
    window["pads"] = [int(v) for v in attrs.get("pads") or [0] * (2 * n)]
    window["kernel"] = [int(k) for k in shape[2:]]
    bias = None if near.input(2) is None else numbers(near.input(2), "the bias of a convolution").reshape(-1)
    more = _beyond(window, [int(v) for v in attrs.get("output_padding") or [0] * n])
    if not any(more):
        _convolve(near, c, window, bias, out)
        return
    size = shape_list(out)
    inner = c.value("inner", out.dtype, [*size[:2], *(None if d is None else d - m for d, m in zip(size[2:], more, strict=True))] if size else None)
    _convolve(near, c, window, None, inner)
    wide = c.value("wide", out.dtype, size) if bias is not None else out
    low.add("constantPad", [inner], [wide], {"value": 0.0, "padAmounts": [0, 0, 0, 0, *(v for m in more for v in (0, m))]})
    if bias is not None:
        low.add("addBroadcastable", [wide, c.const(bias.reshape(-1, *[1] * n))], [out])


def _beyond(window: Window, extra: list[int]) -> list[int]:
    """What output padding adds behind the last place that a window reaches; the rest of it makes the pads at the end smaller."""
    n = len(extra)
    taken = [min(e, max(0, p)) for e, p in zip(extra, window["pads"][n:], strict=True)]
    window["pads"] = [*window["pads"][:n], *(p - t for p, t in zip(window["pads"][n:], taken, strict=True))]
    return [e - t for e, t in zip(extra, taken, strict=True)]


def _convolve(near: Node, c: CoreLowering, window: Window, bias: Array | None, out: Value) -> None:
    weights, transposed = x_of(near, 1), near.op == "ConvTranspose"
    shape = shape_of(weights) or ()
    n, group = len(shape) - 2, int(attrs_with_defaults(near)["group"])
    blobs = {} if bias is None else {"bias": c.plain(bias)}
    if is_constant(weights):
        blobs["weights"] = c.unquantised(weights) if n == 3 else c.weights(weights, axis=1 if transposed else 0)
        inputs = [x_of(near)]
    elif transposed or n == 3:
        raise MappingError("weights computed at run time (convolutions over one and two axes take them)")
    else:
        inputs = [x_of(near), weights]
    target = _target(near, out)
    common = {"hasBias": bias is not None, "nGroups": group, "outputChannels": shape[1] * group if transposed else shape[0]}
    if n == 3:
        common |= {"inputChannels": shape[0] if transposed else shape[1] * group, "isDeconvolution": transposed}
        _conv3(c, inputs, out, window, common, blobs, target)
        return
    common |= {"kernelChannels": shape[0] if transposed else shape[1], "isDeconvolution": transposed}
    if n == 1:
        x, inner = flat(c, inputs[0], out)
        wide = [c.one("expandDims", [w], [*shape[:2], 1, shape[2]], {"axes": [2]}) for w in inputs[1:]]
        _conv2(c, [x, *wide], [inner], {k: [*_lead(k), *_widened(k, v)] for k, v in window.items()}, common, blobs, [1, *target] if target else None)
        c.add("squeeze", [inner], [out], {"axes": [2]})
    else:
        _conv2(c, inputs, [out], window, common, blobs, target)


def _lead(key: str) -> list[int]:
    return [] if key == "pads" else [1]


def _widened(key: str, values: list[int]) -> list[int]:
    return [0, values[0], 0, values[1]] if key == "pads" else values


def _conv2(low: CoreLowering, inputs: list[Value], outputs: list[Value], window: Window, common: dict[str, Any], blobs: dict[str, Any], target: Any) -> None:
    attrs = {
        "kernelSize": window["kernel"],
        "stride": window["strides"],
        "dilationFactor": window["dilations"],
        "valid": {"paddingAmounts": borders(window["pads"])},
        **common,
    }
    if target:
        attrs["outputShape"] = target
    low.add("convolution", inputs, outputs, attrs, blobs)


def _target(near: Node, out: Value) -> list[int] | None:
    """The output's spatial size, where the node states it; the layer says with it where the output ends."""
    if near.op != "ConvTranspose" or not near.attrs.get("output_shape"):
        return None
    shape = shape_of(out)
    if shape is None or shape_of(x_of(near)) is None:  # where the output begins depends on the input's size
        raise MappingError("a stated output size needs static shapes", "X203", "fix the inputs with --inputs")
    return [int(d) for d in shape[2:]]


def _conv3(low: CoreLowering, inputs: list[Value], out: Value, window: Window, common: dict[str, Any], blobs: dict[str, Any], target: Any) -> None:
    names = ("Depth", "Height", "Width")
    attrs: dict[str, Any] = {**common, "paddingType": "CUSTOM"}
    for key, name in (("kernel", "kernel"), ("strides", "stride"), ("dilations", "dilation")):
        attrs |= {f"{name}{axis}": v for axis, v in zip(names, window[key], strict=True)}
    attrs |= {f"customPadding{side}": v for side, v in zip(("Front", "Top", "Left", "Back", "Bottom", "Right"), window["pads"], strict=True)}
    if target:
        attrs["outputShape"] = target
    low.add("convolution3d", inputs, [out], attrs, blobs)
