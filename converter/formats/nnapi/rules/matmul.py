"""Matrix products."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.nnapi.rules.context import Reading, Writing
from converter.formats.nnapi.rules.fields import FusedActivation, real_bias
from converter.formats.nnapi.rules.weights import bias, matrices, weights
from converter.graph.infer import shape_of
from converter.mapping.fields import Field, Guard, Only
from converter.mapping.fusing import only_user
from converter.mapping.rules import op


class Dense(Field):
    """Weights [units, input size] and a bias.

    An input of another rank is rows of that size.

    When writing, a bias that follows the product is taken in.
    """

    names = ("transB",)
    inputs = (1, 2)
    keys = ("weights", "bias")

    def lift(self, r: Reading) -> None:
        x = r.data
        _, size = r.shape("weights", axes=2)
        if x.shape is None or len(x.shape) != 2 or x.shape[1] != size:
            r.data = r.b.Reshape(x, [-1, size])
        r.set_input(1, r.permuted("weights", (1, 0)))
        r.behind(lambda y: y + real_bias(r, "weights"))

    def lower(self, w: Writing) -> None:
        dims, flipped = w.static(), bool(w.attr("transB", 0))
        units, size = w.static(1) if flipped else w.static(1)[::-1]
        x = w.ref(0)
        filter_ = weights(w, 1, (0, 1) if flipped else (1, 0), x)
        addend = self._addend(w, units)
        if len(dims) != 2:
            rows = int(np.prod(dims[:-1]))
            w.operands[0] = w.reshaped(x, [rows, size])
            w.behind([rows, units], w.reshape)
        w.set(weights=filter_, bias=bias(w, addend, units, x, filter_))

    def _addend(self, w: Writing, units: int) -> ir.Value | None:
        found = w.optional(2)
        if w.node.op == "MatMul" and (after := added(w.out, units)) is not None:
            w.layer.outputs[0], found = w.absorb(after[0]), after[1]
        shape = () if found is None else shape_of(found)
        if shape is None or int(np.prod(shape)) not in (1, units):
            raise MappingError("what is added is no bias")
        return found


def added(value: ir.Value, units: int) -> tuple[ir.Node, ir.Value] | None:
    """The Add of a bias that alone follows a matrix product."""
    node = only_user(value)
    if node is None or node.op_type != "Add" or node.domain:
        return None
    other = node.inputs[1] if node.inputs[0] is value else node.inputs[0]
    if other is None or shape_of(other) != (units,):
        return None
    producer = other.producer()
    ready = producer is None or producer.op_type == "DequantizeLinear"
    return (node, other) if ready else None


class Matrices(Field):
    """Stacks of matrices, each of which may be transposed."""

    inputs = (0, 1)
    keys = ("a", "b", "adjoint_a", "adjoint_b")

    def lift(self, r: Reading) -> None:
        for i, name in enumerate(("a", "b")):
            value = r.real(name)
            if r.attr(f"adjoint_{name}", bool, False):
                n = r.rank(value)
                value = r.b.Transpose(value, perm=[*range(n - 2), n - 1, n - 2])
            r.set_input(i, value)

    def lower(self, w: Writing) -> None:
        if min(len(w.static(i)) for i in (0, 1)) < 2:
            raise MappingError("a vector is no operand there")
        for i, name in enumerate(("a", "b")):
            operand, transposed = matrices(w, i)
            w.layer.attrs |= {name: operand, f"adjoint_{name}": transposed}


def is_dense(w: Writing) -> bool:
    whole = w.data.dtype in (ir.DataType.INT32, ir.DataType.INT64)
    return not whole and len(w.static(1)) == 2 <= len(w.static())


DENSE = Guard("weights have two axes, and what they are multiplied with", is_dense)
STACKS = Guard("weights are those of a dense layer", lambda w: not is_dense(w))
RULES = [
    op("MatMul", "FULLY_CONNECTED", DENSE, Dense(), FusedActivation(), given="2,3 =3,4"),
    op(
        "Gemm",
        "FULLY_CONNECTED",
        Guard("a vector is no operand there", lambda w: len(w.static()) > 1),
        Dense(),
        Only("transA", 0),
        Only("alpha", 1.0),
        Only("beta", 1.0),
        FusedActivation(),
        lower_only=True,
    ),
    op("MatMul", "BATCH_MATMUL", STACKS, Matrices(), given="2,2,3 2,3,4"),
]
