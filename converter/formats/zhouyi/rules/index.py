"""The operators and layers of each module's rows; `make index` writes this file."""

INDEX = """
elementwise writes Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot
elementwise writes BitwiseOr BitwiseXor Cast Ceil Celu Clip Cos Cosh Div Elu Equal Erf Exp Floor
elementwise writes Gelu Greater GreaterOrEqual HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu
elementwise writes Less LessOrEqual Log Max Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu
elementwise writes Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Tan Tanh
elementwise writes ThresholdedRelu Where Xor
elementwise reads Abs Acos Acosh Activation Add Asin Asinh Atan Atanh BNLL BiasAdd BitShift Bitwise
elementwise reads Cast Ceil Cosh Cosine Div DivMod Eltwise Erf Exp Floor IsInf IsNaN Log Logical Mod
elementwise reads Mul Negative Pow Reciprocal Round Rsqrt Sign Sine Sinh Sqrt Square
elementwise reads SquaredDifference Sub Tan Trunc Where
convolution writes Col2Im Conv ConvTranspose netconv::Dilation2D netconv::Erosion2D
convolution reads Col2Im ConvTranspose ConvTranspose3D Convolution Convolution3D DataStride
convolution reads DepthwiseConv Dilation Erosion OverlapAdd
pooling writes AveragePool GlobalAveragePool GlobalMaxPool LpPool MaxPool
pooling reads AdaptivePool FractionalPool MaxPoolingWithArgMax MaxUnpool Pooling Pooling3D
pooling reads UpsampleByIndex
normalization writes BatchNormalization GroupNormalization InstanceNormalization LRN
normalization writes LayerNormalization LogSoftmax Softmax
normalization reads BatchNorm GroupNorm InstanceNorm LRN LayerNorm LogSoftmax MVN Moments
normalization reads Normalization NormalizedMoments RMSNorm Softmax SufficientStatistics
reduction writes ArgMax ArgMin CumSum ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd
reduction writes ReduceSum TopK netconv::CumProd netconv::Histogram netconv::InTopK
reduction reads ArgMinMax Count Cumulate InTopK Reduce TopK ZeroFraction
matmul writes Gemm MatMul
matmul reads FullyConnected Gemm MatMul MatMulInteger RotaryEmbedding SDPAttention
shape writes Concat DepthToSpace Flatten Pad Reshape ReverseSequence Slice SpaceToDepth Split
shape writes Squeeze Tile Transpose Unsqueeze netconv::BatchToSpace netconv::ShuffleChannels
shape writes netconv::SpaceToBatch
shape reads BatchToSpace BatchToSpaceND ChannelShuffle Concat ConstantOfShape Crop DepthToSpace
shape reads Dummy Meshgrid Pad Repeat Reshape ReverseSequence Shape Slice SpaceToBatch SpaceToDepth
shape reads Split Tile Transpose Trilu
indexing writes Compress Gather GatherElements GatherND OneHot ScatterElements ScatterND
indexing writes netconv::AccidentalHits netconv::EmbeddingLookupSparse netconv::FilterSlices
indexing writes netconv::SegmentSum
indexing reads AccidentalHits CTCGreedyDecoder CacheUpdate CollapseRepeated Compress
indexing reads EmbeddingLookupSparse Filter Gather GatherElements GatherND NonZero OneHot
indexing reads QueryRebatch ScatterElements ScatterND SegmentReduce SlotUpdate Switch Unique
resize writes GridSample Resize netconv::CropAndResize netconv::RgbToYuv netconv::YuvToRgb
resize reads AffineGrid CropAndResize GridSample Resize RgbToYuv YuvToRgb
recurrent writes GRU LSTM RNN
recurrent reads BasicLSTM GRUv1 GRUv3 RNN
detection writes MaxRoiPool RoiAlign netconv::DecodeBoxes netconv::FuseRegions
detection writes netconv::GetValidCount netconv::GroupedNMS netconv::GroupedSoftNMS
detection writes netconv::MultiboxDecode netconv::RefineBoxes netconv::RegionGroups
detection reads BoundingBox DecodeBox DetectionOutput FilterBoxes GenerateProposals GetValidCount
detection reads HeatmapMaxKeypoint MaxRoiPool MultiboxTransformLoc NMS PostNMS1 PostNMS2 Proposal
detection reads PyramidROIAlign Region RegionFuse RoiAlign
quantization reads ConvInteger DeQuantize FakeQuantWithMinMaxVars Quantize
control_flow writes If Loop
"""
