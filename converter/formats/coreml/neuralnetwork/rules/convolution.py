"""Windows of two and three axes, and the convolutions over them.

Windows of one axis are written as [1, n].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.neuralnetwork import operands as blobs
from converter.formats.coreml.neuralnetwork.rules.context import Reading, Writing
from converter.formats.coreml.neuralnetwork.rules.fields import (
    FIX,
    AsRank,
    Weights,
    border_amounts,
    borders,
)
from converter.graph.infer import shape_of
from converter.graph.windows import same_pads
from converter.mapping.fields import Field, Fixed, Guard, ignore
from converter.mapping.rules import op
from converter.passes.constants import is_constant

Value = ir.Value
Window = dict[str, list[int]]  # kernel, strides, dilations, pads
HEAVY_END = "BOTTOM_RIGHT_HEAVY"


def two(r: Reading, key: str, default: int) -> list[int]:
    """A repeated [H, W] parameter with its documented default."""
    values = r.attr(key, list)
    if values and len(values) != 2:
        raise MappingError(f"{values} should have two elements (height, width)", "R110")
    return values or [default, default]


def dilated(a: dict[str, Any]) -> list[int]:
    """How far the kernel reaches."""
    windows = zip(a["kernel_shape"], a["dilations"], strict=True)
    return [(k - 1) * d + 1 for k, d in windows]


def given_window(w: Writing, kernel: Sequence[int]) -> Window:
    """The window of an operator, with explicit pads."""
    a, n = w.node.attrs, len(kernel)
    if a.get("auto_pad", "NOTSET") != "NOTSET":
        raise MappingError("automatic padding (explicit pads are needed)")
    ones = {"strides": [1] * n, "dilations": [1] * n, "pads": [0] * (2 * n)}
    found = {k: [int(v) for v in a.get(k) or default] for k, default in ones.items()}
    return {"kernel": [int(k) for k in kernel], **found}


class Planes(Field):
    """A window over height and width; padding is `valid` with borders, or `same`."""

    names: tuple[str, ...] = ("kernel_shape", "strides", "dilations", "pads", "auto_pad")
    keys: tuple[str, ...] = ("kernelSize", "stride", "dilationFactor", "valid", "same")
    axes = 2

    def lift(self, r: Reading) -> None:
        a = r.node.attrs
        a["kernel_shape"], a["strides"] = two(r, "kernelSize", 3), two(r, "stride", 1)
        a["dilations"] = two(r, "dilationFactor", 1)
        a["pads"] = self.pads(r, dilated(a))

    def explicit(self, r: Reading) -> list[int]:
        return borders(r.attr("valid", dict, {}).get("paddingAmounts"))

    def same(self, r: Reading) -> bool | None:
        """Whether automatic padding puts the odd element to the end; None where padding is
        explicit.
        """
        found = r.layer.attrs.get("same")
        return None if found is None else found.get("asymmetryMode") == HEAVY_END

    def pads(self, r: Reading, reach: list[int]) -> list[int]:
        upper = self.same(r)
        if upper is None:
            return self.explicit(r)
        sizes = blobs.dims(r, self.axes)[-self.axes :]
        return same_pads(sizes, reach, r.node.attrs["strides"], upper=upper)

    def kernel(self, w: Writing) -> list[int]:
        return list(w.static(1, "the weights")[2:])

    def lower(self, w: Writing) -> None:
        self.write(w, given_window(w, self.kernel(w)))

    def write(self, w: Writing, window: Window) -> None:
        if len(window["kernel"]) == 1:
            window = {k: [1, *v] for k, v in window.items() if k != "pads"} | {
                "pads": [0, window["pads"][0], 0, window["pads"][1]]
            }
        if len(window["kernel"]) != 2:
            raise MappingError("a window of one to three axes")
        w.set(kernelSize=window["kernel"], stride=window["strides"])
        w.set(valid={"paddingAmounts": border_amounts(window["pads"])})
        if "dilationFactor" in self.keys:
            w.set(dilationFactor=window["dilations"])


AXES = ("Depth", "Height", "Width")
SIDES = tuple(f"customPadding{s}" for s in ("Front", "Top", "Left", "Back", "Bottom", "Right"))


class Volumes(Planes):
    """A window over depth, height and width; `paddingType` is CUSTOM, VALID or SAME."""

    keys = (
        *(f"{name}{axis}" for name in ("kernel", "stride", "dilation") for axis in AXES),
        *SIDES,
        "paddingType",
    )
    axes = 3

    def lift(self, r: Reading) -> None:
        a = r.node.attrs
        names = {"kernel_shape": "kernel", "strides": "stride", "dilations": "dilation"}
        for name, key in names.items():
            a[name] = [r.attr(f"{key}{axis}", int, 1) or 1 for axis in AXES]
        a["pads"] = self.pads(r, dilated(a))

    def explicit(self, r: Reading) -> list[int]:
        custom = r.attr("paddingType", str) == "CUSTOM"
        return [r.attr(side, int) if custom else 0 for side in SIDES]

    def same(self, r: Reading) -> bool | None:
        return True if r.attr("paddingType", str) == "SAME" else None

    def write(self, w: Writing, window: Window) -> None:
        for key, name in (("kernel", "kernel"), ("strides", "stride"), ("dilations", "dilation")):
            if f"{name}Depth" in self.keys:
                sizes = zip(AXES, window[key], strict=True)
                w.set(**{f"{name}{axis}": v for axis, v in sizes})
        w.set(paddingType="CUSTOM", **dict(zip(SIDES, window["pads"], strict=True)))


# what stands beside the layer --------------------------------------------------------------------

Stage = tuple[list[Any] | None, Callable[[Value, Value], object]]


def behind(w: Writing, stages: Sequence[Stage]) -> None:
    """Layers behind that of the row, each with the shape of what it takes."""
    if not stages:
        return
    out = w.layer.outputs[0]
    sources = [w.temporary("inner", out.dtype, shape) for shape, _ in stages]
    w.layer.outputs[0] = sources[0]
    for (_, emit), source, result in zip(stages, sources, [*sources[1:], out], strict=True):
        w.then(partial(emit, source, result))


def lengthened(sizes: Sequence[Any] | None) -> list[Any] | None:
    """[N,C,L] as [N,C,1,L]."""
    return None if sizes is None else [*sizes[:2], 1, *sizes[2:]]


def flatten_input(w: Writing) -> None:
    x = w.data
    sizes = lengthened(w.dims(x))
    w.layer.inputs[0] = w.emit("expandDims", x, shape=sizes, axes=[2])


def flattened_result(w: Writing, sizes: Sequence[Any] | None) -> Stage:
    """Of [N,C,1,L] to the result's [N,C,L]."""
    return lengthened(sizes), lambda x, y: w.put("squeeze", x, outputs=[y], axes=[2])


class Flat(Field):
    """Windows of one axis: [N,C,L] as [N,C,1,L]."""

    def lower(self, w: Writing) -> None:
        if w.rank() == 3:
            flatten_input(w)
            behind(w, [flattened_result(w, w.dims(w.out))])


# convolutions ------------------------------------------------------------------------------------


class Filter(Field):
    """Weights [outputs, inputs of a group, kernel..], of a transpose [inputs, outputs of a group,
    kernel..].

    `key` holds the inputs, of a group unless it `counts_all`.
    """

    names = ("group",)
    inputs = (1,)
    blobs = ("weights",)

    def __init__(self, key: str, transposed: bool, counts_all: bool = False) -> None:
        self.key, self.transposed, self.counts_all = key, transposed, counts_all
        self.keys = ("outputChannels", "nGroups", key)

    def lift(self, r: Reading) -> None:
        groups, out, into = (r.attr(k, int) for k in ("nGroups", "outputChannels", self.key))
        r.node.attrs["group"] = groups = groups or 1
        if len(r.layer.inputs) > 1:
            return
        kernel = r.node.attrs["kernel_shape"]
        shape = [out, into // groups if self.counts_all else into, *kernel]
        if self.transposed:
            shape = [into, out // groups, *kernel]
        r.set_input(1, r.weights("weights", shape, int(self.transposed)))

    def lower(self, w: Writing) -> None:
        weights, group = w.input(1), int(w.attr("group"))
        shape = w.static(1, "the weights")
        a, b = shape[:2] if self.transposed else shape[1::-1]
        into, out = a, b * group if self.transposed else b
        if self.counts_all and not self.transposed:
            into *= group
        w.set(**{"outputChannels": out, "nGroups": group, self.key: into})
        if is_constant(weights):
            w.layer.blobs["weights"] = (
                w.unquantised(weights)
                if self.counts_all
                else w.stored(weights, axis=int(self.transposed))
            )
        elif self.transposed or self.counts_all:
            message = "weights computed at run time (convolutions over one and two axes take them)"
            raise MappingError(message)
        else:
            if any(d > 1 for d in w.attr("dilations", None) or ()):
                raise MappingError(
                    "dilations of weights computed at run time are not supported by Core ML"
                )
            if len(shape) == 3:
                weights = w.emit("expandDims", weights, shape=lengthened(shape), axes=[2])
            w.layer.inputs.append(weights)


BIAS = Weights("bias", 2, lambda r: [r.attr("outputChannels", int)], "hasBias")


def beyond(w: Writing, pads: list[int]) -> tuple[list[int], list[int]]:
    """Pads without what output padding takes back of those at the end, and what it adds beyond the
    last window.
    """
    n = len(pads) // 2
    extra = [int(v) for v in w.attr("output_padding", None) or [0] * n]
    taken = [min(e, max(0, p)) for e, p in zip(extra, pads[n:], strict=True)]
    ends = [p - t for p, t in zip(pads[n:], taken, strict=True)]
    return [*pads[:n], *ends], [e - t for e, t in zip(extra, taken, strict=True)]


class LateBias(Weights):
    """Of a transpose that ends behind its last window, an Add behind."""

    def lower(self, w: Writing) -> None:
        kernel = w.static(1, "the weights")[2:]
        if any(beyond(w, given_window(w, kernel)["pads"])[1]):
            w.set(hasBias=False)
        else:
            super().lower(w)


LATE_BIAS = LateBias(BIAS.blob, BIAS.index, BIAS.shape, BIAS.flag)


class Transposed(Field):
    """The window of a ConvTranspose.

    `outputShape` decides where the output ends; where it begins is the explicit padding's; `same`
    makes it size * stride. Output padding takes back what is cut off at the end; what it adds
    beyond is bias alone, and is written as such.
    """

    def __init__(self, window: Planes) -> None:
        self.window = window
        self.names = (*window.names, "output_padding", "output_shape")
        self.keys = (*window.keys, "outputShape")

    def lift(self, r: Reading) -> None:
        a, axes = r.node.attrs, self.window.axes
        self.window.lift(r)
        size, target = blobs.dims(r, axes)[-axes:], r.attr("outputShape", list)
        pads, extra = self.window.explicit(r), [0] * axes
        upper, kernel = self.window.same(r), dilated(a)
        for i, (k, s) in enumerate(zip(kernel, a["strides"], strict=True)):
            n = size[i]
            if target:
                if n is None:
                    raise MappingError("outputShape needs static spatial dimensions", "X203", FIX)
                end = (n - 1) * s + k - pads[i] - target[i]
                pads[axes + i], extra[i] = max(0, end), max(0, -end)
            elif upper is not None:
                crop, extra[i] = max(0, k - s), max(0, s - k)
                pads[i] = crop // 2 if upper else crop - crop // 2
                pads[axes + i] = crop - pads[i]
        a["pads"], a["output_padding"] = pads, extra

    def lower(self, w: Writing) -> None:
        window = given_window(w, self.window.kernel(w))
        n, sizes = len(window["kernel"]), w.dims(w.out)
        window["pads"], more = beyond(w, window["pads"])
        self.window.write(w, window)
        self._target(w, n)
        inner = sizes and [*sizes[:2], *(d and d - m for d, m in zip(sizes[2:], more, strict=True))]
        stages: list[Stage] = []
        if n == 1:
            flatten_input(w)
            stages.append(flattened_result(w, inner))
        if any(more):
            stages += self._padded(w, more, inner, sizes)
        behind(w, stages)

    def _padded(self, w: Writing, more: list[int], inner: Any, sizes: Any) -> list[Stage]:
        """Zeros at the end, and the bias behind them."""
        amounts = [0, 0, 0, 0, *(v for m in more for v in (0, m))]

        def pad(x: Value, y: Value) -> None:
            w.put("constantPad", x, outputs=[y], value=0.0, padAmounts=amounts)

        def add(x: Value, y: Value) -> None:
            bias = w.numbers(2, "the bias").reshape(-1, *[1] * len(more))
            w.put("addBroadcastable", x, bias, outputs=[y])

        return [(inner, pad), *([] if not w.has(2) else [(sizes, add)])]

    def _target(self, w: Writing, n: int) -> None:
        """The output's spatial size, where the node states it; the layer says with it where the
        output ends.
        """
        if not w.attr("output_shape", None):
            return
        shape = shape_of(w.out)
        if shape is None or shape_of(w.data) is None:
            # where the output begins depends on the input's size
            raise MappingError("a stated output size needs static shapes", "X203", FIX)
        target = [int(d) for d in shape[2:]]
        w.set(outputShape=[1, *target] if n == 1 else target)


SMALL = Guard("over one or two axes only", lambda w: w.rank(1, "the weights") in (3, 4))
LARGE = Guard("over three axes only", lambda w: w.rank(1, "the weights") == 5)
CONVOLVES, TRANSPOSES = Fixed("isDeconvolution", False), Fixed("isDeconvolution", True)
SHAPELESS = ignore("outputShape")

RULES = [
    op(
        "Conv",
        "convolution",
        CONVOLVES,
        SMALL,
        AsRank(4),
        Planes(),
        Filter("kernelChannels", transposed=False),
        BIAS,
        Flat(),
        SHAPELESS,
    ),
    op(
        "ConvTranspose",
        "convolution",
        TRANSPOSES,
        SMALL,
        AsRank(4),
        Transposed(Planes()),
        Filter("kernelChannels", transposed=True),
        LATE_BIAS,
    ),
    op(
        "Conv",
        "convolution3d",
        CONVOLVES,
        LARGE,
        AsRank(5),
        Volumes(),
        Filter("inputChannels", transposed=False, counts_all=True),
        BIAS,
        SHAPELESS,
    ),
    op(
        "ConvTranspose",
        "convolution3d",
        TRANSPOSES,
        LARGE,
        AsRank(5),
        Transposed(Volumes()),
        Filter("inputChannels", transposed=True, counts_all=True),
        LATE_BIAS,
    ),
]
