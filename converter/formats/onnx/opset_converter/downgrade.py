"""Opset-21 operators in the form of other opsets, for `onnx+opset=N`, beyond the decompositions.

`form(node, version)` returns the form without changing the node, or raises MappingError with the
reason; legalization then looks for a decomposition. A change of types alone is not a reason:
widening (passes/promote_types.py) follows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.onnx.op import Op
from converter.formats.onnx.schema import schema_at
from converter.graph import REDUCTIONS
from converter.graph.build import Builder, attribute, attrs_of
from converter.graph.infer import constant, rank_of, shape_of

Form = Callable[[Op], None]
FORMS: dict[str, list[tuple[int, Form]]] = {}
# attributes that came with an opset, and the fixed behavior before
_ATTRIBUTES = (
    (14, "BatchNormalization", "training_mode", 0),
    (14, "LSTM GRU RNN", "layout", 0),
    (15, "Shape", "start", 0),
    (16, "ScatterElements ScatterND", "reduction", "none"),
    (18, "LpPool", "ceil_mode", 0),
    (18, "Resize", "antialias", 0),
    (18, "Resize", "keep_aspect_ratio_policy", "stretch"),
    (21, "QuantizeLinear DequantizeLinear", "block_size", 0),
)
# values of attributes that came with an opset
_VALUES = (
    (18, "ScatterElements ScatterND", "reduction", ("min", "max")),
    (19, "Pad", "mode", ("wrap",)),
    (19, "Resize", "coordinate_transformation_mode", ("half_pixel_symmetric",)),
)


def below(version: int, *kinds: str) -> Callable[[Form], Form]:
    """Register the form of operators before an opset version. It edits the Op; constants may be
    given as arrays.
    """

    def enter(form: Form) -> Form:
        for kind in kinds:
            FORMS.setdefault(kind, []).append((version, form))
        return form

    return enter


def form(node: ir.Node, version: int) -> Op:
    """Return the node as opset `version` spells it. Raise MappingError if it cannot."""
    outputs = [str(o.name) for o in node.outputs]
    op = Op(node.op_type, "", version, list(node.inputs), attrs_of(node), outputs)
    schema = schema_at(node.op_type, version)
    if schema is None or schema.deprecated:
        raise MappingError(f"{node.op_type} does not exist in opset {version}", "X206")
    for since, kinds, key, meant in _ATTRIBUTES:
        if version < since and op.kind in kinds.split() and op.take(key, meant) != meant:
            raise MappingError(f"{key} of {op.kind} needs opset {since}", "X206")
    for since, kinds, key, values in _VALUES:
        if version < since and op.kind in kinds.split() and (value := op.attr(key)) in values:
            raise MappingError(f"{key}={value} of {op.kind} needs opset {since}", "X206")
    for since, change in FORMS.get(node.op_type, ()):
        if version < since:
            change(op)
    while op.inputs and op.inputs[-1] is None:
        op.inputs.pop()
    if unknown := op.attrs.keys() - schema.attributes.keys():
        raise MappingError(
            f"{min(unknown)} of {node.op_type} does not exist in opset {version}", "X206"
        )
    if len(op.inputs) > schema.max_input or len(op.outputs) > schema.max_output:
        raise MappingError(f"{node.op_type} of opset {version} has fewer inputs or outputs", "X206")
    return op


def respell(node: ir.Node, op: Op, b: Builder) -> None:
    """Rewrite the node in the form that `form` returned."""
    before = attrs_of(node)
    for key in before.keys() - op.attrs.keys():
        del node.attributes[key]
    for key, value in op.attrs.items():
        if key not in before or (before[key] is not value and before[key] != value):
            node.attributes[key] = attribute(key, value)
    node.resize_inputs(len(op.inputs))
    for i, operand in enumerate(op.inputs):
        if operand is not node.inputs[i]:
            node.replace_input_with(i, b.value(operand))


def _ints(op: Op, index: int, what: str) -> list[int] | None:
    value = op.input(index)
    if value is None:
        return None
    array = value if isinstance(value, np.ndarray) else constant(value)
    if array is None:
        raise MappingError(
            f"{op.kind} needs constant {what} in this opset, where they are attributes", "X206"
        )
    return [int(n) for n in array.reshape(-1)]


@below(18, *(kind for kind in REDUCTIONS if kind != "ReduceSum"))
def axes_attribute(op: Op) -> None:
    """Write the axes of a reduction as an attribute. Raises MappingError for a reduction over no
    axis.
    """
    axes = _ints(op, 1, "axes")
    if not axes and op.attr("noop_with_empty_axes", 0):
        raise MappingError(f"{op.kind} over no axis is not supported", "X206")
    op.take("noop_with_empty_axes")
    op.inputs = op.inputs[:1]
    if axes:
        op.attrs["axes"] = axes


@below(18, "Split")
def split(op: Op) -> None:
    """List the sizes of unequal parts."""
    count = op.take("num_outputs")
    if count is None or op.input(1) is not None:
        return
    shape = op.x.shape
    size = shape[int(op.attr("axis", 0))] if shape is not None else None
    if not isinstance(size, int):
        raise MappingError("Split into equal parts needs a static size in this opset", "X206")
    part = -(-size // count)
    if size % count:
        op.set_input(1, np.array([part] * (count - 1) + [size - part * (count - 1)], np.int64))  # type: ignore[arg-type]


@below(18, "Pad")
def pad(op: Op) -> None:
    """Write a Pad of some axes as one of all axes."""
    axes = _ints(op, 3, "axes")
    if axes is None:
        return
    amounts, rank = _ints(op, 1, "pads"), rank_of(op.x)
    if amounts is None or rank is None:
        raise MappingError("Pad of some axes needs a known rank in this opset", "X206")
    every = np.zeros((2, rank), np.int64)
    every[:, axes] = np.array(amounts).reshape(2, -1)
    op.inputs = [*op.inputs[:1], every.reshape(-1), *op.inputs[2:3]]  # type: ignore[list-item]


@below(18, "Resize")
def resize(op: Op) -> None:
    """Write a Resize of some axes as one of all axes."""
    axes = op.take("axes")
    if axes is None:
        return
    shape = shape_of(op.x)
    if shape is None:
        raise MappingError("Resize of some axes needs a static shape in this opset", "X206")
    for index, neutral in ((2, np.ones(len(shape), np.float32)), (3, np.array(shape, np.int64))):
        value = op.input(index)
        if value is not None:
            array = constant(value)
            if array is None:
                raise MappingError(
                    "Resize of some axes needs constant scales or sizes in this opset", "X206"
                )
            neutral[list(axes)] = array.reshape(-1)
            op.set_input(index, neutral)  # type: ignore[arg-type]


@below(21, "GroupNormalization")
def group_normalization(op: Op) -> None:
    """Refuse a GroupNormalization, whose scale was one for each group before."""
    raise MappingError("GroupNormalization with one scale per channel needs opset 21", "X206")


@below(20, "GridSample")
def grid_sample(op: Op) -> None:
    """Rename the mode of GridSample; volumes are refused."""
    if rank_of(op.x) != 4:
        raise MappingError("GridSample of volumes needs opset 20", "X206")
    mode = op.attr("mode", "linear")
    op.attrs["mode"] = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)


@below(19, "Cast", "CastLike", "QuantizeLinear")
def saturate(op: Op) -> None:
    """Remove `saturate`, which only concerns float8, introduced with it."""
    op.take("saturate")


_SHORT = (ir.DataType.INT16, ir.DataType.UINT16)


@below(21, "QuantizeLinear", "DequantizeLinear")
def sixteen_bits(op: Op) -> None:
    """Refuse quantized values of 16 bits."""
    stored = op.input(2 if op.kind == "QuantizeLinear" else 0)
    if stored is not None and stored.dtype in _SHORT:
        raise MappingError(f"{op.kind} of 16 bits needs opset 21", "X206")


@below(21, "QLinearMatMul")
@below(19, "QuantizeLinear", "DequantizeLinear")
def half_scales(op: Op) -> None:
    """Refuse scales that are not float32."""
    if op.need(1).dtype != ir.DataType.FLOAT:
        raise MappingError(
            f"{op.kind} with scales other than float32 needs opset "
            f"{21 if op.kind == 'QLinearMatMul' else 19}",
            "X206",
        )


@below(21, "QuantizeLinear", "DequantizeLinear")
def block(op: Op) -> None:
    """Remove attributes that have no effect, and refuse output_dtype without a zero point."""
    if op.kind == "QuantizeLinear" and op.take("output_dtype", 0) and op.input(2) is None:
        raise MappingError("QuantizeLinear with output_dtype needs opset 21", "X206")


@below(19, "AveragePool")
@below(18, "LpPool")
def dilations(op: Op) -> None:
    """Remove dilations of 1, and refuse others."""
    if any(d != 1 for d in op.take("dilations", [])):
        raise MappingError(f"dilations of {op.kind} need a newer opset", "X206")


@below(20, "DFT")
def dft(op: Op) -> None:
    """Write the axis of a DFT as an attribute."""
    axis = _ints(op, 2, "axis")
    op.inputs = op.inputs[:2]
    op.attrs["axis"] = axis[0] if axis else -2


@below(14, "Reshape")
def reshape(op: Op) -> None:
    """Remove allowzero where the shape has no 0, and refuse it otherwise."""
    if op.take("allowzero", 0) and 0 in (_ints(op, 1, "shape") or []):
        raise MappingError("Reshape to a size of 0 needs opset 14", "X206")


@below(14, "BatchNormalization")
def batch_normalization(op: Op) -> None:
    """Refuse training mode."""
    if len(op.outputs) > 1:
        raise MappingError(
            "BatchNormalization in training mode is not supported in this opset", "X206"
        )


@below(15, "Shape")
def shape_range(op: Op) -> None:
    """Refuse a Shape with an end."""
    if op.take("end") is not None:
        raise MappingError("end of Shape needs opset 15", "X206")


@below(16, "RoiAlign")
def roi_align(op: Op) -> None:
    """Remove the older coordinate transformation, and refuse the newer one."""
    if op.take("coordinate_transformation_mode", "half_pixel") != "output_half_pixel":
        raise MappingError(
            "coordinate_transformation_mode=half_pixel of RoiAlign needs opset 16", "X206"
        )
