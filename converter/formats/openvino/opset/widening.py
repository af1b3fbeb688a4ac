"""Types that an operation takes here and its ONNX counterpart does not: computed in a wider type,
then brought back.
"""

from __future__ import annotations

import onnx_ir as ir

from converter.graph.build import Builder

T = ir.DataType
INTEGERS = (T.INT8, T.UINT8, T.INT16, T.UINT16, T.INT32, T.UINT32, T.INT64, T.UINT64)

# integers through doubles, rounded to the nearest
ROUNDED = {
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Cos",
    "Cosh",
    "Erf",
    "Exp",
    "Log",
    "Sigmoid",
    "Sin",
    "Sinh",
    "Sqrt",
    "Tan",
    "Tanh",
}
# integers through doubles, cut off
CUT = {
    "Elu",
    "Power",
    "Gelu",
    "Mish",
    "SoftPlus",
    "Selu",
    "HardSigmoid",
    "HSwish",
    "HSigmoid",
    "Swish",
    "SoftSign",
}
# exact in doubles
EXACT = {
    "MaxPool", "AvgPool", "Convolution", "GroupConvolution", "ConvolutionBackpropData",
    "GroupConvolutionBackpropData", "DeformableConvolution", "ReLU", "Ceiling", "Floor", "PReLU",
}  # fmt: skip
# written for one float type: others are converted to it
SINGLE = {
    "DetectionOutput", "Proposal", "PSROIPooling", "ROIPooling", "DeformablePSROIPooling",
    "PriorBox", "PriorBoxClustered", "RegionYolo", "ExperimentalDetectronDetectionOutput",
    "ExperimentalDetectronGenerateProposalsSingleImage", "ExperimentalDetectronPriorGridGenerator",
    "ExperimentalDetectronROIFeatureExtractor", "ExperimentalDetectronTopKROIs",
    "CTCGreedyDecoder", "CTCGreedyDecoderSeqLen", "CTCLoss", "ROIAlign", "ROIAlignRotated",
    "MatrixNms", "MulticlassNms", "GenerateProposals",
}  # fmt: skip
OWN_KERNEL = {
    "MaxPool": INTEGERS[:2],
    "Power": (T.INT32, T.INT64),
    "ReLU": INTEGERS[::2],
    "PReLU": INTEGERS[4:],
}


def widened(
    b: Builder, kind: str, operands: list[ir.Value | None]
) -> tuple[list[ir.Value | None], ir.DataType | None]:
    """Return the operands in a type that ONNX supports, and the type of the data to convert results
    back to (None: nothing was changed).
    """
    own = next((v.dtype for v in operands if v is not None and v.dtype is not None), None)
    if own is None:
        return operands, None
    if kind in SINGLE and own != T.FLOAT and own.is_floating_point():
        return [
            _cast(b, v, T.FLOAT)
            if v is not None and v.dtype is not None and v.dtype.is_floating_point()
            else v
            for v in operands
        ], own
    if own not in INTEGERS or own in OWN_KERNEL.get(kind, ()) or kind not in ROUNDED | CUT | EXACT:
        return operands, None
    return [_cast(b, v, T.DOUBLE) if v is not None and v.dtype == own else v for v in operands], own


def narrowed(b: Builder, kind: str, results: list[ir.Value], own: ir.DataType) -> list[ir.Value]:
    """Cast results of the wider type back to the data's own type."""
    wide = T.FLOAT if kind in SINGLE else T.DOUBLE
    return [_back(b, kind, v, own) if v.dtype == wide else v for v in results]


def _back(b: Builder, kind: str, value: ir.Value, own: ir.DataType) -> ir.Value:
    return _cast(b, b.Round(value) if kind in ROUNDED else value, own)


def _cast(b: Builder, value: ir.Value, to: ir.DataType) -> ir.Value:
    return value if value.dtype == to else b.Cast(value, to=to)
