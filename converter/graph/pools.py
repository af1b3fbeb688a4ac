"""What onnx's inference gets wrong about pooling that rounds up."""

from __future__ import annotations

import onnx_ir as ir

ROUNDED = {"AveragePool", "LpPool", "MaxPool"}


def without_windows_in_padding(node: ir.Node) -> None:
    """A last window that begins behind the data and its first padding is left out (MaxPool,
    `ceil_mode`); onnx's inference counts it.
    """
    a, x = node.attributes, node.inputs[0]
    if (
        "ceil_mode" not in a
        or not a["ceil_mode"].as_int()
        or ("auto_pad" in a and a["auto_pad"].as_string() != "NOTSET")
    ):
        return
    n = len(a["kernel_shape"].as_ints())
    strides = a["strides"].as_ints() if "strides" in a else [1] * n
    pads = a["pads"].as_ints() if "pads" in a else [0] * 2 * n
    for out in node.outputs:
        if x is None or x.shape is None or out.shape is None:
            continue
        dims = list(out.shape)
        for i, (size, stride, begin) in enumerate(
            zip(list(x.shape)[2:], strides, pads, strict=False), 2
        ):
            count = dims[i]
            if (
                isinstance(size, int)
                and isinstance(count, int)
                and (count - 1) * stride >= size + begin
            ):
                dims[i] = count - 1
        out.shape = ir.Shape(dims)
