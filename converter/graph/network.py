"""Network: a graph of ONNX operators, with the source file's description of its inputs and
outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, UsageError
from converter.graph.infer import Arrays
from converter.graph.names import public_name
from converter.record import comparable, record

if TYPE_CHECKING:
    from converter.graph.infer import Array


@comparable
class TensorInfo:
    """A graph input or output.

    `shape` has ints, names of symbolic dimensions, or None (unknown).
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | str | None, ...] | None

    def __str__(self) -> str:
        dims = (
            "?"
            if self.shape is None
            else ",".join("?" if d is None else str(d) for d in self.shape)
        )
        return f"{self.name} {self.dtype}[{dims}]"


@record
class Network:
    """A network: `ir` is the shared graph, `format` its source format, `notes` the warnings of
    reading it.

    Names, layouts and types of inputs and outputs are those of the source file. `interface` has
    properties of inputs and outputs beyond tensors (labels, images), by format, for writers that
    can store them. Common to all formats are `defaults`, the values of inputs that may be left out;
    `states`, which maps such inputs to the output with their next value; `shapes`, the default
    shapes of inputs with dynamic sizes; `maps`, the keys of outputs that are sequences of maps,
    whose numbers are columns in the graph; and `complex`, the names of complex inputs and outputs,
    which the graph represents as pairs along a last axis.
    """

    ir: ir.Model
    format: str
    notes: list[Diagnostic] = field(default_factory=list)
    interface: dict[str, Any] = field(default_factory=dict)
    # the file it was read from, for engines that execute the format itself, and which of its
    # functions this is, where one was chosen
    source: Path | None = None
    function: str = ""

    def copy(self) -> Network:
        """Return a copy whose graph, notes and interface can be changed."""
        notes, interface = [*self.notes], dict(self.interface)
        return Network(self.ir.clone(), self.format, notes, interface, self.source, self.function)

    @property
    def variables(self) -> dict[str, str]:
        """Return the states for targets with variables: inputs that may be left out, with the
        outputs that are their next values, by names.
        """
        return dict(self.interface.get("states", {}))

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        return tuple(_info(v) for v in self.ir.graph.inputs)

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        return tuple(_info(v) for v in self.ir.graph.outputs)

    def tidy(self) -> None:
        """Remove defaults, states and shapes of inputs and outputs that the graph no longer has,
        and defaults of other sizes.
        """
        inputs = {i.name: i.shape for i in self.inputs}
        outputs = {o.name for o in self.outputs}
        kept: dict[str, Callable[[str, Any], bool]] = {
            "defaults": lambda n, v: n in inputs and accepts_shape(inputs[n], np.shape(v)),
            "states": lambda n, v: n in inputs and v in outputs,
            "maps": lambda n, _: n in outputs,
            "shapes": lambda n, _: n in inputs,
        }
        for key, keep in kept.items():
            if key in self.interface:
                found = self.interface[key]
                self.interface[key] = {n: v for n, v in found.items() if keep(n, v)}

    def declared_shape(self, name: str, shape: Sequence[int]) -> list[int]:
        """Return the shape in the graph of an input, given the shape that its file declares: as a
        vector of channels, or as channels, height and width.
        """
        sizes = list(shape)
        if name not in self.interface.get("channel_inputs", ()) or len(sizes) not in (1, 3):
            return sizes
        return [1, 1, *sizes, *[1] * (3 - len(sizes))]

    def rename(self, names: Mapping[str, str]) -> None:
        """Rename inputs and outputs in everything that is known about them."""

        def new(name: Any) -> Any:
            return names.get(name, name) if isinstance(name, str) else name

        for key in ("defaults", "states", "shapes", "maps"):
            if key in self.interface:
                found = self.interface[key].items()
                self.interface[key] = {new(k): new(v) for k, v in found}
        for key in ("images", "channel_inputs"):
            if key in self.interface:
                self.interface[key] = type(self.interface[key])(map(new, self.interface[key]))

    def check_feeds(self, feeds: dict[str, Any]) -> Arrays:
        """Return the feeds as arrays of the declared types, by input name; images fed as height,
        width, channel are transposed.
        """
        infos = {i.name: i for i in self.inputs}
        optional = {k for k in self.interface.get("defaults", {}) if k in infos}
        unknown, missing = feeds.keys() - infos.keys(), infos.keys() - feeds.keys() - optional
        if unknown or missing:
            what = "; ".join(
                [f"input {n!r} is not known" for n in sorted(unknown)]
                + [f"input {n!r} is missing" for n in sorted(missing)]
            )
            raise UsageError(Diagnostic("N403", f"{what} (the model has: {', '.join(infos)})"))
        given = {**{k: self.interface["defaults"][k] for k in optional}, **feeds}
        tensors = self.tensor_inputs()
        return {
            name: self._feed(info, np.asarray(given[name])) if name in tensors else given[name]
            for name, info in infos.items()
        }

    def tensor_inputs(self) -> set[str]:
        """Return the names of the inputs that are neither sequences nor optional values."""
        return {
            public_name(v)
            for v in self.ir.graph.inputs
            if v.type is None or isinstance(v.type, ir.TensorType)
        }

    def _feed(self, info: TensorInfo, array: Array) -> Array:
        if self._is_picture(info, array):  # height, width, channel -> channel, height, width
            array = array.transpose(2, 0, 1)
        if array.ndim == 1 and info.name in self.interface.get(
            "channel_inputs", ()
        ):  # a vector of channels for [S,B,C,H,W]
            array = array.reshape(-1, 1, 1)
        if info.dtype.kind in "OUS":
            return array.astype(object)
        if array.dtype.kind == "c" and info.dtype.kind == "f":
            array = as_pairs(array)
        if array.dtype == np.bool_:  # kernels rely on true being stored as 1
            array = np.asarray(array.view(np.uint8) != 0)
        array = array.astype(info.dtype, copy=False)
        rank = None if info.shape is None else len(info.shape)
        if rank is not None and array.ndim < rank:  # accept (C,H,W) for a declared [1,1,C,H,W]
            array = array.reshape((1,) * (rank - array.ndim) + array.shape)
        return array

    def outside(self, results: Arrays) -> Arrays:
        """Return the results of a run for users: complex numbers if the file declares them."""
        named = self.interface.get("complex", ())
        return {n: as_complex(v) if n in named else v for n, v in results.items()}

    def _is_picture(self, info: TensorInfo, array: Array) -> bool:
        """Return whether `array` is in the order height, width, channel although [..,C,H,W] is
        declared: an image input, or bytes of such a shape.
        """
        if array.ndim != 3 or info.shape is None or len(info.shape) < 3:
            return False
        channels, height, width = info.shape[-3:]
        if info.name in self.interface.get("images", ()):
            return bool(array.shape[-1] == channels and array.shape[0] != channels)
        return bool(
            array.dtype == np.uint8
            and array.shape == (height, width, channels)
            and array.shape != (channels, height, width)
        )


def accepts_shape(declared: tuple[int | str | None, ...] | None, shape: tuple[int, ...]) -> bool:
    """Return whether an array of a shape can be fed to an input of the declared shape."""
    return declared is None or (
        len(declared) == len(shape)
        and all(not isinstance(d, int) or d == s for d, s in zip(declared, shape, strict=True))
    )


def as_pairs(array: Array) -> Array:
    """Return complex numbers as pairs of real and imaginary part along a last axis."""
    return np.stack([array.real, array.imag], axis=-1)


def as_complex(pairs: Array) -> Array:
    """Return pairs along the last axis as complex numbers."""
    wide = pairs.dtype == np.float64
    return (pairs[..., 0] + 1j * pairs[..., 1]).astype(np.complex128 if wide else np.complex64)


def _info(value: ir.Value) -> TensorInfo:
    dtype = (
        value.dtype.numpy()
        if value.dtype is not None and value.dtype != ir.DataType.STRING
        else np.dtype(object)
    )
    shape = (
        None
        if value.shape is None
        else tuple(d if isinstance(d, int) else d.value for d in value.shape)
    )
    return TensorInfo(
        public_name(value), np.dtype(np.float32) if value.dtype is None else dtype, shape
    )
