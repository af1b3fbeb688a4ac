"""Fixed-point arithmetic, by numbers that TensorFlow Lite's own tests state, and by formulas."""

from __future__ import annotations

import numpy as np
import pytest

from converter.graph.fixed_point import (
    logistic_table,
    multiplier_of,
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
