"""The operators and layers of each module's rows; `make index` writes this file."""

INDEX = """
elementwise writes Abs Acos Acosh Add And Asin Asinh Atan Atanh Cast Ceil Clip Cos Cosh Div Elu
elementwise writes Equal Erf Exp Floor Greater GreaterOrEqual HardSigmoid Identity LeakyRelu Less
elementwise writes LessOrEqual Log Max Min Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Selu Sigmoid
elementwise writes Sign Sin Sinh Softplus Softsign Sqrt Sub Tan Tanh Where Xor
elementwise reads Abs Acos Acosh Activation Asin Asinh Atan Atanh Ceil Clamp Convert Copy Cos Cosh
elementwise reads ELU Eltwise Erf Exp Floor HardSigmoid Identity Log LogicalNot Logistic Neg Not
elementwise reads PReLU Power ReLU ReLU6 Reciprocal ScaleShift Select Selu Sigmoid Sign Sin Sinh
elementwise reads SoftPlus SoftSign Softplus Softsign Sqrt Tan TanH
convolution writes Conv ConvTranspose netconv::BinaryConvolution netconv::DeformableConvolution
convolution reads BinaryConvolution Convolution Deconvolution DeformableConvolution
pooling writes AveragePool GlobalAveragePool GlobalMaxPool MaxPool
pooling reads Pooling
normalization writes BatchNormalization LRN LogSoftmax Softmax netconv::FakeQuantize netconv::GRN
normalization writes netconv::MVN netconv::NormalizeL2
normalization reads BatchNormalization FakeQuantize GRN LRN LogSoftmax MVN Norm Normalize Quantize
normalization reads SoftMax
reduction writes ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin
reduction writes ReduceProd ReduceSum ReduceSumSquare
reduction reads ReduceAnd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean
reduction reads ReduceMin ReduceOr ReduceProd ReduceSum ReduceSumSquare
matmul writes Gemm MatMul
matmul reads FullyConnected GEMM Gemm InnerProduct MatMul
shape writes Concat Expand Flatten Pad Reshape Slice Split Squeeze Tile Transpose Unsqueeze
shape writes netconv::ShuffleChannels
shape reads Broadcast Concat Crop DepthToSpace Expand Fill Flatten Pad Permute Reshape
shape reads ShuffleChannels Slice SpaceToDepth Split Squeeze StridedSlice Tile Unsqueeze
indexing writes ArgMax Gather OneHot Range ScatterND TopK netconv::FixedUnique
indexing writes netconv::OneHotFromFront netconv::SparseFillEmptyRows netconv::SparseSegment
indexing writes netconv::SparseWeightedSum
indexing reads ArgMax Bucketize ExperimentalSparseWeightedReduce ExperimentalSparseWeightedSum
indexing reads Gather OneHot Range ScatterUpdate Shape ShapeOf SparseFillEmptyRows SparseSegmentMean
indexing reads SparseSegmentSqrtN SparseSegmentSum SparseToDense TopK Unique
resize writes Resize
resize reads Interp Resample
recurrent writes GRU LSTM RNN ReverseSequence netconv::CTCGreedyDecoder
recurrent reads CTCGreadyDecoder CTCGreedyDecoder GRUCell GRUSequence GatherTree LSTMCell
recurrent reads LSTMSequence RNNCell RNNSequence ReverseSequence
detection writes MaxRoiPool netconv::DetectionOutput netconv::DetectronDetectionOutput
detection writes netconv::DetectronGenerateProposals netconv::DetectronPriorGridGenerator
detection writes netconv::DetectronROIFeatureExtractor netconv::DetectronTopKROIs
detection writes netconv::FixedNonMaxSuppression netconv::PSROIPooling netconv::Proposal
detection writes netconv::ROIPooling netconv::RegionYolo netconv::ReorgYolo
detection reads DetectionOutput ExperimentalDetectronDetectionOutput
detection reads ExperimentalDetectronGenerateProposalsSingleImage
detection reads ExperimentalDetectronPriorGridGenerator ExperimentalDetectronROIFeatureExtractor
detection reads ExperimentalDetectronTopKROIs NonMaxSuppression PSROIPooling PriorBox
detection reads PriorBoxClustered Proposal ROIPooling RegionYolo ReorgYolo SimplerNMS
control_flow writes Loop
control_flow reads TensorIterator
custom writes netconv::CustomLayer
"""
