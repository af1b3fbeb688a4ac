"""Integer layers of Zhouyi Compass IR against the results of the vendor's executor, written in
numpy.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import converter
from converter.errors import ConverterError, MappingError
from converter.formats.zhouyi.quantization.requantize import bits_of
from converter.formats.zhouyi.values import DType
from formats.zhouyi_integer_layers import OUT_SCALE, OUT_ZERO, SCALES, ZEROS, compute

Array = Any
RNG = np.random.default_rng(3)


def whole(*shape: int, low: int = -128, high: int = 128) -> Array:
    return RNG.integers(low, high, shape).astype(np.int8)


def rescaled(
    x: Array, multiplier: Any, shift: Any, low: int = -128, high: int = 127, zero: int = OUT_ZERO
) -> Array:
    """round(x * multiplier * 2 ** -shift) - zero, within the range: halves to even in float32, as
    the executor has it.
    """
    y = np.rint(
        np.asarray(x, np.float32) * np.float32(multiplier * 2.0 ** -np.asarray(shift, np.float64))
    )
    return np.clip(y - zero, low, high)


def plus(x: Array, port: int = 0) -> Array:
    return x.astype(np.int64) + ZEROS[port]


ONE = {"scale_value": 181, "shift_value": 14}


@pytest.mark.parametrize("turned", [False, True])
def test_products_of_two_activations(turned: bool, tmp_path: Path) -> None:
    x, y = whole(2, 3, 4), whole(2, 5, 4) if turned else whole(2, 4, 5)
    found = compute(
        tmp_path, "MatMul", [x, y], (2, 3, 5), {**ONE, "trans_a": False, "trans_b": turned}
    )
    second = plus(y, 1).transpose(0, 2, 1) if turned else plus(y, 1)
    np.testing.assert_array_equal(found, rescaled(plus(x) @ second, 181, 14))


def test_products_with_a_third_operand_and_signs(tmp_path: Path) -> None:
    x, y, c = whole(3, 4), whole(4, 5), whole(3, 5)
    attrs = {
        "trans_a": False,
        "trans_b": False,
        "alpha": -1.0,
        "beta": 2.0,
        "scale_value": [77, 256, 91],
        "shift_value": 22,
    }
    total = -(plus(x) @ plus(y, 1)) * 256 + plus(c, 2) * 91
    np.testing.assert_array_equal(
        compute(tmp_path, "Gemm", [x, y, c], (3, 5), attrs), rescaled(total, 77, 22)
    )


def test_channels_times_weights(tmp_path: Path) -> None:
    x, w, b = whole(1, 2, 3, 4), whole(4), RNG.integers(-500, 500, 4).astype(np.int32)
    scale, shift = (
        RNG.integers(100, 255, 4).astype(np.uint8),
        RNG.integers(12, 15, 4).astype(np.int8),
    )
    attrs = {"axis": 3, "with_activation": "RELU"}
    found = compute(
        tmp_path,
        "BatchNorm",
        [x],
        x.shape,
        attrs,
        {"weights": w, "biases": b, "scale": scale, "shift": shift},
    )
    y = np.maximum(x.astype(np.int64) * w + b, 0)
    np.testing.assert_array_equal(found, rescaled(y, scale.astype(float), shift))


def test_channels_times_weights_as_numbers(tmp_path: Path) -> None:
    """The input's zero point is in the stored biases, and comes out of them again."""
    x, w = whole(1, 2, 3, 4), whole(4)
    steps, b = np.array([64.0, 50.0, 80.0, 31.0], np.float32), RNG.normal(size=4)
    stored = np.rint(b * SCALES[0] * steps) + ZEROS[0] * w.astype(np.int64)
    factors = OUT_SCALE / (SCALES[0] * steps)
    constants = {
        "weights": w,
        "biases": stored.astype(np.int32),
        "scale": np.rint(factors * 2**20).astype(np.uint16),
        "shift": np.full(4, 20, np.int8),
    }
    constants |= {"weights_scale": steps, "weights_zp": np.zeros(4, np.int32)}
    exact = compute(
        tmp_path, "BatchNorm", [x], x.shape, {"axis": 3, "with_activation": "NONE"}, constants
    )
    numbers = converter.load(tmp_path / "m.txt", dequantize=True).run({"x0": x})["y"]
    wanted = np.clip(
        np.rint((plus(x) / SCALES[0] * (w / steps) + b) * OUT_SCALE) - OUT_ZERO, -128, 127
    )
    assert np.abs(exact - wanted).max() <= 1 and np.abs(numbers.astype(int) - wanted).max() <= 1


@pytest.mark.parametrize("method", ["SUM", "MEAN", "VARIANCE", "ANY", "ALL", "MAX"])
def test_reductions(method: str, tmp_path: Path) -> None:
    x = whole(1, 3, 4, 5, low=-6, high=6) if method in ("ANY", "ALL") else whole(1, 3, 4, 5)
    plain = (
        {"scale": 1.0, "zero": 0, "dtype": "uint8"}
        if method in ("ANY", "ALL")
        else {"zero": ZEROS[0], "scale": SCALES[0]}
        if method == "MAX"
        else {}
    )
    found = compute(
        tmp_path, "Reduce", [x], (1, 1, 1, 5), {"method": method, "axis": [1, 2], **ONE}, **plain
    )
    y, axes = plus(x), (1, 2)
    total = y.sum(axes, keepdims=True)
    mean = np.rint(x.astype(np.float32).mean(axes, keepdims=True, dtype=np.float32))
    wanted = {
        "SUM": rescaled(total, 181, 14),
        "MEAN": rescaled(total, 181, 14),
        "VARIANCE": rescaled(((x - mean) ** 2).sum(axes, keepdims=True), 181, 14),
        "ANY": (y != 0).any(axes, keepdims=True),
        "ALL": (y != 0).all(axes, keepdims=True),
        "MAX": x.max(axes, keepdims=True),
    }[method]
    np.testing.assert_array_equal(found, wanted)


def test_negative_and_sign(tmp_path: Path) -> None:
    x = whole(2, 3, 4)
    np.testing.assert_array_equal(
        compute(tmp_path, "Negative", [x], x.shape, {}), np.clip(-plus(x) - OUT_ZERO, -128, 127)
    )
    np.testing.assert_array_equal(compute(tmp_path, "Sign", [x], x.shape, {}), np.sign(plus(x)))
    with pytest.raises(ConverterError, match="Negative has a scale"):
        compute(tmp_path, "Negative", [x], x.shape, ONE)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_amounts(dtype: str, tmp_path: Path) -> None:
    """With a scale on the grid of the result; without one that of the stored integer, as many bits
    of it as the type has.
    """
    x = np.append(whole(23), np.int8(-128))
    info = np.iinfo(dtype)
    found = compute(
        tmp_path, "Abs", [x], x.shape, {"scale_value": 2, "shift_value": 0}, dtype=dtype
    )
    np.testing.assert_array_equal(found, rescaled(np.abs(plus(x)), 2, 0, info.min, info.max))
    found = compute(tmp_path, "Abs", [x], x.shape, {}, dtype=dtype)
    np.testing.assert_array_equal(found, np.abs(x.astype(np.int64)).astype(dtype))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
@pytest.mark.parametrize("ignored", [False, True])
def test_casts(dtype: str, ignored: bool, tmp_path: Path) -> None:
    """A scale takes both zero points into account, also those declared as ignored; results of more
    than 16 bits are cut, not rounded.
    """
    x, info = whole(2, 3, 4), np.iinfo(dtype)
    keys = {"to_dtype": DType(dtype), "ignore_scale_zp": ignored}
    found = compute(
        tmp_path,
        "Cast",
        [x],
        x.shape,
        {**keys, "clip_mode": "SATURATION", **ONE, "shift_value": 7},
        dtype=dtype,
    )
    cut = np.trunc(plus(x) * 181 / 128 - OUT_ZERO)
    np.testing.assert_array_equal(
        found, cut if dtype == "int32" else rescaled(plus(x), 181, 7, info.min, info.max)
    )
    found = compute(
        tmp_path, "Cast", [x], x.shape, {**keys, "clip_mode": "SATURATION"}, dtype=dtype
    )
    np.testing.assert_array_equal(
        found, np.clip(x.astype(np.int64) if ignored else plus(x) - OUT_ZERO, info.min, info.max)
    )
    found = compute(
        tmp_path, "Cast", [x], x.shape, {**keys, "clip_mode": "TRUNCATION"}, dtype=dtype
    )
    np.testing.assert_array_equal(found, x.astype(dtype))


def test_quotients(tmp_path: Path) -> None:
    x, y = whole(3, 40), whole(3, 40)
    y[0, :3] = (-ZEROS[1], 1 - ZEROS[1], -1 - ZEROS[1])
    lut = np.append(0, np.rint(65535 / np.arange(1, 256))).astype(np.uint16)
    found = compute(
        tmp_path, "Div", [x, y], x.shape, {"scale_value": 201, "shift_value": 21}, {"lut": lut}
    )
    amount = np.abs(plus(y, 1))
    assert amount.max() <= 255 and (amount == 0).any()
    sign = np.where(plus(y, 1) < 0, -1, 1)
    np.testing.assert_array_equal(
        found, rescaled(sign * plus(x) * lut[amount].astype(np.int64), 201, 21)
    )


@pytest.mark.parametrize("method", ["EQUAL", "NOT_EQUAL", "GREATER", "LESS_EQUAL", "AND", "XOR"])
def test_comparisons_and_conditions(method: str, tmp_path: Path) -> None:
    x, y = whole(4, 300, low=-9, high=9), whole(4, 300, low=-9, high=9)
    found = compute(
        tmp_path,
        "Logical",
        [x, y],
        x.shape,
        {"method": method, "scale_value": [5, 8]},
        scale=1.0,
        zero=0,
        dtype="uint8",
    )
    a, b = plus(x) * 5, plus(y, 1) * 8
    wanted = {
        "EQUAL": a == b,
        "NOT_EQUAL": a != b,
        "GREATER": a > b,
        "LESS_EQUAL": a <= b,
        "AND": (x != 0) & (y != 0),
        "XOR": (x != 0) ^ (y != 0),
    }[method]
    assert 0 < wanted.sum() < wanted.size
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("numbers", [3, 4])
def test_squared_differences_both_ways(numbers: int, tmp_path: Path) -> None:
    x, y = whole(3, 40), whole(3, 40)
    scales, shifts = (
        ([180, 256, 199, 70], [13, 9]) if numbers == 4 else ([180, 130, 77], [12, 7, 6])
    )
    found = compute(
        tmp_path,
        "SquaredDifference",
        [x, y],
        x.shape,
        {"scale_value": scales, "shift_value": shifts},
    )
    wide = (-(2**31), 2**31 - 1)
    if numbers == 4:
        d = rescaled(plus(x) * 256 - plus(y, 1) * 199, 70, 9, *wide, zero=0)
    else:
        d = rescaled(plus(x), 130, 7, *wide, zero=0) - rescaled(plus(y, 1), 77, 6, *wide, zero=0)
    np.testing.assert_array_equal(found, rescaled(d * d, 180, shifts[0]))


def test_choices(tmp_path: Path) -> None:
    c, x, y = whole(3, 40, low=-5, high=5), whole(3, 40), whole(3, 40)
    found = compute(
        tmp_path, "Where", [c, x, y], x.shape, {"scale_value": [150, 200], "shift_value": [8, 7]}
    )
    np.testing.assert_array_equal(
        found, np.where(plus(c) != 0, rescaled(plus(x, 1), 150, 8), rescaled(plus(y, 2), 200, 7))
    )


def test_slopes_for_each_channel(tmp_path: Path) -> None:
    x, slope = whole(1, 3, 4, 5), RNG.integers(-900, 900, (1, 1, 5)).astype(np.int16)
    attrs = {"method": "PRELU", "negative_slope_shift": 10, "scale_value": 129, "shift_value": 8}
    found = compute(tmp_path, "Activation", [x], x.shape, attrs, {"negative_slope": slope})
    y = np.maximum(plus(x), 0) + np.rint(np.minimum(plus(x), 0) * slope * 2.0**-10)
    np.testing.assert_array_equal(found, rescaled(y, 129, 8))


@pytest.mark.parametrize("mode", ["HALF_PIXEL", "ASYMMETRIC", "ALIGN_CORNERS"])
def test_bilinear_resampling(mode: str, tmp_path: Path) -> None:
    x = whole(1, 3, 4, 2)
    attrs = {
        "method": "BILINEAR",
        "mode": mode,
        "ratio_x": 2.0,
        "ratio_y": 3.0,
        "interp_shift_value": 11,
    }
    found = compute(tmp_path, "Resize", [x], (1, 9, 8, 2), attrs, scale=SCALES[0], zero=ZEROS[0])

    def places(size: int, count: int) -> tuple[Array, Array, Array]:
        i = np.arange(count)
        at = {
            "HALF_PIXEL": (i + 0.5) * size / count - 0.5,
            "ASYMMETRIC": i * size / count,
            "ALIGN_CORNERS": i * (size - 1) / (count - 1),
        }[mode]
        first = np.maximum(np.floor(at), 0).astype(int)
        return first, np.minimum(np.ceil(at), size - 1).astype(int), at - first

    (y0, y1, dy), (x0, x1, dx) = places(3, 9), places(4, 8)
    total = 0.0
    for rows, wy in ((y0, 1 - dy), (y1, dy)):
        for columns, wx in ((x0, 1 - dx), (x1, dx)):
            total = (
                total
                + np.floor(np.outer(wy, wx) * 2048 + 0.5)[None, :, :, None]
                * x[:, rows][:, :, columns]
            )
    assert np.abs(found - np.clip(np.rint(total / 2048), -128, 127)).max() <= (
        1 if mode != "ASYMMETRIC" else 0
    )


def test_nearest_resampling_moves_stored_integers(tmp_path: Path) -> None:
    x = whole(1, 3, 4, 2)
    attrs = {
        "method": "NEAREST",
        "mode": "ASYMMETRIC",
        "nearest_mode": "FLOOR",
        "ratio_x": 2.0,
        "ratio_y": 2.0,
    }
    found = compute(tmp_path, "Resize", [x], (1, 6, 8, 2), attrs, scale=SCALES[0], zero=ZEROS[0])
    np.testing.assert_array_equal(found, x.repeat(2, 1).repeat(2, 2))


def test_blocks_are_padded_with_values_of_zero(tmp_path: Path) -> None:
    x = whole(1, 3, 3, 2)
    attrs = {
        "block_size_x": 2,
        "block_size_y": 2,
        "pad_left": 1,
        "pad_right": 0,
        "pad_top": 0,
        "pad_bottom": 1,
    }
    found = compute(
        tmp_path, "SpaceToBatch", [x], (4, 2, 2, 2), attrs, scale=SCALES[0], zero=ZEROS[0]
    )
    padded = np.pad(x, ((0, 0), (0, 1), (1, 0), (0, 0)), constant_values=-ZEROS[0])
    np.testing.assert_array_equal(
        found, padded.reshape(1, 2, 2, 2, 2, 2).transpose(2, 4, 0, 1, 3, 5).reshape(4, 2, 2, 2)
    )


@pytest.mark.parametrize("kind", ["Dilation", "Erosion"])
def test_morphology(kind: str, tmp_path: Path) -> None:
    x, w = whole(1, 5, 6, 2), whole(2, 2, 3, 1, low=-20, high=20)
    window = {
        "kernel_y": 2,
        "kernel_x": 3,
        "stride_x": 1,
        "stride_y": 1,
        "dilation_x": 1,
        "dilation_y": 1,
    }
    attrs = {
        **window,
        "pad_left": 0,
        "pad_right": 0,
        "pad_top": 0,
        "pad_bottom": 0,
        "scale_value": [150, 256, 90],
        "shift_value": 16,
    }
    found = compute(tmp_path, kind, [x], (1, 4, 4, 2), attrs, {"weights": w})
    kernel = w[..., 0].transpose(1, 2, 0).astype(np.int64)
    kernel, join = (kernel, np.max) if kind == "Dilation" else (-kernel[::-1, ::-1], np.min)
    windows = np.lib.stride_tricks.sliding_window_view(plus(x) * 256, (2, 3), (1, 2))
    y = join(windows + (kernel * 90).transpose(2, 0, 1)[None, None, None], axis=(-2, -1))
    np.testing.assert_array_equal(found, rescaled(y, 150, 16))


@pytest.mark.parametrize("method", ["L1", "L2"])
def test_norms_of_windows(method: str, tmp_path: Path) -> None:
    x = whole(1, 5, 6, 2)
    window = {
        "kernel_y": 2,
        "kernel_x": 3,
        "stride_x": 2,
        "stride_y": 1,
        "dilation_x": 1,
        "dilation_y": 1,
    }
    attrs = {
        **window,
        "pad_left": 1,
        "pad_right": 1,
        "pad_top": 0,
        "pad_bottom": 0,
        "method": method,
        "ceil_mode": False,
    }
    attrs |= {"scale_value": 201, "shift_value": 12 if method == "L1" else 9}
    lut = np.rint(np.sqrt(np.arange(256) * 256) / 3).astype(np.int8)
    found = compute(tmp_path, "Pooling", [x], (1, 4, 3, 2), attrs, {"sqrt_lut": lut})
    padded = np.pad(plus(x), ((0, 0), (0, 0), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (2, 3), (1, 2))[:, :, ::2]
    if method == "L1":
        wanted = rescaled(np.abs(windows).sum((-2, -1)), 201, 12)
    else:
        at = rescaled((windows**2).sum((-2, -1)), 201, 9, 0, 65535, zero=0).astype(int)
        table = np.append(lut, lut[-1]).astype(int)
        wanted = table[at // 256] + np.floor(
            (table[at // 256 + 1] - table[at // 256]) * (at % 256) / 256
        )
    np.testing.assert_array_equal(found, wanted)


def test_a_gated_layer_that_resets_after_its_product(tmp_path: Path) -> None:
    batch, time, size, n = 2, 3, 4, 5
    x, h = whole(batch, time, size), whole(batch, n, low=-60, high=60)
    w, biases = (
        whole(3 * n, size + n, low=-50, high=50),
        RNG.integers(-900, 900, 4 * n).astype(np.int32),
    )
    scale, shift = (
        RNG.integers(128, 255, 6 * n + 2).astype(np.uint8),
        np.full(6 * n + 2, 8, np.int8),
    )
    shift[2 * n : 4 * n] = shift[5 * n : 6 * n] = 14
    luts = {k: np.sort(whole(256)) for k in ("lut_rt", "lut_zt", "lut_ht")}
    attrs = {
        "time_steps": time,
        "input_size": size,
        "cell_size": n,
        "direction": "forward",
        "out_sequence": ["H"],
        "activations": ["SIGMOID", "TANH"],
    }
    attrs |= {"hidden_scale_value": 150, "hidden_shift_value": 14}
    found = compute(
        tmp_path,
        "GRUv1",
        [x, h],
        (batch, time, n),
        attrs,
        {"weights": w, "biases": biases, "scale": scale, "shift": shift, **luts},
        zero=0,
    )
    wide = (-(2**31), 2**31 - 1)
    edges = np.cumsum([0, 2 * n, 2 * n, n, n, 1, 1])
    by = [(scale[a:e].astype(float), shift[a:e]) for a, e in itertools.pairwise(edges)]
    wx, wh, b = (
        w[:, :size].T.astype(np.int64),
        w[:, size:].T.astype(np.int64),
        biases.astype(np.int64),
    )
    state, wanted = h.astype(np.int64), []
    for t in range(time):
        step = x[:, t].astype(np.int64)
        gates = (
            step @ wx[:, : 2 * n]
            + rescaled(state @ wh[:, : 2 * n], *by[0], *wide, zero=0)
            + b[: 2 * n]
        )
        gates = rescaled(gates, *by[1], zero=0).astype(int) + 128
        r, u = (
            luts["lut_rt"][gates[:, :n]].astype(np.int64),
            luts["lut_zt"][gates[:, n:]].astype(np.int64),
        )
        inner = r * rescaled(state @ wh[:, 2 * n :] + b[3 * n :], 150, 14, zero=0)
        c = step @ wx[:, 2 * n :] + rescaled(inner, *by[2], *wide, zero=0) + b[2 * n : 3 * n]
        c = luts["lut_ht"][rescaled(c, *by[3], zero=0).astype(int) + 128].astype(np.int64)
        state = rescaled(
            rescaled((127 - u) * c, *by[4], *wide, zero=0) + u * state, *by[5], zero=0
        ).astype(np.int64)
        state = np.maximum(state, -127)  # the least number has no counterpart
        wanted.append(state)
    np.testing.assert_array_equal(found, np.stack(wanted, 1))


def test_the_range_of_a_tensor_bounds_it(tmp_path: Path) -> None:
    x = whole(2, 60)
    found = compute(tmp_path, "Negative", [x], x.shape, {}, range=[-127, 100])
    np.testing.assert_array_equal(found, np.clip(-plus(x) - OUT_ZERO, -127, 100))


@pytest.mark.parametrize(
    ("kind", "attrs"),
    [
        ("LayerNorm", {"axis": [1], "epsilon": 1e-5}),  # without its shift of the variance
        ("Cumulate", {"axis": 1, "method": "PROD", "exclusive": False, "reverse": False}),
        ("Softmax", {"axis": 1, "adjust_q": 8, "pow2_out_q": 28}),
        ("MatMul", {"fused_multiplier": 2.0}),
        ("SquaredDifference", {"scale_value": [1, 2]}),
        ("Resize", {"method": "CUBIC", "mode": "HALF_PIXEL"}),
    ],
)
def test_layers_whose_integers_are_not_known_are_refused_by_name(
    kind: str, attrs: dict[str, Any], tmp_path: Path
) -> None:
    feeds = [whole(4, 4), whole(4, 4)] if kind in ("MatMul", "SquaredDifference") else [whole(4, 4)]
    constants = (
        {"weights": whole(4), "biases": np.zeros(4, np.int32)} if kind == "LayerNorm" else {}
    )
    with pytest.raises(ConverterError, match=kind):
        compute(tmp_path, kind, feeds, (4, 4), attrs, constants)


@pytest.mark.parametrize("kept", [40, 17])
def test_sums_of_wide_integers_are_shifted_in_two_steps(kept: int, tmp_path: Path) -> None:
    """Before the biases, which are cut off, by all but `remain_shift` bits."""
    rng = np.random.default_rng(4)
    x = rng.integers(-3000, 3000, (5, 12)).astype(np.int16)
    w = rng.integers(-127, 128, (7, 12)).astype(np.int8)
    b = rng.integers(-(2**22), 2**22, 7).astype(np.int32)
    attrs = {"scale_value": 20001, "shift_value": 27, "with_activation": "NONE"}
    total, early = x.astype(np.int64) @ w.T.astype(np.int64), max(27 - kept, 0)
    total = np.rint(total * 0.5**early) + np.floor(b * 0.5**early)
    wanted = np.rint(total * 20001 * 0.5 ** (27 - early)) - OUT_ZERO
    found = compute(
        tmp_path,
        "FullyConnected",
        [x],
        (5, 7),
        attrs | {"remain_shift": kept},
        {"weights": w, "biases": b},
        dtype="int16",
    )
    np.testing.assert_array_equal(found, wanted)


def test_a_factor_that_a_product_has_in_its_scale_counts_as_numbers_too(tmp_path: Path) -> None:
    """The vendor's quantizer merges the divisor of attention into the product before it."""
    feeds = [whole(4, 6), whole(6, 5)]
    factor = 0.25 * OUT_SCALE / (SCALES[0] * SCALES[1])
    attrs = {"scale_value": round(factor * 2**20), "shift_value": 20, "with_activation": "NONE"}
    exact, numbers = (
        compute(tmp_path, "MatMul", feeds, (4, 5), attrs, numbers=n).astype(int)
        for n in (False, True)
    )
    wanted = np.rint(plus(feeds[0], 0) @ plus(feeds[1], 1) * factor) - OUT_ZERO
    np.testing.assert_array_equal(exact, np.clip(wanted, -128, 127))
    assert np.abs(exact - numbers).max() <= 1 and np.ptp(exact) > 20


def test_the_shift_after_an_activation_is_undocumented(tmp_path: Path) -> None:
    """The executor reads another key there than the one that it has changed."""
    attrs = {"scale_value": 3, "shift_value": 27, "remain_shift": 17, "with_activation": "RELU"}
    constants = {"weights": whole(7, 12), "biases": np.zeros(7, np.int32)}
    with pytest.raises(ConverterError, match="remain_shift"):
        wide = whole(5, 12).astype(np.int16)
        compute(tmp_path, "FullyConnected", [wide], (5, 7), attrs, constants, dtype="int16")


@pytest.mark.parametrize(("dtype", "width"), [("int16", 8), ("int16", 16), ("int8", 8)])
def test_sums_beyond_the_precision_of_floats(dtype: str, width: int, tmp_path: Path) -> None:
    """Sums of products pass 2 ** 24: of wide integers soon, of bytes in long rows."""
    rng, rows, size = np.random.default_rng(5), 300, 40 if dtype == "int16" else 8000
    x = rng.integers(0, np.iinfo(dtype).max, (rows, size), endpoint=True).astype(dtype)
    w = rng.integers(-(2 ** (width - 3)), 2 ** (width - 1), (40, size)).astype(f"int{width}")
    b = rng.integers(-(2**20), 2**20, 40).astype(np.int32)
    total = x.astype(np.int64) @ w.T.astype(np.int64) + b  # the input's zero point is in the biases
    assert np.abs(total).max() > 1 << 24
    shift = int(np.log2(np.abs(total).max())) - 7  # the largest result has 15 bits
    attrs = {"scale_value": 181, "shift_value": shift, "with_activation": "NONE"}
    wanted = np.clip(np.rint(total * 181.0 * 2.0**-shift) - OUT_ZERO, -(2**15), 2**15 - 1)
    found = compute(
        tmp_path,
        "FullyConnected",
        [x],
        (rows, 40),
        attrs,
        {"weights": w, "biases": b},
        dtype="int16",
    )
    np.testing.assert_array_equal(found, wanted)
    kernel = dict.fromkeys(
        ("kernel_y", "kernel_x", "stride_y", "stride_x", "dilation_y", "dilation_x", "group"), 1
    ) | {"num_output": 40}
    kernel |= dict.fromkeys(("pad_top", "pad_bottom", "pad_left", "pad_right"), 0)
    constants = {"weights": w.reshape(40, 1, 1, size), "biases": b}
    found = compute(
        tmp_path,
        "Convolution",
        [x.reshape(1, rows, 1, size)],
        (1, rows, 1, 40),
        attrs | kernel,
        constants,
        dtype="int16",
    )
    np.testing.assert_array_equal(found.reshape(rows, 40), wanted)


def test_wide_sums_of_two_operands(tmp_path: Path) -> None:
    """16-bit operands times 16-bit scales."""
    x, y = (RNG.integers(-(2**15), 2**15, (2, 300)).astype(np.int16) for _ in range(2))
    attrs = {
        "method": "ADD",
        "with_activation": "NONE",
        "scale_value": [32749, 30011, 32003],
        "shift_value": 31,
    }
    found = compute(tmp_path, "Eltwise", [x, y], x.shape, attrs, dtype="int16")
    total = plus(x) * 30011 + plus(y, 1) * 32003
    np.testing.assert_array_equal(
        found, np.clip(np.rint(total * 32749.0 * 2.0**-31) - OUT_ZERO, -(2**15), 2**15 - 1)
    )


@pytest.mark.parametrize("scale", [SCALES[0], 97.0])
def test_means_from_grid_to_grid(scale: float, tmp_path: Path) -> None:
    """One factor, of 8 bits, takes the sum to the mean on the grid of the result."""
    x = whole(1, 4, 4, 3)
    attrs = {
        "method": "AVG",
        "kernel_y": 2,
        "kernel_x": 2,
        "stride_y": 2,
        "stride_x": 2,
        "dilation_y": 1,
        "dilation_x": 1,
        "ceil_mode": False,
    }
    attrs |= {
        "count_include_pad": False,
        **dict.fromkeys(("pad_top", "pad_bottom", "pad_left", "pad_right"), 0),
    }
    found = compute(tmp_path, "Pooling", [x], (1, 2, 2, 3), attrs, scale=scale)
    factor = np.float32(scale / SCALES[0] / 4)
    shift = np.floor(np.log2(np.float32(255) / factor))
    total = plus(x).reshape(1, 2, 2, 2, 2, 3).sum((2, 4))
    np.testing.assert_array_equal(found, rescaled(total, np.floor(factor * 2**shift + 0.5), shift))


def test_by_how_many_bits_a_file_may_shift() -> None:
    """The vendor's quantizer writes 127 for a product that is next to nothing."""
    assert [bits_of(n, "shift") for n in (-127, 0, 127.0)] == [-127, 0, 127]
    for wrong in (128, -128, 0.5, float("nan"), "3"):
        with pytest.raises(MappingError, match="must be a bit count from -127 to 127"):
            bits_of(wrong, "shift")
