"""The operators and layers of each module's rows; `make index` writes this file."""

INDEX = """
activations rewrites Abs Acosh Asinh Atanh Celu Clip Cosh Elu HardSigmoid HardSwish IsInf IsNaN
activations rewrites LeakyRelu Min Mod Not PRelu Pow Round Selu Sigmoid Sign Sinh Softplus Softsign
activations rewrites Sqrt Tan Tanh ThresholdedRelu
arithmetic rewrites BatchNormalization Div Dropout Flatten Gemm GlobalAveragePool GlobalMaxPool
arithmetic rewrites Identity Max Mean Neg Reciprocal Squeeze Sub Sum Unsqueeze
bitwise rewrites BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor
classical rewrites TfIdfVectorizer ai.onnx.ml::LabelEncoder ai.onnx.ml::LinearClassifier
classical rewrites ai.onnx.ml::Normalizer ai.onnx.ml::SVMClassifier ai.onnx.ml::SVMRegressor
classical rewrites ai.onnx.ml::TreeEnsemble ai.onnx.ml::TreeEnsembleClassifier
classical rewrites ai.onnx.ml::TreeEnsembleRegressor
computed rewrites Slice
einsum rewrites Einsum
fourier rewrites DFT
indexing rewrites GatherElements GatherND ReverseSequence
linear rewrites Conv ConvTranspose Det MatMul
movement rewrites Compress Concat DepthToSpace Expand EyeLike Pad Reshape SpaceToDepth Split Tile
movement rewrites Trilu
normalization rewrites GlobalLpPool GroupNormalization InstanceNormalization LRN LayerNormalization
normalization rewrites LpNormalization LpPool MeanVarianceNormalization
quantization rewrites ConvInteger DequantizeLinear DynamicQuantizeLinear MatMulInteger QLinearConv
quantization rewrites QLinearMatMul QuantizeLinear
random rewrites RandomNormal RandomNormalLike RandomUniform RandomUniformLike netconv::RandomNormal
random rewrites netconv::RandomUniform
recurrent rewrites GRU LSTM RNN
reductions rewrites ArgMax ArgMin CumSum Hardmax LogSoftmax OneHot ReduceL1 ReduceL2 ReduceLogSum
reductions rewrites ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
reductions rewrites ReduceSumSquare Softmax
regions rewrites MaxRoiPool RoiAlign
resizing rewrites Resize
sampling rewrites AffineGrid DeformConv GridSample MaxUnpool
scattering rewrites ScatterElements ScatterND
sequences rewrites ConcatFromSequence SequenceAt SequenceLength
windows rewrites AveragePool Col2Im MaxPool STFT
"""
