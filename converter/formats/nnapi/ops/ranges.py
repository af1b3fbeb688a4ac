"""Which casts NNAPI has, and what is known of the numbers in a tensor before the network runs."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.infer import known
from converter.mapping.node import MappingError

CASTABLE = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT32, ir.DataType.UINT8)


def fits_a_byte(x: ir.Value) -> bool:
    """Cut off just before, below and above."""
    low, high = False, False
    for _ in range(2):
        producer = x.producer()
        if producer is None or producer.op_type not in ("Clip", "Max", "Min") or len(producer.inputs) < 2 or producer.inputs[0] is None:
            break
        limits = [known(v) for v in producer.inputs[1:]]
        first, last = limits[0], limits[-1]
        low |= producer.op_type != "Min" and first is not None and bool(np.all(first >= 0))
        high |= (producer.op_type == "Min" or len(limits) == 2) and last is not None and bool(np.all(last <= 255))
        x = producer.inputs[0]
    return low and high


def demand_a_byte(x: ir.Value, have: ir.DataType | None, want: ir.DataType | None) -> None:
    """A cast of whole numbers to a byte wraps around, NNAPI's stops at the largest."""
    if have == ir.DataType.INT32 and want == ir.DataType.UINT8 and not fits_a_byte(x):
        raise MappingError("numbers beyond 8 bits wrap around, a CAST stops at the largest")
