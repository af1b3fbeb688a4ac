"""A network of halves computed in floats: what lies between the two is rounding, and where halves
overflow they say nothing.

onnxruntime computes halves in floats and rounds where it likes: after every turn of a loop, not
between the same layers written out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from google.protobuf.message import Message
from onnx import numpy_helper

from converter.graph.infer import Array

_HALF, _FLOAT = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
_NAMING_A_TYPE = ("to", "dtype", "output_dtype")


def in_floats(proto: onnx.ModelProto, lent: list[tuple[str, Array]]) -> None:
    """Every half of the model becomes a float, in place; `lent` are the weights (name, array) that
    the model reads from elsewhere.
    """
    lent[:] = [
        (name, array.astype(np.float32) if array.dtype == np.float16 else array)
        for name, array in lent
    ]
    _widen(proto)


def _widen(message: Any) -> None:
    """Depth-first through the whole message: sub-graphs and functions are inside it."""
    if isinstance(message, onnx.TensorProto):
        _tensor(message)
    elif isinstance(message, onnx.TypeProto.Tensor) and message.elem_type == _HALF:
        message.elem_type = _FLOAT
    elif (
        isinstance(message, onnx.AttributeProto)
        and message.name in _NAMING_A_TYPE
        and message.i == _HALF
    ):
        message.i = _FLOAT
    for _, value in message.ListFields():
        if isinstance(value, Message):
            _widen(value)
        elif (
            not isinstance(value, str | bytes | int | float)
            and len(value)
            and isinstance(value[0], Message)
        ):
            for item in value:
                _widen(item)


def _tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type != _HALF:
        return
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        tensor.data_type = _FLOAT
    else:
        tensor.CopyFrom(
            numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name)
        )
