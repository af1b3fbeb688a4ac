"""Rewrites for the kernels that TensorFlow Lite and NNAPI share: what both lack is written alike.

functions.py   functions of real numbers as polynomials
images.py      one spatial dimension as two; groups and dilations as zeros in the filter
integers.py    whole numbers in the operators that there are for them
picking.py     indices that count from the front, the largest along the last axis, truth values
resizing.py    which pixels the resizing kernels take
"""
