"""Integer layers of boxes, regions, samples, labels and segments in Zhouyi Compass IR against
numbers of the vendor's executor.

The expected numbers were computed by the Compass Optimizer d7b2bb7e from the files that
`write_layer` writes; those of RoiAlign, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from formats.zhouyi_integer_layers import compute_all

Array = Any
Results = list[tuple[tuple[int, ...], str]]


def pattern(*shape: int, step: int = 37, dtype: str = "int8") -> Array:
    """Integers all over the range of a type, in no order."""
    info = np.iinfo(dtype)
    spread = (np.arange(np.prod(shape), dtype=np.int64) + 3) * step * (int(info.max) // 127)
    span = int(info.max) - int(info.min) + 1
    return (spread % span + int(info.min)).reshape(shape).astype(dtype)


def ramp(low: float, high: float, dtype: str, size: int = 256) -> Array:
    """A table of `size` entries in equal steps."""
    return np.rint(np.linspace(low, high, size)).astype(dtype)


def whole(*rows: Any, dtype: str = "int32") -> Array:
    return np.array(rows, dtype)


@dataclass
class Case:
    """One layer, its feeds, shapes and types of its results."""

    kind: str
    feeds: list[Array]
    results: Results
    attrs: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    top: dict[str, Any] = field(default_factory=dict)


BOXES = whole(
    [-60, -50, 10, 20], [-55, -50, 15, 25], [-20, -10, 100, 90], [-18, -12, 96, 94], dtype="int8"
)[None]
MOVES = whole([10, -20, 5, 30], [0, 7, -90, 60], [-120, 40, 100, 3], [9, 9, -9, -9], dtype="int8")[
    None
]
DELTAS = {
    "box_scale_value": [26214, 26214, 20000, 20000, 13107],
    "box_shift_value": [20, 20, 28, 28, 8],
    "delta_shift": 1,
}
GROWN = {
    f"t{k}_lut": np.rint(8000 * np.exp(np.linspace(-1, 1, 256))).astype(np.int16) for k in "hw"
}
WINDOW = {f"pad_{a}_{e}": 1 if e == "begin" else 0 for a in "xyz" for e in ("begin", "end")} | {
    f"{k}_{a}": v for k, v in (("kernel", 2), ("stride", 2), ("dilation", 1)) for a in "xyz"
}
YUV = [0, 0, 0, 0, 128, 128, 218, 732, 74, -118, -395, 512, 512, -465, -47]
RGB = [0, 128, 128, 0, 0, 0, 256, 0, 403, 256, -48, -120, 256, 475, 0]
ALIGN = {
    "pooled_shape": [2, 2],
    "sample": [2, 1],
    "spatial_scale_value": [256, 256],
    "spatial_shift_value": 10,
    "scale_value": [128, 205],
    "shift_value": [8, 12],
    "bin_scale_value": [2048, 2048],
    "bin_shift_value": [12, 12],
    "grid_scale_value": [1024, 2048],
    "grid_shift_value": [12, 12],
}
GRID = {"scale_value": [20000, 18000], "shift_value": [9, 10]}
NMS = {
    "max_output_size": 3,
    "iou_thresh_shift": 8,
    "areas_shift": 2,
    "iou_threshold": 115,
    "score_threshold": 5,
    "scale_value": 3,
    "shift_value": 1,
}
FADE = np.exp(-(np.linspace(0, 1, 256) ** 2))
LISTS: Results = [((1, 6, 4), "int16"), ((1, 2), "uint16"), ((1, 6), "int8"), ((1, 6), "uint16")]
SCORES = whole(90, 60, 30, 80, 20, 100, dtype="int8")
NESTED = np.concatenate([BOXES, BOXES[:, 1:3] + np.int8(3)], axis=1)
# four anchors, and their boxes after the stored deltas
ANCHORS = {
    "ha": whole(200, 300, 400, 500, dtype="int16"),
    "wa": whole(250, 350, 150, 450, dtype="int16"),
    "ycenter": whole(100, 400, 500, 700, dtype="int16"),
    "xcenter": whole(300, 200, 600, 400, dtype="int16"),
    "ty_lut": ramp(-300, 300, "int16"),
    "tx_lut": ramp(-200, 250, "int16"),
    "th_lut": ramp(100, 900, "int16"),
    "tw_lut": ramp(50, 700, "int16"),
}
CASES = {
    "bounding_box": Case("BoundingBox", [BOXES, MOVES], [((1, 4, 4), "int16")], DELTAS, GROWN),
    "multibox": Case(
        "MultiboxTransformLoc",
        [pattern(1, 3, 4), MOVES.reshape(1, 16), BOXES],
        [((1, 4, 6), "int16"), ((1,), "uint16")],
        DELTAS
        | {"score_threshold_value": 20, "score_scale_value": 20971, "score_shift_value": 6}
        | {"variances": [0.1, 0.1, 0.2, 0.2]},
        GROWN,
        {"zero": 0},
    ),
    "decode_box": Case(
        "DecodeBox",
        [pattern(1, 4, 3), MOVES],
        [
            ((1, 8, 4), "int16"),
            ((1, 2), "uint16"),
            ((1, 1), "uint16"),
            ((1, 8), "int8"),
            ((1, 2), "int16"),
        ],
        {
            "class_num": 2,
            "score_threshold": 0.5,
            "score_threshold_uint8": 10,
            "box_shift": 9,
            "image_height": 900,
            "image_width": 800,
            "clip": True,
        },
        ANCHORS,
        {"zero": 0},
    ),
    "proposal": Case(
        "Proposal",
        [pattern(1, 4, 2, step=85), MOVES],
        [((1, 3), "int8"), ((1, 3, 4), "int16"), ((1, 1), "uint16"), ((1, 1), "uint16")],
        {
            "score_threshold": 0.5,
            "score_threshold_value": 3,
            "box_shift_value": 9,
            "height": 900,
            "width": 800,
            "scale_anchor": [0.25, 0.5],
        },
        ANCHORS,
        {"zero": 0},
    ),
    "region": Case(
        "Region",
        [pattern(1, 2, 2, 1, 7)],
        [
            ((1, 6), "uint8"),
            ((1, 6, 4), "int16"),
            ((1, 2), "uint16"),
            ((1, 2), "int16"),
            ((1, 1), "uint16"),
        ],
        {
            "obj_thresh": 5,
            "max_box_num": 6,
            "box_per_grid": 1,
            "class_num": 2,
            "grid_width": 2,
            "grid_height": 2,
            "grid_w_scale": 16384,
            "grid_h_scale": 16384,
            "grid_w_shift": 15,
            "grid_h_shift": 15,
            "wh_exp_scale": 40000,
            "wh_exp_shift": 18,
            "col_shift": 12,
            "row_shift": 12,
            "conf_sigmoid_shift": 15,
            "anchors_exp_h_shift": 11,
            "anchors_exp_w_shift": 11,
        },
        {
            "score_softmax_lut": np.rint(np.exp(np.linspace(-8, 0, 256)) * 2**20).astype(np.uint32),
            "conf_sigmoid_lut": ramp(0, 32768, "uint16"),
            "xy_sigmoid_lut": ramp(0, 4096, "int16"),
            "wh_exp_lut": ramp(100, 60000, "uint16"),
            "qanchors_lut": whole(3000, 5000, dtype="uint16"),
        },
        {"zero": 0},
    ),
    "suppression": Case(
        "NMS", [NESTED, whole([4, 2]), whole([2]), SCORES[None]], LISTS, NMS, {}, {"zero": 0}
    ),
    "soft_suppression": Case(
        "NMS",
        [NESTED, whole([4, 2]), whole([2]), SCORES[None]],
        LISTS,
        NMS | {"method": "GAUSSIAN", "soft_nms_sigma_in_shift": 8},
        {
            "gaussian_scale_lut": np.rint(FADE * 32768).astype(np.uint16),
            "gaussian_shift_lut": np.full(256, 15, np.uint8),
        },
        {"zero": 0},
    ),
    "fused": Case(
        "RegionFuse",
        [
            SCORES[None, :4],
            SCORES[None, 2:],
            BOXES,
            MOVES,
            *(whole(row) for row in ([1, 2, 0], [3, 0, 0], [0, 2, 0], [2, 0, 0], [2], [1])),
        ],
        [
            ((1, 8), "int8"),
            ((1, 8, 4), "int8"),
            ((1, 3), "int32"),
            ((1, 3), "int32"),
            ((1, 1), "int32"),
        ],
        {
            "score_scale_value": [255, 200],
            "score_shift_value": [8, 8],
            "box_scale_value": [4096, 3000],
            "box_shift_value": [12, 12],
            "class_num": 3,
        },
        {},
        {"zero": 0},
    ),
    "means_of_regions": Case(
        "RoiAlign",
        [pattern(1, 4, 5, 2), whole([5, 15, 25, 200, 180], [5, 60, 40, 90, 255], dtype="uint8")],
        [((2, 2, 2, 2), "int8")],
        ALIGN | {"method": "AVG", "coordinate_transformation_mode": "OUTPUT_HALF_PIXEL"},
        {},
        {"zero": 2},
    ),
    "most_of_regions": Case(
        "RoiAlign",
        [pattern(1, 4, 5, 2), whole([5, 55, 65, 200, 180], [5, 60, 90, 40, 255], dtype="uint8")],
        [((2, 2, 2, 2), "int8")],
        ALIGN | {"method": "MAX", "coordinate_transformation_mode": "HALF_PIXEL"},
        {},
        {"zero": 2},
    ),
    "parts_of_regions": Case(
        "MaxRoiPool",
        [pattern(1, 6, 5, 2), whole([5, 15, 25, 200, 180], [5, 60, 40, 90, 55], dtype="uint8")],
        [((2, 2, 3, 2), "int8")],
        {"pooled_shape": [2, 3], "spatial": [1638, 1500]},
    ),
    "crops": Case(
        "CropAndResize",
        [
            pattern(1, 5, 6, 2),
            whole([20, 30, 200, 250], [90, 0, 250, 120], dtype="uint8"),
            whole(0, 0),
        ],
        [((2, 2, 3, 2), "int8")],
        {
            "method": "BILINEAR",
            "crop_size": [2, 3],
            "extrapolation_value": 7,
            "scale_value": 257,
            "shift_value": 16,
        },
    ),
    "nearest_crops": Case(
        "CropAndResize",
        [
            pattern(1, 5, 6, 2),
            whole([20, 30, 255, 250], [90, 0, 250, 120], dtype="uint8"),
            whole(0, 0),
        ],
        [((2, 2, 3, 2), "int8")],
        {
            "method": "NEAREST",
            "crop_size": [2, 3],
            "extrapolation_value": 7,
            "scale_value": 257,
            "shift_value": 16,
        },
    ),
    "grid": Case(
        "GridSample",
        [pattern(1, 4, 5, 2), pattern(1, 3, 2, 2, step=51)],
        [((1, 3, 2, 2), "int8")],
        GRID
        | {"method": "BILINEAR", "padding_mode": "ZEROS", "align_corners": False}
        | {"coordinate_x_shift": 10, "coordinate_y_shift": 10},
        {
            "lutx": ramp(-2, 5, "int16"),
            "luty": ramp(-1, 4, "int16"),
            "x_terp": pattern(256, dtype="uint16") % np.uint16(1024),
            "y_terp": pattern(256, step=53, dtype="uint16") % np.uint16(1024),
        },
    ),
    "grid_of_16_bits": Case(
        "GridSample",
        [pattern(1, 4, 5, 2), pattern(1, 3, 2, 2, step=51, dtype="int16") // np.int16(8)],
        [((1, 3, 2, 2), "int8")],
        {"scale_value": [20000, 18000], "shift_value": [15, 15]}
        | {"method": "BILINEAR", "padding_mode": "BORDER", "align_corners": True}
        | {"coordinate_x_shift": 11, "coordinate_y_shift": 11},
    ),
    "grid_of_volumes": Case(
        "GridSample",
        [pattern(1, 3, 4, 5, 1), pattern(1, 1, 3, 2, 3, step=51, dtype="int16") // np.int16(8)],
        [((1, 1, 3, 2, 1), "int8")],
        {"scale_value": [20000, 18000, 9000], "shift_value": [15, 15, 15]}
        | {"method": "BILINEAR", "padding_mode": "ZEROS", "align_corners": True}
        | {f"coordinate_{a}_shift": 11 for a in "xyz"},
    ),
    "brightness": Case(
        "RgbToYuv",
        [pattern(1, 2, 4, 3, dtype="uint8")],
        [((1, 12), "uint8")],
        {"coefficient": [3, 0, 5, *YUV[3:]], "coefficient_shift": 10, "bits": 8}
        | {"conversion": "SELF", "format": "I420"},
    ),
    "colour": Case(
        "YuvToRgb",
        [pattern(1, 12, dtype="uint8")],
        [((1, 2, 4, 3), "uint8")],
        {"coefficient": RGB, "coefficient_shift": 8, "bits": 8},
    ),
    "mean_of_volumes": Case(
        "Pooling3D",
        [pattern(1, 3, 3, 4, 1)],
        [((1, 2, 2, 2, 1), "int8")],
        WINDOW | {"method": "AVG", "ceil_mode": False, "count_include_pad": True},
    ),
    "mean_of_what_is_inside": Case(
        "Pooling3D",
        [pattern(1, 3, 3, 4, 1)],
        [((1, 2, 2, 2, 1), "int8")],
        WINDOW | {"method": "AVG", "ceil_mode": False, "count_include_pad": False},
    ),
    "products_so_far": Case(
        "Cumulate",
        [pattern(2, 5)],
        [((2, 5), "int8")],
        {"axis": 1, "method": "PROD", "exclusive": False, "reverse": True},
        {
            "scale": whole(20000, 21000, 22000, 23000, 24000, dtype="uint16"),
            "shift": whole(15, 21, 27, 33, 39),
        },
    ),
    "elu_whose_alpha_only_the_table_tells": Case(
        "Activation",
        [pattern(3, 4)],
        [((3, 4), "int8")],
        {"method": "ELU"},
        {"lut": ramp(-40, 100, "int8")},
    ),
    "drawn_windows": Case(
        "FractionalPool",
        [pattern(1, 7, 5, 1)],
        [((1, 4, 3, 1), "int8"), ((5,), "int16"), ((4,), "int16")],
        {"method": "AVG", "pseudo": False, "overlap": True, "seed": 99},
        {},
        {"zero": 2},
    ),
    "on_a_grid_already": Case(
        "FakeQuantWithMinMaxVars",
        [pattern(1, 4)],
        [((1, 4), "int8")],
        {"min": -1.0, "max": 1.0, "num_bits": 4, "narrow_range": False},
        {},
        {"zero": 2},
    ),
    **{
        f"gates_of_{bits}_bits_{kind.lower()}": Case(
            kind,
            [
                pattern(2, 3, 3, dtype=f"int{bits}"),
                pattern(2, 2, step=91, dtype=f"int{bits}"),
            ],
            [((2, 3, 2), f"int{bits}")],
            {
                "time_steps": 3,
                "input_size": 3,
                "cell_size": 2,
                "direction": "forward",
                "activations": ["SIGMOID", "TANH"],
                "out_sequence": ["H"],
                "hidden_scale_value": 150,
                "hidden_shift_value": 14 + bits - 8,
                "scale_value": [201, 171, 190, 180, 140, 150],
                "shift_value": [9, 15 + bits - 8, 9 + bits - 8, 15 + bits - 8, 7, 14 + bits - 8],
            },
            {
                "weights": pattern(6, 5, step=53),
                "biases": np.arange(8, dtype=np.int32) * 300 - 900,
                "lut_rt": ramp(0, 2 ** (bits - 1) - 1, f"int{bits}"),
                "lut_zt": ramp(0, 2 ** (bits - 1) - 1, f"int{bits}"),
                "lut_ht": ramp(1 - 2 ** (bits - 1), 2 ** (bits - 1) - 1, f"int{bits}"),
            },
            {"zero": 0},
        )
        for bits in (8, 16)
        for kind in ("GRUv1", "GRUv3")
    },
    "segments": Case(
        "SegmentReduce",
        [pattern(4, 3), whole(5, 5, 7, 7)],
        [((3, 3), "int8")],
        {"method": "SUM", "scale_value": 181, "shift_value": 9},
    ),
    **{
        f"embeddings_{name.lower()}": Case(
            "EmbeddingLookupSparse",
            [
                pattern(5, 3),
                whole([0, 0], [0, 1], [2, 0]),
                whole(1, 4, 0),
                whole(50, 70, 90, dtype="uint8"),
            ],
            [((3, 3), "int8")],
            {"combiner": name, "max_norm": "NONE", **keys},
            {"lut": np.zeros(193, np.int16)},
        )
        for name, keys in {
            "SUM": {"scale_value": 181, "shift_value": 14},
            "MEAN": {"scale_value": 20000, "shift_value": 15},
            "SQRTN": {
                "scale_value": [200, 120],
                "shift_value": [14, 2],
                "reciprocal_shift_value": 0,
            },
        }.items()
    },
    "moments_of_sums": Case(
        "NormalizedMoments",
        [pattern(1, 4), pattern(1, 4, step=29, dtype="uint8"), pattern(1, 4, step=91)],
        [((1, 4), "int8"), ((1, 4), "int8")],
        {
            "counts": 12.0,
            "mean_scale_value": [23000, 900, 15000],
            "mean_shift_value": 31,
            "var_scale_value": [23000, 14000, 700],
            "var_shift_value": 31,
        },
        {"lut": ramp(0, 255, "uint8")},
    ),
    "sums_of_squares": Case(
        "SufficientStatistics",
        [pattern(3, 4), pattern(1, 1)],
        [((1, 4), "int8"), ((1, 4), "uint8")],
        {
            "axis": [0],
            "scale_value": [20000, 21000, 32000, 30000],
            "shift_value": [22, 36, 9, 9],
        },
        {},
        {"zero": 0},
    ),
    "hits": Case(
        "AccidentalHits",
        [whole([3, 5], [7, 3], [1, 1]), whole(7, 3, 5, 3)],
        [((6,), "int16"), ((6,), "int16"), ((1,), "int16")],
        {},
        {},
        {"zero": 0},
    ),
    "bits": Case(
        "BitShift",
        [whole(1, -77, 100, 5), whole(1, 2, 3, 4)],
        [((4,), "int32")],
        {"direction": "LEFT"},
        {},
        {"zero": 0},
    ),
    "histogram": Case(
        "Count",
        [pattern(2, 9)],
        [((2, 4), "uint16")],
        {"nbins": 4, "min": -100, "max": 120, "discrete": True},
        {},
        {"zero": 0},
    ),
    "labels": Case(
        "CTCGreedyDecoder",
        [pattern(1, 6, 3), whole(5)],
        [((1, 8, 1, 1), "uint16")],
        {"merge_repeated": True},
        {},
        {"zero": 0},
    ),
    "valid": Case(
        "GetValidCount",
        [pattern(1, 4, 3)],
        [((1,), "int16"), ((1, 4, 3), "int8"), ((1, 4), "int16")],
        {"score_index": 1, "id_index": -1, "score_threshold_value": 3},
        {},
        {"zero": 0},
    ),
    "unpooled": Case(
        "MaxUnpool",
        [pattern(1, 2, 2, 1), whole([[[[1], [6]], [[8], [15]]]]).reshape(1, 2, 2, 1)],
        [((1, 4, 4, 1), "int8")],
        {"flatten_dim": "HW", "storage_order": 0},
        {},
        {"zero": 2, "scale": 40.0},
    ),
}
WANTED: dict[str, list[list[int]]] = {
    "elu_whose_alpha_only_the_table_tells": [[21, 41, 62, 82, -38, -18, 2, 23, 43, 63, 84, -37]],
    "drawn_windows": [
        [-16, 40, 13, -8, -24, -30, -8, 5, -1, -29, -59, -22],
        [0, 1, 3, 5, 7],
        [0, 2, 3, 5],
    ],
    "on_a_grid_already": [[-17, 20, 57, 94]],
    "gates_of_8_bits_gruv1": [[-66, -36, -42, 57, -45, 15, 84, -108, -23, -32, -7, -63]],
    "gates_of_8_bits_gruv3": [[-68, -38, -45, 56, -48, 13, 84, -108, -22, -31, -7, -63]],
    "gates_of_16_bits_gruv1": [
        [-16317, -2529, -9524, -1303, -5539, -699, 11442, -13481, 6767, -7836, 4065, -4577]
    ],
    "gates_of_16_bits_gruv3": [
        [-16317, -2529, -9524, -1303, -5539, -699, 11442, -13481, 6767, -7836, 4065, -4577]
    ],
    "bounding_box": [[0, 0, 1485, 0, 0, 0, 0, 3277, 0, 3482, 0, 9728, 0, 0, 5888, 5786]],
    "multibox": [
        [
            1,
            8191,
            0,
            0,
            1434,
            0,
            1,
            20315,
            0,
            0,
            0,
            3226,
            1,
            32439,
            0,
            3430,
            0,
            9677,
            -1,
            -1,
            -1,
            -1,
            -1,
            -1,
        ],
        [3],
    ],
    "decode_box": [
        [
            9,
            185,
            209,
            405,
            491,
            281,
            900,
            591,
            9,
            185,
            209,
            405,
            0,
            572,
            598,
            684,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
        ],
        [2, 2],
        [2],
        [22, 99, 59, 25, 0, 0, 0, 0],
        [0, 1],
    ],
    "region": [
        [6, 9, 0, 0, 0, 0],
        [0, 0, 4096, 3451, 4096, 461, 0, 4096, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        [2, 0],
        [1, 0],
        [1],
    ],
    "suppression": [
        [
            -87,
            -72,
            18,
            33,
            -24,
            -15,
            147,
            144,
            -23,
            -8,
            157,
            142,
            -75,
            -68,
            30,
            45,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
        ],
        [2, 2],
        [90, 80, 100, 20, 0, 0],
        [0, 3, 1, 0, 0, 0],
    ],
    "soft_suppression": [
        [
            -87,
            -72,
            18,
            33,
            -24,
            -15,
            147,
            144,
            -80,
            -72,
            25,
            40,
            -23,
            -8,
            157,
            142,
            -75,
            -68,
            30,
            45,
            0,
            0,
            0,
            0,
        ],
        [3, 2],
        [90, 79, 30, 100, 19, 0],
        [0, 3, 1, 1, 0, 0],
    ],
    "fused": [
        [89, 59, 29, 23, 62, 15, 0, 0],
        [
            -60,
            -50,
            10,
            20,
            -55,
            -50,
            15,
            25,
            -20,
            -10,
            100,
            90,
            7,
            -15,
            3,
            21,
            0,
            5,
            -66,
            43,
            -88,
            29,
            73,
            2,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
        ],
        [1, 5, 0],
        [0, 2, 0],
        [2],
    ],
    "means_of_regions": [[-1, -9, -44, -7, -5, 7, 35, -27, -42, -17, -16, 21, -49, -24, 21, 14]],
    "most_of_regions": [[12, 19, 17, 28, 18, 8, 5, 13, -2, -2, -2, -2, -2, -2, -2, -2]],
    "parts_of_regions": [
        [
            97,
            94,
            103,
            100,
            63,
            100,
            115,
            106,
            115,
            112,
            109,
            118,
            -85,
            -48,
            -85,
            -48,
            -85,
            -48,
            29,
            66,
            29,
            66,
            29,
            66,
        ]
    ],
    "crops": [
        [
            4,
            41,
            -71,
            -34,
            67,
            -54,
            68,
            -25,
            -19,
            9,
            -68,
            -31,
            -8,
            -76,
            -26,
            11,
            7,
            44,
            -28,
            9,
            55,
            33,
            42,
            -73,
        ]
    ],
    "nearest_crops": [
        [
            57,
            94,
            -51,
            -14,
            97,
            -122,
            41,
            78,
            -67,
            -30,
            81,
            118,
            -85,
            -48,
            -11,
            26,
            63,
            100,
            -33,
            4,
            41,
            78,
            115,
            -104,
        ]
    ],
    "grid": [[-1, 23, -2, -2, -53, -20, -2, -2, -12, -17, -4, -1]],
    "grid_of_16_bits": [[44, -80, -34, -43, 54, -53, -23, 14, -30, -16, 40, -77]],
    "grid_of_volumes": [[-65, -37, 34, -22, -76, -61]],
    "brightness": [[81, 47, 196, 162, 147, 113, 79, 99, 145, 46, 216, 100]],
    "colour": [
        [
            255,
            207,
            70,
            72,
            43,
            0,
            4,
            152,
            66,
            6,
            244,
            174,
            110,
            0,
            0,
            112,
            83,
            0,
            44,
            192,
            106,
            46,
            255,
            214,
        ]
    ],
    "mean_of_volumes": [[5, 17, -5, 10, 10, -24, -5, 7]],
    "mean_of_what_is_inside": [[-17, 38, -51, 4, 9, -64, -25, -2]],
    "products_so_far": [[17, -34, -107, -111, -68, 4, 9, 4, 23, 45]],
    "proposal": [[126, 40, 0], [336, 44, 464, 406, 0, 572, 598, 684, 0, 0, 0, 0], [2], [1]],
    "segments": [[36, -29, -3, 7, 7, 7, 12, 38, -27]],
    "embeddings_sum": [[-4, -100, -50, 7, 7, 7, -8, 29, 67]],
    "embeddings_mean": [[2, -41, -18, 7, 7, 7, -2, 20, 43]],
    "embeddings_sqrtn": [[3, -33, -14, 7, 7, 7, 1, 15, 29]],
    "moments_of_sums": [[-11, 4, 19, -7], [32, 40, 10, 18]],
    "sums_of_squares": [[-15, 17, 50, 7], [15, 15, 25, 28]],
    "hits": [[0, 0, 0, 1, 1, 1], [1, 3, 2, 0, 1, 3], [6]],
    "bits": [[2, -308, 800, 80]],
    "histogram": [[2, 2, 3, 1, 2, 1, 3, 2]],
    "labels": [[0, 1, 65535, 65535, 65535, 65535, 65535, 65535]],
    "valid": [[2], [-17, 20, 57, 60, 97, -122, -1, -1, -1, -1, -1, -1], [0, 3, -1, -1]],
    "unpooled": [[-2, -17, -2, -2, -2, -2, 20, -2, 57, -2, -2, -2, -2, -2, -2, 94]],
}


@pytest.mark.parametrize("name", CASES)
def test_layers_agree_with_the_executor(name: str, tmp_path: Path) -> None:
    c = CASES[name]
    found = compute_all(tmp_path, c.kind, c.feeds, c.results, c.attrs, c.constants, **c.top)
    assert [v.reshape(-1).tolist() for v in found] == WANTED[name]


@pytest.mark.parametrize(
    "name",
    [
        "bounding_box",
        "multibox",
        "brightness",
        "colour",
        "drawn_windows",
        "on_a_grid_already",
        "means_of_regions",
        "decode_box",
        "proposal",
        "elu_whose_alpha_only_the_table_tells",
        "region",
    ],
)
def test_layers_that_only_integers_describe_are_the_same_as_numbers(
    name: str, tmp_path: Path
) -> None:
    c, top = CASES[name], CASES[name].top | {"numbers": True}
    found = compute_all(tmp_path, c.kind, c.feeds, c.results, c.attrs, c.constants, **top)
    assert [v.reshape(-1).tolist() for v in found] == WANTED[name]
