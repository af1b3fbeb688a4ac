"""Pooling. Rounding up has two meanings: `ceil` lets a window begin in the padding at the end, `ceil_torch` (and ONNX) does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.opset.fields import element_type, explicit_pads
from converter.formats.openvino.opset.special.base import Emit, attributes, filled, given, ints, is_float, lifts, lowers, operand, opset, rank, static
from converter.graph.build import Builder
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node

T = ir.DataType
WINDOW: dict[str, Any] = {"kernel": list, "strides": [], "pads_begin": [], "pads_end": [], "dilations": [], "auto_pad": "explicit", "rounding_type": "floor"}


def _declared(a: Any, x: ir.Value) -> list[int]:
    n = len(a.kernel)
    if a.auto_pad in ("explicit", "notset"):
        return [*(a.pads_begin or [0] * n), *(a.pads_end or [0] * n)]
    if a.auto_pad == "valid":
        return [0] * (2 * n)
    if a.auto_pad in ("same_upper", "same_lower"):
        return explicit_pads(a.auto_pad, [int(d) for d in static(x)[2:]], a.kernel, a.strides or [1] * n, a.dilations or [1] * n)
    raise MappingError(f"auto_pad={a.auto_pad!r} is not known", "R110")


def _window(a: Any, x: ir.Value) -> dict[str, Any]:
    """kernel_shape, strides, dilations, pads and ceil_mode in ONNX's meaning."""
    n = len(a.kernel)
    strides, dilations = a.strides or [1] * n, a.dilations or [1] * n
    pads = _declared(a, x)
    if a.rounding_type not in ("floor", "ceil", "ceil_torch"):
        raise MappingError(f"rounding_type={a.rounding_type!r} is not known", "R110")
    ceil = int(a.rounding_type != "floor")
    if a.rounding_type == "ceil" and ceil and any(pads[n + i] + strides[i] > (a.kernel[i] - 1) * dilations[i] + 1 for i in range(n)):
        ceil = _round_up(a.kernel, strides, dilations, pads, [int(d) for d in static(x)[2:]])
    return {"kernel_shape": a.kernel, "strides": strides, "dilations": dilations, "pads": pads, "ceil_mode": ceil}


def _round_up(kernel: list[int], strides: list[int], dilations: list[int], pads: list[int], size: list[int]) -> int:
    """Where a last window begins in the padding at the end: more padding there instead of ceil_mode. Changes `pads`."""
    n, outputs, beyond = len(kernel), [], False
    for i in range(n):
        reach = (kernel[i] - 1) * dilations[i] + 1
        out = -(-(size[i] + pads[i] + pads[n + i] - reach) // strides[i]) + 1
        outputs.append((out - 1) * strides[i] + reach - size[i] - pads[i])
        beyond |= (out - 1) * strides[i] >= size[i] + pads[i]
    if not beyond:
        return 1
    for i in range(n):
        pads[n + i] = max(pads[n + i], outputs[i])
    return 0


@lifts("AvgPool")
def lift_average(layer: Layer, b: Builder) -> ir.Value:
    a = attributes(layer, **WINDOW, exclude_pad=bool)
    x = operand(layer, 0)
    w = _window(a, x)
    counts = not a.exclude_pad and any(_declared(a, x))
    if a.rounding_type != "floor" and (not w["ceil_mode"] or counts):
        return _average_rounded_up(b, x, a, w)
    return b.op("AveragePool", x, **w, count_include_pad=int(not a.exclude_pad))


def _average_rounded_up(b: Builder, x: ir.Value, a: Any, w: dict[str, Any]) -> ir.Value:
    """Where ONNX's ceil_mode means something else: behind the padding are zeros, and padding that is not excluded counts behind it too.

    Without any padding nothing but data counts. Windows behind the data are zeros, put behind the others; `ceil_torch` has no such windows.
    """
    size, kernel, n = [int(d) for d in static(x)[2:]], w["kernel_shape"], len(w["kernel_shape"])
    pads = _declared(a, x)
    begin, end, ends = pads[:n], pads[n:], pads[n:]
    share, empty = np.ones([1] * (n + 2)), [0] * n
    for i, (d, k, s, r) in enumerate(zip(size, kernel, w["strides"], w["dilations"], strict=True)):
        reach = (k - 1) * r + 1
        first = np.arange(-(-(d + begin[i] + end[i] - reach) // s) + 1) * s - begin[i]
        some = first[first < d]
        empty[i], ends[i] = len(first) - len(some), max(0, int(some[-1]) + reach - d)
        places = some[:, None] + np.arange(k) * r
        counted = np.sum((places >= 0) & (places < d), axis=1)
        share = share * (k / counted).reshape([-1 if j == i + 2 else 1 for j in range(n + 2)])
    if any(p >= k for p, k in zip([*begin, *ends], list(kernel) * 2, strict=True)):
        raise MappingError("a dilated window that reaches behind the padding")
    y = b.op("AveragePool", x, **{**w, "pads": [*begin, *ends], "ceil_mode": 0}, count_include_pad=1)
    if a.exclude_pad or not any(pads):
        y = b.op("Mul", y, b.const(share.astype(x.dtype.numpy() if x.dtype else np.float32), "share"))
    return b.op("Pad", y, [0] * (n + 4) + empty) if any(empty) and a.rounding_type == "ceil" else y


@lifts("MaxPool")
def lift_max(layer: Layer, b: Builder) -> list[ir.Value]:
    """From opset8 on also the index of each maximum in the elements from `axis` on."""
    a = attributes(layer, **WINDOW, index_element_type="i64", axis=0)
    x, to = operand(layer, 0), element_type.lift(a.index_element_type)
    if to not in (int(T.INT64), int(T.INT32)) or not -rank(x) <= a.axis < rank(x):
        raise MappingError(f"indices of the type {a.index_element_type!r} from axis {a.axis} on", "R110")
    w = _window(a, x)
    if any(p >= k for p, k in zip(w["pads"], w["kernel_shape"] * 2, strict=True)):  # ONNX's engines want less padding than kernel
        if not is_float(x) or (len(layer.outputs) > 1 and opset(layer) >= 8 and layer.extra[1].used(layer.extra[0], 1)):
            raise MappingError("padding as large as the window")
        n = len(w["kernel_shape"])
        pads, w["pads"] = w["pads"], [0] * (2 * n)
        x = b.op("Pad", x, [0, 0, *pads[:n], 0, 0, *pads[n:]], b.like(x, np.finfo(x.dtype.numpy()).min if x.dtype else 0))
    if opset(layer) < 8 or len(layer.outputs) < 2 or not layer.extra[1].used(layer.extra[0], 1):
        return [b.op("MaxPool", x, **w)]
    y, index = b.ops("MaxPool", x, **w, outputs=2)
    if a.axis:
        count = b.op("ReduceProd", b.op("Shape", x, start=a.axis), [0], keepdims=0)
        index = b.op("Mod", index, count)
    return [y, index if to == int(T.INT64) else b.op("Cast", index, to=to)]


def _attrs(node: Node, low: Lowering) -> dict[str, Any]:
    a = filled(node)
    n = len(a["kernel_shape"])
    if a.get("auto_pad", "NOTSET") != "NOTSET":
        raise MappingError("implicit padding")
    pads = a.get("pads") or [0] * (2 * n)
    strides, dilations = a.get("strides") or [1] * n, a.get("dilations") or [1] * n
    rounding = "floor"
    if a.get("ceil_mode"):
        safe = all(pads[n + i] + strides[i] <= (a["kernel_shape"][i] - 1) * dilations[i] + 1 for i in range(n))
        if not safe and low.version < 14:
            raise MappingError("ceil_mode with windows that would begin in the padding needs opset14", "X206")
        rounding = "ceil_torch" if low.version >= 14 else "ceil"
        pads = _reached(node, a, pads, dilations)
    return {
        "kernel": a["kernel_shape"], "strides": strides, "pads_begin": pads[:n], "pads_end": pads[n:], "dilations": dilations,
        "auto_pad": "explicit", "rounding_type": rounding,
    }  # fmt: skip


def _reached(node: Node, a: dict[str, Any], pads: list[int], dilations: list[int]) -> list[int]:
    """Padding up to the end of a window that is larger than its padded axis, which runtimes refuse; it is not counted."""
    n, pads, x = len(dilations), list(pads), node.input(0)
    for i, size in enumerate([] if x is None or x.shape is None else list(x.shape)[2:]):
        over = (a["kernel_shape"][i] - 1) * dilations[i] + 1 - (size + pads[i] + pads[n + i]) if isinstance(size, int) else 0
        if over > 0 and a.get("count_include_pad"):
            raise MappingError("a window that is larger than its axis with the counted padding")
        pads[n + i] += max(0, over)
    return pads


@lowers("AveragePool")
def lower_average(node: Node, low: Lowering) -> None:
    w = _attrs(node, low)
    if any(d != 1 for d in w["dilations"]) and low.version < 16:
        raise MappingError("dilations of AvgPool need opset16", "X206")
    if low.version < 16:
        del w["dilations"]
    w["exclude-pad"] = not filled(node)["count_include_pad"]
    share, e = _counted(node, w), Emit(node, low)
    if share is None:
        e.out("AvgPool", node.input(0), **w)
    else:
        e.out("Multiply", e.op("AvgPool", node.input(0), **w), share, auto_broadcast="numpy")


def _counted(node: Node, w: dict[str, Any]) -> Any:
    """Rounding up, ONNX does not count what lies behind the padding, OpenVINO does: all elements over those that count, None where it is 1.

    `w` gets the padding at the end with which nothing is rounded.
    """
    x = given(node, 0)
    if w["exclude-pad"] or w["rounding_type"] == "floor" or not any((*w["pads_begin"], *w["pads_end"])):
        return None
    n, size, out, ends = len(w["kernel"]), static(x)[2:], static(node.outputs[0])[2:], []
    share = np.ones([1] * (n + 2))
    for i, (d, k, s, r, count) in enumerate(zip(size, w["kernel"], w["strides"], w.get("dilations") or [1] * n, out, strict=True)):
        begin, end = w["pads_begin"][i], w["pads_end"][i]
        places = np.arange(count)[:, None] * s - begin + np.arange(k) * r
        share = share * (k / np.sum(places < d + end, axis=1)).reshape([-1 if j == i + 2 else 1 for j in range(n + 2)])
        ends.append(max(0, int(places[-1, -1]) + 1 - d))
    if np.all(share == 1):
        return None
    w["rounding_type"], w["pads_end"] = "floor", ends
    return share.astype(x.dtype.numpy() if x.dtype else np.float32)


@lowers("MaxPool")
def lower_max(node: Node, low: Lowering) -> None:
    """The indices of ONNX count all elements of the tensor: axis 0."""
    w, e = _attrs(node, low), Emit(node, low)
    if filled(node)["storage_order"]:
        raise MappingError("storage_order=1 cannot be expressed")
    out = node.outputs[0]
    indices = node.outputs[1] if len(node.outputs) > 1 else low.value("indices", T.INT64, out.shape)
    e.out("MaxPool", node.input(0), outputs=[out, indices], **w, index_element_type="i64", axis=0)


@lifts("AdaptiveAvgPool")
def lift_adaptive_average(layer: Layer, b: Builder) -> ir.Value:
    return b.ext("AdaptiveAveragePool", operand(layer, 0), output_size=ints(operand(layer, 1), "the output size"))


@lifts("AdaptiveMaxPool")
def lift_adaptive_max(layer: Layer, b: Builder) -> list[ir.Value]:
    a = attributes(layer, index_element_type="i64")
    y, index = b.exts("AdaptiveMaxPool", operand(layer, 0), output_size=ints(operand(layer, 1), "the output size"), outputs=2)
    to = element_type.lift(a.index_element_type)
    return [y, index if to == int(T.INT64) else b.op("Cast", index, to=to)]


@lowers("AdaptiveAveragePool", domain="netconv")
def lower_adaptive_average(node: Node, low: Lowering) -> None:
    Emit(node, low).out("AdaptiveAvgPool", given(node, 0), np.array(node.attrs["output_size"], np.int64))


@lowers("AdaptiveMaxPool", domain="netconv")
def lower_adaptive_max(node: Node, low: Lowering) -> None:
    """The CPU runtime gives the indices as i32 only."""
    e, size = Emit(node, low), np.array(node.attrs["output_size"], np.int64)
    places = low.value("indices", T.INT32, node.outputs[0].shape)
    e.out("AdaptiveMaxPool", given(node, 0), size, outputs=[node.outputs[0], places], index_element_type="i32")
    if len(node.outputs) > 1:
        e.out("Convert", places, outputs=[node.outputs[1]], destination_type="i64")
