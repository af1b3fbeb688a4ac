"""Matrix products."""

from __future__ import annotations

import onnx_ir as ir

from converter.formats.lite.weights import Dense
from converter.formats.nnapi.rules.context import LowerContext
from converter.formats.nnapi.rules.fields import FusedActivation
from converter.mapping.concepts.matmul import Transposes
from converter.mapping.fields import Guard, RequireAttr
from converter.mapping.rules import op


def is_dense(w: LowerContext) -> bool:
    """Return whether the weights are a matrix and the data have at least two axes; int32 and int64
    have no kernel.
    """
    whole = w.data.dtype in (ir.DataType.INT32, ir.DataType.INT64)
    return not whole and len(w.static(1)) == 2 <= len(w.static())


LAYER = Dense("input", "weights", "bias")
DENSE = Guard("the weights and the data must have two axes", is_dense)
MATRICES = Guard("vector operands are not supported", lambda w: min(w.rank(0), w.rank(1)) > 1)
STACKS = Guard("weights of a dense layer belong to FULLY_CONNECTED", lambda w: not is_dense(w))
RULES = [
    op("MatMul", "FULLY_CONNECTED", DENSE, LAYER, FusedActivation(), example_inputs="2,3 =3,4"),
    op(
        "Gemm",
        "FULLY_CONNECTED",
        Guard("vector operands are not supported", lambda w: len(w.static()) > 1),
        LAYER,
        RequireAttr("transA", 0),
        RequireAttr("alpha", 1.0),
        RequireAttr("beta", 1.0),
        FusedActivation(),
        lower_only=True,
    ),
    op(
        "MatMul",
        "BATCH_MATMUL",
        STACKS,
        MATRICES,
        Transposes("adjoint_a", "adjoint_b"),
        example_inputs="2,2,3 2,3,4",
    ),
]
