"""Less common forms of integer layers of Zhouyi Compass IR against numbers of the vendor's
executor.

The expected numbers were computed by the Compass Optimizer d7b2bb7e from the files that
`write_layer` writes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import converter
from converter.errors import ConverterError
from formats.test_zhouyi_executed import BYTE, pattern, ramp
from formats.test_zhouyi_executed_regions import ALIGN, Case, whole
from formats.zhouyi_integer_layers import compute_all, write_layer

MAPS = [pattern(1, 12 >> i, 16 >> i, 2, step=29 + 2 * i) for i in range(4)]
PYRAMID: dict[str, Any] = {
    "resize_height": 2,
    "resize_width": 2,
    "image_height": 48,
    "image_width": 64,
    "spatial_scale_value": [0.25, 0.125, 0.0625, 0.03125],
    "proposal_normalized": False,
    "scale_value": [246, 251, 178, 153],
    "shift_value": [9, 9, 9, 9],
    "input_scale": [16448, 16448, 16448, 16448],
    "input_shift": [7, 8, 9, 10],
    "spatial_shift": 10,
    "levels": [900, 3000, 9000],
}
REGIONS = whole([10, 12, 30, 40], [20, 5, 70, 60], [3, 40, 120, 90], [0, 0, 47, 63], dtype="uint8")
CORNERS = whole([10, 12, 90, 60], [120, 5, 250, 160], [3, 40, 20, 90], [0, 30, 200, 63])
PROPOSALS = {
    "pre_nms_topn": 6,
    "post_nms_topn": 4,
    "image_height": 32,
    "image_width": 40,
    "min_size": 300,
    "iou_threshold": 600,
    "anchor_scale": 128,
    "delta_shift": 10,
}
ANCHORS = {
    "wa_q": whole(1500, 900, 2200, 1300, 1700, 800, 2500, 1000, dtype="int16"),
    "ha_q": whole(1200, 1100, 900, 2300, 800, 1900, 1500, 1300, dtype="int16"),
    "xcenter_a_q": whole(700, 900, 2500, 2700, 1700, 1800, 4000, 3000, dtype="int16"),
    "ycenter_a_q": whole(800, 900, 1500, 1700, 2500, 2600, 3300, 3000, dtype="int16"),
    "xy_lut": ramp(-900, 900, "int32"),
    "wh_lut": ramp(500, 1800, "int32"),
}
POWERS = np.rint(2.0 ** (15 + np.arange(256) / 256)).astype(np.uint16)
LOGARITHMS = np.rint(32768 * np.log2(1 + np.arange(256) / 256)).astype(np.int16)
NORM = {"axis": [1], "epsilon": 1e-5, "norm_scale_value": 1}
GRU = {
    "time_steps": 4,
    "input_size": 30,
    "cell_size": 3,
    "activations": ["SIGMOID", "TANH"],
    "direction": "forward",
    "out_sequence": ["H", "Hn"],
    "version": "GRUV3",
    "remain_shift": 10,
}
WIDE_GATES = {
    f"lut_{g}t": ramp(low, 32767, "int16") for g, low in (("r", 0), ("z", 0), ("h", -32767))
}
FADING = {
    "gaussian_scale_lut": ramp(65535, 9000, "uint16"),
    "gaussian_shift_lut": np.full(256, 16, np.uint8),
}

CASES = {
    "pyramid": Case(
        "PyramidROIAlign",
        [REGIONS[None], *MAPS],
        [((4, 2, 2, 2), "int8")],
        PYRAMID | {"sample": [2, 1], "coordinate_transformation_mode": "HALF_PIXEL"},
        {},
        {"zero": 2},
    ),
    "pyramid_whose_boxes_decide": Case(
        "PyramidROIAlign",
        [REGIONS[None], *MAPS],
        [((4, 2, 2, 2), "int8")],
        PYRAMID | {"sample": [0, 0], "coordinate_transformation_mode": "OUTPUT_HALF_PIXEL"},
        {},
        {"zero": 2},
    ),
    "first_of_two_pyramids": Case(
        "PyramidROIAlign",
        [np.repeat(v, 2, axis=0) for v in (REGIONS[None], *MAPS)],
        [((4, 2, 2, 2), "int8")],
        PYRAMID | {"sample": [1, 1], "coordinate_transformation_mode": "HALF_PIXEL"},
        {},
        {"zero": 2},
    ),
    "pyramid_of_parts": Case(
        "PyramidROIAlign",
        [CORNERS[None].astype(np.int16) * 128, *MAPS],
        [((4, 2, 2, 2), "int8")],
        PYRAMID
        | {"proposal_normalized": True, "box_input_qvalue": 15, "sample": [2, 2]}
        | {"coordinate_transformation_mode": "HALF_PIXEL"},
    ),
    "regions_that_decide": Case(
        "RoiAlign",
        [pattern(1, 9, 8, 2), whole([5, 15, 25, 110, 80], [5, 60, 40, 90, 105], dtype="uint8")],
        [((2, 2, 2, 2), "int8")],
        ALIGN
        | {"method": "AVG", "sample": [0, 0]}
        | {"coordinate_transformation_mode": "OUTPUT_HALF_PIXEL"},
        {},
        {"zero": 2},
    ),
    "most_where_regions_decide_across": Case(
        "RoiAlign",
        [pattern(1, 9, 8, 2), whole([5, 15, 25, 110, 80], [5, 60, 40, 90, 105], dtype="uint8")],
        [((2, 2, 2, 2), "int8")],
        ALIGN
        | {"method": "MAX", "sample": [2, 0]}
        | {"coordinate_transformation_mode": "HALF_PIXEL"},
        {},
        {"zero": 2},
    ),
    "generated_proposals": Case(
        "GenerateProposals",
        [
            whole([9, 70, 33, 50], [120, 64, 10, 99], dtype="uint8").reshape(1, 2, 2, 2),
            pattern(1, 2, 2, 8, step=23) // np.int8(2),
            whole([32, 40, 1], dtype="uint8"),
        ],
        [((1, 4), "uint8"), ((1, 4, 4), "uint16"), ((1, 4, 1), "uint16"), ((1, 1), "uint16")],
        PROPOSALS,
        ANCHORS,
        {"zero": 0},
    ),
    "products_of_elements": Case(
        "ScatterElements",
        [pattern(3, 4), whole([0, 2, 1, 0], [0, 1, 1, 2], dtype="int32"), pattern(2, 4, step=91)],
        [((3, 4), "int8")],
        {"axis": 0, "reduction": "MUL", "scale_value": [9000, 9362], "shift_value": [12, 19]},
    ),
    "products_of_slices": Case(
        "ScatterND",
        [pattern(3, 4), whole([0], [2], [0], dtype="int32"), pattern(3, 4, step=91)],
        [((3, 4), "int8")],
        {"reduction": "MUL", "scale_value": [1, 181, 164], "shift_value": [8, 0, 13]},
    ),
    "both_signs": Case(
        "Activation",
        [pattern(2, 3)],
        [((2, 6), "uint8")],
        {"method": "CRELU", "axis": 1, "scale_value": 181, "shift_value": 7},
        {},
        BYTE,
    ),
    "softmax_of_short_floats": Case(
        "Softmax",
        [pattern(3, 5)],
        [((3, 5), "uint8")],
        {"axis": 1, "quantize_method": "LUT", "is_perf_mode": True}
        | {"scale_value": 1, "shift_value": 0},
        {
            "lut": ramp(0, 1, "uint8"),
            "float_lut": np.exp2(np.arange(513) / 512).astype(np.float32),
        },
        {"zero": 0, "scale": 255.0},
    ),
    "softmax_by_tables_of_powers": Case(
        "Softmax",
        [pattern(3, 5)],
        [((3, 5), "uint8")],
        {"axis": 1, "quantize_method": "FAST_EXP", "adjust_q": 12, "pow2_out_q": 29}
        | {"input_scale_value": 5892, "input_shift_value": 17},
        {"log2_lut": LOGARITHMS, "pow2_lut": POWERS},
        {"zero": 0, "scale": 255.0},
    ),
    "mean_and_root": Case(
        "LayerNorm",
        [pattern(2, 6)],
        [((2, 6), "int8"), ((2, 1), "int8"), ((2, 1), "uint16")],
        NORM | {"var_shift_value": 0, "norm_shift_value": 1, "scale_value": 150, "shift_value": 9},
        {"weights": pattern(6), "biases": whole(500, 0, -900, 70, 8, 33, dtype="int32")},
        {"zero": 0},
    ),
    "root_mean_square": Case(
        "RMSNorm",
        [pattern(2, 6)],
        [((2, 6), "int8")],
        NORM
        | {"norm_scale_value": 181, "norm_shift_value": 9}
        | {"scale_value": 150, "shift_value": 13},
        {"weights": pattern(6, step=41)},
    ),
    "norm_of_four": Case(
        "LayerNorm",
        [pattern(2, 4)],
        [((2, 4), "int8")],
        NORM
        | {"var_shift_value": -2, "norm_shift_value": -1}
        | {"scale_value": 1, "shift_value": 7},
        {"weights": pattern(4), "biases": whole(500, 0, -900, 70, dtype="int32")},
    ),
    "even_window": Case(
        "LRN",
        [pattern(1, 4, 3, 1)],
        [((1, 4, 3, 1), "int8")],
        {"method": "WITHIN_CHANNEL", "size": 2, "alpha": 0.1, "beta": 0.5, "bias": 1.0}
        | {"scale_sum_value": 200, "shift_sum_value": 8, "scale_value": 181, "shift_value": 23},
        {"lut": ramp(65535, 9000, "uint16")},
    ),
    "window_of_nothing": Case(
        "Pooling",
        [pattern(1, 3, 3, 1)],
        [((1, 3, 2, 1), "int8")],
        {f"{k}_{a}": v for k, v in (("kernel", 2), ("stride", 2), ("dilation", 1)) for a in "xy"}
        | {"pad_left": 0, "pad_right": 0, "pad_top": 1, "pad_bottom": 1}
        | {"method": "AVG", "ceil_mode": True, "count_include_pad": False},
        {},
        {"zero": 2, "scale": 40.0},
    ),
    "last_of_equals": Case(
        "TopK",
        [whole([3, 9, 9, -5, 9, 3], dtype="int8")],
        [((1, 4), "int8"), ((1, 4), "int32")],
        {"axis": 1, "k": 4, "largest": True, "sorted": True, "select_index": "last"},
        {},
        {"zero": 2, "scale": 40.0},
    ),
    "rows_without_a_sign": Case(
        "GetValidCount",
        [whole([7, 200, 5], [9, 20, 5], [3, 90, 1], dtype="uint8")[None]],
        [((1,), "int16"), ((1, 3, 3), "uint8"), ((1, 3), "int16")],
        {"score_threshold_value": 50, "score_index": 1},
        {},
        {"zero": 2, "scale": 40.0},
    ),
    "fading_of_16_bits": Case(
        "NMS",
        [
            whole(
                [100, 100, 40000, 41000],
                [300, 900, 63000, 64000],
                [20000, 20000, 60000, 65000],
                dtype="uint16",
            )[None],
            whole([3], dtype="int32"),
            whole([1], dtype="int32"),
            whole([60000, 65000, 40000], dtype="uint16"),
        ],
        [((1, 3, 4), "uint16"), ((1, 1), "int32"), ((1, 3), "uint16"), ((1, 3), "int32")],
        {
            "method": "GAUSSIAN",
            "score_threshold": 3000,
            "max_output_size": 3,
            "iou_threshold": 102,
            "iou_thresh_shift": 8,
            "areas_shift": 13,
            "soft_nms_sigma_in_shift": 8,
            "scale_value": 1,
            "shift_value": 0,
            "center_point_box": 0,
        },
        FADING,
        {"zero": 0},
    ),
    "products_of_whole_numbers": Case(
        "MatMulInteger",
        [
            whole([1, -7, 100], [3, 50, -9], dtype="int8"),
            whole([5, 2], [-1, 8], [9, 9], dtype="int8"),
        ],
        [((2, 2), "int32")],
        {"a_zero_point": 12, "b_zero_point": -5},
        {},
        {"zero": 0, "scale": 1.0},
    ),
    "quotients_and_rests": Case(
        "DivMod",
        [whole(7, -7, 100, 3, dtype="int32"), whole(2, 2, -30, 0, dtype="int32")],
        [((4,), "int32"), ((4,), "int32")],
        {"mode": "FLOOR"},
        {},
        {"zero": 0, "scale": 1.0},
    ),
    "gru_of_16_bits": Case(
        "GRUv3",
        [pattern(1, 4, 30, dtype="int16", step=169), pattern(1, 3, dtype="int16", step=61)],
        [((1, 4, 3), "int16"), ((1, 3), "int16")],
        GRU,
        {
            "weights": pattern(9, 33, step=53),
            "biases": (np.arange(9) * 900001 - 2000003).astype(np.int32),
            "scale": whole(*[20001] * 9, *[90] * 9, 16384, 16384, dtype="uint16"),
            "shift": whole(*[15] * 9, *[18] * 9, 14, 29, dtype="int8"),
            **WIDE_GATES,
        },
        {"zero": 0},
    ),
}
WANTED = {
    "both_signs": [
        "0 31 83 21 0 0 136 0 0 0 174 122",
    ],
    "even_window": [
        "-9 30 90 105 -125 -115 -51 -6 42 95 127 -128",
    ],
    "fading_of_16_bits": [
        "302 902 63002 64002 20002 20002 60002 65002 0 0 0 0",
        "2",
        "65000 24843 0",
        "1 2 0",
    ],
    "first_of_two_pyramids": [
        "-40 -26 9 23 11 11 -37 -35 -7 8 23 -6 -20 -4 33 -3 18 11 36 -41 22 15 40 -37 -3 12 "
        "-17 -2 -14 1 34 -13",
    ],
    "generated_proposals": [
        "120 99 70 64",
        "847 2141 3173 3283 2542 2887 3960 3968 408 357 1594 1873 1109 1061 1877 2999",
        "0 0 0 0",
        "4",
    ],
    "gru_of_16_bits": [
        "8156 14722 -9552 4274 6158 -5013 2211 1964 -2655 1085 -60 -1397",
        "1085 -60 -1397",
    ],
    "last_of_equals": [
        "9 9 9 3",
        "4 2 1 5",
    ],
    "mean_and_root": [
        "127 59 120 127 127 127 127 -29 -113 127 -128 127",
        "-10 -1",
        "174 185",
    ],
    "most_where_regions_decide_across": [
        "0 13 8 14 21 35 14 23 7 12 10 18 12 21 7 13",
    ],
    "norm_of_four": [
        "28 -13 57 101 28 -13 57 101",
    ],
    "products_of_elements": [
        "-3 48 127 -128 -128 -128 127 -26 55 -47 127 -71",
    ],
    "products_of_slices": [
        "57 14 46 -128 -80 -54 -28 -1 6 85 -99 -18",
    ],
    "products_of_whole_numbers": [
        "1046 908 -232 137",
    ],
    "pyramid": [
        "-78 -50 20 48 0 5 -53 -43 -13 18 44 -10 -37 -7 67 7 38 24 74 -80 46 31 82 -72 -4 "
        "27 -32 -1 -27 4 54 -24",
    ],
    "pyramid_of_parts": [
        "-20 13 4 37 -13 20 12 45 -28 7 -28 7 -28 7 -28 7 13 44 73 104 5 36 66 97 -28 7 -28 "
        "7 -28 7 -28 7",
    ],
    "pyramid_whose_boxes_decide": [
        "-23 -24 -4 9 13 -15 -9 -16 4 19 20 -29 -8 7 15 7 31 -21 5 -29 33 -18 7 -26 8 24 "
        "-24 -16 -3 12 19 -28",
    ],
    "quotients_and_rests": [
        "3 -4 -4 0",
        "1 1 -20 0",
    ],
    "regions_that_decide": [
        "-1 17 -10 9 -15 3 -60 -41 -29 -11 -50 -31 -32 -14 -36 -18",
    ],
    "root_mean_square": [
        "8 16 56 127 127 58 10 2 30 91 -103 84",
    ],
    "rows_without_a_sign": [
        "2",
        "7 200 5 3 90 1 0 0 0",
        "0 2 -1",
    ],
    "softmax_by_tables_of_powers": [
        "5 17 55 177 0 1 5 17 55 176 244 0 0 2 8",
    ],
    "softmax_of_short_floats": [
        "10 25 62 157 1 4 10 24 62 155 230 1 2 6 15",
    ],
    "window_of_nothing": [
        "2 57 -24 -32 0 0",
    ],
}


@pytest.mark.parametrize("name", CASES)
def test_forms_agree_with_the_executor(name: str, tmp_path: Path) -> None:
    c = CASES[name]
    found = compute_all(tmp_path, c.kind, c.feeds, c.results, c.attrs, c.constants, **c.top)
    assert [" ".join(map(str, v.reshape(-1).tolist())) for v in found] == WANTED[name]


@pytest.mark.parametrize(
    ("kind", "attrs", "question"),
    [
        ("Resize", {"method": "CUBIC", "mode": "HALF_PIXEL"}, "CUBIC is cubic"),
        (
            "MatMul",
            {"trans_a": False, "trans_b": False, "with_activation": "RELU"},
            (
                "it is not documented whether a MatMul applies with_activation, which "
                "the executor ignores"
            ),
        ),
    ],
)
def test_forms_that_the_executor_contradicts_are_refused(
    kind: str, attrs: dict[str, Any], question: str, tmp_path: Path
) -> None:
    feeds = [pattern(1, 4, 4, 1)] if kind == "Resize" else [pattern(4, 4), pattern(4, 4)]
    shape = (1, 8, 8, 1) if kind == "Resize" else (4, 4)
    keys = {"scale_value": 1, "shift_value": 0, **attrs}
    write_layer(tmp_path / "m.txt", kind, feeds, [(shape, "int8")], keys)
    with pytest.raises(ConverterError, match=question):
        converter.load(tmp_path / "m.txt")
