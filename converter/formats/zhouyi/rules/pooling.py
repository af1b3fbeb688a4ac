"""Pooling: windows over the end, whole images, indices of maxima."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.rules.context import LiftContext
from converter.formats.zhouyi.rules.fields import Window, method, words
from converter.formats.zhouyi.types import numpy_type
from converter.graph.demands import of_length
from converter.graph.infer import Array, shape_of
from converter.graph.sizes import arange, demand_small
from converter.graph.value import Value, with_operators
from converter.mapping.codecs import enum
from converter.mapping.concepts.window import global_window
from converter.mapping.context import LowerContext
from converter.mapping.fields import Attr, Field, Guard, RequireAttr, WriteKey, ignore
from converter.mapping.node import Layer, Node
from converter.mapping.rules import Rule, custom, op

# windows over the end ----------------------------------------------------------------------------


def overhang(layer: Layer, size: list[int], attrs: dict[str, list[int]]) -> list[int]:
    """Return how far the last windows reach over the padded data, for each spatial axis.

    The declared output decides, as in the vendor's reader; else `ceil_mode`.
    """
    declared = shape_of(layer.outputs[0]) if layer.outputs else None
    rank, result = len(size), []
    of_length(rank, **{k: attrs[k] for k in ("kernel_shape", "strides", "dilations")})
    of_length(2 * rank, pads=attrs["pads"])
    windows = zip(size, attrs["kernel_shape"], attrs["strides"], attrs["dilations"], strict=True)
    for i, (n, k, s, d) in enumerate(windows):
        room = n + attrs["pads"][i] + attrs["pads"][i + rank] - (k - 1) * d - 1
        if room < 0 or s < 1:
            message = f"a window of {(k - 1) * d + 1} does not fit {n} elements with their padding"
            raise MappingError(message, "R105")
        down, up = room // s + 1, -(-room // s) + 1
        count = up if layer.attrs.get("ceil_mode") else down
        if declared is not None and len(declared) == rank + 2:
            count = declared[i + 1]
        if count not in (down, up):
            raise MappingError(f"layer_top_shape declares {count} windows, but {down} fit", "R105")
        result.append(max(0, (count - 1) * s - room))
    return result


class Rounding(Field):
    """`ceil_mode`, which is read where the last windows extend beyond the end, and written as
    false.

    An average that counts its padding divides by the whole window there: a Pad before it instead.
    """

    names = ("ceil_mode",)
    keys = ("ceil_mode",)

    def lift(self, r: LiftContext) -> None:
        a, x = r.node.attrs, r.input(0)
        over = overhang(r.layer, list(r.static(x)[1:-1]), a)
        if not any(over):
            return
        if not a.get("count_include_pad"):
            a["ceil_mode"] = 1
            return
        p, rank = a["pads"], len(over)
        ends = [pad + o for pad, o in zip(p[rank:], over, strict=True)]
        r.data = r.b.Pad(x, [0, *p[:rank], 0, 0, *ends, 0])
        a["pads"] = [0] * (2 * rank)

    def lower(self, w: LowerContext) -> None:
        w.set(ceil_mode=False)


FLOOR = (WriteKey("ceil_mode", False),)
PADDING = Attr("count_include_pad", kind=bool, default=1)
UNCOUNTED = ignore("count_include_pad")
ONE_OUTPUT = Guard("the indices output needs another layer", lambda w: len(w.node.outputs) == 1)


def pooling(kind: str, rank: int) -> list[Rule]:
    """Return the rows of pooling with this many spatial axes, and of global pooling."""
    shape, both = ("1,4,8,8" if rank == 2 else "1,4,8,8,8"), (Window(rank), Rounding())
    average = op(
        "AveragePool", kind, method("AVG"), Window(rank), PADDING, Rounding(), example_inputs=shape
    )
    storage = RequireAttr("storage_order", 0)
    maximum = op(
        "MaxPool", kind, method("MAX"), ONE_OUTPUT, *both, storage, UNCOUNTED, example_inputs=shape
    )
    norms = (
        op(
            "LpPool",
            kind,
            method(f"L{p}"),
            *both,
            RequireAttr("p", p),
            UNCOUNTED,
            example_inputs=shape,
            lift_only=rank > 2,  # the vendor's executor pools volumes by AVG and MAX only
        )
        for p in (1, 2)
    )
    whole = (
        op(
            name,
            kind,
            method(word),
            GlobalWindow(rank),
            *FLOOR,
            *more,
            lower_only=True,
            example_inputs=shape,
        )
        for name, word, more in (
            ("GlobalAveragePool", "AVG", (WriteKey("count_include_pad", True),)),
            ("GlobalMaxPool", "MAX", ()),
        )
    )
    return [average, maximum, *norms, *whole]


class GlobalWindow(Window):
    """The window of a global pool, which is the whole image."""

    names = ()

    def kernel(self, node: Node) -> list[int]:
        return global_window(node)


# indices of maxima -------------------------------------------------------------------------------

ORDERS = enum(words("NHWC HWC HW NCHW"))


class FlatIndices(Field):
    """The second result: indices over N, C, H, W <-> over the axes that `flatten_dim` names."""

    names = ("storage_order",)
    keys = ("flatten_dim", "storage_order")

    def lift(self, r: LiftContext) -> None:
        order = r.attr("flatten_dim", ORDERS, "HWC")
        if r.attr("storage_order", int, 0):
            raise MappingError("storage_order=1 is not supported")
        shape, r.outputs = r.shape, 2
        r.after_emit(
            lambda results: [results[0], flatten_as(with_operators(results[1]), shape, order)]
        )

    def lower(self, w: LowerContext) -> None:
        if w.attr("storage_order"):
            raise MappingError("indices are only supported for plain 2-D pooling")
        w.set(flatten_dim="NCHW", storage_order=0)


def flatten_as(index: Value, shape: Sequence[int], order: str) -> Value:
    """Convert indices over N, C, H, W of data of the shape N, H, W, C to indices over the axes in
    `order`.
    """
    if order == "NCHW":
        return index
    _, h, w, c = shape
    at, plane = index % (h * w), index / (h * w)
    if order == "HW":
        return at
    within = at * c + plane % c
    return within if order == "HWC" else within + plane / c * (h * w * c)


def lift_unpool(r: LiftContext) -> ir.Value:
    """Scatter the data to their indices in zeros; channels-last."""
    b, x = r.b, r.input(0)
    index = b.Cast(r.input(1), to=ir.DataType.INT64)
    key = "output_shape" if "output_shape" in r.layer.attrs else "shape"
    shape = r.count_list(key, 4, list(r.declared() or ()))
    demand_small(*shape)
    if r.attr("storage_order", int, 0):
        raise MappingError("only data in row-major order are supported")
    order, (n, h, w, c) = r.attr("flatten_dim", ORDERS, "HWC"), shape
    flat = flatten_as(index, shape, "NHWC") if order == "NCHW" else index
    if order == "HW":
        flat = flat * c + arange(c)
    if order in ("HW", "HWC"):
        flat = flat + arange(n).reshape(n, 1, 1, 1) * (h * w * c)
    zeros = b.const(np.zeros(int(np.prod(shape)), numpy_type(x)), "zeros")
    flat, values = (b.Reshape(v, [-1]) for v in (flat, x))
    return b.Reshape(b.ScatterElements(zeros, flat, values, axis=0), shape)


MOST_BINS = 1024  # along an axis that has fewer elements: each bin is an operator


def lift_adaptive(r: LiftContext) -> ir.Value:
    """Pool over bins floor(i * size / n) ... ceil((i + 1) * size / n) of each axis."""
    x, sizes, b = r.input(0), r.count_list("output_size", 2), r.b
    reduce = r.attr("method", enum({"ReduceMean": "AVG", "ReduceMax": "MAX"}))
    for axis, n in ((1, sizes[0]), (2, sizes[1])):
        size = r.static(x, axes=4)[axis]
        if n > max(size, MOST_BINS):
            raise MappingError(f"output_size={sizes} has too many bins for {size} elements", "R110")
        bins = [([i * size // n], [-(-(i + 1) * size // n)]) for i in range(n)]
        parts = [b.op(reduce, b.Slice(x, low, high, [axis]), [axis]) for low, high in bins]
        x = b.Concat(*parts, axis=axis) if n > 1 else parts[0]
    return x


def random_borders(r: LiftContext, axis: int) -> Array:
    """Return the begin of each window of FractionalPool along an axis, and the end of the last:
    integers drawn by the Mersenne Twister with the layer's seed, as the vendor's executor draws
    them.

    `pseudo`: all from one number; else windows of two sizes, shuffled as by C++'s std::shuffle.
    """
    size, count = r.static(axes=4)[axis], r.declared_size(0, axis)
    if not 1 <= count <= size:
        raise MappingError(f"layer_top_shape declares {count} windows over {size} elements", "R105")
    seed, k, ratio = r.attr("seed", int), size // count, size / count
    if seed == 0:
        raise MappingError("seed=0 is not supported: it draws other random windows in each run")
    draw = np.random.RandomState(seed % 2**32)
    if r.attr("pseudo", bool):
        low, high = (float(v) for v in draw.randint(0, 2**32, 2, dtype=np.uint32))
        most = min((k + 2) / ratio - 1, (size + 1 - k) / ratio - (count - 1))
        u = (low + high * 2.0**32) / 2.0**64 * most
        inner = np.array([ratio * (i + u) for i in range(1, count)], np.float32)
        return np.array([0, *np.ceil(inner).astype(np.int64) - 1, size], np.int64)
    sizes = [k + 1] * (size % count) + [k] * (count - size % count)
    _shuffle(sizes, draw)
    return np.append(0, np.cumsum(sizes)).astype(np.int64)


def _shuffle(items: list[int], draw: np.random.RandomState) -> None:
    """Shuffle in place, with two swaps for each drawn number."""

    def below(count: int) -> int:
        scaling = (2**32 - 1) // count
        while True:
            number = int(draw.randint(0, 2**32, dtype=np.uint32))
            if number < count * scaling:
                return number // scaling

    def swap(i: int, j: int) -> None:
        items[i], items[j] = items[j], items[i]

    i = 1
    if len(items) % 2 == 0:
        swap(1, below(2))
        i = 2
    while i < len(items):
        x = below((i + 1) * (i + 2))
        swap(i, x // (i + 2))
        swap(i + 1, x % (i + 2))
        i += 2


def fractional_windows(r: LiftContext, x: Value, reduce: str) -> tuple[Value, list[Array], Array]:
    """Apply the operator `reduce` to each window of x[N, H, W, C]; return the result, the borders
    of rows and columns, and the areas [1, H, W, 1].
    """
    b, borders, lengths = r.b, [random_borders(r, axis) for axis in (1, 2)], []
    for axis, found in ((1, borders[0]), (2, borders[1])):
        ends = np.minimum(found[1:] + int(r.attr("overlap", bool)), found[-1])
        pairs = list(zip(found[:-1].tolist(), ends.tolist(), strict=True))
        parts = [b.op(reduce, b.Slice(x, [i], [j], [axis]), [axis]) for i, j in pairs]
        x = b.Concat(*parts, axis=axis) if len(parts) > 1 else with_operators(parts[0])
        lengths.append(ends - found[:-1])
    return x, borders, np.outer(*lengths)[None, :, :, None].astype(np.float64)


def lift_fractional(r: LiftContext) -> list[ir.Value]:
    """Return the pooled data, and the borders of rows and of columns."""
    reduce = r.attr("method", enum({"ReduceSum": "AVG", "ReduceMax": "MAX"}))
    y, borders, areas = fractional_windows(r, with_operators(r.input(0)), reduce)
    y = y / areas.astype(np.float32) if reduce == "ReduceSum" else y
    return r.typed([y, *(r.b.const(v) for v in borders)])


RULES = [
    *pooling("Pooling", 2),
    *pooling("Pooling3D", 3),
    op(
        "MaxPool",
        "MaxPoolingWithArgMax",
        Guard(
            "the indices output is not supported by this layer", lambda w: len(w.node.outputs) == 2
        ),
        Window(2),
        Rounding(),
        FlatIndices(),
        example_inputs="1,4,8,8 -> 2",
    ),
    custom("", "AdaptivePool", lift=lift_adaptive),
    custom("", "FractionalPool", lift=lift_fractional),
    custom("", "MaxUnpool UpsampleByIndex", lift=lift_unpool),
]
