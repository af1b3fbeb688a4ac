"""A correction of onnx's inference for pooling that rounds up."""

from __future__ import annotations

import onnx_ir as ir

from converter.graph.verify.shapes_of import attribute, window_of

ROUNDED = {"AveragePool", "LpPool", "MaxPool"}


def without_windows_in_padding(node: ir.Node) -> None:
    """Leave out a last window that begins after the data and its begin padding (MaxPool,
    `ceil_mode`), which onnx's inference counts.
    """
    x, auto_pad = node.inputs[0], attribute(node, "auto_pad", "NOTSET")
    if not attribute(node, "ceil_mode", 0) or auto_pad != "NOTSET":
        return
    strides, _, pads = window_of(node, len(attribute(node, "kernel_shape", ())))
    for out in node.outputs:
        if x is None or x.shape is None or out.shape is None:
            continue
        dims = list(out.shape)
        windows = zip(list(x.shape)[2:], dims[2:], strides, pads, strict=False)
        for i, (size, count, stride, begin) in enumerate(windows, 2):
            if not isinstance(size, int) or not isinstance(count, int):
                continue
            if (count - 1) * stride >= size + begin:
                dims[i] = count - 1
        out.shape = ir.Shape(dims)
