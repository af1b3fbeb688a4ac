"""The operators and layers of each module's rows; `make index` writes this file."""

INDEX = """
quantization writes DequantizeLinear Gather QuantizeLinear netconv::FakeConvert
quantization writes netconv::FakeQuantize netconv::UnpackBits
quantization reads FakeConvert FakeQuantize Multiply
elementwise writes Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot
elementwise writes BitwiseOr BitwiseXor Cast Ceil Clip Cos Cosh Div Elu Equal Erf Exp Floor Gelu
elementwise writes Greater GreaterOrEqual HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Less
elementwise writes LessOrEqual Log Max Min Mish Mod Mul Neg Not Or PRelu Pow Relu Round Selu Sigmoid
elementwise writes Sign Sin Sinh Softplus Softsign Sqrt Sub Tan Tanh Xor netconv::ErfInv
elementwise reads Abs Acos Acosh Add Asin Asinh Atan Atanh BitwiseAnd BitwiseLeftShift BitwiseNot
elementwise reads BitwiseOr BitwiseRightShift BitwiseXor Ceiling Clamp Convert ConvertLike
elementwise reads ConvertPromoteTypes Cos Cosh Divide Elu Equal Erf ErfInv Exp Floor FloorMod Gelu
elementwise reads Greater GreaterEqual HSigmoid HSwish HardSigmoid Identity IsFinite IsInf IsNaN
elementwise reads Less LessEqual Log LogicalAnd LogicalNot LogicalOr LogicalXor Maximum Minimum Mish
elementwise reads Mod Multiply Negative NotEqual PReLU Power ReLU Round Selu Sigmoid Sign Sin Sinh
elementwise reads SoftPlus SoftSign Sqrt SquaredDifference Subtract Swish Tan Tanh Xor
convolution writes Col2Im Conv ConvTranspose netconv::BinaryConvolution
convolution writes netconv::DeformableConvolution
convolution reads BinaryConvolution Col2Im Convolution ConvolutionBackpropData DeformableConvolution
convolution reads GroupConvolution GroupConvolutionBackpropData
pooling writes AveragePool MaxPool netconv::AdaptiveAveragePool netconv::AdaptiveMaxPool
pooling reads AdaptiveAvgPool AdaptiveMaxPool AvgPool MaxPool
reduction writes ArgMax ArgMin CumSum NonZero ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin
reduction writes ReduceProd ReduceSum TopK Unique netconv::IntegerMean
reduction reads Bucketize CumSum NonZero ReduceL1 ReduceL2 ReduceLogicalAnd ReduceLogicalOr
reduction reads ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum SearchSorted TopK Unique
shape writes Concat ConstantOfShape DepthToSpace Expand GatherElements GridSample LogSoftmax Pad
shape writes Reshape Shape Size Softmax SpaceToDepth Split Squeeze Tile Transpose Unsqueeze Where
shape writes netconv::ShuffleChannels netconv::StringPack netconv::StringUnpack
shape reads BatchToSpace Broadcast Concat DepthToSpace ExtractImagePatches GatherElements GridSample
shape reads LogSoftmax Pad Reshape Roll Select ShapeOf ShuffleChannels SoftMax SpaceToBatch
shape reads SpaceToDepth Split Squeeze StringTensorPack StringTensorUnpack Tile Transpose Unsqueeze
shape reads VariadicSplit
indexing writes EyeLike Gather GatherND OneHot Range ReverseSequence ScatterElements ScatterND Slice
indexing writes netconv::GatherTree
indexing reads Eye Gather GatherND GatherTree OneHot Range Reverse ReverseSequence
indexing reads ScatterElementsUpdate ScatterNDUpdate ScatterUpdate Slice SliceScatter StridedSlice
normalization writes BatchNormalization GroupNormalization LRN netconv::GRN netconv::MVN
normalization writes netconv::NormalizeL2
normalization reads BatchNormInference GRN GroupNormalization LRN MVN NormalizeL2
detection writes MaxRoiPool NonMaxSuppression RoiAlign netconv::CTCGreedyDecoder
detection writes netconv::DeformablePSROIPooling netconv::DetectionOutput
detection writes netconv::DetectronDetectionOutput netconv::DetectronGenerateProposals
detection writes netconv::DetectronPriorGridGenerator netconv::DetectronROIFeatureExtractor
detection writes netconv::DetectronTopKROIs netconv::GenerateProposals netconv::MatrixNms
detection writes netconv::MulticlassNms netconv::NMSRotated netconv::PSROIPooling netconv::PriorBox
detection writes netconv::PriorBoxClustered netconv::Proposal netconv::ROIAlignMax
detection writes netconv::ROIAlignRotated netconv::ROIPooling netconv::RegionYolo netconv::ReorgYolo
detection writes netconv::SoftNonMaxSuppression
detection reads CTCGreedyDecoder DeformablePSROIPooling DetectionOutput
detection reads ExperimentalDetectronDetectionOutput
detection reads ExperimentalDetectronGenerateProposalsSingleImage
detection reads ExperimentalDetectronPriorGridGenerator ExperimentalDetectronROIFeatureExtractor
detection reads ExperimentalDetectronTopKROIs GenerateProposals MatrixNms MulticlassNms NMSRotated
detection reads NonMaxSuppression PSROIPooling PriorBox PriorBoxClustered Proposal ROIAlign
detection reads ROIAlignRotated ROIPooling RegionYolo ReorgYolo
matmul writes Einsum MatMul netconv::GroupedMatMul netconv::MatrixInverse
matmul reads Einsum GroupedMatMul Inverse MatMul ScaledDotProductAttention
sequence writes netconv::CTCGreedyDecoderSeqLen netconv::CTCLoss netconv::EmbeddingBagOffsets
sequence writes netconv::EmbeddingBagPacked netconv::EmbeddingSegments netconv::FillEmptyRows
sequence writes netconv::SegmentMax
sequence reads CTCGreedyDecoderSeqLen CTCLoss EmbeddingBagOffsets EmbeddingBagOffsetsSum
sequence reads EmbeddingBagPacked EmbeddingBagPackedSum EmbeddingSegmentsSum SegmentMax
sequence reads SparseFillEmptyRows
resize writes Resize netconv::ColorToPlanes netconv::PlanesToColor
resize reads BGRtoNV12 I420toBGR I420toRGB Interpolate NV12toBGR NV12toRGB RGBtoNV12
signal writes DFT netconv::FramedDFT netconv::InverseFramedDFT netconv::InverseRealDFT
signal writes netconv::RealDFT
signal reads DFT IDFT IRDFT ISTFT RDFT STFT
random writes Multinomial RandomUniform netconv::ClassDraws netconv::UniformNumbers
random reads Multinomial RandomUniform
recurrent writes GRU LSTM RNN
recurrent reads GRUCell GRUSequence LSTMCell LSTMSequence RNNCell RNNSequence
control_flow writes If Loop
control_flow reads Assign If Loop ReadValue TensorIterator
fused reads GatedDeltaNet MOE RMS RoPE
custom writes netconv::CustomLayer
"""
