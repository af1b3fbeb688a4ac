"""The operators and layers of each module's rows; `make index` writes this file."""

INDEX = """
composites writes AveragePool DepthToSpace GroupNormalization HardSigmoid InstanceNormalization
composites writes LayerNormalization LogSoftmax netconv::ScaledDotProductAttention
composites reads composite:batch_norm composite:group_norm composite:hard_sigmoid
composites reads composite:instance_norm composite:layer_norm composite:log_softmax
composites reads composite:pixel_shuffle
complex reads create_complex imaginary_part real_part
quantization writes Cast DequantizeLinear Gather QuantizeLinear
quantization reads blockwise_shift_scale build_sparse_with_bitmask dequantize lut_to_dense
quantization reads lut_to_sparse_with_bitmask quantize sparse_with_bitmask_to_dense
elementwise writes Abs Acos Acosh Add And Asin Asinh Atan Atanh BitwiseAnd BitwiseOr BitwiseXor Cast
elementwise writes Cos Cosh Div Equal Erf Exp Gelu Greater Identity Log Max Min Mod Mul Not Or Pow
elementwise writes Reciprocal Relu Round Sigmoid Sin Sinh Sqrt Sub Tan Tanh Where Xor
elementwise writes netconv::FloorDiv
elementwise reads abs acos acosh add and asin asinh atan atanh bitwise_and bitwise_or bitwise_xor
elementwise reads broadcasting_add broadcasting_and broadcasting_bitwise_and broadcasting_bitwise_or
elementwise reads broadcasting_bitwise_xor broadcasting_divide broadcasting_equal
elementwise reads broadcasting_floor_divide broadcasting_greater broadcasting_maximum
elementwise reads broadcasting_minimum broadcasting_modulo broadcasting_mul broadcasting_not_equal
elementwise reads broadcasting_or broadcasting_pow broadcasting_sub broadcasting_where
elementwise reads broadcasting_xor cast cos cosh divide equal erf exp floor_divide gelu greater log
elementwise reads maximum minimum modulo mul not not_equal or pow relu round rsqrt sigmoid silu sin
elementwise reads sinh sqrt sub tan tanh where xor
linear writes AveragePool Conv ConvTranspose MatMul MaxPool
linear reads batch_matmul broadcasting_batch_matmul conv2d conv3d conv_transpose2d conv_transpose3d
linear reads max_pool_2d max_pool_3d sum_pool_2d sum_pool_3d
reduction writes ArgMax CumSum ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Softmax TopK
reduction reads all any argmax argsort asymmetric_quantization_statistics reduce_max reduce_mean
reduction reads reduce_min reduce_product reduce_sum scan softmax sort
reduction reads symmetric_quantization_statistics
shape writes Concat ConstantOfShape Expand Flatten Pad Range Reshape Shape Slice Split Squeeze Tile
shape writes Transpose Unsqueeze
shape reads broadcast_in_dims broadcast_shapes broadcast_to concat expand_dims get_shape pad range
shape reads reshape reverse shrink_dims slice slice_update split tile transpose
indexing writes GatherElements GatherND NonZero ScatterElements ScatterND
indexing reads gather_along_axis gather_nd non_zero scatter_along_axis scatter_nd
resize writes Resize
resize reads interpolate interpolate_coordinates
control_flow writes If Loop
control_flow reads if while
"""
