"""Integer layers of Zhouyi Compass IR against numbers of the vendor's executor.

The expected numbers were computed by the Compass Optimizer d7b2bb7e from the files that `compute`
writes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from converter.formats.zhouyi.values import DType
from formats.zhouyi_integer_layers import compute

Array = Any


def pattern(*shape: int, step: int = 37, dtype: str = "int8") -> Array:
    """Integers all over the range of a type, in no order."""
    info = np.iinfo(dtype)
    spread = (np.arange(np.prod(shape), dtype=np.int64) + 3) * step * (int(info.max) // 127)
    return (
        (spread % (int(info.max) - int(info.min) + 1) + int(info.min)).reshape(shape).astype(dtype)
    )


def ramp(low: float, high: float, dtype: str, size: int = 256) -> Array:
    """A table of `size` entries in equal steps."""
    return np.rint(np.linspace(low, high, size)).astype(dtype)


@dataclass
class Case:
    """One layer, its feeds, and the shape of its result."""

    kind: str
    feeds: list[Array]
    shape: tuple[int, ...]
    attrs: dict[str, Any]
    constants: dict[str, Array] = field(default_factory=dict)
    top: dict[str, Any] = field(default_factory=dict)


BYTE = {"dtype": "uint8", "zero": 0}
FAST_EXP = {"axis": 1, "input_scale_value": 5892, "pow2_out_q": 28, "quantize_method": "FAST_EXP"}
NORM = {"epsilon": 1e-5, "var_shift_value": 2, "norm_scale_value": 1, "norm_shift_value": 0}
ROOTS = np.minimum(np.rint(32768 / np.sqrt(1 + np.arange(193) / 64)), 32767).astype(np.int16)
WEIGHTS = {
    "weights": pattern(4, step=29),
    "biases": np.array([500, -900, 0, 1300], np.int32),
    "scale": np.array([181, 150, 99, 201], np.uint8),
    "shift": np.array([14, 14, 13, 14], np.int8),
    "lut": ROOTS,
}
AMOUNTS = {"scale_value": 23670, "shift_value": 19}
SQUARES = {"scale_value": 28006, "shift_value": 12}
LSTM = {
    "time_steps": 2,
    "input_size": 3,
    "cell_size": 2,
    "activations": ["SIGMOID", "TANH", "TANH"],
    "direction": "forward",
    "out_sequence": ["Y"],
}


def lstm(bits: int, per_row: bool) -> Case:
    kind = f"int{bits}"
    most = 2 ** (bits - 1) - 1
    tables = {f"lut_{g}t": ramp(0, most, kind) for g in "ifo"}
    tables |= {"lut_ct": ramp(-most, most, kind), "lut_h": ramp(-most, most, kind)}
    rows, cells = (8, 2) if per_row else (1, 1)
    scale = [201, *[171] * rows, *[155] * cells, 190, 180, 140, 150, 141, 151]
    up = 8 if bits == 16 else 0
    shift = [9 + up // 4, *[15] * rows, *[14] * cells, 14 + up, 14 + up, *[8, 14 + up] * 2]
    constants = {
        "weights": pattern(8, 5, step=53),
        "biases": (np.arange(8) * 300 - 900).astype(np.int32),
        "scale": np.array(scale, np.uint8),
        "shift": np.array(shift, np.int8),
        "diff_shifts": np.array([0, 1], np.int8),
        **tables,
    }
    feeds = [
        pattern(1, 2, 3, dtype=kind),
        pattern(1, 2, step=91, dtype=kind),
        pattern(1, 2, dtype=kind),
    ]
    attrs = {**LSTM, "lut_shift_value": 9 if bits == 16 else 0}
    plain = {} if per_row else {"weights_scale": 100.0}
    if per_row:
        constants["weights_scale"] = np.full(8, 100, np.float32)
    return Case("BasicLSTM", feeds, (1, 2, 2), attrs | plain, constants, {"dtype": kind, "zero": 0})


CASES = {
    "softmax": Case(
        "Softmax",
        [pattern(2, 6)],
        (2, 6),
        FAST_EXP | {"adjust_q": 1, "input_shift_value": 18},
        top=BYTE,
    ),
    "softmax_whole": Case(
        "Softmax",
        [pattern(2, 6, step=5)],
        (2, 6),
        FAST_EXP | {"adjust_q": 0, "input_shift_value": 18},
        top=BYTE,
    ),
    "softmax_16": Case(
        "Softmax",
        [pattern(2, 6, dtype="int16")],
        (2, 6),
        FAST_EXP | {"adjust_q": 1, "input_shift_value": 25},
        top={"dtype": "uint16", "zero": 0},
    ),
    "softmax_coarse": Case(
        "Softmax",
        [pattern(2, 6, dtype="int16")],
        (2, 6),
        {"axis": 1, "scale_value": 40000, "shift_value": 0, "quantize_method": "LUT"},
        {"lut": np.rint(np.exp(np.linspace(-6, 0, 1024)) * (2**24 - 1)).astype(np.uint32)},
        {"dtype": "uint16", "zero": 0},
    ),
    "layer_norm": Case("LayerNorm", [pattern(3, 4)], (3, 4), NORM | {"axis": [1]}, WEIGHTS),
    "layer_norm_16": Case(
        "LayerNorm",
        [pattern(3, 4, dtype="int16")],
        (3, 4),
        NORM | {"axis": [1]},
        WEIGHTS | {"shift": np.array([7, 7, 6, 7], np.int8)},
        {"dtype": "int16"},
    ),
    "group_norm": Case(
        "GroupNorm", [pattern(1, 2, 2, 4)], (1, 2, 2, 4), NORM | {"axis": 3, "group": 2}, WEIGHTS
    ),
    "instance_norm": Case("InstanceNorm", [pattern(1, 3, 2, 4)], (1, 3, 2, 4), NORM, WEIGHTS),
    "mvn": Case(
        "MVN",
        [pattern(1, 3, 2, 4)],
        (1, 3, 2, 4),
        {
            "axis": [1, 2],
            "epsilon": 1e-5,
            "var_shift_value": 1,
            "scale_value": 3,
            "shift_value": 2,
            "scale_type": DType.UINT8,
            "shift_type": DType.INT8,
        },
    ),
    "mod": Case(
        "Mod",
        [pattern(3, 4), pattern(3, 4, step=91)],
        (3, 4),
        {"fmod": False, "scale_value": [131, 211], "shift_value": [8, 8]},
    ),
    "mod_signs": Case(
        "Mod",
        [pattern(3, 4), pattern(3, 4, step=91)],
        (3, 4),
        {"fmod": True, "scale_value": [131, 211], "shift_value": [8, 8]},
    ),
    "pow": Case(
        "Pow",
        [pattern(3, 4), pattern(3, 4, step=91)],
        (3, 4),
        {"scale_value": 220, "shift_value": 14},
        {"lut_log": ramp(-20000, 30000, "int16"), "lut_exp": ramp(0, 127, "int8")},
        {"zero": 0},
    ),
    "one_hot": Case(
        "OneHot",
        [np.array([[3, 0, -1], [2, 5, 1]], np.int32)],
        (2, 4, 3),
        {"axis": 1, "depth": 4, "values": [-20, 300]},
    ),
    "max_of_volumes": Case(
        "Pooling3D",
        [pattern(1, 3, 3, 3, 1)],
        (1, 2, 2, 2, 1),
        {f"{k}_{a}": v for k, v in (("kernel", 2), ("stride", 1), ("dilation", 1)) for a in "xyz"}
        | {f"pad_{a}_{e}": 0 for a in "xyz" for e in ("begin", "end")}
        | {"method": "MAX", "ceil_mode": False},
    ),
    "sum_of_amounts": Case(
        "Reduce", [pattern(3, 40)], (3, 1), AMOUNTS | {"axis": [1], "method": "L1"}, top=BYTE
    ),
    "sum_of_many_amounts": Case(
        "Reduce",
        [pattern(2, 900)],
        (2, 1),
        AMOUNTS | {"axis": [1], "method": "L1", "shift_value": 23},
        top=BYTE,
    ),
    "root_of_squares": Case(
        "Reduce",
        [pattern(3, 40)],
        (3, 1),
        SQUARES | {"axis": [1], "method": "L2", "shift_value": 19},
        {"sqrt_lut": np.rint(np.sqrt(np.arange(256) / 255) * 255).astype(np.uint8)},
        BYTE,
    ),
    "product": Case(
        "Reduce",
        [pattern(3, 2, 4)],
        (3, 1, 1),
        {"axis": [1, 2], "method": "PROD", "scale_value": 22457, "shift_value": 56},
    ),
    "log_softmax": Case(
        "LogSoftmax",
        [pattern(1, 6)],
        (1, 6),
        {"axis": 1, "quantize_scale": [0.31, 11.5]},
        {"lut_exp": np.exp(np.linspace(-6, 0, 256)).astype(np.float32)},
    ),
    "norm_l2": Case(
        "Normalization",
        [pattern(3, 4)],
        (3, 4),
        {
            "axis": [1],
            "method": "L2",
            "epsilon": 1e-12,
            "scale_value": 127,
            "shift_value": 0,
            "reciprocal_shift_value": 1,
        },
    ),
    "norm_l1": Case(
        "Normalization",
        [pattern(3, 4)],
        (3, 4),
        {"axis": [1], "method": "L1", "epsilon": 1e-12, "scale_value": 30000, "shift_value": 7},
    ),
    "cumulate": Case(
        "Cumulate",
        [pattern(3, 4)],
        (3, 4),
        {
            "axis": 1,
            "method": "SUM",
            "exclusive": True,
            "reverse": True,
            "scale_value": 181,
            "shift_value": 9,
        },
    ),
    "variance": Case(
        "Moments",
        [pattern(3, 4)],
        (1, 4),
        {
            "axis": [0],
            "keepdims": True,
            "input_scale_value": 1,
            "input_shift_value": 0,
            "var_scale_value": 150,
            "var_shift_value": 14,
        },
        top={"also": (1, 4)},
    ),
    "data_stride": Case(
        "DataStride",
        [pattern(1, 4, 4, 1)],
        (1, 4, 4, 1),
        {"kernel_x": 2, "kernel_y": 2, "stride_x": 2, "stride_y": 2},
        top={"zero": 2, "scale": 40.0},
    ),
    "bias_add": Case(
        "BiasAdd",
        [pattern(3, 4)],
        (3, 4),
        {"axis": 1, "scale_value": 181, "shift_value": 9},
        {"biases": np.array([50, -90, 0, 130], np.int32)},
    ),
    "in_top_k": Case(
        "InTopK",
        [pattern(3, 4), np.array([0, 2, 1], np.int32)],
        (3,),
        {"k": 2},
        top={"dtype": "uint8", "zero": 0, "scale": 1.0},
    ),
    "zero_fraction": Case(
        "ZeroFraction",
        [np.array([[-2, 5, -2, 7, 1, -2]], np.int8)],
        (1,),
        {"output_scale": 255},
        top=BYTE,
    ),
    "scatter_nd": Case(
        "ScatterND",
        [pattern(4, 3), np.array([[0], [2]], np.int32), pattern(2, 3, step=91)],
        (4, 3),
        {"reduction": "ADD", "scale_value": [181, 190, 120], "shift_value": 16},
    ),
    "scatter_elements": Case(
        "ScatterElements",
        [pattern(4, 3), np.array([[0, 3, 1]], np.int32), pattern(1, 3, step=91)],
        (4, 3),
        {"reduction": "NONE", "axis": 0, "scale_value": [181, 250, 120], "shift_value": 16},
    ),
    "rounded_once": Case(  # -1650231 * 9223 / 2 ** 21 is just above -7257.5
        "BiasAdd",
        [np.full((1, 2), 5, np.int8)],
        (1, 2),
        {"axis": 1, "scale_value": 9223, "shift_value": 21},
        {"biases": np.array([-1650236, 1650226], np.int32)},
        {"dtype": "int16", "zero": 0},
    ),
    "power_of_one_exponent": Case(
        "Pow",
        [pattern(3, 4), np.array(3, np.uint8)],
        (3, 4),
        {"exponent": 1.5, "scale_value": 1, "shift_value": 0},
        {"lut_log": ramp(-100, 120, "int8")},
        {"zero": 0},
    ),
    "sine_of_16_bits": Case(
        "Sine",
        [pattern(3, 4, dtype="int16")],
        (3, 4),
        {"scale_value": 27372, "shift_value": 19},
        {"lut": np.rint(np.sin(np.linspace(0, 2 * np.pi, 256)) * 32767).astype(np.int16)},
        {"dtype": "int16", "zero": 0},
    ),
    "sum_of_8_and_16_bits": Case(
        "Add",
        [pattern(3, 4), pattern(3, 4, step=91, dtype="int16")],
        (3, 4),
        {"scale_value": [20000, 181, 1], "shift_value": 24},
    ),
    "resize_by_sizes": Case(
        "Resize",
        [pattern(1, 3, 5, 1)],
        (1, 5, 2, 1),
        {"method": "BILINEAR", "mode": "HALF_PIXEL", "ratio_x": 0.5, "ratio_y": 1.5}
        | {"interp_shift_value": 13},
        top={"zero": 2, "scale": 40.0},
    ),
    "nearest_by_sizes": Case(
        "Resize",
        [pattern(1, 3, 5, 1)],
        (1, 5, 2, 1),
        {"method": "NEAREST", "mode": "ASYMMETRIC", "ratio_x": 0.3, "ratio_y": 1.3}
        | {"nearest_mode": "FLOOR"},
        top={"zero": 2, "scale": 40.0},
    ),
    "smoothed": Case(
        "Resize",
        [pattern(1, 3, 5, 1)],
        (1, 2, 2, 1),
        {"method": "BILINEAR", "mode": "HALF_PIXEL", "antialias": True, "interp_shift_value": 8},
        {
            "weight_coefficients_x": np.array([90, 100, 65, 60, 70, 125], np.uint8),
            "bound_x_min": np.array([0, 2], np.uint16),
            "bound_x_max": np.array([3, 5], np.uint16),
            "weight_coefficients_y": np.array([200, 55, 85, 170], np.uint8),
            "bound_y_min": np.array([0, 1], np.uint16),
            "bound_y_max": np.array([2, 3], np.uint16),
        },
        {"zero": 2, "scale": 40.0},
    ),
    "squares_within_channels": Case(
        "LRN",
        [pattern(1, 3, 4, 1)],
        (1, 3, 4, 1),
        {"method": "WITHIN_CHANNEL", "size": 3, "alpha": 0.5, "beta": 0.75, "bias": 1.0}
        | {"scale_sum_value": 29000, "shift_sum_value": 16, "scale_value": 24000}
        | {"shift_value": 27},
        {"lut": ramp(40000, 9000, "uint16")},
    ),
    "slopes_without_a_sign": Case(
        "Activation",
        [pattern(3, 4)],
        (3, 4),
        {"method": "PRELU", "negative_slope_shift": 12, "scale_value": 250, "shift_value": 9},
        {"negative_slope": np.array([400, 2000, 4000, 900], np.int16)},
        {"dtype": "uint8", "zero": -40},
    ),
    "dilated_mean": Case(
        "Pooling",
        [pattern(1, 4, 5, 1)],
        (1, 3, 2, 1),
        {"method": "AVG", "kernel_x": 2, "kernel_y": 2, "stride_x": 2, "stride_y": 1}
        | {"dilation_x": 2, "dilation_y": 2, "pad_left": 0, "pad_right": 0, "pad_top": 1}
        | {"pad_bottom": 0, "ceil_mode": False, "count_include_pad": False},
        top={"zero": 2, "scale": 40.0},
    ),
    "lstm_8": lstm(8, False),
    "lstm_16": lstm(16, True),
    "lstm_16_one_scale": lstm(16, False),
}
WANTED: dict[str, list[int]] = {
    "softmax": [16, 32, 64, 128, 4, 4, 8, 16, 32, 64, 128, 4],
    "softmax_whole": [64, 64, 64, 64, 64, 128, 64, 64, 64, 64, 64, 128],
    "softmax_16": [1024, 4096, 16384, 65535, 64, 128, 512, 1024, 4096, 16384, 65535, 64],
    "softmax_coarse": [1717, 4118, 9877, 23552, 140, 336, 700, 1680, 4028, 9662, 23040, 137],
    "layer_norm": [71, 5, 19, 95, 71, 5, 19, 95, 6, -9, 33, -49],
    "layer_norm_16": [
        10454,
        -260,
        1480,
        14184,
        10454,
        -260,
        1480,
        14184,
        -214,
        -2327,
        4346,
        -17599,
    ],
    "group_norm": [3, -10, 20, 84, 71, 8, -9, 5, -25, -15, 30, -49, 48, 1, 1, 35],
    "instance_norm": [
        2,
        -4,
        24,
        95,
        71,
        13,
        -8,
        16,
        -28,
        -11,
        33,
        -49,
        53,
        9,
        4,
        47,
        -45,
        -15,
        -19,
        -36,
        23,
        1,
        16,
        78,
    ],
    "mvn": [
        19,
        19,
        51,
        78,
        -76,
        -76,
        -33,
        1,
        54,
        54,
        83,
        -77,
        -40,
        -40,
        -2,
        29,
        90,
        90,
        -86,
        -48,
        -5,
        -5,
        30,
        58,
    ],
    "mod": [-1, -3, 37, -26, 7, 31, -18, 8, 20, -15, 16, 42],
    "mod_signs": [-1, 18, 37, 56, 7, -37, -18, 1, 20, 39, 16, -54],
    "pow": [58, 58, 92, 2, 68, -37, 74, -64, 89, 35, 80, -6],
    "one_hot": [
        -20,
        127,
        -20,
        -20,
        -20,
        -20,
        -20,
        -20,
        -20,
        127,
        -20,
        -20,
        -20,
        -20,
        -20,
        -20,
        -20,
        127,
        127,
        -20,
        -20,
        -20,
        -20,
        -20,
    ],
    "max_of_volumes": [97, 97, 94, 100, 97, 97, 103, 100],
    "sum_of_amounts": [115, 112, 114],
    "sum_of_many_amounts": [162, 163],
    "root_of_squares": [107, 105, 107],
    "product": [3, 13, 18],
    "log_softmax": [-33, -22, -10, 1, -67, -55],
    "norm_l2": [-9, 31, 72, 112, -92, -62, -32, -3, 26, 54, 81, -83],
    "norm_l1": [-11, 34, 79, 124, -100, -68, -36, -3, 26, 54, 83, -85],
    "cumulate": [70, 62, 41, 7, -45, -15, 3, 7, 21, 0, -35, 7],
    "variance": [43, 43, 43, 78],
    "data_stride": [-17, 20, 57, 94, -125, -88, -51, -14, 23, 60, 97, -122, -85, -48, -11, 26],
    "bias_add": [19, -18, 27, 86, -20, -56, -11, 48, 33, -4, 41, 10],
    "in_top_k": [0, 1, 1],
    "zero_fraction": [128],
    "scatter_nd": [-37, 12, 62, 57, -58, -38, -50, 0, 50, 40, 59, -56],
    "scatter_elements": [-29, 22, 48, 73, -78, 31, -27, -1, 24, 50, 1, -76],
    "rounded_once": [-7257, 7257],
    "power_of_one_exponent": [-4, 28, 60, 92, -97, -65, -34, -2, 30, 62, 94, -95],
    "sine_of_16_bits": [
        27315,
        20226,
        10317,
        0,
        -15856,
        -6021,
        5226,
        15145,
        24079,
        30175,
        32662,
        -26860,
    ],
    "sum_of_8_and_16_bits": [-29, 7, 42, 0, -19, 17, -25, 11, 47, 5, 41, -57],
    "resize_by_sizes": [11, 39, -18, 36, -60, 32, -64, -10, -67, -39],
    "nearest_by_sizes": [-17, 57, -17, 57, -88, -14, -88, -14, 97, -85],
    "smoothed": [1, -10, -41, -15],
    "dilated_mean": [-51, 23, 13, -41, 6, 16],
    "squares_within_channels": [-87, 127, 127, 127, -128, -128, -128, -61, 127, 127, 127, -128],
    "slopes_without_a_sign": [40, 51, 69, 87, 40, 40, 40, 40, 52, 70, 88, 40],
    "lstm_8": [-11, -4, -1, -7],
    "lstm_16": [-3469, -1806, -346, -3541],
    "lstm_16_one_scale": [-3469, -1806, -346, -3541],
}


@pytest.mark.parametrize("name", CASES)
def test_layers_agree_with_the_executor(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    found = compute(
        tmp_path, case.kind, case.feeds, case.shape, case.attrs, case.constants, **case.top
    )
    assert found.reshape(-1).tolist() == WANTED[name]
