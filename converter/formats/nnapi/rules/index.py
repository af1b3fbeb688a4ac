"""The operators and layers of each module's rows; `make index` writes this file."""

INDEX = """
elementwise writes Abs Add And Clip Div Elu Equal Exp Floor Greater GreaterOrEqual HardSwish
elementwise writes Identity Less LessOrEqual Log Max Min Mul Neg Not Or PRelu Pow Relu Sigmoid Sin
elementwise writes Sqrt Sub Tanh Where Xor netconv::FloorDiv
elementwise reads ABS ADD DIV ELU EQUAL EXP FLOOR GREATER GREATER_EQUAL HARD_SWISH LESS LESS_EQUAL
elementwise reads LOG LOGICAL_AND LOGICAL_NOT LOGICAL_OR LOGISTIC MAXIMUM MINIMUM MUL NEG NOT_EQUAL
elementwise reads POW PRELU RELU RELU1 RELU6 RSQRT SELECT SIN SQRT SUB TANH
convolution writes Conv ConvTranspose
convolution reads CONV_2D DEPTHWISE_CONV_2D GROUPED_CONV_2D TRANSPOSE_CONV_2D
pooling writes AveragePool GlobalAveragePool GlobalMaxPool MaxPool netconv::L2Pool
pooling reads AVERAGE_POOL_2D L2_POOL_2D MAX_POOL_2D
normalization writes InstanceNormalization LRN LogSoftmax Softmax netconv::NormalizeL2
normalization reads INSTANCE_NORMALIZATION L2_NORMALIZATION LOCAL_RESPONSE_NORMALIZATION LOG_SOFTMAX
normalization reads SOFTMAX
reduction writes ArgMax ArgMin ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum TopK
reduction reads ARGMAX ARGMIN MEAN REDUCE_ALL REDUCE_ANY REDUCE_MAX REDUCE_MIN REDUCE_PROD
reduction reads REDUCE_SUM TOPK_V2
matmul writes Gemm MatMul
matmul reads BATCH_MATMUL FULLY_CONNECTED
shape writes Concat DepthToSpace Expand Flatten Pad Reshape SpaceToDepth Split Squeeze Tile
shape writes Transpose Unsqueeze netconv::BatchToSpace netconv::ShuffleChannels
shape writes netconv::SpaceToBatch
shape reads BATCH_TO_SPACE_ND CHANNEL_SHUFFLE CONCATENATION DEPTH_TO_SPACE EXPAND_DIMS FILL
shape reads MIRROR_PAD PACK PAD PAD_V2 RANK RESHAPE SPACE_TO_BATCH_ND SPACE_TO_DEPTH SPLIT SQUEEZE
shape reads TILE TRANSPOSE
indexing writes Gather Slice netconv::HashtableLookup netconv::LSHProjection
indexing reads EMBEDDING_LOOKUP GATHER HASHTABLE_LOOKUP LSH_PROJECTION REVERSE SLICE STRIDED_SLICE
resize writes Resize
resize reads RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR
recurrent writes LSTM RNN netconv::LSTM16 netconv::LSTMCell netconv::RNNCell netconv::SVDF
recurrent reads BIDIRECTIONAL_SEQUENCE_LSTM BIDIRECTIONAL_SEQUENCE_RNN LSTM QUANTIZED_16BIT_LSTM
recurrent reads QUANTIZED_LSTM RNN SVDF UNIDIRECTIONAL_SEQUENCE_LSTM UNIDIRECTIONAL_SEQUENCE_RNN
detection writes RoiAlign netconv::AnchorDetections netconv::ClassNMS netconv::GridProposals
detection writes netconv::HeatmapKeypoints netconv::RegionAlign netconv::RegionPool
detection writes netconv::TransformBoxes
detection reads AXIS_ALIGNED_BBOX_TRANSFORM BOX_WITH_NMS_LIMIT DETECTION_POSTPROCESSING
detection reads GENERATE_PROPOSALS HEATMAP_MAX_KEYPOINT ROI_ALIGN ROI_POOLING
quantization writes Cast DequantizeLinear QuantizeLinear
quantization reads CAST DEQUANTIZE QUANTIZE
random writes netconv::RandomCategorical
random reads RANDOM_MULTINOMIAL
"""
