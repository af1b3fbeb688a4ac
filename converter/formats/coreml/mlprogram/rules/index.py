"""The operators and layers of each module's rows; `make index` writes this file."""

INDEX = """
convolution writes Add AveragePool Conv ConvTranspose Gemm LpPool MatMul MaxPool
convolution writes netconv::ScaledDotProductAttention
convolution reads avg_pool conv conv_transpose einsum l2_pool linear matmul max_pool
convolution reads scaled_dot_product_attention
elementwise writes Abs Acos Add And Asin Atan Atanh Cast Ceil Clip Cos Cosh Div Elu Equal Erf Exp
elementwise writes Floor Gelu Greater GreaterOrEqual HardSigmoid Identity LeakyRelu Less LessOrEqual
elementwise writes Log Max Min Mod Mul Not Or PRelu Pow Reciprocal Relu Round Sigmoid Sign Sin Sinh
elementwise writes Softplus Softsign Sqrt Sub Tan Tanh Where Xor netconv::FloorDiv
elementwise reads abs acos add asin atan atanh cast ceil clamped_relu clip cos cosh elu equal erf
elementwise reads exp exp2 floor floor_div gelu greater greater_equal identity inverse leaky_relu
elementwise reads less less_equal linear_activation log logical_and logical_not logical_or
elementwise reads logical_xor maximum minimum mod mul not_equal pow prelu real_div relu relu6 round
elementwise reads rsqrt scaled_tanh select sigmoid sigmoid_hard sign silu sin sinh softplus
elementwise reads softplus_parametric softsign sqrt square sub tan tanh threshold thresholded_relu
normalization writes BatchNormalization InstanceNormalization LRN LayerNormalization Softmax
normalization reads batch_norm instance_norm l2_norm layer_norm local_response_norm softmax
reduction writes ArgMax ArgMin CumSum ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax
reduction writes ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare TopK
reduction reads argsort cumsum reduce_argmax reduce_argmin reduce_l1_norm reduce_l2_norm
reduction reads reduce_log_sum reduce_log_sum_exp reduce_max reduce_mean reduce_min reduce_prod
reduction reads reduce_sum reduce_sum_square topk
shape writes Concat ConstantOfShape DepthToSpace Flatten Pad Range Reshape ReverseSequence Shape
shape writes Slice SpaceToDepth Split Squeeze Tile Transpose Trilu Unsqueeze netconv::BatchToSpace
shape writes netconv::SpaceToBatch
shape reads band_part batch_to_space concat crop depth_to_space expand_dims fill fill_like flatten2d
shape reads pad pixel_shuffle pixel_unshuffle range_1d reshape reshape_like reverse reverse_sequence
shape reads shape slice_by_index slice_by_size slice_update sliding_windows space_to_batch
shape reads space_to_depth split squeeze stack tile transpose
indexing writes Gather GatherElements GatherND NonZero ScatterElements ScatterND
indexing reads gather gather_along_axis gather_nd list_gather list_length list_read list_scatter
indexing reads list_write make_list non_zero one_hot scatter scatter_along_axis scatter_nd
resize writes GridSample Resize
resize reads affine crop_resize resample resize resize_bilinear resize_nearest_neighbor
resize reads upsample_bilinear upsample_nearest_neighbor
recurrent writes GRU LSTM RNN
recurrent reads gru lstm rnn
detection writes netconv::SuppressBoxes
detection reads classify non_maximum_suppression
random writes RandomNormal RandomUniform
random reads random_bernoulli random_categorical random_normal random_uniform
control_flow writes If Loop
control_flow reads cond read_state while_loop write_state
quantization writes DequantizeLinear QuantizeLinear
quantization reads constexpr_affine_dequantize constexpr_blockwise_shift_scale constexpr_cast
quantization reads constexpr_lut_to_dense constexpr_lut_to_sparse
quantization reads constexpr_sparse_blockwise_shift_scale constexpr_sparse_to_dense dequantize
quantization reads quantize
"""
