"""Non-maximum suppression."""

from __future__ import annotations

import numpy as np

from converter.formats.coreml.neuralnetwork.rules.context import LiftContext, LowerContext
from converter.formats.coreml.neuralnetwork.rules.fields import of_type
from converter.mapping.fields import Attr, Detail
from converter.mapping.rules import op


def read_settings(r: LiftContext) -> None:
    """Read the IoU threshold, the score threshold and the number of boxes: attributes of the layer,
    or inputs from the first computed one on.
    """
    for index, key in zip((2, 3, 4), ("iouThreshold", "scoreThreshold", "maxBoxes"), strict=True):
        if r.optional(index) is None:
            dtype = np.int64 if key == "maxBoxes" else np.float32
            r.set_input(index, r.b.const(np.array(r.layer.attrs[key], dtype), key))
    r.outputs = 4


def write_settings(w: LowerContext) -> None:
    """Write constant thresholds and counts as attributes, and append operands up to the last one
    that is computed.
    """
    settings = [w.scalar(i) for i in (2, 3, 4)]
    for key, value in zip(("iouThreshold", "scoreThreshold", "maxBoxes"), settings, strict=True):
        if value is not None:
            w.layer.attrs[key] = int(value) if key == "maxBoxes" else value
    while settings and settings[-1] is not None:
        settings.pop()
    w.layer.inputs += [w.input(2 + i) for i in range(len(settings))]


SETTINGS = Detail(
    read=read_settings,
    write=write_settings,
    keys=("iouThreshold", "scoreThreshold", "maxBoxes"),
    inputs=(2, 3, 4),
)


RULES = [
    op(
        "netconv::SuppressBoxes",
        "NonMaximumSuppression",
        of_type(4),
        SETTINGS,
        Attr("per_class", "perClassSuppression", bool),
        example_inputs="1,5,4 1,5,2 =(0.5) =(0.25) =i64:(3)",
    )
]
