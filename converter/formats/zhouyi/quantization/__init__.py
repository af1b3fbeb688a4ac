"""Integer IR: what the vendor's quantiser writes, read as the integer arithmetic that it stands for
or as numbers, and written from quantised networks.

Stored integers come in and go out. A tensor's value is (q + zero point) / scale: the scale is the
reciprocal of ONNX's and the zero point its negative (section 4.4 does not say so; the tools do). A
layer without a known integer form is refused by name.

quant_params   scale, zero point and type of a tensor; nodes that quantise and dequantise
requantize     factors as multiplier and shift; the steps of integer arithmetic, carried by floats
tables         look-up tables
context        what converters see of a layer that is read, and of one that is written
rules          the table: each kind of layer with its converters, whose families are
convolution    convolutions and FullyConnected
matmul         products of two activations
elementwise    sums, products, activations, conversions, comparisons, choices
pooling        pooling and normalisation across channels
reduction      reductions, BatchNorm
normalization  Softmax, and normalisation by mean and variance
resize         resampling, padding of blocks, dilation and erosion
recurrent      LSTM and GRU
weights        stored weights of one layer
constants      constants of a network that are stored integers
lift           integer IR -> float operators between DequantizeLinear and QuantizeLinear
prepare        other spellings of quantised networks -> QuantizeLinear and DequantizeLinear
gelu           the steps of a GELU -> one operator with a table
lowering       nodes -> float layers that know their stored weights
plan           which layers compute on integers, and what stands between them
pipeline       the passes before lowering, in order
lower          a quantised network -> integer IR
"""
