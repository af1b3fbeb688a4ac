"""Integer layers by kind: how each is read as integer arithmetic, and written from a float
layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from converter.formats.zhouyi.quantization import (
    boxes,
    convolution,
    elementwise,
    indexing,
    matmul,
    normalization,
    pooling,
    recurrent,
    reduction,
    regions,
    resize,
    sampling,
    statistics,
)
from converter.formats.zhouyi.quantization.context import (
    IntegerLiftContext,
    IntegerLowerContext,
    Written,
)
from converter.formats.zhouyi.quantization.quant_params import QuantParams
from converter.formats.zhouyi.quantization.weights import WEIGHTED
from converter.graph.value import Value
from converter.mapping.node import Layer


@dataclass(frozen=True)
class IntegerRule:
    """`result`: scale and zero point of the result, of those of the first input and those that are
    wanted, which not all layers can give.

    `ignored`: keys of a float layer at which the executor does not look in an integer one.
    `finer`: whether a layer rounds on the scale of its data first, so that these are to be finer
    integers of 16 bits.
    """

    kinds: str
    lift: Callable[[IntegerLiftContext], Value | Sequence[Value]] | None = None
    lower: Callable[[IntegerLowerContext], Written] | None = None
    result: Callable[[Layer, QuantParams, QuantParams], QuantParams] = lambda _, source, own: own
    ignored: frozenset[str] = frozenset()
    finer: Callable[[Layer], bool] = lambda layer: False


_e, _i, _r = elementwise, indexing, resize
RULES = [
    IntegerRule(" ".join(WEIGHTED), convolution.lift_weighted, convolution.lower_weighted),
    IntegerRule("MatMul", matmul.lift_matmul, matmul.lower_matmul),
    IntegerRule("Gemm", matmul.lift_gemm),
    IntegerRule("Eltwise Add Sub Mul", _e.lift_eltwise, _e.lower_eltwise),
    IntegerRule("Div", _e.lift_divide, _e.lower_divide),
    IntegerRule("Mod", _e.lift_mod),
    IntegerRule("Pow", _e.lift_pow),
    IntegerRule("InTopK", _e.lift_in_top_k),
    IntegerRule("OneHot", _e.lift_one_hot),
    IntegerRule("SquaredDifference", _e.lift_squared_difference),
    IntegerRule(
        "Activation",
        _e.lift_table,
        _e.lower_activation,
        _e.params_of_activation,
        finer=_e.has_slopes,
    ),
    IntegerRule(_e.TABLES, _e.lift_table, _e.lower_table),
    IntegerRule("Abs", _e.lift_abs, _e.lower_abs),
    IntegerRule("Negative", _e.lift_negative, _e.lower_as_it_is, _e.params_of_negative),
    IntegerRule("Sign", _e.lift_sign, _e.lower_as_it_is, _e.params_of_sign),
    IntegerRule("Cast", _e.lift_cast),
    IntegerRule("Concat", _e.lift_concat, _e.lower_concat),
    IntegerRule("Logical", _e.lift_logical, _e.lower_comparison),
    IntegerRule("Where", _e.lift_where, _e.lower_where),
    IntegerRule("Pooling", pooling.lift_pooling, pooling.lower_average),
    IntegerRule("Pooling3D", pooling.lift_volumes, result=_e.same_params),
    IntegerRule("FractionalPool", pooling.lift_fractional),
    IntegerRule("LRN", pooling.lift_lrn, pooling.lower_lrn),
    IntegerRule("Reduce", reduction.lift_reduce, reduction.lower_reduce),
    IntegerRule("BatchNorm BiasAdd", reduction.lift_batch_norm),
    IntegerRule("Softmax", normalization.lift_softmax, normalization.lower_softmax),
    IntegerRule("LogSoftmax", normalization.lift_log_softmax),
    IntegerRule("RMSNorm", normalization.lift_rms_norm),
    IntegerRule("Moments", normalization.lift_moments),
    IntegerRule("Normalization", normalization.lift_norm),
    IntegerRule("Cumulate", reduction.lift_cumulate),
    IntegerRule("ZeroFraction", reduction.lift_zero_fraction),
    IntegerRule("ScatterND ScatterElements", _e.lift_scatter),
    IntegerRule("LayerNorm GroupNorm InstanceNorm MVN", normalization.lift_normalization),
    IntegerRule(
        "Resize", _r.lift_resize, _r.lower_resize, _e.same_params, _r.RATIOS, lambda layer: True
    ),
    IntegerRule("SpaceToBatch", _r.lift_space_to_batch, _e.lower_as_it_is, _e.same_params),
    IntegerRule("Dilation Erosion", _r.lift_morphology),
    IntegerRule(_i.PLAIN, _i.lift_plain),
    IntegerRule("FakeQuantWithMinMaxVars", _i.lift_same),
    IntegerRule("Count", _i.lift_count),
    IntegerRule("CTCGreedyDecoder", _i.lift_ctc),
    IntegerRule("GetValidCount", _i.lift_valid_count),
    IntegerRule("UpsampleByIndex MaxUnpool", _i.lift_by_index),
    IntegerRule("SegmentReduce", _i.lift_segment_sum),
    IntegerRule("EmbeddingLookupSparse", _i.lift_embeddings),
    IntegerRule("GridSample", sampling.lift_grid_sample),
    IntegerRule("CropAndResize", sampling.lift_crop_and_resize),
    IntegerRule("MaxRoiPool", sampling.lift_max_roi_pool),
    IntegerRule("RoiAlign", regions.lift_roi_align),
    IntegerRule("PyramidROIAlign", regions.lift_pyramid),
    IntegerRule("RgbToYuv YuvToRgb", _r.lift_colors),
    IntegerRule("NormalizedMoments", statistics.lift_normalized_moments),
    IntegerRule("SufficientStatistics", statistics.lift_sufficient_statistics),
    IntegerRule("BoundingBox", boxes.lift_bounding_box),
    IntegerRule("MultiboxTransformLoc", boxes.lift_multibox),
    IntegerRule("DecodeBox", boxes.lift_decode_box),
    IntegerRule("Proposal", boxes.lift_proposal),
    IntegerRule("GenerateProposals", boxes.lift_generated_proposals),
    IntegerRule("Region", boxes.lift_region),
    IntegerRule("NMS", boxes.lift_nms),
    IntegerRule("RegionFuse", boxes.lift_region_fuse),
    IntegerRule("GRUv1 GRUv3", recurrent.lift_gru),
    IntegerRule("BasicLSTM", recurrent.lift_lstm),
]
TABLE = {kind: rule for rule in RULES for kind in rule.kinds.split()}

# layers that do the same to quantized values as to numbers: the zero point of the output is that of
# the input
_MOVING = """Transpose Reshape Slice Crop Split Tile Gather GatherElements GatherND ReverseSequence
DepthToSpace SpaceToDepth ChannelShuffle ArgMinMax BatchToSpace BatchToSpaceND Repeat Pad TopK
Compress Filter MaxPoolingWithArgMax DataStride"""
_MOVING_METHODS = {"Resize": ("NEAREST",), "Reduce": ("MIN", "MAX")}


def keeps_integers(layer: Layer) -> bool:
    """Return whether a layer has the same effect on quantized values as on real numbers."""
    method = str(layer.attrs.get("method", ""))
    return layer.kind in _MOVING.split() or method in _MOVING_METHODS.get(layer.kind, ())
