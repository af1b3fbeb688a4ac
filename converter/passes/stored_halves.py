"""Weights that a file stores in half precision but computes with in single precision.

Readers of formats without an operator between the two widen them, and record it in the model.
Writers store them as halves again, if no number changes:

before:  y = MatMul(x, w)        after:  y = MatMul(x, Cast(the halves of w, FLOAT))
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import builder_before
from converter.graph.lazy_tensor import Converted, LazyTensor
from converter.graph.names import Names
from converter.graph.walk import all_graphs
from converter.passes.pipeline import Context, Pass
from converter.passes.share_weights import share_weights

D = ir.DataType
NOTE = "netconv.weights"  # metadata of a model: the type of its weights in the file
HALVES = {"f16": D.FLOAT16, "bf16": D.BFLOAT16}
LEAST = 16  # elements of a weight, as opposed to a small constant


def note_halves(model: ir.Model, dtype: ir.DataType) -> None:
    """Record the type in which the source stores its weights."""
    model.metadata_props[NOTE] = next(name for name, d in HALVES.items() if d == dtype)


def stored_half(model: ir.Model) -> ir.DataType | None:
    """Return the half-precision type in which the source stores its weights; None if it does
    not.
    """
    if noted := HALVES.get(model.metadata_props.get(NOTE, "")):
        return noted
    found = {
        t.dtype
        for g in all_graphs(model.graph)
        for v in g.initializers.values()
        if (t := v.const_value) is not None and t.size >= LEAST
    }
    return next((d for d in HALVES.values() if d in found), None)


def is_weight(tensor: ir.TensorProtocol) -> bool:
    """Return whether a tensor is float32 and large enough to be stored as float16."""
    return tensor.dtype == D.FLOAT and tensor.size >= LEAST


def survives(tensor: ir.TensorProtocol, dtype: ir.DataType) -> bool:
    """Return whether every number can be represented in the narrower type."""
    array = tensor.numpy()
    with np.errstate(over="ignore"):
        narrow = array.astype(dtype.numpy())
    return bool(np.array_equal(array, narrow.astype(np.float32), equal_nan=True))


def stored_bytes(tensor: ir.TensorProtocol, half: ir.DataType | None) -> int:
    """Return the number of bytes of a tensor in a file that stores weights in this half-precision
    type; with None, in their own types.
    """
    if half is not None and is_weight(tensor) and survives(tensor, half):
        return 2 * tensor.size
    return tensor.length if isinstance(tensor, LazyTensor) else tensor.nbytes


def store_halves(model: ir.Model, dtype: ir.DataType | None) -> None:
    """Store weights that this half-precision type represents exactly in it, in place, and merge
    equal ones; with None, do nothing.
    """
    if dtype is None:
        return
    share_weights(model)
    names = Names(model)
    for graph in all_graphs(model.graph):
        for value in list(graph.initializers.values()):
            tensor = value.const_value
            if tensor is None or not is_weight(tensor) or value.is_graph_output():
                continue
            if not value.uses() or not survives(tensor, dtype):
                continue
            b = builder_before(next(iter(graph)), names)
            narrow = LazyTensor.of(tensor).derived(Converted(dtype), dtype)
            value.replace_all_uses_with(b.Cast(b.const(narrow, str(value.name)), to=D.FLOAT))
            del graph.initializers[str(value.name)]


def keep_stored_halves() -> Pass[Context]:
    """Return the pass that stores weights as FLOAT16 again if the source does."""

    def call(model: ir.Model, context: Context) -> None:
        if stored_half(context.network.ir) == D.FLOAT16:
            store_halves(model, D.FLOAT16)

    return Pass("store-halves", "Keep weights as FLOAT16 that the source stores so", call)
