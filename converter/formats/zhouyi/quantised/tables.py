"""Look-up tables: what an elementwise operator makes of each stored number."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.integer.grids import Grid
from converter.graph.build import new_model
from converter.graph.infer import Array, constant
from converter.mapping.node import MappingError
from converter.model import Model

# vendor's tables of exponentials have 20 bits
EXPONENTIAL_BITS = 20


def table(node: ir.Node, source: Grid, result: Grid) -> Array:
    """The stored results for all 256 stored numbers of an 8-bit grid, the least first."""
    if source.dtype.bitwidth != 8:
        raise MappingError(f"a look-up table for {source.dtype.name} has no counterpart, 8 bits are needed")
    info = np.iinfo(source.dtype.numpy())
    return result.quantise(_computed(node, source.real(np.arange(info.min, info.max + 1))))


def _computed(node: ir.Node, numbers: Array) -> Array:
    """The operator's results, from the engine that computes networks."""
    model, b = new_model("table")
    x = b.input("x", ir.DataType.FLOAT, numbers.shape)
    operands: list[object] = [x]
    for value in node.inputs[1:]:
        array = constant(value)
        if value is not None and (array is None or array.size != 1):
            raise MappingError("an operand of its own for each element has no look-up table")
        operands.append(None if array is None else array.reshape(()))
    made = ir.Node(node.domain, node.op_type, [b.value(v) for v in operands], list(node.attributes.values()), num_outputs=1)
    made.outputs[0].name = b.names.fresh("y")
    made.outputs[0].type, made.outputs[0].shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(list(numbers.shape))
    b.place(made)
    b.output(made.outputs[0])
    with np.errstate(all="ignore"):
        found = next(iter(Model(model, "table").run({"x": numbers}).values()))
    largest = float(np.finfo(np.float32).max)
    return np.asarray(np.nan_to_num(np.asarray(found, np.float32), nan=-largest, posinf=largest, neginf=-largest))


def exponentials(source: Grid) -> Array:
    """exp of the distance below the largest number, for all distances that stored numbers can have; the last is the largest number of bits."""
    if source.dtype.bitwidth != 8:
        raise MappingError(f"a table of exponentials for {source.dtype.name} has no counterpart, 8 bits are needed")
    below = (np.arange(256) - 255) * np.float64(source.scale)
    return np.asarray(np.rint(np.exp(below) * (2**EXPONENTIAL_BITS - 1)), np.uint32)
