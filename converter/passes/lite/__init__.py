"""Rewrites for the kernels that TensorFlow Lite and NNAPI share, for operators that both lack.

functions.py   functions of real numbers as polynomials
images.py      one spatial dimension as two; groups and dilations as zeros in the filter
integers.py    integer arithmetic in the few available operators
picking.py     non-negative indices, the largest along the last axis, booleans
resizing.py    coordinate rules of the resizing kernels
small_integers.py  arithmetic of small integers in floating point
"""
