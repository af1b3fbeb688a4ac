"""Code shared by TensorFlow Lite and NNAPI, whose operators are much the same.

context.py         views of a layer that is read and an operator that is written, for rows
quantization.py    scales and zero points, quantized weights and biases
fields.py          conditions and fields of rows of several families
elementwise.py     arithmetic, comparisons and activations
weights.py         filters, biases, dense layers and products of matrices
normalization.py   softmax, and normalizations
recurrent.py       cells, and sequences in one direction or both
shape.py           operators that move numbers

Each of the two keeps the form of its files, its levels or versions, and the spelling of operands
and options: TensorFlow Lite numbers the tensors of an operator, NNAPI names them.
"""
