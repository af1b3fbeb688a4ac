"""Look-up tables: the result of an elementwise operator for each quantized value."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.quantization.gelu import table_of_steps
from converter.formats.zhouyi.quantization.quant_params import QuantParams
from converter.formats.zhouyi.quantization.requantize import constant_like, floor, real
from converter.graph.build import new_model, open_builder
from converter.graph.extensions import can_expand, expand
from converter.graph.infer import Array, constant
from converter.graph.value import Value, type_name
from converter.passes.fold import fold
from converter.passes.legalize import onnx_function, rewritten

# a table of more bits leaves fewer to the quotient of 31 bits by their sum
EXPONENTIAL_BITS = 15

# reading -----------------------------------------------------------------------------------------


def look_up(x: ir.Value, table: Array, bits: int, signed: bool) -> Value:
    """Return the value of a table of 2 ** n entries for integers of `bits` bits: the high bits
    select an entry, the low bits interpolate (rounded down).
    """
    size = table.size.bit_length() - 1
    if not table.size or 1 << size != table.size:
        message = f"a lookup table must have a power of two of entries, got {table.size}"
        raise MappingError(message, "R105")
    b, table = open_builder(), np.append(table, table[-1]).astype(np.float64)
    at = real(x, 1 << (bits - 1) if signed else 0)
    entries = constant_like(table, at, "lut")
    if bits <= size:
        return b.Gather(entries, b.Cast(at, to=ir.DataType.INT32))
    step = 1 << (bits - size)
    high = floor(at / step)
    rest = at - high * step
    index = b.Cast(high, to=ir.DataType.INT32)
    slope = b.Gather(constant_like(np.diff(table, append=table[-1]), at, "slope"), index)
    return b.Gather(entries, index) + floor(slope * rest / step)


# writing -----------------------------------------------------------------------------------------


def table_of(node: ir.Node, source: QuantParams, result: QuantParams) -> Array:
    """Return the quantized results for all 256 quantized values of 8 bits, the least first."""
    _demand_8_bits(source, "a lookup table")
    steps = table_of_steps(node)
    return result.quantize(_computed(node, source.every) if steps is None else steps)


def exponentials(source: QuantParams) -> Array:
    """Return exp of the distance below the largest number, for all distances of quantized values;
    the last is the largest number of bits.
    """
    _demand_8_bits(source, "a table of exponentials")
    below = (np.arange(256) - 255) * np.float64(source.scale)
    return np.asarray(np.rint(np.exp(below) * (2**EXPONENTIAL_BITS - 1)), np.uint32)


def _demand_8_bits(source: QuantParams, what: str) -> None:
    if source.dtype.bitwidth != 8:
        message = f"{what} for {type_name(source.dtype)} is not supported; use 8 bits"
        raise MappingError(message)


def _computed(node: ir.Node, numbers: Array) -> Array:
    """Return the operator's results, by onnx's reference implementation. Raise MappingError if it
    cannot compute them.
    """
    model, b = new_model("table")
    operands: list[object] = [np.asarray(numbers, np.float32)]
    for value in node.inputs[1:]:
        array = constant(value)
        if value is not None and (array is None or array.size != 1):
            raise MappingError("an operand with a value per element has no lookup table")
        operands.append(None if array is None else array.reshape(()))
    inputs, attributes = [b.value(v) for v in operands], list(node.attributes.values())
    made = ir.Node(node.domain, node.op_type, inputs, attributes, num_outputs=1)
    y = made.outputs[0]
    y.name = b.names.fresh("y")
    y.type, y.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(list(numbers.shape))
    b.insert(made)
    b.output(y)
    while pending := [n for n in model.graph if can_expand(n)]:
        for extension in pending:
            expand(extension, b.names)
    fold(model)
    if constant(model.graph.outputs[0]) is None:  # Gelu only has a reference function
        for node_left in list(model.graph):
            rewritten(node_left, b.names, onnx_function)
        fold(model)
    found = constant(model.graph.outputs[0])
    if found is None:
        raise MappingError(f"a table of {node.op_type} for all quantized values cannot be computed")
    most = float(np.finfo(np.float32).max)
    array = np.asarray(found, np.float32)
    return np.asarray(np.nan_to_num(array, nan=-most, posinf=most, neginf=-most))
