"""The window of a convolution or pool: kernel, strides, dilations, padding and rounding."""

from __future__ import annotations

import abc
from dataclasses import field, replace
from typing import Any

import onnx_ir as ir

from converter.errors import MappingError
from converter.graph.demands import of_length
from converter.graph.value import known_sizes
from converter.graph.windows import FIX, SAME, rounded_up, same_pads, window_fault
from converter.mapping.context import static
from converter.mapping.fields import Field
from converter.mapping.node import Node
from converter.record import record

Sizes = list[int]


@record
class Geometry:
    """A window over the spatial axes; each member has one number per axis.

    `strides`, `dilations`  empty if the layer leaves them out, which means ones
    `pads`                  those before all axes, then those after all axes
    `scheme`                SAME_UPPER or SAME_LOWER of ONNX, instead of pads
    `ceil`                  whether the number of windows is rounded up; None if the layer does not
                            specify it
    `counted`               padding that counts as data, as if added by a Pad before the layer
    `extra`                 output_padding of a transposed convolution
    `target`                the output sizes of a transposed convolution, from which its padding
                            follows
    `sizes`                 of the data, if the layer knows them better than the value's shape
    """

    kernel: Sizes
    strides: Sizes = field(default_factory=list)
    dilations: Sizes = field(default_factory=list)
    pads: Sizes = field(default_factory=list)
    scheme: str = ""
    ceil: bool | None = None
    counted: Sizes = field(default_factory=list)
    extra: Sizes = field(default_factory=list)
    target: Sizes = field(default_factory=list)
    sizes: Sizes = field(default_factory=list)

    @property
    def steps(self) -> tuple[Sizes, Sizes, Sizes]:
        """Return kernel, strides and dilations, with ones for those that are left out."""
        ones = [1] * len(self.kernel)
        return self.kernel, self.strides or ones, self.dilations or ones

    def demand_steps(self) -> None:
        """Refuse strides or dilations that are not one for each axis."""
        _, strides, dilations = self.steps
        of_length(len(self.kernel), strides=strides, dilations=dilations)

    @property
    def needs_sizes(self) -> bool:
        """Return whether the pads of the scheme depend on sizes; with strides of 1 they do not."""
        return any(s != 1 for s in self.strides)

    @staticmethod
    def of(node: Node, kernel: Sizes) -> Geometry:
        """Return the window of an operator, with ONNX's defaults for absent attributes.

        ceil_mode is not read, because only pools have it.
        """
        ones, none, a = [1] * len(kernel), [0] * (2 * len(kernel)), node.attrs
        scheme = a.get("auto_pad", "NOTSET")
        pads = a.get("pads") if scheme == "NOTSET" else None
        found = (kernel, a.get("strides") or ones, a.get("dilations") or ones, pads or none)
        sizes, strides, dilations, pads = ([int(n) for n in v] for v in found)
        return Geometry(sizes, strides, dilations, pads, scheme if scheme in SAME else "", False)


def spatial(node: Node, value: ir.Value) -> list[int | None]:
    """Return the sizes of the spatial axes of an image; None for those that are unknown."""
    sizes = known_sizes(value)
    if sizes is None:
        raise MappingError(f"the rank of {value.name} is unknown", "X203", FIX)
    return sizes[1:-1] if node.last else sizes[2:]


def is_same(window: Geometry, sizes: list[int | None]) -> bool:
    """Return whether the pads equal those of SAME_UPPER, as far as the sizes are known."""
    if None in sizes and window.needs_sizes:
        return False
    return window.pads == same_pads(sizes, *window.steps)


def weights_kernel(node: Node, index: int = 1, first: int = 2) -> Sizes:
    """Return the kernel size of weights whose spatial axes begin at axis `first`."""
    weights = node.input(index)
    if weights is None:
        raise MappingError("the weights are absent", "R105")
    return list(static(weights, "the weights")[first:])


def global_window(node: Node) -> Sizes:
    """Return the size of a window that covers the whole image."""
    image = node.input(0)
    sizes = [] if image is None else spatial(node, image)
    if None in sizes:
        raise MappingError("a window needs the static sizes of its image", "X203", FIX)
    return [int(n or 0) for n in sizes]


class Window(Field, abc.ABC):
    """A window <-> that of ONNX.

    A format implements `read` and `write`, `kernel` if the weights do not have the kernel's size,
    and declares:

    `axes`              how many spatial axes its layers have
    `dilated`           whether windows may be dilated
    `schemes`           the padding schemes that it writes by name if sizes are unknown
    `rounds`            whether it rounds sizes up by itself; if not, the end is padded instead
    `counts`            whether averages can include padding, as the operator specifies; if not,
                        such padding is written as part of the data (`counted`)
    `has_kernel_shape`  whether the operator has this attribute
    `padding`           "any", "symmetric" (the same at both ends of an axis), or "none"
    """

    SPELLING = frozenset(
        {
            *("read", "write", "kernel", "names", "keys", "inputs", "padding"),
            *("axes", "dilated", "schemes", "rounds", "counts", "has_kernel_shape"),
        }
    )
    names: tuple[str, ...] = (
        *("kernel_shape", "strides", "dilations"),
        *("pads", "auto_pad", "ceil_mode"),
    )
    keys: tuple[str, ...] = ()
    axes: tuple[int, ...] = (1, 2, 3)
    dilated = has_kernel_shape = counts = True
    rounds = False
    schemes: tuple[str, ...] = ()
    padding = "any"

    @abc.abstractmethod
    def read(self, r: Any) -> Geometry:
        """Return the window as the layer specifies it."""

    @abc.abstractmethod
    def write(self, w: Any, window: Geometry) -> None:
        """Complete the layer with a window that respects the format's declarations."""

    def kernel(self, node: Node) -> Sizes:
        """Return the kernel size of an operator."""
        return weights_kernel(node)

    def lift(self, r: Any) -> None:
        self.set_attributes(r, self.resolve(r))

    def resolve(self, r: Any) -> Geometry:
        """Return the window of the layer, with explicit padding as far as sizes are known."""
        window = self.parse(r)
        if not window.scheme:
            return window
        sizes = spatial(r.node, r.data)
        if None in sizes and window.needs_sizes:
            return replace(window, pads=[], ceil=None)
        pads = same_pads(sizes, *window.steps, upper=window.scheme == SAME[0])
        return replace(window, pads=pads, scheme="")

    def parse(self, r: Any) -> Geometry:
        """Return the window of the layer; raise MappingError if it is invalid."""
        window = self.read(r)
        n, sizes = len(window.kernel), known_sizes(r.node.input(0))
        pads = window.pads or [0] * (2 * n)
        if fault := window_fault(*window.steps, pads):
            raise MappingError(fault, "R110")
        if sizes is not None and len(sizes) != n + 2:
            raise MappingError(
                f"a window of {n} axes does not fit data of {len(sizes)} spatial axes", "R105"
            )
        return replace(window, pads=pads)

    def set_attributes(self, r: Any, window: Geometry) -> None:
        """Set the attributes of the operator, in the order of `names`."""
        found: dict[str, Any] = {
            "kernel_shape": window.kernel if self.has_kernel_shape else None,
            "strides": window.strides,
            "dilations": window.dilations,
            "pads": None if self.padding == "none" else window.pads,
            "auto_pad": window.scheme,
            "output_padding": window.extra,
        }
        r.node.attrs |= {name: found[name] for name in self.names if found.get(name)}
        if window.ceil is not None:
            r.set(ceil_mode=int(window.ceil))

    def lower(self, w: Any) -> None:
        window = self.window_of(w)
        window = self.make_explicit(w, window)
        self.check_padding(w, window)
        self.write(w, window)

    def window_of(self, w: Any) -> Geometry:
        """Return the window of the operator; raise MappingError if the layer cannot express it."""
        window = Geometry.of(w.node, self.kernel(w.node))
        n, kind = len(window.kernel), w.layer.kind
        if n not in self.axes:
            raise MappingError(f"{kind} supports {_shown(self.axes)} spatial axes, got {n}")
        if not self.dilated and any(d != 1 for d in window.dilations):
            raise MappingError(f"{kind} does not support dilations, got {window.dilations}")
        if fault := window_fault(*window.steps, window.pads or [0] * (2 * n)):
            raise MappingError(fault, "R110")
        if "ceil_mode" not in self.names:
            return window
        return replace(window, ceil=bool(w.attr("ceil_mode", 0)))

    def check_padding(self, w: Any, window: Geometry) -> None:
        """Raise MappingError if the layer does not support the padding."""
        pads, n, kind = window.pads, len(window.kernel), w.layer.kind
        if min(pads) < 0:
            raise MappingError(f"{kind} does not support negative padding, got {pads}")
        if self.padding == "none" and any(pads):
            raise MappingError(f"{kind} does not support padding, got {pads}")
        if self.padding == "symmetric" and pads[:n] != pads[n:]:
            raise MappingError(f"{kind} needs equal padding at both ends, got {pads}")

    def make_explicit(self, w: Any, window: Geometry) -> Geometry:
        """Return the window with explicit padding if the layer needs it."""
        counted = w.node.op == "AveragePool" and bool(w.attr("count_include_pad", 0))
        sizes, steps = spatial(w.node, w.data), window.steps
        pads, ceil = window.pads, bool(window.ceil) and not self.rounds
        dynamic = None in sizes and window.needs_sizes and window.scheme in self.schemes
        if dynamic and not ceil and (self.counts or not counted):
            return window
        if window.scheme:
            pads = same_pads(sizes, *steps, upper=window.scheme == SAME[0])
        more = pads
        if ceil:
            more = rounded_up(pads, sizes, *steps, spatial(w.node, w.out))
        if counted and not self.counts:
            part = [min(p, m) for p, m in zip(pads, more, strict=True)]
            rest = [m - p for m, p in zip(more, part, strict=True)]
            return replace(window, pads=rest, scheme="", ceil=False, counted=part)
        if counted and more != pads:
            message = "ceil_mode=1 adds padding at the end, which must not count in the average"
            raise MappingError(message)
        return replace(window, pads=more, scheme="", ceil=bool(window.ceil) and self.rounds)


def _shown(axes: tuple[int, ...]) -> str:
    return str(axes[0]) if len(axes) == 1 else f"{axes[0]} to {axes[-1]}"
