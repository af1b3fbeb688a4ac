"""The canonical form of operators that ONNX lets one spell in several ways: implicit padding, Scan,
constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.onnx.op import Op, Results, Rows
from converter.graph import OPSET, REDUCTIONS
from converter.graph.build import Builder
from converter.graph.infer import known, shape_of
from converter.graph.lazy_tensor import lazy
from converter.graph.value import Value, known_sizes
from converter.graph.windows import overhang, same_pads, transposed_pads

ROWS = Rows()
# (builder of the body, number of the iteration, states) -> the next states and the stacked outputs
_POOLS = ("MaxPool", "AveragePool", "LpPool")
_WINDOWS = ("Conv", "ConvInteger", "QLinearConv", *_POOLS)
# the values that exporters write for "to the end"
_TO_THE_END = (np.iinfo(np.int32).max, np.iinfo(np.int64).max)


@ROWS.always(*_WINDOWS)
def window(op: Op, b: Builder) -> Results:
    """Replace auto_pad by pads. An axis of dynamic size with a stride is padded by an explicit Pad
    of computed size.
    """
    mode = op.take("auto_pad", "NOTSET") or "NOTSET"
    kernel = _kernel(op)
    if mode != "NOTSET" and kernel is None:
        op.attrs["auto_pad"] = mode  # unchanged: the pads are computed at run time
    if mode == "NOTSET" or kernel is None:
        return None
    spatial = len(kernel)
    if mode == "VALID":
        op.attrs["pads"] = [0] * (2 * spatial)
        return None
    ones = [1] * spatial
    strides, dilations = op.attr("strides") or ones, op.attr("dilations") or ones
    sizes = _sizes(op, spatial)
    # with a stride of 1 the size does not matter
    if any(size is None and s != 1 for size, s in zip(sizes, strides, strict=True)):
        return _pad_at_run_time(op, b, mode, kernel, list(strides), list(dilations))
    if op.kind in _POOLS and any(d != 1 for d in dilations):
        op.notes.append(
            f"{op.kind} with auto_pad={mode} and dilations is padded as ONNX "
            "specifies; onnxruntime ignores the dilations and may give a "
            "smaller result"
        )
    upper = mode == "SAME_UPPER"
    if op.kind in ("AveragePool", "LpPool") and upper and _leaves_two(sizes, kernel, strides):
        op.notes.append(
            f"{op.kind} with auto_pad={mode} and a kernel smaller than the "
            "stride begins at the first element, as ONNX specifies; "
            "onnxruntime begins after it"
        )
    op.attrs["pads"] = same_pads(sizes, kernel, strides, dilations, upper=upper)
    return None


def _leaves_two(sizes: Sequence[int | None], kernel: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether the windows along some axis leave two or more elements unused. onnxruntime
    skips half of them before the first window of an average.
    """
    axes = zip(sizes, kernel, strides, strict=True)
    return any(n is not None and overhang(n, k, s, 1, -(-n // s)) < -1 for n, k, s in axes)


def explicit(
    b: Builder, kind: str, inputs: Sequence[ir.Value | None], attributes: dict[str, Any]
) -> Value:
    """Return an operator of one result with explicit padding; its attributes are copied."""
    op = Op(kind, "", OPSET, list(inputs), attributes, [""])
    replaced = ROWS.apply(op, b)
    return replaced if isinstance(replaced, Value) else b.op(kind, *op.inputs, **op.attrs)


def _kernel(op: Op) -> list[int] | None:
    if op.attr("kernel_shape"):
        return list(op.attrs["kernel_shape"])
    if op.kind in ("MaxPool", "AveragePool", "LpPool"):
        return None
    sizes = (known_sizes(op.input(3 if op.kind == "QLinearConv" else 1)) or [])[2:]
    kernel = [d for d in sizes if d is not None]
    return kernel if sizes and kernel == sizes else None


def _sizes(op: Op, spatial: int) -> list[int | None]:
    sizes = known_sizes(op.x)
    return [None] * spatial if sizes is None else sizes[2:]


def _pad_at_run_time(
    op: Op, b: Builder, mode: str, kernel: list[int], strides: list[int], dilations: list[int]
) -> Results:
    if op.kind not in ("Conv", "MaxPool", "AveragePool"):
        raise MappingError(f"{op.kind} with auto_pad={mode} needs a static spatial shape")
    x, spatial = op.x, len(kernel)
    size = b.Shape(x, start=2, end=2 + spatial)
    stride = np.array(strides, np.int64)
    reach = (np.array(kernel) - 1) * np.array(dilations) + 1
    steps = (size + (stride - 1)) / stride - 1
    total = b.Max(steps * stride + reach - size, 0)
    small = total / 2
    large = total - small
    pads = b.Concat(*((small, large) if mode == "SAME_UPPER" else (large, small)), axis=0)
    axes = list(range(2, 2 + spatial))
    op.attrs["pads"] = [0] * (2 * spatial)
    if op.kind == "MaxPool":
        if op.has_output(1):
            raise MappingError("MaxPool with indices and auto_pad needs a static spatial shape")
        dtype: Any = x.dtype.numpy() if x.dtype is not None else np.float32
        lowest = int(np.iinfo(dtype).min) if np.issubdtype(dtype, np.integer) else -np.inf
        op.set_input(0, b.Pad(x, pads, b.like(x, lowest), axes))
        return None
    if op.kind == "AveragePool" and not op.attr("count_include_pad", 0):
        ones = b.Expand(b.like(x, 1), b.Shape(x))
        share = b.op("AveragePool", b.Pad(ones, pads, None, axes), **op.attrs)
        return b.op("AveragePool", b.Pad(x, pads, None, axes), **op.attrs) / share
    op.set_input(0, b.Pad(x, pads, None, axes))
    return None


@ROWS.always("ConvTranspose")
def conv_transpose(op: Op, b: Builder) -> None:
    """Replace auto_pad and output_shape by pads and output_padding."""
    mode, wanted = op.take("auto_pad", "NOTSET") or "NOTSET", op.attr("output_shape")
    kernel = _kernel(op)
    if mode == "NOTSET" and not wanted:
        return
    if kernel is None or (wanted and None in _sizes(op, len(kernel))):
        # unchanged: the pads are computed at run time
        op.attrs |= {} if mode == "NOTSET" else {"auto_pad": mode}
        return
    given = op.attr("output_padding") or [0] * len(kernel)
    implicit = {**op.attrs, "auto_pad": mode}
    pads, extra = transposed_pads(implicit, _sizes(op, len(kernel)), kernel)
    if not wanted and any(e > g for e, g in zip(extra, given, strict=True)):
        op.notes.append(
            f"ConvTranspose with auto_pad={mode} and a kernel smaller than the "
            "stride gives stride times size, as ONNX specifies; onnxruntime "
            "gives less"
        )
    op.take("output_shape")
    op.attrs["pads"] = pads
    if any(extra):
        op.attrs["output_padding"] = extra


@ROWS.always("Slice")
def slice_to_the_end(op: Op, b: Builder) -> None:
    """Replace the largest integer as the end of a reversed Slice, which means the first element in
    onnxruntime. Other engines clamp it to the size, which gives an empty result.
    """
    ends, steps = (known(op.input(i)) for i in (2, 4))
    if ends is None or steps is None or ends.shape != steps.shape:
        return
    backwards = np.isin(ends, _TO_THE_END) & (steps < 0)
    if backwards.any():
        least = np.iinfo(ends.dtype).min
        op.set_input(2, b.const(np.where(backwards, least, ends).astype(ends.dtype), "ends"))


@ROWS.always("MeanVarianceNormalization")
def mean_variance_normalization(op: Op, b: Builder) -> None:
    """The default axes are written out: onnx's checker stumbles where they are not."""
    op.attrs.setdefault("axes", [0, 2, 3])


@ROWS.always("LSTM", "GRU", "RNN")
def recurrent(op: Op, b: Builder) -> Results:
    """Convert `layout` 1, batch-major, to layout 0 by Transposes."""
    if not op.take("layout", 0):
        return None
    states = (5, 6) if op.kind == "LSTM" else (5,)
    for i in (0, *states):
        if (value := op.input(i)) is not None:
            op.set_input(i, b.Transpose(value, perm=[1, 0, 2]))
    y, *last = b.ops(op.kind, *op.inputs, outputs=len(op.outputs), **op.attrs)
    return [b.Transpose(y, perm=[2, 0, 1, 3]), *(b.Transpose(v, perm=[1, 0, 2]) for v in last)]


@ROWS.always(*REDUCTIONS)
def no_axes(op: Op, b: Builder) -> None:
    """Omit an axes input that is known to be empty."""
    axes = op.input(1)
    if axes is not None and shape_of(axes) == (0,):
        op.set_input(1, None)


@ROWS.always("OptionalHasElement", "OptionalGetElement")
def optional(op: Op, b: Builder) -> Results:
    """Replace operators on optional values that are always present, or always absent."""
    x = op.input(0)
    if op.kind == "OptionalHasElement" and x is None:
        return b.const(np.array(False), "absent")
    if x is None or x.type is None or isinstance(x.type, ir.OptionalType):
        return None
    return x if op.kind == "OptionalGetElement" else b.const(True, "present")


def constant_tensor(op: Op, tensor: Any) -> ir.TensorProtocol:
    """Return the tensor of a Constant node, from any of its attributes. `tensor` converts a sparse
    one to a dense one.
    """
    if len(op.attrs) != 1:
        raise MappingError("Constant needs exactly one attribute", "R105")
    ((name, value),) = op.attrs.items()
    if name == "value":
        return value  # type: ignore[no-any-return]
    if name == "sparse_value":
        return tensor(value)  # type: ignore[no-any-return]
    if name in ("value_string", "value_strings"):
        texts = [value] if name == "value_string" else list(value)
        return ir.StringTensor(
            [t.encode() for t in texts],
            shape=ir.Shape([] if name == "value_string" else [len(texts)]),
        )
    dtypes = {
        "value_float": np.float32,
        "value_floats": np.float32,
        "value_int": np.int64,
        "value_ints": np.int64,
    }
    if name not in dtypes:
        raise MappingError(f"Constant has the unknown attribute {name!r}", "R111")
    return lazy(np.array(value, dtypes[name]))


def scan(op: Op, b: Builder, lift_body: Any, length: Value | None = None) -> list[Value]:
    """Scan -> Loop. `lift_body(proto, builder, inputs)` lifts a GraphProto with given values as
    inputs and returns its outputs.

    `length` is the number of iterations where not all elements are scanned.
    """
    if op.version < 9:
        return _scan_8(op, b, lift_body)
    body: onnx.GraphProto = op.attrs["body"]
    count = int(op.attrs["num_scan_inputs"])
    operands = [op.need(i) for i in range(len(op.inputs))]
    states, scanned = operands[:-count], operands[-count:]
    results = len(body.output) - len(states)
    fits = len(body.input) == len(operands) and 1 <= count <= len(operands)
    if results < 0 or not fits:
        raise MappingError("Scan and its body have different numbers of inputs or outputs", "R105")
    axes_in, back_in = (
        op.attr(f"scan_input_{what}") or [0] * count for what in ("axes", "directions")
    )
    axes_out, back_out = (
        op.attr(f"scan_output_{what}") or [0] * results for what in ("axes", "directions")
    )
    trips = length if length is not None else b.Squeeze(_extent(b, scanned[0], axes_in[0]))

    with b.loop(trips, *states) as turn:
        slices = []
        for value, axis, backward in zip(scanned, axes_in, back_in, strict=True):
            at = trips - 1 - turn.iteration if backward else turn.iteration
            slices.append(turn.Gather(value, at, axis=axis))
        outputs = list(turn.end(*lift_body(body, turn, [*turn.states, *slices])))
    for i in range(results):
        y = outputs[len(states) + i]
        if back_out[i]:
            y = b.Slice(y, [-1], [np.iinfo(np.int64).min], [0], [-1])
        if axes_out[i]:
            if y.shape is None:
                raise MappingError("Scan with scan_output_axes needs the rank of its outputs")
            rank = y.shape.rank()
            perm = list(range(1, rank))
            perm.insert(axes_out[i] % rank, 0)
            y = b.Transpose(y, perm=perm)
        outputs[len(states) + i] = y
    return outputs


def _extent(b: Builder, value: ir.Value, axis: int) -> Value:
    if axis < 0:
        if value.shape is None:
            raise MappingError("Scan over a negative axis needs the rank of its input")
        axis += value.shape.rank()
    return b.Shape(value, start=axis, end=axis + 1)


def _scan_8(op: Op, b: Builder, lift_body: Any) -> list[Value]:
    """Scan-8 runs for each sample of a batch (axis 0 of every operand), for its given length,
    padded with zeros; an outer Loop implements that.
    """
    body: onnx.GraphProto = op.attrs["body"]
    count = int(op.attrs["num_scan_inputs"])
    lengths = op.input(0)
    operands = [op.need(i) for i in range(1, len(op.inputs))]
    split = len(operands) - count
    if len(body.input) != len(operands) or not 0 <= split <= len(body.output) or count < 1:
        raise MappingError("Scan and its body have different numbers of inputs or outputs", "R105")
    directions = op.attr("directions") or [0] * count
    batch = b.Squeeze(b.Shape(operands[0], start=0, end=1))
    extent = b.Shape(operands[split], start=1, end=2)
    newer = {"body": body, "num_scan_inputs": count, "scan_input_directions": directions}

    with b.loop(batch) as outer:
        index = outer.iteration
        parts: list[ir.Value | None] = [outer.Gather(v, index, axis=0) for v in operands]
        inner = Op("Scan", "", 9, parts, newer, list(op.outputs))
        if lengths is None:
            return list(outer.end(*scan(inner, outer, lift_body)))
        own = outer.Gather(outer.Cast(lengths, to=ir.DataType.INT64), index, axis=0)
        results = scan(inner, outer, lift_body, own)
        missing = outer.Reshape(outer.Squeeze(extent) - own, [1])
        behind = outer.Concat([0], missing, axis=0)
        padded = (outer.Pad(y, behind, None, [0]) for y in results[split:])
        return list(outer.end(*results[:split], *padded))
