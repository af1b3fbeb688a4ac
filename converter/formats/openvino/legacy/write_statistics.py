"""Canonical normalisations and quantisation -> legacy layers."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.legacy.access import kind_before
from converter.formats.openvino.legacy.register import lowers
from converter.formats.openvino.legacy.write_arithmetic import MOST_AXES, power
from converter.formats.openvino.legacy.writing import finish, need, reshaped, static, step, widened
from converter.graph.infer import known
from converter.mapping.codecs import number_text
from converter.mapping.drive import Lowering
from converter.mapping.node import MappingError, Node


def times(low: Lowering, x: ir.Value, factor: float) -> ir.Value:
    out = low.value("power", x.dtype, static(x))
    power(low, x, out, scale=factor)
    return out


@lowers("LRN")
def lower_lrn(node: Node, low: Lowering) -> None:
    """The engine's k is 1, whatever the attribute says: another one is taken out of the power."""
    x, out = need(node, 0), node.outputs[0]
    alpha, beta, k = node.attrs.get("alpha", 1e-4), node.attrs.get("beta", 0.75), node.attrs.get("bias", 1.0)
    if k <= 0:
        raise MappingError(f"bias={k} is not known to the target")
    attrs = {"alpha": number_text(alpha / k), "beta": number_text(beta), "local-size": str(node.attrs["size"]), "region": "across", "k": "1"}
    shape = static(x)
    if len(shape) == 4 and k == 1:
        low.add("Norm", [x], [out], attrs)
        return
    image = shape if len(shape) == 4 else [shape[0], shape[1], 1, math.prod(shape[2:])]
    normed = step(low, "Norm", [reshaped(low, x, image)], x, image, attrs)
    if image == shape:
        power(low, normed, out, scale=k**-beta)
    else:
        finish(low, normed if k == 1 else times(low, normed, k**-beta), out)


@lowers("Softmax", "LogSoftmax")
def lower_softmax(node: Node, low: Lowering) -> None:
    kind = {"Softmax": "SoftMax"}.get(node.op, node.op)
    x, out = need(node, 0), node.outputs[0]
    shape = static(x)
    axis = node.attrs.get("axis", -1) % len(shape)
    if len(shape) <= MOST_AXES:
        low.add(kind, [x], [out], {"axis": str(axis)})
        return
    around = [math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])]
    finish(low, step(low, kind, [reshaped(low, x, around)], out, around, {"axis": "1"}), out)


@lowers("MVN", domain="netconv")
def lower_mvn(node: Node, low: Lowering) -> None:
    rank = len(static(need(node, 0)))
    axes = sorted(a % rank for a in node.attrs["axes"])
    if rank not in (4, 5) or axes not in (list(range(1, rank)), list(range(2, rank))) or node.attrs.get("eps_mode", "inside_sqrt") != "inside_sqrt":
        raise MappingError("MVN is known over the spatial axes, with or without the channels, of images")
    attrs = {"across_channels": "1" if axes[0] == 1 else "0", "normalize_variance": str(node.attrs.get("normalize_variance", 1))}
    low.add("MVN", [need(node, 0)], node.outputs, attrs | {"eps": number_text(node.attrs.get("eps", 1e-9))})


@lowers("NormalizeL2", domain="netconv")
def lower_normalize(node: Node, low: Lowering) -> None:
    shape = static(need(node, 0))
    axes = sorted(a % len(shape) for a in node.attrs["axes"])
    if not 2 <= len(shape) <= 4 or axes not in ([1], list(range(1, len(shape)))) or node.attrs.get("eps_mode", "add") != "add":
        raise MappingError("Normalize is known over the channels, with or without the spatial axes")
    attrs = {"across_spatial": "0" if axes == [1] else "1", "channel_shared": "0", "eps": number_text(node.attrs.get("eps", 1e-10))}
    low.add("Normalize", [need(node, 0)], node.outputs, attrs, {"weights": np.ones(shape[1], np.float32)})


@lowers("GRN", domain="netconv")
def lower_grn(node: Node, low: Lowering) -> None:
    low.add("GRN", [need(node, 0)], node.outputs, {"bias": number_text(node.attrs.get("bias", 1e-6))})


@lowers("FakeQuantize", domain="netconv")
def lower_fake_quantize(node: Node, low: Lowering) -> None:
    """Bounds in the rank of the data; the layer was called Quantize before v6.

    With bounds for each channel a layer that changes nothing stands in front: put together with the layer before it, the engine reads
    memory behind the bounds. Networks of the engine's own tools are as they are.
    """
    x = need(node, 0)
    rank = len(static(x))
    if any(known(need(node, i)) is None for i in range(1, 5)):
        raise MappingError("the bounds must be constant")
    bounds = [widened(low, need(node, i), rank) for i in range(1, 5)]
    if not kind_before(node.outputs[0]) and any(math.prod(static(v)) > 1 for v in bounds):
        before, x = x, low.value("apart", x.dtype, static(x))
        power(low, before, x)
    low.add("FakeQuantize" if low.version >= 6 else "Quantize", [x, *bounds], node.outputs, {"levels": str(node.attrs["levels"])})
