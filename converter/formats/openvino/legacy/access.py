"""What legacy layers have in common: attributes as text, types by precision, ports whose dimensions
decide.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.graph.build import Builder
from converter.graph.infer import constant, shape_of

FLOAT, INT64, INT32, BOOL = (
    ir.DataType.FLOAT,
    ir.DataType.INT64,
    ir.DataType.INT32,
    ir.DataType.BOOL,
)

# precision -> type of the data; half precision is exposed as float by the engine, Q78 as 16-bit
# integers
PRECISIONS = {
    "FP32": FLOAT, "FP16": ir.DataType.FLOAT16, "I64": INT64, "I32": INT32,
    "I16": ir.DataType.INT16, "U16": ir.DataType.UINT16, "I8": ir.DataType.INT8,
    "U8": ir.DataType.UINT8, "BOOL": BOOL, "Q78": ir.DataType.INT16, "MIXED": FLOAT,
    "UNSPECIFIED": FLOAT, "": FLOAT,
}  # fmt: skip

# on nodes that were one layer before: its type. What that layer cannot do is nothing that they do
LEGACY = "openvino.legacy"


def kind_before(value: ir.Value) -> str:
    """The type of the legacy layer that the node behind `value` was, or nothing."""
    producer = value.producer()
    return producer.metadata_props.get(LEGACY, "") if producer is not None else ""


def exposed(precision: str) -> ir.DataType:
    """The type in which a value of this precision is computed."""
    found = PRECISIONS.get(precision.upper())
    if found is None:
        raise MappingError(f"the precision {precision!r} is not known", "R110")
    return FLOAT if found == ir.DataType.FLOAT16 else found


def cast(b: Builder, value: ir.Value, dtype: ir.DataType) -> ir.Value:
    """`value` as `dtype`; a number becomes true when it is not 0."""
    if value.dtype == dtype or value.dtype is None:
        return value
    array = constant(value)
    if array is not None and value.producer() is None and dtype != BOOL:
        return b.const(array.astype(dtype.numpy()), str(value.name))
    return b.Cast(value, to=dtype)


def fit(b: Builder, value: ir.Value, wanted: Sequence[int]) -> ir.Value:
    """`value` in the declared shape; another number of elements is a contradiction in the file."""
    found = shape_of(value)
    if found == tuple(wanted):
        return value
    if found is not None and int(np.prod(found)) != int(np.prod(wanted)):
        raise MappingError(
            f"the output port declares {'x'.join(map(str, wanted))}, the layer gives "
            f"{'x'.join(map(str, found))}",
            "R105",
        )
    return b.Reshape(value, list(wanted))
