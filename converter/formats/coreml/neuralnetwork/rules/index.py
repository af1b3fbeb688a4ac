"""The operators and layers of each module's rows; `make index` writes this file."""

INDEX = """
matmul writes Add Gemm MatMul
matmul reads batchedMatmul innerProduct
elementwise writes Abs Acos Acosh Add And Asin Asinh Atan Atanh Ceil Clip Cos Cosh Div Elu Equal Erf
elementwise writes Exp Floor Gelu Greater GreaterOrEqual HardSigmoid Identity IsNaN LeakyRelu Less
elementwise writes LessOrEqual Log Max Mean Min Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round
elementwise writes Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Tan Tanh ThresholdedRelu Where
elementwise writes Xor
elementwise reads acos acosh activation add addBroadcastable asin asinh atan atanh average bias ceil
elementwise reads clampedReLU clip copy cos cosh divideBroadcastable dot equal erf exp2 floor
elementwise reads floorDivBroadcastable gelu greaterEqual greaterThan lessEqual lessThan logicalAnd
elementwise reads logicalNot logicalOr logicalXor max maxBroadcastable min minBroadcastable
elementwise reads modBroadcastable multiply multiplyBroadcastable notEqual powBroadcastable round
elementwise reads scale sign sin sinh subtractBroadcastable tan tanh unary whereBroadcastable
convolution writes Conv ConvTranspose
convolution reads convolution convolution3d
pooling writes AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool
pooling reads globalPooling3d pooling pooling3d
normalization writes BatchNormalization InstanceNormalization LRN LayerNormalization Softmax
normalization reads batchnorm l2normalize layerNormalization lrn mvn softmax softmaxND
reduction writes ArgMax ArgMin CumSum NonZero ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp
reduction writes ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare TopK
reduction reads argMax argMin argSort cumSum reduce reduceL1 reduceL2 reduceLogSum reduceLogSumExp
reduction reads reduceMax reduceMean reduceMin reduceProd reduceSum reduceSumSquare topK
reduction reads whereNonZero
shape writes Concat ConstantOfShape Expand Flatten Pad Range Reshape Shape Split Squeeze Tile
shape writes Transpose Trilu Unsqueeze
shape reads broadcastToDynamic broadcastToLike broadcastToStatic concat concatND constantPad
shape reads expandDims fillDynamic fillLike fillStatic flatten flattenTo2D getShape lowerTriangular
shape reads matrixBandPart padding permute rangeDynamic rangeStatic rankPreservingReshape reshape
shape reads reshapeDynamic reshapeLike reshapeStatic sequenceRepeat split splitND squeeze stack tile
shape reads transpose upperTriangular
indexing writes Gather GatherElements GatherND OneHot ReverseSequence ScatterElements ScatterND
indexing writes Slice netconv::OneHotFromFront
indexing reads crop embedding embeddingND gather gatherAlongAxis gatherND oneHot reverse reverseSeq
indexing reads scatter scatterAlongAxis scatterND slice sliceBySize sliceDynamic sliceStatic
indexing reads slidingWindows
resize writes DepthToSpace Resize SpaceToDepth netconv::CropResize
resize reads cropResize reorganizeData resizeBilinear upsample
recurrent writes GRU LSTM RNN netconv::CellClippedLSTM
recurrent reads biDirectionalLSTM gru simpleRecurrent uniDirectionalLSTM
detection writes netconv::SuppressBoxes
detection reads NonMaximumSuppression
quantization writes Cast DequantizeLinear netconv::UnpackBits
quantization reads loadConstant loadConstantND
control_flow writes If Loop
random writes Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike
random writes netconv::CustomLayer netconv::RandomBernoulli netconv::RandomCategorical
random writes netconv::RandomNormal netconv::RandomUniform
random reads categoricalDistribution custom randomBernoulliDynamic randomBernoulliLike
random reads randomBernoulliStatic randomNormalDynamic randomNormalLike randomNormalStatic
random reads randomUniformDynamic randomUniformLike randomUniformStatic
"""
