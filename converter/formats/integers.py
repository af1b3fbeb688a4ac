"""Requirements of a target's integer kernels: which values `netconv quantize` may quantize."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from converter.record import record

if TYPE_CHECKING:
    import onnx_ir as ir

NOTE = "netconv.quantization"  # metadata of a model: how it was quantized, as JSON


def quantization_of(metadata: Mapping[str, str]) -> dict[str, str | int]:
    """Return how a model was quantized, as `netconv quantize` notes it; nothing for other texts
    under this key.
    """
    if NOTE not in metadata:
        return {}
    from converter.io.strict_json import note

    found: dict[str, str | int] = note(metadata[NOTE], {str: (str, int)}) or {}
    plain = all(re.fullmatch(r"\w+:[\w.+-]*", f"{k}:{v}") for k, v in found.items())
    return found if plain else {}


def named(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


# operators whose results have the scale of their data
MOVES = named(
    """Concat DepthToSpace Expand Flatten Gather GlobalMaxPool Identity MaxPool Pad Reshape Resize
    Slice SpaceToDepth Split Squeeze Tile Transpose Unsqueeze"""
)
# operators of which nearly every target has an integer kernel
COMMON = named("Add AveragePool Conv ConvTranspose Gemm GlobalAveragePool MatMul Mul")
# The results of these have one scale in the kernels of Android: 1/256 for probabilities, 1/128 for
# Tanh, 1/16 for logarithms of probabilities.
FIXED = {
    "Softmax": (0.0, 255 / 256),
    "Sigmoid": (0.0, 255 / 256),
    "Tanh": (-1.0, 127 / 128),
    "LogSoftmax": (-255 / 16, 0.0),
}


@record
class Integers:
    """The integer kernels of a target.

    `operators`    those with a kernel, of the shared graph, in addition to `moves`
    `per_channel`  those whose constant weights may have a scale for each channel of the results
    `activations`  types of quantized values, the default first
    `narrow`       operators that the search does not give 16 bits
    `ranks`        ranks of the data of convolutions
    `biased`       whether an Add of a vector after MatMul is a part of its kernel
    `fake`         whether scales are FakeQuantize, of the operands of kernels alone, instead of
                   QuantizeLinear and DequantizeLinear, of results too
    `reason`       why a node with a kernel computes in floats all the same, "" for others
    `recurrent`    the form of the weights of recurrent layers, which compute in floats; "": floats
    `fixed`        ranges that kernels dictate for results
    `option`       the option of the flavor that writes integers
    """

    operators: frozenset[str] = COMMON
    moves: frozenset[str] = MOVES
    per_channel: frozenset[str] = named("Conv ConvTranspose Gemm MatMul")
    activations: tuple[str, ...] = ("int8", "uint8")
    narrow: frozenset[str] = frozenset()
    ranks: tuple[int, ...] = (3, 4)
    biased: bool = False
    fake: bool = False
    reason: Callable[[ir.Node], str] = lambda node: ""
    recurrent: str = ""
    fixed: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    option: str = ""
