"""The operators and layers of each module's rows; `make index` writes this file."""

INDEX = """
elementwise writes Abs Add And BitShift BitwiseXor Cast Ceil Clip Cos Div Elu Equal Exp Floor Gelu
elementwise writes Greater GreaterOrEqual HardSwish Identity LeakyRelu Less LessOrEqual Log Max Min
elementwise writes Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Sigmoid Sign Sin Sqrt Sub Sum
elementwise writes Tanh Where Xor netconv::BitCast netconv::FloorDiv
elementwise reads ABS ADD ADD_N ATAN2 BITCAST BITWISE_XOR CAST CEIL COS DIV ELU EQUAL EXP FLOOR
elementwise reads FLOOR_DIV FLOOR_MOD GELU GREATER GREATER_EQUAL HARD_SWISH LEAKY_RELU LESS
elementwise reads LESS_EQUAL LOG LOGICAL_AND LOGICAL_NOT LOGICAL_OR LOGISTIC MAXIMUM MINIMUM MUL NEG
elementwise reads NOT_EQUAL POW PRELU RELU RELU6 RELU_0_TO_1 RELU_N1_TO_1 RIGHT_SHIFT ROUND RSQRT
elementwise reads SELECT SELECT_V2 SIGN SIN SQRT SQUARE SQUARED_DIFFERENCE SUB TANH ZEROS_LIKE
convolution writes Conv ConvTranspose Gemm MatMul
convolution reads BATCH_MATMUL CONV_2D CONV_3D CONV_3D_TRANSPOSE DEPTHWISE_CONV_2D FULLY_CONNECTED
convolution reads TRANSPOSE_CONV
pooling writes AveragePool MaxPool netconv::L2Pool
pooling reads AVERAGE_POOL_2D L2_POOL_2D MAX_POOL_2D REDUCE_WINDOW
normalization writes LRN LogSoftmax Softmax netconv::NormalizeL2
normalization reads L2_NORMALIZATION LOCAL_RESPONSE_NORMALIZATION LOG_SOFTMAX SOFTMAX
reduction writes ArgMax ArgMin CumSum ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
reduction writes netconv::IntegerMean
reduction reads ARG_MAX ARG_MIN CUMSUM MEAN REDUCE_ALL REDUCE_ANY REDUCE_MAX REDUCE_MIN REDUCE_PROD
reduction reads SUM
shape writes Concat ConstantOfShape DepthToSpace Expand Flatten Pad Range Reshape ReverseSequence
shape writes Shape Size Slice SpaceToDepth Split Squeeze Tile Transpose Unsqueeze
shape reads BATCH_TO_SPACE_ND BROADCAST_ARGS BROADCAST_TO CONCATENATION DEPTH_TO_SPACE DILATE
shape reads EXPAND_DIMS FILL MIRROR_PAD PACK PAD PADV2 RANGE RANK RESHAPE REVERSE_SEQUENCE
shape reads REVERSE_V2 SHAPE SLICE SPACE_TO_BATCH_ND SPACE_TO_DEPTH SPLIT SPLIT_V SQUEEZE
shape reads STRIDED_SLICE TILE TRANSPOSE UNPACK
indexing writes Gather GatherND NonZero OneHot ScatterND TopK
indexing reads BUCKETIZE DYNAMIC_UPDATE_SLICE EMBEDDING_LOOKUP GATHER GATHER_ND MATRIX_DIAG
indexing reads MATRIX_SET_DIAG ONE_HOT SCATTER_ND SPARSE_TO_DENSE TOPK_V2 UNIQUE WHERE
segments reads EMBEDDING_LOOKUP_SPARSE SEGMENT_SUM UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_MIN
segments reads UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_SUM
lookups writes netconv::HashtableLookup netconv::LSHProjection
lookups reads HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_LOOKUP HASHTABLE_SIZE
lookups reads LSH_PROJECTION
resize writes Resize
resize reads RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR
recurrent writes LSTM
recurrent reads BIDIRECTIONAL_SEQUENCE_LSTM BIDIRECTIONAL_SEQUENCE_RNN LSTM RNN SVDF
recurrent reads UNIDIRECTIONAL_SEQUENCE_LSTM UNIDIRECTIONAL_SEQUENCE_RNN
detection writes NonMaxSuppression netconv::AnchorDetections
detection reads NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 TFLite_Detection_PostProcess
signal writes netconv::RealDFT
signal reads AudioSpectrogram COMPLEX_ABS IMAG MUL Mfcc REAL RFFT2D
random writes RandomNormal RandomUniform
random reads MULTINOMIAL RANDOM_STANDARD_NORMAL RANDOM_UNIFORM
mediapipe reads Convolution2DTransposeBias Landmarks2TransformMatrix MaxPoolingWithArgmax2D
mediapipe reads MaxUnpooling2D TransformLandmarks TransformTensor TransformTensorBilinear
custom writes netconv::CustomLayer
control_flow writes If Loop
control_flow reads ASSIGN_VARIABLE CALL CALL_ONCE IF READ_VARIABLE STABLEHLO_CASE
control_flow reads STABLEHLO_COMPOSITE VAR_HANDLE WHILE
stablehlo reads STABLEHLO_ADD STABLEHLO_AND STABLEHLO_GATHER STABLEHLO_MAXIMUM STABLEHLO_MINIMUM
stablehlo reads STABLEHLO_MULTIPLY STABLEHLO_PAD STABLEHLO_REDUCE_WINDOW STABLEHLO_RNG_BIT_GENERATOR
stablehlo reads STABLEHLO_SCATTER STABLEHLO_SHIFT_LEFT
quantization writes DequantizeLinear QuantizeLinear
quantization reads DENSIFY DEQUANTIZE FAKE_QUANT QUANTIZE
"""
