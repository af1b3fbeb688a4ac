"""What operations mean: lift functions and, beside them, their lower functions, by theme.

args.py         how a lift function sees an operation: operands by name, dequantised on request
emit.py         how a lower function sees a node: values as operands, arguments by name
elementwise.py  arithmetic, comparisons, activations        windows.py     convolutions, pools, dense layers
shapes.py       reshape, concatenate, pad, slice            reductions.py  reductions, normalisations, softmax
lookups.py      gather, repeat, fill, tables                blocks.py      blocks between space, channels and batch
resize.py       resizing                                    recurrent.py   RNN, LSTM, SVDF and their sequences
weights.py      filters and biases on their way into a table
"""
