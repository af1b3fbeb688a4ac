"""Weights that are transposed in the graph are stored in their original order, and filters may be
extended by rows of zeros.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.lite.context import swapped
from converter.formats.nnapi.collector import Ref
from converter.formats.nnapi.rules.context import LowerContext
from converter.graph.build import attrs_of

_DENSE = ("Conv", "ConvTranspose", "MatMul", "Gemm")


def only_permutes_weights(node: ir.Node) -> bool:
    """Return whether a Transpose only reorders the axes of weights. NNAPI's own order may be the
    one before it.
    """
    uses = node.outputs[0].uses()
    return bool(uses) and all(
        (u.node.op_type in _DENSE and u.idx == 1)
        or (u.node.op_type == "MatMul" and swaps_last(node))
        for u in uses
    )


def swaps_last(node: ir.Node) -> bool:
    """Return whether a Transpose swaps the last two axes."""
    perm = [int(i) for i in attrs_of(node).get("perm", ())]
    return perm == swapped(len(perm))


def longer(w: LowerContext, filter_: Ref, rows: list[int]) -> Ref:
    """Return a constant filter O H W I with rows and columns of zeros appended."""
    found = w.about(filter_)
    if found.value is None:
        raise MappingError(
            "the filter of a transposed convolution with output padding must be constant"
        )
    amounts = [(0, 0), (0, rows[0]), (0, rows[1]), (0, 0)]
    array = np.pad(found.array(), amounts, constant_values=found.zero_point)
    return w.writer.add(replace(found, dimensions=list(array.shape), value=array))
