"""Types of operands: the operations that only support floating-point numbers, and those on
booleans.
"""

from __future__ import annotations

import onnx_ir as ir

D = ir.DataType


def words(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


FLOATS = (D.FLOAT, D.FLOAT16, D.DOUBLE, D.BFLOAT16)
# fp16 and fp32 only
REAL = words(
    "acos affine asin atan atanh avg_pool batch_norm batch_to_space ceil clamped_relu clip "
    "conv conv_transpose cos cosh crop crop_resize depth_to_space elu erf exp exp2 floor gelu "
    "gru instance_norm inverse l2_norm l2_pool layer_norm leaky_relu linear linear_activation "
    "local_response_norm log lstm max_pool pad pixel_shuffle pixel_unshuffle prelu quantize "
    "relu relu6 resample resize_bilinear resize_nearest_neighbor rnn round rsqrt "
    "scaled_dot_product_attention scaled_tanh sigmoid sigmoid_hard silu sin sinh softmax "
    "softplus softplus_parametric softsign space_to_batch space_to_depth sqrt tan tanh "
    "thresholded_relu upsample_bilinear upsample_nearest_neighbor"
)
# of every type that programs have
ANY = words(
    "band_part cast concat cond const constexpr_affine_dequantize "
    "constexpr_blockwise_shift_scale constexpr_cast constexpr_lut_to_dense "
    "constexpr_sparse_to_dense dequantize expand_dims fill fill_like flatten2d identity "
    "non_zero one_hot read_state reshape reshape_like reverse reverse_sequence select shape "
    "slice_by_index slice_by_size slice_update split squeeze stack tile transpose while_loop "
    "write_state classify"
)
TRUTH = words("logical_and logical_not logical_or logical_xor")


# results of types of less than 32 bits wrap around, which numbers of 32 bits do not
GROWING = words(
    "abs add cumsum mul pow real_div floor_div reduce_l1_norm reduce_prod reduce_sum "
    "reduce_sum_square square sub matmul scatter scatter_nd scatter_along_axis"
)
SHORT = (D.INT8, D.UINT8, D.INT16, D.UINT16, D.INT4, D.UINT4)


def takes(kind: str, dtype: ir.DataType) -> bool:
    """Return whether an operation computes with a first operand of this type; in a program integers
    have 32 bits.
    """
    if kind in TRUTH:
        return dtype == D.BOOL
    if kind in REAL:
        return dtype in FLOATS
    if kind in GROWING and dtype in SHORT:
        return False
    return kind in ANY or dtype != D.BOOL


def in_program(dtype: ir.DataType | None, half: bool = False) -> ir.DataType:
    """Return the type in which values of a type of the graph are written."""
    if dtype in (D.BOOL, D.STRING):
        return dtype
    if dtype == D.FLOAT16 or (half and dtype in FLOATS):
        return D.FLOAT16
    return D.FLOAT if dtype is None or dtype.is_floating_point() else D.INT32
