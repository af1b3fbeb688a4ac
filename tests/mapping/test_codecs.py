"""Conversion of texts of files to numbers."""

from __future__ import annotations

import pytest

from converter.mapping.codecs import csv, int_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1,2", [1, 2]), ("1.0,1.0", [1, 1]), (" 3 , -4. ", [3, -4]), ("", []), ("7.000", [7])],
)
def test_lists_of_integers_may_have_fractions_of_zeros(text: str, expected: list[int]) -> None:
    """As OpenVINO reads them, whose published int8 models have dilations="1.0,1.0"."""
    assert csv.lift(text) == expected


@pytest.mark.parametrize("text", ["1.5", "1,2.5", "1e3", ".", "1.0.0", "a", "1_0", "\u0661"])
def test_other_numbers_are_not_integers(text: str) -> None:
    with pytest.raises(ValueError, match="not a 64-bit integer"):
        csv.lift(text)


def test_a_single_integer_has_no_fraction() -> None:
    with pytest.raises(ValueError, match="not a 64-bit integer"):
        int_text.lift("1.0")
