"""The nodes of a Zhouyi Compass IR file as they are in it: a document of graphs, graphs of layers,
layers of tensors, attributes and constants.

Everything that was read keeps its position, its spelling and its line: the order of `spelling` is
the order of the keys in the file, and a value that still equals its spelling is written back with
that spelling. This module does not know the semantics of layers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from converter.errors import Where
from converter.formats.zhouyi.values import DType, Value, dtype_of
from converter.graph.lazy_tensor import LazyTensor
from converter.io.mapped_file import MappedFile

Array = npt.NDArray[Any]
Shape = tuple[int, ...]

BASE_KEYS = (
    "layer_id",
    "layer_name",
    "layer_type",
    "layer_bottom",
    "layer_bottom_shape",
    "layer_bottom_type",
    "layer_top",
    "layer_top_shape",
    "layer_top_type",
)
MEMBERS = ("type", "offset", "size", "shape")


class Tensor(NamedTuple):
    """One entry of layer_bottom or layer_top. Shape and type are None only where the file leaves
    the whole key out.
    """

    name: str
    shape: Shape | None
    dtype: DType | None


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A constant group (`G_type`, `G_offset`, `G_size`, `G_shape`): its bytes in the .bin, or an
    array to be written there.

    `data` is an array, a tensor whose numbers may be computed while they are written, or None when
    only the text was parsed. `offset` is None for constants that are not in a .bin yet. `packed`
    means 4-bit elements, two to a byte, low half first; `data` are the bytes then.
    """

    dtype: DType
    shape: Shape
    data: Array | LazyTensor | None = None
    offset: int | None = None
    size: int = 0
    packed: bool = False

    @classmethod
    def of(cls, array: Array | LazyTensor, dtype: DType | None = None) -> Constant:
        """Return a constant for `array`; `dtype` only if numpy's type does not imply it (int4 in
        int8).
        """
        own = array.dtype.numpy() if isinstance(array, LazyTensor) else array.dtype
        shape = array.shape.numpy() if isinstance(array, LazyTensor) else array.shape
        t = dtype or dtype_of(own)
        return cls(t, tuple(shape), array, size=array.size * t.numpy.itemsize)

    @property
    def array(self) -> Array:
        """Return the values, shaped; a view of the .bin where it was read from one (4-bit packed
        ones are unpacked into 8 bits).
        """
        if self.data is None:
            raise ValueError("the constant has no data: only the text was parsed")
        data = self.data.numpy() if isinstance(self.data, LazyTensor) else self.data
        return unpack(data, self.dtype, self.shape) if self.packed else data


def unpack(data: npt.NDArray[np.uint8], dtype: DType, shape: Shape) -> Array:
    """Return 4-bit elements, two in a byte with the low half first, as int8 or uint8 of `shape`."""
    halves = np.stack([data & 15, data >> 4], axis=-1).reshape(-1)[: math.prod(shape)]
    if dtype.numpy == np.int8:
        halves = ((halves ^ 8).astype(np.int8) - 8).astype(np.int8)
    return halves.reshape(shape)


@dataclass(slots=True, eq=False)
class Layer:
    """One layer block. `attrs` holds every key that is neither one of the nine base keys nor a
    member of a constant group, in file order.

    `constant_lists` holds the groups whose members are lists (`layer_top_scale_offset=[0,128]`),
    one constant per entry. `id` None means: its position in the graph.
    """

    name: str
    type: str
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    attrs: dict[str, Value] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    constant_lists: dict[str, list[Constant]] = field(default_factory=dict)
    id: int | None = None
    spelling: dict[str, str] = field(default_factory=dict, repr=False)
    lines: dict[str, int] = field(default_factory=dict, repr=False)
    file: str = field(default="", repr=False)

    def where(self, key: str = "") -> Where:
        """Return the line of `key`, or of the block."""
        return Where(
            self.file,
            self.lines.get(key) or next(iter(self.lines.values()), 0),
            layer=self.name,
            kind=self.type,
        )


@dataclass(slots=True, eq=False)
class Graph:
    """A header block and its layers, in file order. `header` holds the parsed values; names of
    tensors in it are always text.
    """

    header: dict[str, Value] = field(default_factory=dict)
    layers: list[Layer] = field(default_factory=list)
    spelling: dict[str, str] = field(default_factory=dict, repr=False)
    lines: dict[str, int] = field(default_factory=dict, repr=False)
    file: str = field(default="", repr=False)

    @property
    def name(self) -> str:
        return str(self.header.get("model_name") or self.header.get("subgraph_name") or "")

    @property
    def input_tensors(self) -> list[str]:
        """Return the inputs that the header lists, else the outputs of the Input layers."""
        listed = self.header.get("input_tensors")
        return (
            [str(n) for n in listed]
            if isinstance(listed, list) and listed
            else [t.name for x in self.layers if x.type == "Input" for t in x.outputs]
        )

    @property
    def output_tensors(self) -> list[str]:
        """Return the outputs that the header lists, else the tensors that no layer reads (`[]`
        means in any order, section 4.2).
        """
        listed = self.header.get("output_tensors")
        if isinstance(listed, list) and listed:
            return [str(n) for n in listed]
        used = {t.name for x in self.layers for t in x.inputs}
        return [t.name for x in self.layers for t in x.outputs if t.name not in used]

    def where(self, key: str = "") -> Where:
        """Return the location of a key, or of the first one."""
        return Where(self.file, self.lines.get(key) or next(iter(self.lines.values()), 0))


@dataclass(slots=True, eq=False)
class Document(Graph):
    """A whole file: the main graph, its sub-graphs (bodies of If and Loop, same .bin), the .bin it
    was read from.
    """

    subgraphs: list[Graph] = field(default_factory=list)
    bin: MappedFile | None = None
    newline: str = "\n"
    path: Path | None = None

    @property
    def graphs(self) -> list[Graph]:
        return [self, *self.subgraphs]

    def constants(self) -> Iterator[tuple[Layer, str, int | None, Constant]]:
        """Yield (layer, group, index within a list or None, constant) of all graphs in the order of
        the text.
        """
        for graph in self.graphs:
            for layer in graph.layers:
                for group in constant_order(layer):
                    if group in layer.constants:
                        yield layer, group, None, layer.constants[group]
                    else:
                        yield from (
                            (layer, group, i, c) for i, c in enumerate(layer.constant_lists[group])
                        )


def constant_order(layer: Layer) -> list[str]:
    """Return the groups of a layer as they follow each other in the .bin: as read, else weights,
    biases, then the others as given.
    """
    groups = [*layer.constants, *layer.constant_lists]
    place = {k: i for i, k in enumerate(layer.spelling)}
    first = {"weights": -2, "biases": -1}
    # sorted is stable: keys that are not in the file follow, in the given order
    return sorted(
        groups,
        key=lambda g: (
            place.get(f"{g}_offset", len(place)),
            first.get(g, 0) if f"{g}_offset" not in place else 0,
        ),
    )


def build_document(
    name: str,
    layers: list[Layer],
    inputs: list[str],
    outputs: list[str],
    *,
    precision: str = "float32",
    compat_quantized_model: bool = False,
    subgraphs: list[Graph] | None = None,
) -> Document:
    """Return a new document with the header that the vendor's parser writes; `model_bin` follows
    from the name of the file written.
    """
    header: dict[str, Value] = {
        "model_name": name,
        "model_domain": "image_classification",
        "layer_number": len(layers),
        "precision": precision,
        "compat_quantized_model": compat_quantized_model,
        "model_bin": "./model.bin",
        "input_tensors": list(inputs),
        "output_tensors": list(outputs),
    }
    return Document(header, layers, subgraphs=subgraphs or [])


def build_subgraph(name: str, layers: list[Layer], inputs: list[str], outputs: list[str]) -> Graph:
    """Return a body of If or Loop; its header keys are the ones the vendor's tools look for."""
    return Graph(
        {
            "subgraph_name": name,
            "layer_number": len(layers),
            "input_tensors": list(inputs),
            "output_tensors": list(outputs),
        },
        layers,
    )


def move(constant: Constant, offset: int) -> Constant:
    """Return a constant at another offset in the .bin."""
    return replace(constant, offset=offset)
