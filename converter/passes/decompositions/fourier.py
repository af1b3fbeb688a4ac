"""The discrete Fourier transform as two products with constant matrices."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, Value, attrs_of
from converter.graph.infer import constant, shape_of
from converter.graph.sizes import arange
from converter.graph.value import optional
from converter.passes.decompositions.activations import is_float, x_of
from converter.passes.decompositions.table import Table

LONGEST = 4096  # elements along the axis: the matrices have the square of it


def dft(node: ir.Node, b: Builder) -> Value | None:
    """Real and imaginary parts stand in the last axis (ONNX, DFT-20); the axis is turned in front
    of it. Shapes and axis must be known.
    """
    x, attrs = x_of(node), {"inverse": 0, "onesided": 0, **attrs_of(node)}
    shape, out = shape_of(x), shape_of(node.outputs[0])
    axis = (
        np.array(-2) if len(node.inputs) < 3 or node.inputs[2] is None else constant(node.inputs[2])
    )
    if (
        shape is None
        or out is None
        or axis is None
        or not is_float(x)
        or (attrs["inverse"] and attrs["onesided"])
    ):
        return None
    rank = len(shape)
    place = int(axis.reshape(())) % rank
    given = optional(node, 1)
    length = constant(given) if given is not None else np.array(shape[place])
    if length is None or place == rank - 1 or int(length.reshape(())) > LONGEST:
        return None
    n = int(length.reshape(()))
    real, imaginary = _parts(b, _fitted(b, x, place, n), shape[-1], place)
    angle = 2 * np.pi * np.outer(arange(n), arange(out[place])) / n
    dtype = x.dtype.numpy() if x.dtype else np.float32
    factor = 1 / n if attrs["inverse"] else 1.0
    cosine, sine = ((f(angle) * factor).astype(dtype) for f in (np.cos, np.sin))
    if attrs["inverse"]:
        sine = -sine
    re, im = real @ cosine, real @ -sine
    if imaginary is not None:
        re, im = (re + imaginary @ sine, im + imaginary @ cosine)
    both = b.Concat(*(b.Unsqueeze(v, [rank - 1]) for v in (re, im)), axis=rank - 1)
    back = [*range(place), rank - 2, *range(place, rank - 2), rank - 1]
    return b.Transpose(both, perm=back) if place < rank - 2 else both


def _fitted(b: Builder, x: Value, place: int, n: int) -> Value:
    """Cut or filled up with zeros to n along `place`."""
    shape = shape_of(x) or ()
    if shape[place] > n:
        return b.Slice(x, [0], [n], [place])
    pads = [0] * len(shape) + [n - d if i == place else 0 for i, d in enumerate(shape)]
    return b.Pad(x, pads) if shape[place] < n else x


def _parts(b: Builder, x: Value, parts: int, place: int) -> tuple[Value, Value | None]:
    """Real and imaginary part with `place` as the last axis; no imaginary part where the data are
    real.
    """
    rank = len(shape_of(x) or ())
    if place < rank - 2:
        x = b.Transpose(x, perm=[*range(place), *range(place + 1, rank - 1), place, rank - 1])
    pieces = [b.Squeeze(b.Slice(x, [i], [i + 1], [rank - 1]), [rank - 1]) for i in range(parts)]
    return pieces[0], pieces[1] if parts == 2 else None


TABLE: Table = {
    ("", "DFT"): dft,
}
