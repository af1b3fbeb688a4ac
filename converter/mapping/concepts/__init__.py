"""Concepts that several formats share. A concept parses, validates, applies ONNX's defaults and
refuses; a format reads and writes its spelling, and declares the features of its layers.

    axes.py               axes and permutations
    matmul.py             transposed operands of matrix products
    window.py             kernel, strides, dilations, padding and rounding of convolutions and pools
    transposed_window.py  the window of a transposed convolution, and the end of its result
    resize.py             the source elements of a Resize
    pads.py               the amounts of a Pad
    parts.py              the sizes of the parts of a Split

`SPELLING` of a concept lists the members that a format may override; a subclass that overrides no
others is the concept in the spelling of that format.
"""
