"""Canonical convolutions and poolings -> legacy layers. One spatial axis is written as two, of which the first has length 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.legacy.register import lowers
from converter.formats.openvino.legacy.writing import array_of, csv, finish, is_float, need, reshaped, static, step
from converter.graph.infer import constant
from converter.mapping.codecs import number_text
from converter.mapping.drive import Lowering
from converter.mapping.node import MappingError, Node


def window(node: Node, kernel: list[int]) -> dict[str, Any]:
    """kernel, strides, pads and dilations in the lists of v3 and later; a single axis gets a first one of length 1."""
    rank = len(kernel)
    if node.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise MappingError(f"auto_pad={node.attrs['auto_pad']!r} must be explicit pads")
    pads = list(node.attrs.get("pads") or [0] * (2 * rank)) if node.attrs.get("auto_pad", "NOTSET") == "NOTSET" else [0] * (2 * rank)
    strides, dilations = (list(node.attrs.get(k) or [1] * rank) for k in ("strides", "dilations"))
    begin, end = pads[:rank], pads[rank:]
    if rank == 1:
        kernel, strides, dilations, begin, end = [1, *kernel], [1, *strides], [1, *dilations], [0, *begin], [0, *end]
    if not 2 <= len(kernel) <= 3:
        raise MappingError(f"windows over {rank} axes are not known to the target")
    found = {"kernel": kernel, "strides": strides, "dilations": dilations, "pads_begin": begin, "pads_end": end}
    return {k: csv(v) for k, v in found.items()}


def around(node: Node, low: Lowering, kind: str, attrs: dict[str, Any], blobs: dict[str, Any], inputs: list[ir.Value]) -> None:
    """Adds the layer; for one spatial axis between two reshapes."""
    x, out = inputs[0], node.outputs[0]
    if len(static(x)) != 3:
        low.add(kind, inputs, [out], attrs, blobs)
        return
    n, c, w = static(x)
    on, oc, ow = static(out)
    inner = low.value(kind.lower(), out.dtype, [on, oc, 1, ow])
    low.add(kind, [reshaped(low, x, [n, c, 1, w]), *inputs[1:]], [inner], attrs, blobs)
    finish(low, inner, out)


@lowers("Conv")
def lower_conv(node: Node, low: Lowering) -> None:
    """Weights that are not constant are a second input."""
    x, w = need(node, 0), need(node, 1)
    weights = constant(w)
    shape = static(w)
    attrs = window(node, shape[2:]) | {"output": str(shape[0]), "group": str(node.attrs.get("group", 1))}
    if weights is not None:
        around(node, low, "Convolution", attrs, _blobs(node, weights), [x])
        return
    blobs = {"biases": array_of(node, 2, "the bias")} if node.input(2) is not None else {}
    around(node, low, "Convolution", attrs, blobs, [x, w if len(shape) > 3 else reshaped(low, w, [*shape[:2], 1, shape[2]])])


def _blobs(node: Node, weights: np.ndarray) -> dict[str, Any]:
    return {"weights": weights, **({"biases": array_of(node, 2, "the bias")} if node.input(2) is not None else {})}


@lowers("ConvTranspose")
def lower_conv_transpose(node: Node, low: Lowering) -> None:
    """The output padding has no attribute: the output port says it. Pads follow from output_shape when that is given."""
    x = need(node, 0)
    weights = array_of(node, 1, "the weights of a deconvolution")
    if node.attrs.get("output_shape"):
        raise MappingError("output_shape must be explicit pads")
    group = node.attrs.get("group", 1)
    attrs = window(node, list(weights.shape[2:])) | {"output": str(weights.shape[1] * group), "group": str(group)}
    around(node, low, "Deconvolution", attrs, _blobs(node, weights), [x])


@lowers("DeformableConvolution", domain="netconv")
def lower_deformable(node: Node, low: Lowering) -> None:
    weights = array_of(node, 2, "the weights of a convolution")
    if node.input(3) is not None or node.attrs.get("bilinear_pad", 0):
        raise MappingError("a mask, or zeros around the image, are not known to the target")
    attrs = window(node, list(weights.shape[2:])) | {"output": str(weights.shape[0]), "group": str(node.attrs.get("group", 1))}
    attrs["deformable_group"] = str(node.attrs.get("deformable_group", 1))
    low.add("DeformableConvolution", [need(node, 0), need(node, 1)], node.outputs, attrs, {"weights": weights})


@lowers("BinaryConvolution", domain="netconv")
def lower_binary(node: Node, low: Lowering) -> None:
    weights = array_of(node, 1, "the weights of a convolution")
    shape = weights.shape
    attrs = window(node, list(shape[2:])) | {"output": str(shape[0]), "group": str(node.attrs.get("group", 1))}
    attrs |= {"input": str(static(need(node, 0))[1]), "mode": "xnor-popcount", "pad_value": number_text(node.attrs.get("pad_value", 0.0))}
    low.add("BinaryConvolution", [need(node, 0)], node.outputs, attrs, {"weights": np.packbits(weights.reshape(-1) > 0, bitorder="little")})


@lowers("MaxPool", "AveragePool")
def lower_pool(node: Node, low: Lowering) -> None:
    """The port's size says how many windows there are, beyond the padded input too."""
    average = node.op == "AveragePool"
    if any(d != 1 for d in node.attrs.get("dilations") or []):
        raise MappingError("dilated pooling is not known to the target")
    if node.attrs.get("storage_order"):
        raise MappingError("indices of a pooling are not known to the target")
    if len(node.outputs) > 1 and (node.outputs[1].uses() or node.outputs[1].is_graph_output()):
        raise MappingError("indices of a pooling are not known to the target")
    if not is_float(need(node, 0)):
        raise MappingError("pooling of integers is not known to the target")
    _all_begin_inside(node)
    if any(p >= k for p, k in zip(node.attrs.get("pads") or [], list(node.attrs["kernel_shape"]) * 2, strict=False)):
        raise MappingError("a pad as large as the window")
    attrs = window(node, list(node.attrs["kernel_shape"]))
    del attrs["dilations"]
    include = bool(node.attrs.get("count_include_pad", 0)) and average
    attrs |= {"pool-method": "avg" if average else "max", "exclude-pad": "false" if include else "true"}
    attrs["rounding_type"] = "ceil" if node.attrs.get("ceil_mode") else "floor"
    x = need(node, 0)
    pads = list(node.attrs.get("pads") or [])
    begin, end = pads[: len(pads) // 2], pads[len(pads) // 2 :]
    if include and any(e > b for b, e in zip(begin, end, strict=True)) and node.attrs.get("auto_pad", "NOTSET") == "NOTSET":
        x = _padded(low, x, begin, end)  # of the pads at the end the engine counts as many as there are at the begin
        attrs |= {k: csv([0] * len(attrs[k].split(","))) for k in ("pads_begin", "pads_end")}
    around(Node(node.op, node.domain, node.attrs, [x], node.outputs[:1]), low, "Pooling", attrs, {}, [x])


def _padded(low: Lowering, x: ir.Value, begin: list[int], end: list[int]) -> ir.Value:
    shape = [n + b + e for n, b, e in zip(static(x), [0, 0, *begin], [0, 0, *end], strict=True)]
    attrs = {"pads_begin": csv([0, 0, *begin]), "pads_end": csv([0, 0, *end]), "pad_mode": "constant", "pad_value": "0"}
    return step(low, "Pad", [x], x, shape, attrs)


def _all_begin_inside(node: Node) -> None:
    """A window that rounding up lets begin in the end pad is dropped by ONNX; a shape that counts it contradicts the operator."""
    size, out = static(need(node, 0))[2:], static(node.outputs[0])[2:]
    pads, strides = node.attrs.get("pads") or [0] * (2 * len(size)), node.attrs.get("strides") or [1] * len(size)
    if node.attrs.get("ceil_mode") and any((o - 1) * s >= n + p for o, s, n, p in zip(out, strides, size, pads, strict=False)):
        raise MappingError("the declared shape counts a window that begins in the padding")


@lowers("GlobalAveragePool", "GlobalMaxPool")
def lower_global_pool(node: Node, low: Lowering) -> None:
    """A window as large as the image."""
    x = need(node, 0)
    size = static(x)[2:]
    full = Node("AveragePool" if "Average" in node.op else "MaxPool", "", {"kernel_shape": size}, [x], node.outputs)
    lower_pool(full, low)
