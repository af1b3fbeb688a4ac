"""Integer IR: the output of the vendor's quantizer, read as exact integer arithmetic or as real
numbers, and written from quantized networks.

Inputs and outputs are quantized. A tensor's value is (q + zero point) / scale: the scale is the
reciprocal of ONNX's and the zero point its negative (section 4.4 does not say so; the tools do). A
layer without a known integer form is refused by name.

quant_params   scale, zero point and type of a tensor; nodes that quantize and dequantize
requantize     factors as multiplier and shift; the steps of integer arithmetic, carried by floats
tables         look-up tables
context        views of a layer that is read and of one that is written, for converters
rules          the table: each type of layer with its converters, whose families are
convolution    convolutions and FullyConnected
matmul         products of two activations
elementwise    sums, products, activations, conversions, comparisons, choices
pooling        pooling and normalization across channels
reduction      reductions, BatchNorm
normalization  Softmax, and normalization by mean and variance
resize         resampling, padding of blocks, dilation and erosion
recurrent      LSTM and GRU
weights        stored weights of one layer
constants      quantized constants of a network
lift           integer IR -> float operators between DequantizeLinear and QuantizeLinear
prepare        other forms of quantized networks -> QuantizeLinear and DequantizeLinear
gelu           the steps of a GELU -> one operator with a table
lowering       nodes -> float layers that know their stored weights
plan           the layers that compute on integers, and the layers between them
pipeline       the passes before lowering, in order
lower          a quantized network -> integer IR
"""
