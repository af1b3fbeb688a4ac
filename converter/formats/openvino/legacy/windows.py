"""Layers with a sliding window: convolutions and poolings, in the spellings of v2 (kernel-x, pad-r, ...) and of v3 and later (lists)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.legacy.access import any_of, dims, flag, integer, integers, number, operand, shape, text, weights
from converter.formats.openvino.legacy.register import lifts
from converter.graph.build import Builder
from converter.mapping.node import Layer, MappingError

KEYS = (
    "kernel strides pads_begin pads_end dilations auto_pad kernel-x kernel-y stride-x stride-y stride pad-x pad-y pad-r pad-b dilation-x dilation-y "
    "kernel_x kernel_y stride_x stride_y pad_x pad_y pad_r pad_b dilation_x dilation_y pad dilation"
)
WINDOW = tuple(KEYS.split())


@dataclass
class Window:
    """A window over the spatial axes, in axis order (z, y, x)."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    begin: list[int]
    end: list[int]

    @property
    def reach(self) -> list[int]:
        """What one window covers, dilation included."""
        return [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]

    @property
    def pads(self) -> list[int]:
        return [*self.begin, *self.end]


def window_of(layer: Layer, rank: int) -> Window:
    """The window as the engine reads it: lists when there is `kernel`, else the separate attributes; an end pad defaults to the begin."""
    if "kernel" in layer.attrs and ("," in text(layer, "kernel") or rank == 1):
        kernel = integers(layer, "kernel")
        begin = integers(layer, "pads_begin", [0] * rank)
        found = Window(kernel, integers(layer, "strides", [1] * rank), integers(layer, "dilations", [1] * rank), begin, integers(layer, "pads_end", begin))
    else:
        found = _by_axis(layer)
    if any(len(v) != rank for v in (found.kernel, found.strides, found.dilations, found.begin, found.end)):
        raise MappingError(f"the window does not have {rank} dimensions", "R110")
    if min([*found.kernel, *found.strides, *found.dilations]) < 1:
        raise MappingError("kernel, strides and dilations must be positive", "R110")
    return found


def _by_axis(layer: Layer) -> Window:
    def pair(what: str, default: int | None, both: str) -> list[int]:
        common = integer(layer, both) if both in layer.attrs and "," not in text(layer, both) else default
        found = [next((integer(layer, k) for k in (f"{what}-{a}", f"{what}_{a}") if k in layer.attrs), common) for a in "yx"]
        if None in found:
            raise MappingError(f"required attribute {what!r} is absent", "R110")
        return [v for v in found if v is not None]

    begin = pair("pad", 0, "pad")
    end = [next((integer(layer, k) for k in (f"pad-{a}", f"pad_{a}") if k in layer.attrs), begin[i]) for i, a in enumerate("br")]
    return Window(pair("kernel", None, "kernel"), pair("stride", 1, "stride"), pair("dilation", 1, "dilation"), begin, end)


def settle(layer: Layer, window: Window, size: list[int], out: list[int]) -> Window:
    """The window with explicit pads that give exactly the declared output size.

    same_upper, same_lower and valid follow their rules; then the end pads grow (ceil) or shrink (floor leaves a rest) as the port says.
    """
    auto = text(layer, "auto_pad", "").lower()
    if auto in ("same_upper", "same_lower"):
        need = [max(0, (o - 1) * s + r - n) for o, s, r, n in zip(out, window.strides, window.reach, size, strict=True)]
        small = [n // 2 for n in need]
        big = [n - n // 2 for n in need]
        window.begin, window.end = (small, big) if auto == "same_upper" else (big, small)
    elif auto == "valid":
        window.begin, window.end = [0] * len(size), [0] * len(size)
    elif auto not in ("", "explicit", "notset"):
        raise MappingError(f"auto_pad={auto!r} is not known", "R110")
    return window


def end_pads(window: Window, size: list[int], out: list[int]) -> list[int]:
    """End pads with which the floor formula gives `out`; the declared ones where they already do."""
    result = []
    for n, o, s, r, pb, pe in zip(size, out, window.strides, window.reach, window.begin, window.end, strict=True):
        if n + pb + pe >= r and (n + pb + pe - r) // s + 1 == o:
            result.append(pe)
        else:
            result.append((o - 1) * s + r - n - pb)
    return result


@lifts("Convolution", *WINDOW, "output", "group")
def lift_convolution(layer: Layer, b: Builder) -> ir.Value:
    """Weights [G, O/G, I/G, k..] are ONNX's [O, I/G, k..]; they may also be a second input."""
    x, out = operand(layer), dims(layer)
    size, group = shape(x), integer(layer, "group", 1)
    window = settle(layer, window_of(layer, len(out) - 2), list(size[2:]), list(out[2:]))
    pads = end_pads(window, list(size[2:]), list(out[2:]))
    wanted = [out[1], size[1] // group, *window.kernel]
    w: ir.Value | np.ndarray = weights(layer, "weights", wanted) if len(layer.inputs) < 2 else b.op("Reshape", operand(layer, 1), wanted)
    bias = weights(layer, "biases", [out[1]]) if "biases" in layer.blobs else None
    x, crop = _cropped(b, x, [*window.begin, *pads])
    return b.op("Conv", x, _named(b, layer, w, "weights"), _named(b, layer, bias, "biases"), group=group, strides=window.strides, pads=crop,
                dilations=window.dilations, kernel_shape=window.kernel)  # fmt: skip


def _named(b: Builder, layer: Layer, array: ir.Value | np.ndarray | None, name: str) -> ir.Value | None:
    return b.const(array, f"{layer.name}.{name}") if isinstance(array, np.ndarray) else array


def _cropped(b: Builder, x: ir.Value, pads: list[int]) -> tuple[ir.Value, list[int]]:
    """Negative pads, which ONNX does not have, as a slice."""
    if min(pads, default=0) >= 0:
        return x, pads
    rank = len(pads) // 2
    size = shape(x)[2:]
    starts = [max(0, -p) for p in pads[:rank]]
    ends = [n - max(0, -p) for n, p in zip(size, pads[rank:], strict=True)]
    return b.op("Slice", x, starts, ends, list(range(2, rank + 2))), [max(0, p) for p in pads]


@lifts("Deconvolution", *WINDOW, "output", "group")
def lift_deconvolution(layer: Layer, b: Builder) -> ir.Value:
    """Weights [G, I/G, O/G, k..] are ONNX's [I, O/G, k..]. What the port has beyond stride*(in-1)+kernel-pads is output padding."""
    x, out = operand(layer), dims(layer)
    size, group = shape(x), integer(layer, "group", 1)
    window = window_of(layer, len(out) - 2)
    full = [s * (n - 1) + r for s, n, r in zip(window.strides, size[2:], window.reach, strict=True)]
    auto = text(layer, "auto_pad", "").lower()
    if auto in ("same_upper", "same_lower", "valid"):
        rest = [max(0, f - o) for f, o in zip(full, out[2:], strict=True)]
        half = [r // 2 for r in rest]
        other = [r - r // 2 for r in rest]
        window.begin, window.end = (other, half) if auto == "same_lower" else (half, other)
    # the begin pads stand; the end follows from the port: cut off, or more than the full result (output padding)
    ends = [f - pb - o for f, pb, o in zip(full, window.begin, out[2:], strict=True)]
    padding = [max(0, -e) for e in ends]
    w = weights(layer, "weights", [size[1], out[1] // group, *window.kernel]) if len(layer.inputs) < 2 else operand(layer, 1)
    bias = weights(layer, "biases", [out[1]]) if "biases" in layer.blobs else None
    if any(p >= max(s, d) for p, s, d in zip(padding, window.strides, window.dilations, strict=True)):
        raise MappingError("the output port is larger than a deconvolution can make it", "R105")
    return b.op(
        "ConvTranspose", x, _named(b, layer, w, "weights"), _named(b, layer, bias, "biases"), group=group, strides=window.strides,
        dilations=window.dilations, kernel_shape=window.kernel, pads=[*window.begin, *(max(0, e) for e in ends)],
        output_padding=padding if any(padding) else None,
    )  # fmt: skip


@lifts("DeformableConvolution", *WINDOW, "output", "group", "deformable_group", "num_deformable_group")
def lift_deformable(layer: Layer, b: Builder) -> ir.Value:
    """A tap's neighbours outside of the image are clamped to it, as in opset8 without `bilinear_interpolation_pad`; DeformConv takes zeros for them."""
    x, offset, out = operand(layer), operand(layer, 1), dims(layer)
    size, group = shape(x), integer(layer, "group", 1)
    window = settle(layer, window_of(layer, len(out) - 2), list(size[2:]), list(out[2:]))
    groups = integer(layer, "deformable_group" if "deformable_group" in layer.attrs else "num_deformable_group", 1)
    w = b.const(weights(layer, "weights", [out[1], size[1] // group, *window.kernel]), f"{layer.name}.weights")
    bias = b.const(weights(layer, "biases", [out[1], 1, 1]), f"{layer.name}.biases") if "biases" in layer.blobs else None
    pads = [*window.begin, *end_pads(window, list(size[2:]), list(out[2:]))]
    y = b.ext(
        "DeformableConvolution", x, offset, w, group=group, deformable_group=groups, strides=window.strides, pads=pads, dilations=window.dilations,
        bilinear_pad=0,
    )  # fmt: skip
    return y if bias is None else b.op("Add", y, bias)


@lifts("BinaryConvolution", *WINDOW, "output", "group", "input", "mode", "pad_value")
def lift_binary(layer: Layer, b: Builder) -> ir.Value:
    """Weights: one bit each, the lowest bit of a byte first."""
    x, out = operand(layer), dims(layer)
    size, group = shape(x), integer(layer, "group", 1)
    if text(layer, "mode", "xnor-popcount") != "xnor-popcount":
        raise MappingError(f"mode={text(layer, 'mode')!r} is not known", "R110")
    window = settle(layer, window_of(layer, len(out) - 2), list(size[2:]), list(out[2:]))
    wanted = [out[1], size[1] // group, *window.kernel]
    raw = layer.blobs.get("weights")
    if raw is None or raw.nbytes < -(-int(np.prod(wanted)) // 8):
        raise MappingError("the blob 'weights' is absent or too small", "R103")
    bits = np.unpackbits(np.ascontiguousarray(raw).reshape(-1).view(np.uint8), bitorder="little")[: int(np.prod(wanted))].reshape(wanted)
    pads = [*window.begin, *end_pads(window, list(size[2:]), list(out[2:]))]
    w = b.const(bits.astype(np.float32), f"{layer.name}.weights")
    return b.ext("BinaryConvolution", x, w, strides=window.strides, pads=pads, dilations=window.dilations, pad_value=number(layer, "pad_value", 0), group=group)


POOL = (*WINDOW, "pool-method", "exclude-pad", "rounding_type", "rounding-type", "global-pool", "global_pool", "method", "pool_method", "exclude_pad")


@lifts("Pooling", *POOL)
def lift_pooling(layer: Layer, b: Builder) -> ir.Value:
    """The port's size alone decides about rounding up. An average that includes pads counts the declared pads, not the rest of a last window."""
    x, out = operand(layer), list(dims(layer)[2:])
    size = list(shape(x)[2:])
    window = (
        window_of(layer, len(out))
        if any_of(layer.attrs, "kernel", "kernel-x", "kernel_x")
        else Window(size, [1] * len(size), [1] * len(size), [0] * len(size), [0] * len(size))
    )
    window = settle(layer, window, size, out)
    kind = text(layer, "pool-method", "max").lower()
    average = kind in ("avg", "average")
    if not average and kind != "max":
        raise MappingError(f"pool-method={kind!r} is not known", "R110")
    include = average and not flag(layer, "exclude-pad")
    ends = end_pads(window, size, out)
    extra = [max(0, e - d) for e, d in zip(ends, window.end, strict=True)] if include else [0] * len(size)
    pads = [*window.begin, *(e if not include else min(e, d) for e, d in zip(ends, window.end, strict=True))]
    x, pads = _cropped(b, x, pads)
    if not average:
        return _max_pool(b, x, pads, window)
    if any(extra):
        return _sum_of_rest(b, x, pads, extra, window, size)
    if any(p >= k for p, k in zip(pads, window.kernel * 2, strict=True)):
        raise MappingError("a pad as large as the window", "R110")
    return b.op("AveragePool", x, pads=pads, count_include_pad=int(include), kernel_shape=window.kernel, strides=window.strides)


def _max_pool(b: Builder, x: ir.Value, pads: list[int], window: Window) -> ir.Value:
    if any(p >= k for p, k in zip(pads, window.kernel * 2, strict=True)):
        rank = len(pads) // 2
        x = b.op("Pad", x, [0, 0, *pads[:rank], 0, 0, *pads[rank:]], b.like(x, -np.inf))
        pads = [0] * len(pads)
    return b.op("MaxPool", x, kernel_shape=window.kernel, strides=window.strides, pads=pads)


def _sum_of_rest(b: Builder, x: ir.Value, pads: list[int], extra: list[int], window: Window, size: list[int]) -> ir.Value:
    """Windows that reach beyond the padded input are divided by what of them lies inside of it."""
    rank = len(extra)
    padded = b.op("Pad", x, [0, 0, *pads[:rank], 0, 0, *pads[rank:]], b.like(x, 0)) if any(pads) else x
    return b.op("AveragePool", padded, kernel_shape=window.kernel, strides=window.strides, pads=[0] * rank + extra, count_include_pad=0)
