"""Attributes of standard operators that have one of a few words or numbers.

Source: ONNX operators, opset 21.
"""

from __future__ import annotations

import onnx_ir as ir

_REDUCTIONS = ("none", "add", "mul", "max", "min")
_LOSSES = ("none", "sum", "mean")
_DIRECTIONS = ("forward", "reverse", "bidirectional")
_PADDING = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")

WORDS: dict[str, dict[str, tuple[str | int, ...]]] = {
    **{
        op: {"auto_pad": _PADDING}
        for op in (
            "Conv",
            "ConvTranspose",
            "ConvInteger",
            "QLinearConv",
            "AveragePool",
            "MaxPool",
            "LpPool",
        )
    },
    **{op: {"reduction": _REDUCTIONS} for op in ("ScatterElements", "ScatterND")},
    **{
        op: {"reduction": _LOSSES}
        for op in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
    },
    "LSTM": {"direction": _DIRECTIONS, "layout": (0, 1), "input_forget": (0, 1)},
    "GRU": {"direction": _DIRECTIONS, "layout": (0, 1), "linear_before_reset": (0, 1)},
    "RNN": {"direction": _DIRECTIONS, "layout": (0, 1)},
    "BitShift": {"direction": ("LEFT", "RIGHT")},
    "DepthToSpace": {"mode": ("DCR", "CRD")},
    "Gelu": {"approximate": ("none", "tanh")},
    "GridSample": {
        "mode": ("linear", "nearest", "cubic"),
        "padding_mode": ("zeros", "border", "reflection"),
        "align_corners": (0, 1),
    },
    "IsInf": {"detect_positive": (0, 1), "detect_negative": (0, 1)},
    "LpNormalization": {"p": (1, 2)},
    "Mod": {"fmod": (0, 1)},
    "NonMaxSuppression": {"center_point_box": (0, 1)},
    "Pad": {"mode": ("constant", "reflect", "edge", "wrap")},
    "Resize": {
        "mode": ("nearest", "linear", "cubic"),
        "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
        "coordinate_transformation_mode": (
            *(
                "half_pixel",
                "half_pixel_symmetric",
                "pytorch_half_pixel",
                "align_corners",
                "asymmetric",
            ),
            *("tf_half_pixel_for_nn", "tf_crop_and_resize"),
        ),
        "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
        "antialias": (0, 1),
        "exclude_outside": (0, 1),
    },
    "RoiAlign": {
        "mode": ("avg", "max"),
        "coordinate_transformation_mode": ("half_pixel", "output_half_pixel"),
    },
    "StringNormalizer": {"case_change_action": ("NONE", "LOWER", "UPPER")},
}


def unknown_word(node: ir.Node) -> str | None:
    """Return which attribute has a value that is unknown to the operator, or None."""
    for name, known in WORDS.get(node.op_type, {}).items():
        attribute = node.attributes.get(name)
        if attribute is not None and not attribute.is_ref() and attribute.value not in known:
            return (
                f"{name} must be one of {', '.join(map(str, known))}, got "
                f"{str(attribute.value)[:60]!r}"
            )
    return None
