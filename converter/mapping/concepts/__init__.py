"""What several formats mean alike, said once: a concept parses, checks, knows the defaults of ONNX
and refuses; a format reads and writes its spelling, and declares what its layers have.

    axes.py               axes and permutations
    matmul.py             transposed operands of matrix products
    window.py             kernel, strides, dilations, padding and rounding of convolutions and pools
    transposed_window.py  the same of a transposed convolution, and where its result ends
    resize.py             which elements of an image a Resize reads
    pads.py               the amounts of a Pad

`SPELLING` of a concept names the members that a format may give; a subclass that gives no others is
the concept in the spelling of that format.
"""
