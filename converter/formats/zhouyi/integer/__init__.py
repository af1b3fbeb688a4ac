"""Integer IR: what the vendor's quantiser writes, as the integer arithmetic that it stands for.

Stored integers come in and go out. A tensor's value is (q + zero point) / scale: the scale is the reciprocal of ONNX's and
the zero point its negative (section 4.4 does not say so; the tools do). Arithmetic is carried by floats that hold integers,
as the vendor's executor carries it. A layer without a known integer form is refused by name.
"""

from __future__ import annotations

from converter.formats.zhouyi.integer import arithmetic, images, layers, recurrent
from converter.formats.zhouyi.integer.register import INTEGER, Quantised, keeps_integers

__all__ = ["INTEGER", "Quantised", "arithmetic", "images", "keeps_integers", "layers", "recurrent"]
