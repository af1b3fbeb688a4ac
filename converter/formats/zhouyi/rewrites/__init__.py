"""Nodes that the format lacks, written with those that it has: what the common decompositions
(`converter/passes/decompositions`) do not say, or say with more layers.

operands      what rewrites see of a node
elementwise   the larger and the smaller of two, quotients of integers
reducing      reductions that keep their axes, LayerNormalization by computed operands
windows       windows over one axis, explicit padding, matrix products of unequal ranks
patches       convolutions by computed weights, the places of the greatest elements
indexing      look-ups of one place, scattered extremes
detection     suppression of boxes by the format's own layer
"""

from __future__ import annotations

from converter.formats.zhouyi.rewrites import detection, elementwise, indexing, reducing, windows
from converter.graph import EXTENSION_DOMAIN
from converter.passes.equal_shapes import equal_shapes
from converter.passes.legalise import Rewrites
from converter.passes.split_directions import split_directions

_COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
_REDUCTIONS = ("L1", "L2", "Max", "Mean", "Min", "Prod", "Sum")

REWRITES: Rewrites = {
    **{("", op): equal_shapes for op in (*_COMPARISONS, "And", "Or", "Xor", "Where")},
    **{("", op): elementwise.extremes for op in ("Max", "Min")},
    ("", "Div"): elementwise.integer_div,
    **{("", f"Reduce{op}"): reducing.kept for op in _REDUCTIONS},
    **{("", op): reducing.best for op in ("ArgMax", "ArgMin")},
    ("", "LayerNormalization"): reducing.with_shift,
    ("", "Conv"): windows.conv,
    ("", "ConvTranspose"): windows.conv_transpose,
    **{("", op): windows.pool for op in ("AveragePool", "MaxPool", "LpPool")},
    **{("", f"{kind}Normalization"): windows.computed_scale for kind in ("Instance", "Group")},
    ("", "Gather"): indexing.one_place,
    **{("", op): indexing.extreme for op in ("ScatterElements", "ScatterND")},
    ("", "MatMul"): windows.mat_mul,
    # two layers, where the common decomposition writes out every step; it takes what has alphas or
    # betas for each direction
    **{("", op): split_directions for op in ("LSTM", "GRU", "RNN")},
    (EXTENSION_DOMAIN, "SuppressionMask"): detection.suppression_mask,
}
