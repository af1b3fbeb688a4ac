"""Fields of rows that TensorFlow Lite and NNAPI have alike."""

from __future__ import annotations

from converter.errors import MappingError
from converter.mapping.context import Reading, Writing
from converter.mapping.fields import Field


class Neighbours(Field):
    """x / (bias + alpha * sum over `radius` neighbours on either side of x^2) ^ beta.

    ONNX divides alpha by the window.
    """

    names = ("size", "alpha")
    keys = ("radius", "alpha")

    def lift(self, r: Reading) -> None:
        size = 2 * r.attr("radius", int) + 1
        r.node.attrs |= {"size": size, "alpha": r.attr("alpha", float) * size}

    def lower(self, w: Writing) -> None:
        size = int(w.attr("size"))
        if size % 2 == 0:
            raise MappingError("a window of an even number of channels is not possible")
        w.layer.attrs |= {"radius": size // 2, "alpha": w.attr("alpha") / size}
