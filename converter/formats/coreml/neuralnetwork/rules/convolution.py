"""Windows of two and three axes, and the convolutions over them.

Windows of one axis are written as [1, n].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.neuralnetwork.rules.context import LiftContext, LowerContext
from converter.formats.coreml.neuralnetwork.rules.fields import (
    AsRank,
    Weights,
    border_amounts,
    borders,
)
from converter.graph.windows import SAME, transposed_pads
from converter.mapping.concepts import transposed_window, window
from converter.mapping.concepts.window import Geometry, spatial, weights_kernel
from converter.mapping.fields import Field, Guard, RequireKey, ignore
from converter.mapping.rules import op
from converter.passes.constants import is_constant

Value = ir.Value
HEAVY_END = "BOTTOM_RIGHT_HEAVY"
HEAVY = {HEAVY_END: "SAME_UPPER", "TOP_LEFT_HEAVY": "SAME_LOWER"}


def two(r: LiftContext, key: str, default: int) -> list[int]:
    """Return a repeated [H, W] parameter, or its documented default."""
    values = r.attr(key, list)
    if values and len(values) != 2:
        raise MappingError(f"{values} must have two elements (height, width)", "R110")
    return values or [default, default]


class ImageWindow(window.Window):
    """A window over height and width; padding is `valid` with borders, or `same`."""

    keys: tuple[str, ...] = ("kernelSize", "stride", "dilationFactor", "valid", "same")
    axes: tuple[int, ...] = (1, 2)
    schemes: tuple[str, ...] = SAME

    def read(self, r: LiftContext) -> Geometry:
        return Geometry(
            two(r, "kernelSize", 3),
            two(r, "stride", 1),
            two(r, "dilationFactor", 1) if self.dilated else [],
            self.explicit(r),
            self.scheme(r),
        )

    def explicit(self, r: LiftContext) -> list[int]:
        """Return the padding of height and width."""
        return borders(r.attr("valid", dict, {}).get("paddingAmounts"))

    def scheme(self, r: LiftContext) -> str:
        """Convert automatic padding, which adds an odd element at the start unless the layer
        specifies otherwise.
        """
        found = r.layer.attrs.get("same")
        return "" if found is None else HEAVY.get(found.get("asymmetryMode"), "SAME_LOWER")

    def write(self, w: LowerContext, window: Geometry) -> None:
        n, modes = len(window.kernel), {v: k for k, v in HEAVY.items()}
        front = [1] * (2 - n)  # one axis is written as two
        w.set(kernelSize=[*front, *window.kernel], stride=[*front, *window.strides])
        if window.scheme:
            w.set(same={"asymmetryMode": modes[window.scheme]})
        else:
            sides = ([0] * (2 - n) + side for side in (window.pads[:n], window.pads[n:]))
            w.set(valid={"paddingAmounts": border_amounts(list(chain(*sides)))})
        if self.dilated:
            w.set(dilationFactor=[*front, *window.dilations])


AXES = ("Depth", "Height", "Width")
SIDES = tuple(f"customPadding{s}" for s in ("Front", "Top", "Left", "Back", "Bottom", "Right"))


class Window3D(ImageWindow):
    """A window over depth, height and width; `paddingType` is CUSTOM, VALID or SAME."""

    keys = (
        *(f"{name}{axis}" for name in ("kernel", "stride", "dilation") for axis in AXES),
        *SIDES,
        "paddingType",
    )
    axes = (3,)
    schemes: tuple[str, ...] = SAME[:1]

    def read(self, r: LiftContext) -> Geometry:
        names = ("kernel", "stride", "dilation") if self.dilated else ("kernel", "stride")
        numbers = [[r.attr(f"{name}{axis}", int, 1) or 1 for axis in AXES] for name in names]
        kernel, strides, dilations = (*numbers, [])[:3]
        return Geometry(kernel, strides, dilations, self.explicit(r), self.scheme(r))

    def explicit(self, r: LiftContext) -> list[int]:
        custom = r.attr("paddingType", str) == "CUSTOM"
        return [r.attr(side, int) if custom else 0 for side in SIDES]

    def scheme(self, r: LiftContext) -> str:
        return "SAME_UPPER" if r.attr("paddingType", str) == "SAME" else ""

    def write(self, w: LowerContext, window: Geometry) -> None:
        names = ("kernel", "stride", "dilation") if self.dilated else ("kernel", "stride")
        for name, sizes in zip(names, window.steps, strict=False):
            w.set(**{f"{name}{axis}": v for axis, v in zip(AXES, sizes, strict=True)})
        if window.scheme:
            w.set(paddingType="SAME")
        else:
            w.set(paddingType="CUSTOM", **dict(zip(SIDES, window.pads, strict=True)))


# operators around the layer --------------------------------------------------------------------

Stage = Callable[[Value, Value], object]


def append_stages(w: LowerContext, stages: Sequence[Stage]) -> None:
    """Append layers after the row's layer."""
    out = w.layer.outputs[0]
    values = [*(w.temporary("inner", out.dtype, None) for _ in stages), out]
    w.layer.outputs[0] = values[0]
    for emit, source, result in zip(stages, values, values[1:], strict=False):
        w.after_emit(partial(emit, source, result))


def flatten_input(w: LowerContext) -> None:
    """Reshape the data of a layer with one spatial axis, [N,C,L], to [N,C,1,L]."""
    w.layer.inputs[0] = w.emit("expandDims", w.data, axes=[2])


def flattened_result(w: LowerContext) -> Stage:
    """Reshape [N,C,1,L] to the result's [N,C,L]."""
    return lambda x, y: w.put("squeeze", x, outputs=[y], axes=[2])


class Conv1dAsConv2d(Field):
    """A window of one axis, written for two: [N,C,L] is reshaped to [N,C,1,L]."""

    def lower(self, w: LowerContext) -> None:
        if w.rank() == 3:
            flatten_input(w)
            append_stages(w, [flattened_result(w)])


# convolutions ------------------------------------------------------------------------------------


class GroupedFilter(Field):
    """Weights [outputs, inputs of a group, kernel...], of a transposed convolution [inputs, outputs
    of a group, kernel...]. `key` holds the number of inputs: of a group, or of all groups with
    `counts_all`.
    """

    names = ("group",)
    inputs = (1,)
    blobs = ("weights",)

    def __init__(self, key: str, transposed: bool, counts_all: bool = False) -> None:
        self.key, self.transposed, self.counts_all = key, transposed, counts_all
        self.keys = ("outputChannels", "nGroups", key)

    def lift(self, r: LiftContext) -> None:
        groups, out, into = (r.attr(k, int) for k in ("nGroups", "outputChannels", self.key))
        r.node.attrs["group"] = groups = groups or 1
        if len(r.layer.inputs) > 1:
            return
        kernel = r.node.attrs["kernel_shape"]
        shape = [out, into // groups if self.counts_all else into, *kernel]
        if self.transposed:
            shape = [into, out // groups, *kernel]
        r.set_input(1, r.weights("weights", shape, int(self.transposed)))

    def lower(self, w: LowerContext) -> None:
        weights, group = w.input(1), int(w.attr("group"))
        shape = w.static(1, "the weights")
        a, b = shape[:2] if self.transposed else shape[1::-1]
        into, out = a, b * group if self.transposed else b
        if self.counts_all and not self.transposed:
            into *= group
        w.set(**{"outputChannels": out, "nGroups": group, self.key: into})
        if is_constant(weights):
            w.layer.blobs["weights"] = (
                w.unquantized(weights)
                if self.counts_all
                else w.stored(weights, axis=int(self.transposed))
            )
        elif self.transposed or self.counts_all:
            kind = "transposed convolutions" if self.transposed else "convolutions of volumes"
            raise MappingError(f"computed weights are not supported by {kind}")
        else:
            if any(d > 1 for d in w.attr("dilations", None) or ()):
                raise MappingError("dilations with computed weights are not supported by Core ML")
            if len(shape) == 3:
                weights = w.emit("expandDims", weights, axes=[2])
            w.layer.inputs.append(weights)


BIAS = Weights("bias", 2, lambda r: [r.attr("outputChannels", int)], "hasBias")


def elements_after(w: LowerContext) -> list[int]:
    """Return how many elements of each axis follow the last window of a transpose."""
    kernel = weights_kernel(w.node)
    n, sizes = len(kernel), spatial(w.node, w.data)
    pads, extra = transposed_pads(w.node.attrs, sizes, kernel)
    return [max(0, e - p) for e, p in zip(extra, pads[n:], strict=True)]


class LateBias(Weights):
    """The bias of a transposed convolution whose result extends beyond its last window, as an Add
    after it.
    """

    def lower(self, w: LowerContext) -> None:
        if any(elements_after(w)):
            w.set(hasBias=False)
        else:
            super().lower(w)


LATE_BIAS = LateBias(BIAS.blob, BIAS.index, BIAS.shape, BIAS.flag)


class Transposed(transposed_window.TransposedWindow):
    """The window of a ConvTranspose.

    `outputShape` determines the end of the output; the explicit padding determines its start;
    `same` makes it size * stride. Output padding reduces the cropping at the end; elements beyond
    that only contain the bias, and are appended. A concrete class has the window of one or of two
    axes as its next base.
    """

    schemes: tuple[str, ...] = ()
    beyond = True

    def read(self, r: LiftContext) -> Geometry:
        found: Geometry = super().read(r)  # type: ignore[safe-super]
        target = r.attr("outputShape", list)
        found = replace(found, extra=[0] * len(found.kernel))
        return replace(found, target=target, scheme="") if target else found

    def write(self, w: LowerContext, window: Geometry) -> None:
        n, more = len(window.kernel), elements_after(w)
        window = replace(window, pads=[max(0, p) for p in window.pads])
        super().write(w, window)  # type: ignore[safe-super]
        stages: list[Stage] = []
        if n == 1:
            flatten_input(w)
            stages.append(flattened_result(w))
        if any(more):
            stages += self._padded(w, more)
        append_stages(w, stages)

    def _padded(self, w: LowerContext, more: list[int]) -> list[Stage]:
        """Append zeros at the end, followed by the bias."""
        amounts = [0, 0, 0, 0, *(v for m in more for v in (0, m))]

        def pad(x: Value, y: Value) -> None:
            w.put("constantPad", x, outputs=[y], value=0.0, padAmounts=amounts)

        def add(x: Value, y: Value) -> None:
            bias = w.numbers(2, "the bias").reshape(-1, *[1] * len(more))
            w.put("addBroadcastable", x, bias, outputs=[y])

        return [pad, add] if w.has(2) else [pad]


class TransposedPlanes(Transposed, ImageWindow):
    """The window of a ConvTranspose over height and width."""

    keys = (*ImageWindow.keys, "outputShape")


class TransposedVolumes(Transposed, Window3D):
    """The window of a ConvTranspose over depth, height and width."""

    keys = (*Window3D.keys, "outputShape")


SMALL = Guard(
    "only one or two spatial axes are supported by this layer",
    lambda w: w.rank(1, "the weights") in (3, 4),
)
LARGE = Guard(
    "only three spatial axes are supported by this layer", lambda w: w.rank(1, "the weights") == 5
)
CONVOLVES, TRANSPOSES = RequireKey("isDeconvolution", False), RequireKey("isDeconvolution", True)
SHAPELESS = ignore("outputShape")

RULES = [
    op(
        "Conv",
        "convolution",
        CONVOLVES,
        SMALL,
        AsRank(4),
        ImageWindow(),
        GroupedFilter("kernelChannels", transposed=False),
        BIAS,
        Conv1dAsConv2d(),
        SHAPELESS,
    ),
    op(
        "ConvTranspose",
        "convolution",
        TRANSPOSES,
        SMALL,
        AsRank(4),
        TransposedPlanes(),
        GroupedFilter("kernelChannels", transposed=True),
        LATE_BIAS,
    ),
    op(
        "Conv",
        "convolution3d",
        CONVOLVES,
        LARGE,
        AsRank(5),
        Window3D(),
        GroupedFilter("inputChannels", transposed=False, counts_all=True),
        BIAS,
        SHAPELESS,
    ),
    op(
        "ConvTranspose",
        "convolution3d",
        TRANSPOSES,
        LARGE,
        AsRank(5),
        TransposedVolumes(),
        GroupedFilter("inputChannels", transposed=True, counts_all=True),
        LATE_BIAS,
    ),
]
