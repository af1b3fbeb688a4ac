"""A trial of writing: operators of TensorFlow Lite as rows of the mapping engine.

An operator is a layer whose attributes are its builtin options under their schema names; all its
tensors are inputs, constants too. Images are channels-last. Fields come from the engine and from
NNAPI's rows where the operators are the same; those below say what only this format has.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from tflite import TensorType

from converter.errors import MappingError
from converter.formats.nnapi.rules.context import activation_code, only_user
from converter.formats.nnapi.rules.fields import FusedActivation, Window, data, same_pads
from converter.formats.nnapi.rules.normalization import Beta, Neighbours
from converter.formats.nnapi.rules.pooling import SIZE, PoolWindow
from converter.formats.nnapi.rules.reduction import KEEP
from converter.formats.tflite.flatbuffer import (
    LiteGraph,
    LiteModel,
    LiteOperator,
    LiteTensor,
    write_flat,
)
from converter.graph.infer import constant, known, set_type
from converter.io.files import Output
from converter.mapping.codecs import enum
from converter.mapping.context import Reading, Writing
from converter.mapping.fields import (
    Attr,
    AttrInput,
    Field,
    Fixed,
    Guard,
    InputType,
    Only,
    OutputType,
)
from converter.mapping.lifting import FormatMapping
from converter.mapping.lowering import Lowering
from converter.mapping.node import Layer
from converter.mapping.record import record
from converter.mapping.rules import Table, op, ops
from converter.passes.indices import never_negative

SAME, VALID = 0, 1
OHWI = (0, 2, 3, 1)
TYPES = {
    ir.DataType.FLOAT: TensorType.FLOAT32,
    ir.DataType.INT32: TensorType.INT32,
    ir.DataType.INT64: TensorType.INT64,
}
INT64, INT32 = int(ir.DataType.INT64), int(ir.DataType.INT32)


# contexts ----------------------------------------------------------------------------------------


class LiteLowering(Lowering):
    """`fused`: nodes that an operator in front of them says with its fused activation."""

    def __init__(self, mapping: FormatMapping, version: int = 0) -> None:
        super().__init__(mapping, version)
        self.fused: list[ir.Node] = []

    def node(self, node: ir.Node) -> None:
        if node not in self.fused:
            super().node(node)


def int32(values: Any) -> Any:
    return np.asarray(values, np.int32)


def put(w: Writing, index: int, array: Any, name: str) -> None:
    """A constant tensor at an input of the operator that is written."""
    inputs = w.layer.inputs
    inputs.extend([None] * (index + 1 - len(inputs)))
    inputs[index] = w.const(array, name)


# fields ------------------------------------------------------------------------------------------


class Activation(FusedActivation):
    """The codes are those of NNAPI; 4 (TANH) and 5 (SIGN_BIT) have no kernels."""

    keys = ("fused_activation_function",)

    def lower(self, w: Writing) -> None:
        (key,), user = self.keys, only_user(w.node.outputs[0])
        w.layer.attrs[key] = 0 if user is None else activation_code(user)
        if user is not None and w.layer.attrs[key]:
            low = w.low
            assert isinstance(low, LiteLowering)
            w.layer.outputs = list(user.outputs)
            w.then(lambda: low.fused.append(user))


class Filter(Field):
    """Weights of a convolution: a constant in the order O H W I."""

    inputs = (1,)

    def lift(self, r: Reading) -> None:
        r.node.set_input(1, r.transpose(r.input(1), [int(i) for i in np.argsort(OHWI)]))

    def lower(self, w: Writing) -> None:
        put(w, 1, w.constant(1, "the filter").transpose(OHWI), "filter")


class Bias(Field):
    """Always written, since LiteRT refuses a convolution of two tensors; zeros are none."""

    inputs = (2,)

    def lift(self, r: Reading) -> None:
        array = constant(r.optional(2))
        if array is not None and not array.any():
            r.node.inputs[2] = None

    def lower(self, w: Writing) -> None:
        zeros = np.zeros(w.static(1)[0], np.float32)
        put(w, 2, zeros if w.optional(2) is None else w.constant(2, "the bias"), "bias")


class Groups(Field):
    """How often the depth of the filter goes into the channels of the image."""

    names = ("group",)

    def lift(self, r: Reading) -> None:
        channels, depth = r.static(r.input(0))[-1], r.static(r.input(1), "the filter")[-1]
        if not depth or channels % depth:
            raise MappingError(f"a filter of depth {depth} for {channels} channels", "R105")
        r.node.attrs["group"] = channels // depth


class SchemeWindow(Window):
    """Padding is a scheme; what is neither SAME nor VALID is a PAD in front."""

    keys = ("padding", "stride_h", "stride_w", "dilation_h_factor", "dilation_w_factor")
    strides, dilations, schemes = keys[1:3], keys[3:5], (SAME, VALID)

    def spatial_of(self, r: Reading) -> Sequence[int]:
        return r.static(data(r))[1:3]

    def spatial(self, w: Writing, value: ir.Value) -> Sequence[int]:
        return tuple(int(n) for n in value.shape or ())[1:3]

    def in_front(self, w: Writing, pads: list[int], is_scheme: bool) -> list[int]:
        """How much of the padding a PAD makes."""
        return [0, 0, 0, 0] if is_scheme else pads

    def lower(self, w: Writing) -> None:
        kernel = self.kernel(w)
        strides, dilations = ([int(n) for n in w.attr(a, None) or (1, 1)] for a in self.names[:2])
        sizes, pads = list(self.spatial(w, w.input(0))), self.pads(w, kernel, dilations)

        def scheme() -> int | None:
            windows = zip(sizes, kernel, strides, dilations, strict=True)
            same = [same_pads(*window) for window in windows]
            if not any(pads):
                return VALID
            return SAME if same == [*zip(pads[:2], pads[2:], strict=True)] else None

        front = self.in_front(w, pads, scheme() is not None)
        if any(front):
            padded(w, front)
            sizes = [n + a + b for n, a, b in zip(sizes, front[:2], front[2:], strict=True)]
            pads = [p - f for p, f in zip(pads, front, strict=True)]
        found = scheme()
        if found is None:
            raise MappingError(f"padding {pads} that does not count is neither SAME nor VALID")
        w.layer.attrs |= dict(zip(self.keys, (found, *strides, *dilations), strict=False))


def padded(w: Writing, pads: Sequence[int]) -> None:
    """A PAD in front of the image; it has no negative amounts."""
    if min(pads) < 0:
        raise MappingError(f"the padding {list(pads)} is negative")
    top, left, bottom, right = pads
    n, height, width, channels = w.static()
    shape = [n, height + top + bottom, width + left + right, channels]
    amounts = int32([[0, 0], [top, bottom], [left, right], [0, 0]])
    w.layer.inputs[0] = w.emit("PAD", w.input(0), amounts, shape=shape)


class SchemePoolWindow(SchemeWindow, PoolWindow):
    """Padding does not count in an average; what shall is a PAD in front."""

    names = (*Window.names, "count_include_pad")
    folds = (
        True  # whether no padding counts, and which way a whole quotient is rounded, is not kept
    )
    keys = (*SchemeWindow.keys[:3], *SIZE)

    def in_front(self, w: Writing, pads: list[int], is_scheme: bool) -> list[int]:
        counted = w.attr("count_include_pad", 0)
        return [int(n) for n in w.attr("pads", None) or (0,) * 4] if counted else [0, 0, 0, 0]

    def lower(self, w: Writing) -> None:
        if any(d != 1 for d in w.attr("dilations", None) or ()):
            raise MappingError("a pool has no dilation")
        super().lower(w)
        w.layer.attrs |= dict(zip(SIZE, self.kernel(w), strict=True))


class LiteBeta(Beta):
    """`beta` <-> a factor in front of the operator, which is written as an operator of its own."""

    def lower(self, w: Writing) -> None:
        w.layer.attrs["beta"] = 1.0


class LastAxis(Field):
    """The last axis; another one changes places with it by a TRANSPOSE in front and one behind."""

    names = ("axis",)

    def lift(self, r: Reading) -> None:
        r.node.attrs["axis"] = -1

    def lower(self, w: Writing) -> None:
        shape = w.static()
        order, axis = list(range(len(shape))), w.attr("axis") % len(shape)
        if axis == order[-1]:
            return
        order[axis], order[-1] = order[-1], order[axis]
        turned = [shape[i] for i in order]
        w.layer.inputs[0] = w.emit("TRANSPOSE", w.input(0), int32(order), shape=turned)
        result = w.temporary("turned", w.node.outputs[0].dtype, turned)
        w.layer.outputs = [result]
        w.then(lambda: w.put("TRANSPOSE", result, int32(order)))


class Shape(Field):
    """The shape is an input, or an option where there is none; 0 is a size of 0."""

    names = ("allowzero",)
    inputs = (1,)
    keys = ("new_shape",)

    def lift(self, r: Reading) -> None:
        given = r.optional(1)
        shape = r.b.const(r.attr("new_shape", list, [])) if given is None else given
        r.node.set_input(1, r.cast(shape, ir.DataType.INT64))
        array = known(shape)
        if array is None or not array.all():
            r.node.attrs["allowzero"] = 1

    def lower(self, w: Writing) -> None:
        sizes = w.ints(1, "the shape")
        if not w.attr("allowzero", 0) and 0 in sizes:
            own = w.static()
            sizes = [n or own[i] for i, n in enumerate(sizes)]
        put(w, 1, int32(sizes), "shape")


class Axes(Field):
    """A tensor of axes; none of them means none, and all of them in ONNX."""

    names = ("noop_with_empty_axes",)
    inputs = (1,)

    def lift(self, r: Reading) -> None:
        rank = r.rank(data(r))
        axes = sorted({i % rank for i in r.ints(1, "the axes")})
        r.node.set_input(1, r.b.const(np.array(axes, np.int64), "axes"))
        if not axes:
            r.node.attrs["noop_with_empty_axes"] = 1

    def lower(self, w: Writing) -> None:
        axes = [] if w.optional(1) is None else w.ints(1, "the axes")
        if not axes and not w.attr("noop_with_empty_axes", 0):
            axes = list(range(len(w.static())))
        put(w, 1, int32(axes), "axes")


@record
class Indices(InputType):
    """Indices, which count from the front: of a constant they are made so."""

    positions: tuple[int, ...] = (1,)
    inputs = (1,)

    def lower(self, w: Writing) -> None:
        size = w.static()[w.attr("axis", 0)]
        array = w.constant(1, "the tensor of indices")
        put(w, 1, int32(np.where(array < 0, array + size, array)), "indices")


class KeptAxis(Field):
    """The axis goes; where it shall stay, a RESHAPE behind puts it back."""

    names = ("keepdims",)

    def lift(self, r: Reading) -> None:
        r.node.attrs["keepdims"] = 0

    def lower(self, w: Writing) -> None:
        if not w.attr("keepdims"):
            return
        kept, axis = list(w.node.outputs[0].shape or ()), w.attr("axis")
        shape = [n for i, n in enumerate(kept) if i != axis % len(kept)]
        result = w.temporary("without", w.node.outputs[0].dtype, shape)
        w.layer.outputs = [result]
        w.then(lambda: w.put("RESHAPE", result, int32(kept)))


class Paddings(Field):
    """Amounts in front and behind by axis, of zeros."""

    inputs = (1, 2, 3)

    def lift(self, r: Reading) -> None:
        amounts = r.known(r.input(1), "the padding").reshape(-1, 2).T.reshape(-1)
        r.node.set_input(1, r.b.const(amounts.astype(np.int64), "pads"))

    def lower(self, w: Writing) -> None:
        pads, value = w.ints(1, "the padding"), constant(w.optional(2))
        if min(pads) < 0 or w.optional(3) is not None:
            raise MappingError("amounts for all axes, none of them negative")
        if w.optional(2) is not None and (value is None or value.any()):
            raise MappingError("the padding is zeros")
        put(w, 1, int32(pads).reshape(2, -1).T, "paddings")


# rows --------------------------------------------------------------------------------------------

IMAGE = Guard("only two spatial dimensions are possible", lower_if=lambda w: w.rank() == 4)
FROM_FRONT = Guard(
    "negative indices count from the end, which is an error in TensorFlow Lite",
    lower_if=lambda w: known(w.input(1)) is not None or never_negative(w.input(1)),
)
OUTPUT_TYPE = enum({INT64: TensorType.INT64, INT32: TensorType.INT32})

RULES = [
    op("Add", "ADD", Activation()),
    op("Conv", "CONV_2D", IMAGE, Groups(), Filter(), Bias(), SchemeWindow(), Activation()),
    op("AveragePool", "AVERAGE_POOL_2D", IMAGE, SchemePoolWindow(), Activation()),
    op("Softmax", "SOFTMAX", LastAxis(), LiteBeta()),
    op("Reshape", "RESHAPE", Shape()),
    op("Transpose", "TRANSPOSE", AttrInput("perm", 1, list, np.int32)),
    op("ReduceMean", "MEAN", Axes(), KEEP, given="2,3,4 =[0,2]"),
    op(
        "Gather",
        "GATHER",
        FROM_FRONT,
        Fixed("batch_dims", 0, absent=True),
        Attr("axis", kind=int, default=0),
        Indices(),
    ),
    op("LeakyRelu", "LEAKY_RELU", Attr("alpha", kind=float, default=0.0)),
    *ops("Ceil=CEIL Relu=RELU"),
    op("Gelu", "GELU", Attr("approximate", kind=enum({"none": False, "tanh": True}))),
    op(
        "ArgMax",
        "ARG_MAX",
        AttrInput("axis", 1, int, np.int32),
        KeptAxis(),
        Only("select_last_index", 0),
        OutputType("output_type", OUTPUT_TYPE),
    ),
    op(
        "LRN",
        "LOCAL_RESPONSE_NORMALIZATION",
        IMAGE,
        Neighbours(),
        *(Attr(a, kind=float) for a in ("bias", "beta")),
    ),
    op("Pad", "PAD", Only("mode", "constant"), Paddings()),
]
MAPPING = FormatMapping(Table(RULES), channels_last=True, lowering=LiteLowering)


# files -------------------------------------------------------------------------------------------

# the table of an operator's options, which the schema does not say
OPTIONS = {
    "ADD": "AddOptions",
    "CONV_2D": "Conv2DOptions",
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "SOFTMAX": "SoftmaxOptions",
    "RESHAPE": "ReshapeOptions",
    "MEAN": "ReducerOptions",
    "GATHER": "GatherOptions",
    "LEAKY_RELU": "LeakyReluOptions",
    "GELU": "GeluOptions",
    "ARG_MAX": "ArgMaxOptions",
    "LOCAL_RESPONSE_NORMALIZATION": "LocalResponseNormalizationOptions",
}


def save(layers: Sequence[Layer], outputs: Sequence[ir.Value], path: Path) -> list[str]:
    """Writes layers into a file; returns the names of its inputs."""
    graph = LiteGraph()
    tensors: dict[ir.Value, int] = {}

    def tensor(value: ir.Value) -> int:
        if value not in tensors:
            tensors[value] = len(graph.tensors)
            assert value.dtype is not None and value.shape is not None
            array = None if value.const_value is None else np.ascontiguousarray(value.const_value)
            shape = [int(n) for n in value.shape]
            graph.tensors.append(LiteTensor(str(value.name), TYPES[value.dtype], shape, array))
        return tensors[value]

    made = {v for layer in layers for v in layer.outputs}
    given = [v for layer in layers for v in layer.inputs if v is not None]
    free = dict.fromkeys(v for v in given if v not in made and v.const_value is None)
    graph.inputs = [tensor(v) for v in free]
    for layer in layers:
        options = layer.attrs
        inputs = [-1 if v is None else tensor(v) for v in layer.inputs]
        kind = OPTIONS.get(layer.kind, "") if options else ""
        results = [tensor(v) for v in layer.outputs]
        graph.operators.append(LiteOperator(layer.kind, inputs, results, kind, options))
    graph.outputs = [tensor(v) for v in outputs]
    with Output(path) as out:
        write_flat(LiteModel([graph]), out)
    return [str(v.name) for v in free]


def constant_value(array: Any, name: str = "constant") -> ir.Value:
    """A constant operand of a layer that belongs to no graph."""
    tensor = ir.Tensor(np.asarray(array))
    value = ir.Value(name=name, const_value=tensor)
    set_type(value, tensor.dtype, list(tensor.shape.numpy()))
    return value
