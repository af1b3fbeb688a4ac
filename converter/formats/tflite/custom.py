"""Options of operators that are no builtins, which each defines for itself: a FlexBuffer map, or
the bytes of a structure of C.
"""

from __future__ import annotations

import struct
from typing import Any

from converter.errors import MappingError
from converter.formats.tflite.codec import LiteOperator

# Structures of 32-bit integers, by the names of their members. Source: TfLiteTransposeConvParams
# and TfLitePoolParams of TensorFlow Lite's builtin_op_data.h, which MediaPipe's operators carry.
_POOL = "padding stride_w stride_h filter_w filter_h fused_activation_function"
STRUCTURES = {
    "Convolution2DTransposeBias": "padding stride_w stride_h",
    "MaxPoolingWithArgmax2D": _POOL,
    "MaxUnpooling2D": _POOL,
}


# operators of StableHLO for which the runtime has kernels
EXECUTED = frozenset(
    f"STABLEHLO_{name}"
    for name in (
        *("ADD", "AND", "CASE", "COMPOSITE", "GATHER", "MAXIMUM", "MINIMUM", "MULTIPLY", "PAD"),
        *("REDUCE_WINDOW", "RNG_BIT_GENERATOR", "SCATTER", "SHIFT_LEFT"),
    )
)
BYTES = "custom_options"  # the name for options that are no map


def reason_against(kind: str) -> str:
    """Return why there is no reader of an operator, if a specific reason is known; else ""."""
    if kind.startswith("Flex"):
        return (
            f"{kind} is an operator of TensorFlow itself, which only TensorFlow's "
            "runtime can execute"
        )
    if kind == "CONCAT_EMBEDDINGS":
        return f"{kind} has no kernel in the runtime and no definition"
    if kind.startswith("STABLEHLO_") and kind not in EXECUTED:
        return f"{kind} has no kernel in the runtime; convert it to TensorFlow Lite's own operators"
    if kind == "DELEGATE":
        return f"{kind} is Python code of one process, which no file contains"
    if kind == "SKIP_GRAM":
        return f"{kind} computes strings, which no ONNX operator does"
    return ""


def parameters_of(operator: LiteOperator) -> dict[str, Any]:
    """Return the options by name; none if the bytes are not a map."""
    content = operator.content
    if operator.custom in STRUCTURES:
        names = STRUCTURES[operator.custom].split()
        if len(content) < 4 * len(names):
            raise MappingError(
                f"{4 * len(names)} bytes of options are needed, got {len(content)}", "R103"
            )
        return dict(zip(names, struct.unpack_from(f"<{len(names)}i", content), strict=True))
    if not content:
        return {}
    from flatbuffers import flexbuffers

    try:
        found = flexbuffers.Loads(content)
    except (struct.error, IndexError, ValueError, TypeError, KeyError, UnicodeDecodeError):
        return {}
    return dict(found) if isinstance(found, dict) else {}


def carried_parameters(operator: LiteOperator) -> dict[str, Any]:
    """Return the options by name, or the bytes as one text of hexadecimal digits."""
    if found := parameters_of(operator):
        return found
    return {BYTES: operator.content.hex()} if operator.content else {}


def content_of(parameters: dict[str, Any]) -> bytes:
    """Return the options by name as a FlexBuffer map; other bytes unchanged."""
    if parameters.keys() == {BYTES}:
        return bytes.fromhex(str(parameters[BYTES]))
    from flatbuffers import flexbuffers

    return bytes(flexbuffers.Dumps(parameters))
