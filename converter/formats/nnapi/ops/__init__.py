"""What operations mean: lift functions and, beside them, their lower functions, by theme.

args.py         how a lift function sees an operation: operands by name, dequantised on request
elementwise.py  arithmetic, comparisons, activations        windows.py     convolutions and pools
shapes.py       data movement                               reductions.py  reductions, normalisations, softmax
recurrent.py    RNN, LSTM, SVDF and their sequences         lookup.py      embeddings and hash tables
"""
