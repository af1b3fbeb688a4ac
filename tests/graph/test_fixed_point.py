"""Fixed-point arithmetic, by numbers that TensorFlow Lite's own tests state, and by formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from converter.api import Model
from converter.graph.build import Value, new_model
from converter.graph.fixed_point import (
    high_product,
    inverse_root,
    logistic_table,
    multiplier_of,
    scaled,
    tanh_table,
)

# x: y of tensor_utils_test.cc, "Quantized sigmoid" in Q3.12 and "Quantized tanh" in Q4.11
LOGISTIC = {-10500: 2339, 1398: 19152, -24249: 89, -89: 16207, 32767: 32756, 11482: 30898}
TANH4 = {-5: -76, 163: 2596, -31: -496, 90: 1436, 1: 24, 0: 0, -73: -1168, -92: -1476}


def test_tables_hold_the_numbers_of_tensorflow_lite() -> None:
    for table, numbers in ((logistic_table(), LOGISTIC), (tanh_table(4), TANH4)):
        assert {x: int(table[x + 32768]) for x in numbers} == numbers


@pytest.mark.parametrize("bits", range(7))
def test_tables_are_close_to_the_real_functions(bits: int) -> None:
    x = np.arange(-32768, 32768)
    real = np.tanh(x / 2.0 ** (15 - bits)) * 32768
    np.testing.assert_allclose(tanh_table(bits), real, atol=13)
    np.testing.assert_allclose(logistic_table(), 32768 / (1 + np.exp(-x / 4096)), atol=7)


def test_a_factor_that_rounds_up_to_the_next_power_of_two() -> None:
    assert multiplier_of(0.75) == (3 << 29, 0)
    assert multiplier_of(1 - 2.0**-40) == (1 << 30, 1)


@pytest.mark.parametrize("bits", range(7))
def test_the_ends_of_the_tables(bits: int) -> None:
    y = tanh_table(bits).astype(np.int64)
    assert (y[32769:] == -y[32767:0:-1]).all() and y[32768] == 0


def high(x: int, y: int) -> int:
    """gemmlowp's SaturatingRoundingDoublingHighMul of 32 bits."""
    product = x * y
    nudged = product + (2**30 if product >= 0 else 1 - 2**30)
    return abs(nudged) // 2**31 * (1 if nudged >= 0 else -1)


def root(x: int) -> tuple[int, int]:
    """GetInvSqrtQuantizedMultiplierExp in Python's integers."""
    if x <= 1:
        return 2**31 - 1, 0
    shift = 11
    while x >= 2**29:
        x, shift = x // 4, shift + 1
    while x < 2**27:
        x, shift = x * 4, shift - 1
    half, y = (x // 2 + 1) // 2, 2**28
    for _ in range(5):
        cube = min(high(high(y, y), y) * 64, 2**31 - 1)
        y = min((high(3 * 2**27, y) - high(half, cube)) * 8, 2**31 - 1)
    y = high(y, 1518500250)
    return (y << -shift, 0) if shift < 0 else (y, shift)


def run(numbers: list[int], write: Callable[[Value], Sequence[Value]]) -> list[Any]:
    model, b = new_model()
    x = b.input("x", ir.DataType.DOUBLE, [len(numbers)])
    with b:
        b.output(*write(x))
    feeds = {"x": np.array(numbers, np.float64)}
    return list(Model(model, "onnx").run(feeds).values())


def test_inverse_roots_are_those_of_integers() -> None:
    numbers = [0, 1, 2, 3, 7, 8, 9, 31, 32, 1000, 32767, 2**20 + 1, 2**27 - 1, 2**27, 2**28 + 5]
    numbers += [2**29 - 1, 2**29, 2**29 + 3, 2**30, *range(11, 10**6, 7919)]
    multipliers, powers = run(numbers, inverse_root)
    wanted = [root(n) for n in numbers]
    assert multipliers.tolist() == [m for m, _ in wanted]
    assert powers.tolist() == [2.0**-s for _, s in wanted]


def test_products_are_rounded_as_those_of_integers() -> None:
    numbers = [0, 1, -1, 2**30, -(2**30), 2**31 - 1, -(2**31), 12345, -98765432, 3, -3]
    for y in (1, 2**30, 2**31 - 1, 1970324837, 3 << 27):

        def both(x: Value, y: int = y) -> list[Value]:
            return [high_product(x, y), high_product(x, x * 0 + float(y))]

        for found in run(numbers, both):
            assert found.tolist() == [high(n, y) for n in numbers]


def test_a_scaled_product_of_tensorflow_lite() -> None:
    # of its test "Quantized Multiply with arbitrary scale", before the zero point of 3
    products = [2491 * -1156, 1285 * -120, 4683 * -232, 1437 * -428]
    (found,) = run(products, lambda x: [scaled(x, 1970324837 * 2.0**-46)])
    assert found.tolist() == [-81, -4, -30, -17]
