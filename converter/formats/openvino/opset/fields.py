"""Field kinds of the opsets' rows: how IR v10/v11 spells padding, axes, types and broadcasting."""

from __future__ import annotations

from typing import Any

import numpy as np

from converter.graph.infer import shape_of
from converter.mapping.codecs import Codec, bool_text, csv, enum
from converter.mapping.fields import Attr, Field, Group
from converter.mapping.node import Layer, MappingError, Node

AUTO_PAD = ("explicit", "same_upper", "same_lower", "valid", "notset")
yes_no = Codec(lambda v: bool_text.lift(v), lambda v: bool_text.lower(v))


def flag(name: str, as_: str, default: int) -> Attr:
    """An ONNX 0/1 attribute <-> true/false; `default` is what both sides mean without it."""
    return Attr(name, as_, yes_no, default=default, far_default=default)


def explicit_pads(auto_pad: str, size: list[int], kernel: list[int], strides: list[int], dilations: list[int]) -> list[int]:
    """The explicit form of same_upper / same_lower / valid for a convolution or pooling window."""
    if auto_pad == "valid":
        return [0] * (2 * len(kernel))
    begin, end = [], []
    for n, k, s, d in zip(size, kernel, strides, dilations, strict=True):
        total = max(0, (-(-n // s) - 1) * s + (k - 1) * d + 1 - n)
        small, big = total // 2, total - total // 2
        begin.append(small if auto_pad == "same_upper" else big)
        end.append(big if auto_pad == "same_upper" else small)
    return [*begin, *end]


def window(*, kernel: bool, dilations: bool = True) -> Field:
    """strides, dilations, pads and auto_pad of a window <-> their ONNX names; auto_pad becomes explicit.

    `kernel`: the layer carries its kernel size itself (pooling); else it is that of the weights (input 1, O I spatial...).
    """
    near = ("strides", "pads", *(("dilations",) if dilations else ()), "kernel_shape", "auto_pad")
    far = ("strides", "pads_begin", "pads_end", "auto_pad", *(("dilations",) if dilations else ()), *(("kernel",) if kernel else ()))

    def lift(layer: Layer, node: Node) -> dict[str, Any]:
        shape = csv.lift(layer.attrs["kernel"]) if kernel else _kernel_of_weights(node)
        rank = len(shape)
        strides = csv.lift(layer.attrs.get("strides", "")) or [1] * rank
        dilation = csv.lift(layer.attrs.get("dilations", "")) or [1] * rank
        auto = str(layer.attrs.get("auto_pad", "explicit")).lower()
        if auto in ("explicit", "notset"):
            pads = (csv.lift(layer.attrs.get("pads_begin", "")) or [0] * rank) + (csv.lift(layer.attrs.get("pads_end", "")) or [0] * rank)
        elif auto in AUTO_PAD:
            pads = explicit_pads(auto, _spatial(node, auto), shape, strides, dilation)
        else:
            raise MappingError(f"auto_pad={auto!r} is not known", "R110")
        result: dict[str, Any] = {"strides": strides, "pads": pads, "kernel_shape": shape}
        return result | ({"dilations": dilation} if dilations else {})

    def lower(node: Node, layer: Layer) -> dict[str, Any]:
        rank = len(node.attrs.get("kernel_shape") or _kernel_of_weights(node))
        pads = node.attrs.get("pads") or [0] * (2 * rank)
        attrs = {
            "strides": csv.lower(node.attrs.get("strides") or [1] * rank),
            "pads_begin": csv.lower(pads[:rank]),
            "pads_end": csv.lower(pads[rank:]),
            "auto_pad": "explicit",
        }
        if dilations:
            attrs["dilations"] = csv.lower(node.attrs.get("dilations") or [1] * rank)
        return attrs | ({"kernel": csv.lower(node.attrs["kernel_shape"])} if kernel else {})

    return Group(near, far, lift, lower)


def _kernel_of_weights(node: Node) -> list[int]:
    weights = node.input(1)
    shape = shape_of(weights) if weights is not None else None
    if shape is None:
        raise MappingError("the kernel size is unknown: the weights have no static shape")
    return list(shape[2:])


def _spatial(node: Node, auto: str) -> list[int]:
    value = node.input(0)
    dims = [] if value is None or value.shape is None else list(value.shape)[2:]
    if auto == "valid":
        return [0] * len(dims)
    if not dims or any(not isinstance(d, int) for d in dims):
        raise MappingError(f"auto_pad={auto!r} needs static spatial dimensions", "X203", "fix them with --inputs")
    return [int(d) for d in dims]  # type: ignore[arg-type]


class NumpyBroadcast(Field):
    """auto_broadcast of binary operations. numpy is ONNX's rule, none is the case of equal shapes."""

    far = ("auto_broadcast",)

    def lift(self, far: Layer, near: Node, emit: Any) -> None:
        found = str(far.attrs.get("auto_broadcast", "numpy")).lower()
        if found == "none" and len({str(shape_of(v)) for v in far.inputs if v is not None}) > 1:
            raise MappingError("auto_broadcast='none' between unequal shapes", "R105")
        if found not in ("numpy", "none", "pdpd"):  # operands of pdpd are aligned before rows see them
            raise MappingError(f"auto_broadcast={found!r} is not expressible here", "X202")

    def lower(self, near: Node, far: Layer) -> None:
        far.attrs["auto_broadcast"] = "numpy"


ELEMENT_TYPES = {
    1: "f32", 2: "u8", 3: "i8", 4: "u16", 5: "i16", 6: "i32", 7: "i64", 8: "string", 9: "boolean", 10: "f16", 11: "f64", 12: "u32",
    13: "u64", 16: "bf16", 17: "f8e4m3", 19: "f8e5m2", 21: "u4", 22: "i4", 23: "f4e2m1", 24: "f8e8m0", 25: "u2",
}  # fmt: skip
element_type = enum(ELEMENT_TYPES)  # ONNX data type number <-> the IR's name


def rank_of_input(node: Node, index: int = 0) -> int:
    value = node.input(index)
    if value is None or value.shape is None:
        raise MappingError("the rank of the input is unknown")
    return int(value.shape.rank())


def as_ints(values: Any) -> list[int]:
    return [int(v) for v in np.asarray(values).reshape(-1)]
